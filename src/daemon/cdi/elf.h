/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few facts of a shared object that decide where it is mounted and what it needs: its SONAME
 * and DT_NEEDED names. Reads a bounded number of bytes with pread and trusts none of them. No
 * state, any thread; blocking file I/O.
 */
#ifndef ALQ_DAEMON_CDI_ELF_H
#define ALQ_DAEMON_CDI_ELF_H

#include <stddef.h>

#include "base/err.h"

#define ALQ_ELF_NAME_BYTES 256
#define ALQ_ELF_NEEDED_MAX 32

struct alq_elf {
    char soname[ALQ_ELF_NAME_BYTES]; /* "" when it has none */
    size_t needed_count;
    char needed[ALQ_ELF_NEEDED_MAX][ALQ_ELF_NAME_BYTES];
};

/* fd is open for reading, path names it in errors. ALQ_EPROTO: no shared object, or a
 * broken one; ALQ_ENOTSUP: one that is not 64-bit, little-endian and of this machine's
 * architecture; ALQ_EIO. */
int alq_elf_read(int fd, const char *path, struct alq_elf *elf, struct alq_err *err);

/* A program that this machine can run by itself: 64-bit, of its architecture, static. ALQ_EPROTO:
 * it is none; ALQ_ENOTSUP: of another processor, or one that needs a loader; ALQ_EIO. */
int alq_elf_check_program(int fd, const char *path, struct alq_err *err);

#endif

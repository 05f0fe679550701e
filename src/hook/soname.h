/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two facts of an ELF file on which the hook acts: under which name programs ask for a library,
 * and whether a program runs without anything of the root it is run in. Reads a bounded number of
 * bytes with pread and trusts none of them. No state.
 */
#ifndef ALQ_HOOK_SONAME_H
#define ALQ_HOOK_SONAME_H

#include <stdbool.h>

#define ALQ_SONAME_BYTES 256

struct alq_elf_facts {
    char soname[ALQ_SONAME_BYTES]; /* a plain file name, or "" */
    bool has_interpreter;
};

/* fd is open for reading. 0; -ENOEXEC: not a 64-bit ELF file of this machine's processor, or one
 * whose tables do not hold together; -errno of pread. */
int alq_elf_facts(int fd, struct alq_elf_facts *facts);

#endif

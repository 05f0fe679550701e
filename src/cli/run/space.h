/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private view that a program under `aliquot run` has of the file system: /etc/ld.so.preload
 * names the library, and below ALQ_SHARE_ROOT lie the shares of the run and no others. Made by the
 * process that is about to become the program, in namespaces of its own; as root a mount namespace
 * suffices, for others a user namespace goes with it, in which they are who they were.
 */
#ifndef ALQ_CLI_RUN_SPACE_H
#define ALQ_CLI_RUN_SPACE_H

#include <stddef.h>

#include "base/err.h"

struct alq_space_share {
    const char *id, *directory; /* on the host: control, usage, hami.cache */
};

struct alq_space {
    const char *library; /* absolute */
    const struct alq_space_share *shares;
    size_t share_count;
    const unsigned *hidden; /* minors of GPUs whose nodes cannot be opened */
    size_t hidden_count;
};

/* Enters it; the process has one thread. ALQ_ENOTSUP: the machine gives no namespaces, with the
 * reason and what may be done; ALQ_EIO, ALQ_ENOENT, ALQ_EACCES. */
int alq_space_enter(const struct alq_space *space, struct alq_err *err);

#endif

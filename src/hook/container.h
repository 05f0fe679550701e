/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container a hook was called for: OCI state on standard input names the bundle, the bundle's
 * config.json the root. One thread; static buffers.
 */
#ifndef ALQ_HOOK_CONTAINER_H
#define ALQ_HOOK_CONTAINER_H

#include "hook/hook.h"
#include "hook/rootfs.h"

#define ALQ_LABEL_BYTES 4096

struct alq_container {
    char bundle[ALQ_PATH_BYTES];
    char root[ALQ_PATH_BYTES];   /* as config.json has it: absolute or relative to the bundle */
    char label[ALQ_LABEL_BYTES]; /* linux.mountLabel: SELinux's for what is mounted; "": none */
    struct alq_rootfs rootfs;
};

/* Reads the state from the descriptor `state`. 0, or -errno after a report. */
int alq_container_open(struct alq_container *container, int state);

/* The root anew, O_PATH: for a mount namespace entered since. */
int alq_container_open_root(const struct alq_container *container);

/* Whether the root is that of the host: then there is nothing to put in order. */
bool alq_container_is_host(const struct alq_container *container);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory for a container: a tmpfs that is mounted nowhere, and a file of one over a file
 * of the container, which itself stays as it is. Needs Linux 5.2. One thread; no state. */
#ifndef ALQ_HOOK_TMPFS_H
#define ALQ_HOOK_TMPFS_H

#include <stddef.h>

struct alq_container;

/* A descriptor of a new tmpfs of at most that size ("64k"), not mounted yet; -ENOSYS before Linux
 * 5.2. */
int alq_tmpfs_new(const char *size);

/* Mounts a file of these bytes read-only over the file `path` of the container, with the
 * container's SELinux label if it has one. 0 or -errno. */
int alq_tmpfs_cover(const struct alq_container *container, const char *path, const char *data,
                    size_t bytes);

#endif

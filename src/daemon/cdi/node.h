/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's device nodes below the dev root: found, made where they are missing or stale as
 * nvidia-modprobe would make them, and linked below dev/char, without which systemd takes a running
 * container's GPU away at `systemctl daemon-reload`. Blocking file I/O; no state, any thread (two
 * that make the same node end with one).
 */
#ifndef ALQ_DAEMON_CDI_NODE_H
#define ALQ_DAEMON_CDI_NODE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/config.h"

/* host_path is where its links lead on the host, equal to path for a node that is no link below
 * "/". */
struct alq_driver_node {
    char *path;
    char *host_path;
    uint32_t mode; /* permission bits */
    uint32_t gid;
};

/*
 * Finds dev_root/dev/<name> ("nvidia0", "nvidia-caps/nvidia-cap3"), follows its links and checks
 * that it is a character device; with --mknod one that is missing, or is none of the loaded
 * module's (other numbers than proc/devices has), is made first, with --dev-char NVIDIA's are
 * linked. 0 with *node filled (owned strings); ALQ_ENOENT: it is missing or stale and may not be
 * made, with why and what to do; ALQ_EACCES, ALQ_EIO: making it failed; ALQ_EINVAL: it is no
 * character device.
 */
int alq_driver_node_find(const struct alq_config *cfg, const char *name,
                         struct alq_driver_node *node, struct alq_err *err);

/* The same for dev/nvidia-caps/nvidia-cap<minor>; made with the mode that its file says. */
int alq_driver_capability_find(const struct alq_config *cfg, uint32_t minor, uint32_t mode,
                               struct alq_driver_node *node, struct alq_err *err);

void alq_driver_node_clear(struct alq_driver_node *node);

#endif

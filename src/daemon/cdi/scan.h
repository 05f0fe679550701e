/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scan of a driver root found, see cdi.h for the calls. Immutable after the scan; shared
 * between threads by whoever holds it.
 */
#ifndef ALQ_DAEMON_CDI_SCAN_H
#define ALQ_DAEMON_CDI_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/config.h"

/* A file's identity and content, as far as stat tells: a replaced or rewritten file has another
 * stamp. */
struct alq_file_stamp {
    uint64_t device, inode, size;
    int64_t changed_ns;
};

/* One read-only bind mount. Several may come from one file. */
struct alq_driver_mount {
    char *host_path;
    char *container_path;
    struct alq_file_stamp stamp;
};

/* A device node. host_path is where its links lead on the host, equal to path for a node that is no
 * link below "/". */
struct alq_driver_node {
    char *path;
    char *host_path;
};

#define ALQ_DRIVER_COMMON_NODES 4 /* nvidiactl, nvidia-uvm, nvidia-uvm-tools, nvidia-modeset */

struct alq_driver_files {
    char version[32];        /* as in libcuda.so.<version> */
    char *library_host_path; /* the libcuda that was found */
    size_t mount_count;
    struct alq_driver_mount *mounts; /* sorted by container path */
    size_t node_count;
    struct alq_driver_node nodes[ALQ_DRIVER_COMMON_NODES];
};

/*
 * Finds dev_root/dev/<name> ("nvidia0"), follows its links and checks that it is a character
 * device. 0 with *node filled (owned strings); ALQ_ENOENT when it is missing, with what to do about
 * it; ALQ_EINVAL when it is no character device.
 */
int alq_driver_node_find(const struct alq_config *cfg, const char *name,
                         struct alq_driver_node *node, struct alq_err *err);
void alq_driver_node_clear(struct alq_driver_node *node);

#endif

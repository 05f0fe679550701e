/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scan of a driver root found, see cdi.h for the calls. Immutable after the scan; shared
 * between threads by whoever holds it.
 */
#ifndef ALQ_DAEMON_CDI_SCAN_H
#define ALQ_DAEMON_CDI_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "daemon/cdi/kernel.h"
#include "daemon/cdi/node.h"
#include "daemon/config.h"

/* One bind mount. Several may come from one file. */
struct alq_driver_mount {
    char *host_path;
    char *container_path;
    int is_socket; /* programs connect to it: writable, noexec */
};

/* A link in the container. */
struct alq_driver_link {
    char *path;   /* absolute */
    char *target; /* as it stands in the link */
};

struct alq_driver_nodes {
    size_t count;
    struct alq_driver_node *items; /* sorted by path once the scan is over */
};

/* What one GPU has besides /dev/nvidia<minor>. */
struct alq_driver_gpu {
    uint32_t minor;
    char pci_bus_id[16];
    struct alq_driver_nodes nodes; /* DRM, MIG capabilities */
    struct alq_err missing;        /* why one that it cannot do without is missing; code 0: none */
    size_t link_count;
    struct alq_driver_link *links; /* /dev/dri/by-path */
};

/* How a watched path is compared with what it was. */
enum alq_watch_how {
    ALQ_WATCH_CONTENT,  /* a file or directory: replaced or rewritten counts */
    ALQ_WATCH_IDENTITY, /* a socket, or a directory of the kernel: replaced, or its directories */
    ALQ_WATCH_NODE,     /* a device node: numbers, mode and group */
};

/* A path as the scan saw it; what was not there then must not be there now. */
struct alq_watch {
    char *path;
    enum alq_watch_how how;
    struct alq_file_stamp {
        uint64_t a, b, c, d;
    } stamp;
};

struct alq_driver_files {
    char version[ALQ_DRIVER_VERSION_BYTES];        /* as in libcuda.so.<version> */
    char kernel_version[ALQ_DRIVER_VERSION_BYTES]; /* "" where the kernel says none */
    int has_params;          /* proc/driver/nvidia/params is there: the node lock has a meaning */
    char *library_host_path; /* the libcuda that was found */
    size_t mount_count;
    struct alq_driver_mount *mounts; /* sorted by container path */
    size_t folder_count;
    const char **folders; /* directories in the container that hold the libraries; static text */
    size_t link_count;
    struct alq_driver_link *links;
    struct alq_driver_nodes nodes; /* that every container gets */
    size_t gpu_count;
    struct alq_driver_gpu *gpus;
    size_t watch_count;
    struct alq_watch *watches;
};

/* The GPU with that minor, NULL when the kernel told nothing of it. */
const struct alq_driver_gpu *alq_driver_gpu_of(const struct alq_driver_files *files,
                                               uint32_t minor);

/* ---- for the parts of the scan ----------------------------------------------------------------
 */

/* All return 0 or a code; strings are copied. st is what the scan saw of path when it took what it
 * took; NULL: what is there now. */
int alq_scan_add_watch(struct alq_driver_files *files, const char *path, enum alq_watch_how how,
                       const struct stat *st, struct alq_err *err);
int alq_scan_add_link(struct alq_driver_link **links, size_t *count, const char *path,
                      const char *target, struct alq_err *err);

/* Adds *node, whose strings it takes in any case, and watches it. */
int alq_scan_keep_node(const struct alq_config *cfg, struct alq_driver_files *files,
                       struct alq_driver_nodes *nodes, struct alq_driver_node *node,
                       struct alq_err *err);

/* Nodes of all containers, and what each GPU has (scan_nodes.c). */
int alq_scan_nodes(const struct alq_config *cfg, struct alq_driver_files *files,
                   struct alq_err *err);

#endif

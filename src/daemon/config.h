/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All settings of aliquotd: built-in default < YAML file (--config) < environment < flag. Each flag
 * --some-name is the YAML key someName and the variable ALIQUOT_SOME_NAME; a few lists exist in
 * YAML only. Read before the loop runs and constant afterwards, so any thread may read it; but what
 * the table (settings.h) calls live may change on the loop thread, and is that thread's alone.
 */
#ifndef ALQ_DAEMON_CONFIG_H
#define ALQ_DAEMON_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"

#define ALQ_DRIVER_NAME_DEFAULT "hami-core-gpu.project-hami.io"

/* One more bind mount for every container that gets a share (YAML extraMounts). */
struct alq_extra_mount {
    char *host_path;
    char *container_path;
    char *
        *options; /* NULL-terminated; never empty: ["rw", "nosuid", "nodev", "bind"] unless given */
};

/* What a share of a whole GPU (all cores, all memory) gets. */
enum alq_whole_gpu {
    ALQ_WHOLE_GPU_LIMIT,       /* a share like any other: library, limits, figures */
    ALQ_WHOLE_GPU_PASSTHROUGH, /* the device alone */
};

/* No string is NULL unless its comment says so; paths are absolute and have no trailing slash (but
 * "/"). */
struct alq_config {
    int is_standalone; /* --standalone: state_dir and run_dir are "standalone" below what was given
                        */
    char *node_name;   /* --node-name, else $NODE_NAME, else the host name; also the pool's name */
    char *
        driver_name; /* --driver-name: driver, DeviceClass and attribute domain; at most 63 bytes */
    char *kubeconfig; /* --kubeconfig, else $KUBECONFIG; NULL: in-cluster service account */
    char *kubelet_plugins_dir;  /* --kubelet-plugins-dir; our socket is <dir>/<driver>/dra.sock */
    char *kubelet_registry_dir; /* --kubelet-registry-dir; <dir>/<driver>-reg.sock */
    char *pod_uid;              /* --pod-uid, else $POD_UID; NULL: no rolling update */
    char *cdi_dir;              /* --cdi-dir */
    char *state_dir;   /* --state-dir: records and device names, on a disk that survives reboots */
    char *run_dir;     /* --run-dir: shares/ below it, on tmpfs */
    char *host_root;   /* --host-root: where this process sees the host's "/"; NULL or "/"
                          outside a container */
    char *driver_root; /* --driver-root, below host_root: where NVIDIA's user-space driver is
                          installed, host_root itself for the host's */
    char *dev_root;    /* --dev-root: where its dev/ is; never NULL after alq_config_load (default:
                          driver    root if it has dev/nvidiactl, else "/") */
    char *kernel_root; /* --kernel-root: where proc/ and sys/ of the driver's kernel module are;
                          never NULL after alq_config_load (default: driver root if it has
                          proc/driver/nvidia/version, else "/") */
    char
        *library; /* --library: libvgpu.so to install; NULL: containers get limits but no library */
    char *hook;   /* --hook: aliquot-hook to install; NULL: specs have no hooks */
    char *host_lib_dir;   /* --host-lib-dir: where both are installed under a content hash */
    char **inject;        /* --inject, NULL-terminated */
    uint32_t inject_sets; /* what it says, of enum alq_inject; set by alq_config_load */
    int is_mknod;         /* --mknod: NVIDIA's device nodes that are missing are made */
    int is_dev_char;      /* --dev-char: and linked below dev/char */
    uint64_t
        reserve_bytes; /* --reserve: kept back from every GPU, on top of the driver's own reserve */
    uint64_t context_estimate_bytes; /* --context-estimate: reserved in a share before a context is
                                        made */
    uint64_t unified_memory_bytes; /* --unified-memory: promised on a GPU without memory of its own;
                                      0: such a GPU is left out */
    char **devices_include,
        **devices_exclude; /* --devices-include, --devices-exclude: patterns, see
                              devices/choose.h; NULL-terminated, may be NULL */
    int64_t health_hold_s; /* --health-hold */
    char **ignored_xids;   /* --health-ignore-xids: decimal numbers; NULL-terminated, may be NULL */
    enum alq_whole_gpu whole_gpu; /* --whole-gpu */
    int64_t start_spread_s;       /* --start-spread; 0: at once */
    char *metrics_address;        /* --metrics-address: host:port, or "none" */
    char *admin_group;            /* --admin-group: reads the admin socket */
    char *admin_socket;           /* <run dir>/aliquotd.sock, as --run-dir was given */
    enum alq_log_level log_level;
    enum alq_log_format log_format;
    char *pod_resources_socket; /* --pod-resources-socket: the kubelet's, for labels of metrics */
    int is_hami_metrics;        /* --hami-metrics */
    int is_non_tmpfs_allowed;   /* --allow-non-tmpfs: run dir may lie on a disk; tests only */
    struct alq_extra_mount *extra_mounts;
    size_t extra_mount_count;
    char **extra_env; /* "K=V"; NULL-terminated, may be NULL when empty */
    size_t extra_env_count;
};

/* What the command line asked for. */
enum alq_config_action {
    ALQ_CONFIG_RUN,
    ALQ_CONFIG_HELP,
    ALQ_CONFIG_VERSION,
    ALQ_CONFIG_UNINSTALL,      /* --uninstall, see uninstall.h */
    ALQ_CONFIG_UNINSTALL_STAY, /* --uninstall=stay: then wait to be ended */
};

/* Fills *cfg (which need not be initialised) from defaults, the file named by --config, the
 * environment and the flags, and checks it. ALQ_EINVAL names the flag, key or variable and what it
 * takes; ALQ_ENOENT or ALQ_EIO: the file. Free *cfg in either case. */
int alq_config_load(struct alq_config *cfg, int argc, char **argv, enum alq_config_action *action,
                    struct alq_err *err);

/* What differs between two configurations, as lists of YAML keys. */
struct alq_config_changes {
    char taken[512];   /* in force now */
    char waiting[512]; /* in force after a restart */
};

/* Moves what is live from fresh to cfg; the old values are in fresh then. */
void alq_config_take_live(struct alq_config *cfg, struct alq_config *fresh,
                          struct alq_config_changes *changes);

void alq_config_free(struct alq_config *cfg);

/* Writes the text of --help. */
void alq_config_help(FILE *out);

#endif

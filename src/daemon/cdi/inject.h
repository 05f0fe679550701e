/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may go into a container besides its share, in sets that an operator leaves out or adds by
 * name (--inject). docs/cdi.md is this table with the reasons. Constant; any thread.
 */
#ifndef ALQ_DAEMON_CDI_INJECT_H
#define ALQ_DAEMON_CDI_INJECT_H

#include <stdint.h>

#include "base/err.h"

enum alq_inject {
    ALQ_INJECT_COMPUTE = 1 << 0,       /* what CUDA needs; cannot be left out */
    ALQ_INJECT_UTILITY = 1 << 1,       /* NVML, nvidia-smi and the like */
    ALQ_INJECT_VIDEO = 1 << 2,         /* encoder, decoder, optical flow, VDPAU */
    ALQ_INJECT_GRAPHICS = 1 << 3,      /* OpenGL, EGL, Vulkan, OptiX */
    ALQ_INJECT_FIRMWARE = 1 << 4,      /* gsp*.bin */
    ALQ_INJECT_SOCKETS = 1 << 5,       /* persistence daemon, fabric manager, MPS */
    ALQ_INJECT_DRM = 1 << 6,           /* /dev/dri nodes of the GPU */
    ALQ_INJECT_MIG = 1 << 7,           /* capability nodes of the GPU's MIG instances */
    ALQ_INJECT_NVSWITCH = 1 << 8,      /* /dev/nvidia-nvswitch* */
    ALQ_INJECT_IMEX = 1 << 9,          /* IMEX channels */
    ALQ_INJECT_GROUPS = 1 << 10,       /* the groups of nodes that not everybody may use */
    ALQ_INJECT_LDCACHE = 1 << 11,      /* hook update-ldcache */
    ALQ_INJECT_SYMLINKS = 1 << 12,     /* hook create-symlinks */
    ALQ_INJECT_NODE_LOCK = 1 << 13,    /* hook disable-device-node-modification */
    ALQ_INJECT_TOOLKIT_VOID = 1 << 14, /* NVIDIA_VISIBLE_DEVICES=void */
};

/* One row of the table. */
struct alq_inject_row {
    const char *name;
    enum alq_inject set;
    int is_default;
};

/* Ends with a row whose name is NULL. */
extern const struct alq_inject_row alq_inject_rows[];

/*
 * The sets of a list "default", "graphics", "-firmware", read from the left: a name adds its set,
 * "-name" takes it away, "default" and "all" add what they say. words is NULL-terminated.
 * ALQ_EINVAL names the word and the words there are.
 */
int alq_inject_parse(char *const *words, uint32_t *sets, struct alq_err *err);

#endif

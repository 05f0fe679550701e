/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where limits come from. First the share directories under ALQ_SHARE_ROOT; if there is none, those
 * under $ALIQUOT_SHARE_ROOT (for tests without root: it can only add a limit where the container
 * has none); if there is none either, HAMi-core's environment. Called once, by core.c, under its
 * lock.
 */
#ifndef ALQ_VGPU_CONFIG_H
#define ALQ_VGPU_CONFIG_H

#include "vgpu/core.h"
#include "vgpu/env.h"
#include "vgpu/usage.h"

struct alq_config {
    struct alq_share
        shares[ALQ_SHARES_MAX]; /* by ascending id; from the environment: made as devices are met */
    struct alq_file files[ALQ_SHARES_MAX];
    _Atomic uint32_t share_count;
    uint32_t file_count;
    bool is_env;
    bool is_refused; /* a device had to be limited and could not be */
    int again;       /* an error that may pass kept something from being known, else 0 */
    struct alq_env env;
};

/*
 * Returns the mode; where it is ALQ_MODE_BROKEN, the reason has been written to stderr.
 * ALQ_MODE_UNKNOWN: an error that may pass (alq_usage_may_pass) is in the way, which has been
 * written too; nothing is kept, and the next call looks again.
 */
uint32_t alq_config_find(struct alq_config *config);

/* Maps a share directory's two files into the share; used by alq_config_find and its tests. 0,
 * -errno of the control file, or an error that may pass of either. */
int alq_config_open_share(struct alq_config *config, const char *root, const char *id);

/* Where the share's sections are, once its file is mapped (anew). */
void alq_config_find_sections(const struct alq_config *config, struct alq_share *share);

/* Nothing shared is to be had of this usage file (rc: why): says so, once, and takes memory of this
 * process instead. 0 or -ENOMEM. */
int alq_config_go_private(const struct alq_config *config, struct alq_file *file, const char *path,
                          int rc);

/* Says, once, that use is refused because of an error that may pass. */
void alq_config_say_again(const char *path, int rc);

/*
 * Only from the environment: the share of the GPU with this UUID, made when it is new. index:
 * NVML's order. NULL: the device has no limit, or, with is_refused set, no section is left for it
 * (said in a line); with `again` set, an
 * error that may pass is in the way.
 */
struct alq_share *alq_config_env_share(struct alq_config *config, const char *uuid, uint32_t index);

/* The reservation for a context: control's figure, else the environment's, else this. */
#define ALQ_CONTEXT_BYTES_DEFAULT (256ull << 20)

#endif

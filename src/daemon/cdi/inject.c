/* SPDX-License-Identifier: Apache-2.0 */
/* The sets of inject.h and the language of --inject. Pure. */
#include "daemon/cdi/inject.h"

#include <stdio.h>
#include <string.h>

const struct alq_inject_row alq_inject_rows[] = {
    {"compute", ALQ_INJECT_COMPUTE, 1},
    {"utility", ALQ_INJECT_UTILITY, 1},
    {"video", ALQ_INJECT_VIDEO, 1},
    {"graphics", ALQ_INJECT_GRAPHICS, 0},
    {"firmware", ALQ_INJECT_FIRMWARE, 1},
    {"sockets", ALQ_INJECT_SOCKETS, 1},
    {"drm", ALQ_INJECT_DRM, 1},
    {"mig", ALQ_INJECT_MIG, 1},
    {"nvswitch", ALQ_INJECT_NVSWITCH, 1},
    {"imex", ALQ_INJECT_IMEX, 1},
    {"groups", ALQ_INJECT_GROUPS, 0},
    {"ldcache", ALQ_INJECT_LDCACHE, 1},
    {"symlinks", ALQ_INJECT_SYMLINKS, 1},
    {"node-lock", ALQ_INJECT_NODE_LOCK, 1},
    {"toolkit-void", ALQ_INJECT_TOOLKIT_VOID, 1},
    {NULL, 0, 0},
};

/* The sets a word stands for, 0 when it stands for none. */
static uint32_t sets_of(const char *word)
{
    int is_all = !strcmp(word, "all"), is_default = !strcmp(word, "default");
    uint32_t sets = 0;
    for (const struct alq_inject_row *row = alq_inject_rows; row->name; row++) {
        if (is_all || (is_default && row->is_default) || !strcmp(row->name, word))
            sets |= (uint32_t)row->set;
    }
    return sets;
}

static int unknown(const char *word, struct alq_err *err)
{
    char names[256];
    size_t used = 0;
    for (const struct alq_inject_row *row = alq_inject_rows; row->name; row++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, ", %s", row->name);
    return alq_err_set(err, ALQ_EINVAL,
                       "\"%.40s\" is none of default, all%s (with - before it: without)", word,
                       names);
}

int alq_inject_parse(char *const *words, uint32_t *sets, struct alq_err *err)
{
    uint32_t chosen = 0;
    for (; *words; words++) {
        int is_without = **words == '-';
        uint32_t meant = sets_of(*words + is_without);
        if (!meant)
            return unknown(*words, err);
        if (is_without && meant == ALQ_INJECT_COMPUTE)
            return alq_err_set(err, ALQ_EINVAL,
                               "compute cannot be left out: it is what CUDA needs");
        chosen = is_without ? chosen & ~meant : chosen | meant;
    }
    *sets = chosen | ALQ_INJECT_COMPUTE;
    return 0;
}

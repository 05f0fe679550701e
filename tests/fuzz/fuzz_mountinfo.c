/* SPDX-License-Identifier: Apache-2.0 */
/* mountinfo and stat of processes, whose names and mount points containers choose. */
#include <stdlib.h>
#include <string.h>

#include "daemon/monitor/mounts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct alq_mount_place place = {"0:24", "/aliquot/shares"};
    static struct alq_mount_place found;
    struct alq_share_set set = {0};
    uint64_t ticks;
    char *text = malloc(len + 1);
    if (len)
        memcpy(text, data, len);
    text[len] = '\0';
    alq_mount_shares(text, &place, &set);
    for (uint32_t i = 0; i < set.count; i++) {
        if (!*set.ids[i] || strchr(set.ids[i], '/') ||
            !memchr(set.ids[i], '\0', sizeof(set.ids[i])))
            abort();
        if (i && strcmp(set.ids[i - 1], set.ids[i]) >= 0)
            abort();
    }
    free(set.ids);
    alq_mount_place_find(text, 36, "/run/aliquot", &found);
    alq_stat_start(text, &ticks);
    free(text);
    return 0;
}

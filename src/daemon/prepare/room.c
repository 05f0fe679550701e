/* SPDX-License-Identifier: Apache-2.0 */
/* The overcommit guard, see room.h. Pure functions, any thread. */
#include "daemon/prepare/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"

struct sum {
    uint64_t memory_bytes;
    uint64_t cores_pct;
};

static struct sum promised(const struct alq_claim_spec *claim, const char *gpu_uuid)
{
    struct sum sum = {0};
    for (uint32_t i = 0; i < claim->share_count; i++) {
        const struct alq_share_spec *s = &claim->shares[i];
        if (s->is_admin || strcmp(s->gpu_uuid, gpu_uuid) != 0)
            continue;
        sum.memory_bytes += s->memory_bytes; /* each is below 2^63, and there are at most 32 */
        sum.cores_pct += s->cores_pct;
    }
    return sum;
}

static void format_bytes(uint64_t bytes, char text[ALQ_QUANTITY_TEXT_BYTES])
{
    alq_quantity_format(alq_quantity_from_u64(bytes), 1, text);
}

static int refuse(const struct alq_claim_spec *claim, const struct alq_share_spec *share,
                  struct sum asked, struct sum held, const struct alq_claim_spec *const *holders,
                  size_t count, struct alq_err *err)
{
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof(names); i++) {
        struct sum sum = promised(holders[i], share->gpu_uuid);
        if (!strcmp(holders[i]->uid, claim->uid) || (!sum.memory_bytes && !sum.cores_pct))
            continue;
        int n = snprintf(names + used, sizeof(names) - used, "%s%s/%s", used ? ", " : "",
                         holders[i]->namespace_, holders[i]->name);
        used += n > 0 ? (size_t)n : 0;
    }
    uint64_t all = share->gpu_memory_bytes;
    char want[ALQ_QUANTITY_TEXT_BYTES], left[ALQ_QUANTITY_TEXT_BYTES];
    format_bytes(asked.memory_bytes, want);
    format_bytes(all > held.memory_bytes ? all - held.memory_bytes : 0, left);
    return alq_err_set(err, ALQ_EBUSY,
                       "no room on %s (%s): asked are %s and %" PRIu64 " cores, left are %s and "
                       "%" PRIu64 "; held by %s%s",
                       share->device, share->gpu_uuid, want, asked.cores_pct, left,
                       held.cores_pct < ALQ_CORES_ALL ? ALQ_CORES_ALL - held.cores_pct : 0,
                       used ? names : "nobody", used >= sizeof(names) ? "..." : "");
}

int alq_room_check(const struct alq_claim_spec *claim, const struct alq_claim_spec *const *holders,
                   size_t count, const char **gpu_uuid, struct alq_err *err)
{
    for (uint32_t i = 0; i < claim->share_count; i++) {
        const struct alq_share_spec *s = &claim->shares[i];
        if (s->is_admin)
            continue;
        struct sum asked = promised(claim, s->gpu_uuid), held = {0};
        for (size_t h = 0; h < count; h++) {
            if (!strcmp(holders[h]->uid, claim->uid))
                continue;
            struct sum sum = promised(holders[h], s->gpu_uuid);
            held.memory_bytes += sum.memory_bytes;
            held.cores_pct += sum.cores_pct;
        }
        if (held.memory_bytes + asked.memory_bytes <= s->gpu_memory_bytes &&
            held.cores_pct + asked.cores_pct <= ALQ_CORES_ALL)
            continue;
        if (gpu_uuid)
            *gpu_uuid = s->gpu_uuid;
        return refuse(claim, s, asked, held, holders, count, err);
    }
    return 0;
}

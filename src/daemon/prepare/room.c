/* SPDX-License-Identifier: Apache-2.0 */
/* The overcommit guard, see room.h. Pure functions, any thread. */
#include "daemon/prepare/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/quantity.h"
#include "daemon/state/claim_spec.h"

#define NAMES_BYTES 128 /* of the holders in a refusal; the rest is counted */

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
        /* The scheduler reckons with what it has allocated, the library with what is in force. */
        uint64_t memory_bytes = alq_share_memory_in_force(s);
        uint32_t cores_pct = alq_share_cores_in_force(s);
        sum.memory_bytes += memory_bytes > s->memory_bytes ? memory_bytes : s->memory_bytes;
        sum.cores_pct += cores_pct > s->cores_pct ? cores_pct : s->cores_pct;
    }
    return sum;
}

static struct sum held_of(const struct alq_claim_spec *claim, const struct alq_room_holder *holder,
                          const char *gpu_uuid)
{
    return strcmp(holder->claim->uid, claim->uid) ? promised(holder->claim, gpu_uuid)
                                                  : (struct sum){0};
}

static void format_bytes(uint64_t bytes, char text[ALQ_QUANTITY_TEXT_BYTES])
{
    alq_quantity_format(alq_quantity_from_u64(bytes), 1, text);
}

/* Those with a remark first, then by name: the same text as long as nothing changes. */
static int by_remark_and_name(const void *a, const void *b)
{
    const struct alq_room_holder *x = a, *y = b;
    int is_odd = (y->remark[0] != 0) - (x->remark[0] != 0);
    if (is_odd)
        return is_odd;
    int order = strcmp(x->claim->namespace_, y->claim->namespace_);
    return order ? order : strcmp(x->claim->name, y->claim->name);
}

/* "default/a (deleted), default/b and 3 more"; "nobody". */
static void name_holders(const struct alq_claim_spec *claim, const char *gpu_uuid,
                         const struct alq_room_holder *holders, size_t count,
                         char text[NAMES_BYTES + 32])
{
    alq_auto_free struct alq_room_holder *sorted = calloc(count + 1, sizeof(*sorted));
    size_t found = 0, used = 0, i;
    snprintf(text, NAMES_BYTES, "nobody");
    for (i = 0; i < count && sorted; i++) {
        struct sum held = held_of(claim, &holders[i], gpu_uuid);
        if (held.memory_bytes || held.cores_pct)
            sorted[found++] = holders[i];
    }
    if (!found)
        return;
    qsort(sorted, found, sizeof(*sorted), by_remark_and_name);
    for (i = 0; i < found; i++) {
        const struct alq_room_holder *h = &sorted[i];
        int is_named = h->claim->name[0] != 0; /* not without a record */
        int n = snprintf(text + used, NAMES_BYTES - used, "%s%s%s%s%s%s%s", i ? ", " : "",
                         is_named ? h->claim->namespace_ : "uid", is_named ? "/" : " ",
                         is_named ? h->claim->name : h->claim->uid, h->remark[0] ? " (" : "",
                         h->remark, h->remark[0] ? ")" : "");
        if (n < 0 || (i && (size_t)n >= NAMES_BYTES - used))
            break;
        used += (size_t)n < NAMES_BYTES - used ? (size_t)n : NAMES_BYTES - used - 1;
    }
    if (i < found)
        snprintf(text + used, 32, " and %zu more", found - i);
}

static int refuse(const struct alq_claim_spec *claim, const struct alq_share_spec *share,
                  struct sum asked, struct sum held, const struct alq_room_holder *holders,
                  size_t count, struct alq_err *err)
{
    char names[NAMES_BYTES + 32], want[ALQ_QUANTITY_TEXT_BYTES], left[ALQ_QUANTITY_TEXT_BYTES];
    char what[64] = "is the whole GPU"; /* as of a server without consumable capacity */
    uint64_t all = share->gpu_memory_bytes;
    name_holders(claim, share->gpu_uuid, holders, count, names);
    format_bytes(asked.memory_bytes, want);
    if (asked.memory_bytes != all || asked.cores_pct != ALQ_CORES_ALL)
        snprintf(what, sizeof(what), "are %s and %" PRIu64 " cores", want, asked.cores_pct);
    format_bytes(all > held.memory_bytes ? all - held.memory_bytes : 0, left);
    return alq_err_set(err, ALQ_EBUSY,
                       "no room on %s: asked %s, left are %s and %" PRIu64
                       " cores; held by %s; tried again until they are unprepared",
                       share->device, what, left,
                       held.cores_pct < ALQ_CORES_ALL ? ALQ_CORES_ALL - held.cores_pct : 0, names);
}

int alq_room_check(const struct alq_claim_spec *claim, const struct alq_room_holder *holders,
                   size_t count, struct alq_err *err)
{
    for (uint32_t i = 0; i < claim->share_count; i++) {
        const struct alq_share_spec *s = &claim->shares[i];
        if (s->is_admin)
            continue;
        struct sum asked = promised(claim, s->gpu_uuid), held = {0};
        for (size_t h = 0; h < count; h++) {
            struct sum sum = held_of(claim, &holders[h], s->gpu_uuid);
            held.memory_bytes += sum.memory_bytes;
            held.cores_pct += sum.cores_pct;
        }
        if (held.memory_bytes + asked.memory_bytes > s->gpu_memory_bytes ||
            held.cores_pct + asked.cores_pct > ALQ_CORES_ALL)
            return err ? refuse(claim, s, asked, held, holders, count, err) : ALQ_EBUSY;
    }
    return 0;
}

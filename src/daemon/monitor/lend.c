/* SPDX-License-Identifier: Apache-2.0 */
/* Loans of compute, see lend.h. */
#include "daemon/monitor/lend.h"

#define MS 1000000ll
#define AHEAD_NS (50 * MS)   /* what a gate runs ahead of its clock without waiting */
#define ACTIVE_NS (100 * MS) /* so long after its last work a share counts as active */
#define MEAN_NS (200 * MS)   /* over which use is averaged */
#define DECAY_DIV 8u         /* a promise that is not used is given up in so many steps */
#define SPARE_PCT 5u         /* beyond what is used, so that growth is seen */

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

int alq_lend_is_active(const struct alq_lend *l, int64_t now_ns)
{
    return l->active_ns && now_ns - l->active_ns < ACTIVE_NS;
}

static int is_hungry(const struct alq_lend *l, int64_t now_ns)
{
    return l->hungry_ns && now_ns - l->hungry_ns < ACTIVE_NS;
}

/* What it uses and a little more. */
static uint32_t wish_pct(const struct alq_lend *l)
{
    return min_u32(l->used_mpct / 800 + SPARE_PCT, 100);
}

static void average(struct alq_lend *l, uint64_t charged_ns, int64_t span_ns)
{
    uint64_t mpct =
        charged_ns >= (uint64_t)span_ns ? 100000 : charged_ns * 100000 / (uint64_t)span_ns;
    uint64_t weight = span_ns < MEAN_NS ? (uint64_t)span_ns : (uint64_t)MEAN_NS;
    l->used_mpct = (uint32_t)((l->used_mpct * ((uint64_t)MEAN_NS - weight) + mpct * weight) /
                              (uint64_t)MEAN_NS);
}

/* At once all of the promise when work comes back; less only by and by. */
static void keep(struct alq_lend *l, int was_active, int64_t now_ns)
{
    uint32_t want = 0, step = l->cores_pct / DECAY_DIV + 1;
    if (alq_lend_is_active(l, now_ns))
        want = !was_active || !l->is_measured || is_hungry(l, now_ns)
                   ? l->cores_pct
                   : min_u32(wish_pct(l), l->cores_pct);
    uint32_t least = l->kept_pct > step ? l->kept_pct - step : 0;
    l->kept_pct = want > least ? want : least;
}

void alq_lend_observe(struct alq_lend *l, const struct alq_lend_figures *now, int64_t now_ns)
{
    const int was_active = alq_lend_is_active(l, l->seen_ns);
    const int is_ahead = now->tat_ns + (uint64_t)AHEAD_NS > (uint64_t)now_ns;
    if (l->seen_ns && now_ns > l->seen_ns) {
        average(l, now->charged_ns > l->last.charged_ns ? now->charged_ns - l->last.charged_ns : 0,
                now_ns - l->seen_ns);
        if (now->launches != l->last.launches || now->throttled_ns != l->last.throttled_ns)
            l->active_ns = now_ns;
        if (now->throttled_ns != l->last.throttled_ns)
            l->hungry_ns = now_ns;
    }
    if (l->is_measured && is_ahead)
        l->active_ns = now_ns;
    if (l->is_measured && now->tat_ns > (uint64_t)(now_ns + AHEAD_NS))
        l->hungry_ns = now_ns;
    l->last = *now;
    l->seen_ns = now_ns;
    keep(l, was_active, now_ns);
}

/* What a borrower would take beyond what it keeps; is_rest: what it may as well have. */
static uint32_t want_pct(const struct alq_lend *l, int is_rest, int64_t now_ns)
{
    if (!l->is_borrower || !alq_lend_is_active(l, now_ns))
        return 0;
    uint32_t all = is_rest || is_hungry(l, now_ns) ? 100 : wish_pct(l);
    return all > l->kept_pct ? all - l->kept_pct : 0;
}

/* Equal parts for all of a rank, but nobody gets more than he would take. What is left. */
static uint32_t fill(struct alq_lend *const *shares, uint32_t count, uint32_t rank, int is_rest,
                     uint32_t spare, int64_t now_ns)
{
    for (uint32_t most = 0; spare && most < 100; most++)
        for (uint32_t i = 0; spare && i < count; i++) {
            struct alq_lend *l = shares[i];
            if (l->rank != rank || l->borrowed_pct != most || want_pct(l, is_rest, now_ns) <= most)
                continue;
            l->borrowed_pct++;
            spare--;
        }
    return spare;
}

void alq_lend_divide(struct alq_lend *const *shares, uint32_t count, int64_t now_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        kept += shares[i]->kept_pct;
        shares[i]->borrowed_pct = 0;
    }
    uint32_t spare = kept < 100 ? 100 - kept : 0;
    for (int is_rest = 0; is_rest < 2; is_rest++)
        for (uint32_t rank = 0; rank < ALQ_LEND_RANKS; rank++)
            spare = fill(shares, count, rank, is_rest, spare, now_ns);
    /* Counted from the promise, which it has in any case. */
    for (uint32_t i = 0; i < count; i++) {
        struct alq_lend *l = shares[i];
        uint32_t all = l->kept_pct + l->borrowed_pct;
        l->borrowed_pct = all > l->cores_pct ? all - l->cores_pct : 0;
    }
}

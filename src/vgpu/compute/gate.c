/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual clock and the cover slots. Threading: as gate.h says. Calls nothing.
 */
#include "vgpu/compute/gate.h"

#define FAR_SHIFT ALQ_COVER_FAR_SHIFT
#define FAR_COUNT_SHIFT 7u

#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)

static bool swap_u64(uint64_t *word, uint64_t *expect, uint64_t desired)
{
    return __atomic_compare_exchange_n(word, expect, desired, true, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

bool alq_gate_is_limited(const struct alq_control_values *values)
{
    return values->policy != ALQ_POLICY_NONE && values->compute_limit_pct - 1u < 99u;
}

bool alq_gate_rate(const struct alq_control_values *values, uint64_t loan, uint64_t now_ns,
                   struct alq_gate_rate *out)
{
    uint32_t pct = values->compute_limit_pct, lent = ALQ_LOAN_PCT(loan);
    uint64_t until_ns = ALQ_LOAN_UNTIL_NS(loan);
    if (values->policy == ALQ_POLICY_NONE || pct >= 100 || (pct == 0 && loan == 0))
        return false;
    if ((values->policy == ALQ_POLICY_BURST || pct == 0) && until_ns > now_ns &&
        until_ns - now_ns <= ALQ_LOAN_NS_MAX && lent > pct)
        pct = lent < 100 ? lent : 100;
    out->limit_pct = pct ? pct : ALQ_GATE_LEAST_PCT;
    out->correction_ppm = values->time_correction_ppm;
    return true;
}

uint64_t alq_gate_wall_ns(const struct alq_gate_rate *rate, uint64_t gpu_ns)
{
    uint64_t ppm = rate->correction_ppm ? rate->correction_ppm : ALQ_TIME_CORRECTION_ONE;
    uint64_t pct = rate->limit_pct ? rate->limit_pct : 1;
    if (gpu_ns > ALQ_GATE_CHARGE_MAX_NS)
        gpu_ns = ALQ_GATE_CHARGE_MAX_NS;
    if (ppm > 4 * ALQ_TIME_CORRECTION_ONE)
        ppm = 4 * ALQ_TIME_CORRECTION_ONE;
    /* 2^34 * 2^22 * 2^7 at most. */
    return gpu_ns * ppm / (pct * (ALQ_TIME_CORRECTION_ONE / 100));
}

/* The virtual clock as it is to be read at now: a value from the far future is taken for now. */
static uint64_t believed(uint64_t tat, uint64_t now)
{
    return tat > now + ALQ_GATE_AHEAD_MAX_NS ? now : tat;
}

void alq_gate_join(struct alq_gate *gate, uint64_t boot_id, uint64_t now_ns)
{
    if (!boot_id || __atomic_load_n(&gate->boot_id, __ATOMIC_ACQUIRE) == boot_id)
        return;
    /* The clock first: whoever sees the new id sees a clock of this boot. Two that join at once
     * both write now. */
    __atomic_store_n(&gate->tat_ns, now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->boot_id, boot_id, __ATOMIC_RELEASE);
}

uint64_t alq_gate_scale_ns(uint64_t ahead_ns, uint32_t from_pct, uint32_t to_pct)
{
    /* 2^36 * 2^7 at most. */
    uint64_t ns = ahead_ns < 2 * ALQ_GATE_AHEAD_MAX_NS ? ahead_ns : 2 * ALQ_GATE_AHEAD_MAX_NS;
    ns = ns * from_pct / to_pct;
    return ns < ALQ_GATE_AHEAD_MAX_NS ? ns : ALQ_GATE_AHEAD_MAX_NS;
}

void alq_gate_rerate(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns)
{
    uint32_t old = LOAD(&gate->rated_pct);
    if (old == rate->limit_pct ||
        !__atomic_compare_exchange_n(&gate->rated_pct, &old, rate->limit_pct, false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
        old == 0 || old > 100)
        return;
    uint64_t tat = LOAD(&gate->tat_ns);
    for (;;) {
        uint64_t at = believed(tat, now_ns);
        if (at <= now_ns || swap_u64(&gate->tat_ns, &tat,
                                     now_ns + alq_gate_scale_ns(at - now_ns, old, rate->limit_pct)))
            return;
    }
}

uint64_t alq_gate_peek(const struct alq_gate *gate, uint64_t now_ns)
{
    uint64_t at = believed(LOAD(&gate->tat_ns), now_ns);
    return at > ALQ_GATE_BURST_NS ? at - ALQ_GATE_BURST_NS : 0;
}

uint64_t alq_gate_reserve(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns,
                          uint64_t est_ns)
{
    uint64_t wall = alq_gate_wall_ns(rate, est_ns);
    uint64_t tat = LOAD(&gate->tat_ns);
    for (;;) {
        uint64_t at = believed(tat, now_ns);
        uint64_t next = (at > now_ns ? at : now_ns) + wall;
        if (next > now_ns + ALQ_GATE_AHEAD_MAX_NS)
            next = now_ns + ALQ_GATE_AHEAD_MAX_NS;
        if (swap_u64(&gate->tat_ns, &tat, next))
            return at > ALQ_GATE_BURST_NS ? at - ALQ_GATE_BURST_NS : 0;
    }
}

void alq_gate_settle(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns,
                     int64_t gpu_ns)
{
    bool is_refund = gpu_ns < 0;
    uint64_t wall = alq_gate_wall_ns(rate, is_refund ? (uint64_t)-gpu_ns : (uint64_t)gpu_ns);
    if (wall == 0)
        return;
    uint64_t tat = LOAD(&gate->tat_ns);
    for (;;) {
        uint64_t at = believed(tat, now_ns);
        uint64_t next;
        if (is_refund) {
            next = at > wall ? at - wall : 0;
        } else {
            /* Idle time before the work that is charged late paid for none of it beyond the burst:
             * reserve saw to that. */
            next = at + wall;
            if (next > now_ns + ALQ_GATE_AHEAD_MAX_NS)
                next = now_ns + ALQ_GATE_AHEAD_MAX_NS;
        }
        if (swap_u64(&gate->tat_ns, &tat, next)) {
            __atomic_fetch_add(&gate->settled_ns, next - at, __ATOMIC_RELAXED);
            return;
        }
    }
}

void alq_gate_take_credit(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns,
                          uint64_t credit_ns)
{
    const struct alq_gate_rate plain = {.limit_pct = rate->limit_pct};
    uint64_t have = LOAD(&gate->time_credit_ns);
    int64_t back = (int64_t)(credit_ns - have);
    if (!back || !__atomic_compare_exchange_n(&gate->time_credit_ns, &have, credit_ns, false,
                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    /* Of a usage file that is older or younger than the control file nothing is known. */
    if (back >= -ALQ_GATE_CREDIT_MAX_NS && back <= ALQ_GATE_CREDIT_MAX_NS)
        alq_gate_settle(gate, &plain, now_ns, -back);
}

/* Books up to want in one slot of turn; returns what fitted. */
static uint64_t book_slot(uint64_t *slot, uint32_t turn, uint64_t capacity, uint64_t want)
{
    uint64_t word = LOAD(slot);
    for (;;) {
        uint32_t slot_turn = (uint32_t)(word >> 32);
        uint64_t used = word & 0xffffffffu;
        if (slot_turn != turn) {
            /* A later turn has the slot: this is older than the slots remember, so it counts in
             * full. A distance is judged by sign, as turns wrap (after 36 years) and a stale file
             * may hold anything. */
            if ((int32_t)(slot_turn - turn) > 0 && (int32_t)(slot_turn - turn) < 1 << 20)
                return want;
            used = 0;
        }
        uint64_t free_ns = used < capacity ? capacity - used : 0;
        uint64_t take = want < free_ns ? want : free_ns;
        if (take == 0)
            return 0;
        if (swap_u64(slot, &word, (uint64_t)turn << 32 | (used + take)))
            return take;
    }
}

/* [start, end) in slots of that size, none of it further back than they reach. told: the coarser
 * slots, or NULL. */
static uint64_t book(uint64_t *slots, uint32_t slot_shift, uint32_t count_shift, uint64_t start_ns,
                     uint64_t end_ns, uint64_t work_ns, struct alq_cover_far *told)
{
    const uint64_t mask = ((uint64_t)1 << count_shift) - 1;
    uint64_t booked = 0, untold = 0;
    for (uint64_t at = start_ns, to; at < end_ns && booked < work_ns; at = to) {
        uint64_t slot = at >> slot_shift;
        to = (slot + 1) << slot_shift;
        if (to > end_ns)
            to = end_ns;
        uint64_t want = work_ns - booked < to - at ? work_ns - booked : to - at;
        uint64_t took = book_slot(&slots[slot & mask], (uint32_t)(slot >> count_shift),
                                  (uint64_t)1 << slot_shift, want);
        booked += took;
        untold += took;
        if (told && untold &&
            (to >> FAR_SHIFT != at >> FAR_SHIFT || to == end_ns || booked == work_ns)) {
            uint64_t far = at >> FAR_SHIFT;
            book_slot(&told->slots[far % ALQ_COVER_FAR_SLOTS],
                      (uint32_t)(far / ALQ_COVER_FAR_SLOTS), (uint64_t)1 << FAR_SHIFT, untold);
            untold = 0;
        }
    }
    return booked;
}

/* The part of [start, end) that the slots of that size do not reach. */
static uint64_t beyond(uint64_t start_ns, uint64_t end_ns, uint32_t slot_shift,
                       uint32_t count_shift)
{
    uint64_t reach = (((uint64_t)1 << count_shift) - 1) << slot_shift;
    return end_ns - start_ns > reach ? end_ns - start_ns - reach : 0;
}

uint64_t alq_cover_book(struct alq_cover_view view, uint64_t start_ns, uint64_t end_ns,
                        uint64_t work_ns)
{
    if (end_ns <= start_ns)
        return 0;
    if (work_ns > end_ns - start_ns)
        work_ns = end_ns - start_ns;
    /* Up to far_ns no slots reach, up to near_ns the coarser ones. */
    static_assert(ALQ_COVER_FAR_SLOTS == 1u << FAR_COUNT_SHIFT, "FAR_COUNT_SHIFT");
    const uint64_t near_ns = start_ns + beyond(start_ns, end_ns, view.slot_shift, view.count_shift);
    const uint64_t far_ns =
        view.far ? start_ns + beyond(start_ns, end_ns, FAR_SHIFT, FAR_COUNT_SHIFT) : near_ns;
    uint64_t booked = work_ns < far_ns - start_ns ? work_ns : far_ns - start_ns;
    if (view.far)
        booked += book(view.far->slots, FAR_SHIFT, FAR_COUNT_SHIFT, far_ns, near_ns,
                       work_ns - booked, NULL);
    return booked + book(view.slots, view.slot_shift, view.count_shift, near_ns, end_ns,
                         work_ns - booked, view.far);
}

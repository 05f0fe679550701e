/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/nvml/load.h"

#include "vgpu/clock.h"
#include "vgpu/compute/gate.h"

/* Nearest percent of a period. */
static uint32_t percent(uint64_t ns, uint64_t period_ns)
{
    uint64_t pct = ns < period_ns ? (ns * 100 + period_ns / 2) / period_ns : 100;
    return (uint32_t)pct;
}

uint64_t alq_load_booked_ns(const struct alq_cover *cover, uint64_t now_ns)
{
    uint64_t last = (now_ns >> ALQ_COVER_SHIFT) - ALQ_LOAD_LAG_SLOTS, sum = 0;

    for (uint64_t at = last - ALQ_LOAD_SLOTS + 1; at <= last; at++) {
        uint64_t word = __atomic_load_n(&cover->slots[at % ALQ_COVER_SLOTS], __ATOMIC_RELAXED);
        uint64_t ns = word & 0xffffffffu, most = 1ull << ALQ_COVER_SHIFT;
        if (word >> 32 == ((at / ALQ_COVER_SLOTS) & 0xffffffffu))
            sum += ns < most ? ns : most;
    }
    return sum;
}

uint32_t alq_load_process_pct(const struct alq_slot *slot, uint64_t now_ns)
{
    uint64_t turn = now_ns >> ALQ_BUSY_SHIFT,
             of = __atomic_load_n(&slot->busy_turn, __ATOMIC_RELAXED);
    uint64_t ns = __atomic_load_n(&slot->busy_ns, __ATOMIC_RELAXED),
             before = __atomic_load_n(&slot->busy_before_ns, __ATOMIC_RELAXED),
             whole = 1ull << ALQ_BUSY_SHIFT;

    if (of == turn)
        return percent(ns < whole && before < whole ? ns + before : whole,
                       whole + (now_ns & (whole - 1)));
    return of + 1 == turn ? percent(ns, whole + (now_ns & (whole - 1))) : 0;
}

bool alq_load_pct(const struct alq_nvml_shares *s, uint32_t *pct)
{
    uint64_t now = alq_clock_ns(), sum = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        struct alq_control_values values;
        alq_control_read(s->share[i], &values);
        if (!alq_gate_is_limited(&values))
            return false;
        sum += alq_load_booked_ns(&s->share[i]->section->cover, now);
    }
    *pct = percent(sum, (uint64_t)ALQ_LOAD_SLOTS << ALQ_COVER_SHIFT);
    return true;
}

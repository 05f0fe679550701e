/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compute gate of one share on one device: a generic cell rate algorithm on GPU nanoseconds.
 * Its state is struct alq_gate in `usage` (share.h): a virtual clock that each launch moves forward
 * by cost * 100 / limit; a launch may go once the real clock is less than the burst behind it. Who
 * comes reserves at once and then waits for its own time, so launches leave in the order in which
 * they came, from whatever process, and nobody is passed.
 *
 * Plain functions of a region and a clock value (CLOCK_MONOTONIC, ns): no driver, no system call,
 * no lock, no wait. Any thread of any process of the share. All words are changed by
 * compare-and-swap with relaxed order: each is complete in itself and guards nothing else; a
 * process that dies between two of them loses at most its own charge.
 */
#ifndef ALQ_VGPU_COMPUTE_GATE_H
#define ALQ_VGPU_COMPUTE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot/share.h"

/* What an idle share may run ahead of its rate, in wall time: it also makes up for late waking and
 * for waiting behind a neighbour's kernel of up to this length. */
#define ALQ_GATE_BURST_NS 50000000ull
/* A virtual clock further ahead than this is not believed, and no debt grows past it. */
#define ALQ_GATE_AHEAD_MAX_NS 20000000000ull
/* The longest single charge, so that products fit into 64 bits. */
#define ALQ_GATE_CHARGE_MAX_NS 16000000000ull

/* The limits of a gate, as read from `control` at this decision. */
struct alq_gate_rate {
    uint32_t limit_pct;      /* 1..100 */
    uint32_t correction_ppm; /* charged = measured * this / 1e6; 0 means ALQ_TIME_CORRECTION_ONE */
};

/* What a share of 0 percent has while it is lent nothing by a daemon that lends. */
#define ALQ_GATE_LEAST_PCT 1u

/*
 * The rate in force at now_ns, of values and loan as `control` has them. False: not limited, which
 * is policy None, 100 percent, and 0 percent where nobody has ever lent (who else is on the GPU is
 * not known in a process, so nothing is held back). Burst, and 0 percent under any policy, may take
 * what they are lent while the loan runs; without one Burst is held to its limit like Hard.
 */
bool alq_gate_rate(const struct alq_control_values *values, uint64_t loan, uint64_t now_ns,
                   struct alq_gate_rate *out);

/* Is the share limited where nobody lends? */
bool alq_gate_is_limited(const struct alq_control_values *values);

/* GPU time to wall time at the gate's rate: rounded down, gpu_ns cut at ALQ_GATE_CHARGE_MAX_NS of
 * GPU time. */
uint64_t alq_gate_wall_ns(const struct alq_gate_rate *rate, uint64_t gpu_ns);

/*
 * Prepares the gate for a process: a virtual clock of another boot is taken for now. boot_id: of
 * this boot, 0 when it cannot be read (then no clock is doubted).
 */
void alq_gate_join(struct alq_gate *gate, uint64_t boot_id, uint64_t now_ns);

/* What is ahead of now at a limit, at another one: no further than any debt grows. */
uint64_t alq_gate_scale_ns(uint64_t ahead_ns, uint32_t from_pct, uint32_t to_pct);

/* When the limit is another than at the last reckoning, what is ahead of now is stretched or shrunk
 * to the new rate. */
void alq_gate_rerate(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns);

/* The time at which a launch that came now could go; now_ns or earlier: at once. Changes nothing.
 */
uint64_t alq_gate_peek(const struct alq_gate *gate, uint64_t now_ns);

/* Charges est_ns of GPU time and returns the time at which it may start; now_ns or earlier: at
 * once. */
uint64_t alq_gate_reserve(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns,
                          uint64_t est_ns);

/*
 * Corrects charges after the fact: gpu_ns = measured less charged. What is given back is lost where
 * the virtual clock has been overtaken by the real one by more than the burst. What the clock was
 * moved by is added up in settled_ns, for those who wait.
 */
void alq_gate_settle(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns,
                     int64_t gpu_ns);

/* A daemon that gives back or asks for more than this at a time is not followed. */
#define ALQ_GATE_CREDIT_MAX_NS 2000000000ll

/*
 * Takes in what the daemon gave back since the last time, or asks for, in GPU time: credit_ns is
 * the sum that `control` has. One process of the share does it, for all.
 */
void alq_gate_take_credit(struct alq_gate *gate, const struct alq_gate_rate *rate, uint64_t now_ns,
                          uint64_t credit_ns);

/* ---- the union of intervals
 * ------------------------------------------------------------------------------------------ */

/* Slots of time, each of which can be charged for no more than it lasts: the shared ones of
 * share.h, or finer ones of a process. 1 << count_shift slots of 1 << slot_shift ns; the layout is
 * that of struct alq_cover. */
struct alq_cover_view {
    uint64_t *slots;
    uint32_t slot_shift;
    uint32_t count_shift;
    struct alq_cover_far *far; /* the same in coarser slots; NULL: there are none */
};

static inline struct alq_cover_view alq_cover_shared(struct alq_cover *cover,
                                                     struct alq_cover_far *far)
{
    static_assert(ALQ_COVER_SLOTS == 1u << 8, "count_shift");
    return (struct alq_cover_view){cover->slots, ALQ_COVER_SHIFT, 8, far};
}

/*
 * Books work_ns of GPU time (cut to end_ns - start_ns) somewhere in [start_ns, end_ns), as early as
 * there is room; returns how much found room: in every slot at most what it lasts less what others
 * booked there. Booked in the order of their ends, spans of work that ran one after the other all
 * find room; work that ran side by side does so too where its spans are longer, which is charged to
 * the share and not to its neighbours. What lies further back than the slots reach (268 ms in a
 * share) is booked in the coarser ones, and further back than these (4.3 s) it is returned in full.
 */
uint64_t alq_cover_book(struct alq_cover_view view, uint64_t start_ns, uint64_t end_ns,
                        uint64_t work_ns);

#endif

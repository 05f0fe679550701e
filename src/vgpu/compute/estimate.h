/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch is likely to cost: a bounded table of estimates per function (or executable graph)
 * and size class, learnt from launches that were timed alone. A fixed table, open addressing, no
 * lock on the reading side and a try-lock per entry on the learning side (a sample that finds it
 * taken is dropped). Any thread of one process; per process, as handles mean nothing elsewhere. No
 * driver, no clock, no system call.
 *
 * A timed launch reads too long when the GPU had to finish somebody else's work first, and honestly
 * longer when the same function was given more to do. The last ALQ_SAMPLES timings tell the two
 * apart as far as timings can: waiting adds to a floor that keeps coming back, and adds something
 * else each time; differing work has no common floor, or comes back to the same few values. In the
 * first case the floor is the estimate, in the second the mean.
 */
#ifndef ALQ_VGPU_COMPUTE_ESTIMATE_H
#define ALQ_VGPU_COMPUTE_ESTIMATE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define ALQ_ESTIMATES 4096u /* entries; one more is shared by all that find no room */
#define ALQ_SAMPLES 16u
#define ALQ_ESTIMATE_FIRST_NS 20000u /* of a function never timed */
#define ALQ_ESTIMATE_MAX_NS 4000000000u
#define ALQ_ESTIMATE_HELD_NS                                                                       \
    10000000u /* the most that is expected of a launch that waits for others */
#define ALQ_HELD_MIN 4u
#define ALQ_HINTS 4u
#define ALQ_SAMPLE_PERIOD 256u /* launches between two timings, on average */

enum alq_estimate_kind {
    ALQ_ESTIMATE_FUNCTION = 0,
    ALQ_ESTIMATE_GRAPH = 1,
    ALQ_ESTIMATE_MEMORY =
        2, /* memsets and device-to-device copies; the handle is a small number of our own */
};

/* What the remembered samples look like. */
enum alq_spread {
    ALQ_SPREAD_FLAT = 0,    /* one length */
    ALQ_SPREAD_FLOORED = 1, /* one length under waiting: est_ns is the floor */
    ALQ_SPREAD_WIDE = 2,    /* differing work: est_ns is the mean */
};

/* How a timed launch met the GPU, by what this process knows. */
enum alq_moment {
    ALQ_MOMENT_BUSY = 0, /* with work of ours before it or beside it */
    ALQ_MOMENT_IDLE =
        1, /* done with our work; perhaps just now, so that a neighbour's turn has just begun */
    ALQ_MOMENT_FRESH =
        2, /* likewise, and behind a wait at the gate: at no special point of a neighbour's turns */
};

/* 128 bytes. Words that the launching threads read are loaded and stored whole, relaxed: each is a
 * hint by itself. */
struct alq_estimate {
    uint64_t key;      /* 0 free, 1 given up; claimed by compare-and-swap, acquire and release */
    uint32_t est_ns;   /* what one launch is charged */
    uint32_t low_ns;   /* lowest of the remembered samples; 0 before the first */
    uint32_t left;     /* launches until the next timing; racing decrements may lose one */
    uint32_t samples;  /* taken since the entry was (re)started */
    uint32_t age;      /* of the table when the samples were taken, see alq_estimates_doubt */
    uint32_t spread;   /* enum alq_spread of the samples */
    uint32_t learning; /* try-lock of the ring */
    uint16_t probing;  /* timings of an entry without samples that are on the GPU now */
    uint16_t held;     /* timings in a row that count as held, see alq_estimate_held */
    uint32_t ring[ALQ_SAMPLES];
    uint32_t moment;  /* enum alq_moment of the samples */
    uint16_t ignored; /* timings of lesser moments since the last sample; with `learning` */
    uint16_t weight;  /* samples in mean_ns, up to 64; likewise */
    uint32_t mean_ns; /* of differing work, over more samples than the ring has; likewise */
    uint32_t filled;  /* places of the ring in use; likewise */
    uint32_t skipped; /* due timings put off since the last one */
    uint32_t hints;   /* batches much longer than their charge since the last timing */
};
static_assert(sizeof(struct alq_estimate) == 128, "estimate");

struct alq_estimates {
    struct alq_estimate entries[ALQ_ESTIMATES + 1]; /* the last: everything that found no room */
    uint32_t age;
    uint32_t random;
};

/* Size class of a launch: log2 of blocks * threads per block, 0..63. */
uint32_t alq_estimate_class(uint64_t blocks, uint32_t threads_per_block);

/*
 * The entry of a handle and class on a device (0 to 15), made where there is none: a kernel of a
 * library, or a fill, is the same handle on each and takes another time. An executable graph is of
 * one device alone. Never NULL. All-zero memory is an empty table.
 */
struct alq_estimate *alq_estimate_find(struct alq_estimates *table, const void *handle,
                                       enum alq_estimate_kind kind, uint32_t device,
                                       uint32_t size_class);

/* Charge of one launch of the entry. */
static inline uint32_t alq_estimate_ns(const struct alq_estimate *entry)
{
    uint32_t ns = __atomic_load_n(&entry->est_ns, __ATOMIC_RELAXED);
    return ns ? ns : ALQ_ESTIMATE_FIRST_NS;
}

/* True for one launch in about ALQ_SAMPLE_PERIOD, and for the first four sights: time this one, if
 * it can be. */
static inline bool alq_estimate_is_due(const struct alq_estimates *table,
                                       struct alq_estimate *entry)
{
    uint32_t left = __atomic_load_n(&entry->left, __ATOMIC_RELAXED);
    if (left == 0 || __atomic_load_n(&entry->age, __ATOMIC_RELAXED) !=
                         __atomic_load_n(&table->age, __ATOMIC_RELAXED))
        return true;
    __atomic_store_n(&entry->left, left - 1, __ATOMIC_RELAXED);
    return false;
}

/* The launch that was due could not be timed well now; another one soon shall be. How often that
 * was so since the last timing. */
static inline uint32_t alq_estimate_postpone(struct alq_estimate *entry, uint32_t launches)
{
    uint32_t skipped = __atomic_load_n(&entry->skipped, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&entry->left, launches, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->skipped, skipped, __ATOMIC_RELAXED);
    return skipped;
}

/* A number nobody can predict who does not try to. */
uint32_t alq_estimates_random(struct alq_estimates *table);

/*
 * A batch with the entry took much longer than it was charged: a neighbour's doing, or the estimate
 * is too low. After some of these one of the next launches is timed whatever the moment.
 */
static inline void alq_estimate_hint(struct alq_estimates *table, struct alq_estimate *entry)
{
    uint32_t hints = __atomic_load_n(&entry->hints, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&entry->hints, hints, __ATOMIC_RELAXED);
    if (hints >= ALQ_HINTS)
        __atomic_store_n(&entry->left, alq_estimates_random(table) % 8, __ATOMIC_RELAXED);
}

/* A launch of the entry is about to be timed: sets when the next is due. */
void alq_estimate_take(struct alq_estimates *table, struct alq_estimate *entry);

/*
 * Learns from one launch timed alone. The first sample of a better moment throws away those of
 * lesser ones, which count only as long as there is nothing better, or when nothing better has come
 * for long.
 *
 * is_contended: others are on the GPU, and the daemon compares what is charged with NVML's figure.
 * A timing is then no measure, it holds turns of others, more of them or less. What counts is that
 * the same work is charged the same, so that the daemon finds one factor for all of it: the floor
 * under the timings, which hardly moves, whatever they look like.
 */
void alq_estimate_learn(struct alq_estimates *table, struct alq_estimate *entry,
                        uint64_t measured_ns, enum alq_moment moment, bool is_contended);

/*
 * In place of alq_estimate_learn, for a launch that may have been waiting for one that we held
 * back: how long it took is our doing, and an estimate from it would hold the next for longer
 * still. Among others, where a launch ends at any time, one that is not the second in a row is
 * learnt all the same; the first of a function counts up to ALQ_ESTIMATE_HELD_NS. True: it was so
 * for ALQ_HELD_MIN launches in a row, so it is no chance; the estimate is halved then, down to
 * ALQ_ESTIMATE_HELD_NS, and is no bound of what is charged.
 */
bool alq_estimate_held(struct alq_estimates *table, struct alq_estimate *entry,
                       uint64_t measured_ns, enum alq_moment moment, bool is_contended);

/* The executable graph is gone, and the next one at that address is another. */
void alq_estimate_forget_graph(struct alq_estimates *table, const void *exec);

/* Any function may have become another (a module was unloaded): estimates stand, but each is timed
 * afresh at next sight. */
void alq_estimates_doubt(struct alq_estimates *table);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured GPU time of one process on one device: event pools per context, event times as
 * CLOCK_MONOTONIC, batches of launches between two events, and their read-back. It records into the
 * program's streams and asks for completed events; it never synchronises, never creates a stream or
 * a context, and does nothing while a stream capture is open anywhere in the process (a query or
 * record of ours could invalidate it). Errors of its driver calls end in "not measured" and nowhere
 * else.
 *
 * Threading: one try-lock per process (alq_measure_enter); a thread that finds it taken goes
 * without measuring, so nobody waits here and a fork child inherits no wait. The functions below
 * are called with it held.
 */
#ifndef ALQ_VGPU_COMPUTE_MEASURE_H
#define ALQ_VGPU_COMPUTE_MEASURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aliquot/cuda_abi.h"
#include "vgpu/compute/estimate.h"
#include "vgpu/compute/gate.h"

/*
 * The driver and the clock, as the gate needs them. The library fills it with the real ones; tests
 * run it on a device in the same process and a clock that only they move. CUresult as the driver
 * gives it.
 */
struct alq_compute_driver {
    CUresult (*event_create)(CUevent *out); /* with timing, in the current context */
    CUresult (*event_destroy)(CUevent event);
    CUresult (*event_record)(CUevent event, CUstream stream);
    CUresult (*event_query)(CUevent event);
    CUresult (*event_elapsed)(float *ms, CUevent from, CUevent to);
    CUresult (*stream_is_capturing)(CUstream stream, CUstreamCaptureStatus *out);
    CUresult (*context_current)(CUcontext *out);
    uint64_t (*now_ns)(void); /* CLOCK_MONOTONIC */
    /* Returns at until_ns, when *word is or becomes another than expect, or at any time before. */
    void (*wait_until)(const uint32_t *word, uint32_t expect, uint64_t until_ns);
    void (*relax)(void); /* once per turn of a spin */
};

#define ALQ_EVENTS 512u
#define ALQ_CONTEXTS                                                                               \
    16u /* contexts measured at a time; launches in further ones are charged by estimate */
#define ALQ_PENDING 64u     /* batches of a device on the GPU and not read back */
#define ALQ_NO_EVENT 0u     /* event numbers start at 1 */
#define ALQ_LOCAL_SHIFT 14u /* slots of 16 us over 67 ms: overlap of this process's own streams */
#define ALQ_LOCAL_COUNT_SHIFT 12u
#define ALQ_PART_ONE 1024u
/* Work, in estimated GPU time, that pays for one driver call of ours: five a millisecond. */
#define ALQ_CALL_COST_NS 200000

struct alq_measured_event {
    CUevent handle;
    int64_t at_ns;      /* CLOCK_MONOTONIC, once known */
    int64_t gpu_ns;     /* on the GPU's clock, since the context's first event; likewise */
    uint64_t record_ns; /* clock before the record */
    uint16_t next_free;
    uint16_t refs;
    uint8_t context; /* index */
    bool is_known;
};

struct alq_measured_context {
    CUcontext handle;    /* NULL: free */
    uint16_t free;       /* events of this context at hand */
    uint16_t base;       /* the event that times are counted from; 0 before the first */
    int64_t base_ns;     /* its time */
    int64_t base_gpu_ns; /* and on the GPU's clock */
    bool is_dead;        /* our calls failed there: not measured any more */
};

/* Launches between two events of one stream. */
struct alq_batch {
    bool is_over;      /* read back or given up */
    bool is_single;    /* one launch alone: teaches `entry` */
    bool is_after_gap; /* its stream was idle at the first event, surely */
    uint8_t moment;    /* enum alq_moment of a single launch */
    bool is_wide; /* holds functions of differing lengths: their sum is a guess, so is bounded from
                     below too */
    bool is_joining; /* of a stream where no launch can be timed alone: teaches the mean of its
                        launches */
    bool is_gapped;  /* a wait at the gate lies in it */
    bool is_unknown; /* holds launches whose estimate was a guess: the span counts, not their sum */
    bool is_plural;  /* holds launches of several entries */
    uint8_t share;
    uint16_t from, to; /* events */
    uint32_t launches;
    uint64_t
        issued_ns; /* clock at the first launch; of a single one, between its two events' records */
    uint64_t expect_ns;         /* not asked for before */
    uint64_t due_ns;            /* done by then, if the GPU is ours and the estimates are right */
    uint64_t work_ns;           /* sum of the estimates of its launches */
    uint64_t charged_ns;        /* at the gate, for them */
    struct alq_estimate *entry; /* of a single launch; else of the last one */
};

struct alq_compute_share {
    const struct alq_control *control;
    struct alq_gate *gate;
    struct alq_cover *cover;
    struct alq_cover_far *cover_far; /* NULL: there is none */
    struct alq_counters *counters;
    struct alq_slot *slot; /* this process's; NULL: nobody is told what it alone did */
};

#define ALQ_COMPUTE_SHARES 4u /* shares of one device in a process that the gate follows */
#define ALQ_LET_GO 8u         /* waits that are remembered */

struct alq_compute_device {
    bool is_on;
    uint8_t share_count;
    struct alq_compute_share shares[ALQ_COMPUTE_SHARES];
    _Atomic uint32_t seen_sequence; /* of shares[0].control when is_limited was found */
    _Atomic uint32_t is_limited;
    _Atomic uint32_t is_throttled; /* the last reservation had to wait */
    _Atomic uint32_t is_contended; /* others are on the GPU, and the daemon corrects time */
    _Atomic uint32_t open_streams; /* before the last wait, those with a batch that was not ended */
    _Atomic uint64_t outstanding_ns;                  /* estimated and not read back */
    _Atomic uint64_t waited_from_ns, waited_until_ns; /* the last wait at this gate */
    _Atomic uint32_t waiting;
    _Atomic uint64_t
        let_go_ns[ALQ_LET_GO]; /* when launches that had been held back went on; a ring */
    _Atomic uint32_t let_go;   /* how many did */
    _Atomic int64_t credit_ns; /* charged at the gate and not used by a launch yet */
    _Atomic uint64_t
        granted_ns; /* ever added to credit_ns: less credit_ns, it is what was launched */
    _Atomic uint64_t launched_ns; /* of that, what idle_at_ns holds */
    _Atomic uint64_t synced_ns; /* granted less credit when the program last waited for its work */
    _Atomic uint64_t looked_at_ns; /* when it was last brought up to date */
    _Atomic uint64_t idle_at_ns;   /* when the GPU should be done with what was launched */
    /* With the measuring lock: */
    _Atomic int64_t budget_ns; /* work done less driver calls paid for; read without the lock too */
    _Atomic uint32_t part;     /* see alq_measure_part; likewise */
    uint64_t recent_work_ns, recent_actual_ns; /* estimates, and what came of them; fading */
    uint64_t expect_ns; /* when what was pushed should be done, if the GPU is ours */
    uint64_t pushed_ns; /* what had been launched when the last batch was pushed */
    uint32_t pending_count;
    struct alq_batch pending[ALQ_PENDING]; /* in the order of their pushes */
    uint64_t local_cover[1u << ALQ_LOCAL_COUNT_SHIFT];
};

struct alq_measure {
    _Atomic uint32_t lock;
    uint16_t events_made;
    struct alq_measured_context contexts[ALQ_CONTEXTS];
    struct alq_measured_event events[ALQ_EVENTS];
};

struct alq_compute;

static inline bool alq_measure_enter(struct alq_measure *m)
{
    uint32_t expect = 0;
    return atomic_compare_exchange_strong_explicit(&m->lock, &expect, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void alq_measure_leave(struct alq_measure *m)
{
    atomic_store_explicit(&m->lock, 0, memory_order_release);
}

/* Index of a context, made known where there is room; ALQ_CONTEXTS: not measured. */
uint32_t alq_measure_context(struct alq_compute *c, CUcontext context);

/* Records a fresh event into a stream of the context, which must be the current one. Its number
 * with one reference, or 0. */
uint16_t alq_measure_record(struct alq_compute *c, struct alq_compute_device *dev, uint32_t context,
                            CUstream stream);

void alq_measure_hold(struct alq_compute *c, uint16_t event);
void alq_measure_drop(struct alq_compute *c, uint16_t event);

/* Room for another batch? */
static inline bool alq_measure_has_room(const struct alq_compute_device *dev)
{
    return dev->pending_count < ALQ_PENDING;
}

/* What was ever launched, as it was charged ahead. */
static inline uint64_t alq_measure_launched(const struct alq_compute_device *dev)
{
    return atomic_load_explicit(&dev->granted_ns, memory_order_relaxed) -
           (uint64_t)atomic_load_explicit(&dev->credit_ns, memory_order_relaxed);
}

/*
 * What of est_ns is charged ahead: as large a part as was found to count of the work read back
 * last. It is less than all where streams ran side by side, or other processes of the share had
 * their turns within what was measured.
 */
static inline uint64_t alq_measure_part(const struct alq_compute_device *dev, uint64_t est_ns)
{
    uint32_t part = atomic_load_explicit(&dev->part, memory_order_relaxed);
    return part ? est_ns * part / ALQ_PART_ONE : est_ns;
}

/* The batch that ends with the event and is not read back; else NULL. */
const struct alq_batch *alq_measure_pending(const struct alq_compute_device *dev, uint16_t event);

/* Hands over a batch with its two events (and their references); there is room. */
void alq_measure_push(struct alq_compute *c, struct alq_compute_device *dev,
                      const struct alq_batch *batch);

/*
 * Reads back what is done and settles it with the gate; asks for at most `queries` batches, and
 * only for those that should be done by now, unless is_urgent.
 */
void alq_measure_read_back(struct alq_compute *c, struct alq_compute_device *dev, uint64_t now_ns,
                           uint32_t queries, bool is_urgent);

/* Drops every batch and event of a context, handing events back to the driver when is_alive. */
void alq_measure_context_gone(struct alq_compute *c, CUcontext context, bool is_alive);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the wrappers call around each launch: the gate is asked before, and measured events are
 * booked. README.md beside this file tells the algorithm. One struct alq_compute is one process;
 * the library has one, tests have several.
 *
 * Threading: any thread. Nothing here blocks on a lock: streams and measurement are try-locks, and
 * who finds one taken is charged by estimate. The only waits are the gate's own (no lock held) and
 * those for our own work, at most ALQ_OWN_WAIT_NS. Driver calls go through struct
 * alq_compute_driver; their errors are never the program's.
 */
#ifndef ALQ_VGPU_COMPUTE_COMPUTE_H
#define ALQ_VGPU_COMPUTE_COMPUTE_H

#include "vgpu/compute/measure.h"

#define ALQ_COMPUTE_DEVICES 16u
#define ALQ_STREAMS 512u
#define ALQ_CAPTURES 32u
#define ALQ_BATCH_NS 2000000u     /* estimated work between two events of a stream */
#define ALQ_SINGLE_NS 1000000u    /* launches of this length are all timed alone */
#define ALQ_OWN_WAIT_NS 20000000u /* the longest wait for work of our own */
#define ALQ_IN_FLIGHT_NS                                                                           \
    20000000u /* estimated work on the GPU and not read back, or eight launches if that is more */
#define ALQ_CREDIT_NS 200000u /* taken from the gate at a time for launches shorter than that */
#define ALQ_CREDIT_THROTTLED_NS 500000u /* likewise where the gate makes us wait, */
#define ALQ_CREDIT_STREAM_NS 1000000u   /* and for each stream where several are used */
#define ALQ_OPEN_STREAMS 8u             /* of them, that a reservation reckons with */
#define ALQ_JITTER_NS                                                                              \
    1000000u /* waits before timings of functions whose timings differ are up to so much longer */
#define ALQ_GOOD_MOMENT_NS 3000000u /* the longest wait for one, to time a launch that was due */
#define ALQ_SPIN_NS 60000u          /* waits end by spinning for this long */
#define ALQ_WAIT_STEP_NS 10000000u  /* waits look at control, and at our own work, this often */

/* One stream as the gate sees it. Under its try-lock, apart from the key. */
struct alq_compute_stream {
    uint64_t key; /* 0 free, 1 given up, 2 being made */
    _Atomic uint32_t lock;
    uint8_t device;
    uint8_t context; /* index; ALQ_CONTEXTS: not measured */
    bool is_open;    /* a batch is being filled */
    bool is_unknown;
    bool is_plural; /* the batch holds launches of several entries */
    bool is_wide;
    bool is_gapped;
    bool is_after_gap;
    uint8_t moment;  /* enum alq_moment of the single launch */
    bool is_joining; /* has seen programmatic dependent launches: no event right behind a launch */
    bool is_timing;  /* a single launch is between `before` and `after` */
    bool is_mixed;   /* another thread launched into it meanwhile */
    uint16_t from;   /* first event of the batch, or of the single launch */
    uint16_t last;   /* event behind the last batch; 0 none */
    uint32_t batch_launches;
    uint32_t launches;          /* since the counters were last told */
    struct alq_estimate *entry; /* of the last launch in the open batch */
    CUcontext context_handle;
    CUstream stream; /* NULL: a default stream, which is another one in another thread or context */
    uint64_t issued_ns;
    uint64_t work_ns;    /* estimated, in the open batch */
    uint64_t charged_ns; /* for it */
};

struct alq_compute {
    struct alq_compute_driver driver;
    _Atomic uint32_t captures; /* open stream captures of this process */
    _Atomic uint32_t
        context_count; /* contexts met; with one, default streams need no question whose they are */
    _Atomic uint32_t stream_count;    /* streams known */
    int64_t boottime_offset_ns;       /* CLOCK_BOOTTIME less CLOCK_MONOTONIC */
    uint64_t capturing[ALQ_CAPTURES]; /* streams; CAS */
    struct alq_measure measure;
    struct alq_compute_stream streams[ALQ_STREAMS];
    struct alq_compute_device devices[ALQ_COMPUTE_DEVICES];
    struct alq_estimates estimates;
};

struct alq_compute_launch {
    uint32_t device;    /* index, below ALQ_COMPUTE_DEVICES */
    CUstream stream;    /* NULL and CU_STREAM_LEGACY are the same; the _ptsz forms pass
                           CU_STREAM_PER_THREAD for NULL */
    uintptr_t thread;   /* any number that is the calling thread's own, for CU_STREAM_PER_THREAD */
    const void *handle; /* CUfunction, CUkernel, CUgraphExec, or a small number */
    enum alq_estimate_kind kind;
    uint32_t size_class;
    bool is_joined; /* programmatic dependent launch: no event may come between it and the launch
                       before */
};

/* What `after` must know of `before`; on the caller's stack. */
struct alq_compute_ticket {
    struct alq_compute_stream *stream; /* NULL: nothing to do */
    struct alq_estimate *entry;
    uint64_t est_ns, charged_ns;
    uint8_t device;
    uint8_t share;
    bool is_single;
};

/* The rate of a share at now_ns as `control` has it. False: it does not limit compute. */
bool alq_compute_rate(const struct alq_compute_share *share, uint64_t now_ns,
                      struct alq_gate_rate *out);

/* A share's files as the gate uses them; slot as in struct alq_compute_share. */
static inline struct alq_compute_share alq_compute_share_of(const struct alq_control *control,
                                                            struct alq_usage_section *section,
                                                            struct alq_slot *slot)
{
    return (struct alq_compute_share){
        .control = control,
        .gate = &section->gate,
        .cover = &section->cover,
        .cover_far = &section->cover_far,
        .counters = &section->counters,
        .slot = slot,
    };
}

/* Puts a device under its shares (the first ALQ_COMPUTE_SHARES of them). All-zero memory plus
 * `driver` is a process. */
void alq_compute_add_device(struct alq_compute *c, uint32_t index,
                            const struct alq_compute_share *shares, uint32_t share_count,
                            uint64_t boot_id);

/* False: launches on the device are counted and nothing more. */
bool alq_compute_is_limited(struct alq_compute *c, uint32_t index);

/* Adds launches to the counters; now_ns, where known, is when the share was last active. */
void alq_compute_count(struct alq_compute *c, struct alq_compute_device *dev, uint64_t launches,
                       uint64_t now_ns);

/* Returns when the launch may go. */
void alq_compute_before(struct alq_compute *c, const struct alq_compute_launch *launch,
                        struct alq_compute_ticket *out);

/* The launch was handed to the driver, which said rc; on failure its charge is given back. */
void alq_compute_after(struct alq_compute *c, const struct alq_compute_launch *launch,
                       const struct alq_compute_ticket *ticket, CUresult rc);

/* What a wait or query of the program, answered with success, says is done. */
enum alq_synced {
    ALQ_SYNCED_EVENT,   /* something */
    ALQ_SYNCED_STREAM,  /* one stream */
    ALQ_SYNCED_CONTEXT, /* everything in a context */
};

/* After it: some of our events are probably done. */
void alq_compute_synced(struct alq_compute *c, enum alq_synced what);

/* Around the driver's begin and end of a capture. `rc` is what it said. */
void alq_compute_capture_begin(struct alq_compute *c, CUstream stream);
void alq_compute_capture_began(struct alq_compute *c, CUstream stream, CUresult rc);
void alq_compute_capture_ended(struct alq_compute *c, CUstream stream, CUresult rc);

/* Before the driver destroys it. */
void alq_compute_stream_gone(struct alq_compute *c, CUstream stream);
void alq_compute_graph_gone(struct alq_compute *c, CUgraphExec exec);
/* A module or library is unloaded: functions at the same addresses may be others. */
void alq_compute_functions_gone(struct alq_compute *c);
/* A context was made or retained. Contexts that nobody told of are noticed at their first created
 * stream. */
void alq_compute_context_made(struct alq_compute *c, CUcontext context);
/* Before a context may end (a release that leaves it alive costs a few events, made again later).
 */
void alq_compute_context_gone(struct alq_compute *c, CUcontext context);

#endif

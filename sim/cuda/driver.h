/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the stand-in libcuda: the objects behind the handles, and what its files need of each
 * other. Handles are pointers to these structures; a destroyed one keeps its memory for a while
 * (grave.c; contexts and functions, which threads and graphs still have, for good), with another
 * magic number, so that a stale handle is an error and not a crash.
 *
 * Locks, outermost first: driver_lock (contexts, modules, devices opened), a device's memory lock
 * (its windows and account), the queue's lock (queue.c). None is held while waiting.
 * Nothing here may print, exit, or call back into the exported functions that check the context.
 */
#ifndef SIM_CUDA_DRIVER_H
#define SIM_CUDA_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Entry points are visible from outside, everything else in the library is not. */
#pragma GCC visibility push(default)
#include "aliquot/cuda_abi.h"
#pragma GCC visibility pop
#include "client/client.h"
#include "common/account.h"
#include "common/sm.h"
#include "cuda/va.h"

#define STACK_MAX 64
#define QUEUE_DEPTH 1024 /* kernels a stream holds before a launch waits, as on a card */

enum magic {
    MAGIC_CONTEXT = 0x43545831,
    MAGIC_STREAM = 0x53545231,
    MAGIC_EVENT = 0x45565431,
    MAGIC_MODULE = 0x4d4f4431,
    MAGIC_LIBRARY = 0x4c494231,
    MAGIC_FUNCTION = 0x46554e31,
    MAGIC_KERNEL = 0x4b524e31,
    MAGIC_GRAPH = 0x47525031,
    MAGIC_EXEC = 0x47455831,
    MAGIC_NODE = 0x474e4431,
    MAGIC_POOL = 0x504f4c31,
    MAGIC_ARRAY = 0x41525231,
    MAGIC_MIPMAP = 0x4d495031,
    MAGIC_TEXTURE = 0x54455831,
    MAGIC_SURFACE = 0x53524631,
    MAGIC_LINK = 0x4c4e4b31,
    MAGIC_GREEN = 0x47524e31,
    MAGIC_RESOURCE = 0x52455331,
    MAGIC_USER = 0x55534f31,
    MAGIC_PHYSICAL = 0x50485931,
    MAGIC_EXTERNAL = 0x45585431,
    MAGIC_SEMAPHORE = 0x53454d31,
    MAGIC_DEAD = 0x44454144,
};

struct device {
    int ordinal; /* CUdevice */
    struct sim_device_info info;
    struct sim_sm sm;
    struct sim_ledger ledger;
    struct sim_node_device *shared;
    const struct sim_control_device *control;
    pthread_mutex_t memory_lock;
    struct va_window memory, managed;
    struct CUctx_st *primary; /* made at the first retain */
    unsigned int primary_flags;
    struct CUmemPoolHandle_st *pool;         /* made when first asked for (pool.h) */
    struct CUmemPoolHandle_st *pool_current; /* NULL: the default one */
};

struct capture; /* capture.c */

struct CUstream_st {
    uint32_t magic;
    bool is_legacy, is_per_thread; /* the context's own streams */
    unsigned int flags;
    int priority;
    struct CUctx_st *context;
    struct CUstream_st *next; /* streams of a context */
    unsigned long long id;
    struct capture *_Atomic capture;
    CUaccessPolicyWindow access_window;
    CUsynchronizationPolicy sync_policy; /* 0: never set */
    CUlaunchMemSyncDomain sync_domain;
    CUlaunchMemSyncDomainMap sync_domain_map;
    /* The rest under the queue's lock, and the atomic ones read without. */
    _Atomic uint32_t index;  /* simgpud's name for it; STREAM_UNUSED before its first operation */
    _Atomic uint64_t pushed; /* number of its last operation */
    _Atomic uint64_t earliest_ns; /* which is not done before then */
    uint64_t done_seen;           /* of pushed, by simgpud's last word that was looked at */
    uint32_t kernels;             /* launched */
    struct stream_kernel *recent; /* the last QUEUE_DEPTH of them; made at the first */
};

#define STREAM_UNUSED UINT32_MAX

struct stream_kernel {
    uint64_t number, earliest_ns; /* of the operation; when it can be done at the earliest */
};

struct CUevent_st {
    uint32_t magic;
    unsigned int flags;
    struct CUctx_st *context;
    struct CUevent_st *next;
    struct event_share *share;       /* of one that other processes can open */
    struct capture *_Atomic capture; /* recorded into this capture */
    uint32_t cell;                   /* in the client's memory */
    uint64_t first_record;           /* of the cell, before this event had it */
    _Atomic uint64_t record;         /* the last one; 0: never */
    _Atomic uint64_t number;         /* of its operation, */
    _Atomic uint32_t stream;         /* and its stream's index */
    _Atomic uint64_t earliest_ns;    /* it is not reached before then */
};

struct CUctx_st {
    uint32_t magic;
    uint32_t id; /* of a green context's form the primary's: that owns what is made in it */
    struct device *device;
    struct CUctx_st *root;       /* itself; the primary one of a green context's form */
    struct CUgreenCtx_st *green; /* NULL but for a green context's form */
    uint32_t epoch;              /* of the device when it was made */
    bool is_primary;
    unsigned int references; /* retains of a primary context, attachments of another */
    uint64_t limit_bytes;    /* device memory that its limits cost */
    unsigned int flags;
    unsigned int api_version;
    struct CUctx_st *next;
    struct CUstream_st legacy, *streams;
    struct CUstream_st control; /* of ours: marks behind the work of others */
    struct CUevent_st *events;
    struct CUmod_st *modules;
    _Atomic uint64_t last_seq;   /* of the process's operations, the last one given to it */
    _Atomic uint64_t waited_seq; /* those up to this one are known to be done */
    _Atomic uint64_t left_seq; /* the last one when a stream went before it was known to be done */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared_config;
};

/* A kernel that computes on the device's bytes; others only take time. */
struct builtin {
    const char *name;
    uint32_t param_bytes[4]; /* of a module that does not say */
    uint64_t (*duration_ns)(const uint64_t *args);
    void (*run)(const uint64_t *args);
    bool (*is_over)(void *args); /* of a kernel that runs until the host says so */
};

/* What a launch asks for besides its arguments. */
struct launch_shape {
    unsigned int grid[3], block[3], shared_bytes;
    unsigned int cluster[3]; /* 0: none */
    bool is_cooperative;     /* all blocks at once */
};

/* One launch, ready to run: what a stream or a graph node carries. */
struct launch {
    const struct builtin *builtin;
    uint64_t args[4];
    uint64_t duration_ns;
    uint32_t blocks; /* of its grid: as many SMs it can use */
    uint32_t per_sm; /* of its blocks, an SM holds at once */
    const struct sim_kernel_rule *rule;
};

struct thread {
    struct CUctx_st *stack[STACK_MAX];
    int depth;
    CUstreamCaptureMode capture_mode;
    bool is_callback; /* in a host function, which may not use CUDA */
    struct CUstream_st *per_thread[SIM_MAX_DEVICES]; /* last used; checked against the context */
};

extern _Thread_local struct thread thread_state;
extern pthread_mutex_t driver_lock;
extern struct sim_connection driver_connection;
extern struct device driver_devices[SIM_MAX_DEVICES];
extern int driver_device_count;
extern const unsigned char *driver_alive; /* wiped in a fork child: 0 there and before cuInit */

/* Facts of the profile this library was built as (profile.c of each). */
extern const enum sim_profile driver_profile;

static inline bool driver_ready(void)
{
    return driver_alive && *driver_alive;
}

/* What a context fails with for good once its device was lost or an XID ended it. */
static inline CUresult context_fault(const struct CUctx_st *context)
{
    const struct sim_control_device *c = context->device->control;

    if (atomic_load_explicit(&c->epoch, memory_order_acquire) == context->epoch)
        return CUDA_SUCCESS;
    return (CUresult)atomic_load_explicit(&c->code, memory_order_relaxed);
}

/* The context calls of this thread go to, or NULL; checks that the driver is ready. */
static inline CUresult current(struct CUctx_st **context)
{
    struct thread *t = &thread_state;

    if (!driver_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (t->is_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!t->depth || !t->stack[t->depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = t->stack[t->depth - 1];
    return (*context)->magic == MAGIC_CONTEXT ? context_fault(*context)
                                              : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

#define NEED(condition, error)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return (error);                                                                        \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult try_result_ = (call);                                                             \
        if (try_result_ != CUDA_SUCCESS)                                                           \
            return try_result_;                                                                    \
    } while (0)

static inline uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* grave.c: takes over the memory of an object that is dead, and that nothing here points to. */
void bury(void *object);

/* init.c */
CUresult device_get(CUdevice ordinal, struct device **device);

/* context.c */
/* The primary context of the device, made if need be; a reference more, or less. */
CUresult primary_retain(struct device *device, struct CUctx_st **context);
CUresult primary_release(struct device *device);
CUresult context_check(CUcontext context);
struct CUctx_st *context_by_id(uint32_t id); /* NULL when it is gone */

/* memory.c */
CUresult memory_alloc(struct CUctx_st *context, size_t bytes, enum va_kind kind, CUdeviceptr *out);
CUresult memory_free(CUdeviceptr address);
/* Frees an allocation of that kind, which cuMemFree leaves alone. */
CUresult memory_release(CUdeviceptr address, enum va_kind kind);
void memory_free_owned(struct CUctx_st *context);
/* The host memory behind [address, address + bytes), which must lie in one live allocation; marks
 * it as backed when is_write. NULL when it does not. */
void *memory_host(CUdeviceptr address, size_t bytes, bool is_write);
/* The device whose window holds the address, or NULL for host memory. */
struct device *memory_device(CUdeviceptr address);

/* array.c: the context goes; its arrays' memory goes with the rest. */
void array_free_all(struct CUctx_st *context);

/* peer.c: no other context reaches this one any more, nor it others. */
void peer_forget(struct CUctx_st *context);

/* ipc.c: memory of other processes that the context opened is closed. */
void ipc_forget(struct CUctx_st *context);

/* managed.c: advice for the allocation at base is forgotten. */
void managed_forget(uint64_t base);
/* memory.c: the managed allocation around the address goes to the host, or to its device as far as
 * that has room; one that shares a granule stays. */
void managed_move(CUdeviceptr address, bool is_to_host);

/* stream.c */
CUresult stream_get(CUstream handle, struct CUctx_st *context, struct CUstream_st **stream);
/* The stream and, for a default one, the current context; a created stream brings its own. */
CUresult stream_of(CUstream handle, struct CUstream_st **stream);
void stream_open(struct CUstream_st *stream, struct CUctx_st *context, unsigned int flags,
                 int priority);
void stream_free_all(struct CUctx_st *context);
/*
 * Work for a stream, in the order of the calls; when it happens is simgpud's to say (sim/model).
 * None of these waits for it, but a kernel for room while the stream holds QUEUE_DEPTH unfinished
 * ones. CUDA_ERROR_DEVICE_UNAVAILABLE when simgpud is gone, else the context's fault.
 */
CUresult stream_kernel(struct CUstream_st *stream, uint64_t duration_ns, uint32_t blocks);
/* A copy or fill within the device: a kernel on all SMs that is no launch. */
CUresult stream_fill(struct CUstream_st *stream, uint64_t duration_ns);
/* A copy between host and device: a copy engine. */
CUresult stream_copy(struct CUstream_st *stream, uint64_t duration_ns);
/* Nothing, but an operation with a number. */
CUresult stream_mark(struct CUstream_st *stream);
/* What follows waits for operation `number` of the stream with that index, of any device. */
CUresult stream_depend(struct CUstream_st *stream, uint32_t index, uint64_t number);
/*
 * What follows waits until stream_host_end. Its number and its stream's index are how the caller's
 * own thread waits for its turn (stream_host_begin; false: simgpud is gone) and ends it.
 */
CUresult stream_host(struct CUstream_st *stream, uint32_t *index, uint64_t *number);
bool stream_host_begin(uint32_t index, uint64_t number);
void stream_host_end(uint32_t index, uint64_t number);
/* A kernel that runs until stream_host_end. */
CUresult stream_spin(struct CUstream_st *stream, uint32_t blocks, uint32_t *index,
                     uint64_t *number);
/* Whether all given so far is known to be done, without waiting; false may come late. */
bool stream_is_done(struct CUstream_st *stream);
/* Until all that was given so far to the stream, to every stream of the context, is done. */
CUresult stream_wait(struct CUstream_st *stream);
CUresult context_wait(struct CUctx_st *context);

/* queue.c */
CUresult queue_push(struct CUstream_st *stream, struct sim_op op, uint64_t *number, uint64_t *seq);
void queue_close(struct CUstream_st *stream);
bool queue_is_done(uint32_t index, uint64_t number);
CUresult queue_wait(uint32_t index, uint64_t number, uint64_t earliest_ns,
                    const struct CUctx_st *context);
/* Until simgpud has said what is done by now. */
CUresult queue_refresh(void);
/* Not known to be done: asks simgpud, where that may change something. */
CUresult queue_look(uint64_t earliest_ns);
void queue_signal(uint32_t index, uint64_t number);

/* event.c: takes over the share (NULL: the process's own) when it succeeds. */
CUresult event_new(struct CUctx_st *context, unsigned int flags, struct event_share *share,
                   CUevent *event);

/* event_share.c */
CUresult event_share_make(struct device *device, struct event_share **share);
void event_share_put(struct event_share *share);
CUresult event_share_record(struct event_share *share, struct CUstream_st *stream);
/* What follows in the stream, or the caller, waits for the last record until now. */
CUresult event_share_wait(struct event_share *share, struct CUstream_st *stream);
CUresult event_share_synchronise(struct event_share *share, const struct CUctx_st *context);
bool event_share_is_reached(const struct event_share *share);

/* The event happens when the stream has done all it was given so far. */
CUresult event_push(struct CUevent_st *event, struct CUstream_st *stream);
void event_free_all(struct CUctx_st *context);

/* module.c */
void module_free_all(struct CUctx_st *context);
CUresult function_of(CUfunction handle, struct CUctx_st *context, struct CUfunc_st **function);

/* launch.c */
const struct builtin *builtin_find(const char *name);
/* How long a kernel of that shape takes; reads what a built-in kernel needs of its arguments. */
void launch_time(const struct device *device, const struct launch_shape *shape,
                 struct launch *launch);
/* The device file's rule for a kernel of that name, or NULL. */
const struct sim_kernel_rule *launch_rule(const char *name);
CUresult launch_run(const struct launch *launch, struct CUstream_st *stream);

/* conditional.c: what a kernel says of a handle; one that is gone is left alone. */
void condition_set(CUgraphConditionalHandle handle, unsigned int value);

/* launch_call.c */
/* *per_sm: blocks that an SM holds at once. */
CUresult launch_check(struct CUfunc_st *function, const struct launch_shape *shape,
                      uint32_t *per_sm);
/* Checks the launch, reads its arguments and says how long it takes. */
CUresult launch_prepare(struct CUfunc_st *function, const struct launch_shape *shape, void **params,
                        void **extra, struct launch *launch);

/* A copy or fill, ready to run. */
enum copy_kind { COPY_HOST, COPY_DEVICE, COPY_FILL };
struct copy {
    enum copy_kind kind;
    void *to;
    const void *from;
    size_t width, rows, to_pitch, from_pitch;
    size_t slices, to_slice, from_slice; /* slices 0: one */
    bool is_host;                        /* a fill of page-locked memory */
    CUdeviceptr to_address,
        from_address;           /* of a copy of one row, or a fill, as the program has it */
    const CUDA_MEMCPY3D *shape; /* of any other; the caller's */
    uint64_t value;
    unsigned int element;
};

/* capture.c and capture_work.c: what calls on a capturing stream do instead, adding a node to its
 * capture. Each gives CUDA_ERROR_STREAM_CAPTURE_INVALIDATED when that has been spoilt. */
CUresult capture_launch(struct CUstream_st *stream, struct CUfunc_st *function,
                        const struct launch_shape *shape, void **params, void **extra);
CUresult capture_copy(struct CUstream_st *stream, const struct copy *copy);
CUresult capture_host(struct CUstream_st *stream, CUhostFn function, void *data);
CUresult capture_memops(struct CUstream_st *stream, unsigned int count,
                        const CUstreamBatchMemOpParams *ops);
/* A signal or a wait, as `type` says. */
CUresult capture_semaphores(struct CUstream_st *stream, CUgraphNodeType type,
                            const CUexternalSemaphore *semaphores, const void *params,
                            unsigned int count);
CUresult capture_alloc(struct CUstream_st *stream, const CUmemPoolProps *props, size_t bytes,
                       CUdeviceptr *address);
CUresult capture_free(struct CUstream_st *stream, CUdeviceptr address);

/* CUDA_SUCCESS, or the error of a call that may not be made while this thread could see a capture.
 */
CUresult capture_unsafe(void);
/* is_external: the event is recorded, or waited for, whenever the graph runs. */
CUresult capture_event_record(struct CUstream_st *stream, struct CUevent_st *event,
                              bool is_external);
CUresult capture_event_wait(struct CUstream_st *stream, struct CUevent_st *event, bool is_external);
/* Ends the capture in an error, as a forbidden call on the stream does. */
void capture_invalidate(struct CUstream_st *stream);
/* The stream goes: a capture that began on it ends without a graph. */
void capture_abandon(struct CUstream_st *stream);
/* Whether any stream that the legacy stream waits for is capturing. */
bool capture_implicit(struct CUctx_st *context);

/* copy.c */
CUresult copy_submit(const struct copy *copy, CUstream stream, bool is_async);
/* One side of a copy: device memory when it is, or when is_device says that it must be. */
CUresult copy_side(uint64_t address, size_t bytes, bool is_device, bool is_write, void **host,
                   bool *on_device);
/* copy3d.c: what a three-dimensional copy (arrays too) moves; rows 0 when that is nothing. */
CUresult copy_describe(const CUDA_MEMCPY3D *params, struct copy *copy);
void copy_run(const struct copy *copy);
uint64_t copy_duration_ns(const struct copy *copy);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's state, shared by model.c (clients, streams, what may start) and device.c (SMs, turns,
 * copy engines). Room for everything that can run is made when a stream is opened, so that moving
 * the clock never allocates.
 */
#ifndef SIM_MODEL_INTERNAL_H
#define SIM_MODEL_INTERNAL_H

#include "model/model.h"

#define NEVER UINT64_MAX

struct queued {
    struct sim_op op;
    uint64_t seq;        /* of the client's operations */
    uint64_t through_ns; /* durations of the stream's operations up to this one, added up */
};

enum stream_state { STREAM_QUEUED, STREAM_RESIDENT, STREAM_ENGINE_QUEUE, STREAM_COPYING };

struct model_stream {
    struct sim_model_client *client;
    struct model_context *context; /* NULL: closed */
    uint64_t pushed, done;
    uint64_t through_ns;
    struct queued *ring; /* operation n at (n - 1) & (room - 1) */
    uint32_t room, index;
    uint32_t pending_at; /* place in the context's pending[] */
    int32_t priority;
    uint8_t flags;
    enum stream_state state; /* of its oldest operation */
    uint64_t signalled;      /* host operations up to this number are finished, */
    uint64_t signal_ns;      /* as of then */
    uint64_t ready_ns;       /* copies: since when it waits for an engine */
    struct model_stream *engine_next;
};

struct kernel {
    struct model_stream *stream;
    uint64_t work; /* SM nanoseconds left; NEVER: until signalled */
    uint64_t ready_ns, seq;
    uint32_t need, got; /* SMs */
};

struct model_context {
    struct sim_model_client *client;
    struct model_device *device;
    struct model_context *client_next, *run_next;
    struct model_stream *legacy;
    struct model_stream **pending; /* streams with operations, in no order */
    struct kernel *resident;       /* by priority, readiness, submission */
    uint32_t number, stream_count, room;
    uint32_t pending_count, resident_count, granted; /* granted: the first ones have SMs */
    uint32_t waiting;    /* streams whose oldest operation waits for another stream */
    uint64_t arrival_ns; /* the earliest submission of a stream's oldest operation still to come */
    struct model_context *dirty_next;
    bool is_dirty;  /* something it may have waited for is done: in the device's list */
    bool is_behind; /* the same, while it is being settled */
    bool is_queued; /* in the device's run queue */
};

struct copying {
    struct model_stream *stream; /* NULL: the engine is free */
    uint64_t end_ns;
};

struct model_device {
    struct sim_model *model;
    uint32_t index, sms, engine_count;
    uint64_t at_ns, next_ns; /* counted up to; when something happens next */
    uint64_t turn_end_ns;
    struct model_context *active;
    struct model_context *run_first, *run_last; /* others with kernels, in order of their turn */
    struct model_context *dirty_first, *dirty_last, *settling;
    struct model_context *arrival; /* with the earliest arrival_ns, or NULL */
    struct model_context **contexts;
    uint32_t context_count, context_room, copying_count;
    bool has_empty; /* a context without streams */
    struct copying *engines;
    struct model_stream *engine_first; /* waiting copies */
    struct sim_usage usage;
};

struct client_device {
    struct sim_usage usage;
    uint64_t launches;
};

struct sim_model_client {
    struct sim_model *model;
    struct sim_model_client *next, **link;
    void *tag;
    uint64_t id, seq, pending;
    uint64_t last_submit_ns;
    uint32_t waiting; /* streams whose oldest operation waits for another stream */
    uint32_t stream_room;
    struct model_stream **streams; /* by index; NULL: never opened */
    struct model_context *contexts;
    struct client_device *device[]; /* NULL: never used */
};

struct sim_model {
    uint64_t now_ns, last_id;
    sim_model_done_fn *done;
    struct sim_model_client *clients;
    uint32_t device_max, device_count; /* count: up to the last one that was set */
    struct model_device device[];
};

static inline struct queued *stream_op(const struct model_stream *s, uint64_t number)
{
    return &s->ring[(number - 1) & (s->room - 1)];
}

static inline struct queued *stream_head(const struct model_stream *s)
{
    return stream_op(s, s->done + 1);
}

/* The time an operation takes by itself, as far as it is known. */
static inline uint64_t op_duration_ns(const struct sim_op *op)
{
    return (op->kind == SIM_OP_KERNEL && !(op->flags & SIM_OP_SIGNALLED)) || op->kind == SIM_OP_COPY
               ? op->value
               : 0;
}

static inline void at_latest(uint64_t *when, uint64_t time_ns)
{
    if (time_ns < *when)
        *when = time_ns;
}

/* model.c: the oldest operation of the stream is done, now. */
void stream_advance(struct model_stream *stream);
/* The context is to be settled at the model's time. */
void context_mark(struct model_context *context);
/* Starts what can start in a context, at the model's time. */
void context_settle(struct model_context *context);
void context_free(struct model_context *context);

/* device.c */
void device_elapse(struct model_device *device, uint64_t to_ns);
/* What happens at the model's time, and next_ns. */
void device_step(struct model_device *device);
/* The oldest operation of a stream is a kernel, or copy, that can start. */
void device_add_kernel(struct model_stream *stream);
void device_add_copy(struct model_stream *stream);
/* A signalled kernel has no work left. */
void device_finish(struct model_stream *stream);
/* Nothing of the context is on the device any more. */
void device_forget(struct model_context *context);
/* Time that the stream's oldest operation needs at least, from now. */
uint64_t device_remaining_ns(const struct model_stream *stream);

#endif

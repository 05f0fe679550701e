/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes of schedule.h. A client's memory is read once per field and bounded; what is published is
 * only ever what is past, so that it is final.
 */
#include "daemon/schedule.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PENDING_MAX 65536u /* operations of a client in the model; more stay in its queue */
#define AGAIN_NS 50000ull  /* a wait that nothing is known of is looked at again after that */
#define UNASKED_MS 1000

static void wake(struct sim_queue *q, _Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(&q->sleepers))
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The model's: an operation is done. */
static void on_done(void *tag, const struct sim_op *op, uint64_t number, uint64_t time_ns)
{
    struct sim_client_entry *c = tag;
    struct sim_queue *q = &c->map->queue;

    if (op->kind == SIM_OP_EVENT && op->target < SIM_EVENTS) {
        struct sim_event_cell *cell = &q->event[op->target];

        /* An older record of a slower stream says nothing any more. */
        if (op->value > atomic_load_explicit(&cell->record, memory_order_relaxed)) {
            atomic_store_explicit(&cell->time_ns, time_ns, memory_order_relaxed);
            atomic_store_explicit(&cell->record, op->value, memory_order_release);
        }
    }
    atomic_store_explicit(&q->stream[op->stream].done, number, memory_order_release);
}

int sim_schedule_open(struct sim_server *s, struct alq_err *err)
{
    s->model = sim_model_new(SIM_MAX_DEVICES, sim_now_ns(), on_done);
    if (!s->model)
        return alq_err_set(err, ALQ_ENOMEM, "no memory for the devices");
    for (uint32_t d = 0; d < s->machine.device_count; d++) {
        if (!sim_schedule_device(s, d))
            return alq_err_set(err, ALQ_ENOMEM, "no memory for device %u", d);
    }
    return 0;
}

void sim_schedule_close(struct sim_server *s)
{
    sim_model_free(s->model);
    s->model = NULL;
}

bool sim_schedule_device(struct sim_server *s, uint32_t d)
{
    const struct sim_model_device device = {s->machine.device[d].sms,
                                            s->machine.device[d].copy_engines};

    return sim_model_device_set(s->model, d, &device) == 0;
}

bool sim_schedule_attach(struct sim_server *s, struct sim_client_entry *c)
{
    c->model = sim_model_client_new(s->model, c);
    return c->model != NULL;
}

void sim_schedule_detach(struct sim_server *s, struct sim_client_entry *c)
{
    sim_schedule_pass(s);
    for (uint32_t d = 0; d < s->machine.device_count; d++) {
        c->group->past[d].busy_ns += sim_schedule_busy_ns(c, d);
        c->group->past[d].launches += sim_schedule_launches(c, d);
    }
    sim_model_client_free(c->model);
    c->model = NULL;
    free(c->signalled);
    for (struct sim_client_entry *o = s->clients; o; o = o->next) {
        if (o->model)
            wake(&o->map->queue, &o->map->queue.hurries);
    }
}

void sim_schedule_ask(struct sim_server *s, struct sim_client_entry *c)
{
    c->has_asked = s->is_asked = true;
}

/* A pass */

/* Remembers that the stream has an operation which ends when the client says so. */
static int note_signalled(struct sim_client_entry *c, const struct sim_op *op)
{
    if (op->kind != SIM_OP_HOST && !(op->flags & SIM_OP_SIGNALLED))
        return 0;
    if (op->stream >= SIM_STREAMS)
        return -EINVAL;
    for (uint32_t i = 0; i < c->signalled_count; i++) {
        if (c->signalled[i] == op->stream)
            return 0;
    }
    if (c->signalled_count == c->signalled_room) {
        uint32_t room = c->signalled_room ? 2 * c->signalled_room : 8;
        uint32_t *more = realloc(c->signalled, room * sizeof(*more));

        if (!more)
            return -ENOMEM;
        c->signalled = more;
        c->signalled_room = room;
    }
    c->signalled[c->signalled_count++] = op->stream;
    return 0;
}

/* What the client finished since the last pass; true if anything. */
static bool take_signals(struct sim_client_entry *c, uint64_t now)
{
    bool any = false;

    for (uint32_t i = 0; i < c->signalled_count; i++) {
        struct sim_stream_cell *cell = &c->map->queue.stream[c->signalled[i]];
        uint64_t number = atomic_load_explicit(&cell->signal, memory_order_acquire);
        uint64_t at = atomic_load_explicit(&cell->signal_ns, memory_order_relaxed);

        any |= number > sim_model_done(c->model, c->signalled[i]);
        sim_model_signal(c->model, c->signalled[i], number, at < now ? at : now);
    }
    return any;
}

/* Takes operations out of the client's queue; true if any. */
static bool take_operations(struct sim_client_entry *c, uint64_t now)
{
    struct sim_queue *q = &c->map->queue;
    uint64_t begun = c->taken;
    int rc = c->tail - begun > SIM_RING ? -EINVAL : 0;

    while (rc == 0 && c->taken != c->tail && sim_model_pending(c->model) < PENDING_MAX) {
        struct sim_op op = q->op[c->taken % SIM_RING];

        rc = note_signalled(c, &op);
        if (rc == 0)
            rc = sim_model_push(c->model, &op, now);
        c->taken += rc == 0;
    }
    if (rc == -EINVAL)
        shutdown(c->fd, SHUT_RDWR); /* no client of ours writes such a thing: it is closed */
    if (c->taken == begun)
        return false;
    atomic_store_explicit(&q->head, c->taken, memory_order_release);
    return true;
}

static void answer(struct sim_client_entry *c, uint64_t now)
{
    struct sim_queue *q = &c->map->queue;
    uint64_t waits = atomic_load_explicit(&q->waits, memory_order_acquire);

    for (; waits; waits &= waits - 1) {
        struct sim_wait *w = &q->wait[__builtin_ctzll(waits)];
        uint64_t earliest =
            sim_model_earliest(c->model, atomic_load_explicit(&w->stream, memory_order_relaxed),
                               atomic_load_explicit(&w->number, memory_order_relaxed));

        atomic_store_explicit(&w->earliest_ns, earliest > now ? earliest : now + AGAIN_NS,
                              memory_order_relaxed);
    }
    c->has_asked = false;
    wake(q, &q->passes);
}

void sim_schedule_pass(struct sim_server *s)
{
    uint64_t now;
    bool any;

    s->is_asked = false;
    for (struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->has_asked)
            atomic_store(&c->map->queue.asked, 0);
    }
    /* What comes later waits for the next pass: no client can make this one endless. */
    for (struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->model)
            c->tail = atomic_load_explicit(&c->map->queue.tail, memory_order_acquire);
    }
    now = sim_now_ns();
    do {
        any = false;
        for (struct sim_client_entry *c = s->clients; c; c = c->next)
            any |= c->model && take_operations(c, now);
        for (struct sim_client_entry *c = s->clients; c; c = c->next) {
            if (c->signalled_count)
                c->has_signalled |= take_signals(c, now);
        }
        sim_model_advance(s->model, now);
    } while (any);
    for (struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->has_asked)
            answer(c, now);
        if (c->has_signalled)
            wake(&c->map->queue, &c->map->queue.hurries);
        c->has_signalled = false;
    }
}

int sim_schedule_timeout_ms(const struct sim_server *s)
{
    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->model && sim_model_pending(c->model))
            return UNASKED_MS;
    }
    return -1;
}

/* What it came to */

uint64_t sim_schedule_busy_ns(const struct sim_client_entry *c, uint32_t d)
{
    const struct sim_usage *u = sim_model_client_usage(c->model, d);

    return u ? u->busy_ns : 0;
}

uint64_t sim_schedule_launches(const struct sim_client_entry *c, uint32_t d)
{
    return sim_model_launches(c->model, d);
}

static uint32_t percent(const struct sim_usage *u)
{
    return u ? sim_usage_percent(sim_usage_of(u, sim_usage_last_period(sim_now_ns()))) : 0;
}

uint32_t sim_schedule_client_pct(const struct sim_client_entry *c, uint32_t d)
{
    return percent(sim_model_client_usage(c->model, d));
}

uint32_t sim_schedule_device_pct(const struct sim_server *s, uint32_t d)
{
    return percent(sim_model_device_usage(s->model, d));
}

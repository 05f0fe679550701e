/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients, contexts and streams of the model, and which operation may start. A stream's oldest
 * operation is looked at when it comes, when it is submitted, and whenever something it may wait
 * for is done; device.c says how long what has started takes.
 */
#include <errno.h>
#include <stdlib.h>

#include "model/internal.h"

#define ROOM_MIN 16u

/* Streams */

static bool is_blocking(const struct model_stream *s)
{
    return !(s->flags & (SIM_STREAM_LEGACY | SIM_STREAM_NON_BLOCKING));
}

static void pending_add(struct model_stream *s)
{
    struct model_context *c = s->context;

    s->state = STREAM_QUEUED;
    s->pending_at = c->pending_count;
    c->pending[c->pending_count++] = s;
}

static void pending_remove(struct model_stream *s)
{
    struct model_context *c = s->context;
    struct model_stream *last = c->pending[--c->pending_count];

    c->pending[s->pending_at] = last;
    last->pending_at = s->pending_at;
}

static void stream_close(struct model_stream *s)
{
    struct model_context *c = s->context;

    if (c->legacy == s)
        c->legacy = NULL;
    if (--c->stream_count == 0)
        c->device->has_empty = true;
    s->context = NULL;
    free(s->ring);
    s->ring = NULL;
    s->room = 0;
}

void context_mark(struct model_context *c)
{
    struct model_device *d = c->device;

    if (d->settling == c) {
        c->is_behind = true;
        return;
    }
    if (c->is_dirty)
        return;
    c->is_dirty = true;
    c->dirty_next = NULL;
    *(d->dirty_first ? &d->dirty_last->dirty_next : &d->dirty_first) = c;
    d->dirty_last = c;
    at_latest(&d->next_ns, d->model->now_ns);
}

void stream_advance(struct model_stream *s)
{
    struct sim_model_client *client = s->client;
    struct sim_op op = stream_head(s)->op;

    s->state = STREAM_QUEUED;
    s->done++;
    client->pending--;
    context_mark(s->context);
    if (s->done == s->pushed)
        pending_remove(s);
    if (op.kind == SIM_OP_CLOSE)
        stream_close(s);
    for (struct model_context *c = client->waiting ? client->contexts : NULL; c; c = c->client_next)
        context_mark(c);
    if (client->model->done)
        client->model->done(client->tag, &op, s->done, client->model->now_ns);
}

/* What may start */

/* An earlier operation of another of the context's streams is not done. */
static bool is_behind(const struct model_stream *s, uint64_t seq, bool is_all)
{
    const struct model_context *c = s->context;

    for (uint32_t i = 0; i < c->pending_count; i++) {
        const struct model_stream *o = c->pending[i];

        if (o != s && (is_all || !(o->flags & SIM_STREAM_NON_BLOCKING)) &&
            stream_head(o)->seq < seq)
            return true;
    }
    return false;
}

static bool is_held(const struct model_stream *s, const struct queued *q)
{
    const struct model_stream *legacy = s->context->legacy;

    if (q->op.flags & (SIM_OP_AFTER_ALL | SIM_OP_AFTER_BLOCKING) && q->op.kind == SIM_OP_MARK)
        return is_behind(s, q->seq, q->op.flags & SIM_OP_AFTER_ALL);
    if (s->flags & SIM_STREAM_LEGACY)
        return s->context->pending_count > 1 && is_behind(s, q->seq, false);
    return is_blocking(s) && legacy && legacy->done < legacy->pushed &&
           stream_head(legacy)->seq < q->seq;
}

static bool is_reached(const struct sim_model_client *c, const struct sim_op *op)
{
    const struct model_stream *s = op->target < c->stream_room ? c->streams[op->target] : NULL;

    return s && s->done >= op->value;
}

/* Starts the stream's oldest operation if that can be; true when it is done already. */
static bool start(struct model_stream *s, uint64_t now, uint64_t *arrival_ns)
{
    const struct queued *q = stream_head(s);

    if (q->op.submit_ns > now) {
        at_latest(arrival_ns, q->op.submit_ns);
        return false;
    }
    if (is_held(s, q))
        return false;
    switch (q->op.kind) {
    case SIM_OP_KERNEL:
        device_add_kernel(s);
        return false;
    case SIM_OP_COPY:
        device_add_copy(s);
        return false;
    case SIM_OP_WAIT:
        if (is_reached(s->client, &q->op))
            break;
        s->client->waiting++; /* context_settle takes it back */
        return false;
    case SIM_OP_HOST:
        if (s->signalled <= s->done)
            return false;
        if (s->signal_ns > now) {
            at_latest(arrival_ns, s->signal_ns);
            return false;
        }
        break;
    default:
        break;
    }
    stream_advance(s);
    return true;
}

/* A signalled kernel that runs. */
static void look_for_signal(struct model_stream *s, uint64_t now, uint64_t *arrival_ns)
{
    const struct queued *q = stream_head(s);

    if (!(q->op.flags & SIM_OP_SIGNALLED) || s->signalled <= s->done)
        return;
    if (s->signal_ns > now)
        at_latest(arrival_ns, s->signal_ns);
    else
        device_finish(s);
}

void context_settle(struct model_context *c)
{
    uint64_t now = c->device->model->now_ns;

    c->device->settling = c;
    do {
        uint32_t waiting = c->client->waiting - c->waiting, looked_at = c->pending_count;

        c->is_behind = false;
        c->arrival_ns = NEVER;
        c->client->waiting = waiting;
        /* Downwards: a stream that has nothing left is replaced by the last one. */
        for (uint32_t i = c->pending_count; i-- > 0;) {
            struct model_stream *s = c->pending[i];

            if (s->state == STREAM_QUEUED) {
                while (start(s, now, &c->arrival_ns) && s->done < s->pushed)
                    ;
            } else if (s->state == STREAM_RESIDENT) {
                look_for_signal(s, now, &c->arrival_ns);
            }
        }
        c->waiting = c->client->waiting - waiting;
        /* A lone stream went as far as it can. */
        if (looked_at <= 1 && !c->waiting)
            c->is_behind = false;
    } while (c->is_behind);
    c->device->settling = NULL;
}

/* Contexts */

void context_free(struct model_context *c)
{
    struct model_context **at = &c->client->contexts;

    while (*at != c)
        at = &(*at)->client_next;
    *at = c->client_next;
    c->client->waiting -= c->waiting;
    device_forget(c);
    free(c->pending);
    free(c->resident);
    free(c);
}

static int grow(void *array, uint32_t *room, size_t bytes)
{
    uint32_t more = *room ? *room * 2 : 8;
    void *larger = realloc(*(void **)array, more * bytes);

    if (!larger)
        return -ENOMEM;
    *(void **)array = larger;
    *room = more;
    return 0;
}

static struct model_context *context_get(struct sim_model_client *client, uint32_t device,
                                         uint32_t number)
{
    struct model_device *d = &client->model->device[device];
    struct model_context *c;

    for (c = client->contexts; c; c = c->client_next) {
        if (c->number == number && c->device == d)
            return c;
    }
    if (!client->device[device])
        client->device[device] = calloc(1, sizeof(*client->device[device]));
    if (!client->device[device] ||
        (d->context_count == d->context_room &&
         grow(&d->contexts, &d->context_room, sizeof(d->contexts[0])) != 0))
        return NULL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->client = client;
    c->device = d;
    c->number = number;
    c->arrival_ns = NEVER;
    c->client_next = client->contexts;
    client->contexts = c;
    d->contexts[d->context_count++] = c;
    return c;
}

/* Room for one more stream in what may run at once. */
static int context_room(struct model_context *c)
{
    uint32_t room = c->room;

    if (c->stream_count < c->room)
        return 0;
    if (grow(&c->pending, &room, sizeof(c->pending[0])) != 0)
        return -ENOMEM;
    room = c->room;
    if (grow(&c->resident, &room, sizeof(c->resident[0])) != 0)
        return -ENOMEM;
    c->room = room;
    return 0;
}

/* Clients */

struct sim_model_client *sim_model_client_new(struct sim_model *m, void *tag)
{
    struct sim_model_client *c =
        calloc(1, sizeof(*c) + m->device_max * sizeof(struct client_device *));

    if (!c)
        return NULL;
    c->model = m;
    c->tag = tag;
    c->id = ++m->last_id;
    c->last_submit_ns = m->now_ns;
    c->next = m->clients;
    c->link = &m->clients;
    if (c->next)
        c->next->link = &c->next;
    m->clients = c;
    return c;
}

void sim_model_client_free(struct sim_model_client *c)
{
    struct sim_model *m;

    if (!c)
        return;
    m = c->model;
    for (struct model_context *x = c->contexts; x; x = x->client_next)
        at_latest(&x->device->next_ns, m->now_ns);
    while (c->contexts)
        context_free(c->contexts);
    for (uint32_t i = 0; i < c->stream_room; i++) {
        if (c->streams[i])
            free(c->streams[i]->ring);
        free(c->streams[i]);
    }
    for (uint32_t i = 0; i < m->device_max; i++)
        free(c->device[i]);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    free(c->streams);
    free(c);
}

/* Operations */

static int stream_open(struct sim_model_client *client, const struct sim_op *op)
{
    struct model_stream *s;
    struct model_context *c;

    if (op->stream >= SIM_STREAMS || op->blocks >= client->model->device_count ||
        !client->model->device[op->blocks].sms || op->value > 2 * SIM_PRIORITY_ZERO)
        return -EINVAL;
    while (op->stream >= client->stream_room) {
        uint32_t was = client->stream_room;

        if (grow(&client->streams, &client->stream_room, sizeof(struct model_stream *)) != 0)
            return -ENOMEM;
        for (; was < client->stream_room; was++)
            client->streams[was] = NULL;
    }
    s = client->streams[op->stream];
    if (s && s->context)
        return -EINVAL;
    c = context_get(client, op->blocks, op->target);
    if (!c || context_room(c) != 0 || (!s && !(s = calloc(1, sizeof(*s)))))
        return -ENOMEM;
    client->streams[op->stream] = s;
    s->client = client;
    s->context = c;
    s->index = op->stream;
    s->flags = op->flags;
    s->priority = (int32_t)op->value - (int32_t)SIM_PRIORITY_ZERO;
    c->stream_count++;
    if (op->flags & SIM_STREAM_LEGACY)
        c->legacy = s;
    client->seq++;
    s->pushed++;
    s->done++;
    if (client->model->done)
        client->model->done(client->tag, op, s->done, client->model->now_ns);
    return 0;
}

/* The stream's ring has room for one more. */
static int stream_room(struct model_stream *s)
{
    uint32_t room = s->room ? s->room * 2 : ROOM_MIN;
    struct queued *ring;

    if (s->pushed - s->done < s->room)
        return 0;
    ring = malloc(room * sizeof(*ring));
    if (!ring)
        return -ENOMEM;
    for (uint64_t n = s->done + 1; n <= s->pushed; n++)
        ring[(n - 1) & (room - 1)] = *stream_op(s, n);
    free(s->ring);
    s->ring = ring;
    s->room = room;
    return 0;
}

int sim_model_push(struct sim_model_client *client, const struct sim_op *op, uint64_t latest_ns)
{
    struct model_stream *s;
    struct model_device *d;
    struct queued *q;

    if (op->kind == SIM_OP_OPEN)
        return stream_open(client, op);
    s = op->stream < client->stream_room ? client->streams[op->stream] : NULL;
    if (!s || !s->context || op->kind > SIM_OP_MARK || !op->kind ||
        (s->done < s->pushed && stream_op(s, s->pushed)->op.kind == SIM_OP_CLOSE))
        return -EINVAL;
    if (stream_room(s) != 0)
        return -ENOMEM;
    d = s->context->device;
    q = stream_op(s, ++s->pushed);
    q->op = *op;
    q->seq = client->seq++;
    if ((op->kind == SIM_OP_KERNEL || op->kind == SIM_OP_COPY) && op->value > SIM_DURATION_MAX_NS)
        q->op.value = SIM_DURATION_MAX_NS;
    s->through_ns += op_duration_ns(&q->op);
    q->through_ns = s->through_ns;
    if (q->op.submit_ns > latest_ns)
        q->op.submit_ns = latest_ns;
    if (q->op.submit_ns < client->last_submit_ns)
        q->op.submit_ns = client->last_submit_ns;
    if (q->op.submit_ns < client->model->now_ns)
        q->op.submit_ns = client->model->now_ns;
    client->last_submit_ns = q->op.submit_ns;
    client->pending++;
    if (op->kind == SIM_OP_KERNEL && !(op->flags & SIM_OP_UNCOUNTED))
        client->device[d->index]->launches++;
    if (s->pushed == s->done + 1) {
        pending_add(s);
        at_latest(&s->context->arrival_ns, q->op.submit_ns);
        at_latest(&d->next_ns, q->op.submit_ns);
        if (!d->arrival || s->context->arrival_ns < d->arrival->arrival_ns)
            d->arrival = s->context;
    }
    return 0;
}

void sim_model_signal(struct sim_model_client *client, uint32_t stream, uint64_t number,
                      uint64_t time_ns)
{
    struct model_stream *s = stream < client->stream_room ? client->streams[stream] : NULL;

    if (!s || !s->context || number <= s->signalled)
        return;
    s->signalled = number;
    s->signal_ns = time_ns > client->model->now_ns ? time_ns : client->model->now_ns;
    context_mark(s->context);
}

/* The machine */

struct sim_model *sim_model_new(uint32_t device_max, uint64_t now_ns, sim_model_done_fn *done)
{
    struct sim_model *m = calloc(1, sizeof(*m) + device_max * sizeof(m->device[0]));

    if (!m)
        return NULL;
    m->now_ns = now_ns;
    m->done = done;
    m->device_max = device_max;
    return m;
}

int sim_model_device_set(struct sim_model *m, uint32_t index, const struct sim_model_device *device)
{
    struct model_device *d = &m->device[index];
    struct copying *engines;

    if (index >= m->device_max || !device->sms || !device->copy_engines)
        return -EINVAL;
    if (d->context_count)
        return -EBUSY;
    engines = calloc(device->copy_engines, sizeof(*engines));
    if (!engines)
        return -ENOMEM;
    free(d->engines);
    free(d->contexts);
    *d = (struct model_device){
        .model = m,
        .index = index,
        .sms = device->sms,
        .engine_count = device->copy_engines,
        .engines = engines,
        .at_ns = m->now_ns,
        .next_ns = NEVER,
    };
    for (; m->device_count <= index; m->device_count++)
        m->device[m->device_count].next_ns = NEVER;
    return 0;
}

void sim_model_free(struct sim_model *m)
{
    if (!m)
        return;
    while (m->clients)
        sim_model_client_free(m->clients);
    for (uint32_t i = 0; i < m->device_count; i++) {
        free(m->device[i].engines);
        free(m->device[i].contexts);
    }
    free(m);
}

uint64_t sim_model_next(const struct sim_model *m)
{
    uint64_t next = NEVER;

    for (uint32_t i = 0; i < m->device_count; i++)
        at_latest(&next, m->device[i].next_ns);
    return next;
}

void sim_model_advance(struct sim_model *m, uint64_t now_ns)
{
    for (uint64_t next; (next = sim_model_next(m)) <= now_ns && next != NEVER;) {
        if (next > m->now_ns)
            m->now_ns = next;
        for (uint32_t i = 0; i < m->device_count; i++) {
            if (m->device[i].next_ns <= m->now_ns)
                device_step(&m->device[i]);
        }
    }
    if (now_ns <= m->now_ns)
        return;
    m->now_ns = now_ns;
    for (uint32_t i = 0; i < m->device_count; i++)
        device_elapse(&m->device[i], now_ns);
}

uint64_t sim_model_now(const struct sim_model *m)
{
    return m->now_ns;
}

uint64_t sim_model_pending(const struct sim_model_client *c)
{
    return c->pending;
}

static const struct model_stream *stream_of(const struct sim_model_client *c, uint32_t stream)
{
    return stream < c->stream_room ? c->streams[stream] : NULL;
}

uint64_t sim_model_done(const struct sim_model_client *c, uint32_t stream)
{
    const struct model_stream *s = stream_of(c, stream);

    return s ? s->done : 0;
}

uint64_t sim_model_earliest(const struct sim_model_client *c, uint32_t stream, uint64_t number)
{
    const struct model_stream *s = stream_of(c, stream);
    uint64_t now = c->model->now_ns, start = now;

    if (!s || number <= s->done || number > s->pushed)
        return now;
    if (stream_head(s)->op.submit_ns > now)
        start = stream_head(s)->op.submit_ns;
    return start + device_remaining_ns(s) + stream_op(s, number)->through_ns -
           stream_head(s)->through_ns;
}

uint64_t sim_model_launches(const struct sim_model_client *c, uint32_t device)
{
    return c->device[device] ? c->device[device]->launches : 0;
}

const struct sim_usage *sim_model_client_usage(const struct sim_model_client *c, uint32_t device)
{
    return c->device[device] ? &c->device[device]->usage : NULL;
}

const struct sim_usage *sim_model_device_usage(const struct sim_model *m, uint32_t device)
{
    return &m->device[device].usage;
}

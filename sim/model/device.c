/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SMs, turns and copy engines of a device. Work is whole SM nanoseconds, so that a kernel that ran
 * with changing numbers of SMs ends at a whole nanosecond, rounded up.
 */
#include <string.h>

#include "model/internal.h"

/* Kernels */

/* The kernel goes before one that has become ready now, or later if of a higher priority. */
static bool is_before(const struct model_stream *s, uint64_t seq, uint64_t now,
                      const struct kernel *other)
{
    if (s->priority != other->stream->priority)
        return s->priority < other->stream->priority;
    return other->ready_ns == now && seq < other->seq;
}

void device_add_kernel(struct model_stream *s)
{
    const struct queued *q = stream_head(s);
    struct model_context *c = s->context;
    struct model_device *d = c->device;
    uint64_t now = d->model->now_ns;
    struct kernel *k = &c->resident[c->resident_count++];

    for (; k > c->resident && is_before(s, q->seq, now, k - 1); k--)
        *k = *(k - 1);
    k->stream = s;
    k->ready_ns = now;
    k->seq = q->seq;
    k->got = 0;
    k->need = q->op.blocks < d->sms ? q->op.blocks : d->sms;
    k->need += !k->need;
    k->work = q->op.flags & SIM_OP_SIGNALLED ? NEVER : q->op.value * k->need;
    s->state = STREAM_RESIDENT;
    if (c != d->active && !c->is_queued) {
        c->is_queued = true;
        c->run_next = NULL;
        *(d->run_first ? &d->run_last->run_next : &d->run_first) = c;
        d->run_last = c;
    }
}

static struct kernel *kernel_of(const struct model_stream *s)
{
    struct kernel *k = s->context->resident;

    while (k->stream != s)
        k++;
    return k;
}

void device_finish(struct model_stream *s)
{
    kernel_of(s)->work = 0;
}

static void finish_kernels(struct model_device *d)
{
    struct model_context *c = d->active;
    uint32_t kept = 0, count = c ? c->granted : 0;

    for (uint32_t i = 0; i < count; i++) {
        struct model_stream *s = c->resident[i].stream;

        if (c->resident[i].work)
            c->resident[kept++] = c->resident[i];
        else
            stream_advance(s);
    }
    if (kept == count)
        return;
    memmove(&c->resident[kept], &c->resident[count],
            (c->resident_count - count) * sizeof(c->resident[0]));
    c->resident_count -= count - kept;
    c->granted = kept;
}

/* Turns */

static struct model_context *run_pop(struct model_device *d)
{
    struct model_context *c = d->run_first;

    d->run_first = c->run_next;
    c->is_queued = false;
    return c;
}

static void choose(struct model_device *d)
{
    uint64_t now = d->model->now_ns;
    struct model_context *c = d->active;

    if (c && !c->resident_count)
        c = NULL;
    /* Alone, a context has one turn after the other. */
    if (c && now > d->turn_end_ns)
        d->turn_end_ns += (now - d->turn_end_ns + SIM_SLICE_NS - 1) / SIM_SLICE_NS * SIM_SLICE_NS;
    if (c && d->run_first && now == d->turn_end_ns) {
        c->is_queued = true;
        c->run_next = NULL;
        d->run_last->run_next = c;
        d->run_last = c;
        c = NULL;
    }
    if (!c && d->run_first) {
        c = run_pop(d);
        d->turn_end_ns = now + SIM_SLICE_NS;
    }
    d->active = c;
}

static void grant(struct model_device *d)
{
    struct model_context *c = d->active;
    uint32_t left = d->sms;

    if (!c)
        return;
    for (c->granted = 0; left && c->granted < c->resident_count; c->granted++) {
        struct kernel *k = &c->resident[c->granted];

        k->got = k->need < left ? k->need : left;
        left -= k->got;
    }
}

void device_elapse(struct model_device *d, uint64_t to_ns)
{
    uint64_t passed = to_ns - d->at_ns;
    struct model_context *c = d->active;

    if (!passed)
        return;
    if (c) {
        sim_usage_add(&d->usage, d->at_ns, to_ns);
        sim_usage_add(&c->client->device[d->index]->usage, d->at_ns, to_ns);
        for (uint32_t i = 0; i < c->granted; i++) {
            struct kernel *k = &c->resident[i];

            if (k->work != NEVER)
                k->work = k->work > k->got * passed ? k->work - k->got * passed : 0;
        }
    }
    d->at_ns = to_ns;
}

/* Copies: in order of readiness, then of clients and their submissions. */

void device_add_copy(struct model_stream *s)
{
    struct model_stream **at = &s->context->device->engine_first;
    uint64_t seq = stream_head(s)->seq;

    s->ready_ns = s->client->model->now_ns;
    s->state = STREAM_ENGINE_QUEUE;
    for (; *at; at = &(*at)->engine_next) {
        const struct model_stream *o = *at;

        if (o->ready_ns == s->ready_ns && (o->client->id > s->client->id ||
                                           (o->client == s->client && stream_head(o)->seq > seq)))
            break;
    }
    s->engine_next = *at;
    *at = s;
}

static void finish_copies(struct model_device *d)
{
    for (uint32_t i = 0; d->copying_count && i < d->engine_count; i++) {
        struct model_stream *s = d->engines[i].stream;

        if (s && d->engines[i].end_ns <= d->model->now_ns) {
            d->engines[i].stream = NULL;
            d->copying_count--;
            stream_advance(s);
        }
    }
}

static bool start_copies(struct model_device *d)
{
    bool any = false;

    for (uint32_t i = 0; i < d->engine_count && d->engine_first; i++) {
        struct model_stream *s = d->engine_first;

        if (d->engines[i].stream)
            continue;
        d->engine_first = s->engine_next;
        s->state = STREAM_COPYING;
        d->copying_count++;
        d->engines[i] = (struct copying){s, d->model->now_ns + stream_head(s)->op.value};
        any |= !stream_head(s)->op.value;
    }
    return any;
}

/* A step */

static void settle(struct model_device *d)
{
    struct model_context *c;

    if (d->arrival && d->arrival->arrival_ns <= d->model->now_ns)
        context_mark(d->arrival);
    while ((c = d->dirty_first)) {
        d->dirty_first = c->dirty_next;
        c->is_dirty = false;
        context_settle(c);
    }
}

static bool has_finished(const struct model_device *d)
{
    const struct model_context *c = d->active;

    for (uint32_t i = 0; c && i < c->granted; i++) {
        if (!c->resident[i].work)
            return true;
    }
    return false;
}

static uint64_t next_change(struct model_device *d)
{
    const struct model_context *c = d->active;
    uint64_t next = NEVER;

    d->arrival = NULL;
    for (uint32_t i = 0; i < d->context_count; i++) {
        if (d->contexts[i]->arrival_ns < next) {
            next = d->contexts[i]->arrival_ns;
            d->arrival = d->contexts[i];
        }
    }
    if (d->dirty_first)
        next = d->model->now_ns;
    for (uint32_t i = 0; c && i < c->granted; i++) {
        const struct kernel *k = &c->resident[i];

        if (k->work != NEVER)
            at_latest(&next, d->at_ns + (k->got == 1 ? k->work : (k->work + k->got - 1) / k->got));
    }
    if (c && d->run_first)
        at_latest(&next, d->turn_end_ns);
    for (uint32_t i = 0; d->copying_count && i < d->engine_count; i++) {
        if (d->engines[i].stream)
            at_latest(&next, d->engines[i].end_ns);
    }
    return next;
}

static void reap(struct model_device *d)
{
    if (!d->has_empty)
        return;
    d->has_empty = false;
    for (uint32_t i = d->context_count; i-- > 0;) {
        if (!d->contexts[i]->stream_count)
            context_free(d->contexts[i]);
    }
}

void device_step(struct model_device *d)
{
    bool again;

    device_elapse(d, d->model->now_ns);
    do {
        finish_kernels(d);
        finish_copies(d);
        settle(d);
        again = start_copies(d);
        choose(d);
        grant(d);
    } while (again || has_finished(d));
    reap(d);
    d->next_ns = next_change(d);
}

void device_forget(struct model_context *c)
{
    struct model_device *d = c->device;
    struct model_context *last = NULL;
    struct model_stream **at = &d->engine_first;
    uint32_t i = 0;

    if (d->active == c)
        d->active = NULL;
    if (d->arrival == c)
        d->arrival = NULL;
    d->dirty_last = NULL;
    for (struct model_context **link = &d->dirty_first; *link;) {
        if (*link == c) {
            *link = c->dirty_next;
        } else {
            d->dirty_last = *link;
            link = &d->dirty_last->dirty_next;
        }
    }
    for (struct model_context **link = &d->run_first; *link;) {
        if (*link == c) {
            *link = c->run_next;
        } else {
            last = *link;
            link = &last->run_next;
        }
    }
    d->run_last = last;
    while (*at) {
        if ((*at)->context == c)
            *at = (*at)->engine_next;
        else
            at = &(*at)->engine_next;
    }
    for (uint32_t e = 0; e < d->engine_count; e++) {
        if (d->engines[e].stream && d->engines[e].stream->context == c) {
            d->engines[e].stream = NULL;
            d->copying_count--;
        }
    }
    while (d->contexts[i] != c)
        i++;
    d->context_count--;
    memmove(&d->contexts[i], &d->contexts[i + 1], (d->context_count - i) * sizeof(d->contexts[0]));
}

/* Time with the SMs that a context's kernels take at least from now. */
static uint64_t least_ns(const struct model_context *c)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < c->resident_count; i++) {
        const struct kernel *k = &c->resident[i];

        if (k->work != NEVER && k->work / k->need > most)
            most = k->work / k->need;
    }
    return most;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Time that others have the SMs before the context has had them for own_ns: they take their turns
 * as long as the kernels last that they have already. */
static uint64_t others_ns(const struct model_context *c, uint64_t own_ns)
{
    const struct model_device *d = c->device;
    uint64_t left = d->turn_end_ns - d->model->now_ns, rounds, first, sum = 0;
    bool is_ahead = c != d->active;

    if (!own_ns)
        return 0;
    if (c == d->active)
        rounds = own_ns > left ? (own_ns - left - 1) / SIM_SLICE_NS + 1 : 0;
    else
        rounds = (own_ns - 1) / SIM_SLICE_NS;
    if (is_ahead && d->active) {
        first = least_of(left, least_ns(d->active));
        sum = first + least_of(rounds * SIM_SLICE_NS, least_ns(d->active) - first);
    }
    for (const struct model_context *o = d->run_first; o; o = o->run_next) {
        if (o == c)
            is_ahead = false;
        else
            sum += least_of((rounds + is_ahead) * SIM_SLICE_NS, least_ns(o));
    }
    return sum;
}

uint64_t device_remaining_ns(const struct model_stream *s)
{
    const struct model_device *d = s->context->device;

    if (s->state == STREAM_RESIDENT) {
        const struct kernel *k = kernel_of(s);
        uint64_t own = k->work == NEVER ? 0 : k->work / k->need;

        return own + others_ns(s->context, own);
    }
    for (uint32_t i = 0; s->state == STREAM_COPYING && i < d->engine_count; i++) {
        if (d->engines[i].stream == s)
            return d->engines[i].end_ns - d->model->now_ns;
    }
    return op_duration_ns(&stream_head(s)->op);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Events, batches and their read-back. Threading: as measure.h says. Calls the driver through
 * struct alq_compute_driver only. */
#include "vgpu/compute/measure.h"

#include "vgpu/compute/compute.h"

#define REBASE_NS 1000000000
#define MOST_GAP_NS 20000 /* between our record of an event and the launch that it is for */
#define HINT_NS 200000    /* beyond twice its charge, a batch says that estimates may be too low */
#define BUDGET_MAX_NS 20000000
#define QUERIES_MAX ALQ_OPEN_STREAMS
#define RECENT_NS 50000000u /* of work, that say how much of the next will count */
#define LAUNCHES_LEAST 2u   /* of a batch that tells how long its launches take at most */
#define PART_MIN (ALQ_PART_ONE / 64)

static void pay(struct alq_compute_device *dev)
{
    dev->budget_ns -= ALQ_CALL_COST_NS;
    __atomic_fetch_add(&dev->shares[0].counters->gate_calls, 1, __ATOMIC_RELAXED);
}

static bool is_open(const struct alq_compute *c)
{
    return atomic_load_explicit(&c->captures, memory_order_relaxed) == 0;
}

/* CUDA_ERROR_NOT_READY is an answer; anything else but success means that this context is of no
 * more use to us. */
static bool check(struct alq_compute *c, uint32_t context, CUresult rc)
{
    if (rc == CUDA_SUCCESS)
        return true;
    if (rc != CUDA_ERROR_NOT_READY)
        c->measure.contexts[context].is_dead = true;
    return false;
}

uint32_t alq_measure_context(struct alq_compute *c, CUcontext context)
{
    uint32_t room = ALQ_CONTEXTS;
    if (!context)
        return ALQ_CONTEXTS;
    for (uint32_t i = 0; i < ALQ_CONTEXTS; i++) {
        if (c->measure.contexts[i].handle == context)
            return c->measure.contexts[i].is_dead ? ALQ_CONTEXTS : i;
        if (!c->measure.contexts[i].handle && room == ALQ_CONTEXTS)
            room = i;
    }
    if (room < ALQ_CONTEXTS)
        c->measure.contexts[room] = (struct alq_measured_context){.handle = context};
    return room;
}

void alq_measure_hold(struct alq_compute *c, uint16_t event)
{
    if (event)
        c->measure.events[event].refs++;
}

void alq_measure_drop(struct alq_compute *c, uint16_t event)
{
    struct alq_measured_event *e = &c->measure.events[event];
    if (!event || --e->refs > 0)
        return;
    struct alq_measured_context *ctx = &c->measure.contexts[e->context];
    e->next_free = ctx->free;
    ctx->free = event;
}

/* An event without a driver's object left by a context that is gone, or one never used. 0 when all
 * are taken. */
static uint16_t make_event(struct alq_compute *c, uint32_t context)
{
    struct alq_measure *m = &c->measure;
    CUevent handle = NULL;
    CUcontext current = NULL;
    uint16_t number = 0;
    /* The launch may name a stream of a context that is not the current one; an event made now
     * would be the other's. */
    if (c->driver.context_current(&current) != CUDA_SUCCESS ||
        current != m->contexts[context].handle)
        return 0;
    if (m->events_made + 1u < ALQ_EVENTS) {
        number = (uint16_t)(m->events_made + 1);
    } else {
        for (uint16_t i = 1; i < ALQ_EVENTS && !number; i++)
            if (!m->events[i].handle)
                number = i;
    }
    if (!number || !check(c, context, c->driver.event_create(&handle)) || !handle)
        return 0;
    if (number > m->events_made)
        m->events_made = number;
    m->events[number] = (struct alq_measured_event){.handle = handle, .context = (uint8_t)context};
    return number;
}

uint16_t alq_measure_record(struct alq_compute *c, struct alq_compute_device *dev, uint32_t context,
                            CUstream stream)
{
    if (context >= ALQ_CONTEXTS || !is_open(c))
        return ALQ_NO_EVENT;
    struct alq_measured_context *ctx = &c->measure.contexts[context];
    if (ctx->is_dead)
        return ALQ_NO_EVENT;
    uint16_t number = ctx->free;
    if (number)
        ctx->free = c->measure.events[number].next_free;
    else if (!(number = make_event(c, context)))
        return ALQ_NO_EVENT;
    struct alq_measured_event *e = &c->measure.events[number];
    e->refs = 1;
    e->is_known = false;
    e->record_ns = c->driver.now_ns();
    pay(dev);
    if (!check(c, context, c->driver.event_record(e->handle, stream))) {
        alq_measure_drop(c, number);
        return ALQ_NO_EVENT;
    }
    if (!ctx->base) {
        /* First event of the context. A base that turns out to be too early is moved by what is
         * learnt from later ones. */
        ctx->base = number;
        ctx->base_ns = (int64_t)e->record_ns;
        e->at_ns = ctx->base_ns;
        e->gpu_ns = ctx->base_gpu_ns = 0;
        e->is_known = true;
        alq_measure_hold(c, number);
    }
    return number;
}

void alq_measure_push(struct alq_compute *c, struct alq_compute_device *dev,
                      const struct alq_batch *batch)
{
    struct alq_batch *at = &dev->pending[dev->pending_count++];
    (void)c;
    if (dev->expect_ns < batch->issued_ns)
        dev->expect_ns = batch->issued_ns;
    dev->expect_ns += batch->charged_ns;
    *at = *batch;
    at->expect_ns = at->due_ns = dev->expect_ns;
    dev->pushed_ns = alq_measure_launched(dev);
    dev->budget_ns += (int64_t)batch->work_ns;
    if (dev->budget_ns > BUDGET_MAX_NS)
        dev->budget_ns = BUDGET_MAX_NS;
    atomic_fetch_add_explicit(&dev->outstanding_ns, batch->work_ns, memory_order_relaxed);
}

const struct alq_batch *alq_measure_pending(const struct alq_compute_device *dev, uint16_t event)
{
    for (uint32_t i = 0; i < dev->pending_count; i++)
        if (dev->pending[i].to == event)
            return &dev->pending[i];
    return NULL;
}

/*
 * Time of a completed event. Every event bounds the base from below (it did not happen before it
 * was recorded) and, as it is seen completed now, from above; on an idle stream the lower bound is
 * exact to microseconds.
 */
static bool time_of(struct alq_compute *c, struct alq_compute_device *dev, uint16_t number,
                    uint64_t now_ns)
{
    struct alq_measured_event *e = &c->measure.events[number];
    struct alq_measured_context *ctx = &c->measure.contexts[e->context];
    float ms = 0;
    if (e->is_known)
        return true;
    pay(dev);
    if (!check(c, e->context,
               c->driver.event_elapsed(&ms, c->measure.events[ctx->base].handle, e->handle)))
        return false;
    int64_t since = (int64_t)((double)ms * 1e6);
    if (ctx->base_ns + since < (int64_t)e->record_ns)
        ctx->base_ns = (int64_t)e->record_ns - since;
    if (ctx->base_ns + since > (int64_t)now_ns)
        ctx->base_ns = (int64_t)now_ns - since;
    e->at_ns = ctx->base_ns + since;
    e->gpu_ns = ctx->base_gpu_ns + since;
    e->is_known = true;
    if (since > REBASE_NS) {
        alq_measure_drop(c, ctx->base);
        ctx->base = number;
        ctx->base_ns = e->at_ns;
        ctx->base_gpu_ns = e->gpu_ns;
        alq_measure_hold(c, number);
    }
    return true;
}

/* Did [from, to) overlap a wait at the gate of another device of this process? Then it may have
 * spun for the peer's turn. */
static bool overlaps_other_wait(struct alq_compute *c, const struct alq_compute_device *dev,
                                uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < ALQ_COMPUTE_DEVICES; i++) {
        struct alq_compute_device *other = &c->devices[i];
        if (other == dev || !other->is_on)
            continue;
        uint64_t wait_from = atomic_load_explicit(&other->waited_from_ns, memory_order_relaxed);
        uint64_t wait_to =
            atomic_load_explicit(&other->waiting, memory_order_relaxed)
                ? UINT64_MAX
                : atomic_load_explicit(&other->waited_until_ns, memory_order_relaxed);
        if (wait_from < to && wait_to > from)
            return true;
    }
    return false;
}

/* Did it end right after a launch was let go that we had held back? Then it may have waited for it.
 */
static bool is_held(const struct alq_compute_device *dev, const struct alq_batch *batch,
                    uint64_t end)
{
    for (uint32_t i = 0; i < ALQ_LET_GO; i++) {
        uint64_t at = atomic_load_explicit(&dev->let_go_ns[i], memory_order_relaxed);
        if (at > batch->issued_ns + ALQ_OWN_WAIT_NS && at <= end &&
            end - at < (end - batch->issued_ns) / 10)
            return true;
    }
    return false;
}

static void release(struct alq_compute *c, struct alq_compute_device *dev, struct alq_batch *batch)
{
    alq_measure_drop(c, batch->from);
    alq_measure_drop(c, batch->to);
    atomic_fetch_sub_explicit(&dev->outstanding_ns, batch->work_ns, memory_order_relaxed);
    batch->is_over = true;
}

/* Takes those that are over out of the list. */
static void tidy(struct alq_compute_device *dev)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < dev->pending_count; i++)
        if (!dev->pending[i].is_over)
            dev->pending[kept++] = dev->pending[i];
    dev->pending_count = kept;
}

/* Display only: what another thread adds between the load and the store is lost. */
static void show(struct alq_slot *slot, uint64_t now_ns, uint64_t ns)
{
    uint64_t turn = now_ns >> ALQ_BUSY_SHIFT;
    uint64_t of = __atomic_load_n(&slot->busy_turn, __ATOMIC_RELAXED);
    uint64_t have = __atomic_load_n(&slot->busy_ns, __ATOMIC_RELAXED);

    if (of != turn) {
        __atomic_store_n(&slot->busy_before_ns, of + 1 == turn ? have : 0, __ATOMIC_RELAXED);
        __atomic_store_n(&slot->busy_turn, turn, __ATOMIC_RELAXED);
        have = 0;
    }
    __atomic_store_n(&slot->busy_ns, have + ns, __ATOMIC_RELAXED);
}

static void learn_part(struct alq_compute_device *dev, uint64_t work_ns, uint64_t actual_ns)
{
    uint64_t part;
    dev->recent_work_ns += work_ns;
    dev->recent_actual_ns += actual_ns < work_ns ? actual_ns : work_ns;
    while (dev->recent_work_ns > RECENT_NS) {
        dev->recent_work_ns /= 2;
        dev->recent_actual_ns /= 2;
    }
    part = dev->recent_work_ns ? dev->recent_actual_ns * ALQ_PART_ONE / dev->recent_work_ns
                               : ALQ_PART_ONE;
    atomic_store_explicit(&dev->part, (uint32_t)(part < PART_MIN ? PART_MIN : part),
                          memory_order_relaxed);
}

/* Credit was given before anybody knew of a debt: whoever comes next pays it at the gate. */
static void return_credit(struct alq_compute_device *dev, struct alq_compute_share *share,
                          const struct alq_gate_rate *rate, uint64_t now_ns)
{
    int64_t credit = atomic_exchange_explicit(&dev->credit_ns, 0, memory_order_relaxed);
    atomic_fetch_sub_explicit(&dev->granted_ns, (uint64_t)credit, memory_order_relaxed);
    alq_gate_settle(share->gate, rate, now_ns, -credit);
}

/*
 * The launches took no longer, on the average, than what lies between their events, whatever our
 * clock says of it. Where that is less than any timing said, these held something else: work of
 * others, or of our other streams. Among others, where the floor is wanted, that it is less than
 * the estimate will do.
 */
static void learn_most(struct alq_compute *c, const struct alq_batch *batch, uint32_t launches,
                       bool is_contended)
{
    struct alq_estimate *entry = batch->entry;
    int64_t between_ns =
        c->measure.events[batch->to].gpu_ns - c->measure.events[batch->from].gpu_ns;
    uint64_t most_ns = between_ns > 0 ? (uint64_t)between_ns / launches : 0;
    uint32_t known_ns =
        is_contended ? alq_estimate_ns(entry) : __atomic_load_n(&entry->low_ns, __ATOMIC_RELAXED);
    if (most_ns && most_ns + most_ns / 8 < known_ns)
        alq_estimate_learn(&c->estimates, entry, most_ns,
                           (enum alq_moment)__atomic_load_n(&entry->moment, __ATOMIC_RELAXED),
                           is_contended);
}

static void settle(struct alq_compute *c, struct alq_compute_device *dev, struct alq_batch *batch,
                   uint64_t now_ns)
{
    struct alq_compute_share *share = &dev->shares[batch->share];
    uint64_t actual = batch->charged_ns;
    const bool is_contended = atomic_load_explicit(&dev->is_contended, memory_order_relaxed);
    if (time_of(c, dev, batch->from, now_ns)) {
        int64_t start = c->measure.events[batch->from].at_ns,
                end = c->measure.events[batch->to].at_ns;
        if (!batch->is_single && start < (int64_t)batch->issued_ns)
            start = (int64_t)batch->issued_ns;
        if (end <= start)
            end = start + 1;
        uint64_t span = (uint64_t)(end - start), work = span;
        if (batch->is_single && batch->entry) {
            struct alq_estimate *entry = batch->entry;
            uint32_t low = __atomic_load_n(&entry->low_ns, __ATOMIC_RELAXED);
            /* On an idle stream the first event is stamped at once and the launch comes later: that
             * much is not the kernel's. Where it is long (this thread lost the processor, or the
             * stream was full after all), nothing is learnt. */
            uint64_t gap = batch->issued_ns - c->measure.events[batch->from].record_ns;
            bool is_clean = gap < MOST_GAP_NS && gap + 500 < span;
            bool is_our_doing = false;
            if (is_clean && batch->is_after_gap && start < (int64_t)batch->issued_ns) {
                /* Where the stream was busy after all, the event is the later of the two. */
                uint64_t idle = batch->issued_ns - (uint64_t)start;
                work = span - (idle < gap ? idle : gap);
            }
            if (low && work > 2ull * low &&
                overlaps_other_wait(c, dev, (uint64_t)start, (uint64_t)end))
                work = 2ull * low;
            else if (is_held(dev, batch, (uint64_t)end))
                is_our_doing = alq_estimate_held(&c->estimates, entry, work,
                                                 (enum alq_moment)batch->moment, is_contended);
            else if (is_clean &&
                     (batch->moment >= __atomic_load_n(&entry->moment, __ATOMIC_RELAXED) ||
                      atomic_load_explicit(&c->stream_count, memory_order_relaxed) == 1))
                alq_estimate_learn(&c->estimates, entry, work, (enum alq_moment)batch->moment,
                                   is_contended);
            else if (is_clean)
                learn_most(c, batch, 1, is_contended);
            if (!is_our_doing && work > alq_estimate_ns(entry) &&
                __atomic_load_n(&entry->spread, __ATOMIC_RELAXED) == ALQ_SPREAD_FLOORED)
                work = alq_estimate_ns(entry);
        } else if (batch->is_joining && !batch->is_gapped && batch->entry && batch->launches) {
            alq_estimate_learn(&c->estimates, batch->entry, span / batch->launches, ALQ_MOMENT_BUSY,
                               is_contended);
            uint64_t sum = (uint64_t)alq_estimate_ns(batch->entry) * batch->launches;
            if (work > sum)
                work = sum;
        } else if (!batch->is_unknown || batch->is_gapped) {
            /* The span holds the idle gaps between the launches and the turns of others, their sum
             * does not. From the record of the last event to its time there was always a launch on
             * the stream. */
            uint64_t least = 0;
            if (batch->is_wide && end > (int64_t)c->measure.events[batch->to].record_ns)
                least = (uint64_t)end - c->measure.events[batch->to].record_ns;
            if (batch->entry && span > 2 * batch->work_ns + HINT_NS)
                alq_estimate_hint(&c->estimates, batch->entry);
            /* One after the other in their stream, launches take no longer on the average. */
            if (batch->entry && !batch->is_plural && batch->launches >= LAUNCHES_LEAST)
                learn_most(c, batch, batch->launches, is_contended);
            if (work > batch->work_ns)
                work = batch->work_ns > least ? batch->work_ns : least < work ? least : work;
        }
        struct alq_cover_view local = {dev->local_cover, ALQ_LOCAL_SHIFT, ALQ_LOCAL_COUNT_SHIFT,
                                       NULL};
        work = alq_cover_book(local, (uint64_t)start, (uint64_t)end, work);
        actual = alq_cover_book(alq_cover_shared(share->cover, share->cover_far), (uint64_t)start,
                                (uint64_t)end, work);
        learn_part(dev, batch->work_ns, actual);
    }
    /* Done, and earlier or later than was thought. */
    atomic_fetch_add_explicit(&dev->idle_at_ns, actual - batch->charged_ns, memory_order_relaxed);
    struct alq_gate_rate rate;
    if (alq_compute_rate(share, now_ns, &rate)) {
        alq_gate_settle(share->gate, &rate, now_ns, (int64_t)actual - (int64_t)batch->charged_ns);
        if (batch->is_single && actual > batch->charged_ns + ALQ_OWN_WAIT_NS)
            return_credit(dev, share, &rate, now_ns);
    }
    __atomic_fetch_add(&share->counters->charged_ns, actual, __ATOMIC_RELAXED);
    if (share->slot)
        show(share->slot, now_ns, actual);
    if (batch->is_single && batch->entry)
        __atomic_store_n(&batch->entry->probing, 0, __ATOMIC_RELAXED);
    release(c, dev, batch);
}

static void give_up(struct alq_compute *c, struct alq_compute_device *dev, struct alq_batch *batch)
{
    if (batch->is_single && batch->entry)
        __atomic_store_n(&batch->entry->probing, 0, __ATOMIC_RELAXED);
    release(c, dev, batch);
}

static int64_t end_of(const struct alq_compute *c, const struct alq_compute_device *dev, uint32_t i)
{
    return c->measure.events[dev->pending[i].to].at_ns;
}

void alq_measure_read_back(struct alq_compute *c, struct alq_compute_device *dev, uint64_t now_ns,
                           uint32_t queries, bool is_urgent)
{
    if (!is_open(c))
        return;
    uint32_t done[QUERIES_MAX], count = 0;
    for (uint32_t i = 0; i < dev->pending_count && queries && count < QUERIES_MAX; i++) {
        struct alq_batch *batch = &dev->pending[i];
        if (!is_urgent && batch->expect_ns > now_ns)
            continue;
        struct alq_measured_event *to = &c->measure.events[batch->to];
        queries--;
        pay(dev);
        CUresult rc = c->driver.event_query(to->handle);
        if (rc == CUDA_ERROR_NOT_READY) {
            /* Each time an eighth later, so that a long batch costs few questions. */
            uint64_t age = now_ns > batch->issued_ns ? now_ns - batch->issued_ns : 0;
            batch->expect_ns = now_ns + (age / 8 > 50000 ? age / 8 : 50000);
        } else if (check(c, to->context, rc) && time_of(c, dev, batch->to, now_ns)) {
            /* In the order of their ends, as the slots are filled from the front. */
            uint32_t at = count++;
            for (; at > 0 && end_of(c, dev, done[at - 1]) > to->at_ns; at--)
                done[at] = done[at - 1];
            done[at] = i;
        } else {
            give_up(c, dev, batch);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        settle(c, dev, &dev->pending[done[i]], now_ns);
    tidy(dev);
    /* All is back and nothing was launched since: the GPU is idle, whatever estimates say. */
    uint64_t launched = alq_measure_launched(dev);
    if (count && dev->pending_count == 0 && launched == dev->pushed_ns) {
        atomic_store_explicit(&dev->launched_ns, launched, memory_order_relaxed);
        atomic_store_explicit(&dev->idle_at_ns, now_ns, memory_order_relaxed);
    }
}

void alq_measure_context_gone(struct alq_compute *c, CUcontext context, bool is_alive)
{
    struct alq_measure *m = &c->measure;
    uint32_t index = 0;
    while (index < ALQ_CONTEXTS && m->contexts[index].handle != context)
        index++;
    if (index == ALQ_CONTEXTS || !context)
        return;
    for (uint32_t d = 0; d < ALQ_COMPUTE_DEVICES; d++) {
        struct alq_compute_device *dev = &c->devices[d];
        for (uint32_t i = 0; i < dev->pending_count; i++)
            if (m->events[dev->pending[i].to].context == index)
                give_up(c, dev, &dev->pending[i]);
        tidy(dev);
    }
    for (uint16_t i = 1; i <= m->events_made; i++) {
        struct alq_measured_event *e = &m->events[i];
        if (!e->handle || e->context != index)
            continue;
        if (is_alive)
            c->driver.event_destroy(e->handle);
        *e = (struct alq_measured_event){0};
    }
    m->contexts[index] = (struct alq_measured_context){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a launch through the gate. Threading: as compute.h says. No system call but the
 * gate's wait. */
#include "vgpu/compute/stream.h"

#define RELAXED memory_order_relaxed
#define MOST_WAIT_NS (2 * ALQ_GATE_AHEAD_MAX_NS) /* for a turn, whatever `usage` says meanwhile */

/* ---- control ------------------------------------------------------------------------------- */

bool alq_compute_rate(const struct alq_compute_share *share, uint64_t now_ns,
                      struct alq_gate_rate *out)
{
    const struct alq_control *control = share->control;
    uint32_t sequence = __atomic_load_n(&control->sequence, __ATOMIC_ACQUIRE);
    const struct alq_control_values *now = &control->values[sequence & 1];
    uint64_t until_ns = __atomic_load_n(&control->corrected_until_ns, __ATOMIC_RELAXED);
    /* Single words, each old or new: a mixture of two publications is as good as either for one
     * launch. */
    struct alq_control_values values = {
        .compute_limit_pct = __atomic_load_n(&now->compute_limit_pct, __ATOMIC_RELAXED),
        .policy = __atomic_load_n(&now->policy, __ATOMIC_RELAXED),
        .time_correction_ppm = __atomic_load_n(&now->time_correction_ppm, __ATOMIC_RELAXED),
    };
    if (until_ns && now_ns >= until_ns)
        values.time_correction_ppm = ALQ_TIME_CORRECTION_ONE;
    return alq_gate_rate(&values, __atomic_load_n(&control->loan, __ATOMIC_RELAXED), now_ns, out);
}

static uint32_t sequence_of(const struct alq_compute_device *dev)
{
    uint32_t sum = 1;
    for (uint32_t i = 0; i < dev->share_count; i++) {
        const struct alq_control *control = dev->shares[i].control;
        /* That anybody lends changes what 0 percent means. */
        sum += __atomic_load_n(&control->sequence, __ATOMIC_RELAXED) +
               (__atomic_load_n(&control->loan, __ATOMIC_RELAXED) ? 1u << 31 : 0);
    }
    return sum;
}

/* A device is limited where every share on it is: limits add up, and one without a limit has no
 * end. */
static bool is_limited(struct alq_compute_device *dev)
{
    uint32_t sequence = sequence_of(dev);
    if (__builtin_expect(atomic_load_explicit(&dev->seen_sequence, RELAXED) != sequence, 0)) {
        struct alq_gate_rate rate;
        bool limited = true;
        for (uint32_t i = 0; i < dev->share_count; i++)
            limited = alq_compute_rate(&dev->shares[i], 0, &rate) && limited;
        atomic_store_explicit(&dev->is_limited, limited, RELAXED);
        atomic_store_explicit(&dev->seen_sequence, sequence, RELAXED);
    }
    return atomic_load_explicit(&dev->is_limited, RELAXED);
}

bool alq_compute_is_limited(struct alq_compute *c, uint32_t index)
{
    return c->devices[index].is_on && is_limited(&c->devices[index]);
}

/* So that a death costs the share no more than what was on the GPU. */
static void note_waiting(struct alq_compute_share *share, int64_t ns)
{
    if (share->slot)
        __atomic_fetch_add(&share->slot->waiting_ns, (uint64_t)ns, __ATOMIC_RELAXED);
}

/* What the slot's last owner had reserved and never launched. */
static void take_over(struct alq_compute_share *share, uint64_t now_ns)
{
    struct alq_gate_rate rate;
    uint64_t left_ns =
        share->slot ? __atomic_exchange_n(&share->slot->waiting_ns, 0, __ATOMIC_RELAXED) : 0;
    if (left_ns && left_ns <= ALQ_GATE_CHARGE_MAX_NS && alq_compute_rate(share, now_ns, &rate))
        alq_gate_settle(share->gate, &rate, now_ns, -(int64_t)left_ns);
}

void alq_compute_add_device(struct alq_compute *c, uint32_t index,
                            const struct alq_compute_share *shares, uint32_t share_count,
                            uint64_t boot_id)
{
    struct alq_compute_device *dev = &c->devices[index];
    uint64_t now = c->driver.now_ns();
    dev->share_count =
        (uint8_t)(share_count < ALQ_COMPUTE_SHARES ? share_count : ALQ_COMPUTE_SHARES);
    for (uint32_t i = 0; i < dev->share_count; i++) {
        dev->shares[i] = shares[i];
        alq_gate_join(shares[i].gate, boot_id, now);
        take_over(&dev->shares[i], now);
    }
    dev->is_on = dev->share_count > 0;
}

/* What the daemon has found out by NVML since the last time. */
static void follow_daemon(struct alq_compute_device *dev, uint64_t now_ns)
{
    bool is_contended = false;
    for (uint32_t i = 0; i < dev->share_count; i++) {
        struct alq_compute_share *share = &dev->shares[i];
        uint64_t until_ns = __atomic_load_n(&share->control->contended_until_ns, __ATOMIC_RELAXED);
        uint64_t credit_ns = __atomic_load_n(&share->control->time_credit_ns, __ATOMIC_RELAXED);
        struct alq_gate_rate rate;
        is_contended = is_contended || now_ns < until_ns;
        if (credit_ns != __atomic_load_n(&share->gate->time_credit_ns, __ATOMIC_RELAXED) &&
            alq_compute_rate(share, now_ns, &rate))
            alq_gate_take_credit(share->gate, &rate, now_ns, credit_ns);
    }
    atomic_store_explicit(&dev->is_contended, is_contended, RELAXED);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static void read_back(struct alq_compute *c, struct alq_compute_device *dev, uint64_t now,
                      uint32_t queries, bool is_urgent)
{
    if (!alq_measure_enter(&c->measure))
        return;
    alq_measure_read_back(c, dev, now, queries, is_urgent);
    alq_measure_leave(&c->measure);
}

/* A launch goes on that was held back while there may have been work of ours on the GPU. */
static void let_go(struct alq_compute_device *dev, uint64_t now)
{
    uint32_t turn = atomic_fetch_add_explicit(&dev->let_go, 1, RELAXED);
    atomic_store_explicit(&dev->let_go_ns[turn % ALQ_LET_GO], now, RELAXED);
}

/* Is a launch timed alone, which was due before due_ns and ends with the event, not read back? */
static bool is_pending(struct alq_compute *c, const struct alq_compute_device *dev, uint16_t event,
                       uint64_t due_ns)
{
    if (!event || !alq_measure_enter(&c->measure))
        return false;
    const struct alq_batch *batch = alq_measure_pending(dev, event);
    bool is_so = batch && batch->is_single && batch->due_ns < due_ns;
    alq_measure_leave(&c->measure);
    return is_so;
}

/* For what wait_for_own waits; one of them. */
struct own {
    struct alq_estimate *entry; /* the first launch of an unknown function, until it is measured */
    uint16_t event;             /* the launch that ends with it, until it is read back */
    uint64_t most_ns;           /* until no more than this of our work is on the GPU */
};

static bool is_over(struct alq_compute *c, const struct alq_compute_device *dev, struct own own)
{
    if (own.entry)
        return __atomic_load_n(&own.entry->probing, __ATOMIC_RELAXED) == 0;
    if (own.event)
        return !is_pending(c, dev, own.event, UINT64_MAX);
    return atomic_load_explicit(&dev->outstanding_ns, RELAXED) <= own.most_ns;
}

/* Waits for work of ours, and no longer than ALQ_OWN_WAIT_NS: what is on the GPU may be waiting for
 * the very launch that waits here. */
static uint64_t wait_for_own(struct alq_compute *c, struct alq_compute_device *dev, struct own own,
                             uint64_t now)
{
    uint64_t until = now + ALQ_OWN_WAIT_NS, step = 20000;
    const uint32_t *word = &dev->shares[0].control->wake;
    while (now < until && atomic_load_explicit(&c->captures, RELAXED) == 0) {
        read_back(c, dev, now, ALQ_OPEN_STREAMS, true);
        if (is_over(c, dev, own) || !is_limited(dev))
            break;
        uint64_t wake_at = now + step < until ? now + step : until;
        c->driver.wait_until(word, __atomic_load_n(word, __ATOMIC_RELAXED), wake_at);
        if (step < 1000000)
            step *= 2;
        now = c->driver.now_ns();
    }
    if (now >= until)
        let_go(dev, now);
    return now;
}

static uint64_t settled_ns(const struct alq_compute_share *share)
{
    return __atomic_load_n(&share->gate->settled_ns, __ATOMIC_RELAXED);
}

/*
 * Waits for the turn that was reserved at `at`, under limits that may change and charges that are
 * corrected meanwhile: what moves the end of the queue moves everybody in it by as much, so all
 * keep their order and their distances. Any process of the share can write what it likes there: a
 * turn that is too far away, or goes away for too long, is taken for come.
 */
static uint64_t wait_for_turn(struct alq_compute *c, struct alq_compute_device *dev,
                              struct alq_compute_share *share, struct alq_gate_rate rate,
                              uint64_t at, uint64_t now)
{
    uint64_t from = now;
    const uint32_t *word = &share->control->wake;
    uint64_t settled = settled_ns(share);
    if (atomic_fetch_add_explicit(&dev->waiting, 1, RELAXED) == 0)
        atomic_store_explicit(&dev->waited_from_ns, now, RELAXED);
    for (;;) {
        struct alq_gate_rate fresh;
        /* The word before the limits: a change after this load ends the wait below. */
        uint32_t wake = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (!alq_compute_rate(share, now, &fresh))
            break;
        if (fresh.limit_pct != rate.limit_pct) {
            alq_gate_rerate(share->gate, &fresh, now);
            if (at > now)
                at = now + alq_gate_scale_ns(at - now, rate.limit_pct, fresh.limit_pct);
            rate = fresh;
        }
        follow_daemon(dev, now);
        uint64_t settled_now = settled_ns(share);
        at += settled_now - settled;
        settled = settled_now;
        if (at <= now || at - now > MOST_WAIT_NS || now - from > MOST_WAIT_NS)
            break;
        if (at - now > ALQ_SPIN_NS) {
            uint64_t until = at - ALQ_SPIN_NS;
            c->driver.wait_until(word, wake,
                                 until - now < ALQ_WAIT_STEP_NS ? until : now + ALQ_WAIT_STEP_NS);
            now = c->driver.now_ns();
            read_back(c, dev, now, ALQ_OPEN_STREAMS, false);
        } else {
            c->driver.relax();
            now = c->driver.now_ns();
        }
    }
    atomic_store_explicit(&dev->waited_until_ns, now, RELAXED);
    let_go(dev, now);
    atomic_fetch_sub_explicit(&dev->waiting, 1, RELAXED);
    __atomic_fetch_add(&share->counters->throttled_ns, now - from, __ATOMIC_RELAXED);
    return now;
}

/* Takes need_ns from the gate that would give it first, and waits for it. The index of the share it
 * came from. */
static uint8_t pass_gate(struct alq_compute *c, struct alq_compute_device *dev, uint64_t need_ns,
                         uint32_t jitter_ns, uint64_t *now)
{
    uint8_t best = 0;
    struct alq_gate_rate rate, best_rate = {0};
    uint64_t best_at = UINT64_MAX;
    for (uint8_t i = 0; i < dev->share_count; i++) {
        if (!alq_compute_rate(&dev->shares[i], *now,
                              &rate)) /* just changed; the next launch sees it */
            return i;
        uint64_t at = alq_gate_peek(dev->shares[i].gate, *now);
        if (at < best_at) {
            best_at = at;
            best_rate = rate;
            best = i;
        }
    }
    struct alq_compute_share *share = &dev->shares[best];
    alq_gate_rerate(share->gate, &best_rate, *now);
    uint64_t at = alq_gate_reserve(share->gate, &best_rate, *now, need_ns);
    atomic_store_explicit(&dev->is_throttled, at > *now, RELAXED);
    if (at > *now) {
        note_waiting(share, (int64_t)need_ns);
        *now = wait_for_turn(c, dev, share, best_rate, at + jitter_ns, *now);
        note_waiting(share, -(int64_t)need_ns);
    }
    return best;
}

/* ---- launches ------------------------------------------------------------------------------ */

void alq_compute_count(struct alq_compute *c, struct alq_compute_device *dev, uint64_t launches,
                       uint64_t now)
{
    struct alq_counters *counters = dev->shares[0].counters;
    __atomic_fetch_add(&counters->launches, launches, __ATOMIC_RELAXED);
    if (now) {
        uint64_t boottime = now + (uint64_t)c->boottime_offset_ns;
        if (boottime - __atomic_load_n(&counters->last_activity_ns, __ATOMIC_RELAXED) > 10000000)
            __atomic_store_n(&counters->last_activity_ns, boottime, __ATOMIC_RELAXED);
    }
}

/* Takes what a launch is charged from what was charged at the gate before. */
static bool take_credit(struct alq_compute_device *dev, uint64_t charge_ns)
{
    int64_t ns = (int64_t)charge_ns;
    if (atomic_fetch_sub_explicit(&dev->credit_ns, ns, RELAXED) >= ns)
        return true;
    atomic_fetch_add_explicit(&dev->credit_ns, ns, RELAXED);
    return false;
}

/* Books what was launched since the last look as starting then at the earliest. A hint: races blur
 * it. */
static void look_at_idle(struct alq_compute_device *dev, uint64_t now)
{
    uint64_t launched = alq_measure_launched(dev);
    uint64_t fresh = launched - atomic_exchange_explicit(&dev->launched_ns, launched, RELAXED);
    uint64_t since = atomic_exchange_explicit(&dev->looked_at_ns, now, RELAXED);
    uint64_t idle_at = atomic_load_explicit(&dev->idle_at_ns, RELAXED);
    if (fresh < ALQ_GATE_CHARGE_MAX_NS)
        atomic_store_explicit(&dev->idle_at_ns, (idle_at > since ? idle_at : since) + fresh,
                              RELAXED);
}

static bool is_wide(const struct alq_estimate *entry)
{
    return __atomic_load_n(&entry->spread, __ATOMIC_RELAXED) == ALQ_SPREAD_WIDE;
}

/* A launch on its way through the gate, off the fast path. */
struct passage {
    struct alq_compute *c;
    struct alq_compute_device *dev;
    struct alq_compute_stream *st; /* NULL: no place for it */
    struct alq_estimate *entry;
    struct alq_compute_ticket *ticket;
    CUstream stream;
    uint64_t now_ns;
    uint64_t est_ns;
    uint64_t charge_ns; /* of it, ahead */
    enum alq_moment moment;
    uint16_t last; /* event behind the stream's last batch */
    bool is_due;
    bool can_measure;
    bool has_waited;
    bool is_synced; /* the program waited for its work and launched nothing since */
};

#define FIELD(entry, name) __atomic_load_n(&(entry)->name, __ATOMIC_RELAXED)

/* Waits where too little is known of what is on the GPU, or too much of ours is on it. */
static void wait_for_knowledge(struct passage *p)
{
    /* What the launch ahead in the stream took beyond its charge is paid before this one, which
     * would come behind it anyway: once this one is on the GPU, those that it waits for would pay.
     */
    if (is_pending(p->c, p->dev, p->last, p->now_ns - ALQ_OWN_WAIT_NS))
        p->now_ns = wait_for_own(p->c, p->dev, (struct own){.event = p->last}, p->now_ns);
    /* A function never measured: the second launch of it waits to see what the first took. */
    if (FIELD(p->entry, samples) == 0 && FIELD(p->entry, probing)) {
        uint64_t from = p->now_ns;
        p->now_ns = wait_for_own(p->c, p->dev, (struct own){.entry = p->entry}, from);
        if (FIELD(p->entry, samples) == 0 && p->now_ns - from > alq_estimate_ns(p->entry))
            __atomic_store_n(&p->entry->est_ns, (uint32_t)(p->now_ns - from), __ATOMIC_RELAXED);
    }
    p->est_ns = alq_estimate_ns(p->entry);
    uint64_t most = 8 * p->est_ns > ALQ_IN_FLIGHT_NS ? 8 * p->est_ns : ALQ_IN_FLIGHT_NS;
    if (atomic_load_explicit(&p->dev->outstanding_ns, RELAXED) > most)
        p->now_ns = wait_for_own(p->c, p->dev, (struct own){.most_ns = most}, p->now_ns);
}

/* Does the program use several streams at a time? */
static bool is_beside_others(const struct alq_compute_device *dev)
{
    return atomic_load_explicit(&dev->open_streams, RELAXED) > 1;
}

/* Has the launch charged, by credit or at the gate, and waits for its turn. */
static void charge(struct passage *p)
{
    struct alq_compute_device *dev = p->dev;
    struct alq_estimates *estimates = &p->c->estimates;
    p->charge_ns = alq_measure_part(dev, p->est_ns);
    if (take_credit(dev, p->charge_ns))
        return;
    /* Of random size, so that the timings that follow waits see every part of what a program
     * repeats. */
    uint64_t chunk =
        atomic_load_explicit(&dev->is_throttled, RELAXED) ? ALQ_CREDIT_THROTTLED_NS : ALQ_CREDIT_NS;
    uint32_t streams = atomic_load_explicit(&dev->open_streams, RELAXED);
    if (streams > 1)
        chunk = streams * ALQ_CREDIT_STREAM_NS;
    chunk = chunk / 2 + chunk * (alq_estimates_random(estimates) & 1023) / 1024;
    uint64_t need = alq_measure_part(dev, p->est_ns < chunk ? chunk : p->est_ns);
    if (alq_gate_peek(dev->shares[0].gate, p->now_ns) > p->now_ns + ALQ_SPIN_NS)
        alq_stream_end_all(p->c, p->dev, p->can_measure ? p->st : NULL, p->stream,
                           p->ticket->share);
    /* Behind waits that come at regular times, a neighbour's regular turns would always look the
     * same. */
    uint32_t jitter = 0;
    if (FIELD(p->entry, spread) != ALQ_SPREAD_FLAT && (p->est_ns >= ALQ_SINGLE_NS || p->is_due))
        jitter = alq_estimates_random(estimates) % ALQ_JITTER_NS;
    uint64_t from = p->now_ns;
    p->ticket->share = pass_gate(p->c, dev, need, jitter, &p->now_ns);
    p->has_waited = p->now_ns != from;
    /* What follows starts now at the earliest. With one stream it does not matter: there a timing
     * begins behind what was launched before. */
    if (p->has_waited && is_beside_others(dev))
        look_at_idle(dev, p->now_ns);
    atomic_fetch_add_explicit(&dev->granted_ns, need, RELAXED);
    atomic_fetch_add_explicit(&dev->credit_ns, (int64_t)(need - p->charge_ns), RELAXED);
}

/*
 * The moment at which the launch meets the GPU, as far as estimates tell. A launch to be timed was
 * chosen by lot, so that a mean is one of all; where the gate makes us wait anyway, it waits for a
 * good moment too.
 */
static void choose_moment(struct passage *p)
{
    struct alq_compute_device *dev = p->dev;
    uint64_t idle_at = atomic_load_explicit(&dev->idle_at_ns, RELAXED);
    /* Not where spans of other streams would hold the wait. */
    bool may_wait = p->has_waited || !is_beside_others(dev);
    if (p->is_due && may_wait && p->can_measure && dev->budget_ns > 0 &&
        atomic_load_explicit(&dev->is_throttled, RELAXED) && p->now_ns < idle_at &&
        idle_at - p->now_ns < ALQ_GOOD_MOMENT_NS) {
        const uint32_t *word = &dev->shares[0].control->wake;
        p->c->driver.wait_until(word, __atomic_load_n(word, __ATOMIC_RELAXED),
                                idle_at + alq_estimates_random(&p->c->estimates) % ALQ_JITTER_NS);
        p->now_ns = p->c->driver.now_ns();
        p->has_waited = true;
        idle_at = atomic_load_explicit(&dev->idle_at_ns, RELAXED);
    }
    p->moment = p->now_ns < idle_at ? ALQ_MOMENT_BUSY
                : p->has_waited     ? ALQ_MOMENT_FRESH
                                    : ALQ_MOMENT_IDLE;
}

/* Is this launch timed alone? May raise the moment: a forced timing counts like one of the best. */
static bool is_timed_alone(struct passage *p)
{
    struct alq_estimate *entry = p->entry;
    if (p->st->is_joining)
        return false;
    if (p->est_ns >= ALQ_SINGLE_NS || FIELD(entry, samples) == 0)
        return true;
    if (!p->is_due || p->dev->budget_ns <= 0)
        return false;
    bool is_forced = FIELD(entry, hints) >= ALQ_HINTS || FIELD(entry, skipped) >= ALQ_HINTS ||
                     FIELD(entry, samples) < 4;
    /* Beside other streams of our own the reading would be theirs too. */
    if (is_forced && atomic_load_explicit(&p->c->stream_count, RELAXED) == 1) {
        if ((uint32_t)p->moment < FIELD(entry, moment))
            p->moment = (enum alq_moment)FIELD(entry, moment);
        __atomic_store_n(&entry->hints, 0, __ATOMIC_RELAXED);
        return true;
    }
    return p->moment != ALQ_MOMENT_BUSY && (uint32_t)p->moment >= FIELD(entry, moment);
}

static void add_to_batch(struct passage *p)
{
    p->st->work_ns += p->est_ns;
    p->st->charged_ns += p->charge_ns;
    p->st->batch_launches++;
    p->st->is_wide |= is_wide(p->entry);
    bool is_unknown = FIELD(p->entry, samples) == 0;
    p->st->is_plural |= p->st->batch_launches > 1 && p->st->entry != p->entry;
    /* A function that nothing is known of has the first claim to what the batch teaches. */
    if (is_unknown || !p->st->is_unknown)
        p->st->entry = p->entry;
    p->st->is_unknown |= is_unknown;
}

/* Stream and measurement locked: the event before a launch that is timed alone. */
static void begin_timing(struct passage *p)
{
    struct alq_compute_stream *st = p->st;
    bool is_unknown = FIELD(p->entry, samples) == 0;
    /* A fresh event: the last one may lie before a pause. */
    st->from = alq_measure_has_room(p->dev)
                   ? alq_measure_record(p->c, p->dev, st->context, p->stream)
                   : ALQ_NO_EVENT;
    if (!st->from)
        return;
    st->is_timing = true;
    st->is_mixed = false;
    st->is_unknown = is_unknown;
    st->moment = (uint8_t)p->moment;
    st->is_after_gap = p->moment != ALQ_MOMENT_BUSY && (p->has_waited || p->is_synced);
    st->issued_ns = p->c->driver.now_ns();
    st->work_ns = p->est_ns;
    st->charged_ns = p->charge_ns;
    p->ticket->entry = p->entry;
    p->ticket->is_single = true;
    alq_estimate_take(&p->c->estimates, p->entry);
    if (is_unknown)
        __atomic_store_n(&p->entry->probing, 1, __ATOMIC_RELAXED);
}

/* Likewise: the launch is one of a batch. */
static void join_batch(struct passage *p)
{
    struct alq_compute_stream *st = p->st;
    if (p->is_due)
        alq_estimate_postpone(p->entry, p->est_ns > 250000 ? 8 : 32);
    if (!st->is_open) {
        st->from = st->last;
        if (st->from)
            alq_measure_hold(p->c, st->from);
        else
            st->from = alq_measure_record(p->c, p->dev, st->context, p->stream);
        st->is_open = st->from != ALQ_NO_EVENT;
        st->issued_ns = p->now_ns;
        st->work_ns = st->charged_ns = 0;
        st->batch_launches = 0;
        st->is_unknown = st->is_plural = st->is_wide = st->is_gapped = false;
    }
    add_to_batch(p);
}

/* Puts the launch into a batch, or under a timing of its own. False: it is charged by estimate
 * alone. */
static bool measure(struct passage *p)
{
    struct alq_compute_stream *st = p->st;
    if (!st || !alq_stream_lock(p->c, st))
        return false;
    p->ticket->stream = st;
    if (st->is_timing)
        st->is_mixed = true;
    if (st->is_timing || !p->can_measure || !alq_measure_enter(&p->c->measure)) {
        bool is_in_batch = st->is_open && !st->is_timing;
        st->is_gapped |= p->has_waited;
        if (p->is_due)
            alq_estimate_postpone(p->entry, 4);
        if (is_in_batch)
            add_to_batch(p);
        alq_stream_unlock(st);
        return is_in_batch;
    }
    /* The batch could not be ended before the wait: an event may not precede a joined launch. */
    if (p->has_waited && st->is_open)
        st->is_gapped = true;
    bool is_single = is_timed_alone(p);
    if (st->is_open && (is_single || st->work_ns + p->est_ns > ALQ_BATCH_NS))
        alq_stream_end_batch(p->c, st, p->stream, p->ticket->share, NULL);
    if (is_single)
        begin_timing(p);
    else
        join_batch(p);
    alq_measure_leave(&p->c->measure);
    bool is_measured = st->is_open || st->is_timing;
    alq_stream_unlock(st);
    return is_measured;
}

/* Launches counted in the stream since the last time, and this one; what else the stream knows. */
static uint64_t take_launches(struct passage *p, bool is_joined)
{
    uint64_t launches = 1;
    if (p->st && alq_stream_lock(p->c, p->st)) {
        launches += p->st->launches;
        p->st->launches = 0;
        p->st->is_joining |= is_joined;
        p->last = p->st->last;
        alq_stream_unlock(p->st);
    }
    return launches;
}

static void pass(struct alq_compute *c, const struct alq_compute_launch *launch,
                 struct alq_compute_stream *st, struct alq_estimate *entry, bool is_due,
                 struct alq_compute_ticket *out)
{
    struct alq_compute_device *dev = &c->devices[launch->device];
    struct passage p = {
        .c = c,
        .dev = dev,
        .st = st,
        .entry = entry,
        .ticket = out,
        .stream = alq_stream_canonical(launch->stream),
        .now_ns = c->driver.now_ns(),
        .is_due = is_due,
        .can_measure = st && st->context < ALQ_CONTEXTS && !launch->is_joined,
    };
    follow_daemon(dev, p.now_ns);
    read_back(c, dev, p.now_ns, ALQ_OPEN_STREAMS, false);
    uint64_t launches = take_launches(&p, launch->is_joined);
    wait_for_knowledge(&p);
    p.is_synced = atomic_load_explicit(&dev->synced_ns, RELAXED) == alq_measure_launched(dev);
    look_at_idle(dev, p.now_ns);
    if (p.is_synced)
        atomic_store_explicit(&dev->idle_at_ns, p.now_ns, RELAXED);
    charge(&p);
    choose_moment(&p);
    alq_compute_count(c, dev, launches, p.now_ns);
    out->est_ns = p.est_ns;
    out->charged_ns = p.charge_ns;
    if (!measure(&p))
        __atomic_fetch_add(&dev->shares[out->share].counters->charged_ns, p.charge_ns,
                           __ATOMIC_RELAXED);
}

void alq_compute_before(struct alq_compute *c, const struct alq_compute_launch *launch,
                        struct alq_compute_ticket *out)
{
    struct alq_compute_device *dev = &c->devices[launch->device];
    CUstream stream = alq_stream_canonical(launch->stream);
    *out = (struct alq_compute_ticket){.device = (uint8_t)launch->device};
    if (!dev->is_on)
        return;
    if (!is_limited(dev)) {
        alq_compute_count(c, dev, 1, 0);
        return;
    }
    if (__builtin_expect(atomic_load_explicit(&c->captures, RELAXED) != 0, 0)) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        /* An error is the legacy stream's answer while another stream captures: not to be launched
         * into either. */
        if (c->driver.stream_is_capturing(launch->stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE) {
            alq_compute_count(c, dev, 1, 0);
            return;
        }
    }
    struct alq_estimate *entry = alq_estimate_find(&c->estimates, launch->handle, launch->kind,
                                                   launch->device, launch->size_class);
    bool is_due = alq_estimate_is_due(&c->estimates, entry);
    uint64_t key = alq_stream_key(c, stream, launch->thread);
    struct alq_compute_stream *st = alq_stream_at(c, key);
    if (!st)
        st = alq_stream_make(c, key, stream, launch->device);
    else if (__builtin_expect(!is_due, 1) && alq_stream_try_lock(st)) {
        uint32_t est = alq_estimate_ns(entry);
        uint64_t charge = alq_measure_part(dev, est);
        if (st->is_open && st->work_ns + est <= ALQ_BATCH_NS && est < ALQ_SINGLE_NS &&
            take_credit(dev, charge)) {
            st->work_ns += est;
            st->charged_ns += charge;
            st->batch_launches++;
            st->is_wide |= is_wide(entry);
            st->is_joining |= launch->is_joined;
            st->is_plural |= st->entry != entry;
            if (!st->is_unknown)
                st->entry = entry;
            st->launches++;
            alq_stream_unlock(st);
            out->stream = st;
            out->est_ns = est;
            out->charged_ns = charge;
            return;
        }
        alq_stream_unlock(st);
    }
    pass(c, launch, st, entry, is_due, out);
}

void alq_compute_after(struct alq_compute *c, const struct alq_compute_launch *launch,
                       const struct alq_compute_ticket *ticket, CUresult rc)
{
    struct alq_compute_device *dev = &c->devices[ticket->device];
    struct alq_compute_stream *st = ticket->stream;
    if (__builtin_expect(rc != CUDA_SUCCESS, 0) && ticket->charged_ns) {
        atomic_fetch_add_explicit(&dev->credit_ns, (int64_t)ticket->charged_ns, RELAXED);
        if (st && alq_stream_lock(c, st)) {
            /* It may have moved to the GPU with its batch; then a little too much is charged for
             * that one. */
            if (st->is_open && st->work_ns >= ticket->est_ns &&
                st->charged_ns >= ticket->charged_ns) {
                st->work_ns -= ticket->est_ns;
                st->charged_ns -= ticket->charged_ns;
            }
            alq_stream_unlock(st);
        }
    }
    if (__builtin_expect(!ticket->is_single, 1))
        return;
    if (!alq_stream_lock(c, st))
        return;
    if (!st->is_timing) {
        alq_stream_unlock(st);
        return;
    }
    if (!alq_measure_spin_enter(c)) {
        /* Left as an open batch: the launches that follow end it. */
        st->is_timing = false;
        st->is_open = true;
        __atomic_store_n(&ticket->entry->probing, 0, __ATOMIC_RELAXED);
        alq_stream_unlock(st);
        return;
    }
    if (rc != CUDA_SUCCESS) {
        alq_stream_drop_batch(c, st);
        __atomic_store_n(&ticket->entry->probing, 0, __ATOMIC_RELAXED);
    } else {
        if (st->is_mixed)
            __atomic_store_n(&ticket->entry->probing, 0, __ATOMIC_RELAXED);
        alq_stream_end_batch(c, st, alq_stream_canonical(launch->stream), ticket->share,
                             st->is_mixed ? NULL : ticket->entry);
    }
    alq_measure_leave(&c->measure);
    alq_stream_unlock(st);
}

void alq_compute_synced(struct alq_compute *c, enum alq_synced what)
{
    bool is_all =
        what == ALQ_SYNCED_CONTEXT
            ? atomic_load_explicit(&c->context_count, RELAXED) <= 1
            : what == ALQ_SYNCED_STREAM && atomic_load_explicit(&c->stream_count, RELAXED) == 1;

    for (uint32_t i = 0; i < ALQ_COMPUTE_DEVICES; i++) {
        struct alq_compute_device *dev = &c->devices[i];
        if (!dev->is_on)
            break;
        if (is_all)
            atomic_store_explicit(&dev->synced_ns, alq_measure_launched(dev), RELAXED);
        if (atomic_load_explicit(&dev->outstanding_ns, RELAXED) == 0 ||
            !alq_measure_enter(&c->measure))
            continue;
        alq_measure_read_back(c, dev, c->driver.now_ns(), ALQ_OPEN_STREAMS, dev->budget_ns > 0);
        alq_measure_leave(&c->measure);
    }
}

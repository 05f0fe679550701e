/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a launch through the gate. Threading: as compute.h says. No system call but the
 * gate's wait. */
#include "vgpu/compute/compute.h"

#define KEY_FREE 0ull
#define KEY_GONE 1ull
#define KEY_MAKING 2ull
#define PROBES 8u
#define LOCK_TURNS                                                                                 \
    2000 /* of a spin for a lock that is held over a few instructions or a driver call of ours */

#define RELAXED memory_order_relaxed

/* ---- control
 * -----------------------------------------------------------------------------------------------------------
 */

bool alq_compute_rate(const struct alq_compute_share *share, struct alq_gate_rate *out)
{
    uint32_t sequence = __atomic_load_n(&share->control->sequence, __ATOMIC_ACQUIRE);
    const struct alq_control_values *now = &share->control->values[sequence & 1];
    /* Single words, each old or new: a mixture of two publications is as good as either for one
     * launch. */
    struct alq_control_values values = {
        .compute_limit_pct = __atomic_load_n(&now->compute_limit_pct, __ATOMIC_RELAXED),
        .policy = __atomic_load_n(&now->policy, __ATOMIC_RELAXED),
    };
    out->limit_pct = values.compute_limit_pct;
    out->correction_ppm = __atomic_load_n(&now->time_correction_ppm, __ATOMIC_RELAXED);
    return alq_gate_is_limited(&values);
}

static uint32_t sequence_of(const struct alq_compute_device *dev)
{
    uint32_t sum = 1;
    for (uint32_t i = 0; i < dev->share_count; i++)
        sum += __atomic_load_n(&dev->shares[i].control->sequence, __ATOMIC_RELAXED);
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
            limited = alq_compute_rate(&dev->shares[i], &rate) && limited;
        atomic_store_explicit(&dev->is_limited, limited, RELAXED);
        atomic_store_explicit(&dev->seen_sequence, sequence, RELAXED);
    }
    return atomic_load_explicit(&dev->is_limited, RELAXED);
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
    }
    dev->is_on = dev->share_count > 0;
}

/* ---- streams
 * -----------------------------------------------------------------------------------------------------------
 */

static bool try_lock(struct alq_compute_stream *st)
{
    uint32_t expect = 0;
    return atomic_compare_exchange_strong_explicit(&st->lock, &expect, 1, memory_order_acquire,
                                                   RELAXED);
}

static void unlock(struct alq_compute_stream *st)
{
    atomic_store_explicit(&st->lock, 0, memory_order_release);
}

static bool spin_lock(struct alq_compute *c, struct alq_compute_stream *st)
{
    for (int i = 0; i < LOCK_TURNS; i++) {
        if (try_lock(st))
            return true;
        c->driver.relax();
    }
    return false;
}

static bool spin_enter(struct alq_compute *c)
{
    for (int i = 0; i < LOCK_TURNS; i++) {
        if (alq_measure_enter(&c->measure))
            return true;
        c->driver.relax();
    }
    return false;
}

static CUstream canonical(CUstream stream)
{
    return stream ? stream : CU_STREAM_LEGACY;
}

static bool is_default(CUstream stream)
{
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

static uint64_t stream_key(struct alq_compute *c, CUstream stream, uintptr_t thread)
{
    uint64_t key = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15ull;
    if (is_default(stream)) {
        CUcontext current = NULL;
        if (stream == CU_STREAM_PER_THREAD)
            key ^= (uint64_t)thread * 0xc2b2ae3d27d4eb4full;
        if (atomic_load_explicit(&c->context_count, RELAXED) > 1 &&
            c->driver.context_current(&current) == CUDA_SUCCESS)
            key ^= (uint64_t)(uintptr_t)current * 0xd6e8feb86659fd93ull;
    }
    return key | 1ull << 63;
}

static struct alq_compute_stream *stream_at(struct alq_compute *c, uint64_t key)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct alq_compute_stream *st = &c->streams[((key >> 40) + i) % ALQ_STREAMS];
        uint64_t at = __atomic_load_n(&st->key, __ATOMIC_ACQUIRE);
        if (at == key)
            return st;
        if (at == KEY_FREE)
            break;
    }
    return NULL;
}

/* Takes a place for a stream. NULL when there is none near its home: it is then charged by estimate
 * alone. */
static struct alq_compute_stream *stream_make(struct alq_compute *c, uint64_t key, uint32_t device)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct alq_compute_stream *st = &c->streams[((key >> 40) + i) % ALQ_STREAMS];
        uint64_t at = __atomic_load_n(&st->key, __ATOMIC_ACQUIRE);
        if (at == key)
            return st;
        if ((at != KEY_FREE && at != KEY_GONE) ||
            !__atomic_compare_exchange_n(&st->key, &at, KEY_MAKING, false, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        CUcontext current = NULL;
        uint32_t index = ALQ_CONTEXTS;
        if (c->driver.context_current(&current) != CUDA_SUCCESS)
            current = NULL;
        alq_compute_context_made(c, current);
        if (current && spin_enter(c)) {
            index = alq_measure_context(c, current);
            alq_measure_leave(&c->measure);
        }
        st->device = (uint8_t)device;
        st->context = (uint8_t)index;
        st->context_handle = current;
        st->is_open = st->is_unknown = st->is_wide = st->is_timing = st->is_mixed = false;
        st->from = st->last = ALQ_NO_EVENT;
        st->launches = 0;
        st->work_ns = 0;
        st->entry = NULL;
        __atomic_store_n(&st->key, key, __ATOMIC_RELEASE);
        atomic_fetch_add_explicit(&c->stream_count, 1, RELAXED);
        return st;
    }
    return NULL;
}

/* ---- batches (stream locked, measuring lock held)
 * ------------------------------------------------------------------------ */

static void drop_batch(struct alq_compute *c, struct alq_compute_stream *st)
{
    alq_measure_drop(c, st->from);
    st->from = ALQ_NO_EVENT;
    st->is_open = st->is_timing = false;
    st->work_ns = 0;
    st->is_unknown = st->is_wide = false;
}

/* Ends what lies between st->from and here. entry: it was this launch alone. */
static void end_batch(struct alq_compute *c, struct alq_compute_stream *st, CUstream stream,
                      uint8_t share, struct alq_estimate *entry)
{
    struct alq_compute_device *dev = &c->devices[st->device];
    uint16_t to =
        alq_measure_has_room(dev) ? alq_measure_record(c, dev, st->context, stream) : ALQ_NO_EVENT;
    alq_measure_drop(c, st->last);
    st->last = to;
    if (!to) {
        if (entry)
            __atomic_store_n(&entry->probing, 0, __ATOMIC_RELAXED);
        drop_batch(c, st);
        return;
    }
    struct alq_batch batch = {
        .is_single = entry != NULL,
        .is_after_gap = st->is_after_gap,
        .moment = st->moment,
        .is_wide = st->is_wide,
        .is_unknown = st->is_unknown,
        .share = share,
        .from = st->from,
        .to = to,
        .issued_ns = st->issued_ns,
        .charged_ns = st->work_ns,
        .entry = entry ? entry : st->entry,
    };
    alq_measure_hold(c, to);
    alq_measure_push(c, dev, &batch);
    st->from = ALQ_NO_EVENT;
    st->is_open = st->is_timing = false;
    st->is_unknown = st->is_wide = false;
    st->work_ns = 0;
    st->entry = NULL;
}

/* ---- waiting
 * -----------------------------------------------------------------------------------------------------------
 */

static void read_back(struct alq_compute *c, struct alq_compute_device *dev, uint64_t now,
                      uint32_t queries, bool is_urgent)
{
    if (!alq_measure_enter(&c->measure))
        return;
    alq_measure_read_back(c, dev, now, queries, is_urgent);
    alq_measure_leave(&c->measure);
}

/*
 * Waits until the first launch of an unknown function is measured (entry), or until no more than
 * `most_ns` of our work is on the GPU, and no longer than ALQ_OWN_WAIT_NS: what is on the GPU may
 * be waiting for the very launch that waits here.
 */
static uint64_t wait_for_own(struct alq_compute *c, struct alq_compute_device *dev,
                             struct alq_estimate *entry, uint64_t most_ns, uint64_t now)
{
    uint64_t until = now + ALQ_OWN_WAIT_NS, step = 20000;
    const uint32_t *word = &dev->shares[0].control->wake;
    while (now < until && atomic_load_explicit(&c->captures, RELAXED) == 0) {
        read_back(c, dev, now, 4, true);
        if (entry ? __atomic_load_n(&entry->probing, __ATOMIC_RELAXED) == 0
                  : atomic_load_explicit(&dev->outstanding_ns, RELAXED) <= most_ns)
            break;
        uint64_t wake_at = now + step < until ? now + step : until;
        c->driver.wait_until(word, __atomic_load_n(word, __ATOMIC_RELAXED), wake_at);
        if (step < 1000000)
            step *= 2;
        now = c->driver.now_ns();
    }
    return now;
}

/* Waits for the turn that was reserved at `at`, under limits that may change and charges that are
 * corrected meanwhile. */
static uint64_t wait_for_turn(struct alq_compute *c, struct alq_compute_device *dev,
                              struct alq_compute_share *share, struct alq_gate_rate rate,
                              uint64_t at, uint64_t now)
{
    uint64_t from = now;
    const uint32_t *word = &share->control->wake;
    int64_t settled = atomic_load_explicit(&dev->settled_wall_ns, RELAXED);
    if (atomic_fetch_add_explicit(&dev->waiting, 1, RELAXED) == 0)
        atomic_store_explicit(&dev->waited_from_ns, now, RELAXED);
    for (;;) {
        struct alq_gate_rate fresh;
        /* The word before the limits: a change after this load ends the wait below. */
        uint32_t wake = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (!alq_compute_rate(share, &fresh))
            break;
        if (fresh.limit_pct != rate.limit_pct) {
            alq_gate_rerate(share->gate, &fresh, now);
            if (at > now)
                at = now + (at - now) * rate.limit_pct / fresh.limit_pct;
            rate = fresh;
        }
        int64_t settled_now = atomic_load_explicit(&dev->settled_wall_ns, RELAXED);
        at += (uint64_t)(settled_now - settled);
        settled = settled_now;
        if (at <= now || at - now > 2 * ALQ_GATE_AHEAD_MAX_NS)
            break;
        if (at - now > ALQ_SPIN_NS) {
            uint64_t until = at - ALQ_SPIN_NS;
            c->driver.wait_until(word, wake,
                                 until - now < ALQ_WAIT_STEP_NS ? until : now + ALQ_WAIT_STEP_NS);
            now = c->driver.now_ns();
            read_back(c, dev, now, 2, false);
        } else {
            c->driver.relax();
            now = c->driver.now_ns();
        }
    }
    atomic_store_explicit(&dev->waited_until_ns, now, RELAXED);
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
        if (!alq_compute_rate(&dev->shares[i], &rate)) /* just changed; the next launch sees it */
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
    if (at > *now)
        *now = wait_for_turn(c, dev, share, best_rate, at + jitter_ns, *now);
    return best;
}

/* ---- launches
 * ----------------------------------------------------------------------------------------------------------
 */

static void count(struct alq_compute *c, struct alq_compute_device *dev, uint64_t launches,
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
static bool take_credit(struct alq_compute_device *dev, uint64_t est_ns)
{
    if (atomic_fetch_sub_explicit(&dev->credit_ns, (int64_t)est_ns, RELAXED) >= (int64_t)est_ns)
        return true;
    atomic_fetch_add_explicit(&dev->credit_ns, (int64_t)est_ns, RELAXED);
    return false;
}

static uint64_t launched_ns(const struct alq_compute_device *dev)
{
    return atomic_load_explicit(&dev->granted_ns, RELAXED) -
           (uint64_t)atomic_load_explicit(&dev->credit_ns, RELAXED);
}

/* Books what was launched since the last look as starting then at the earliest. A hint: races blur
 * it. */
static void look_at_idle(struct alq_compute_device *dev, uint64_t now)
{
    uint64_t launched = launched_ns(dev);
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

static void slow(struct alq_compute *c, const struct alq_compute_launch *launch,
                 struct alq_compute_stream *st, struct alq_estimate *entry, bool is_due,
                 struct alq_compute_ticket *out)
{
    struct alq_compute_device *dev = &c->devices[launch->device];
    CUstream stream = canonical(launch->stream);
    uint64_t now = c->driver.now_ns();
    uint64_t est, launches = 1;
    bool has_waited = false;
    bool can_measure = st && st->context < ALQ_CONTEXTS && !launch->is_joined;

    read_back(c, dev, now, 2, false);

    /* A function never measured: the second launch of it waits to see what the first took. */
    if (__atomic_load_n(&entry->samples, __ATOMIC_RELAXED) == 0 &&
        __atomic_load_n(&entry->probing, __ATOMIC_RELAXED)) {
        uint64_t began = now;
        now = wait_for_own(c, dev, entry, 0, now);
        if (__atomic_load_n(&entry->samples, __ATOMIC_RELAXED) == 0 &&
            now - began > alq_estimate_ns(entry))
            __atomic_store_n(&entry->est_ns, (uint32_t)(now - began), __ATOMIC_RELAXED);
    }
    est = alq_estimate_ns(entry);
    uint64_t most = 8 * est > ALQ_IN_FLIGHT_NS ? 8 * est : ALQ_IN_FLIGHT_NS;
    if (atomic_load_explicit(&dev->outstanding_ns, RELAXED) > most)
        now = wait_for_own(c, dev, NULL, most, now);

    if (st && spin_lock(c, st)) {
        launches += st->launches;
        st->launches = 0;
        unlock(st);
    }
    bool is_synced = atomic_load_explicit(&dev->synced_ns, RELAXED) == launched_ns(dev);
    look_at_idle(dev, now);
    if (is_synced)
        atomic_store_explicit(&dev->idle_at_ns, now, RELAXED);
    if (!take_credit(dev, est)) {
        /* Of random size, so that the timings that follow waits see every part of what a program
         * repeats. */
        uint64_t chunk = atomic_load_explicit(&dev->is_throttled, RELAXED) ? ALQ_CREDIT_THROTTLED_NS
                                                                           : ALQ_CREDIT_NS;
        chunk = chunk / 2 + chunk * (alq_estimates_random(&c->estimates) & 1023) / 1024;
        uint64_t need = est < chunk ? chunk : est;
        struct alq_gate_rate rate;
        uint64_t at = alq_gate_peek(dev->shares[0].gate, now);
        /* What was launched so far is measured without the wait that comes. */
        if (at > now + ALQ_SPIN_NS && can_measure && alq_compute_rate(&dev->shares[0], &rate) &&
            try_lock(st)) {
            if (st->is_open && st->work_ns >= ALQ_BATCH_NS / 8 && alq_measure_enter(&c->measure)) {
                if (dev->budget_ns > ALQ_BATCH_NS || st->work_ns >= ALQ_BATCH_NS / 2)
                    end_batch(c, st, stream, out->share, NULL);
                alq_measure_leave(&c->measure);
            }
            unlock(st);
        }
        uint64_t before_ns = now;
        /* Behind waits that come at regular times, a neighbour's regular turns would always look
         * the same. */
        uint32_t jitter = 0;
        if (__atomic_load_n(&entry->spread, __ATOMIC_RELAXED) != ALQ_SPREAD_FLAT &&
            (est >= ALQ_SINGLE_NS || is_due))
            jitter = alq_estimates_random(&c->estimates) % ALQ_JITTER_NS;
        out->share = pass_gate(c, dev, need, jitter, &now);
        has_waited = now != before_ns;
        atomic_fetch_add_explicit(&dev->granted_ns, need, RELAXED);
        atomic_fetch_add_explicit(&dev->credit_ns, (int64_t)(need - est), RELAXED);
    }
    /*
     * The launch to be timed was chosen by lot, so that a mean is one of all; where the gate makes
     * us wait anyway, it waits for a good moment too.
     */
    if (is_due && can_measure && dev->budget_ns > 0 &&
        atomic_load_explicit(&dev->is_throttled, RELAXED)) {
        uint64_t idle_at = atomic_load_explicit(&dev->idle_at_ns, RELAXED);
        if (now < idle_at && idle_at - now < ALQ_GOOD_MOMENT_NS) {
            const uint32_t *word = &dev->shares[0].control->wake;
            c->driver.wait_until(word, __atomic_load_n(word, __ATOMIC_RELAXED),
                                 idle_at + alq_estimates_random(&c->estimates) % ALQ_JITTER_NS);
            now = c->driver.now_ns();
            has_waited = true;
        }
    }
    /* Whether the GPU is done with all that this process gave it, as far as estimates tell. */
    enum alq_moment moment = now < atomic_load_explicit(&dev->idle_at_ns, RELAXED) ? ALQ_MOMENT_BUSY
                             : has_waited ? ALQ_MOMENT_FRESH
                                          : ALQ_MOMENT_IDLE;
    bool is_good = moment != ALQ_MOMENT_BUSY &&
                   (uint32_t)moment >= __atomic_load_n(&entry->moment, __ATOMIC_RELAXED);
    count(c, dev, launches, now);
    out->charged_ns = est;
    if (!st || !spin_lock(c, st)) {
        __atomic_fetch_add(&dev->shares[out->share].counters->charged_ns, est, __ATOMIC_RELAXED);
        return;
    }
    out->stream = st;
    if (st->is_timing)
        st->is_mixed = true;
    bool is_unknown = __atomic_load_n(&entry->samples, __ATOMIC_RELAXED) == 0;
    if (st->is_timing || !can_measure || !alq_measure_enter(&c->measure)) {
        if (is_due)
            alq_estimate_postpone(entry, 4);
        if (st->is_open && !st->is_timing) {
            st->work_ns += est;
            st->is_unknown |= is_unknown;
            st->is_wide |= is_wide(entry);
        } else {
            __atomic_fetch_add(&dev->shares[out->share].counters->charged_ns, est,
                               __ATOMIC_RELAXED);
        }
        unlock(st);
        return;
    }
    bool is_single = est >= ALQ_SINGLE_NS || is_unknown;
    if (!is_single && dev->budget_ns > 0) {
        bool is_forced = __atomic_load_n(&entry->hints, __ATOMIC_RELAXED) >= ALQ_HINTS ||
                         __atomic_load_n(&entry->skipped, __ATOMIC_RELAXED) >= ALQ_HINTS ||
                         __atomic_load_n(&entry->samples, __ATOMIC_RELAXED) < 4;
        /* Beside other streams of our own the reading would be theirs too. */
        if (is_due && is_forced && atomic_load_explicit(&c->stream_count, RELAXED) == 1) {
            is_single = true;
            if (moment < __atomic_load_n(&entry->moment, __ATOMIC_RELAXED))
                moment = (enum alq_moment)__atomic_load_n(&entry->moment, __ATOMIC_RELAXED);
            __atomic_store_n(&entry->hints, 0, __ATOMIC_RELAXED);
        } else {
            is_single = is_good && is_due;
        }
    }
    if (st->is_open && (is_single || st->work_ns + est > ALQ_BATCH_NS))
        end_batch(c, st, stream, out->share, NULL);
    if (is_single) {
        /* A fresh event: the last one may lie before a pause. */
        st->from = alq_measure_has_room(dev) ? alq_measure_record(c, dev, st->context, stream)
                                             : ALQ_NO_EVENT;
        if (st->from) {
            st->is_timing = true;
            st->is_mixed = false;
            st->is_unknown = is_unknown;
            st->moment = (uint8_t)moment;
            st->is_after_gap = moment != ALQ_MOMENT_BUSY && (has_waited || is_synced);
            st->issued_ns = c->driver.now_ns();
            st->work_ns = est;
            out->entry = entry;
            out->is_single = true;
            alq_estimate_take(&c->estimates, entry);
            if (is_unknown)
                __atomic_store_n(&entry->probing, 1, __ATOMIC_RELAXED);
        }
    } else {
        if (is_due)
            alq_estimate_postpone(entry, est > 250000 ? 8 : 32);
        if (!st->is_open) {
            st->from = st->last;
            if (st->from)
                alq_measure_hold(c, st->from);
            else
                st->from = alq_measure_record(c, dev, st->context, stream);
            st->is_open = st->from != ALQ_NO_EVENT;
            st->issued_ns = now;
            st->work_ns = 0;
            st->is_unknown = st->is_wide = false;
        }
        st->work_ns += est;
        st->is_unknown |= is_unknown;
        st->is_wide |= is_wide(entry);
        st->entry = entry;
    }
    alq_measure_leave(&c->measure);
    if (!st->is_open && !st->is_timing)
        __atomic_fetch_add(&dev->shares[out->share].counters->charged_ns, est, __ATOMIC_RELAXED);
    unlock(st);
}

void alq_compute_before(struct alq_compute *c, const struct alq_compute_launch *launch,
                        struct alq_compute_ticket *out)
{
    struct alq_compute_device *dev = &c->devices[launch->device];
    CUstream stream = canonical(launch->stream);
    *out = (struct alq_compute_ticket){.device = (uint8_t)launch->device};
    if (!dev->is_on)
        return;
    if (!is_limited(dev)) {
        count(c, dev, 1, 0);
        return;
    }
    if (__builtin_expect(atomic_load_explicit(&c->captures, RELAXED) != 0, 0)) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        /* An error is the legacy stream's answer while another stream captures: not to be launched
         * into either. */
        if (c->driver.stream_is_capturing(launch->stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE) {
            count(c, dev, 1, 0);
            return;
        }
    }
    struct alq_estimate *entry =
        alq_estimate_find(&c->estimates, launch->handle, launch->kind, launch->size_class);
    bool is_due = alq_estimate_is_due(&c->estimates, entry);
    uint64_t key = stream_key(c, stream, launch->thread);
    struct alq_compute_stream *st = stream_at(c, key);
    if (!st)
        st = stream_make(c, key, launch->device);
    else if (__builtin_expect(!is_due, 1) && try_lock(st)) {
        uint32_t est = alq_estimate_ns(entry);
        if (st->is_open && st->work_ns + est <= ALQ_BATCH_NS && est < ALQ_SINGLE_NS &&
            take_credit(dev, est)) {
            st->work_ns += est;
            st->is_wide |= is_wide(entry);
            st->entry = entry;
            st->launches++;
            unlock(st);
            out->stream = st;
            out->charged_ns = est;
            return;
        }
        unlock(st);
    }
    slow(c, launch, st, entry, is_due, out);
}

void alq_compute_after(struct alq_compute *c, const struct alq_compute_launch *launch,
                       const struct alq_compute_ticket *ticket, CUresult rc)
{
    struct alq_compute_device *dev = &c->devices[ticket->device];
    struct alq_compute_stream *st = ticket->stream;
    if (__builtin_expect(rc != CUDA_SUCCESS, 0) && ticket->charged_ns) {
        atomic_fetch_add_explicit(&dev->credit_ns, (int64_t)ticket->charged_ns, RELAXED);
        if (st && spin_lock(c, st)) {
            /* It may have moved to the GPU with its batch; then a little too much is charged for
             * that one. */
            if (st->is_open && st->work_ns >= ticket->charged_ns)
                st->work_ns -= ticket->charged_ns;
            unlock(st);
        }
    }
    if (__builtin_expect(!ticket->is_single, 1))
        return;
    if (!spin_lock(c, st))
        return;
    if (!st->is_timing) {
        unlock(st);
        return;
    }
    if (!spin_enter(c)) {
        /* Left as an open batch: the launches that follow end it. */
        st->is_timing = false;
        st->is_open = true;
        __atomic_store_n(&ticket->entry->probing, 0, __ATOMIC_RELAXED);
        unlock(st);
        return;
    }
    if (rc != CUDA_SUCCESS) {
        drop_batch(c, st);
        __atomic_store_n(&ticket->entry->probing, 0, __ATOMIC_RELAXED);
    } else {
        if (st->is_mixed)
            __atomic_store_n(&ticket->entry->probing, 0, __ATOMIC_RELAXED);
        end_batch(c, st, canonical(launch->stream), ticket->share,
                  st->is_mixed ? NULL : ticket->entry);
    }
    alq_measure_leave(&c->measure);
    unlock(st);
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
            atomic_store_explicit(&dev->synced_ns, launched_ns(dev), RELAXED);
        if (atomic_load_explicit(&dev->outstanding_ns, RELAXED) == 0 ||
            !alq_measure_enter(&c->measure))
            continue;
        alq_measure_read_back(c, dev, c->driver.now_ns(), 4, dev->budget_ns > 0);
        alq_measure_leave(&c->measure);
    }
}

/* ---- captures
 * ----------------------------------------------------------------------------------------------------------
 */

void alq_compute_capture_begin(struct alq_compute *c, CUstream stream)
{
    struct alq_compute_stream *st = stream_at(c, stream_key(c, canonical(stream), 0));
    if (!st || !try_lock(st))
        return;
    if (st->is_open && alq_measure_enter(&c->measure)) {
        end_batch(c, st, stream, 0, NULL);
        alq_measure_leave(&c->measure);
    }
    unlock(st);
}

void alq_compute_capture_began(struct alq_compute *c, CUstream stream, CUresult rc)
{
    if (rc != CUDA_SUCCESS)
        return;
    for (uint32_t i = 0; i < ALQ_CAPTURES; i++) {
        uint64_t expect = 0;
        if (__atomic_compare_exchange_n(&c->capturing[i], &expect,
                                        (uint64_t)(uintptr_t)canonical(stream), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
    }
    atomic_fetch_add_explicit(&c->captures, 1, memory_order_seq_cst);
}

/* The capture of a stream is over; `found` when it was in the list. */
static bool uncapture(struct alq_compute *c, CUstream stream)
{
    for (uint32_t i = 0; i < ALQ_CAPTURES; i++) {
        uint64_t expect = (uint64_t)(uintptr_t)canonical(stream);
        if (__atomic_compare_exchange_n(&c->capturing[i], &expect, 0, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

static void one_capture_less(struct alq_compute *c)
{
    uint32_t n = atomic_load_explicit(&c->captures, RELAXED);
    while (n && !atomic_compare_exchange_weak_explicit(&c->captures, &n, n - 1, RELAXED, RELAXED))
        continue;
}

void alq_compute_capture_ended(struct alq_compute *c, CUstream stream, CUresult rc)
{
    /* Asked in vain: the capture goes on. Every other answer, an invalidated capture too, ends it.
     */
    if (rc == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || rc == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
        rc == CUDA_ERROR_ILLEGAL_STATE || rc == CUDA_ERROR_INVALID_VALUE ||
        rc == CUDA_ERROR_INVALID_HANDLE)
        return;
    uncapture(c, stream);
    one_capture_less(c);
}

/* ---- ends
 * --------------------------------------------------------------------------------------------------------------
 */

static void stream_end(struct alq_compute *c, struct alq_compute_stream *st)
{
    if (!spin_lock(c, st))
        return;
    if (spin_enter(c)) {
        if (st->is_open || st->is_timing)
            drop_batch(c, st);
        alq_measure_drop(c, st->last);
        alq_measure_leave(&c->measure);
    }
    uint64_t launches = st->launches;
    uint8_t device = st->device;
    st->is_open = st->is_timing = false;
    st->from = st->last = ALQ_NO_EVENT;
    st->launches = 0;
    __atomic_store_n(&st->key, KEY_GONE, __ATOMIC_RELEASE);
    atomic_fetch_sub_explicit(&c->stream_count, 1, RELAXED);
    unlock(st);
    if (launches)
        count(c, &c->devices[device], launches, 0);
}

void alq_compute_stream_gone(struct alq_compute *c, CUstream stream)
{
    if (is_default(stream))
        return;
    if (uncapture(c, stream))
        one_capture_less(c);
    struct alq_compute_stream *st = stream_at(c, stream_key(c, stream, 0));
    if (st)
        stream_end(c, st);
}

void alq_compute_graph_gone(struct alq_compute *c, CUgraphExec exec)
{
    alq_estimate_forget(&c->estimates, exec, ALQ_ESTIMATE_GRAPH);
}

void alq_compute_functions_gone(struct alq_compute *c)
{
    alq_estimates_doubt(&c->estimates);
}

void alq_compute_context_made(struct alq_compute *c, CUcontext context)
{
    static_assert(ALQ_CONTEXTS < 255, "index of a context");
    if (!context || !spin_enter(c))
        return;
    uint32_t known = 0;
    bool is_new = true;
    for (uint32_t i = 0; i < ALQ_CONTEXTS; i++) {
        known += c->measure.contexts[i].handle != NULL;
        is_new = is_new && c->measure.contexts[i].handle != context;
    }
    if (is_new)
        alq_measure_context(c, context);
    /* Never lowered: once there were two, whose a default stream is is asked for good. */
    if (known + is_new > atomic_load_explicit(&c->context_count, RELAXED))
        atomic_store_explicit(&c->context_count, known + is_new, RELAXED);
    alq_measure_leave(&c->measure);
}

void alq_compute_context_gone(struct alq_compute *c, CUcontext context)
{
    if (!context)
        return;
    for (uint32_t i = 0; i < ALQ_STREAMS; i++) {
        uint64_t key = __atomic_load_n(&c->streams[i].key, __ATOMIC_ACQUIRE);
        if (key > KEY_MAKING && c->streams[i].context_handle == context)
            stream_end(c, &c->streams[i]);
    }
    if (spin_enter(c)) {
        alq_measure_context_gone(c, context, true);
        alq_measure_leave(&c->measure);
    }
}

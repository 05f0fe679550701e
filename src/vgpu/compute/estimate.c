/* SPDX-License-Identifier: Apache-2.0 */
/* The table of estimates. Threading: as estimate.h says. Calls nothing. */

#include "vgpu/compute/estimate.h"

#include <stddef.h>

#define PROBES 16u
#define KEY_FREE 0ull
#define KEY_GONE 1ull
#define FIRST_SIGHTS 4u
#define MOST_IGNORED 8u /* samples of lesser moments, before they are believed after all */
#define RISE                                                                                       \
    16u /* among others a floor rises by a part of the way at a time: the last samples may         \
           all have waited */

#define HELD_AMONG_OTHERS 2u /* one alone is chance */

#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

uint32_t alq_estimate_class(uint64_t blocks, uint32_t threads_per_block)
{
    uint64_t threads = blocks * (threads_per_block ? threads_per_block : 1);
    return threads ? 63u - (uint32_t)__builtin_clzll(threads) : 0;
}

/* Handles are user addresses, below 2^48; a device fits into 4 bits, a class into 6 and a kind into
 * 2. Never 0 or 1: bit 63. */
static uint64_t key_of(const void *handle, enum alq_estimate_kind kind, uint32_t device,
                       uint32_t size_class)
{
    if (kind == ALQ_ESTIMATE_GRAPH)
        device = 0;
    return ((uint64_t)(uintptr_t)handle << 8 ^ (uint64_t)device << 57) | (uint64_t)size_class << 2 |
           (uint64_t)kind | 1ull << 63;
}

static uint32_t home_of(uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 52) % ALQ_ESTIMATES;
}

static void restart(struct alq_estimate *entry)
{
    STORE(&entry->est_ns, 0u);
    STORE(&entry->low_ns, 0u);
    STORE(&entry->left, 0u);
    STORE(&entry->samples, 0u);
    STORE(&entry->spread, 0u);
    STORE(&entry->probing, 0u);
    STORE(&entry->held, 0u);
    STORE(&entry->moment, 0u);
    STORE(&entry->skipped, 0u);
    STORE(&entry->hints, 0u);
}

struct alq_estimate *alq_estimate_find(struct alq_estimates *table, const void *handle,
                                       enum alq_estimate_kind kind, uint32_t device,
                                       uint32_t size_class)
{
    uint64_t key = key_of(handle, kind, device, size_class & 63u);
    uint32_t home = home_of(key);
    struct alq_estimate *room = NULL, *stale = NULL;
    uint64_t room_key = KEY_FREE, stale_key = KEY_FREE;
    for (uint32_t i = 0; i < PROBES; i++) {
        struct alq_estimate *entry = &table->entries[(home + i) % ALQ_ESTIMATES];
        uint64_t at = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        if (at == key)
            return entry;
        if ((at == KEY_FREE || at == KEY_GONE) && !room) {
            room = entry;
            room_key = at;
        }
        if (at == KEY_FREE)
            break;
        if (!stale && LOAD(&entry->age) != LOAD(&table->age) && !LOAD(&entry->probing)) {
            stale = entry;
            stale_key = at;
        }
    }
    /* Of a module that was unloaded, or not launched since one was. */
    if (!room && stale &&
        __atomic_compare_exchange_n(&stale->key, &stale_key, KEY_GONE, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
        restart(stale);
        room = stale;
        room_key = KEY_GONE;
    }
    /* Two threads may make two entries of one key in different places: the later is found by nobody
     * and costs a place. */
    if (room && __atomic_compare_exchange_n(&room->key, &room_key, key, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {
        STORE(&room->age, LOAD(&table->age));
        return room;
    }
    return room && room_key == key ? room : &table->entries[ALQ_ESTIMATES];
}

uint32_t alq_estimates_random(struct alq_estimates *table)
{
    /* Xorshift; a lost update between threads only repeats a number. */
    uint32_t r = LOAD(&table->random);
    if (r == 0)
        r = 0x2545f491u;
    r ^= r << 13;
    r ^= r >> 17;
    r ^= r << 5;
    STORE(&table->random, r);
    return r;
}

void alq_estimate_take(struct alq_estimates *table, struct alq_estimate *entry)
{
    uint32_t r = alq_estimates_random(table);
    /* A random distance, so that a program that repeats a pattern of launches is seen at every
     * phase of it; shorter where a mean has to be learnt and not one length. */
    uint32_t period = LOAD(&entry->spread) == ALQ_SPREAD_WIDE || LOAD(&entry->samples) < ALQ_SAMPLES
                          ? ALQ_SAMPLE_PERIOD / 8
                          : ALQ_SAMPLE_PERIOD;
    STORE(&entry->left, LOAD(&entry->samples) + 1 < FIRST_SIGHTS ? 0 : period / 2 + r % period);
    STORE(&entry->hints, 0u);
    STORE(&entry->skipped, 0u);
}

static void sort(uint32_t *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t x = v[i], j = i;
        for (; j > 0 && v[j - 1] > x; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

/* The estimate from n sorted samples; see the header of estimate.h. */
static uint32_t judge(const uint32_t *s, uint32_t n, bool is_contended, enum alq_spread *spread)
{
    uint64_t sum = 0, floor_sum = 0;
    uint32_t floor_n = 0, twins = 0, rest;
    uint32_t top = s[0] + s[0] / 8 + 1000;
    *spread = ALQ_SPREAD_FLAT;
    for (uint32_t i = 0; i < n; i++) {
        sum += s[i];
        if (s[i] <= top) {
            floor_n++;
            floor_sum += s[i];
        }
    }
    rest = n - floor_n;
    /* The first launch of a function loads it and reads too long: the middle one of the first
     * three. */
    if (n < FIRST_SIGHTS)
        return n == 2 ? s[0] / 2 + s[1] / 2 : s[n / 2];
    if (rest == 0)
        return (uint32_t)(sum / n);
    if (is_contended) {
        *spread = ALQ_SPREAD_FLOORED;
        return (uint32_t)(floor_sum / floor_n);
    }
    for (uint32_t i = floor_n + 1; i < n; i++)
        if (s[i] - s[i - 1] <= s[i] / 64)
            twins++;
    /* No floor: the work differs. A second level that comes back: likewise. Too few to tell: a mean
     * errs on the side of the others. */
    if (n < 8 || floor_n * 5 < n || (rest >= 2 && twins * 2 >= rest)) {
        *spread = ALQ_SPREAD_WIDE;
        return (uint32_t)(sum / n);
    }
    *spread = ALQ_SPREAD_FLOORED;
    return (uint32_t)(floor_sum / floor_n);
}

/*
 * The mean of differing work over more samples than the ring holds. Batches that really were longer
 * than the sum of their estimates are bounded by it, those that were shorter by their span: a mean
 * that wavers would so charge too little on the whole. A mean that has moved far is taken from the
 * ring.
 */
static uint32_t slow_mean(struct alq_estimate *entry, uint32_t ring_mean, uint32_t sample)
{
    uint32_t mean = entry->mean_ns;
    if (LOAD(&entry->spread) != ALQ_SPREAD_WIDE || ring_mean > mean + mean / 2 ||
        ring_mean < mean / 2) {
        entry->weight = 4;
        entry->mean_ns = ring_mean;
        return ring_mean;
    }
    if (entry->weight < 64)
        entry->weight++;
    entry->mean_ns =
        (uint32_t)((int64_t)mean + ((int64_t)sample - (int64_t)mean) / (int64_t)entry->weight);
    return entry->mean_ns;
}

void alq_estimate_learn(struct alq_estimates *table, struct alq_estimate *entry,
                        uint64_t measured_ns, enum alq_moment moment, bool is_contended)
{
    uint32_t ns = measured_ns > ALQ_ESTIMATE_MAX_NS ? ALQ_ESTIMATE_MAX_NS : (uint32_t)measured_ns;
    uint32_t expect = 0, sorted[ALQ_SAMPLES], samples, n, est;
    enum alq_spread spread = ALQ_SPREAD_FLAT;
    if (!__atomic_compare_exchange_n(&entry->learning, &expect, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    if (ns == 0)
        ns = 1;
    STORE(&entry->held, 0u);
    samples = LOAD(&entry->samples);
    if (LOAD(&entry->age) != LOAD(&table->age)) {
        STORE(&entry->age, LOAD(&table->age));
        samples = 0;
    }
    if (samples == 0) {
        entry->filled = 0;
        STORE(&entry->moment, (uint32_t)moment);
    }
    if ((uint32_t)moment < LOAD(&entry->moment) && ++entry->ignored < MOST_IGNORED)
        goto out;
    if ((uint32_t)moment != LOAD(&entry->moment)) {
        entry->filled = 0;
        STORE(&entry->moment, (uint32_t)moment);
    }
    entry->ignored = 0;
    entry->ring[entry->filled++ % ALQ_SAMPLES] = ns;
    STORE(&entry->samples, samples + 1);
    n = entry->filled < ALQ_SAMPLES ? entry->filled : ALQ_SAMPLES;
    /* What a ring started anew says in place of a full one counts from its fourth sample. */
    if (n < FIRST_SIGHTS && samples >= FIRST_SIGHTS)
        goto out;
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = entry->ring[i];
    sort(sorted, n);
    const uint32_t had = LOAD(&entry->est_ns);
    est = judge(sorted, n, is_contended, &spread);
    if (is_contended && n >= FIRST_SIGHTS && samples >= FIRST_SIGHTS && had && est > had)
        est = had + (est - had) / RISE;
    if (spread == ALQ_SPREAD_WIDE)
        est = slow_mean(entry, est, ns);
    STORE(&entry->est_ns, est);
    STORE(&entry->low_ns, sorted[0]);
    STORE(&entry->spread, (uint32_t)spread);
out:
    __atomic_store_n(&entry->learning, 0, __ATOMIC_RELEASE);
}

bool alq_estimate_held(struct alq_estimates *table, struct alq_estimate *entry,
                       uint64_t measured_ns, enum alq_moment moment, bool is_contended)
{
    uint32_t est = LOAD(&entry->est_ns), held = LOAD(&entry->held);
    bool is_first = LOAD(&entry->samples) == 0;
    if (is_first && measured_ns > ALQ_ESTIMATE_HELD_NS)
        measured_ns = ALQ_ESTIMATE_HELD_NS;
    if (held < ALQ_HELD_MIN)
        held++;
    if (is_first || (is_contended && held < HELD_AMONG_OTHERS))
        alq_estimate_learn(table, entry, measured_ns, moment, is_contended);
    STORE(&entry->held, (uint16_t)held);
    if (held < ALQ_HELD_MIN)
        return false;
    if (est > ALQ_ESTIMATE_HELD_NS)
        STORE(&entry->est_ns, est / 2 > ALQ_ESTIMATE_HELD_NS ? est / 2 : ALQ_ESTIMATE_HELD_NS);
    return true;
}

void alq_estimate_forget_graph(struct alq_estimates *table, const void *exec)
{
    uint64_t key = key_of(exec, ALQ_ESTIMATE_GRAPH, 0, 0);
    uint32_t home = home_of(key);
    for (uint32_t i = 0; i < PROBES; i++) {
        struct alq_estimate *entry = &table->entries[(home + i) % ALQ_ESTIMATES];
        uint64_t at = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        if (at == key) {
            restart(entry);
            __atomic_store_n(&entry->key, KEY_GONE, __ATOMIC_RELEASE);
        }
        if (at == KEY_FREE)
            break;
    }
}

void alq_estimates_doubt(struct alq_estimates *table)
{
    __atomic_fetch_add(&table->age, 1, __ATOMIC_RELAXED);
}

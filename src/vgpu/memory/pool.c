/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/pool.h"

#include "vgpu/arith.h"
#include "vgpu/clock.h"
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/export.h"
#include "vgpu/memory/graph.h"
#include "vgpu/memory/table.h"
#include "vgpu/process.h"

#define POOLS 1024u /* followed at a time; the first ALQ_DEVICES_MAX are the devices' graphs' */
#define SETTLE_TRIES 8
#define NAP_FIRST_NS 200000u
#define NAP_LAST_NS 10000000u

struct alq_pool {
    uintptr_t handle;                       /* 0: free, or a device's graphs */
    struct alq_dev *dev;                    /* NULL: another process's */
    uint64_t counted_bytes, overhead_bytes; /* charged */
    uint64_t live_bytes;                    /* asked for by allocations that live */
    uint64_t asked_bytes;                   /* by calls on their way */
    uint64_t waiting_bytes;                 /* charged for them */
    uint32_t moves;                         /* calls that came back: a figure read before is old */
    uint32_t readers;                       /* threads that ask the driver about it */
    bool is_closed;                         /* destroyed: lives until its last allocation goes */
    bool is_untold;                         /* the driver did not answer when it was last asked */
    bool is_loose;                          /* to be asked again */
    bool is_exported;                       /* other processes can have its memory, */
    uint64_t exported_bytes;                /* of which so much is told (export.h) */
    bool is_imported;                       /* open here, while it lives */
};

static struct alq_pool pools[POOLS];
static _Atomic uint32_t pools_high = ALQ_DEVICES_MAX;
_Atomic uint32_t alq_pool_loose; /* pools that keep unused memory, or did not tell */

static void lock(void)
{
    alq_lock_take(&alq_process_page()->lock_pool);
}

static void unlock(void)
{
    alq_lock_drop(&alq_process_page()->lock_pool);
}

static bool is_of_graphs(const struct alq_pool *pool)
{
    return pool - pools < ALQ_DEVICES_MAX;
}

/* ---- figures --------------------------------------------------------------------------------- */

static bool ask(const struct alq_pool *pool, CUgraphMem_attribute of_graphs,
                CUmemPool_attribute of_pool, uint64_t *bytes)
{
    if (is_of_graphs(pool))
        return ALQ_HAS(cuDeviceGetGraphMemAttribute) &&
               ALQ_CALL(cuDeviceGetGraphMemAttribute, pool->dev->ordinal, of_graphs, bytes) ==
                   CUDA_SUCCESS;
    return ALQ_HAS(cuMemPoolGetAttribute) &&
           ALQ_CALL(cuMemPoolGetAttribute, (CUmemoryPool)pool->handle, of_pool, bytes) ==
               CUDA_SUCCESS;
}

static bool ask_reserved(const struct alq_pool *pool, uint64_t *bytes)
{
    return ask(pool, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
               bytes);
}

static bool ask_used(const struct alq_pool *pool, uint64_t *bytes)
{
    return ask(pool, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, bytes);
}

/* Caller holds lock_pool. Shows as counted what lives. */
static void show(struct alq_pool *pool)
{
    uint64_t total = pool->counted_bytes + pool->overhead_bytes,
             counted = alq_min(pool->live_bytes, total);
    bool is_loose = (total > pool->live_bytes || pool->is_untold) && !pool->is_closed;

    alq_charge_move(pool->dev, (int64_t)(counted - pool->counted_bytes));
    pool->counted_bytes = counted;
    pool->overhead_bytes = total - counted;
    if (is_loose != pool->is_loose)
        atomic_fetch_add_explicit(&alq_pool_loose, is_loose ? 1 : UINT32_MAX, memory_order_relaxed);
    pool->is_loose = is_loose;
    if (pool->is_exported) {
        alq_charge_exported(pool->dev, (int64_t)(total - pool->exported_bytes));
        pool->exported_bytes = total;
    }
}

void alq_pool_exported(struct alq_pool *pool)
{
    lock();
    if (pool->dev && !pool->is_exported) {
        pool->is_exported = true;
        alq_export_add(pool->dev, 0);
        show(pool);
    }
    unlock();
}

/* Caller holds lock_pool. To what the driver has reserved, and what calls on their way have
 * reserved; returns what is lacking for that where is_strict, else charges it in any case. */
static uint64_t book(struct alq_pool *pool, uint64_t reserved, bool is_strict)
{
    uint64_t have = pool->counted_bytes + pool->overhead_bytes, lacks = 0,
             want = reserved + pool->waiting_bytes;

    if (want > have && is_strict) {
        lacks = want - have;
    } else if (want > have) {
        alq_charge_taken(pool->dev, 0, want - have);
        pool->overhead_bytes += want - have;
    } else if (want < have) {
        uint64_t overhead = alq_min(have - want, pool->overhead_bytes);
        uint64_t counted = have - want - overhead;
        alq_uncharge(pool->dev, counted, overhead);
        pool->overhead_bytes -= overhead;
        pool->counted_bytes -= counted;
    }
    show(pool);
    return lacks;
}

/* Caller holds lock_pool: the driver may be asked about it until put. */
static bool get(struct alq_pool *pool)
{
    bool is_there = pool->dev && !pool->is_closed && (pool->handle || is_of_graphs(pool));
    pool->readers += is_there;
    return is_there;
}

/* Returns what is charged too little for (is_strict). Where the driver does not tell, what is
 * charged stays. */
static uint64_t settle(struct alq_pool *pool, bool is_strict)
{
    bool is_over = false;
    uint64_t lacks = 0;

    for (int i = 0; !is_over && i < SETTLE_TRIES; i++) {
        uint64_t reserved = 0, used = 0;
        lock();
        uint32_t moves = pool->moves;
        bool is_there = get(pool);
        unlock();
        if (!is_there)
            return 0;
        bool is_told = ask_reserved(pool, &reserved);
        bool is_used = is_told && is_of_graphs(pool) && ask_used(pool, &used);
        lock();
        pool->readers--;
        pool->is_untold = !is_told;
        is_over = !is_told || moves == pool->moves;
        if (is_used && is_over)
            pool->live_bytes = used;
        if (is_told && is_over)
            lacks = book(pool, reserved, is_strict);
        else if (is_over)
            show(pool);
        unlock();
    }
    return lacks;
}

void alq_pool_settle(struct alq_pool *pool)
{
    if (pool)
        settle(pool, false);
}

void alq_pool_settle_all(void)
{
    uint32_t high = atomic_load_explicit(&pools_high, memory_order_acquire);
    for (uint32_t i = 0; i < high; i++)
        if (pools[i].is_loose)
            settle(&pools[i], false);
}

/* ---- room ------------------------------------------------------------------------------------ */

static void trim(struct alq_pool *pool)
{
    lock();
    bool is_there = get(pool);
    unlock();
    if (!is_there)
        return;
    if (is_of_graphs(pool) && ALQ_HAS(cuDeviceGraphMemTrim))
        ALQ_CALL(cuDeviceGraphMemTrim, pool->dev->ordinal);
    if (is_of_graphs(pool))
        atomic_fetch_add_explicit(&alq_graph_trims, 1, memory_order_relaxed);
    if (!is_of_graphs(pool) && ALQ_HAS(cuMemPoolTrimTo))
        ALQ_CALL(cuMemPoolTrimTo, (CUmemoryPool)pool->handle, 0);
    /* An allocation whose free was captured into a graph has gone without a call of ours. */
    uint64_t used;
    bool is_told = ask_used(pool, &used);
    lock();
    pool->readers--;
    if (is_told && used < pool->live_bytes && pool->asked_bytes == 0)
        pool->live_bytes = used;
    unlock();
    settle(pool, false);
}

/* True when a pool of the device has given something back. */
static bool squeeze(const struct alq_dev *dev)
{
    uint32_t high = atomic_load_explicit(&pools_high, memory_order_acquire);
    uint64_t before = 0, after = 0;

    for (uint32_t i = 0; i < high; i++) {
        struct alq_pool *pool = &pools[i];
        lock();
        uint64_t had = pool->counted_bytes + pool->overhead_bytes;
        bool is_meant = pool->dev == dev && had;
        unlock();
        if (!is_meant)
            continue;
        trim(pool);
        before += had;
        lock();
        after += pool->counted_bytes + pool->overhead_bytes;
        unlock();
    }
    return after < before;
}

/* What is asked for, and where it may be. */
struct wish {
    uint64_t counted_bytes, overhead_bytes, spill_bytes;
};

static enum alq_place try_places(struct alq_dev *dev, const struct wish *wish)
{
    alq_export_settle(dev);
    if (alq_charge(dev, wish->counted_bytes, wish->overhead_bytes))
        return ALQ_PLACE_DEVICE;
    return alq_charge_host(dev, wish->spill_bytes) ? ALQ_PLACE_HOST : ALQ_PLACE_NONE;
}

/* onExhausted: Wait. Other processes do not tell when they free, so it looks again, every 10 ms at
 * the longest. A signal ends a nap, not the wait. */
static enum alq_place wait_for_room(struct alq_dev *dev, const struct wish *wish)
{
    const uint64_t bytes = alq_sum(wish->counted_bytes, wish->overhead_bytes);
    uint64_t wait_ns, start_ns, nap_ns;

    wait_ns = alq_charge_wait_ns(dev, bytes, wish->spill_bytes, alq_export_left_bytes(dev));

    if (wait_ns == 0)
        return ALQ_PLACE_NONE;
    start_ns = alq_clock_ns();
    for (nap_ns = NAP_FIRST_NS; alq_clock_ns() - start_ns < wait_ns;
         nap_ns = alq_min(nap_ns * 2, NAP_LAST_NS)) {
        alq_sys_sleep_ns(nap_ns);
        enum alq_place place = try_places(dev, wish);
        if (place != ALQ_PLACE_NONE)
            return place;
    }
    return ALQ_PLACE_NONE;
}

enum alq_place alq_admit_somewhere(struct alq_dev *dev, enum alq_family family,
                                   uint64_t counted_bytes, uint64_t overhead_bytes,
                                   uint64_t spill_bytes)
{
    struct wish wish = {counted_bytes, overhead_bytes, spill_bytes};

    if (alq_charge(dev, counted_bytes, overhead_bytes) ||
        (squeeze(dev) && alq_charge(dev, counted_bytes, overhead_bytes)))
        return ALQ_PLACE_DEVICE;
    if (alq_export_settle(dev) && alq_charge(dev, counted_bytes, overhead_bytes))
        return ALQ_PLACE_DEVICE;
    if (alq_charge_host(dev, spill_bytes))
        return ALQ_PLACE_HOST;
    enum alq_place place = wait_for_room(dev, &wish);
    if (place == ALQ_PLACE_NONE)
        alq_charge_refused(dev, family, counted_bytes, overhead_bytes);
    return place;
}

bool alq_admit(struct alq_dev *dev, enum alq_family family, uint64_t counted_bytes,
               uint64_t overhead_bytes)
{
    return alq_admit_somewhere(dev, family, counted_bytes, overhead_bytes, 0) == ALQ_PLACE_DEVICE;
}

static enum alq_family family_of(const struct alq_pool *pool)
{
    return is_of_graphs(pool) ? ALQ_FAMILY_GRAPH : ALQ_FAMILY_POOL;
}

bool alq_pool_begin(struct alq_pool *pool, uint64_t bytes, struct alq_pool_call *call)
{
    *call = (struct alq_pool_call){.pool = pool, .bytes = bytes};
    lock();
    uint64_t have = pool->counted_bytes + pool->overhead_bytes - pool->waiting_bytes,
             taken = pool->live_bytes + pool->asked_bytes, room = have > taken ? have - taken : 0;
    call->charged_bytes = bytes > room ? bytes - room : 0;
    pool->asked_bytes += bytes;
    unlock();
    bool ok =
        call->charged_bytes == 0 || alq_admit(pool->dev, family_of(pool), 0, call->charged_bytes);
    lock();
    if (ok) {
        pool->overhead_bytes += call->charged_bytes;
        pool->waiting_bytes += call->charged_bytes;
    } else {
        pool->asked_bytes -= bytes;
    }
    unlock();
    return ok;
}

/* What the driver took beyond what was asked for: a chunk, where there is room for it. */
static bool charge_growth(struct alq_pool *pool)
{
    uint64_t lacks = settle(pool, true);
    bool ok = lacks == 0 || alq_charge(pool->dev, 0, lacks);

    if (!ok) {
        squeeze(pool->dev);
        alq_export_settle(pool->dev);
        lacks = settle(pool, true);
        ok = lacks == 0 || alq_charge(pool->dev, 0, lacks);
    }
    if (!ok)
        alq_charge_refused(pool->dev, family_of(pool), 0, lacks);
    if (lacks && ok) {
        lock();
        pool->overhead_bytes += lacks;
        unlock();
        settle(pool, false);
    }
    return ok;
}

bool alq_pool_end(const struct alq_pool_call *call, bool is_taken)
{
    struct alq_pool *pool = call->pool;

    lock();
    pool->asked_bytes -= call->bytes;
    pool->waiting_bytes -= call->charged_bytes;
    if (is_taken && !is_of_graphs(pool))
        pool->live_bytes += call->bytes;
    pool->moves++;
    unlock();
    if (is_taken && !is_of_graphs(pool))
        return charge_growth(pool);
    settle(pool, false);
    return true;
}

/* The driver has let the pool go; others may have what was exported. */
static void end(const struct alq_pool *pool)
{
    struct alq_parting part = {.dev = NULL};

    if (!pool->is_exported) {
        alq_uncharge(pool->dev, pool->counted_bytes, pool->overhead_bytes);
        return;
    }
    alq_charge_move(pool->dev, (int64_t)pool->overhead_bytes);
    part.exported_bytes[pool->dev->index] = pool->counted_bytes + pool->overhead_bytes;
    alq_part_end(&part);
}

void alq_pool_freed(uint32_t number, uint64_t bytes)
{
    struct alq_pool *pool = &pools[number], gone = {.dev = NULL};

    lock();
    pool->live_bytes -= alq_min(bytes, pool->live_bytes);
    bool is_gone = pool->is_closed && pool->live_bytes == 0;
    if (is_gone) {
        gone = *pool;
        *pool = (struct alq_pool){.moves = pool->moves + 1};
    } else if (pool->dev) {
        show(pool);
    }
    unlock();
    if (is_gone && gone.dev)
        end(&gone);
    else if (is_gone && gone.is_imported)
        alq_export_opened(NULL, -1);
}

/* ---- which pools there are ------------------------------------------------------------------- */

uint32_t alq_pool_number(const struct alq_pool *pool)
{
    return (uint32_t)(pool - pools);
}

/* Caller holds lock_pool. */
static struct alq_pool *find(CUmemoryPool handle)
{
    uint32_t high = atomic_load_explicit(&pools_high, memory_order_relaxed);
    for (uint32_t i = ALQ_DEVICES_MAX; i < high; i++)
        if (pools[i].handle == (uintptr_t)handle && !pools[i].is_closed)
            return &pools[i];
    return NULL;
}

bool alq_pool_learn(CUmemoryPool handle, struct alq_dev *dev)
{
    bool ok = false, is_opened = false;

    lock();
    struct alq_pool *pool = find(handle);
    for (uint32_t i = ALQ_DEVICES_MAX; !pool && i < POOLS; i++)
        if (!pools[i].handle && !pools[i].live_bytes)
            pool = &pools[i];
    if (pool) {
        ok = true;
        is_opened = !dev && !pool->handle;
        pool->handle = (uintptr_t)handle;
        pool->dev = dev;
        pool->is_imported = !dev;
        uint32_t high = alq_pool_number(pool) + 1;
        if (atomic_load_explicit(&pools_high, memory_order_relaxed) < high)
            atomic_store_explicit(&pools_high, high, memory_order_release);
    }
    unlock();
    if (is_opened)
        alq_export_opened(NULL, 1);
    return ok;
}

void alq_pool_pointed(struct alq_pool *pool, CUdeviceptr ptr)
{
    struct alq_entry_value value = {1, alq_pool_number(pool), 0, 0, ALQ_KIND_POOL};

    lock();
    if (alq_table_put(ptr, &value))
        pool->live_bytes++;
    unlock();
}

/* A default pool, which nobody made: its device, or NULL. */
static CUresult find_default(CUmemoryPool handle, struct alq_dev **out)
{
    struct alq_dev *dev;
    CUmemoryPool its;

    *out = NULL;
    for (uint32_t i = 0; ALQ_HAS(cuDeviceGetDefaultMemPool) && (dev = alq_dev_at(i)); i++) {
        CUresult result = ALQ_CALL(cuDeviceGetDefaultMemPool, &its, dev->ordinal);
        if (result != CUDA_SUCCESS)
            return result;
        if (its == handle)
            *out = dev;
    }
    return CUDA_SUCCESS;
}

struct alq_pool *alq_pool_known(CUmemoryPool handle)
{
    lock();
    struct alq_pool *pool = handle ? find(handle) : NULL;
    unlock();
    return pool;
}

struct alq_dev *alq_pool_dev(const struct alq_pool *pool)
{
    return pool->dev;
}

CUresult alq_pool_find(CUmemoryPool handle, struct alq_pool **out)
{
    struct alq_pool *pool = alq_pool_known(handle);
    struct alq_dev *dev;

    *out = NULL;
    if (!pool && handle) {
        CUresult result = find_default(handle, &dev);
        if (result != CUDA_SUCCESS || !dev)
            return result;
        if (!alq_pool_learn(handle, dev))
            return CUDA_ERROR_OUT_OF_MEMORY;
        pool = alq_pool_known(handle);
    }
    if (pool && pool->dev)
        *out = pool;
    return CUDA_SUCCESS;
}

struct alq_pool *alq_pool_of_graphs(struct alq_dev *dev)
{
    struct alq_pool *pool = &pools[dev->index];
    lock();
    pool->dev = dev;
    unlock();
    return pool;
}

void alq_pool_close_begin(struct alq_pool *pool)
{
    uint32_t readers;

    settle(pool, false);
    do {
        lock();
        pool->is_closed = true;
        readers = pool->readers;
        unlock();
        if (readers)
            alq_sys_sleep_ns(10000); /* each is in a query that does not wait */
    } while (readers);
}

void alq_pool_close_end(struct alq_pool *pool, bool is_closed)
{
    lock();
    if (!is_closed)
        pool->is_closed = false;
    else
        show(pool);
    unlock();
    if (is_closed)
        alq_pool_freed(alq_pool_number(pool), 0);
}

void alq_pool_forget(void)
{
    for (uint32_t i = 0; i < atomic_load_explicit(&pools_high, memory_order_relaxed); i++)
        pools[i] = (struct alq_pool){0};
    atomic_store_explicit(&pools_high, ALQ_DEVICES_MAX, memory_order_relaxed);
    atomic_store_explicit(&alq_pool_loose, 0, memory_order_relaxed);
    atomic_store_explicit(&alq_graph_count, 0, memory_order_relaxed);
}

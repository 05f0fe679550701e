/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/submit.h"

#include "vgpu/atomics.h"
#include "vgpu/clock.h"
#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/process.h"
#include "vgpu/sys.h"
#include "vgpu/usage.h"

static struct alq_compute compute;

enum { STATE_NEW, STATE_READY, STATE_NONE };

static _Atomic uint32_t state;
static _Atomic uint32_t made_in; /* fork generation */

/* ---- the driver as the gate calls it; its own functions, past every hook --------------------- */

static CUresult event_create(CUevent *out)
{
    return ALQ_CALL(cuEventCreate, out, CU_EVENT_DEFAULT);
}

static CUresult event_destroy(CUevent event)
{
    return ALQ_CALL(cuEventDestroy_v2, event);
}

static CUresult event_record(CUevent event, CUstream stream)
{
    return ALQ_CALL(cuEventRecord, event, stream);
}

static CUresult event_query(CUevent event)
{
    return ALQ_CALL(cuEventQuery, event);
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    return ALQ_CALL(cuEventElapsedTime, ms, from, to);
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *out)
{
    return ALQ_CALL(cuStreamIsCapturing, stream, out);
}

static CUresult context_current(CUcontext *out)
{
    return ALQ_CALL(cuCtxGetCurrent, out);
}

static void wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns)
{
    alq_sys_futex_wait_until(word, expect, until_ns, 0);
}

static void relax(void)
{
    alq_pause();
}

static bool driver_is_enough(void)
{
    return ALQ_HAS(cuEventCreate) && ALQ_HAS(cuEventDestroy_v2) && ALQ_HAS(cuEventRecord) &&
           ALQ_HAS(cuEventQuery) && ALQ_HAS(cuEventElapsedTime) && ALQ_HAS(cuStreamIsCapturing) &&
           ALQ_HAS(cuCtxGetCurrent);
}

/* First 8 bytes of "xxxxxxxx-xxxx-..." as a number; 0 where /proc does not say. */
static uint64_t read_boot_id(void)
{
    char text[37];
    uint64_t id = 0;
    unsigned digits = 0;
    int fd = alq_sys_open("/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
    long n = fd < 0 ? 0 : alq_sys_pread(fd, text, sizeof(text), 0);
    if (fd >= 0)
        alq_sys_close(fd);
    for (long i = 0; i < n && digits < 16; i++) {
        char c = text[i];
        if (c == '-')
            continue;
        id = id << 4 | (uint64_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        digits++;
    }
    return digits == 16 ? id : 0;
}

static void know_context(CUcontext context, void *data)
{
    alq_compute_context_made(data, context);
}

/* Caller holds lock_compute. */
static bool make(void)
{
    uint64_t boot_id = read_boot_id();
    const struct alq_dev *dev;

    if (!driver_is_enough())
        return false;
    alq_dev_of(0); /* finds the devices */
    /* Zero already in a process that never had it; most of it is never touched. */
    if (atomic_load_explicit(&state, memory_order_relaxed) != STATE_NEW)
        __builtin_memset(&compute, 0, sizeof(compute));
    /* Assigned here: a table of pointers would be relocated in every process of the container. */
    compute.driver.event_create = event_create;
    compute.driver.event_destroy = event_destroy;
    compute.driver.event_record = event_record;
    compute.driver.event_query = event_query;
    compute.driver.event_elapsed = event_elapsed;
    compute.driver.stream_is_capturing = stream_is_capturing;
    compute.driver.context_current = context_current;
    compute.driver.now_ns = alq_clock_ns;
    compute.driver.wait_until = wait_until;
    compute.driver.relax = relax;
    compute.boottime_offset_ns = (int64_t)(alq_clock_boottime_ns() - alq_clock_ns());
    for (uint32_t i = 0; (dev = alq_dev_at(i)) && i < ALQ_COMPUTE_DEVICES; i++) {
        struct alq_compute_share shares[ALQ_COMPUTE_SHARES];
        uint32_t count =
            dev->share_count < ALQ_COMPUTE_SHARES ? dev->share_count : ALQ_COMPUTE_SHARES;
        for (uint32_t s = 0; s < count; s++)
            shares[s] =
                alq_compute_share_of(dev->share[s]->control, dev->share[s]->section,
                                     &dev->share[s]->section->slots[dev->share[s]->file->slot]);
        alq_compute_add_device(&compute, i, shares, count, boot_id);
    }
    alq_context_each(know_context, &compute);
    return true;
}

struct alq_compute *alq_submit_now(void)
{
    if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) == STATE_READY, 1) &&
        atomic_load_explicit(&made_in, memory_order_relaxed) == alq_fork_generation())
        return &compute;
    return NULL;
}

struct alq_compute *alq_submit_begin(void)
{
    uint32_t generation = alq_fork_generation();
    uint32_t now = atomic_load_explicit(&state, memory_order_acquire);
    bool is_current = atomic_load_explicit(&made_in, memory_order_relaxed) == generation;

    if (__builtin_expect(now == STATE_READY && is_current, 1))
        return &compute;
    if (now == STATE_NONE && is_current)
        return NULL;
    alq_lock_take(&alq_process_page()->lock_compute);
    now = atomic_load_explicit(&state, memory_order_relaxed);
    if (now == STATE_NEW || atomic_load_explicit(&made_in, memory_order_relaxed) != generation) {
        if (alq_core_attach() != 0) /* may pass; without a slot there is no context to launch in */
            now = STATE_NEW;
        else
            now = make() ? STATE_READY : STATE_NONE;
        atomic_store_explicit(&made_in, generation, memory_order_relaxed);
        atomic_store_explicit(&state, now, memory_order_release);
    }
    alq_lock_drop(&alq_process_page()->lock_compute);
    return now == STATE_READY ? &compute : NULL;
}

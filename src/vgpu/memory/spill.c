/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/spill.h"

#include "vgpu/memory/charge.h"

#define DEVICE_CPU (-1) /* CU_DEVICE_CPU */

/* Set once this process has spilled: before, no address needs a look. */
static _Atomic bool has_spilled;

void alq_spill_give_back(struct alq_dev *dev, uint64_t bytes)
{
    alq_uncharge_host(dev, bytes);
}

/* Without it, the pages would go to the device when that touches them. */
static bool prefer_host(CUdeviceptr at, uint64_t bytes)
{
    const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};

    if (ALQ_HAS(cuMemAdvise))
        return ALQ_CALL(cuMemAdvise, at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, DEVICE_CPU) ==
               CUDA_SUCCESS;
    return ALQ_HAS(cuMemAdvise_v2) &&
           ALQ_CALL(cuMemAdvise_v2, at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host) ==
               CUDA_SUCCESS;
}

CUresult alq_spill_serve(const struct alq_ticket *t, uint64_t highest, CUdeviceptr *out)
{
    CUdeviceptr at = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (ALQ_HAS(cuMemAllocManaged) && ALQ_HAS(cuMemFree_v2))
        result = ALQ_CALL(cuMemAllocManaged, &at, t->counted_bytes, CU_MEM_ATTACH_GLOBAL);
    if (result == CUDA_SUCCESS) {
        atomic_store_explicit(&has_spilled, true, memory_order_relaxed);
        if (at <= highest && prefer_host(at, t->counted_bytes) &&
            alq_ticket_remember(t, at, ALQ_KIND_SPILLED)) {
            *out = at;
            return CUDA_SUCCESS;
        }
        ALQ_CALL(cuMemFree_v2, at);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    alq_ticket_give_back(t);
    /* The program asked for device memory, of which there is none. */
    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* ---- what would move it to the device -------------------------------------------------------- */

/* CUDA_SUCCESS: it may go on. The program has spilled memory from cuMemAlloc, whose takes neither
 * advice nor prefetches. */
static CUresult check_move(CUdeviceptr address)
{
    struct alq_entry_value value;
    CUdeviceptr base = 0;

    if (!atomic_load_explicit(&has_spilled, memory_order_relaxed) || !alq_core_is_on() ||
        !ALQ_HAS(cuPointerGetAttribute))
        return CUDA_SUCCESS;
    alq_core_renew();
    CUresult result =
        ALQ_CALL(cuPointerGetAttribute, &base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    if (result == CUDA_ERROR_INVALID_VALUE) /* an address of nobody's: the driver has its answer */
        return CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    return alq_table_get(base, ALQ_KIND_SPILLED, &value) && value.kind == ALQ_KIND_SPILLED
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult check_moves(const CUdeviceptr *addresses, size_t count)
{
    CUresult result = CUDA_SUCCESS;

    if (atomic_load_explicit(&has_spilled, memory_order_relaxed) && addresses)
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
            result = check_move(addresses[i]);
    return result;
}

#define MOVE(name, params, args, check)                                                            \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult result = check;                                                                   \
        return result == CUDA_SUCCESS ? ALQ_CALL(name, args) : result;                             \
    }

#define MOVE_ONE(name, params, args) MOVE(name, params, ARGS(args), check_move(at))
#define MOVE_BATCH(name, params, args) MOVE(name, params, ARGS(args), check_moves(addresses, count))

MOVE_ONE(cuMemAdvise, (CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device),
         ARGS(at, bytes, advice, device))
MOVE_ONE(cuMemAdvise_v2, (CUdeviceptr at, size_t bytes, CUmem_advise advice, CUmemLocation where),
         ARGS(at, bytes, advice, where))

#define PREFETCH(form)                                                                             \
    MOVE_ONE(cuMemPrefetchAsync##form,                                                             \
             (CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream),                     \
             ARGS(at, bytes, device, stream))                                                      \
    MOVE_ONE(                                                                                      \
        cuMemPrefetchAsync_v2##form,                                                               \
        (CUdeviceptr at, size_t bytes, CUmemLocation where, unsigned int flags, CUstream stream),  \
        ARGS(at, bytes, where, flags, stream))                                                     \
    MOVE_BATCH(cuMemPrefetchBatchAsync##form,                                                      \
               (CUdeviceptr * addresses, size_t * sizes, size_t count, CUmemLocation * wheres,     \
                size_t * where_of, size_t where_count, unsigned long long flags, CUstream stream), \
               ARGS(addresses, sizes, count, wheres, where_of, where_count, flags, stream))        \
    MOVE_BATCH(cuMemDiscardAndPrefetchBatchAsync##form,                                            \
               (CUdeviceptr * addresses, size_t * sizes, size_t count, CUmemLocation * wheres,     \
                size_t * where_of, size_t where_count, unsigned long long flags, CUstream stream), \
               ARGS(addresses, sizes, count, wheres, where_of, where_count, flags, stream))

PREFETCH()
PREFETCH(_ptsz)

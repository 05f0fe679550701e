/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the wrappers of entry points that allocate and free have in common: reserve, call the
 * driver, give back on failure, remember on success. Any thread; no lock is held over a driver
 * call.
 */
#ifndef ALQ_VGPU_MEMORY_ALLOC_H
#define ALQ_VGPU_MEMORY_ALLOC_H

#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/memory/export.h"
#include "vgpu/memory/table.h"

/* What an allocation is about to cost, and where. dev NULL: it is not limited. */
struct alq_ticket {
    struct alq_dev *dev;
    uint64_t counted_bytes;
    uint32_t overhead_bytes;
    uint16_t context;
    bool is_on_host; /* spill.h serves it */
};

/* In the current context. CUDA_SUCCESS: go on, with t->dev set where something was reserved. Else
 * the answer to the program. */
CUresult alq_ticket_take(struct alq_ticket *t, enum alq_family family, uint64_t counted_bytes,
                         uint64_t overhead_bytes);

/* The same for what may spill: t->is_on_host where spill_bytes of the host's memory were reserved
 * instead, and are then its counted bytes. */
CUresult alq_ticket_take_somewhere(struct alq_ticket *t, enum alq_family family,
                                   uint64_t counted_bytes, uint64_t overhead_bytes,
                                   uint64_t spill_bytes);

void alq_ticket_give_back(const struct alq_ticket *t);

/* False: no memory for the table; the caller undoes the allocation. */
bool alq_ticket_remember(const struct alq_ticket *t, uint64_t handle, enum alq_kind kind);

/* What the driver has said to a free of what was taken out of the table. */
void alq_freed(CUresult result, uint64_t handle, const struct alq_entry_value *value);

/* The same with the driver's free figure read around the call; part NULL: it was not. */
void alq_freed_measured(CUresult result, uint64_t handle, const struct alq_entry_value *value,
                        struct alq_parting *part);

#define ARGS(...) __VA_ARGS__

/* The end of every allocation: free_it undoes it, and is the answer, when it cannot be remembered.
 */
#define ALQ_ALLOCATED(result, ticket, handle, kind, free_it)                                       \
    do {                                                                                           \
        if ((ticket).dev && (result) != CUDA_SUCCESS) {                                            \
            alq_ticket_give_back(&(ticket));                                                       \
        } else if ((ticket).dev && !alq_ticket_remember(&(ticket), (uint64_t)(handle), kind)) {    \
            (result) = free_it; /* before others may have its bytes */                             \
            alq_ticket_give_back(&(ticket));                                                       \
        }                                                                                          \
    } while (0)

/*
 * Taken out of the table before the driver frees it, for another thread may be given the same
 * address at once; put back when the driver says no. The bytes stay charged until it has said yes.
 * is_later: the free is put into a graph and happens when that runs.
 */
#define ALQ_FREE(name, kind_, params, args, is_later)                                              \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_entry_value value;                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        alq_core_renew();                                                                          \
        bool is_ours = !(is_later) && alq_table_take((uint64_t)handle, kind_, &value);             \
        CUresult result = ALQ_CALL(name, args);                                                    \
        if (is_ours)                                                                               \
            alq_freed(result, (uint64_t)handle, &value);                                           \
        return result;                                                                             \
    }

#endif

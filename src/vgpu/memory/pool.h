/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools, and the memory of graphs, which is a pool of each device: a pool takes physical
 * memory in pieces larger than what is asked for and keeps some after a free. So what is charged
 * for a pool is what the driver says that it has reserved, read after every allocation, before a
 * refusal and after the program's own synchronisations, where the driver trims; before a call that
 * may make it grow, what it lacks is reserved. Also the one way to ask for room: alq_admit.
 *
 * Threading: any thread; figures under lock_pool, never over a driver call.
 */
#ifndef ALQ_VGPU_MEMORY_POOL_H
#define ALQ_VGPU_MEMORY_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vgpu/core.h"

struct alq_pool;

/*
 * Reserves, or says no (counted as a refusal to the family). Before it says no, the process's own
 * pools on the device give back what they do not use, as they do on a card that is full.
 */
bool alq_admit(struct alq_dev *dev, enum alq_family family, uint64_t counted_bytes,
               uint64_t overhead_bytes);

/*
 * The same for what the host's memory may stand in for: where the device has no room, spill_bytes
 * (0: it may not) are reserved on the host. Both are tried before onExhausted has its say, and
 * again while it waits.
 */
enum alq_place { ALQ_PLACE_NONE, ALQ_PLACE_DEVICE, ALQ_PLACE_HOST };
enum alq_place alq_admit_somewhere(struct alq_dev *dev, enum alq_family family,
                                   uint64_t counted_bytes, uint64_t overhead_bytes,
                                   uint64_t spill_bytes);

/* The pool behind a handle; NULL: it is not to be charged (another process's, no share there, no
 * pool). An error is the driver's answer to a question of ours, and the program's. */
CUresult alq_pool_find(CUmemoryPool handle, struct alq_pool **pool);

/* The same, without a look for pools that nobody was told of; also another process's. */
struct alq_pool *alq_pool_known(CUmemoryPool handle);

struct alq_dev *alq_pool_dev(const struct alq_pool *pool);

/* A pool that the program has made or imported (dev NULL). False: too many to follow. */
bool alq_pool_learn(CUmemoryPool handle, struct alq_dev *dev);

/* Other processes can have its memory from now on. */
void alq_pool_exported(struct alq_pool *pool);

/* A pointer of an imported pool, which it lives on for, as for an allocation of a byte. */
void alq_pool_pointed(struct alq_pool *pool, CUdeviceptr ptr);

struct alq_pool *alq_pool_of_graphs(struct alq_dev *dev);

/* An allocation on its way, and its end. begin: false is CUDA_ERROR_OUT_OF_MEMORY. end with
 * is_taken: false when what the pool grew by does not fit: the caller frees and calls
 * alq_pool_freed. */
struct alq_pool_call {
    struct alq_pool *pool;
    uint64_t bytes, charged_bytes;
};
bool alq_pool_begin(struct alq_pool *pool, uint64_t bytes, struct alq_pool_call *call);
bool alq_pool_end(const struct alq_pool_call *call, bool is_taken);

/* Number for the table, and a free of that many bytes of it that the driver has accepted. */
uint32_t alq_pool_number(const struct alq_pool *pool);
void alq_pool_freed(uint32_t number, uint64_t bytes);

/* Charges what the driver has reserved now, also beyond the limit. */
void alq_pool_settle(struct alq_pool *pool);

/* Around cuMemPoolDestroy: nobody asks the driver about the pool any more; the driver's answer. */
void alq_pool_close_begin(struct alq_pool *pool);
void alq_pool_close_end(struct alq_pool *pool, bool is_closed);

extern _Atomic uint32_t alq_pool_loose;
void alq_pool_settle_all(void);

/* After whatever may have made the driver trim: free of charge while no pool keeps unused memory.
 */
static inline void alq_pool_synced(void)
{
    if (__builtin_expect(atomic_load_explicit(&alq_pool_loose, memory_order_relaxed) != 0, 0))
        alq_pool_settle_all();
}

/* Empties the list. For a fork child. */
void alq_pool_forget(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools: addresses of their own, physical memory that is taken in chunks and kept until it
 * is above the release threshold at a synchronisation, and stream order for what is freed. All
 * pools are under one lock, which is taken before a device's memory lock.
 *
 * An allocation that is freed in a stream which is still at work stays where it is until then:
 * other streams do not get it; the same stream does, at once.
 */
#ifndef SIM_CUDA_POOL_H
#define SIM_CUDA_POOL_H

#include "cuda/memory.h"

struct CUmemPoolHandle_st {
    uint32_t magic;
    struct device *device;
    struct CUmemPoolHandle_st *next;
    CUmemPoolProps props;
    bool is_default, is_destroyed; /* destroyed: goes with its last allocation */
    bool is_imported;              /* another process allocates from it */
    struct va_window window;
    struct shared shared; /* of a pool that can be exported */
    uint64_t release_threshold;
    uint64_t reserved_bytes, reserved_high_bytes; /* charged to the device */
    uint64_t used_bytes, used_high_bytes;         /* what the program holds */
    uint64_t granule_bytes;                       /* of the reserved, where something lies */
    size_t live;                                  /* allocations, also those freed in a stream */
    int reuse[3]; /* the three reuse attributes; kept, without effect */
    uint8_t access[SIM_MAX_DEVICES];
    struct pool_freed {
        uint64_t address, number; /* of the operation that its stream has to get to */
        uint32_t index;
        unsigned long long stream;
    } * freed; /* in a stream that has not got there yet */
    size_t freed_count, freed_room;
    struct pool_import {
        uint64_t address, bytes;
    } * imports;
    size_t import_count, import_room;
};

extern pthread_mutex_t pool_lock;

/* imported: the memory of another process's pool, of that size; else NULL. */
CUresult pool_open(struct device *device, const CUmemPoolProps *props, struct shared *imported,
                   uint64_t imported_bytes, struct CUmemPoolHandle_st **pool);
/* No more allocations; it goes with the last that it has given out. */
void pool_close(struct CUmemPoolHandle_st *pool);
CUresult pool_check(CUmemoryPool pool);

/* An allocation as of now, for work on the stream (NULL: any). */
CUresult pool_take(struct CUmemPoolHandle_st *pool, size_t bytes, struct CUstream_st *stream,
                   CUdeviceptr *address);
/* Freed once the stream (NULL: at once) has got so far. CUDA_ERROR_INVALID_VALUE for an address
 * that is not one of a live allocation of a pool. */
CUresult pool_give(CUdeviceptr address, struct CUstream_st *stream);
/* Gives physical memory above keep back to the device, as far as nothing lies in it. */
void pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep);

/* A stream, event or context has been waited for: pools give back what is above their threshold. */
void pool_synchronised(void);
/* The device is out of memory: its pools give back what they do not use. False when nothing. */
bool pool_squeeze(struct device *device);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory inside the stand-in libcuda, for its own files: what an address leads to, whatever
 * made it; physical memory that handles, mappings and other processes hold (physical.c); addresses
 * that are reserved and mapped (vmm.c).
 *
 * Locks, outermost first: memory_bytes_lock, the lock of physical.c and vmm.c, a device's memory
 * lock. Bytes are moved with memory_bytes_lock held for reading, so that memory can be given
 * another place under the same address (for writing) without a byte being lost.
 */
#ifndef SIM_CUDA_MEMORY_H
#define SIM_CUDA_MEMORY_H

#include "cuda/driver.h"

#define GRANULE_BYTES VA_BLOCK_BYTES /* of physical memory */

/* What an address is part of. */
enum place_kind {
    PLACE_NONE,
    PLACE_LINEAR,
    PLACE_MANAGED,
    PLACE_POOL,
    PLACE_GRAPH,
    PLACE_MAPPED,
    PLACE_IMPORTED
};

struct place {
    enum place_kind kind;
    enum va_kind of;       /* linear and managed */
    struct device *device; /* whose memory it is; NULL: the host's */
    uint64_t base, bytes;  /* the allocation or mapping */
    uint32_t owner;        /* context id, 0: none */
    struct physical *physical;
    struct CUmemPoolHandle_st *pool;
    bool is_ipc;
    bool is_synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
};

extern pthread_rwlock_t memory_bytes_lock;

/* PLACE_NONE for an address that is not the device's. */
void memory_find(CUdeviceptr address, struct place *place);

/* Keeps the wish that copies to the linear allocation be synchronous, which they are anyhow. */
void memory_set_synchronous(CUdeviceptr address, bool is_synchronous);

/* A sparse file without a name, for memory; or a negative errno. */
int memory_file(const char *name, uint64_t bytes);
/* What a program is told of it: out of memory, else that the operating system refused (304), mostly
 * for lack of descriptors. */
CUresult memory_failed(int rc);

/* The windows of a device, opened when first needed. */
CUresult memory_open(struct device *device);

/* The bytes of [address, address + bytes), which are given memory of their own that other processes
 * can hold, unless they have it: *physical holds the whole blocks around, *offset is where the
 * allocation starts in it. */
CUresult memory_share(CUdeviceptr address, struct physical **physical, uint64_t *offset,
                      uint64_t *bytes);

/* Takes away a mapping that the driver made for an import. */
CUresult mapped_free(CUdeviceptr address, bool is_ipc);

/* physical.c */

enum object_kind { OBJECT_MEMORY = 1, OBJECT_POOL, OBJECT_EVENT, OBJECT_MULTICAST };

/* Memory shared through simgpud (common/wire.h), as this process holds it. */
struct shared {
    uint64_t id; /* 0: not shared */
    int hold, file;
};

/* Makes an object that the device's account pays `charge` bytes of; the device's memory lock is
 * held. */
CUresult shared_make(struct device *device, enum object_kind kind, uint64_t charge, uint64_t bytes,
                     const void *meta, size_t meta_bytes, struct shared *shared);
/* Joins one by a descriptor (id 0) or by number; its answer says what it is. */
CUresult shared_join(int fd, uint64_t id, struct sim_object_answer *what, struct shared *shared);
/* A descriptor for somebody else. */
CUresult shared_token(const struct shared *shared, int *fd);
/* Moves bytes of the maker's account into the object, or back; its memory lock is held. */
CUresult shared_move(const struct shared *shared, int64_t bytes);
/* This process lets go; what was its own to free is free on return. */
void shared_drop(struct shared *shared);
/* The device that an object's memory is on, NULL when this process does not see it. */
struct device *shared_device(const struct sim_object_answer *what);

struct multicast;

struct physical {
    uint32_t magic;
    struct physical *next; /* all, or all unused */
    struct device *device; /* NULL: the host's */
    uint64_t bytes;
    int file; /* where its bytes lie; shared.file when that is set */
    uint64_t offset;
    uint64_t fixed; /* linear memory that is shared: where its bytes are mapped, 0 otherwise */
    uint32_t handles, mappings;
    struct shared shared;
    CUmemAllocationProp prop;
    struct multicast *multicast;
};

extern pthread_mutex_t physical_lock;

/* All under physical_lock. physical_new takes the memory from the device, with one handle; _put
 * drops a handle or a mapping, and with the last of both the memory. */
CUresult physical_new(struct device *device, uint64_t bytes, struct physical **physical);
struct physical *physical_blank(void);
void physical_forget(struct physical *physical); /* a blank one that is not to be */
void physical_put(struct physical *physical, bool is_mapping);
CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **physical);
/* By a descriptor or, with id, by number: a piece that another process made (or this one). */
CUresult physical_join(int fd, uint64_t id, struct physical **physical,
                       struct sim_object_answer *what);

/* Gives it memory that other processes can hold; memory_bytes_lock is held for writing. _locked:
 * with its device's memory lock, too. */
CUresult physical_share(struct physical *physical);
CUresult physical_share_locked(struct physical *physical);

/* multicast.c */
void multicast_free(struct physical *physical);
/* What an exported multicast object says of itself, and one made of that; false without memory. */
const CUmulticastObjectProp *multicast_meta(const struct physical *physical);
bool multicast_join(struct physical *physical, const void *meta);

/* vmm.c */

/* A fresh address of mapped memory, which takes over one reference of the physical memory (as a
 * mapping). origin says what may free it. */
CUresult vmm_map(struct physical *physical, uint64_t offset, uint64_t bytes, bool is_ipc,
                 CUdeviceptr *address);
CUresult vmm_unmap(CUdeviceptr address, bool is_ipc);
void vmm_find(CUdeviceptr address, struct place *place);
void *vmm_host(CUdeviceptr address, size_t bytes, bool is_write);
/* Puts the physical memory's mappings over its file anew, after it got another; under
 * physical_lock. */
bool vmm_remap(const struct physical *physical);
/* Whether anything is mapped at all: then an address may be. */
extern _Atomic uint32_t vmm_count;

/* pool.c */
extern _Atomic uint32_t pool_count;
void pool_find(CUdeviceptr address, struct place *place);
void *pool_host(CUdeviceptr address, size_t bytes, bool is_write);
/* graph_memory.c: memory of allocation nodes, which the program may free as other memory; it stays
 * the graph's for the next launch. stream NULL: nothing uses it any more.
 * CUDA_ERROR_INVALID_VALUE when no launch allocated it. */
void graph_memory_find(CUdeviceptr address, struct place *place);
void *graph_memory_host(CUdeviceptr address, size_t bytes, bool is_write);
CUresult graph_memory_free(CUdeviceptr address, struct CUstream_st *stream);
/* Whether a device's graphs ever allocated. */
extern _Atomic bool is_graph_memory_used;

/* pool.c */
/* Frees an allocation of a pool now, whatever stream it was for. */
CUresult pool_free(CUdeviceptr address);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of memory.h. A piece of this process alone lies in one file for all of them,
 * each at a place of its own that is never used again; a shared one has simgpud's file. What is
 * unused is kept for the next, so that an old handle finds another magic number or another piece,
 * as with a driver's numbers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/pool.h"

#define FILE_BYTES (1ull << 62)
#define SLAB 512

/* Room for pieces, never given back: a handle is a place in one of them or nothing. */
struct slab {
    struct slab *next;
    struct physical piece[SLAB];
};

pthread_mutex_t physical_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs;
static struct physical *unused;
static int file = -1;
static uint64_t file_end;

CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **physical)
{
    for (struct slab *s = slabs; s; s = s->next) {
        uint64_t at = handle - (uintptr_t)s->piece;
        struct physical *p = &s->piece[at / sizeof(*p) % SLAB];

        if (at >= sizeof(s->piece))
            continue;
        NEED(at % sizeof(*p) == 0 && p->magic == MAGIC_PHYSICAL && p->handles,
             CUDA_ERROR_INVALID_VALUE);
        *physical = p;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

struct physical *physical_blank(void)
{
    struct slab *s = unused ? NULL : calloc(1, sizeof(*s));
    struct physical *p;

    if (s) {
        s->next = slabs;
        slabs = s;
        for (size_t i = SLAB; i-- > 0;)
            physical_forget(&s->piece[i]);
    }
    p = unused;
    if (p) {
        unused = p->next;
        *p = (struct physical){.magic = MAGIC_PHYSICAL, .file = -1, .handles = 1};
    }
    return p;
}

void physical_forget(struct physical *p)
{
    p->magic = MAGIC_DEAD;
    p->next = unused;
    unused = p;
}

static bool charge(struct device *d, uint64_t bytes)
{
    bool fits;

    pthread_mutex_lock(&d->memory_lock);
    fits = sim_charge(&d->ledger, bytes, SIM_CHARGE_MEMORY);
    pthread_mutex_unlock(&d->memory_lock);
    return fits;
}

CUresult physical_new(struct device *d, uint64_t bytes, struct physical **out)
{
    struct physical *p;
    bool fits = true;

    if (file < 0) {
        int made = memory_file("simgpu-physical", FILE_BYTES);

        NEED(made >= 0, memory_failed(made));
        file = made;
    }
    NEED(bytes <= FILE_BYTES - file_end, CUDA_ERROR_OUT_OF_MEMORY);
    p = physical_blank();
    NEED(p, CUDA_ERROR_OUT_OF_MEMORY);
    if (d)
        fits = charge(d, bytes) || (pool_squeeze(d) && charge(d, bytes));
    if (!fits) {
        physical_forget(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p->device = d;
    p->bytes = bytes;
    p->file = file;
    p->offset = file_end;
    file_end += bytes;
    *out = p;
    return CUDA_SUCCESS;
}

static void physical_free(struct physical *p)
{
    if (p->multicast)
        multicast_free(p);
    if (p->shared.id) {
        shared_drop(&p->shared);
    } else if (!p->multicast) {
        (void)fallocate(p->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->offset,
                        (off_t)p->bytes);
        if (p->device) {
            pthread_mutex_lock(&p->device->memory_lock);
            sim_uncharge(&p->device->ledger, p->bytes, SIM_CHARGE_MEMORY);
            pthread_mutex_unlock(&p->device->memory_lock);
        }
    }
    physical_forget(p);
}

void physical_put(struct physical *p, bool is_mapping)
{
    if (is_mapping)
        p->mappings--;
    else
        p->handles--;
    if (!p->handles && !p->mappings)
        physical_free(p);
}

CUresult physical_join(int fd, uint64_t id, struct physical **out, struct sim_object_answer *what)
{
    struct shared shared;
    struct physical *p;

    TRY(shared_join(fd, id, what, &shared));
    p = physical_blank();
    if (!p || (what->kind != OBJECT_MEMORY && what->kind != OBJECT_MULTICAST) ||
        !shared_device(what)) {
        shared_drop(&shared);
        if (p)
            physical_forget(p);
        return !p                    ? CUDA_ERROR_OUT_OF_MEMORY
               : shared_device(what) ? CUDA_ERROR_INVALID_VALUE
                                     : CUDA_ERROR_INVALID_DEVICE;
    }
    p->device = shared_device(what);
    p->bytes = what->file_bytes;
    p->shared = shared;
    p->file = shared.file;
    if (what->kind == OBJECT_MULTICAST) {
        p->file = -1;
        p->device = NULL;
        if (!multicast_join(p, what->meta)) {
            shared_drop(&p->shared);
            physical_forget(p);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    } else {
        memcpy(&p->prop, what->meta, sizeof(p->prop));
    }
    *out = p;
    return CUDA_SUCCESS;
}

/* Copies what is there of [offset, offset + bytes) to the start of another file. */
static bool copy_data(int from, uint64_t offset, uint64_t bytes, int to)
{
    off_t end = (off_t)(offset + bytes), at = lseek(from, (off_t)offset, SEEK_DATA);

    while (at >= 0 && at < end) {
        off_t hole = lseek(from, at, SEEK_HOLE);
        size_t n;
        char *source, *target;

        hole = hole < 0 || hole > end ? end : hole;
        n = (size_t)(hole - at);
        source = mmap(NULL, n, PROT_READ, MAP_SHARED, from, at);
        target = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, to, at - (off_t)offset);
        if (source != MAP_FAILED && target != MAP_FAILED)
            memcpy(target, source, n);
        if (source != MAP_FAILED)
            munmap(source, n);
        if (target != MAP_FAILED)
            munmap(target, n);
        if (source == MAP_FAILED || target == MAP_FAILED)
            return false;
        at = lseek(from, hole, SEEK_DATA);
    }
    return at >= 0 || errno == ENXIO; /* nothing but a hole to the end */
}

/* Moves the piece's bytes into the object's file. What fails leaves it as it was. */
static bool adopt(struct physical *p, struct shared *shared)
{
    int old = p->file;
    uint64_t offset = p->offset;

    if (!copy_data(old, offset, p->bytes, shared->file))
        return false;
    p->file = shared->file;
    p->offset = 0;
    if (!vmm_remap(p)) {
        p->file = old;
        p->offset = offset;
        return false;
    }
    p->shared = *shared;
    (void)fallocate(old, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)p->bytes);
    return true;
}

CUresult physical_share_locked(struct physical *p)
{
    struct device *d = p->device ? p->device : &driver_devices[0];
    struct shared shared;

    if (p->shared.id)
        return CUDA_SUCCESS;
    if (p->multicast)
        return shared_make(d, OBJECT_MULTICAST, 0, p->bytes, multicast_meta(p),
                           sizeof(CUmulticastObjectProp), &p->shared);
    TRY(shared_make(d, OBJECT_MEMORY, p->device ? p->bytes : 0, p->bytes, &p->prop, sizeof(p->prop),
                    &shared));
    if (!adopt(p, &shared)) {
        (void)shared_move(&shared, p->device ? -(int64_t)p->bytes : 0);
        shared_drop(&shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult physical_share(struct physical *p)
{
    struct device *d = p->device ? p->device : &driver_devices[0];
    CUresult rc;

    pthread_mutex_lock(&d->memory_lock);
    rc = physical_share_locked(p);
    pthread_mutex_unlock(&d->memory_lock);
    return rc;
}

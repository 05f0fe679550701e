/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of several processes: two numbers in memory that simgpud hands on (memory.h), how often
 * the event was recorded and which record was reached last. A record is reached in stream order, by
 * the host (callback.h); others look at the numbers. An event's memory lives while a process has
 * the event open, or something in a stream still goes by it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/callback.h"
#include "cuda/memory.h"

#define PAGE_BYTES 4096u
#define POLL_FIRST_NS 20000L
#define POLL_LAST_NS 2000000L

static const char magic[8] = "simgpue";

struct handle {
    char magic[8];
    uint64_t id; /* the object */
};

static_assert(sizeof(struct handle) <= CU_IPC_HANDLE_SIZE, "fits");

struct page {
    _Atomic uint64_t recorded, reached; /* any process writes; neither goes down */
};

struct event_share {
    _Atomic unsigned int references;
    struct shared shared;
    struct page *page;
};

/* What an operation in a stream goes by. */
struct turn {
    struct event_share *share;
    uint64_t record;
};

void event_share_put(struct event_share *share)
{
    if (!share || atomic_fetch_sub(&share->references, 1) != 1)
        return;
    munmap(share->page, PAGE_BYTES);
    shared_drop(&share->shared);
    free(share);
}

/* Takes over what is shared. */
static CUresult open_shared(struct shared *shared, struct event_share **out)
{
    struct event_share *s = calloc(1, sizeof(*s));
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shared->file, 0);

    if (!s || page == MAP_FAILED) {
        if (page != MAP_FAILED)
            munmap(page, PAGE_BYTES);
        free(s);
        shared_drop(shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    s->references = 1;
    s->shared = *shared;
    s->page = page;
    *out = s;
    return CUDA_SUCCESS;
}

CUresult event_share_make(struct device *d, struct event_share **share)
{
    struct shared shared;
    CUresult rc;

    pthread_mutex_lock(&d->memory_lock);
    rc = shared_make(d, OBJECT_EVENT, 0, PAGE_BYTES, NULL, 0, &shared);
    pthread_mutex_unlock(&d->memory_lock);
    return rc == CUDA_SUCCESS ? open_shared(&shared, share) : rc;
}

static bool is_turn_over(void *what)
{
    const struct turn *t = what;

    if (atomic_load(&t->share->page->reached) < t->record)
        return false;
    event_share_put(t->share); /* it is not asked again */
    return true;
}

static void reach(void *what)
{
    const struct turn *t = what;
    uint64_t old = atomic_load(&t->share->page->reached);

    while (old < t->record &&
           !atomic_compare_exchange_weak(&t->share->page->reached, &old, t->record))
        ;
    event_share_put(t->share);
}

CUresult event_share_record(struct event_share *share, struct CUstream_st *stream)
{
    struct turn t = {share, atomic_fetch_add(&share->page->recorded, 1) + 1};
    CUresult rc;

    atomic_fetch_add(&share->references, 1);
    rc = effect_queue(stream, reach, &t, sizeof(t));
    if (rc != CUDA_SUCCESS)
        reach(&t); /* nobody will */
    return rc;
}

CUresult event_share_wait(struct event_share *share, struct CUstream_st *stream)
{
    struct turn t = {share, atomic_load(&share->page->recorded)};
    CUresult rc;

    if (event_share_is_reached(share))
        return CUDA_SUCCESS;
    atomic_fetch_add(&share->references, 1);
    rc = spin_push(stream, 0, is_turn_over, &t, sizeof(t));
    if (rc != CUDA_SUCCESS)
        event_share_put(share);
    return rc;
}

bool event_share_is_reached(const struct event_share *share)
{
    uint64_t reached = atomic_load(&share->page->reached);

    return reached >= atomic_load(&share->page->recorded);
}

CUresult event_share_synchronise(struct event_share *share, const struct CUctx_st *context)
{
    uint64_t record = atomic_load(&share->page->recorded);
    struct timespec pause = {0, POLL_FIRST_NS};

    while (atomic_load(&share->page->reached) < record) {
        TRY(context_fault(context));
        NEED(!sim_connection_lost(&driver_connection), CUDA_ERROR_DEVICE_UNAVAILABLE);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < POLL_LAST_NS)
            pause.tv_nsec *= 2;
    }
    return CUDA_SUCCESS;
}

/* Entry points */

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    struct handle h;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    NEED(event->share, CUDA_ERROR_INVALID_HANDLE);
    memcpy(h.magic, magic, sizeof(magic));
    h.id = event->share->shared.id;
    memset(out, 0, sizeof(*out));
    memcpy(out, &h, sizeof(h));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    struct sim_object_answer what;
    struct event_share *share;
    struct shared shared;
    struct CUctx_st *c;
    struct handle h;
    CUresult rc;

    TRY(current(&c));
    NEED(event, CUDA_ERROR_INVALID_VALUE);
    memcpy(&h, &handle, sizeof(h));
    NEED(memcmp(h.magic, magic, sizeof(magic)) == 0 && h.id, CUDA_ERROR_INVALID_HANDLE);
    TRY(shared_join(-1, h.id, &what, &shared));
    if (what.kind != OBJECT_EVENT || shared_device(&what) != c->device) {
        shared_drop(&shared);
        return what.kind != OBJECT_EVENT ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_DEVICE;
    }
    TRY(open_shared(&shared, &share));
    rc = event_new(c, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, share, event);
    if (rc != CUDA_SUCCESS)
        event_share_put(share);
    return rc;
}

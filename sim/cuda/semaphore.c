/* SPDX-License-Identifier: Apache-2.0 */
/*
 * External semaphores. One is a file that can be mapped, a memfd as a rule: its first eight bytes
 * are the value, so that whoever imports the same file, in any process, has the same semaphore. A
 * timeline's value goes up; a binary one is 1 once signalled, and the wait that sees it takes it
 * back to 0. Both happen in stream order, by the host (callback.h). A destroyed semaphore stays
 * until the last operation in a stream is through with it.
 */
#include "cuda/semaphore.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/callback.h"

struct state {
    _Atomic unsigned int references;
    bool is_timeline;
    _Atomic uint64_t *value; /* mapped */
};

struct CUextSemaphore_st {
    uint32_t magic;
    struct state *state;
};

/* What an operation does. */
struct step {
    struct state *state;
    uint64_t value;
};

static void state_put(struct state *state)
{
    if (atomic_fetch_sub(&state->references, 1) != 1)
        return;
    munmap(state->value, sizeof(*state->value));
    free(state);
}

/* A file that is empty gets room for the value. */
static CUresult map_value(int fd, struct state *state)
{
    struct stat file;
    void *map;

    NEED(fstat(fd, &file) == 0 && S_ISREG(file.st_mode), CUDA_ERROR_INVALID_VALUE);
    NEED(file.st_size >= (off_t)sizeof(*state->value) || ftruncate(fd, sizeof(*state->value)) == 0,
         CUDA_ERROR_INVALID_VALUE);
    map = mmap(NULL, sizeof(*state->value), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(map != MAP_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
    state->value = map;
    return CUDA_SUCCESS;
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *out,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
    struct CUextSemaphore_st *s;
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(out && desc && !desc->flags, CUDA_ERROR_INVALID_VALUE);
    NEED(desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD ||
             desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
         CUDA_ERROR_NOT_SUPPORTED);
    s = calloc(1, sizeof(*s));
    if (s)
        s->state = calloc(1, sizeof(*s->state));
    rc = s && s->state ? map_value(desc->handle.fd, s->state) : CUDA_ERROR_OUT_OF_MEMORY;
    if (rc != CUDA_SUCCESS) {
        if (s)
            free(s->state);
        free(s);
        return rc;
    }
    (void)close(desc->handle.fd); /* the driver's from now on, which has it mapped */
    s->state->references = 1;
    s->state->is_timeline = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    s->magic = MAGIC_SEMAPHORE;
    *out = s;
    return CUDA_SUCCESS;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(semaphore && semaphore->magic == MAGIC_SEMAPHORE, CUDA_ERROR_INVALID_HANDLE);
    semaphore->magic = MAGIC_DEAD;
    state_put(semaphore->state);
    bury(semaphore);
    return CUDA_SUCCESS;
}

/* In stream order */

static void signal_now(void *what)
{
    struct step *s = what;
    uint64_t old = atomic_load(s->state->value);

    while (old < s->value && !atomic_compare_exchange_weak(s->state->value, &old, s->value))
        ;
    state_put(s->state);
}

static bool is_signalled(void *what)
{
    struct step *s = what;
    uint64_t one = 1;
    bool is_there = s->state->is_timeline
                        ? atomic_load(s->state->value) >= s->value
                        : atomic_compare_exchange_strong(s->state->value, &one, 0);

    if (is_there)
        state_put(s->state); /* it is not asked again */
    return is_there;
}

CUresult semaphores_check(const CUexternalSemaphore *semaphores, const void *params,
                          unsigned int count)
{
    NEED(semaphores && params && count, CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < count; i++)
        NEED(semaphores[i] && semaphores[i]->magic == MAGIC_SEMAPHORE, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

static CUresult push(struct CUstream_st *stream, const CUexternalSemaphore *semaphores,
                     const uint64_t *value, bool is_wait)
{
    struct step s = {(*semaphores)->state, *value};
    CUresult rc;

    atomic_fetch_add(&s.state->references, 1);
    rc = is_wait ? spin_push(stream, 0, is_signalled, &s, sizeof(s))
                 : effect_queue(stream, signal_now, &s, sizeof(s));
    if (rc != CUDA_SUCCESS)
        state_put(s.state);
    return rc;
}

CUresult semaphores_signal(struct CUstream_st *stream, const CUexternalSemaphore *semaphores,
                           const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned int count)
{
    TRY(semaphores_check(semaphores, params, count));
    for (unsigned int i = 0; i < count; i++) {
        bool is_timeline = semaphores[i]->state->is_timeline;
        uint64_t value = is_timeline ? params[i].params.fence.value : 1;

        /* A timeline only ever goes up. */
        NEED(!is_timeline || value > atomic_load(semaphores[i]->state->value),
             CUDA_ERROR_INVALID_VALUE);
        TRY(push(stream, &semaphores[i], &value, false));
    }
    return CUDA_SUCCESS;
}

CUresult semaphores_wait(struct CUstream_st *stream, const CUexternalSemaphore *semaphores,
                         const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count)
{
    TRY(semaphores_check(semaphores, params, count));
    for (unsigned int i = 0; i < count; i++) {
        uint64_t value = params[i].params.fence.value;

        TRY(push(stream, &semaphores[i], &value, true));
    }
    return CUDA_SUCCESS;
}

static CUresult stream_meant(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *c;

    TRY(current(&c));
    return stream_get(handle, c, stream);
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                         unsigned int count, CUstream stream)
{
    struct CUstream_st *s;

    TRY(stream_meant(stream, &s));
    TRY(semaphores_check(semaphores, params, count));
    if (atomic_load(&s->capture))
        return capture_semaphores(s, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, semaphores, params,
                                  count);
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return semaphores_signal(s, semaphores, params, count);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                                       unsigned int count, CUstream stream)
{
    struct CUstream_st *s;

    TRY(stream_meant(stream, &s));
    TRY(semaphores_check(semaphores, params, count));
    if (atomic_load(&s->capture))
        return capture_semaphores(s, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, semaphores, params, count);
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return semaphores_wait(s, semaphores, params, count);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peer access: every two devices of a machine can reach each other's memory, and a context says
 * which other contexts it wants to reach. The wishes are a table under its own lock; those of a
 * destroyed context go with it.
 */
#include <stdlib.h>

#include "cuda/driver.h"

#define PEERS_MAX 8 /* of one context, as on a card without NVSwitch */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pair {
    uint32_t from, to; /* context ids */
} * pairs;
static size_t count, room;

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    struct device *d, *p;

    TRY(device_get(dev, &d));
    TRY(device_get(peer, &p));
    NEED(can, CUDA_ERROR_INVALID_VALUE);
    *can = d != p;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from,
                                 CUdevice to)
{
    struct device *f, *t;

    TRY(device_get(from, &f));
    TRY(device_get(to, &t));
    NEED(value && f != t, f == t ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0; /* the best there is */
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Under the lock: the pair's place, or count; how many peers `from` has. */
static size_t find(uint32_t from, uint32_t to, size_t *peers)
{
    size_t at = count;

    *peers = 0;
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].from != from)
            continue;
        (*peers)++;
        if (pairs[i].to == to)
            at = i;
    }
    return at;
}

static CUresult two(CUcontext peer, struct CUctx_st **from)
{
    TRY(current(from));
    TRY(context_check(peer));
    NEED(peer != *from, CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    struct CUctx_st *c;
    CUresult rc = CUDA_SUCCESS;
    size_t at, peers;

    TRY(two(peer, &c));
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    NEED(peer->device != c->device, CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&lock);
    at = find(c->id, peer->id, &peers);
    if (at < count) {
        rc = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    } else if (peers == PEERS_MAX) {
        rc = CUDA_ERROR_TOO_MANY_PEERS;
    } else {
        if (count == room) {
            struct pair *more = realloc(pairs, (room ? room * 2 : 16) * sizeof(*pairs));

            if (more) {
                pairs = more;
                room = room ? room * 2 : 16;
            } else {
                rc = CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
        if (rc == CUDA_SUCCESS)
            pairs[count++] = (struct pair){c->id, peer->id};
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    struct CUctx_st *c;
    CUresult rc = CUDA_SUCCESS;
    size_t at, peers;

    TRY(two(peer, &c));
    pthread_mutex_lock(&lock);
    at = find(c->id, peer->id, &peers);
    if (at < count)
        pairs[at] = pairs[--count];
    else
        rc = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    pthread_mutex_unlock(&lock);
    return rc;
}

void peer_forget(struct CUctx_st *context)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count;) {
        if (pairs[i].from == context->id || pairs[i].to == context->id)
            pairs[i] = pairs[--count];
        else
            i++;
    }
    pthread_mutex_unlock(&lock);
}

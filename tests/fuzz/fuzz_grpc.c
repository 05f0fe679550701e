/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC connection fed with anything. The last byte also chooses the size of the pieces; calls are
 * answered at once, late, or by their deadline.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/grpc/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEPT 128

static struct alq_grpc_call *kept[KEPT];

static void on_cancel(void *arg)
{
    *(struct alq_grpc_call **)arg = NULL;
}

static void echo(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)arg;
    alq_grpc_reply(call, message, len);
}

static void keep(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)arg;
    (void)message;
    for (size_t i = 0; i < KEPT; i++) {
        if (kept[i])
            continue;
        kept[i] = call;
        alq_grpc_on_cancel(call, on_cancel, &kept[i]);
        return;
    }
    alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "%zu", len);
}

static const struct alq_grpc_method methods[] = {
    {"/pluginregistration.Registration/GetInfo", echo, NULL},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", echo, NULL},
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", keep, NULL},
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources", echo, NULL},
    {NULL, NULL, NULL}};

static void drain(struct alq_grpc_session *s)
{
    const uint8_t *out;
    while (alq_grpc_session_take(s, &out) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    size_t piece = data[size - 1] ? data[size - 1] : 4096;
    int64_t now_ns = 0;
    memset(kept, 0, sizeof(kept));
    struct alq_grpc_session *s = alq_grpc_session_new(methods, NULL, NULL);
    if (!s)
        return 0;
    drain(s);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (alq_grpc_session_feed(s, data + at, n, now_ns))
            break;
        drain(s);
        now_ns += 1000000;
        alq_grpc_session_expire(s, now_ns);
        for (size_t i = 0; i < KEPT; i += 2) {
            struct alq_grpc_call *call = kept[i];
            kept[i] = NULL;
            if (call && data[at] & 1)
                alq_grpc_reply(call, data, 1);
            else if (call)
                alq_grpc_fail(call, ALQ_GRPC_UNAVAILABLE, "later");
        }
        drain(s);
        if (alq_grpc_session_is_over(s))
            break;
    }
    alq_grpc_session_shutdown(s);
    drain(s);
    alq_grpc_session_free(s);
    for (size_t i = 0; i < KEPT; i++)
        if (kept[i])
            abort(); /* a call went without telling */
    return 0;
}

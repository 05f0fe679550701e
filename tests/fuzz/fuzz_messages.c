/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kubelet's messages under any bytes: each method of both DRA services and of registration gets
 * them as a whole message; the first byte chooses the method and how the claims' operations end.
 * The gRPC session and prepare/ are played here. What must hold: each call is answered once, and a
 * reply is a message that names each claim once, by a text that is UTF-8.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "daemon/kubelet/dra.h"
#include "daemon/kubelet/registration.h"
#include "daemon/prepare/prepare.h"
#include "dra.pb-c.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEPT_MAX 4096

struct alq_grpc_call {
    unsigned answers;
    int is_dra, is_prepare;
};

static struct {
    alq_prepare_cb cb;
    void *arg;
    char uid[64];
} kept[KEPT_MAX];
static unsigned kept_count, ending;

/* ---- in the session's place -------------------------------------------------------------------
 */

void alq_grpc_on_cancel(struct alq_grpc_call *call, void (*on_cancel)(void *arg), void *arg)
{
    (void)call;
    (void)on_cancel;
    (void)arg;
}

int64_t alq_grpc_call_deadline_ns(const struct alq_grpc_call *call)
{
    (void)call;
    return INT64_MAX;
}

static void check_text(const char *text)
{
    alq_auto_free char *clean = strdup(text);
    REQUIRE(clean);
    alq_utf8_clean(clean);
    REQUIRE(!strcmp(clean, text));
}

void alq_grpc_reply(struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    call->answers++;
    if (!call->is_dra)
        return;
    if (call->is_prepare) {
        Alq__Dra__NodePrepareResourcesResponse *r =
            alq__dra__node_prepare_resources_response__unpack(NULL, len, message);
        REQUIRE(r);
        for (size_t i = 0; i < r->n_claims; i++) {
            check_text(r->claims[i]->key);
            check_text(r->claims[i]->value->error);
            REQUIRE(!*r->claims[i]->value->error || !r->claims[i]->value->n_devices);
            for (size_t j = 0; j < i; j++)
                REQUIRE(strcmp(r->claims[i]->key, r->claims[j]->key) != 0);
        }
        alq__dra__node_prepare_resources_response__free_unpacked(r, NULL);
    } else {
        Alq__Dra__NodeUnprepareResourcesResponse *r =
            alq__dra__node_unprepare_resources_response__unpack(NULL, len, message);
        REQUIRE(r);
        for (size_t i = 0; i < r->n_claims; i++)
            check_text(r->claims[i]->key);
        alq__dra__node_unprepare_resources_response__free_unpacked(r, NULL);
    }
}

void alq_grpc_fail(struct alq_grpc_call *call, enum alq_grpc_status status, const char *fmt, ...)
{
    REQUIRE(status != ALQ_GRPC_OK && *fmt);
    call->answers++;
}

/* ---- in the place of prepare/ -----------------------------------------------------------------
 */

static void end(alq_prepare_cb cb, void *arg, const char *uid, int is_prepare)
{
    struct alq_share_spec share = {.index = 0, .request = "gpu", .device = "hami-gpu-0"};
    char name[] = "c", pool[] = "node-a";
    struct alq_claim_spec claim = {.name = name, .pool = pool, .share_count = 1, .shares = &share};
    struct alq_err err = ALQ_ERR_INIT;
    snprintf(claim.uid, sizeof(claim.uid), "%s", uid);
    if (ending & 1)
        alq_err_set(&err, ALQ_EINVAL, "claim %s is \xff wrong", uid);
    cb(arg, is_prepare && !err.code ? &claim : NULL, err.code ? &err : NULL);
}

static void claim_comes(const struct alq_claim_id *id, alq_prepare_cb cb, void *arg, int is_prepare)
{
    REQUIRE(memchr(id->uid, 0, sizeof(id->uid)) && memchr(id->name, 0, sizeof(id->name)) &&
            memchr(id->namespace_, 0, sizeof(id->namespace_)));
    if (!(ending & 2) || kept_count == KEPT_MAX) {
        end(cb, arg, id->uid, is_prepare);
        return;
    }
    kept[kept_count].cb = cb;
    kept[kept_count].arg = arg;
    memcpy(kept[kept_count++].uid, id->uid, sizeof(id->uid));
}

void alq_prepare_claim(struct alq_prepare *prepare, const struct alq_claim_id *id,
                       int64_t deadline_ns, alq_prepare_cb cb, void *arg)
{
    (void)prepare;
    (void)deadline_ns;
    claim_comes(id, cb, arg, 1);
}

void alq_unprepare_claim(struct alq_prepare *prepare, const struct alq_claim_id *id,
                         alq_prepare_cb cb, void *arg)
{
    (void)prepare;
    claim_comes(id, cb, arg, 0);
}

/* ---- one input --------------------------------------------------------------------------------
 */

static void on_registered(void *arg)
{
    (void)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct alq_config cfg;
    static char driver[] = "gpu.example.com";
    const struct alq_grpc_method *tables[2], *chosen = NULL;
    struct alq_grpc_call call = {0};
    struct alq_err err = ALQ_ERR_INIT;
    if (!size)
        return 0;
    cfg.driver_name = driver;
    struct alq_dra *dra = alq_dra_new(&cfg, NULL, NULL, &err);
    struct alq_registration *registration =
        alq_registration_new(driver, "/dra.sock", on_registered, NULL, &err);
    if (!dra || !registration)
        abort();
    alq_dra_serve(dra, NULL);
    tables[0] = alq_dra_methods(dra);
    tables[1] = alq_registration_methods(registration);
    unsigned wanted = data[0] >> 2, total = 0;
    for (unsigned t = 0; t < 2; t++)
        for (const struct alq_grpc_method *m = tables[t]; m->path; m++)
            total++;
    wanted %= total;
    for (unsigned t = 0; t < 2 && !chosen; t++) {
        for (const struct alq_grpc_method *m = tables[t]; m->path && !chosen; m++) {
            if (!wanted--) {
                chosen = m;
                call.is_dra = t == 0;
                call.is_prepare = strstr(m->path, "NodePrepare") != NULL;
            }
        }
    }
    ending = data[0] & 3;
    kept_count = 0;
    chosen->handler(chosen->arg, &call, data + 1, size - 1);
    for (unsigned i = 0; i < kept_count; i++)
        end(kept[i].cb, kept[i].arg, kept[i].uid, call.is_prepare);
    REQUIRE(call.answers == 1 && !alq_dra_working(dra));
    alq_registration_free(registration);
    alq_dra_free(dra);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The kubelet's list of pods, see pods.h. */
#define ALQ_LOG_MODULE "pods"
#include "daemon/kubelet/pods.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/utf8.h"
#include "daemon/grpc/client.h"
#include "podresources.pb-c.h"

#define METHOD "/v1.PodResourcesLister/List"
#define TIMEOUT_MS 10000
#define PREFIX_BYTES 128

struct alq_pods {
    struct event_base *base;
    const char *socket, *driver;
    alq_pods_cb cb;
    void *arg;
    struct alq_grpc_request *request; /* NULL: none is out */
    char said[ALQ_ERR_TEXT_BYTES];    /* the last failure, said once */
};

/* ---- the answer -------------------------------------------------------------------------------
 */

struct walk {
    char prefix[PREFIX_BYTES]; /* of our CDI device names */
    struct alq_share_user *users;
    char *text; /* where the next string goes */
    size_t count, bytes;
};

static const char *keep(struct walk *w, const char *text)
{
    size_t n = strlen(text) + 1;
    w->bytes += n;
    if (!w->text)
        return NULL;
    char *copy = memcpy(w->text, text, n);
    w->text += n;
    alq_utf8_clean(copy);
    return copy;
}

static void see(struct walk *w, const char *cdi, const char *pod, const char *container)
{
    size_t n = strlen(w->prefix);
    if (strncmp(cdi, w->prefix, n) != 0)
        return;
    struct alq_share_user user = {keep(w, cdi + n), keep(w, pod), keep(w, container)};
    if (w->users)
        w->users[w->count] = user;
    w->count++;
}

static void see_container(struct walk *w, const Alq__Podresources__PodResources *pod,
                          const Alq__Podresources__ContainerResources *container)
{
    for (size_t i = 0; i < container->n_dynamic_resources; i++) {
        const Alq__Podresources__DynamicResource *claim = container->dynamic_resources[i];
        for (size_t j = 0; j < claim->n_claim_resources; j++)
            for (size_t k = 0; k < claim->claim_resources[j]->n_cdi_devices; k++)
                see(w, claim->claim_resources[j]->cdi_devices[k]->name, pod->name, container->name);
    }
}

static void see_all(struct walk *w, const Alq__Podresources__ListPodResourcesResponse *list)
{
    for (size_t i = 0; i < list->n_pod_resources; i++)
        for (size_t j = 0; j < list->pod_resources[i]->n_containers; j++)
            see_container(w, list->pod_resources[i], list->pod_resources[i]->containers[j]);
}

struct alq_share_user *alq_pods_decode(const uint8_t *message, size_t len, const char *driver,
                                       size_t *count)
{
    Alq__Podresources__ListPodResourcesResponse *list =
        alq__podresources__list_pod_resources_response__unpack(NULL, len, message);
    struct walk need = {0}, fill;
    struct alq_share_user *users = NULL;
    if (!list)
        return NULL;
    snprintf(need.prefix, sizeof(need.prefix), "k8s.%s/claim=", driver);
    see_all(&need, list);
    users = malloc(need.count * sizeof(*users) + need.bytes + 1);
    if (users) {
        fill = (struct walk){.users = users, .text = (char *)(users + need.count)};
        memcpy(fill.prefix, need.prefix, sizeof(fill.prefix));
        see_all(&fill, list);
        *count = fill.count;
    }
    alq__podresources__list_pod_resources_response__free_unpacked(list, NULL);
    return users;
}

/* ---- asking -----------------------------------------------------------------------------------
 */

static void complain(struct alq_pods *p, const char *why)
{
    if (strcmp(p->said, why) != 0)
        alq_info(NULL, "metrics have no pods and containers: %s", why);
    snprintf(p->said, sizeof(p->said), "%s", why);
}

static void on_answer(void *arg, const uint8_t *message, size_t len, const struct alq_err *err)
{
    struct alq_pods *p = arg;
    size_t count = 0;
    p->request = NULL;
    if (err) {
        complain(p, err->text);
        return;
    }
    alq_auto_free struct alq_share_user *users = alq_pods_decode(message, len, p->driver, &count);
    if (!users) {
        complain(p, "the kubelet's list cannot be read");
        return;
    }
    p->said[0] = '\0';
    p->cb(p->arg, users, count);
}

void alq_pods_ask(struct alq_pods *p)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (p->request)
        return;
    p->request =
        alq_grpc_request_new(p->base, p->socket, METHOD, NULL, 0, TIMEOUT_MS, on_answer, p, &err);
    if (!p->request)
        complain(p, err.text);
}

struct alq_pods *alq_pods_new(struct event_base *base, const char *socket, const char *driver,
                              alq_pods_cb cb, void *arg, struct alq_err *err)
{
    struct alq_pods *p = calloc(1, sizeof(*p));
    if (!p) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    p->base = base;
    p->socket = socket;
    p->driver = driver;
    p->cb = cb;
    p->arg = arg;
    return p;
}

void alq_pods_free(struct alq_pods *p)
{
    if (!p)
        return;
    alq_grpc_request_free(p->request);
    free(p);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements, see place.h. The worker has the input for itself, but for the objects of the claims
 * that are there, which nobody changes.
 */
#include "daemon/standalone/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/alloc.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/names.h"
#include "daemon/kube/slice.h"
#include "daemon/standalone/claims.h"
#include "daemon/standalone/want.h"

#define SERVER_MINOR 36 /* whose rules hold, see alloc.h */

struct alq_placing {
    struct alq_job job; /* first */
    STAILQ_ENTRY(alq_placing) link;
    struct alq_placer *of;
    json_t *object, *classes;
    json_t *claims, *all_classes, *slices, *taken, *node; /* the input, while it runs */
    struct alq_err undescribed; /* code set: a GPU that cannot be offered, and why */
    struct alq_err err;
    alq_place_cb cb;
    void *arg;
};

/* ---- input ------------------------------------------------------------------------------------
 */

static json_t *slices_of(const struct alq_config *cfg, const struct alq_gpu_list *gpus,
                         struct alq_err *err)
{
    const struct alq_slice_server server = {.driver = cfg->driver_name, .minor = SERVER_MINOR};
    alq_auto_json json_t *layout = alq_slice_layout(gpus, &server, err);
    json_t *slices = json_array(), *devices;
    size_t i, count = json_array_size(layout);
    json_array_foreach (layout, i, devices)
        json_array_append_new(slices,
                              json_pack("{s:{s:o}, s:{s:s, s:s, s:{s:s, s:i, s:i}, s:O}}",
                                        "metadata", "name", json_sprintf("slice-%zu", i), "spec",
                                        "driver", cfg->driver_name, "nodeName", cfg->node_name,
                                        "pool", "name", cfg->node_name, "generation", 1,
                                        "resourceSliceCount", (int)count, "devices", devices));
    return slices;
}

static json_t *allocated(const struct alq_locals *locals)
{
    const struct alq_local *local;
    json_t *claims = json_array();
    TAILQ_FOREACH(local, &locals->all, link)
    json_array_append(claims, local->object);
    return claims;
}

static json_t *with_own_class(const struct alq_config *cfg, const json_t *classes)
{
    json_t *all = json_array(), *one;
    size_t i;
    int is_there = 0;
    json_array_foreach (classes, i, one) {
        const char *name = alq_json_str(one, "metadata.name");
        is_there |= name && !strcmp(name, cfg->driver_name);
        json_array_append(all, one);
    }
    if (!is_there)
        json_array_append_new(all, alq_want_own_class(cfg));
    return all;
}

static int gather(struct alq_placing *p)
{
    const struct alq_config *cfg = p->of->locals->cfg;
    const struct alq_gpu_list *gpus = p->of->gpus(p->of->gpus_arg, &p->err);
    if (!gpus)
        return p->err.code;
    p->slices = slices_of(cfg, gpus, &p->undescribed);
    p->taken = allocated(p->of->locals);
    p->all_classes = with_own_class(cfg, p->classes);
    p->claims = json_pack("[O]", p->object);
    p->node = json_pack("{s:{s:s}}", "metadata", "name", cfg->node_name);
    if (p->slices && p->taken && p->all_classes && p->claims && p->node)
        return 0;
    return alq_err_set(&p->err, ALQ_ENOMEM, "out of memory");
}

/* ---- search -----------------------------------------------------------------------------------
 */

static void place_run(struct alq_job *job)
{
    struct alq_placing *p = (struct alq_placing *)job;
    char stamp[ALQ_TIME_TEXT_BYTES];
    alq_auto_json json_t *found = NULL;
    alq_auto_free char *reason = NULL;
    const struct alq_alloc_input input = {.claims = p->claims,
                                          .classes = p->all_classes,
                                          .slices = p->slices,
                                          .allocated = p->taken,
                                          .node = p->node,
                                          .now = alq_time_format(time(NULL), stamp),
                                          .server_minor = SERVER_MINOR};
    if (alq_alloc(&input, &found, &reason, &p->err))
        return;
    if (reason) {
        alq_err_set(&p->err, ALQ_EBUSY, "%s%s%s; aliquot shares shows what is in use", reason,
                    p->undescribed.code ? "; " : "", p->undescribed.text);
        return;
    }
    json_t *allocation = json_object_get(found, alq_json_str(p->object, "metadata.uid"));
    if (json_object_set_new(p->object, "status",
                            json_pack("{s:O, s:[{s:s, s:O*}]}", "allocation", allocation,
                                      "reservedFor", "resource", "users", "name",
                                      alq_json_at(p->object, "metadata.namespace"))))
        alq_err_set(&p->err, ALQ_ENOMEM, "out of memory");
}

/* ---- line -------------------------------------------------------------------------------------
 */

static void start(struct alq_placer *placer);

static void placing_end(struct alq_placing *p)
{
    json_decref(p->claims);
    json_decref(p->all_classes);
    json_decref(p->slices);
    json_decref(p->taken);
    json_decref(p->node);
    p->cb(p->arg, p->object, p->err.code ? &p->err : NULL);
    json_decref(p->object);
    json_decref(p->classes);
    free(p);
}

static void place_done(struct alq_job *job)
{
    struct alq_placing *p = (struct alq_placing *)job;
    struct alq_placer *placer = p->of;
    STAILQ_REMOVE_HEAD(&placer->line, link);
    placing_end(p);
    start(placer);
}

/* The head of the line; those that cannot even begin go at once. */
static void start(struct alq_placer *placer)
{
    for (struct alq_placing *p; (p = STAILQ_FIRST(&placer->line));) {
        if (p->job.run)
            return; /* it runs */
        p->job = (struct alq_job){.run = place_run, .done = place_done};
        if (!gather(p)) {
            alq_work_submit(placer->work, &p->job);
            return;
        }
        STAILQ_REMOVE_HEAD(&placer->line, link);
        placing_end(p);
    }
}

void alq_placer_init(struct alq_placer *placer, const struct alq_locals *locals,
                     struct alq_work *work,
                     const struct alq_gpu_list *(*gpus)(void *arg, struct alq_err *err),
                     void *gpus_arg)
{
    *placer =
        (struct alq_placer){.locals = locals, .work = work, .gpus = gpus, .gpus_arg = gpus_arg};
    STAILQ_INIT(&placer->line);
}

void alq_place(struct alq_placer *placer, json_t *object, json_t *classes, alq_place_cb cb,
               void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_placing *p = calloc(1, sizeof(*p));
    if (!p) {
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
        cb(arg, object, &err);
        return;
    }
    p->of = placer;
    p->object = json_incref(object);
    p->classes = json_incref(classes);
    p->cb = cb;
    p->arg = arg;
    STAILQ_INSERT_TAIL(&placer->line, p, link);
    start(placer);
}

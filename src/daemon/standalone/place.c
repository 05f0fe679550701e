/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of local claims, see place.h. */
#include "daemon/standalone/place.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "alloc/alloc.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/kube/slice.h"
#include "daemon/standalone/want.h"

#define SERVER_MINOR 36 /* whose rules hold, see alloc.h */

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

static const char *now(char *text, size_t size)
{
    time_t seconds = time(NULL);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return text;
}

int alq_place(const struct alq_locals *locals, const struct alq_gpu_list *gpus, json_t *classes,
              json_t *object, struct alq_err *err)
{
    const struct alq_config *cfg = locals->cfg;
    struct alq_err why = ALQ_ERR_INIT;
    char stamp[32];
    alq_auto_json json_t *slices = slices_of(cfg, gpus, &why), *taken = allocated(locals);
    alq_auto_json json_t *all = with_own_class(cfg, classes), *claims = json_pack("[O]", object);
    alq_auto_json json_t *node = json_pack("{s:{s:s}}", "metadata", "name", cfg->node_name);
    alq_auto_json json_t *found = NULL;
    alq_auto_free char *reason = NULL;
    const struct alq_alloc_input input = {.claims = claims,
                                          .classes = all,
                                          .slices = slices,
                                          .allocated = taken,
                                          .node = node,
                                          .now = now(stamp, sizeof(stamp)),
                                          .server_minor = SERVER_MINOR};
    if (!slices || !taken || !all || !claims || !node)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_alloc(&input, &found, &reason, err);
    if (rc)
        return rc;
    if (reason)
        return alq_err_set(err, ALQ_EBUSY, "%s%s%s; aliquot shares shows what is in use", reason,
                           why.code ? "; " : "", why.text);
    json_t *allocation = json_object_get(found, alq_json_str(object, "metadata.uid"));
    return json_object_set_new(object, "status", json_pack("{s:O}", "allocation", allocation))
               ? alq_err_set(err, ALQ_ENOMEM, "out of memory")
               : 0;
}

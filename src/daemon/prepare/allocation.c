/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an allocation, see allocation.h. What the scheduler wrote is checked again: it may be of
 * another version, or have seen a slice that is no longer true. Pure functions, any thread.
 */
#include "daemon/prepare/allocation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/quantity.h"
#include "daemon/prepare/share_config.h"
#include "daemon/state/claim_spec.h"

static int copy_text(const json_t *object, const char *key, char *out, size_t size,
                     struct alq_err *err)
{
    const char *text = NULL;
    int rc = alq_json_need_str(object, key, &text, err);
    if (rc)
        return rc;
    if (strlen(text) >= size)
        return alq_err_set(err, ALQ_EINVAL, "field %s is too long", key);
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static const struct alq_gpu *find_gpu(const struct alq_gpu_list *gpus, const char *name)
{
    for (size_t i = 0; i < gpus->count; i++)
        if (!strcmp(gpus->gpus[i].name, name))
            return &gpus->gpus[i];
    return NULL;
}

/* consumed[key] in whole units; absent: preset, which is what the slice's requestPolicy says too.
 */
static int take_capacity(const json_t *consumed, const char *key, uint64_t preset, uint64_t max,
                         uint64_t *out, struct alq_err *err)
{
    const json_t *value = json_object_get(consumed, key);
    struct alq_quantity q;
    *out = preset;
    if (!value)
        return 0;
    const char *text = json_string_value(value);
    if (!text)
        return alq_err_set(err, ALQ_EINVAL, "consumedCapacity.%s: not a quantity", key);
    int rc = alq_quantity_parse(text, strlen(text), &q, err);
    if (!rc)
        rc = alq_quantity_to_u64(q, out, err);
    if (rc)
        return alq_err_wrap(err, "consumedCapacity.%s", key);
    if (*out <= max)
        return 0;
    char most[ALQ_QUANTITY_TEXT_BYTES];
    alq_quantity_format(alq_quantity_from_u64(max), 1, most);
    return alq_err_set(
        err, ALQ_EINVAL,
        "consumedCapacity.%s: %.64s is more than the %s that the GPU can give; delete "
        "the claim to have it allocated anew",
        key, text, most);
}

/* What the GPU can give: to a share that it has given already, what it could then. */
static uint64_t memory_of(const struct alq_gpu *gpu, const struct alq_share_spec *s,
                          const struct alq_share_spec *held)
{
    int is_held = held && !strcmp(held->gpu_uuid, gpu->uuid) && !strcmp(held->device, s->device) &&
                  !strcmp(held->share_uuid, s->share_uuid);
    return is_held ? held->gpu_memory_bytes : gpu->memory_promisable_bytes;
}

static int read_result(const json_t *result, const json_t *config, const char *driver,
                       const char *pool, const struct alq_gpu_list *gpus,
                       const struct alq_share_spec *held, struct alq_share_spec *s,
                       struct alq_err *err)
{
    char request[sizeof(s->request) * 2], from[256];
    int rc = copy_text(result, "request", request, sizeof(request), err);
    if (!rc)
        rc = copy_text(result, "pool", from, sizeof(from), err);
    if (!rc)
        rc = copy_text(result, "device", s->device, sizeof(s->device), err);
    if (!rc && json_object_get(result, "shareID"))
        rc = copy_text(result, "shareID", s->share_uuid, sizeof(s->share_uuid), err);
    if (rc)
        return rc;
    size_t base = strcspn(request, "/");
    if (base >= sizeof(s->request))
        return alq_err_set(err, ALQ_EINVAL, "request name \"%s\" is too long", request);
    memcpy(s->request, request, base);
    if (strcmp(from, pool) != 0)
        return alq_err_set(
            err, ALQ_EINVAL,
            "device %s was allocated from pool %.80s, this node's is %.80s; the pod is "
            "on the wrong node",
            s->device, from, pool);
    const struct alq_gpu *gpu = find_gpu(gpus, s->device);
    if (!gpu)
        return alq_err_set(err, ALQ_ENOENT,
                           "device %s is not on this node (it has %zu GPUs); was the GPU removed? "
                           "delete the claim to have it allocated anew",
                           s->device, gpus->count);
    memcpy(s->gpu_uuid, gpu->uuid, sizeof(s->gpu_uuid));
    s->gpu_minor = gpu->minor;
    s->gpu_memory_bytes = s->memory_bytes = memory_of(gpu, s, held);
    s->cores_pct = ALQ_CORES_ALL;
    rc = alq_share_config_resolve(config, driver, request, &s->tuning, err);
    if (rc)
        return rc;
    /* An admin's result carries a shareID and all capacity as consumed, yet promises nothing. */
    s->is_admin = json_is_true(json_object_get(result, "adminAccess"));
    if (s->is_admin)
        return 0;
    /* None at all: the server's DRAConsumableCapacity is off and the device was given whole. */
    const json_t *consumed = json_object_get(result, "consumedCapacity");
    uint64_t cores = 0;
    if (consumed && !json_is_object(consumed))
        return alq_err_set(err, ALQ_EINVAL, "consumedCapacity: not an object");
    rc = take_capacity(consumed, "memory", s->memory_bytes, s->memory_bytes, &s->memory_bytes, err);
    if (!rc)
        rc = take_capacity(consumed, "cores", ALQ_CORES_ALL, ALQ_CORES_ALL, &cores, err);
    if (!rc && !s->memory_bytes)
        rc = alq_err_set(err, ALQ_EINVAL, "consumedCapacity.memory: 0 bytes; ask for 1Mi or more");
    s->cores_pct = (uint32_t)cores;
    return rc;
}

static int check_identity(const json_t *object, const struct alq_claim_id *id, struct alq_err *err)
{
    const char *uid = NULL;
    int rc = alq_json_need_str(object, "metadata.uid", &uid, err);
    if (rc)
        return rc;
    if (strcmp(uid, id->uid) != 0)
        return alq_err_set(err, ALQ_EAGAIN,
                           "replaced: a new claim of this name has uid %s; the pod of the old one "
                           "must go first",
                           uid);
    if (!json_is_object(alq_json_at(object, "status.allocation")))
        return alq_err_set(err, ALQ_EAGAIN, "not allocated; the scheduler has to place it first");
    return 0;
}

static int read_results(const json_t *results, const json_t *config, const char *driver,
                        const char *pool, const struct alq_gpu_list *gpus,
                        const struct alq_claim_spec *held, struct alq_claim_spec *claim,
                        struct alq_err *err)
{
    size_t i;
    json_t *result;
    const char *other = NULL;
    json_array_foreach (results, i, result) {
        const char *of = NULL;
        int rc = alq_json_need_str(result, "driver", &of, err);
        if (!rc && strcmp(of, driver) != 0) {
            other = of;
            continue;
        }
        struct alq_share_spec *s = &claim->shares[claim->share_count];
        if (!rc) {
            s->index = claim->share_count;
            alq_share_id_format(claim->uid, s->index, s->share_id);
            rc = read_result(result, config, driver, pool, gpus,
                             held && s->index < held->share_count ? &held->shares[s->index] : NULL,
                             s, err);
        }
        if (rc)
            return alq_err_wrap(err, "result %zu%s%s", i, s->device[0] ? ", " : "", s->device);
        claim->share_count++;
    }
    if (claim->share_count)
        return 0;
    return alq_err_set(err, ALQ_EINVAL, "no device of driver %s in its allocation (%s%s)", driver,
                       other ? "but of " : "nor of any other", other ? other : "");
}

int alq_allocation_read(const json_t *object, const struct alq_claim_id *id, const char *driver,
                        const char *pool, const struct alq_gpu_list *gpus,
                        const struct alq_claim_spec *held, struct alq_claim_spec **claim,
                        struct alq_err *err)
{
    json_t *results = NULL;
    int rc = check_identity(object, id, err);
    if (!rc)
        rc = alq_json_need_array(object, "status.allocation.devices.results", &results, err);
    if (!rc && json_array_size(results) > ALQ_CLAIM_RESULTS_MAX)
        rc = alq_err_set(err, ALQ_EINVAL, "%zu results; at most %u are possible",
                         json_array_size(results), ALQ_CLAIM_RESULTS_MAX);
    if (rc)
        return rc;
    struct alq_claim_spec *spec = calloc(1, sizeof(*spec));
    if (spec) {
        spec->name = strdup(id->name);
        spec->pool = strdup(pool);
        spec->shares = calloc(json_array_size(results) + 1, sizeof(*spec->shares));
    }
    if (!spec || !spec->name || !spec->pool || !spec->shares) {
        alq_claim_spec_free(spec);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    snprintf(spec->uid, sizeof(spec->uid), "%s", id->uid);
    snprintf(spec->namespace_, sizeof(spec->namespace_), "%s", id->namespace_);
    rc = read_results(results, alq_json_at(object, "status.allocation.devices.config"), driver,
                      pool, gpus, held, spec, err);
    if (rc)
        alq_claim_spec_free(spec);
    else
        *claim = spec;
    return rc;
}

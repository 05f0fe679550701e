/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON objects of the API server, any at all: slices that somebody put into our pool, and claims.
 * What must hold: a plan never touches what is not ours, sends only what the API server would take,
 * and comes to rest on a server that does what it is asked; comparing is symmetric; nothing that a
 * claim holds breaks what reads its status.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/config.h"
#include "daemon/kube/claim_devices.h"
#include "daemon/kube/pool.h"
#include "daemon/kube/slice.h"
#include "daemon/kube/slice_check.h"
#include "daemon/prepare/lookup.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MINOR 36
#define STEPS_MAX 600

static json_t *desired(void)
{
    static struct alq_gpu gpus[2];
    for (unsigned i = 0; i < 2; i++) {
        gpus[i].minor = gpus[i].index = i;
        gpus[i].numa_node = -1;
        gpus[i].memory_total_bytes = gpus[i].memory_promisable_bytes = 16ull << 30;
        memcpy(gpus[i].name, i ? "hami-gpu-1" : "hami-gpu-0", 11);
        memcpy(gpus[i].uuid, i ? "GPU-1" : "GPU-0", 6);
    }
    const struct alq_slice_server server = {"d", 36, 0};
    return alq_slice_layout(&(struct alq_gpu_list){gpus, 2}, &server, NULL);
}

static int is_ours(const json_t *slice)
{
    const char *driver = alq_json_str(slice, "spec.driver"),
               *node = alq_json_str(slice, "spec.nodeName");
    return driver && node && !strcmp(driver, ALQ_DRIVER_NAME_DEFAULT) && !strcmp(node, "node-a");
}

/* What a server does with the first action. */
static void carry_out(json_t *observed, const struct alq_pool_action *a, unsigned step)
{
    char name[32];
    if (a->verb == ALQ_POOL_CREATE) {
        snprintf(name, sizeof(name), "made-%u", step);
        REQUIRE(!alq_slice_check(json_object_get(a->body, "spec"), MINOR, NULL));
        alq_auto_json json_t *slice = json_deep_copy(a->body);
        json_object_set_new(json_object_get(slice, "metadata"), "name", json_string(name));
        json_object_set(observed, name, slice);
        return;
    }
    REQUIRE(a->name && is_ours(json_object_get(observed, a->name)));
    if (a->verb == ALQ_POOL_DELETE) {
        json_object_del(observed, a->name);
        return;
    }
    REQUIRE(!alq_slice_check(json_object_get(a->body, "spec"), MINOR, NULL));
    alq_auto_json json_t *slice = json_deep_copy(a->body);
    json_object_set(observed, a->name, slice);
}

/* As put_list of slices.c takes them: by their names. */
static json_t *observed_of(const json_t *value)
{
    size_t i;
    json_t *item, *observed = json_object();
    json_array_foreach (value, i, item) {
        const char *name = alq_json_str(item, "metadata.name");
        if (name)
            json_object_set(observed, name, item);
    }
    return observed;
}

static void plan_until_rest(json_t *observed)
{
    alq_auto_json json_t *layout = desired();
    struct alq_pool_accepted accepted = {0};
    size_t before = json_object_size(observed), ours = 0;
    const char *name;
    json_t *slice;
    json_object_foreach (observed, name, slice) {
        ours += is_ours(slice) != 0;
    }
    for (unsigned step = 0;; step++) {
        struct alq_pool_want want = {.driver = ALQ_DRIVER_NAME_DEFAULT,
                                     .node = "node-a",
                                     .node_uid = "node-uid",
                                     .layout = layout};
        struct alq_pool_plan plan;
        want.generation_floor = alq_pool_generation(&want, observed);
        REQUIRE(!alq_pool_plan(&want, observed, &accepted, &plan, NULL));
        size_t count = plan.count;
        if (count)
            carry_out(observed, &plan.actions[0], step);
        alq_pool_plan_clear(&plan);
        if (!count)
            break;
        REQUIRE(step < STEPS_MAX);
    }
    REQUIRE(json_object_size(observed) == before - ours + 1);
}

static void read_claim(const json_t *object)
{
    static char name[] = "c", pool[] = "node-a";
    static struct alq_share_spec share = {.gpu_uuid = "GPU-0", .device = "hami-gpu-0"};
    struct alq_claim_spec claim = {.uid = "u",
                                   .namespace_ = "n",
                                   .name = name,
                                   .pool = pool,
                                   .share_count = 1,
                                   .shares = &share};
    const struct alq_gpu_states gpus = {NULL, 0};
    json_t *devices = alq_claim_devices(&claim, ALQ_DRIVER_NAME_DEFAULT, &gpus, 0);
    (void)alq_claim_devices_are_told(object, devices, 1);
    (void)alq_claim_devices_are_told(object, devices, 0);
    (void)alq_claim_state_read(&claim, 200, object);
    (void)alq_claim_state_read(&claim, 404, object);
    json_decref(alq_claim_devices_apply(&claim, devices));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char paths[100];
    alq_auto_json json_t *value = NULL, *wanted = desired();
    if (size > 16384 || alq_json_parse((const char *)data, size, "input", &value, NULL))
        return 0;
    REQUIRE(alq_slice_is_same(value, value));
    REQUIRE(alq_slice_is_same(value, wanted) == alq_slice_is_same(wanted, value));
    alq_slice_dropped(value, wanted, paths, sizeof(paths));
    alq_slice_dropped(wanted, value, paths, sizeof(paths));
    (void)alq_slice_check(value, MINOR, NULL);
    read_claim(value);
    alq_auto_json json_t *observed = observed_of(value);
    plan_until_rest(observed);
    return 0;
}

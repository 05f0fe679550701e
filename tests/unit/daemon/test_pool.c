/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The publisher's decisions, against a model of the API server: each plan's first action is carried
 * out as the server would, until nothing is left to do, as slices.c does it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "conformance.h"
#include "daemon/kube/pool.h"
#include "daemon/kube/slice.h"

#define DRIVER "hami-core-gpu.project-hami.io"
#define NODE "node-a"
#define UID "a4f8f7b1-bd39-44a7-aa21-3915ae4ea6b1"

struct model {
    json_t *slices;
    struct alq_pool_want want;
    struct alq_pool_accepted accepted;
    unsigned made, writes, version;
    int is_gate_off;
    int dropped_reports;
};

static json_t *layout(unsigned gpus, int is_one_per_slice)
{
    struct alq_gpu list[16] = {0};
    for (unsigned i = 0; i < gpus; i++) {
        snprintf(list[i].uuid, sizeof(list[i].uuid), "GPU-%u", i);
        snprintf(list[i].name, sizeof(list[i].name), "hami-gpu-%u", i);
        list[i].memory_promisable_bytes = 80ull << 30;
    }
    const struct alq_slice_server server = {"d", is_one_per_slice ? 34 : 35, 0};
    return alq_slice_layout(&(struct alq_gpu_list){list, gpus}, &server, NULL);
}

static void model_init(struct model *m, json_t *desired)
{
    *m = (struct model){.slices = json_object()};
    m->want =
        (struct alq_pool_want){.driver = DRIVER, .node = NODE, .node_uid = UID, .layout = desired};
}

static void model_fini(struct model *m)
{
    json_decref(m->slices);
    json_decref((json_t *)m->want.layout);
    alq_pool_accepted_clear(&m->accepted);
}

static void want(struct model *m, json_t *desired)
{
    json_decref((json_t *)m->want.layout);
    m->want.layout = desired;
}

/* As 60-gate-off recorded it. */
static void take_away(json_t *spec)
{
    size_t i;
    json_t *device, *capacity;
    const char *name;
    json_array_foreach (json_object_get(spec, "devices"), i, device) {
        json_object_del(device, "allowMultipleAllocations");
        json_object_foreach (json_object_get(device, "capacity"), name, capacity) {
            json_object_del(capacity, "requestPolicy");
        }
    }
}

static void store(struct model *m, const char *name, const json_t *body)
{
    char version[16];
    json_t *slice = json_deep_copy(body), *metadata = json_object_get(slice, "metadata");
    snprintf(version, sizeof(version), "%u", ++m->version);
    json_object_set_new(metadata, "name", json_string(name));
    json_object_set_new(metadata, "uid", json_sprintf("uid-%s", name));
    json_object_set_new(metadata, "resourceVersion", json_string(version));
    if (m->is_gate_off)
        take_away(json_object_get(slice, "spec"));
    json_object_set_new(m->slices, name, slice);
    m->dropped_reports += alq_pool_accept(&m->accepted, alq_json_at(body, "spec.devices"),
                                          alq_json_at(slice, "spec.devices"));
}

/* One write. Returns 0 when there was none to do. */
static int step(struct model *m)
{
    struct alq_pool_plan plan;
    int64_t highest = alq_pool_generation(&m->want, m->slices);
    if (highest > m->want.generation_floor)
        m->want.generation_floor = highest;
    assert_int_equal(alq_pool_plan(&m->want, m->slices, &m->accepted, &plan, NULL), 0);
    int has_action = plan.count > 0;
    if (has_action) {
        struct alq_pool_action *a = &plan.actions[0];
        char name[32];
        m->writes++;
        if (a->verb == ALQ_POOL_DELETE) {
            const json_t *slice = json_object_get(m->slices, a->name);
            assert_string_equal(alq_json_str(a->body, "preconditions.uid"),
                                alq_json_str(slice, "metadata.uid"));
            assert_string_equal(alq_json_str(a->body, "preconditions.resourceVersion"),
                                alq_json_str(slice, "metadata.resourceVersion"));
            json_object_del(m->slices, a->name);
        } else if (a->verb == ALQ_POOL_UPDATE) {
            assert_string_equal(
                alq_json_str(a->body, "metadata.resourceVersion"),
                alq_json_str(json_object_get(m->slices, a->name), "metadata.resourceVersion"));
            store(m, a->name, a->body);
        } else {
            snprintf(name, sizeof(name), "slice-%u", m->made++);
            store(m, name, a->body);
        }
    }
    alq_pool_plan_clear(&plan);
    return has_action;
}

/* What a scheduler makes of the pool: devices of the highest generation, or -1 when it is
 * incomplete. */
static int usable_devices(const struct model *m)
{
    int64_t highest = alq_pool_generation(&m->want, m->slices);
    const char *name;
    json_t *slice;
    int devices = 0;
    json_int_t slices = 0, expected = 0;
    json_object_foreach (m->slices, name, slice) {
        if (strcmp(alq_json_str(slice, "spec.driver"), DRIVER) ||
            strcmp(alq_json_str(slice, "spec.pool.name"), NODE) ||
            json_integer_value(alq_json_at(slice, "spec.pool.generation")) != highest)
            continue;
        slices++;
        expected = json_integer_value(alq_json_at(slice, "spec.pool.resourceSliceCount"));
        devices += (int)json_array_size(alq_json_at(slice, "spec.devices"));
    }
    return slices == expected ? devices : -1;
}

/* Until it rests; returns the number of writes. */
static unsigned settle(struct model *m)
{
    unsigned before = m->writes;
    while (step(m)) {
        if (m->writes - before > 50)
            fail_msg("no end of writing");
    }
    assert_false(step(m));
    return m->writes - before;
}

static json_t *slice_at(struct model *m, const char *name)
{
    json_t *slice = json_object_get(m->slices, name);
    assert_non_null(slice);
    return slice;
}

static json_int_t generation(struct model *m)
{
    return (json_int_t)alq_pool_generation(&m->want, m->slices);
}

static void plan_for_nothing_creates_all_and_rests(void **state)
{
    (void)state;
    for (int one = 0; one < 2; one++) {
        struct model m;
        model_init(&m, layout(3, one));
        assert_int_equal(settle(&m), one ? 3 : 1);
        assert_int_equal(usable_devices(&m), 3);
        assert_int_equal(generation(&m), 1);
        json_t *slice = slice_at(&m, "slice-0");
        assert_string_equal(alq_json_str(slice, "metadata.generateName"),
                            "00000-" DRIVER "-" NODE "-");
        json_t *owner = json_array_get(alq_json_at(slice, "metadata.ownerReferences"), 0);
        assert_string_equal(alq_json_str(owner, "uid"), UID);
        assert_string_equal(alq_json_str(owner, "kind"), "Node");
        model_fini(&m);
    }
}

static void plan_for_slices_as_servers_store_them_is_empty(void **state)
{
    static const char *const names[] = {"slices/created-1.34.json", "slices/created-1.36.json"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        alq_auto_json json_t *recorded = conformance_json(names[i]);
        json_t *sent = json_object_get(recorded, "sent");
        json_t *stored = json_object_get(recorded, "stored");
        json_t *spec = json_object_get(stored, "spec");
        struct model m;
        model_init(&m, json_pack("[O]", json_object_get(json_object_get(sent, "spec"), "devices")));
        json_object_set_new(json_object_get(spec, "pool"), "resourceSliceCount", json_integer(1));
        m.want.node_uid =
            alq_json_str(json_array_get(alq_json_at(stored, "metadata.ownerReferences"), 0), "uid");
        json_object_set(m.slices, alq_json_str(stored, "metadata.name"), stored);
        assert_int_equal(settle(&m), 0);
        model_fini(&m);
    }
}

static void plan_after_all_were_deleted_creates_them_at_a_higher_generation(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(2, 1));
    settle(&m);
    json_object_clear(m.slices);
    assert_int_equal(settle(&m), 2);
    assert_int_equal(usable_devices(&m), 2);
    assert_int_equal(generation(&m), 2);
    model_fini(&m);
}

static void plan_after_one_was_deleted_restores_just_that(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(3, 1));
    settle(&m);
    json_object_del(m.slices, "slice-1");
    assert_int_equal(settle(&m), 1);
    assert_int_equal(usable_devices(&m), 3);
    assert_int_equal(generation(&m), 1);
    model_fini(&m);
}

static void plan_after_an_edit_corrects_it_in_place(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(3, 1));
    settle(&m);
    json_t *device = json_array_get(alq_json_at(slice_at(&m, "slice-1"), "spec.devices"), 0);
    json_object_set_new(alq_json_at(device, "capacity.memory"), "value", json_string("1Gi"));
    assert_int_equal(settle(&m), 1);
    assert_int_equal(generation(&m), 1);
    device = json_array_get(alq_json_at(slice_at(&m, "slice-1"), "spec.devices"), 0);
    assert_string_equal(alq_json_str(device, "capacity.memory.value"), "80Gi");
    model_fini(&m);
}

static void plan_after_foreign_additions_removes_them(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(1, 1));
    settle(&m);
    json_t *device = json_array_get(alq_json_at(slice_at(&m, "slice-0"), "spec.devices"), 0);
    json_object_set_new(json_object_get(device, "attributes"), "more",
                        json_pack("{s:i}", "int", 1));
    assert_int_equal(settle(&m), 1);
    json_object_set_new(json_object_get(slice_at(&m, "slice-0"), "spec"), "sharedCounters",
                        json_pack("[{}]"));
    assert_int_equal(settle(&m), 1);
    json_object_del(json_object_get(slice_at(&m, "slice-0"), "metadata"), "ownerReferences");
    assert_int_equal(settle(&m), 1);
    model_fini(&m);
}

static void plan_for_two_changes_moves_the_pool_to_the_next_generation(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(3, 1));
    settle(&m);
    json_t *desired = layout(3, 1);
    for (size_t i = 0; i < 2; i++)
        json_object_set_new(
            json_object_get(json_array_get(json_array_get(desired, i), 0), "attributes"),
            "driverVersion", json_pack("{s:s}", "version", "580.1.0"));
    want(&m, desired);
    assert_true(step(&m));
    assert_int_equal(usable_devices(&m), -1); /* never half old and half new */
    assert_int_equal(settle(&m), 2);
    assert_int_equal(generation(&m), 2);
    assert_int_equal(usable_devices(&m), 3);
    model_fini(&m);
}

static void plan_for_more_and_fewer_gpus_never_shows_a_wrong_number(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(2, 1));
    settle(&m);
    want(&m, layout(4, 1));
    while (step(&m)) {
        int devices = usable_devices(&m);
        assert_true(devices == -1 || devices == 4);
    }
    assert_int_equal(generation(&m), 2);
    want(&m, layout(1, 1));
    settle(&m);
    assert_int_equal(usable_devices(&m), 1);
    assert_int_equal(json_object_size(m.slices), 1);
    assert_int_equal(generation(&m), 3);
    want(&m, layout(0, 1));
    settle(&m);
    assert_int_equal(json_object_size(m.slices), 0);
    model_fini(&m);
}

static void plan_after_a_server_upgrade_changes_the_layout(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(3, 1));
    settle(&m);
    want(&m, layout(3, 0));
    settle(&m);
    assert_int_equal(json_object_size(m.slices), 1);
    assert_int_equal(usable_devices(&m), 3);
    want(&m, layout(3, 1));
    settle(&m);
    assert_int_equal(json_object_size(m.slices), 3);
    assert_int_equal(usable_devices(&m), 3);
    assert_int_equal(generation(&m), 3);
    model_fini(&m);
}

static void plan_with_a_newer_foreign_generation_goes_above_it(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(2, 1));
    settle(&m);
    json_t *foreign = json_deep_copy(slice_at(&m, "slice-0"));
    json_object_set_new(json_object_get(foreign, "metadata"), "name", json_string("foreign"));
    json_object_set_new(alq_json_at(foreign, "spec.pool"), "generation", json_integer(7));
    json_object_set_new(json_array_get(alq_json_at(foreign, "spec.devices"), 0), "name",
                        json_string("old-gpu"));
    json_object_set_new(m.slices, "foreign", foreign);
    settle(&m);
    assert_null(json_object_get(m.slices, "foreign"));
    assert_int_equal(usable_devices(&m), 2);
    model_fini(&m);
}

static void plan_removes_a_second_copy_and_other_pools_of_ours(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(1, 1));
    settle(&m);
    json_t *copy = json_deep_copy(slice_at(&m, "slice-0"));
    json_object_set_new(json_object_get(copy, "metadata"), "name", json_string("zz-copy"));
    json_object_set_new(json_object_get(copy, "metadata"), "uid", json_string("other"));
    json_object_set_new(m.slices, "zz-copy", copy);
    json_t *pool = json_deep_copy(copy);
    json_object_set_new(json_object_get(pool, "metadata"), "name", json_string("zz-pool"));
    json_object_set_new(alq_json_at(pool, "spec.pool"), "name", json_string("generated"));
    json_object_set_new(m.slices, "zz-pool", pool);
    assert_int_equal(settle(&m), 2);
    assert_int_equal(json_object_size(m.slices), 1);
    slice_at(&m, "slice-0");
    model_fini(&m);
}

static void plan_leaves_other_drivers_and_nodes_alone(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(1, 1));
    settle(&m);
    json_t *other = json_deep_copy(slice_at(&m, "slice-0"));
    json_object_set_new(json_object_get(other, "spec"), "driver", json_string("gpu.nvidia.com"));
    json_object_set_new(m.slices, "other-driver", other);
    other = json_deep_copy(slice_at(&m, "slice-0"));
    json_object_set_new(json_object_get(other, "spec"), "nodeName", json_string("node-b"));
    json_object_set_new(m.slices, "other-node", other);
    assert_int_equal(settle(&m), 0);
    want(&m, layout(0, 1));
    settle(&m);
    assert_int_equal(json_object_size(m.slices), 2);
    model_fini(&m);
}

static void plan_for_another_node_uid_renews_the_owner(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(2, 1));
    settle(&m);
    m.want.node_uid = "another";
    assert_int_equal(settle(&m), 2);
    json_t *owners = alq_json_at(slice_at(&m, "slice-0"), "metadata.ownerReferences");
    assert_string_equal(alq_json_str(json_array_get(owners, 0), "uid"), "another");
    model_fini(&m);
}

static void plan_with_a_gate_off_writes_once_and_reports_once(void **state)
{
    (void)state;
    struct model m;
    model_init(&m, layout(2, 0));
    m.is_gate_off = 1;
    assert_int_equal(settle(&m), 1);
    assert_int_equal(m.dropped_reports, 1);
    /* Wiped, and published again: neither a loop nor a second report. */
    json_object_clear(m.slices);
    assert_int_equal(settle(&m), 1);
    assert_int_equal(m.dropped_reports, 1);
    /* Somebody's edit is still corrected. */
    json_t *device = json_array_get(alq_json_at(slice_at(&m, "slice-1"), "spec.devices"), 0);
    json_object_set_new(device, "name", json_string("hami-gpu-9"));
    assert_int_equal(settle(&m), 1);
    assert_int_equal(m.dropped_reports, 1);
    model_fini(&m);
}

static void plan_from_any_mess_comes_to_rest_complete(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 300; round++) {
        struct model m;
        model_init(&m, layout(1 + (unsigned)round % 4, round & 1));
        settle(&m);
        for (int i = 0; i < 4; i++) {
            const char *name;
            json_t *slice;
            void *next;
            seed = seed * 1103515245 + 12345;
            unsigned what = seed >> 16;
            json_object_foreach_safe (m.slices, next, name, slice) {
                seed = seed * 1103515245 + 12345;
                switch ((seed >> 16) % 6) {
                case 0:
                    json_object_del(m.slices, name);
                    break;
                case 1:
                    json_object_set_new(alq_json_at(slice, "spec.pool"), "generation",
                                        json_integer(seed >> 29));
                    break;
                case 2:
                    json_object_set_new(alq_json_at(slice, "spec.pool"), "resourceSliceCount",
                                        json_integer(1 + (seed >> 29)));
                    break;
                case 3:
                    json_object_set_new(json_array_get(alq_json_at(slice, "spec.devices"), 0),
                                        "name", json_string("hami-gpu-1"));
                    break;
                default:
                    break;
                }
            }
            if (what % 3 == 0)
                want(&m, layout(1 + what % 5, what & 1));
            if (what % 2)
                step(&m); /* interrupted in the middle */
        }
        settle(&m);
        assert_int_equal(json_object_size(m.slices), json_array_size(m.want.layout));
        assert_true(usable_devices(&m) > 0);
        model_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_for_nothing_creates_all_and_rests),
        cmocka_unit_test(plan_for_slices_as_servers_store_them_is_empty),
        cmocka_unit_test(plan_after_all_were_deleted_creates_them_at_a_higher_generation),
        cmocka_unit_test(plan_after_one_was_deleted_restores_just_that),
        cmocka_unit_test(plan_after_an_edit_corrects_it_in_place),
        cmocka_unit_test(plan_after_foreign_additions_removes_them),
        cmocka_unit_test(plan_for_two_changes_moves_the_pool_to_the_next_generation),
        cmocka_unit_test(plan_for_more_and_fewer_gpus_never_shows_a_wrong_number),
        cmocka_unit_test(plan_after_a_server_upgrade_changes_the_layout),
        cmocka_unit_test(plan_with_a_newer_foreign_generation_goes_above_it),
        cmocka_unit_test(plan_removes_a_second_copy_and_other_pools_of_ours),
        cmocka_unit_test(plan_leaves_other_drivers_and_nodes_alone),
        cmocka_unit_test(plan_for_another_node_uid_renews_the_owner),
        cmocka_unit_test(plan_with_a_gate_off_writes_once_and_reports_once),
        cmocka_unit_test(plan_from_any_mess_comes_to_rest_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

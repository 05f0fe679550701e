/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a GPU as a device, and equality by meaning against what API servers stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "conformance.h"
#include "daemon/kube/slice.h"

#define MIB (1024ull * 1024)

#define DRIVER "gpu.example.com"
static const struct alq_slice_server server34 = {DRIVER, 34, 0}, server36 = {DRIVER, 36, 0},
                                     taintless = {DRIVER, 36, 1};

static struct alq_gpu h200(void)
{
    return (struct alq_gpu){.uuid = "GPU-2fa81118-5a5f-aa66-7660-471eed407181",
                            .name = "hami-gpu-0",
                            .product_name = "NVIDIA H200",
                            .brand = "Nvidia",
                            .architecture = "Hopper",
                            .compute_capability = "9.0.0",
                            .driver_version = "570.86.10",
                            .cuda_driver_version = "12.8.0",
                            .pci_bus_id = "0000:65:00.0",
                            .pcie_root = "pci0000:64",
                            .memory_total_bytes = 143771 * MIB,
                            .memory_promisable_bytes = 143771 * MIB};
}

static void device_of_a_known_gpu_is_what_was_recorded(void **state)
{
    (void)state;
    struct alq_gpu gpu = h200();
    json_t *device = NULL;
    assert_int_equal(alq_slice_device(&gpu, &server36, &device, NULL), 0);
    alq_auto_json json_t *recorded = conformance_json("slices/created-1.34.json");
    assert_true(json_equal(
        device, json_array_get(alq_json_at(json_object_get(recorded, "sent"), "spec.devices"), 0)));
    json_decref(device);
}

static void device_leaves_out_what_is_unknown(void **state)
{
    (void)state;
    struct alq_gpu gpu = h200();
    gpu.pcie_root[0] = gpu.pci_bus_id[0] = gpu.cuda_driver_version[0] = '\0';
    gpu.numa_node = -1;
    alq_auto_json json_t *device = NULL;
    assert_int_equal(alq_slice_device(&gpu, &server36, &device, NULL), 0);
    json_t *attributes = json_object_get(device, "attributes");
    static const char *const gone[] = {
        "pcieBusID", "cudaDriverVersion", "resource.kubernetes.io/pciBusID",
        "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"};
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
        assert_null(json_object_get(attributes, gone[i]));
    assert_string_equal(alq_json_str(attributes, "uuid.string"), gpu.uuid);
}

static void device_memory_is_rounded_down_to_mi(void **state)
{
    (void)state;
    struct alq_gpu gpu = h200();
    alq_auto_json json_t *device = NULL;
    gpu.memory_promisable_bytes = 16384 * MIB + MIB - 1;
    assert_int_equal(alq_slice_device(&gpu, &server36, &device, NULL), 0);
    assert_string_equal(alq_json_str(device, "capacity.memory.value"), "16Gi");
    assert_string_equal(alq_json_str(device, "capacity.memory.requestPolicy.validRange.max"),
                        "16Gi");
}

static void device_without_memory_is_refused(void **state)
{
    (void)state;
    struct alq_gpu gpu = h200();
    json_t *device = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    gpu.memory_promisable_bytes = 2 * MIB - 1;
    assert_int_equal(alq_slice_device(&gpu, &server36, &device, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, gpu.uuid));
    assert_null(device);
}

static void device_long_name_is_cut_before_a_character(void **state)
{
    (void)state;
    struct alq_gpu gpu = h200();
    memset(gpu.product_name, 'a', 63);
    memcpy(gpu.product_name + 63, "\xc3\xa9", 3);
    alq_auto_json json_t *device = NULL;
    assert_int_equal(alq_slice_device(&gpu, &server36, &device, NULL), 0);
    assert_int_equal(strlen(alq_json_str(device, "attributes.productName.string")), 63);
}

static void device_has_a_taint_for_each_fault(void **state)
{
    (void)state;
    struct alq_gpu gpu = h200();
    gpu.faults[ALQ_FAULT_XID] = (struct alq_fault){ALQ_FAULT_UNFIT, 1767225600, "48", "..."};
    gpu.faults[ALQ_FAULT_HANG] = (struct alq_fault){ALQ_FAULT_NOTICE, 1767225600, "", "..."};
    alq_auto_json json_t *device = NULL, *old = NULL;
    assert_int_equal(alq_slice_device(&gpu, &server36, &device, NULL), 0);
    alq_auto_json json_t *taints =
        json_loads("[{\"key\":\"" DRIVER "/xid\",\"value\":\"48\",\"effect\":\"NoSchedule\","
                   "\"timeAdded\":\"2026-01-01T00:00:00Z\"},"
                   "{\"key\":\"" DRIVER "/unresponsive\",\"effect\":\"None\","
                   "\"timeAdded\":\"2026-01-01T00:00:00Z\"}]",
                   0, NULL);
    assert_true(json_equal(json_object_get(device, "taints"), taints));
    /* 1.34 knows no effect None. */
    assert_int_equal(alq_slice_device(&gpu, &server34, &old, NULL), 0);
    assert_int_equal(json_array_size(json_object_get(old, "taints")), 1);
}

static void layout_is_without_unfit_gpus_where_taints_do_not_stick(void **state)
{
    (void)state;
    struct alq_gpu gpus[2] = {h200(), h200()};
    struct alq_gpu_list list = {gpus, 2};
    gpus[0].faults[ALQ_FAULT_XID] = (struct alq_fault){ALQ_FAULT_UNFIT, 0, "48", "..."};
    gpus[1].faults[ALQ_FAULT_XID] = (struct alq_fault){ALQ_FAULT_NOTICE, 0, "31", "..."};
    snprintf(gpus[1].name, sizeof(gpus[1].name), "hami-gpu-1");
    alq_auto_json json_t *layout = alq_slice_layout(&list, &taintless, NULL);
    const json_t *devices = json_array_get(layout, 0);
    assert_int_equal(json_array_size(devices), 1);
    assert_string_equal(alq_json_str(json_array_get(devices, 0), "name"), "hami-gpu-1");
    assert_null(json_object_get(json_array_get(devices, 0), "taints"));
    alq_auto_json json_t *tainted = alq_slice_layout(&list, &server36, NULL);
    assert_int_equal(json_array_size(json_array_get(tainted, 0)), 2);
}

static void layout_puts_gpus_as_the_server_needs_them(void **state)
{
    (void)state;
    struct alq_gpu gpus[3] = {h200(), h200(), h200()};
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_gpu_list list = {gpus, 3};
    alq_auto_json json_t *single = alq_slice_layout(&list, &server34, &err);
    assert_int_equal(json_array_size(single), 3);
    gpus[1].memory_promisable_bytes = 0;
    alq_auto_json json_t *all = alq_slice_layout(&list, &server36, &err);
    assert_int_equal(json_array_size(all), 1);
    assert_int_equal(json_array_size(json_array_get(all, 0)), 2);
    assert_int_equal(err.code, ALQ_EINVAL);
    list.count = 0;
    alq_auto_json json_t *none = alq_slice_layout(&list, &server36, &err);
    assert_int_equal(json_array_size(none), 0);
}

static void is_same_takes_what_servers_make_of_quantities(void **state)
{
    static const char *const names[] = {"slices/normalisation-1.34.json",
                                        "slices/normalisation-1.36.json"};
    (void)state;
    size_t compared = 0;
    for (size_t n = 0; n < 2; n++) {
        alq_auto_json json_t *cases = conformance_json(names[n]);
        size_t i;
        json_t *c;
        json_array_foreach (cases, i, c) {
            alq_auto_json json_t *sent = json_pack("{s:O}", "capacity", json_object_get(c, "sent"));
            alq_auto_json json_t *stored =
                json_pack("{s:O}", "capacity", json_object_get(c, "stored"));
            if (!alq_slice_is_same(sent, stored))
                fail_msg("%s: %s", names[n], alq_json_str(c, "note"));
            compared++;
        }
    }
    assert_true(compared >= 8);
}

static void is_same_sees_every_difference(void **state)
{
    static const char *const rows[][2] = {
        {"{\"a\":1}", "{\"a\":2}"},
        {"{\"a\":1}", "{\"a\":\"1\"}"},
        {"{\"a\":1}", "{}"},
        {"{}", "{\"a\":1}"},
        {"{\"a\":[1,2]}", "{\"a\":[2,1]}"},
        {"{\"a\":[1]}", "{\"a\":[1,2]}"},
        {"{\"a\":false}", "{}"},
        {"{\"a\":\"16Gi\"}", "{\"a\":\"16384Mi\"}"},
        {"{\"capacity\":{\"m\":{\"value\":\"16Gi\"}}}",
         "{\"capacity\":{\"m\":{\"value\":\"16G\"}}}"},
        {"{\"capacity\":{\"m\":{\"value\":\"x\"}}}", "{\"capacity\":{\"m\":{\"value\":\"y\"}}}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        alq_auto_json json_t *a = json_loads(rows[i][0], 0, NULL);
        alq_auto_json json_t *b = json_loads(rows[i][1], 0, NULL);
        if (alq_slice_is_same(a, b) || alq_slice_is_same(b, a))
            fail_msg("%s and %s", rows[i][0], rows[i][1]);
    }
    alq_auto_json json_t *a = json_loads("{\"a\":null,\"b\":{},\"c\":[],\"d\":1}", 0, NULL);
    alq_auto_json json_t *b = json_loads("{\"d\":1}", 0, NULL);
    assert_true(alq_slice_is_same(a, b) && alq_slice_is_same(b, a));
}

static void dropped_names_what_a_gate_took_away(void **state)
{
    char paths[400];
    (void)state;
    alq_auto_json json_t *recorded = conformance_json("slices/gate-off-1.34.json");
    json_t *sent = alq_json_at(json_object_get(recorded, "sent"), "spec.devices");
    json_t *stored = alq_json_at(json_object_get(recorded, "stored"), "spec.devices");
    alq_slice_dropped(sent, stored, paths, sizeof(paths));
    assert_non_null(strstr(paths, "[0].allowMultipleAllocations"));
    assert_non_null(strstr(paths, "[1].capacity.cores.requestPolicy"));
    assert_non_null(strstr(paths, "[0].taints"));
    alq_slice_dropped(sent, sent, paths, sizeof(paths));
    assert_string_equal(paths, "");
    char small[16];
    alq_slice_dropped(sent, stored, small, sizeof(small));
    assert_int_equal(strlen(small), 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_of_a_known_gpu_is_what_was_recorded),
        cmocka_unit_test(device_leaves_out_what_is_unknown),
        cmocka_unit_test(device_memory_is_rounded_down_to_mi),
        cmocka_unit_test(device_without_memory_is_refused),
        cmocka_unit_test(device_long_name_is_cut_before_a_character),
        cmocka_unit_test(device_has_a_taint_for_each_fault),
        cmocka_unit_test(layout_is_without_unfit_gpus_where_taints_do_not_stick),
        cmocka_unit_test(layout_puts_gpus_as_the_server_needs_them),
        cmocka_unit_test(is_same_takes_what_servers_make_of_quantities),
        cmocka_unit_test(is_same_sees_every_difference),
        cmocka_unit_test(dropped_names_what_a_gate_took_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device file: what is derived, and that each mistake is named with its place. Single-threaded.
 */
#include "common/devfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static struct sim_machine machine;
static struct alq_err err;

static int parse(const char *text)
{
    err = (struct alq_err){0};
    return sim_machine_parse(text, strlen(text), "m.json", &machine, &err);
}

static void defaults_go_together(void **state)
{
    (void)state;
    assert_int_equal(
        parse("{\"devices\":[{\"memory\":\"80Gi\"},{\"name\":\"NVIDIA A100\",\"memory\":"
              "42949672960}]}"),
        0);
    assert_int_equal(machine.device_count, 2);
    assert_int_equal(machine.profile, SIM_PROFILE_550);
    assert_int_equal(machine.device[0].total_bytes, 80ull << 30);
    assert_int_equal(machine.device[0].sms, 132);
    assert_int_equal(machine.device[0].reserved_bytes, 512 * MIB);
    assert_int_equal(machine.device[0].context_bytes, 295 * MIB);
    assert_int_equal(machine.device[1].total_bytes, 40ull << 30);
    assert_int_equal(machine.device[1].sms, 108);
    assert_int_equal(machine.device[1].minor, 1);
    assert_int_equal(machine.device[1].cc_major, 8);
    assert_string_not_equal(machine.device[0].uuid, machine.device[1].uuid);
    assert_int_equal(strlen(machine.device[0].uuid), 40);
    assert_int_not_equal(machine.device[0].pci_bus, machine.device[1].pci_bus);
}

static void every_key_is_read(void **state)
{
    const struct sim_device_info *d = &machine.device[0];

    (void)state;
    assert_int_equal(
        parse("{\"devices\":[{\"name\":\"X\",\"memory\":\"1Gi\",\"sms\":7,"
              "\"uuid\":\"GPU-00112233-4455-6677-8899-aabbccddeeff\",\"minor\":5,"
              "\"pci\":\"0002:65:1f.0\",\"profile\":\"13.0\",\"serial\":\"42\","
              "\"reservedBytes\":1000,\"contextBytes\":\"1M\",\"moduleBytes\":0,\"numaNode\":1,"
              "\"computeCapability\":\"12.0\"}]}"),
        0);
    assert_string_equal(d->uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    assert_int_equal(d->uuid_bytes[15], 0xff);
    assert_int_equal(d->pci_domain, 2);
    assert_int_equal(d->pci_bus, 0x65);
    assert_int_equal(d->pci_device, 0x1f);
    assert_int_equal(d->profile, SIM_PROFILE_13_0);
    assert_int_equal(d->reserved_bytes, 1024);
    assert_int_equal(d->context_bytes, 1000448);
    assert_int_equal(d->module_bytes, 0);
    assert_int_equal(d->numa_node, 1);
    assert_int_equal(d->cc_major, 12);
    assert_string_equal(d->serial, "42");
}

static void mistakes_are_named_with_file_and_key(void **state)
{
    static const struct {
        const char *device, *says;
    } rows[] = {
        {"[]", "devices[0]: give an object"},
        {"{}", "devices[0].memory: is missing"},
        {"{\"memory\":\"much\"}", "devices[0].memory"},
        {"{\"memory\":true}", "devices[0].memory"},
        {"{\"memory\":-1}", "devices[0].memory"},
        {"{\"memory\":\"1Mi\"}", "from 64Mi"},
        {"{\"memory\":\"1Gi\",\"sms\":0}", "devices[0].sms"},
        {"{\"memory\":\"1Gi\",\"sms\":\"many\"}", "devices[0].sms"},
        {"{\"memory\":\"1Gi\",\"uuid\":\"GPU-1\"}", "devices[0].uuid"},
        {"{\"memory\":\"1Gi\",\"pci\":\"65:00\"}", "devices[0].pci"},
        {"{\"memory\":\"1Gi\",\"profile\":\"535.1\"}", "devices[0].profile"},
        {"{\"memory\":\"1Gi\",\"name\":\"\"}", "devices[0].name"},
        {"{\"memory\":\"1Gi\",\"computeCapability\":\"nine\"}", "devices[0].computeCapability"},
        {"{\"memory\":\"1Gi\",\"contextBytes\":\"1Gi\"}", "devices[0].contextBytes"},
        {"{\"memory\":\"1Gi\",\"reservedBytes\":\"512Mi\"}", "devices[0].reservedBytes"},
        {"{\"memory\":\"1Gi\",\"Memory\":1}", "\"Memory\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];

        snprintf(text, sizeof(text), "{\"devices\":[%s]}", rows[i].device);
        assert_int_not_equal(parse(text), 0);
        if (!strstr(err.text, rows[i].says) || !strstr(err.text, "m.json"))
            fail_msg("%s: %s", text, err.text);
    }
}

static void devices_that_share_a_name_are_refused(void **state)
{
    (void)state;
    assert_int_not_equal(
        parse("{\"devices\":[{\"memory\":\"1Gi\",\"minor\":1},{\"memory\":\"1Gi\"}]}"), 0);
    assert_non_null(strstr(err.text, "devices[1].minor"));
    assert_int_not_equal(
        parse("{\"devices\":[{\"memory\":\"1Gi\"},{\"memory\":\"1Gi\",\"profile\":\"535\"}]}"), 0);
    assert_non_null(strstr(err.text, "devices[1].profile"));
}

static void a_machine_without_devices_is_one(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"devices\":[]}"), 0);
    assert_int_equal(machine.device_count, 0);
    assert_int_not_equal(parse("{}"), 0);
    assert_int_not_equal(parse("[]"), 0);
    assert_int_not_equal(parse(""), 0);
}

static void kernel_rules_are_read_in_order(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"devices\":[],\"kernels\":[{\"name\":\"gemm*\",\"us\":250},"
                           "{\"name\":\"*\",\"waveUs\":12.5}]}"),
                     0);
    assert_string_equal(machine.rule[0].name, "gemm*");
    assert_int_equal(machine.rule[0].duration_ns, 250000);
    assert_false(machine.rule[0].is_wave);
    assert_int_equal(machine.rule[1].duration_ns, 12500);
    assert_true(machine.rule[1].is_wave);
    assert_string_equal(machine.rule[2].name, "");
}

static void mistakes_in_kernel_rules_are_named(void **state)
{
    static const struct {
        const char *rule, *says;
    } rows[] = {
        {"7", "kernels[0]"},
        {"{\"us\":1}", "kernels[0].name"},
        {"{\"name\":\"a\"}", "kernels[0].us"},
        {"{\"name\":\"a\",\"us\":1,\"waveUs\":1}", "kernels[0].us"},
        {"{\"name\":\"a\",\"us\":-1}", "kernels[0].us"},
        {"{\"name\":\"a\",\"waveUs\":\"1\"}", "kernels[0].waveUs"},
        {"{\"name\":\"a\",\"ms\":1}", "\"ms\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[128];

        snprintf(text, sizeof(text), "{\"devices\":[],\"kernels\":[%s]}", rows[i].rule);
        assert_int_not_equal(parse(text), 0);
        if (!strstr(err.text, rows[i].says) || !strstr(err.text, "m.json"))
            fail_msg("%s: %s", text, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_go_together),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(mistakes_are_named_with_file_and_key),
        cmocka_unit_test(devices_that_share_a_name_are_refused),
        cmocka_unit_test(a_machine_without_devices_is_one),
        cmocka_unit_test(kernel_rules_are_read_in_order),
        cmocka_unit_test(mistakes_in_kernel_rules_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs are offered, and how much of their memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/devices/choose.h"

#define MIB (1024ull * 1024)

static struct alq_gpu gpu(unsigned i)
{
    static const char *const products[] = {"NVIDIA H100 80GB HBM3", "NVIDIA A10", "NVIDIA GB10"};
    struct alq_gpu g = {.index = i, .minor = i, .memory_total_bytes = 1024 * MIB};
    snprintf(g.uuid, sizeof(g.uuid), "GPU-%08u", i);
    snprintf(g.pci_bus_id, sizeof(g.pci_bus_id), "0000:6%u:00.0", i);
    snprintf(g.product_name, sizeof(g.product_name), "%s", products[i]);
    g.memory_promisable_bytes = 1000 * MIB + 77;
    return g;
}

struct offer {
    struct alq_gpu gpus[3];
    struct alq_gpu_list list;
    struct alq_left_out left_out[4];
    size_t left_out_count;
};

static void choose(struct offer *o, const struct alq_config *cfg)
{
    for (unsigned i = 0; i < 3; i++)
        o->gpus[i] = gpu(i);
    o->list = (struct alq_gpu_list){o->gpus, 3};
    o->left_out_count = 0;
    alq_choose(cfg, &o->list, o->left_out, &o->left_out_count, 4);
}

static void matches_uuid_address_and_product(void **state)
{
    static const struct {
        const char *pattern;
        int is_match;
    } rows[] = {{"GPU-00000000", 1},
                {"gpu-00000000", 1},
                {"GPU-0000000*", 1},
                {"GPU-0000000", 0},
                {"0000:60:00.0", 1},
                {"00000000:60:00.0", 1},
                {"60:00.0", 1},
                {"61:00.0", 0},
                {"0000:6?:00.0", 1},
                {"NVIDIA H100*", 1},
                {"nvidia h100 80gb hbm3", 1},
                {"*H100*", 1},
                {"H100", 0},
                {"", 0},
                {"*", 1}};
    struct alq_gpu g = gpu(0), nowhere = gpu(0);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (alq_choose_matches(rows[i].pattern, &g) != rows[i].is_match)
            fail_msg("\"%s\"", rows[i].pattern);
    }
    nowhere.pci_bus_id[0] = '\0';
    assert_false(alq_choose_matches("60:00.0", &nowhere));
}

static void choose_keeps_what_is_included_and_not_excluded(void **state)
{
    char h100[] = "*H100*", a10[] = "61:00.0", first[] = "GPU-00000000";
    char *include[] = {h100, a10, NULL}, *exclude[] = {first, NULL};
    struct alq_config cfg = {.devices_include = include, .devices_exclude = exclude};
    struct offer o;
    (void)state;
    choose(&o, &cfg);
    assert_int_equal(o.list.count, 1);
    assert_string_equal(o.gpus[0].uuid, "GPU-00000001");
    assert_int_equal(o.left_out_count, 2);
    assert_string_equal(o.left_out[0].uuid, "GPU-00000000");
    assert_non_null(strstr(o.left_out[0].reason, "GPU-00000000"));
    assert_non_null(strstr(o.left_out[1].reason, "--devices-include"));
}

static void choose_takes_the_reserve_off_and_rounds_down(void **state)
{
    struct alq_config cfg = {.reserve_bytes = 100 * MIB + 1};
    struct offer o;
    (void)state;
    choose(&o, &cfg);
    assert_int_equal(o.list.count, 3);
    assert_int_equal(o.gpus[0].memory_promisable_bytes, 900 * MIB);
    assert_int_equal(o.gpus[0].memory_total_bytes, 1024 * MIB);
}

static void choose_leaves_out_what_has_nothing_to_promise(void **state)
{
    struct alq_config cfg = {.reserve_bytes = 999 * MIB};
    struct offer o;
    (void)state;
    choose(&o, &cfg);
    assert_int_equal(o.list.count, 0);
    assert_int_equal(o.left_out_count, 3);
    assert_non_null(strstr(o.left_out[0].reason, "--reserve"));
}

static void choose_offers_shared_memory_only_as_told(void **state)
{
    struct alq_config cfg = {0};
    struct alq_gpu g = gpu(2);
    struct alq_gpu_list list = {&g, 1};
    struct alq_left_out out[1];
    size_t count = 0;
    (void)state;
    g.memory_total_bytes = g.memory_promisable_bytes = 0;
    alq_choose(&cfg, &list, out, &count, 1);
    assert_int_equal(list.count, 0);
    assert_int_equal(count, 1);
    assert_non_null(strstr(out[0].reason, "--unified-memory"));

    cfg.unified_memory_bytes = 64 * 1024 * MIB;
    cfg.reserve_bytes = MIB;
    list.count = 1;
    count = 0;
    alq_choose(&cfg, &list, out, &count, 1);
    assert_int_equal(list.count, 1);
    assert_int_equal(g.memory_promisable_bytes, (64 * 1024 - 1) * MIB);
    assert_int_equal(g.memory_total_bytes, 64 * 1024 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_uuid_address_and_product),
        cmocka_unit_test(choose_keeps_what_is_included_and_not_excluded),
        cmocka_unit_test(choose_takes_the_reserve_off_and_rounds_down),
        cmocka_unit_test(choose_leaves_out_what_has_nothing_to_promise),
        cmocka_unit_test(choose_offers_shared_memory_only_as_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* HAMi-core's environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vgpu/env.h"

#define GIB (1ull << 30)

static struct alq_env env_of(const char *const *entries)
{
    struct alq_env env;
    alq_env_read((char *const *)(uintptr_t)entries, &env);
    return env;
}

static void read_of_nothing_has_no_limit(void **state)
{
    const char *const entries[] = {"PATH=/bin", "CUDA_VISIBLE_DEVICES=0", NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_false(env.has_limits);
    assert_null(env.bad_name);
    assert_string_equal(env.visible, "0");
    alq_env_read(NULL, &env);
    assert_false(env.has_limits);
}

static void read_of_one_value_limits_every_device(void **state)
{
    const char *const entries[] = {"CUDA_DEVICE_MEMORY_LIMIT=4g", "CUDA_DEVICE_SM_LIMIT=30", NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_true(env.has_limits);
    assert_true(env.is_uniform);
    assert_int_equal(env.memory_bytes[0], 4 * GIB);
    assert_int_equal(env.memory_bytes[15], 4 * GIB);
    assert_int_equal(env.compute_pct[7], 30);
    assert_int_equal(env.policy, ALQ_POLICY_HARD);
}

static void read_of_an_indexed_value_wins_in_any_order(void **state)
{
    const char *const entries[] = {"CUDA_DEVICE_MEMORY_LIMIT_1=1g", "CUDA_DEVICE_MEMORY_LIMIT=4g",
                                   "CUDA_DEVICE_MEMORY_LIMIT_15=2g", NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_false(env.is_uniform);
    assert_int_equal(env.memory_bytes[0], 4 * GIB);
    assert_int_equal(env.memory_bytes[1], GIB);
    assert_int_equal(env.memory_bytes[15], 2 * GIB);
}

static void read_of_names_that_are_no_index_leaves_them_alone(void **state)
{
    const char *const entries[] = {"CUDA_DEVICE_MEMORY_LIMIT_x=1g", "CUDA_DEVICE_MEMORY_LIMITS=1g",
                                   NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_false(env.has_limits);
    assert_null(env.bad_name);
}

static void read_of_an_index_beyond_the_last_is_bad(void **state)
{
    const char *const memory[] = {"CUDA_DEVICE_MEMORY_LIMIT_16=1g", NULL};
    const char *const compute[] = {"CUDA_DEVICE_SM_LIMIT_4294967296=30", NULL};
    struct alq_env env = env_of(memory);
    (void)state;
    assert_ptr_equal(env.bad_name, memory[0]);
    assert_true(env.bad_index);
    env = env_of(compute);
    assert_ptr_equal(env.bad_name, compute[0]);
    assert_true(env.bad_index);
}

static void read_of_zero_is_no_limit(void **state)
{
    const char *const entries[] = {"CUDA_DEVICE_MEMORY_LIMIT=0m", "CUDA_DEVICE_SM_LIMIT=100", NULL};
    (void)state;
    assert_false(env_of(entries).has_limits);
}

static void read_of_a_bad_quantity_names_it(void **state)
{
    const char *const entries[] = {"CUDA_DEVICE_MEMORY_LIMIT_0=lots", "CUDA_DEVICE_SM_LIMIT=30",
                                   NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_non_null(env.bad_name);
    assert_int_equal(env.bad_name_len, strlen("CUDA_DEVICE_MEMORY_LIMIT_0"));
    assert_string_equal(env.bad_value, "lots");
}

static void read_of_policy_disable_lifts_the_compute_limit_alone(void **state)
{
    const char *const compute[] = {"GPU_CORE_UTILIZATION_POLICY=DISABLE", "CUDA_DEVICE_SM_LIMIT=30",
                                   NULL};
    const char *const both[] = {"GPU_CORE_UTILIZATION_POLICY=disable", "CUDA_DEVICE_SM_LIMIT=30",
                                "CUDA_DEVICE_MEMORY_LIMIT=1g", NULL};
    (void)state;
    assert_false(env_of(compute).has_limits);
    assert_true(env_of(both).has_limits);
    assert_int_equal(env_of(both).policy, ALQ_POLICY_NONE);
}

static void read_of_priority_log_level_and_path(void **state)
{
    const char *const entries[] = {"CUDA_TASK_PRIORITY=0", "LIBCUDA_LOG_LEVEL=9",
                                   "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/x.cache",
                                   "ALIQUOT_CONTEXT_BYTES=300Mi", NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_int_equal(env.priority, 0);
    assert_int_equal(env.log_level, 4);
    assert_string_equal(env.usage_path, "/tmp/x.cache");
    assert_int_equal(env.context_bytes, 300ull << 20);
}

static void read_of_every_policy_but_disable_limits(void **state)
{
    const char *const forms[] = {
        "GPU_CORE_UTILIZATION_POLICY=force", "GPU_CORE_UTILIZATION_POLICY=FORCE",
        "GPU_CORE_UTILIZATION_POLICY=Default",
        "GPU_CORE_UTILIZATION_POLICY=", "GPU_CORE_UTILIZATION_POLICY=disabled"};
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *const entries[] = {forms[i], "CUDA_DEVICE_SM_LIMIT=30", NULL};
        assert_int_equal(env_of(entries).policy, ALQ_POLICY_HARD);
        assert_true(env_of(entries).has_limits);
    }
}

static void read_of_what_is_no_number_is_the_default(void **state)
{
    const char *const entries[] = {"CUDA_TASK_PRIORITY=high", "LIBCUDA_LOG_LEVEL=debug",
                                   "CUDA_DEVICE_MEMORY_SHARED_CACHE=", NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_int_equal(env.priority, 1);
    assert_int_equal(env.log_level, 0);
    assert_string_equal(env.usage_path, "/tmp/cudevshr.cache");
    assert_null(env.bad_name);
}

static void read_of_variables_without_a_meaning_here_changes_nothing(void **state)
{
    const char *const entries[] = {"ACTIVE_OOM_KILLER=1",       "RECORD_KERNEL_INTERVAL=-1",
                                   "CUDA_REDIRECT=/none",       "CUDA_OVERSUBSCRIBE=true",
                                   "CUDA_DISABLE_CONTROL=true", NULL};
    struct alq_env env = env_of(entries);
    (void)state;
    assert_false(env.has_limits);
    assert_null(env.bad_name);
}

static void read_tells_a_limit_of_the_first_alone(void **state)
{
    const char *const first[] = {"CUDA_DEVICE_MEMORY_LIMIT_0=1g", NULL};
    const char *const second[] = {"CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_SM_LIMIT_1=30",
                                  NULL};
    (void)state;
    assert_true(env_of(first).is_first_only);
    assert_false(env_of(second).is_first_only);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_of_nothing_has_no_limit),
        cmocka_unit_test(read_of_one_value_limits_every_device),
        cmocka_unit_test(read_of_an_indexed_value_wins_in_any_order),
        cmocka_unit_test(read_of_names_that_are_no_index_leaves_them_alone),
        cmocka_unit_test(read_of_an_index_beyond_the_last_is_bad),
        cmocka_unit_test(read_of_zero_is_no_limit),
        cmocka_unit_test(read_of_a_bad_quantity_names_it),
        cmocka_unit_test(read_of_policy_disable_lifts_the_compute_limit_alone),
        cmocka_unit_test(read_of_priority_log_level_and_path),
        cmocka_unit_test(read_of_every_policy_but_disable_limits),
        cmocka_unit_test(read_of_what_is_no_number_is_the_default),
        cmocka_unit_test(read_of_variables_without_a_meaning_here_changes_nothing),
        cmocka_unit_test(read_tells_a_limit_of_the_first_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

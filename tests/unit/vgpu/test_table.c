/* SPDX-License-Identifier: Apache-2.0 */
/* The table of live allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "vgpu/memory/table.h"

static struct alq_entry_value value_of(uint64_t bytes, uint16_t context, enum alq_kind kind)
{
    return (struct alq_entry_value){
        .counted_bytes = bytes, .context = context, .kind = (uint8_t)kind};
}

static int forget(void **state)
{
    (void)state;
    alq_table_forget();
    return 0;
}

static void take_of_what_was_put_returns_it_once(void **state)
{
    struct alq_entry_value in = value_of(77, 3, ALQ_KIND_LINEAR), out;
    (void)state;
    in.overhead_bytes = 435;
    in.device = 2;
    assert_true(alq_table_put(0x7f0000000000, &in));
    assert_true(alq_table_take(0x7f0000000000, ALQ_KIND_LINEAR, &out));
    assert_memory_equal(&in, &out, sizeof(in));
    assert_false(alq_table_take(0x7f0000000000, ALQ_KIND_LINEAR, &out));
}

static void take_of_a_pool_pointer_as_linear_finds_it(void **state)
{
    struct alq_entry_value in = value_of(1, 0, ALQ_KIND_POOL), out;
    (void)state;
    alq_table_put(0x1000, &in);
    assert_true(alq_table_take(0x1000, ALQ_KIND_LINEAR, &out));
    assert_int_equal(out.kind, ALQ_KIND_POOL);
}

static void take_of_another_kind_does_not_find_it(void **state)
{
    struct alq_entry_value in = value_of(1, 0, ALQ_KIND_HANDLE), out;
    (void)state;
    alq_table_put(1, &in);
    assert_false(alq_table_take(1, ALQ_KIND_PHYSICAL, &out));
    assert_false(alq_table_take(1, ALQ_KIND_LINEAR, &out));
    assert_true(alq_table_take(1, ALQ_KIND_HANDLE, &out));
}

static void put_of_many_finds_each_after_removals_in_any_order(void **state)
{
    enum { N = 200000 };
    struct alq_entry_value out;
    (void)state;
    for (uint64_t i = 1; i <= N; i++) {
        struct alq_entry_value in = value_of(i, (uint16_t)(i % 7), ALQ_KIND_LINEAR);
        assert_true(alq_table_put(i * 512, &in));
    }
    assert_int_equal(alq_table_count(), N);
    for (uint64_t i = 3; i <= N; i += 3)
        assert_true(alq_table_take(i * 512, ALQ_KIND_LINEAR, &out));
    for (uint64_t i = 1; i <= N; i++) {
        bool found = alq_table_get(i * 512, ALQ_KIND_LINEAR, &out);
        assert_int_equal(found, i % 3 != 0);
        if (found)
            assert_int_equal(out.counted_bytes, i);
    }
    assert_int_equal(alq_table_count(), N - N / 3);
}

static void add_bytes(const struct alq_entry_value *value, void *data)
{
    *(uint64_t *)data += value->counted_bytes;
}

static void take_context_takes_all_of_it_and_no_other(void **state)
{
    uint64_t sum = 0;
    struct alq_entry_value out;
    (void)state;
    for (uint64_t i = 1; i <= 10000; i++) {
        struct alq_entry_value in = value_of(10, i % 2 ? 4 : 5, ALQ_KIND_LINEAR);
        alq_table_put(i * 4096, &in);
    }
    assert_int_equal(alq_table_take_context(4, add_bytes, &sum), 5000);
    assert_int_equal(sum, 50000);
    assert_int_equal(alq_table_count(), 5000);
    assert_true(alq_table_get(2 * 4096, ALQ_KIND_LINEAR, &out));
    assert_false(alq_table_get(4096, ALQ_KIND_LINEAR, &out));
}

static void add_handle(uint64_t handle, const struct alq_entry_value *value, void *data)
{
    *(uint64_t *)data += handle + value->counted_bytes;
}

static void take_range_takes_the_kind_in_it_and_no_other(void **state)
{
    struct alq_entry_value mapping = value_of(1, 0, ALQ_KIND_MAPPING),
                           linear = value_of(1, 0, ALQ_KIND_LINEAR), out;
    uint64_t sum = 0, expected = 0;
    (void)state;
    for (uint64_t i = 1; i <= 10000; i++) {
        alq_table_put(i << 21, &mapping);
        alq_table_put(i << 21, &linear);
        expected += i >= 100 && i < 200 ? (i << 21) + 1 : 0;
    }
    alq_table_take_range(ALQ_KIND_MAPPING, 100ull << 21, 100ull << 21, add_handle, &sum);
    assert_int_equal(sum, expected);
    assert_int_equal(alq_table_count(), 19900);
    assert_true(alq_table_get(99ull << 21, ALQ_KIND_MAPPING, &out));
    assert_true(alq_table_get(200ull << 21, ALQ_KIND_MAPPING, &out));
    alq_table_take_range(ALQ_KIND_MAPPING, 1ull << 21, UINT64_MAX, add_handle, &sum);
    assert_int_equal(alq_table_count(), 10000);
}

static uint64_t resident_kib(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static void put_of_a_million_takes_at_most_64_bytes_each(void **state)
{
    uint64_t before = resident_kib();
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("[  REASON  ] the thread sanitizer's shadow memory counts as resident\n");
    skip();
#endif
    for (uint64_t i = 1; i <= 1000000; i++) {
        struct alq_entry_value in = value_of(i, 1, ALQ_KIND_LINEAR);
        assert_true(alq_table_put(0x7f0000000000 + i * 512, &in));
    }
    assert_true((resident_kib() - before) * 1024 <= 64 * 1000000ull + 1048576);
}

enum { THREADS = 4, PER_THREAD = 20000 };

static void *churn(void *data)
{
    uint64_t base = (uint64_t)(uintptr_t)data << 40;
    for (uint64_t i = 1; i <= PER_THREAD; i++) {
        struct alq_entry_value in = value_of(i, 1, ALQ_KIND_LINEAR), out;
        if (!alq_table_put(base + i * 512, &in))
            return data;
        if (i % 2 &&
            (!alq_table_take(base + i * 512, ALQ_KIND_LINEAR, &out) || out.counted_bytes != i))
            return data;
    }
    return NULL;
}

static void put_and_take_from_many_threads_lose_nothing(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(alq_table_count(), THREADS * PER_THREAD / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(take_of_what_was_put_returns_it_once, forget),
        cmocka_unit_test_teardown(take_of_a_pool_pointer_as_linear_finds_it, forget),
        cmocka_unit_test_teardown(take_of_another_kind_does_not_find_it, forget),
        cmocka_unit_test_teardown(put_of_many_finds_each_after_removals_in_any_order, forget),
        cmocka_unit_test_teardown(take_context_takes_all_of_it_and_no_other, forget),
        cmocka_unit_test_teardown(take_range_takes_the_kind_in_it_and_no_other, forget),
        cmocka_unit_test_teardown(put_of_a_million_takes_at_most_64_bytes_each, forget),
        cmocka_unit_test_teardown(put_and_take_from_many_threads_lose_nothing, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

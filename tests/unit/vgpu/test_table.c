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

static void count_one(uint64_t handle, const struct alq_entry_value *value, void *data)
{
    (void)handle, (void)value;
    ++*(uint64_t *)data;
}

/* Takes them out. */
static uint64_t count_of(enum alq_kind kind)
{
    uint64_t count = 0;
    alq_table_take_range(kind, 0, UINT64_MAX, count_one, &count);
    return count;
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
    for (uint64_t i = 3; i <= N; i += 3)
        assert_true(alq_table_take(i * 512, ALQ_KIND_LINEAR, &out));
    for (uint64_t i = 1; i <= N; i++) {
        bool found = alq_table_get(i * 512, ALQ_KIND_LINEAR, &out);
        assert_int_equal(found, i % 3 != 0);
        if (found)
            assert_int_equal(out.counted_bytes, i);
    }
    assert_int_equal(count_of(ALQ_KIND_LINEAR), N - N / 3);
}

static void add_bytes(uint64_t handle, const struct alq_entry_value *value, void *data)
{
    (void)handle;
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
    alq_table_take_context(4, add_bytes, &sum);
    assert_int_equal(sum, 50000);
    assert_true(alq_table_get(2 * 4096, ALQ_KIND_LINEAR, &out));
    assert_false(alq_table_get(4096, ALQ_KIND_LINEAR, &out));
    assert_int_equal(count_of(ALQ_KIND_LINEAR), 5000);
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
    assert_true(alq_table_get(99ull << 21, ALQ_KIND_MAPPING, &out));
    assert_true(alq_table_get(200ull << 21, ALQ_KIND_MAPPING, &out));
    alq_table_take_range(ALQ_KIND_MAPPING, 1ull << 21, UINT64_MAX, add_handle, &sum);
    assert_int_equal(count_of(ALQ_KIND_LINEAR), 10000);
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
        if (i % 25000 == 0)
            assert_in_range((resident_kib() - before) * 1024, 0, 64 * i + 1048576);
    }
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
    assert_int_equal(count_of(ALQ_KIND_LINEAR), THREADS * PER_THREAD / 2);
}

static void many_random_changes_leave_what_a_plain_list_has(void **state)
{
    enum { KEYS = 3000, CHANGES = 300000 };
    static uint64_t bytes[KEYS]; /* 0: not there */
    struct alq_entry_value out;
    uint32_t seed = 7;
    (void)state;
    memset(bytes, 0, sizeof(bytes));
    for (uint32_t i = 0; i < CHANGES; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint64_t at = (seed >> 8) % KEYS, handle = 0x7f0000000000 + at * 512;
        struct alq_entry_value in = value_of(i + 1, 1, ALQ_KIND_LINEAR);
        if (seed >> 31) {
            assert_true(alq_table_put(handle, &in));
            bytes[at] = i + 1;
        } else {
            assert_int_equal(alq_table_take(handle, ALQ_KIND_LINEAR, &out), bytes[at] != 0);
            if (bytes[at])
                assert_int_equal(out.counted_bytes, bytes[at]);
            bytes[at] = 0;
        }
    }
    uint64_t have = 0, sum = 0;
    for (uint64_t i = 0; i < KEYS; i++)
        have += bytes[i];
    alq_table_take_context(1, add_bytes, &sum);
    assert_int_equal(sum, have);
}

static void put_of_more_bytes_than_addresses_reach_keeps_the_most(void **state)
{
    struct alq_entry_value in = value_of(UINT64_MAX, 255, ALQ_KIND_GRAPH), out;
    (void)state;
    in.device = ALQ_NO_DEVICE;
    in.overhead_bytes = UINT32_MAX;
    assert_true(alq_table_put(16, &in));
    assert_true(alq_table_take(16, ALQ_KIND_GRAPH, &out));
    assert_int_equal(out.counted_bytes, (1ull << 47) - 1);
    in.counted_bytes = out.counted_bytes;
    assert_memory_equal(&in, &out, sizeof(in));
}

static void change_of_kind_is_taken_with_the_pointer(void **state)
{
    struct alq_entry_value in = value_of(5, 1, ALQ_KIND_LINEAR), out;
    (void)state;
    assert_false(alq_table_change(0x1000, ALQ_KIND_LINEAR, ALQ_KIND_EXPORTED, &out));
    alq_table_put(0x1000, &in);
    assert_true(alq_table_change(0x1000, ALQ_KIND_LINEAR, ALQ_KIND_EXPORTED, &out));
    assert_int_equal(out.counted_bytes, 5);
    assert_false(alq_table_change(0x1000, ALQ_KIND_LINEAR, ALQ_KIND_EXPORTED, &out));
    assert_true(alq_table_take(0x1000, ALQ_KIND_LINEAR, &out));
    assert_int_equal(out.kind, ALQ_KIND_EXPORTED);
    /* Who is given the address next starts anew. */
    alq_table_put(0x1000, &in);
    assert_true(alq_table_take(0x1000, ALQ_KIND_LINEAR, &out));
    assert_int_equal(out.kind, ALQ_KIND_LINEAR);
}

/* ---- taking in two steps --------------------------------------------------------------------- */

#define AT 0x7f0000000000ull

static void take_end_after_a_yes_takes_it_and_after_a_no_leaves_it(void **state)
{
    struct alq_entry_value in = value_of(5, 1, ALQ_KIND_LINEAR), out;
    struct alq_taking taking;
    (void)state;
    alq_table_put(AT, &in);
    alq_table_take_begin(AT, ALQ_KIND_LINEAR, &taking);
    assert_false(alq_table_take_end(&taking, false, &out));
    alq_table_take_begin(AT, ALQ_KIND_LINEAR, &taking);
    assert_true(alq_table_take_end(&taking, true, &out));
    assert_int_equal(out.counted_bytes, 5);
    alq_table_take_begin(AT, ALQ_KIND_LINEAR, &taking);
    assert_false(alq_table_take_end(&taking, true, &out));
}

static void take_end_gets_the_old_entry_where_the_address_was_given_anew(void **state)
{
    struct alq_entry_value old = value_of(5, 1, ALQ_KIND_EXPORTED),
                           next = value_of(7, 2, ALQ_KIND_LINEAR), out;
    struct alq_taking taking;
    (void)state;
    alq_table_put(AT, &old);
    alq_table_take_begin(AT, ALQ_KIND_LINEAR, &taking);
    alq_table_put(AT, &next);
    assert_true(alq_table_take_end(&taking, true, &out));
    assert_memory_equal(&out, &old, sizeof(old));
    assert_true(alq_table_take(AT, ALQ_KIND_LINEAR, &out));
    assert_memory_equal(&out, &next, sizeof(next));
}

static void take_end_gets_the_old_entry_where_its_part_has_grown(void **state)
{
    struct alq_entry_value old = value_of(5, 1, ALQ_KIND_LINEAR),
                           next = value_of(7, 2, ALQ_KIND_LINEAR), out;
    struct alq_taking taking;
    (void)state;
    alq_table_put(AT, &old);
    alq_table_take_begin(AT, ALQ_KIND_LINEAR, &taking);
    for (uint64_t i = 1; i <= 50000; i++)
        alq_table_put(AT + i * 512, &next);
    alq_table_put(AT, &next);
    assert_true(alq_table_take_end(&taking, true, &out));
    assert_int_equal(out.counted_bytes, 5);
    assert_true(alq_table_take(AT, ALQ_KIND_LINEAR, &out));
    assert_int_equal(out.counted_bytes, 7);
}

static void take_end_leaves_the_next_entry_where_the_context_took_the_old_one(void **state)
{
    struct alq_entry_value old = value_of(5, 1, ALQ_KIND_LINEAR),
                           next = value_of(7, 2, ALQ_KIND_LINEAR), out;
    struct alq_taking taking;
    uint64_t sum = 0;
    (void)state;
    alq_table_put(AT, &old);
    alq_table_take_begin(AT, ALQ_KIND_LINEAR, &taking);
    alq_table_take_context(1, add_bytes, &sum);
    assert_int_equal(sum, 5);
    alq_table_put(AT, &next);
    assert_false(alq_table_take_end(&taking, true, &out));
    assert_true(alq_table_take(AT, ALQ_KIND_LINEAR, &out));
    assert_int_equal(out.counted_bytes, 7);
}

static void take_begin_beside_another_of_its_part_takes_each_its_own(void **state)
{
    struct alq_entry_value old = value_of(5, 1, ALQ_KIND_LINEAR),
                           next = value_of(7, 1, ALQ_KIND_LINEAR), out;
    struct alq_taking first, second;
    (void)state;
    for (int is_freed = 0; is_freed <= 1; is_freed++) {
        alq_table_put(AT, &old);
        alq_table_take_begin(AT, ALQ_KIND_LINEAR, &first);
        alq_table_put(AT, &next);
        alq_table_take_begin(AT, ALQ_KIND_LINEAR, &second);
        assert_int_equal(alq_table_take_end(&second, is_freed, &out), is_freed);
        if (is_freed)
            assert_int_equal(out.counted_bytes, 7);
        assert_true(alq_table_take_end(&first, true, &out));
        assert_int_equal(out.counted_bytes, 5);
        assert_int_equal(count_of(ALQ_KIND_LINEAR), !is_freed);
    }
}

/* A driver that gives out what was freed last first. */
static struct {
    pthread_mutex_t lock;
    uint64_t free[8], count;
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t heap_move(uint64_t freed)
{
    pthread_mutex_lock(&heap.lock);
    uint64_t at = freed;
    if (freed)
        heap.free[heap.count++] = freed;
    else
        at = heap.free[--heap.count];
    pthread_mutex_unlock(&heap.lock);
    return at;
}

static void *allocate_and_free(void *data)
{
    uint64_t *sum = data;
    for (uint64_t i = 1; i <= PER_THREAD; i++) {
        struct alq_entry_value in = value_of(i, 1, ALQ_KIND_LINEAR), out;
        struct alq_taking taking;
        uint64_t at = heap_move(0);
        alq_table_put(at, &in);
        alq_table_take_begin(at, ALQ_KIND_LINEAR, &taking);
        heap_move(at);
        *sum += i;
        if (alq_table_take_end(&taking, true, &out))
            *sum -= out.counted_bytes;
    }
    return NULL;
}

static void frees_and_allocations_of_few_addresses_lose_nothing(void **state)
{
    pthread_t threads[THREADS];
    uint64_t left[THREADS] = {0}, sum = 0;
    (void)state;
    for (uint64_t i = 1; i <= THREADS; i++)
        heap_move(AT + i * 512);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &left[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += left[i]; /* one thread may have had another's entry */
    }
    assert_int_equal(sum, 0);
    assert_int_equal(count_of(ALQ_KIND_LINEAR), 0);
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
        cmocka_unit_test_teardown(many_random_changes_leave_what_a_plain_list_has, forget),
        cmocka_unit_test_teardown(put_of_more_bytes_than_addresses_reach_keeps_the_most, forget),
        cmocka_unit_test_teardown(change_of_kind_is_taken_with_the_pointer, forget),
        cmocka_unit_test_teardown(take_end_after_a_yes_takes_it_and_after_a_no_leaves_it, forget),
        cmocka_unit_test_teardown(take_end_gets_the_old_entry_where_the_address_was_given_anew,
                                  forget),
        cmocka_unit_test_teardown(take_end_gets_the_old_entry_where_its_part_has_grown, forget),
        cmocka_unit_test_teardown(take_end_leaves_the_next_entry_where_the_context_took_the_old_one,
                                  forget),
        cmocka_unit_test_teardown(take_begin_beside_another_of_its_part_takes_each_its_own, forget),
        cmocka_unit_test_teardown(frees_and_allocations_of_few_addresses_lose_nothing, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

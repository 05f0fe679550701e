/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device addresses: live allocations never overlap, any address leads back to its allocation, what
 * is freed can be had again, and an owner's are found whatever is freed meanwhile. Random, from a
 * fixed seed. Single-threaded.
 */
#include "cuda/va.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define LIVE 3000
#define MIB (1ull << 20)
#define WINDOW_BYTES (68ll << 30)

static struct va_window window;
static struct va_range gone;

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static uint64_t random_size(uint32_t *seed)
{
    uint32_t r = next_random(seed);

    return 1 + next_random(seed) % (1ull << (4 + r % 20)) * (r % 50 == 0 ? 64 : 1);
}

static void window_reset(void)
{
    int file = memfd_create("window", MFD_CLOEXEC);

    if (window.base)
        va_close(&window);
    assert_int_equal(ftruncate(file, WINDOW_BYTES), 0);
    assert_int_equal(va_open(&window, WINDOW_BYTES, file), 0);
}

static void find_leads_from_every_address_to_its_allocation(void **state)
{
    const uint64_t sizes[] = {1,       512, 513,     4096,    4097,       5120,
                              MIB - 1, MIB, MIB + 1, 2 * MIB, 7 * MIB + 3};

    (void)state;
    window_reset();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t at = va_alloc(&window, sizes[i], 1, VA_DEVICE), base;

        assert_int_not_equal(at, 0);
        assert_int_equal(at % 512, 0);
        assert_non_null(va_find(&window, at, &base));
        assert_int_equal(base, at);
        assert_non_null(va_find(&window, at + sizes[i] - 1, &base));
        assert_int_equal(base, at);
        assert_null(va_find(&window, at + sizes[i], &base));
        va_free(&window, at, &gone);
        assert_null(va_find(&window, at, &base));
        assert_null(va_find(&window, at + sizes[i] - 1, &base));
    }
}

static void random_allocations_never_overlap_and_all_come_back(void **state)
{
    static struct {
        uint64_t at, bytes;
    } live[LIVE];
    uint32_t seed = 7;

    (void)state;
    window_reset();
    memset(live, 0, sizeof(live));
    for (int i = 0; i < 200000; i++) {
        uint32_t k = next_random(&seed) % LIVE;
        uint64_t base;

        if (live[k].at) {
            struct va_record *r = va_find(&window, live[k].at + live[k].bytes / 2, &base);

            assert_non_null(r);
            assert_int_equal(base, live[k].at);
            assert_int_equal(r->bytes, live[k].bytes);
            assert_int_equal(r->owner, k);
            va_free(&window, live[k].at, &gone);
            live[k].at = 0;
        } else {
            live[k].bytes = random_size(&seed);
            live[k].at = va_alloc(&window, live[k].bytes, k, VA_DEVICE);
            assert_int_not_equal(live[k].at, 0);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        if (live[i].at)
            va_free(&window, live[i].at, &gone);
    }
    /* Free runs have merged: only a block per size class may still lie among them. */
    assert_int_not_equal(va_alloc(&window, window.bytes / 2, 1, VA_DEVICE), 0);
}

static void memory_of_an_allocation_can_be_used_at_its_alias(void **state)
{
    uint64_t at;
    char *host;

    (void)state;
    window_reset();
    at = va_alloc(&window, 3 * MIB, 1, VA_DEVICE);
    host = (char *)(uintptr_t)(at + window.alias);
    host[0] = host[3 * MIB - 1] = 1;
    uint64_t base;
    va_find(&window, at, &base)->touched = 1;
    va_free(&window, at, &gone);
    assert_int_equal(va_alloc(&window, 3 * MIB, 1, VA_DEVICE), at);
    assert_int_equal(host[0], 0); /* given back to the kernel on free */
}

static void granules_are_counted_as_they_open_and_empty(void **state)
{
    uint64_t small[3], big;

    (void)state;
    window_reset();
    assert_int_equal(va_cost(&window, 700), VA_BLOCK_BYTES);
    for (int i = 0; i < 3; i++)
        small[i] = va_alloc(&window, 700, 1, VA_DEVICE);
    assert_int_equal(va_cost(&window, 700), 0); /* room in the one that is open */
    assert_int_equal(va_cost(&window, 3 * MIB + 1), 4 * MIB);
    big = va_alloc(&window, 3 * MIB + 1, 1, VA_DEVICE);
    va_free(&window, big, &gone);
    assert_int_equal(gone.base, big);
    assert_int_equal(gone.bytes, 4 * MIB);
    va_free(&window, small[1], &gone);
    assert_int_equal(gone.bytes, 0);
    va_free(&window, small[0], &gone);
    va_free(&window, small[2], &gone);
    assert_int_equal(gone.bytes, VA_BLOCK_BYTES);
    assert_int_equal(va_cost(&window, 700), VA_BLOCK_BYTES);
    assert_int_equal(va_room(700), 1024);
    assert_int_equal(va_room(3 * MIB + 1), 4 * MIB);
}

static void a_shared_block_is_told_when_it_empties_and_restored_empty(void **state)
{
    struct va_range range;
    uint64_t at, other;
    int mark, file = memfd_create("other", MFD_CLOEXEC);
    char *host;

    (void)state;
    window_reset();
    at = va_alloc(&window, 4096, 1, VA_DEVICE);
    other = va_alloc(&window, 4096, 1, VA_DEVICE);
    *va_sharing(&window, other, &range) = &mark;
    assert_int_equal(range.base, at);
    assert_int_equal(range.bytes, VA_BLOCK_BYTES);
    assert_null(range.shared);
    assert_int_equal(ftruncate(file, (off_t)range.bytes), 0);
    host = mmap((void *)(uintptr_t)(at + window.alias), range.bytes, PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_SHARED, file, 0);
    host[0] = 7;
    va_free(&window, other, &gone);
    assert_int_equal(gone.bytes, 0);
    va_free(&window, at, &gone);
    assert_ptr_equal(gone.shared, &mark);
    assert_int_equal(va_restore(&window, &gone), 0);
    assert_int_equal(host[0], 0);
    assert_int_equal(pread(file, &mark, 1, 0), 1);
    assert_int_equal(mark & 0xff, 7); /* the other memory is as it was */
    at = va_alloc(&window, 4096, 1, VA_DEVICE);
    (void)va_sharing(&window, at, &range);
    assert_null(range.shared);
    close(file);
}

static unsigned int each_count;

static void free_it(uint64_t base, struct va_record *record, void *arg)
{
    assert_int_equal(record->owner, 2);
    va_free(arg, base, &gone);
    each_count++;
}

static void each_finds_all_of_an_owner_while_they_are_freed(void **state)
{
    uint32_t seed = 3;
    unsigned int mine = 0;
    uint64_t base, other = 0;

    (void)state;
    window_reset();
    for (int i = 0; i < 2000; i++) {
        uint32_t owner = 1 + next_random(&seed) % 2;
        uint64_t at = va_alloc(&window, random_size(&seed), owner, VA_DEVICE);

        assert_int_not_equal(at, 0);
        mine += owner == 2;
        if (owner == 1)
            other = at;
    }
    each_count = 0;
    va_each(&window, 2, free_it, &window);
    assert_int_equal(each_count, mine);
    va_each(&window, 2, free_it, &window);
    assert_int_equal(each_count, mine);
    assert_non_null(va_find(&window, other, &base));
}

static void more_than_the_window_is_refused(void **state)
{
    (void)state;
    window_reset();
    assert_int_equal(va_alloc(&window, window.bytes + 1, 1, VA_DEVICE), 0);
    assert_int_equal(va_alloc(&window, UINT64_MAX / 2, 1, VA_DEVICE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_leads_from_every_address_to_its_allocation),
        cmocka_unit_test(random_allocations_never_overlap_and_all_come_back),
        cmocka_unit_test(memory_of_an_allocation_can_be_used_at_its_alias),
        cmocka_unit_test(granules_are_counted_as_they_open_and_empty),
        cmocka_unit_test(a_shared_block_is_told_when_it_empties_and_restored_empty),
        cmocka_unit_test(each_finds_all_of_an_owner_while_they_are_freed),
        cmocka_unit_test(more_than_the_window_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor's parts without a daemon: corrections as arithmetic, usage files that mean harm, and
 * whose a process is by its mounts, in a /proc of our own making.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/monitor/correct.h"
#include "daemon/monitor/mounts.h"
#include "daemon/monitor/usage.h"

#define MIB (1ll << 20)
#define S 1000000000ull

/* ---- corrections ------------------------------------------------------------------------------
 */

static struct alq_held mib(uint64_t counted, uint64_t overhead)
{
    return (struct alq_held){counted << 20, overhead << 20};
}

/* The same reading so often that a lower correction is believed. */
static int64_t at_rest(int64_t in_force, uint64_t physical_mib, const struct alq_held *before,
                       const struct alq_held *after)
{
    struct alq_overhead_highs highs = {0};
    for (unsigned i = 0; i < ALQ_REST_ROUNDS; i++)
        in_force = alq_correct_overhead(&highs, in_force, physical_mib << 20, before, after);
    return in_force;
}

static void correct_overhead_ledger_at_rest_gives_the_difference(void **state)
{
    const struct alq_held held = mib(1024, 256);
    struct alq_overhead_highs highs = {0};
    (void)state;
    assert_int_equal(alq_correct_overhead(&highs, 0, 1319 << 20, &held, &held), 39 * MIB);
    assert_int_equal(at_rest(39 * MIB, 1200, &held, &held), -80 * MIB);
}

static void correct_overhead_call_under_way_takes_nothing_back(void **state)
{
    /* A context has been reserved and is not there yet, or a piece has been freed and is still in
     * the ledger: in all readings but one. */
    const struct alq_held held = mib(1024, 256);
    struct alq_overhead_highs highs = {0};
    (void)state;
    for (unsigned i = 0; i < 3 * ALQ_REST_ROUNDS; i++) {
        uint64_t physical = (i % ALQ_REST_ROUNDS ? 1024ull : 1280ull) << 20;
        assert_int_equal(alq_correct_overhead(&highs, 0, physical, &held, &held), 0);
    }
}

static void correct_overhead_never_takes_back_what_programs_asked_for(void **state)
{
    const struct alq_held held = mib(4096, 256); /* managed memory, not physical yet */
    (void)state;
    assert_int_equal(at_rest(0, 300, &held, &held), -256 * MIB);
}

static void correct_overhead_ledger_that_moves_keeps_what_both_readings_allow(void **state)
{
    const struct alq_held before = mib(0, 256), after = mib(10240, 256);
    (void)state;
    /* 10 GiB were allocated while NVML was being read: 39 MiB may be as right as before */
    assert_int_equal(at_rest(39 * MIB, 295, &before, &after), 39 * MIB);
    assert_int_equal(at_rest(500 * MIB, 295, &before, &after), 39 * MIB);
    /* and freed: the larger reading is the one that NVML may have seen */
    assert_int_equal(at_rest(39 * MIB, 10240 + 295, &after, &before), 39 * MIB);
}

/* ---- usage files ------------------------------------------------------------------------------
 */

#define USAGE_BYTES_MAX ((off_t)ALQ_USAGE_BYTES(ALQ_SECTION_HOST + 1))

struct share {
    char path[32];
    int dir, fd;
};

static int setup_share(void **state)
{
    static const struct alq_usage_header header = {.magic = ALQ_USAGE_MAGIC,
                                                   .version = ALQ_SHARE_VERSION,
                                                   .header_bytes = ALQ_USAGE_HEADER_BYTES,
                                                   .section_bytes =
                                                       sizeof(struct alq_usage_section),
                                                   .section_count = 1,
                                                   .slot_count = ALQ_SLOTS,
                                                   .slot_bytes = sizeof(struct alq_slot),
                                                   .slot_high = 8};
    struct share *s = calloc(1, sizeof(*s));
    snprintf(s->path, sizeof(s->path), "/tmp/alq-usage-XXXXXX");
    assert_non_null(mkdtemp(s->path));
    s->dir = open(s->path, O_RDONLY | O_DIRECTORY);
    s->fd = openat(s->dir, "usage", O_RDWR | O_CREAT, 0666);
    assert_int_equal(ftruncate(s->fd, (off_t)ALQ_USAGE_BYTES(1)), 0);
    assert_int_equal(pwrite(s->fd, &header, sizeof(header), 0), sizeof(header));
    *state = s;
    return 0;
}

static int teardown_share(void **state)
{
    struct share *s = *state;
    close(s->fd);
    close(s->dir);
    alq_file_remove_tree(s->path, NULL);
    free(s);
    return 0;
}

static void put_slot(const struct share *s, unsigned number, uint64_t counted, uint64_t overhead)
{
    struct alq_slot slot = {.counted_bytes = counted, .overhead_bytes = overhead, .pid = 4711};
    off_t at = (off_t)ALQ_USAGE_HEAD_BYTES + (off_t)(number * sizeof(slot));
    assert_int_equal(pwrite(s->fd, &slot, sizeof(slot), at), sizeof(slot));
}

/* As the library holds it: an OFD lock of a description of its own. */
static int lock_slots(const struct share *s, off_t from, off_t count)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = count};
    int fd = openat(s->dir, "usage", O_RDWR);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

static void usage_read_sums_living_slots_alone(void **state)
{
    const struct share *s = *state;
    struct alq_usage usage;
    for (unsigned i = 0; i < 10; i++)
        put_slot(s, i, 1000 + i, 10);
    int five = lock_slots(s, 5, 1), one = lock_slots(s, 1, 2), beyond = lock_slots(s, 9, 1);
    alq_usage_read(s->dir, &usage);
    assert_null(usage.flaw);
    assert_int_equal(usage.processes, 3);
    assert_int_equal(usage.counted_bytes, 1001 + 1002 + 1005);
    assert_int_equal(usage.overhead_bytes, 30);
    close(five);
    alq_usage_read(s->dir, &usage);
    assert_int_equal(usage.processes, 2);
    close(one);
    close(beyond);
}

static void usage_read_lock_over_everything_is_all_slots(void **state)
{
    const struct share *s = *state;
    struct alq_usage usage;
    int all = lock_slots(s, 0, 0);
    alq_usage_read(s->dir, &usage);
    assert_null(usage.flaw);
    assert_int_equal(usage.processes, 8);
    close(all);
}

static void assert_flawed(const struct share *s, const char *flaw)
{
    struct alq_usage usage;
    alq_usage_read(s->dir, &usage);
    assert_non_null(usage.flaw);
    assert_string_equal(usage.flaw, flaw);
    assert_int_equal(usage.processes, 0);
    assert_int_equal(usage.counters.launches, 0);
}

/* Another description's lock, which the kernel has to pass by at each question. */
static int flood(const struct share *s, off_t begin, unsigned count)
{
    int fd = openat(s->dir, "usage", O_RDWR);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < count; i++) {
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = begin + 2 * (off_t)i, .l_len = 1};
        assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    }
    return fd;
}

static void usage_read_of_a_flood_of_locks_gives_up_in_time(void **state)
{
    const uint32_t high = ALQ_SLOTS;
    const struct share *s = *state;
    struct alq_usage usage;
    pwrite(s->fd, &high, sizeof(high), offsetof(struct alq_usage_header, slot_high));
    int slots = flood(s, 0, 16); /* every other slot is alive */
    alq_usage_read(s->dir, &usage);
    assert_null(usage.flaw);
    assert_int_equal(usage.processes, 16);
    close(slots);
    int behind = flood(s, 2 * ALQ_SLOTS, 4096);
    slots = flood(s, 0, ALQ_SLOTS / 2);
    alq_usage_read(s->dir, &usage);
    assert_string_equal(usage.flaw, "too many locks");
    assert_true(usage.is_slow);
    assert_int_equal(usage.processes, 0);
    close(slots);
    close(behind);
    alq_usage_read(s->dir, &usage);
    assert_null(usage.flaw);
}

static void usage_read_numbers_out_of_range_give_no_figures(void **state)
{
    const struct share *s = *state;
    const uint64_t huge = UINT64_MAX;
    const off_t counters = ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, counters);
    put_slot(s, 0, 1ull << 49, 0);
    put_slot(s, 1, 1ull << 50, 0); /* each may be, but not both */
    int lock = lock_slots(s, 0, 2);
    assert_flawed(s, "number out of range");
    close(lock);
    pwrite(s->fd, &huge, sizeof(huge), counters + 8);
    assert_flawed(s, "number out of range");
}

static void usage_read_every_defaced_header_field_gives_no_figures(void **state)
{
    const struct share *s = *state;
    for (off_t at = 0; at < 36; at += 4) {
        uint32_t had, bad = 0x7fffffff;
        pread(s->fd, &had, sizeof(had), at);
        pwrite(s->fd, &bad, sizeof(bad), at);
        assert_flawed(s, "header defaced");
        pwrite(s->fd, &had, sizeof(had), at);
    }
}

static void usage_read_truncated_file_gives_no_figures(void **state)
{
    const struct share *s = *state;
    int lock = lock_slots(s, 7, 1);
    assert_int_equal(ftruncate(s->fd, (off_t)ALQ_USAGE_HEAD_BYTES + 7 * 128 + 64), 0);
    assert_flawed(s, "truncated");
    assert_int_equal(ftruncate(s->fd, 0), 0);
    assert_flawed(s, "truncated");
    close(lock);
}

static void usage_read_what_is_no_file_is_not_opened(void **state)
{
    const struct share *s = *state;
    assert_int_equal(renameat(s->dir, "usage", s->dir, "elsewhere"), 0);
    assert_flawed(s, "not readable");
    assert_int_equal(symlinkat("elsewhere", s->dir, "usage"), 0);
    assert_flawed(s, "not readable");
    assert_int_equal(unlinkat(s->dir, "usage", 0), 0);
    assert_int_equal(mkfifoat(s->dir, "usage", 0666), 0);
    assert_flawed(s, "not readable"); /* and does not wait for a writer */
}

static void usage_trim_cuts_what_is_behind_the_end(void **state)
{
    const struct share *s = *state;
    struct alq_usage usage;
    struct stat st;
    assert_int_equal(alq_usage_trim(s->dir), 0);
    assert_int_equal(ftruncate(s->fd, USAGE_BYTES_MAX + 12345), 0);
    alq_usage_read(s->dir, &usage);
    assert_true(usage.is_oversize && !usage.flaw);
    assert_int_equal(alq_usage_trim(s->dir), 12345);
    assert_int_equal(fstat(s->fd, &st), 0);
    assert_int_equal(st.st_size, USAGE_BYTES_MAX);
    alq_usage_read(s->dir, &usage);
    assert_false(usage.is_oversize);
}

/* ---- mounts -----------------------------------------------------------------------------------
 */

#define LINE(device, root, point) "36 35 " device " " root " " point " rw - tmpfs tmpfs rw\n"

static void mount_place_is_root_of_our_mount_and_the_rest_of_the_path(void **state)
{
    static const char text[] = "35 1 0:5 / / rw - ext4 /dev/sda rw\n" LINE(
        "0:24", "/", "/run") "37 36 0:25 /pods/a\\040b /run/aliquot rw - tmpfs tmpfs rw\n";
    struct alq_mount_place place;
    (void)state;
    assert_int_equal(alq_mount_place_find(text, 36, "/run/aliquot", &place), 0);
    assert_string_equal(place.device, "0:24");
    assert_string_equal(place.root, "/aliquot/shares");
    assert_int_equal(alq_mount_place_find(text, 37, "/run/aliquot", &place), 0);
    assert_string_equal(place.root, "/pods/a b/shares");
    assert_int_equal(alq_mount_place_find(text, 38, "/run/aliquot", &place), -1);
    assert_int_equal(alq_mount_place_find(text, 37, "/run/aliquotx", &place), -1);
}

static void mount_shares_are_found_by_device_and_root_wherever_they_are_mounted(void **state)
{
    static const char text[] =
        LINE("0:24", "/aliquot/shares/b-0/usage", "/run/aliquot/shares/b-0/usage")
            LINE("0:24", "/aliquot/shares/b-0/control", "/run/aliquot/shares/b-0/control")
                LINE("0:24", "/aliquot/shares/a-1", "/somewhere")
                    LINE("0:9", "/aliquot/shares/other-device-0", "/run/aliquot/shares/x-0")
                        LINE("0:24", "/aliquot/sharesx/no-0", "/run/aliquot/shares/y-0")
                            LINE("0:24", "/", "/run/aliquot/shares/z-0")
                                LINE("0:24", "/aliquot/shares", "/s") "not a line\n"
                                                                      "36 35 0:24";
    const struct alq_mount_place place = {"0:24", "/aliquot/shares"};
    struct alq_share_set set = {0};
    (void)state;
    alq_mount_shares(text, &place, &set);
    assert_int_equal(set.count, 2);
    assert_string_equal(set.ids[0], "a-1");
    assert_string_equal(set.ids[1], "b-0");
    free(set.ids);
}

static void stat_start_is_found_behind_any_name(void **state)
{
    static const char tail[] = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21\n";
    char text[256];
    uint64_t ticks = 0;
    (void)state;
    snprintf(text, sizeof(text), "77 (a) b) 9 9)%s", tail);
    assert_int_equal(alq_stat_start(text, &ticks), 0);
    assert_int_equal(ticks, 4242);
    assert_int_equal(alq_stat_start("77 (a) S 1 2", &ticks), -1);
    assert_int_equal(alq_stat_start("", &ticks), -1);
}

/* A /proc with processes in namespaces as we say. */
struct proc {
    char path[32];
    struct alq_mounts *mounts;
    char shares[4096]; /* the root that our own run directory has */
    char device[24];
};

static void write_file(const char *path, const char *text)
{
    assert_int_equal(alq_file_write_atomic(path, text, strlen(text), 0644, 0, NULL), 0);
}

/* A process that began so many ticks after boot. share NULL: it is gone. */
static void put_process(const struct proc *p, unsigned pid, unsigned long ns, unsigned ticks,
                        const char *share)
{
    alq_auto_free char *dir = alq_str_printf("%s/%u", p->path, pid);
    alq_auto_free char *links = alq_str_printf("%s/ns", dir);
    alq_auto_free char *link = alq_str_printf("%s/mnt", links);
    alq_auto_free char *name = alq_str_printf("mnt:[%lu]", ns);
    alq_auto_free char *stat = alq_str_printf("%s/stat", dir);
    alq_auto_free char *info = alq_str_printf("%s/mountinfo", dir);
    alq_file_remove_tree(dir, NULL);
    if (!share)
        return;
    assert_int_equal(alq_file_mkdirs(links, 0755, NULL), 0);
    assert_int_equal(symlink(name, link), 0);
    alq_auto_free char *text =
        alq_str_printf("%u (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %u 20\n", pid, ticks);
    write_file(stat, text);
    alq_auto_free char *line = alq_str_printf(
        "1 0 0:1 / / rw - ext4 x rw\n2 1 %s %s/%s/usage /u rw\n", p->device, p->shares, share);
    write_file(info, *share ? line : "1 0 0:1 / / rw - ext4 x rw\n");
}

static int setup_proc(void **state)
{
    struct proc *p = calloc(1, sizeof(*p));
    snprintf(p->path, sizeof(p->path), "/tmp/alq-proc-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->mounts = alq_mounts_new(p->path, p->path, NULL);
    assert_non_null(p->mounts);
    const struct alq_mount_place *place = alq_mounts_place(p->mounts);
    snprintf(p->shares, sizeof(p->shares), "%s", place->root);
    snprintf(p->device, sizeof(p->device), "%s", place->device);
    *state = p;
    return 0;
}

static int teardown_proc(void **state)
{
    struct proc *p = *state;
    alq_mounts_free(p->mounts);
    alq_file_remove_tree(p->path, NULL);
    free(p);
    return 0;
}

static const char *share_of(const struct proc *p, unsigned pid, int64_t at_ns)
{
    const struct alq_share_set *set = alq_mounts_find(p->mounts, pid, at_ns);
    return set ? set->ids[0] : "";
}

#define LATE ((int64_t)(1000 * S))

static void mounts_find_reads_a_namespace_once_for_all_its_processes(void **state)
{
    const struct proc *p = *state;
    for (unsigned pid = 1; pid <= 50; pid++)
        put_process(p, pid, 7, 100, "c-0");
    put_process(p, 60, 8, 100, "");
    for (int round = 0; round < 5; round++) {
        alq_mounts_begin(p->mounts);
        for (unsigned pid = 1; pid <= 50; pid++)
            assert_string_equal(share_of(p, pid, LATE), "c-0");
        assert_string_equal(share_of(p, 60, LATE), "");
        assert_string_equal(share_of(p, 61, LATE), "");
    }
    assert_int_equal(alq_mounts_reads(p->mounts), 2);
}

static void mounts_find_pid_used_again_after_the_sample_is_nobody(void **state)
{
    const struct proc *p = *state;
    const int64_t tick_ns = (int64_t)S / sysconf(_SC_CLK_TCK);
    put_process(p, 5, 7, 500, "c-0");
    alq_mounts_begin(p->mounts);
    assert_string_equal(share_of(p, 5, 499 * tick_ns), "");
    assert_string_equal(share_of(p, 5, 500 * tick_ns), "c-0");
}

static void mounts_namespace_number_used_again_is_read_again(void **state)
{
    const struct proc *p = *state;
    put_process(p, 5, 7, 100, "old-0");
    alq_mounts_begin(p->mounts);
    assert_string_equal(share_of(p, 5, LATE), "old-0");
    put_process(p, 5, 7, 100, NULL);
    put_process(p, 6, 7, 200, "new-0"); /* the same number of another container's */
    alq_mounts_begin(p->mounts);
    assert_string_equal(share_of(p, 6, LATE), "new-0");
    put_process(p, 6, 7, 300, "newer-0"); /* even the PID is the same */
    alq_mounts_begin(p->mounts);
    assert_string_equal(share_of(p, 6, LATE), "newer-0");
}

static void mounts_of_many_containers_that_come_and_go_are_forgotten(void **state)
{
    const struct proc *p = *state;
    char share[32];
    for (unsigned pod = 1; pod <= 500; pod++) {
        snprintf(share, sizeof(share), "pod-%u", pod);
        put_process(p, pod, pod, 100, share);
        alq_mounts_begin(p->mounts);
        assert_string_equal(share_of(p, pod, LATE), share);
        assert_true(alq_mounts_known(p->mounts) <= 2);
        put_process(p, pod, pod, 100, NULL);
    }
}

#define SHARE_TEST(name) cmocka_unit_test_setup_teardown(name, setup_share, teardown_share)
#define PROC_TEST(name) cmocka_unit_test_setup_teardown(name, setup_proc, teardown_proc)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(correct_overhead_ledger_at_rest_gives_the_difference),
        cmocka_unit_test(correct_overhead_call_under_way_takes_nothing_back),
        cmocka_unit_test(correct_overhead_never_takes_back_what_programs_asked_for),
        cmocka_unit_test(correct_overhead_ledger_that_moves_keeps_what_both_readings_allow),
        SHARE_TEST(usage_read_sums_living_slots_alone),
        SHARE_TEST(usage_read_lock_over_everything_is_all_slots),
        SHARE_TEST(usage_read_of_a_flood_of_locks_gives_up_in_time),
        SHARE_TEST(usage_read_numbers_out_of_range_give_no_figures),
        SHARE_TEST(usage_read_every_defaced_header_field_gives_no_figures),
        SHARE_TEST(usage_read_truncated_file_gives_no_figures),
        SHARE_TEST(usage_read_what_is_no_file_is_not_opened),
        SHARE_TEST(usage_trim_cuts_what_is_behind_the_end),
        cmocka_unit_test(mount_place_is_root_of_our_mount_and_the_rest_of_the_path),
        cmocka_unit_test(mount_shares_are_found_by_device_and_root_wherever_they_are_mounted),
        cmocka_unit_test(stat_start_is_found_behind_any_name),
        PROC_TEST(mounts_find_reads_a_namespace_once_for_all_its_processes),
        PROC_TEST(mounts_find_pid_used_again_after_the_sample_is_nobody),
        PROC_TEST(mounts_namespace_number_used_again_is_read_again),
        PROC_TEST(mounts_of_many_containers_that_come_and_go_are_forgotten),
    };
    return cmocka_run_group_tests_name("monitor", tests, NULL, NULL);
}

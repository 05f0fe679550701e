/* SPDX-License-Identifier: Apache-2.0 */
/* Usage files and their slots, with real files, locks, forks and deaths. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "private_mounts.h"
#include "vgpu/memory/ledger.h"
#include "vgpu/usage.h"

static char directory[64];
static char path[128];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/alq-usage-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/usage", directory);
    return 0;
}

static int remove_directory(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static void map_of_a_missing_file_says_so(void **state)
{
    struct alq_file file = {.base = NULL};
    (void)state;
    assert_int_equal(alq_usage_map(&file, path), -2);
}

static void map_of_a_foreign_file_is_refused_and_leaves_it(void **state)
{
    struct alq_file file = {.base = NULL};
    struct stat before, after;
    (void)state;
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 300000; i++)
        fputc('x', f);
    fclose(f);
    stat(path, &before);
    assert_int_equal(alq_usage_map(&file, path), -22);
    assert_int_equal(alq_usage_map_or_make(&file, path, 16), -22);
    stat(path, &after);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

/* In a child, since its mounts are private: a file of 1.3 MiB with holes on a tmpfs of 64 KiB. */
static int map_sparse_on_a_full_disk(void)
{
    struct alq_file file = {.base = NULL};
    struct alq_usage_header header = {.magic = 0};
    if (private_mounts() || mount("tmpfs", directory, "tmpfs", 0, "size=64k"))
        return 77;
    alq_usage_format(&header, 8);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || pwrite(fd, &header, sizeof(header), 0) != sizeof(header) ||
        ftruncate(fd, ALQ_USAGE_BYTES(8)))
        return 1;
    return alq_usage_map(&file, path) == -28 ? 0 : 2;
}

static void map_of_a_file_with_holes_on_a_full_disk_is_refused(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(map_sparse_on_a_full_disk());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 77) {
        print_message("[  REASON  ] no mount namespace of our own here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void map_or_make_makes_a_complete_file_for_everyone(void **state)
{
    struct alq_file file = {.base = NULL}, again = {.base = NULL};
    struct stat st;
    (void)state;
    mode_t mask = umask(077);
    assert_int_equal(alq_usage_map_or_make(&file, path, 16), 0);
    umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    assert_int_equal(st.st_size, ALQ_USAGE_BYTES(16));
    assert_true(st.st_blocks * 512 >=
                (long)ALQ_USAGE_BYTES(16)); /* a store cannot find the disk full */
    assert_int_equal(alq_usage_map_or_make(&again, path, 16), 0);
    alq_file_section(&file, 3)->counters.launches = 5;
    assert_int_equal(alq_file_section(&again, 3)->counters.launches, 5);
}

static void map_of_a_file_cut_short_is_refused(void **state)
{
    struct alq_file file = {.base = NULL}, again = {.base = NULL};
    (void)state;
    assert_int_equal(alq_usage_map_or_make(&file, path, 16), 0);
    assert_int_equal(truncate(path, (long)ALQ_USAGE_BYTES(16) - 1), 0);
    assert_int_equal(alq_usage_map(&again, path), -22);
}

/* Its tail is the tenant's: to fill it would take the host's memory, and failing would leave the
 * share without its file. */
static void map_of_a_file_made_longer_leaves_the_rest_alone(void **state)
{
    struct alq_file file = {.base = NULL}, again = {.base = NULL};
    struct stat before, after;
    (void)state;
    assert_int_equal(alq_usage_map_or_make(&file, path, 1), 0);
    assert_int_equal(truncate(path, 1l << 42), 0);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(alq_usage_map(&again, path), 0);
    assert_int_equal(again.bytes, ALQ_USAGE_BYTES(1));
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
}

/* Starts a process with a slot that holds bytes; it says so on a pipe and stays. */
static pid_t start_holder(uint64_t bytes, uint32_t *slot)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct alq_file file = {.base = NULL};
        if (alq_usage_map_or_make(&file, path, 1) || alq_usage_attach(&file))
            _exit(1);
        alq_ledger_take(alq_file_section(&file, 0), file.slot, bytes, bytes, 1000);
        uint32_t number = file.slot;
        if (write(ends[1], &number, sizeof(number)) != sizeof(number))
            _exit(1);
        for (int fd = 0; fd < 64; fd++)
            close(fd); /* the slot outlives every descriptor */
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], slot, sizeof(*slot)), sizeof(*slot));
    close(ends[0]);
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void reap_leaves_the_living_and_empties_the_dead(void **state)
{
    struct alq_file file = {.base = NULL};
    uint32_t a, b;
    (void)state;
    pid_t first = start_holder(300, &a), second = start_holder(200, &b);
    assert_int_not_equal(a, b);
    assert_int_equal(alq_usage_map(&file, path), 0);
    assert_int_equal(alq_usage_reap(&file), 0);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 500);
    end(first);
    assert_int_equal(alq_usage_reap(&file), 1);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 200);
    end(second);
    assert_int_equal(alq_usage_reap(&file), 1);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 0);
    assert_false(alq_usage_has_others(&file));
}

static void attach_takes_over_a_dead_slot_empty(void **state)
{
    struct alq_file file = {.base = NULL};
    uint32_t slot;
    (void)state;
    end(start_holder(300, &slot));
    assert_int_equal(alq_usage_map(&file, path), 0);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 300);
    pid_t child = fork(); /* this process keeps no slot for the tests that follow */
    if (child == 0) {
        if (alq_usage_attach(&file) || file.slot != slot ||
            alq_ledger_total(alq_file_section(&file, 0)) != 0)
            _exit(1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A fork child has the driver's descriptors as it has the slot: the bytes stay while it does, and
 * go when it execs. */
static void fork_child_keeps_the_slot_until_it_execs(void **state)
{
    struct alq_file file = {.base = NULL};
    int up[2], down[2];
    char byte = 0;
    (void)state;
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct alq_file mine = {.base = NULL};
        if (alq_usage_map_or_make(&mine, path, 1) || alq_usage_attach(&mine))
            _exit(1);
        alq_ledger_take(alq_file_section(&mine, 0), mine.slot, 400, 400, 1000);
        if (fork() == 0) {
            if (write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1)
                _exit(1);
            execl("/bin/sh", "sh", "-c", "echo x >&$0; exec sleep 30",
                  up[1] == 3   ? "3"
                  : up[1] == 4 ? "4"
                               : "5",
                  NULL);
            _exit(1);
        }
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    assert_int_equal(read(up[0], &byte, 1), 1);
    assert_int_equal(alq_usage_map(&file, path), 0);
    assert_int_equal(alq_usage_reap(&file), 0);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 400);
    assert_int_equal(write(down[1], &byte, 1), 1);
    close(up[1]);
    assert_true(read(up[0], &byte, 1) >= 0); /* it has exec'd, or died trying */
    assert_int_equal(alq_usage_reap(&file), 1);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 0);
    close(up[0]);
    close(down[0]);
    close(down[1]);
}

static void attach_with_all_slots_taken_says_so(void **state)
{
    struct alq_file file = {.base = NULL};
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = ALQ_SLOTS};
    (void)state;
    assert_int_equal(alq_usage_map_or_make(&file, path, 1), 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(fcntl(fd, 37 /* F_OFD_SETLK */, &all), 0);
    assert_int_equal(alq_usage_attach(&file), -87 /* EUSERS */);
    close(fd);
}

static void claim_section_is_one_per_gpu(void **state)
{
    struct alq_file file = {.base = NULL};
    char uuid[48];
    (void)state;
    assert_int_equal(alq_usage_map_or_make(&file, path, 2), 0);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-a"), 0);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-b"), 1);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-a"), 0);
    snprintf(uuid, sizeof(uuid), "GPU-%s", "c");
    assert_int_equal(alq_usage_claim_section(&file, uuid), -28);
}

static void claim_of_a_section_that_was_half_written_completes_it(void **state)
{
    struct alq_file file = {.base = NULL};
    (void)state;
    assert_int_equal(alq_usage_map_or_make(&file, path, 2), 0);
    strcpy(alq_file_section(&file, 0)->gpu_uuid, "GPU-1234"); /* its claimer died */
    assert_int_equal(alq_usage_claim_section(&file, "GPU-999999"), 1);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-123456"), 0);
    assert_string_equal(alq_file_section(&file, 0)->gpu_uuid, "GPU-123456");
}

static void private_file_has_no_others(void **state)
{
    struct alq_file file = {.base = NULL};
    (void)state;
    assert_int_equal(alq_usage_make_private(&file, 1), 0);
    assert_int_equal(alq_usage_attach(&file), 0);
    assert_int_equal(alq_ledger_take(alq_file_section(&file, 0), file.slot, 10, 10, 10), 10);
    assert_int_equal(alq_usage_reap(&file), 0);
    assert_int_equal(alq_ledger_total(alq_file_section(&file, 0)), 10);
}

static void private_memory_keeps_the_sections_of_their_gpus(void **state)
{
    struct alq_file file = {.base = NULL};
    (void)state;
    assert_int_equal(alq_usage_map_or_make(&file, path, 3), 0);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-a"), 0);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-b"), 1);
    alq_file_section(&file, 1)->memory_limit_bytes = 77;
    assert_int_equal(alq_usage_make_private(&file, 16), 0);
    assert_int_equal(alq_usage_attach(&file), 0);
    assert_int_equal(alq_usage_claim_section(&file, "GPU-c"), 2);
    assert_int_equal(alq_usage_claim_section(&file, "MIG-b"), 1);
    assert_int_equal(alq_file_section(&file, 1)->memory_limit_bytes, 77);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(map_of_a_missing_file_says_so),
        TEST(map_of_a_foreign_file_is_refused_and_leaves_it),
        TEST(map_of_a_file_with_holes_on_a_full_disk_is_refused),
        TEST(map_or_make_makes_a_complete_file_for_everyone),
        TEST(map_of_a_file_cut_short_is_refused),
        TEST(map_of_a_file_made_longer_leaves_the_rest_alone),
        TEST(reap_leaves_the_living_and_empties_the_dead),
        TEST(attach_takes_over_a_dead_slot_empty),
        TEST(fork_child_keeps_the_slot_until_it_execs),
        TEST(attach_with_all_slots_taken_says_so),
        TEST(claim_section_is_one_per_gpu),
        TEST(claim_of_a_section_that_was_half_written_completes_it),
        TEST(private_file_has_no_others),
        TEST(private_memory_keeps_the_sections_of_their_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

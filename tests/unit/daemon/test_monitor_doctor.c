/* SPDX-License-Identifier: Apache-2.0 */
/* What the monitor tells the doctor of rounds that end in one way or another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/findings.h"
#include "daemon/monitor/state.h"

static char claim_name[] = "train";
static struct alq_claim_spec claim = {.uid = "u", .namespace_ = "team", .name = claim_name};
static struct alq_watched watched = {.id = "u-0", .gpu_uuid = "GPU-1", .claim = &claim};
static struct alq_watched *all[] = {&watched};
static struct alq_monitor monitor;
static struct alq_round_files files;
static struct alq_round *ended; /* what each round is like */
static struct alq_gpu_sample gpu;
static struct alq_process_sample process;

static int start(void **state)
{
    (void)state;
    watched.unseen = 0;
    alq_watched_set(&watched, &(struct alq_figures){0});
    monitor = (struct alq_monitor){.shares = {.all = all, .count = 1}};
    files.mounts = (struct alq_mounts *)(void *)&files; /* only that there is one counts */
    process = (struct alq_process_sample){.pid = 4711, .used_bytes = 1 << 20};
    gpu = (struct alq_gpu_sample){
        .uuid = "GPU-1", .has_processes = 1, .process_count = 1, .processes = &process};
    ended = alq_round_new(1);
    assert_non_null(ended);
    ended->files = &files;
    ended->has_sample = 1;
    ended->sample = (struct alq_sample){.gpu_count = 1, .gpus = &gpu};
    snprintf(ended->shares[0].id, sizeof(ended->shares[0].id), "u-0");
    ended->shares[0].f.usage.processes = 1;
    ended->shares[0].f.usage.overhead_bytes = 256 << 20;
    ended->shares[0].f.gpu_processes = 1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(ended); /* the sample is ours */
    free(watched.f);
    watched.f = NULL;
    return 0;
}

static void rounds(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        alq_monitor_note(&monitor, ended);
    alq_watched_set(&watched, &ended->shares[0].f);
}

static void leave_out_what_is_well(json_t *told)
{
    for (size_t i = json_array_size(told); i; i--)
        if (!strcmp(alq_json_str(json_array_get(told, i - 1), "level"), "ok"))
            json_array_remove(told, i - 1);
}

/* What is not well. */
static json_t *collect(void)
{
    struct alq_findings *findings = alq_findings_new(NULL);
    assert_int_equal(alq_findings_register(findings, alq_monitor_tell, &monitor), 0);
    json_t *told = alq_findings_collect(findings);
    alq_findings_free(findings);
    leave_out_what_is_well(told);
    return told;
}

/* id NULL: nothing is wrong. Else there is this one, and its text has the words. */
static void assert_told(const char *id, const char *words)
{
    alq_auto_json json_t *told = collect();
    assert_int_equal(json_array_size(told), id ? 1 : 0);
    if (!id)
        return;
    assert_string_equal(alq_json_str(json_array_get(told, 0), "id"), id);
    assert_non_null(alq_json_str(json_array_get(told, 0), "remedy"));
    assert_non_null(strstr(alq_json_str(json_array_get(told, 0), "text"), words));
}

static void tell_after_good_rounds_says_nothing(void **state)
{
    (void)state;
    rounds(10);
    assert_told(NULL, NULL);
}

static void tell_of_a_damaged_file_names_its_claim_and_the_flaw(void **state)
{
    (void)state;
    ended->shares[0].f.usage = (struct alq_usage){.flaw = "truncated"};
    rounds(1);
    assert_told("monitor.usage-damaged", "u-0 of claim team/train: truncated");
}

static void tell_of_processes_that_nvml_does_not_list_waits_for_three_rounds(void **state)
{
    (void)state;
    ended->shares[0].f.gpu_processes = 0;
    rounds(2);
    assert_told(NULL, NULL);
    ended->has_sample = 0; /* says nothing of processes */
    rounds(2);
    assert_told(NULL, NULL);
    ended->has_sample = 1;
    rounds(1);
    assert_told("monitor.processes-unseen", "u-0 of claim team/train");
    ended->shares[0].f.gpu_processes = 1;
    rounds(1);
    assert_told(NULL, NULL);
}

static void tell_of_clients_of_mps_says_that_nothing_is_corrected(void **state)
{
    (void)state;
    /* NVML lists the server's process, which is of no share, and has all the memory. */
    process.used_bytes = 2ll << 30;
    ended->shares[0].f.usage.processes = 3;
    ended->shares[0].f.usage.overhead_bytes = 3ull * (256 << 20);
    ended->shares[0].f.gpu_processes = 0;
    rounds(3);
    assert_told("monitor.processes-unseen", "nothing is corrected");
    alq_auto_json json_t *told = collect();
    /* From within a PID namespace of its own the daemon sees none at all, and says that first. */
    const char *remedy = alq_json_str(json_array_get(told, 0), "remedy");
    assert_true(strstr(remedy, "MPS") || strstr(remedy, "hostPID"));
}

static void tell_of_processes_without_a_context_says_nothing(void **state)
{
    (void)state;
    ended->shares[0].f.gpu_processes = 0;
    ended->shares[0].f.usage.overhead_bytes = 0;
    rounds(10);
    assert_told(NULL, NULL);
}

static void tell_of_an_nvml_that_does_not_answer_counts_the_rounds(void **state)
{
    (void)state;
    ended->has_sample = 0;
    rounds(2);
    assert_told(NULL, NULL);
    rounds(5);
    assert_told("monitor.sampling", "7 times in a row");
    ended->has_sample = 1;
    rounds(1);
    assert_told(NULL, NULL);
}

static void tell_without_mounts_says_that_nothing_is_corrected(void **state)
{
    (void)state;
    files.mounts = NULL;
    rounds(1);
    assert_told("monitor.mounts", "nothing is corrected");
}

static void tell_of_memory_that_nvml_does_not_tell_names_the_gpu(void **state)
{
    (void)state;
    process.used_bytes = ALQ_UNKNOWN;
    rounds(1);
    assert_told("monitor.process-memory", "GPU-1");
    process.used_bytes = 0;
    rounds(1);
    assert_told(NULL, NULL);
    gpu.has_processes = 0;
    gpu.process_count = 0;
    rounds(1);
    assert_told("monitor.process-memory", "GPU-1");
}

static void tell_of_unknown_entry_points_has_their_sum(void **state)
{
    (void)state;
    ended->shares[0].f.usage.counters.unknown_entries = 3;
    rounds(1);
    assert_told("monitor.unknown-entries", "3 entry points");
}

static void tell_without_shares_says_nothing_of_old_rounds(void **state)
{
    (void)state;
    ended->has_sample = 0;
    files.mounts = NULL;
    rounds(10);
    monitor.shares.count = 0;
    assert_told(NULL, NULL);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tell_after_good_rounds_says_nothing),
        TEST(tell_of_a_damaged_file_names_its_claim_and_the_flaw),
        TEST(tell_of_processes_that_nvml_does_not_list_waits_for_three_rounds),
        TEST(tell_of_clients_of_mps_says_that_nothing_is_corrected),
        TEST(tell_of_processes_without_a_context_says_nothing),
        TEST(tell_of_an_nvml_that_does_not_answer_counts_the_rounds),
        TEST(tell_without_mounts_says_that_nothing_is_corrected),
        TEST(tell_of_memory_that_nvml_does_not_tell_names_the_gpu),
        TEST(tell_of_unknown_entry_points_has_their_sum),
        TEST(tell_without_shares_says_nothing_of_old_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

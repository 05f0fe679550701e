/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The use of GPUs: the line between child and parent, and what the child makes of NVML's samples.
 * NVML and the clock are functions in here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/nvml/child.h"
#include "daemon/nvml/child_use.h"
#include "daemon/nvml/use.h"

#define S_US 1000000ull
#define PERIOD_US 166667ull
#define NOW_US (1800000000 * S_US)

/* ---- the line ---------------------------------------------------------------------------------
 */

static int decode(const char *line, struct alq_use *use, struct alq_err *err)
{
    return alq_use_decode(line, strlen(line), use, err);
}

static void decode_gives_back_what_encode_took(void **state)
{
    struct alq_use_process processes[] = {{7, 100}, {8, 0}, {INT32_MAX, 33}};
    struct alq_use_gpu gpus[] = {{"GPU-a", 166667000, ALQ_USE_AGE_NS_MAX, 3, processes},
                                 {"GPU-b", INT64_MAX, 0, 0, NULL},
                                 {"GPU-c", 0, 0, 0, NULL}};
    struct alq_use use = {3, gpus}, back;
    alq_auto_free char *line = alq_use_encode(&use);
    (void)state;
    assert_null(strchr(line, '\n'));
    assert_int_equal(decode(line, &back, NULL), 0);
    assert_int_equal(back.gpu_count, 3);
    assert_int_equal(back.gpus[0].process_count, 3);
    assert_memory_equal(back.gpus[0].processes, processes, sizeof(processes));
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(back.gpus[i].uuid, gpus[i].uuid);
        assert_int_equal(back.gpus[i].window_ns, gpus[i].window_ns);
        assert_int_equal(back.gpus[i].age_ns, gpus[i].age_ns);
    }
    assert_ptr_equal(alq_use_find(&back, "GPU-b"), &back.gpus[1]);
    assert_null(alq_use_find(&back, "GPU-"));
    alq_use_clear(&back);
    assert_null(alq_use_find(&back, "GPU-b"));
}

#define GPU(rest) "{\"gpus\":[{\"uuid\":\"GPU-a\"," rest "}]}"
#define PROCESSES(rows) GPU("\"window\":1,\"age\":0,\"processes\":" rows)
#define NO_PROCESS ",\"processes\":[]"

static void decode_what_no_child_says_is_refused_by_its_name(void **state)
{
    static const char *const rows[][2] = {
        {"", "not valid JSON"},
        {"[]", "gpus are missing"},
        {"{\"gpus\":{}}", "gpus are missing"},
        {"{\"gpus\":[null]}", "uuid is missing"},
        {"{\"gpus\":[{\"uuid\":\"\"}]}", "uuid is missing"},
        {"{\"gpus\":[{\"uuid\":\"GPU-00000000000000000000000000000000000000000000000\"}]}",
         "uuid is missing, too long"},
        {"{\"gpus\":[{\"uuid\":\"GPU-a\",\"window\":0,\"age\":0" NO_PROCESS
         "},{\"uuid\":\"GPU-a\",\"window\":0,\"age\":0" NO_PROCESS "}]}",
         "there twice"},
        {GPU("\"age\":0" NO_PROCESS), "window is missing"},
        {GPU("\"window\":-1,\"age\":0" NO_PROCESS), "window is missing or out of range"},
        {GPU("\"window\":1.5,\"age\":0" NO_PROCESS), "window is missing or out of range"},
        {GPU("\"window\":1" NO_PROCESS), "age is missing"},
        {GPU("\"window\":1,\"age\":-1" NO_PROCESS), "age is missing or out of range"},
        {GPU("\"window\":1,\"age\":2000000001" NO_PROCESS), "age is missing or out of range"},
        {GPU("\"window\":0,\"age\":1" NO_PROCESS), "age is missing or out of range"},
        {GPU("\"window\":1,\"age\":0"), "processes are missing"},
        {GPU("\"window\":0,\"age\":0,\"processes\":[[1,1]]"), "processes are missing or too many"},
        {PROCESSES("null"), "processes are missing"},
        {PROCESSES("[{}]"), "pid is missing"},
        {PROCESSES("[[0,1]]"), "pid is missing or out of range"},
        {PROCESSES("[[2147483648,1]]"), "pid is missing or out of range"},
        {PROCESSES("[[7,1],[7,1]]"), "pid is missing or out of range"},
        {PROCESSES("[[8,1],[7,1]]"), "pid is missing or out of range"},
        {PROCESSES("[[1]]"), "time of a process is missing"},
        {PROCESSES("[[1,-1]]"), "time of a process is missing or out of range"},
        {PROCESSES("[[1,101]]"), "time of a process is missing or out of range"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_use use;
        struct alq_err err = ALQ_ERR_INIT;
        if (decode(rows[i][0], &use, &err) != ALQ_EPROTO || !strstr(err.text, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], err.text);
        alq_use_clear(&use);
    }
}

static void decode_more_than_there_can_be_is_refused(void **state)
{
    struct alq_use_process processes[ALQ_USE_PROCESSES_MAX + 1] = {{0}};
    struct alq_use_gpu gpus[ALQ_NVML_GPUS_MAX + 1] = {{"GPU-0", 1, 0, 0, processes}};
    struct alq_use use = {1, gpus}, back;
    (void)state;
    for (uint32_t i = 0; i <= ALQ_USE_PROCESSES_MAX; i++)
        processes[i].pid = i + 1;
    for (uint32_t over = 0; over < 2; over++) {
        gpus[0].process_count = ALQ_USE_PROCESSES_MAX + over;
        alq_auto_free char *line = alq_use_encode(&use);
        assert_int_equal(decode(line, &back, NULL), over ? ALQ_EPROTO : 0);
        alq_use_clear(&back);
    }
    gpus[0].process_count = 0;
    for (uint32_t i = 0; i <= ALQ_NVML_GPUS_MAX; i++)
        snprintf(gpus[i].uuid, sizeof(gpus[i].uuid), "GPU-%u", i);
    for (uint32_t over = 0; over < 2; over++) {
        use.gpu_count = ALQ_NVML_GPUS_MAX + over;
        alq_auto_free char *line = alq_use_encode(&use);
        assert_int_equal(decode(line, &back, NULL), over ? ALQ_EPROTO : 0);
        alq_use_clear(&back);
    }
}

/* ---- the child --------------------------------------------------------------------------------
 */

#define GPUS 2
#define TOLD_MAX 5000u

struct child_nvml nvml;
static struct world {
    uint64_t now_us;
    struct fake_gpu {
        nvmlReturn_t status;
        unsigned int told_count;
        unsigned long long asked_since; /* the last time */
        nvmlProcessUtilizationSample_t told[TOLD_MAX];
    } gpus[GPUS];
    char said[64]; /* to the parent */
    int is_parent_gone;
    struct child child;
    struct alq_use use; /* the last answer */
} * world;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    assert_int_equal(clock, CLOCK_REALTIME);
    *ts = (struct timespec){.tv_sec = (time_t)(world->now_us / S_US),
                            .tv_nsec = (long)(world->now_us % S_US) * 1000};
    return 0;
}

int child_send(char *line)
{
    strcat(world->said, line);
    free(line);
    return world->is_parent_gone ? -1 : 0;
}

static nvmlReturn_t count_gpus(unsigned int *count)
{
    *count = GPUS;
    return NVML_SUCCESS;
}

static nvmlReturn_t handle_of(unsigned int index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)&world->gpus[index];
    return NVML_SUCCESS;
}

static nvmlReturn_t uuid_of(nvmlDevice_t device, char *uuid, unsigned int size)
{
    snprintf(uuid, size, "GPU-%d", (int)((const struct fake_gpu *)(void *)device - world->gpus));
    return NVML_SUCCESS;
}

static nvmlReturn_t process_utilization(nvmlDevice_t device,
                                        nvmlProcessUtilizationSample_t *samples,
                                        unsigned int *count, unsigned long long since_us)
{
    struct fake_gpu *gpu = (struct fake_gpu *)(void *)device;
    const unsigned int room = *count;
    gpu->asked_since = since_us;
    if (gpu->status != NVML_SUCCESS)
        return gpu->status;
    *count = gpu->told_count;
    if (gpu->told_count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(samples, gpu->told, gpu->told_count * sizeof(*samples));
    return gpu->told_count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static int setup(void **state)
{
    (void)state;
    world = calloc(1, sizeof(*world));
    world->now_us = NOW_US;
    nvml = (struct child_nvml){.nvmlDeviceGetCount_v2 = count_gpus,
                               .nvmlDeviceGetHandleByIndex_v2 = handle_of,
                               .nvmlDeviceGetUUID = uuid_of,
                               .nvmlDeviceGetProcessUtilization = process_utilization};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    alq_use_clear(&world->use);
    free(world);
    return 0;
}

/* NVML tells of a GPU, besides what it told already, so much. */
static void tell(size_t index, uint32_t pid, uint64_t stamp_us, uint32_t sm_pct)
{
    struct fake_gpu *gpu = &world->gpus[index];
    assert_true(gpu->told_count < TOLD_MAX);
    gpu->told[gpu->told_count++] = (nvmlProcessUtilizationSample_t){
        .pid = pid, .timeStamp = stamp_us, .smUtil = sm_pct, .memUtil = 99};
}

/* The next question's answer on a GPU. */
static const struct alq_use_gpu *ask(size_t index)
{
    alq_use_clear(&world->use);
    world->said[0] = '\0';
    assert_int_equal(alq_child_use(&world->child, &world->use), 0);
    for (size_t i = 0; i < GPUS; i++)
        world->gpus[i].told_count = 0;
    return &world->use.gpus[index];
}

/* A first question, which knows a sample of the time given. */
static void begin(uint64_t stamp_us)
{
    tell(0, 1, stamp_us, 1);
    ask(0);
}

static void assert_nothing(const struct alq_use_gpu *gpu)
{
    assert_int_equal(gpu->window_ns, 0);
    assert_int_equal(gpu->age_ns, 0);
    assert_int_equal(gpu->process_count, 0);
}

/* [pid, percent], ... */
static void assert_processes(const struct alq_use_gpu *gpu, const struct alq_use_process *wanted,
                             uint32_t count)
{
    assert_int_equal(gpu->process_count, count);
    assert_memory_equal(gpu->processes, wanted, count * sizeof(*wanted));
}

static void use_at_the_first_question_only_remembers_the_newest_stamp(void **state)
{
    (void)state;
    tell(0, 9, NOW_US - 7, 80);
    tell(0, 5, NOW_US - 9, 20);
    assert_nothing(ask(0));
    assert_string_equal(world->use.gpus[0].uuid, "GPU-0");
    assert_string_equal(world->said, "@0@1");
    assert_int_equal(world->gpus[0].asked_since, 0);
    ask(0);
    assert_int_equal(world->gpus[0].asked_since, NOW_US - 7);
    assert_int_equal(world->gpus[1].asked_since, 0);
}

static void use_is_of_the_time_between_the_newest_stamps(void **state)
{
    const struct alq_use_process wanted[] = {{5, 20}, {9, 80}};
    (void)state;
    begin(NOW_US - 7 - PERIOD_US);
    tell(0, 9, NOW_US - 7, 80);
    tell(0, 5, NOW_US - 9, 20);
    const struct alq_use_gpu *gpu = ask(0);
    assert_int_equal(gpu->window_ns, PERIOD_US * 1000);
    assert_int_equal(gpu->age_ns, 7000);
    assert_processes(gpu, wanted, 2);
    assert_nothing(&world->use.gpus[1]);
}

static void use_of_a_process_missing_in_a_period_is_nothing_then(void **state)
{
    const struct alq_use_process wanted[] = {{4, 60}, {6, 34}, {7, 50}, {8, 0}};
    (void)state;
    begin(NOW_US - 4 * PERIOD_US);
    for (uint32_t i = 1; i <= 3; i++)
        tell(0, 4, NOW_US - i * PERIOD_US, 60);
    tell(0, 6, NOW_US - 2 * PERIOD_US - 30, 201); /* no more than all */
    tell(0, 7, NOW_US - PERIOD_US + 11, 100);
    tell(0, 7, NOW_US - 3 * PERIOD_US - 20, 50);
    tell(0, 6, NOW_US - PERIOD_US + 5, 1);
    tell(0, 8, NOW_US - PERIOD_US, 1);
    const struct alq_use_gpu *gpu = ask(0);
    assert_processes(gpu, wanted, 4);
    assert_int_equal(gpu->window_ns, (3 * PERIOD_US + 11) * 1000);
}

static void use_without_new_samples_has_no_window_and_the_next_reaches_back(void **state)
{
    (void)state;
    begin(NOW_US - S_US);
    assert_nothing(ask(0)); /* not found */
    tell(0, 1, NOW_US - S_US, 50);
    tell(0, 2, NOW_US - 2 * S_US, 50);
    assert_nothing(ask(0)); /* told again what is known */
    tell(0, 1, NOW_US - S_US, 50);
    tell(0, 2, NOW_US, 40);
    const struct alq_use_gpu *gpu = ask(0);
    assert_int_equal(gpu->window_ns, S_US * 1000);
    assert_processes(gpu, &(struct alq_use_process){2, 40}, 1);
}

static void use_with_an_error_of_nvml_has_no_window(void **state)
{
    (void)state;
    begin(NOW_US - S_US);
    world->gpus[0].status = NVML_ERROR_NOT_SUPPORTED;
    assert_nothing(ask(0));
    world->gpus[0].status = NVML_SUCCESS;
    for (unsigned i = 0; i < TOLD_MAX; i++)
        tell(0, i + 1, NOW_US, 1);
    assert_nothing(ask(0)); /* too many */
    nvml.nvmlDeviceGetProcessUtilization = NULL;
    assert_nothing(ask(0));
    nvml.nvmlDeviceGetProcessUtilization = process_utilization;
    tell(0, 1, NOW_US, 1);
    assert_int_equal(ask(0)->window_ns, S_US * 1000);
}

static void use_of_too_many_processes_is_of_some(void **state)
{
    (void)state;
    begin(NOW_US - S_US);
    for (uint32_t pid = ALQ_USE_PROCESSES_MAX + 1; pid; pid--)
        tell(0, pid, NOW_US, 1);
    const struct alq_use_gpu *gpu = ask(0);
    assert_int_equal(gpu->process_count, ALQ_USE_PROCESSES_MAX);
    assert_int_equal(gpu->processes[ALQ_USE_PROCESSES_MAX - 1].pid, ALQ_USE_PROCESSES_MAX);
}

static void use_leaves_out_samples_that_cannot_be(void **state)
{
    (void)state;
    begin(NOW_US - S_US);
    tell(0, 0, NOW_US, 50);
    tell(0, UINT32_MAX, NOW_US, 50);
    tell(0, 2, UINT64_MAX, 50);
    tell(0, 3, 0, 50);
    assert_nothing(ask(0));
}

static void use_whose_age_cannot_be_has_none(void **state)
{
    static const struct {
        int64_t stamp_us; /* after now */
        int64_t age_ns;
    } rows[] = {{-2000000, 2000000000}, {-2000001, 0}, {-1, 1000}, {0, 0}, {1, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        world->child.use_seen_us[0] = NOW_US - 3 * S_US;
        tell(0, 1, (uint64_t)((int64_t)NOW_US + rows[i].stamp_us), 50);
        const struct alq_use_gpu *gpu = ask(0);
        assert_true(gpu->window_ns > 0);
        assert_int_equal(gpu->age_ns, rows[i].age_ns);
    }
}

static void use_after_the_clock_was_set_back_begins_anew(void **state)
{
    (void)state;
    begin(NOW_US);
    world->now_us -= 3600 * S_US;
    tell(0, 1, world->now_us - 10, 50);
    assert_nothing(ask(0));
    assert_int_equal(world->gpus[0].asked_since, 0);
    world->now_us += PERIOD_US;
    tell(0, 1, world->now_us - 10, 50);
    const struct alq_use_gpu *gpu = ask(0);
    assert_int_equal(world->gpus[0].asked_since, NOW_US - 3600 * S_US - 10);
    assert_int_equal(gpu->window_ns, PERIOD_US * 1000);
    assert_int_equal(gpu->age_ns, 10000);
}

static void use_by_stamps_of_another_clock_has_a_window_and_no_age(void **state)
{
    const uint64_t offsets_us[] = {NOW_US + 3600 * S_US, S_US};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        world->child.use_seen_us[0] = 0;
        begin(offsets_us[i]);
        for (uint64_t n = 1; n < 3; n++) {
            tell(0, 1, offsets_us[i] + (n - 1) * PERIOD_US, 10);
            tell(0, 1, offsets_us[i] + n * PERIOD_US, 70);
            const struct alq_use_gpu *gpu = ask(0);
            assert_int_equal(gpu->window_ns, PERIOD_US * 1000);
            assert_int_equal(gpu->age_ns, 0);
            assert_processes(gpu, &(struct alq_use_process){1, 70}, 1);
        }
    }
}

static void use_of_a_gpu_to_skip_is_not_asked_for(void **state)
{
    (void)state;
    world->child.skipped[0] = 1;
    world->gpus[0].asked_since = 77;
    const struct alq_use_gpu *gpu = ask(0);
    assert_string_equal(gpu->uuid, "GPU-1");
    assert_int_equal(world->use.gpu_count, 1);
    assert_string_equal(world->said, "@1");
    assert_int_equal(world->gpus[0].asked_since, 77);
}

static void use_ends_when_the_parent_is_gone(void **state)
{
    (void)state;
    world->is_parent_gone = 1;
    assert_int_equal(alq_child_use(&world->child, &world->use), -1);
    assert_string_equal(world->said, "@0");
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_gives_back_what_encode_took),
        cmocka_unit_test(decode_what_no_child_says_is_refused_by_its_name),
        cmocka_unit_test(decode_more_than_there_can_be_is_refused),
        ROW(use_at_the_first_question_only_remembers_the_newest_stamp),
        ROW(use_is_of_the_time_between_the_newest_stamps),
        ROW(use_of_a_process_missing_in_a_period_is_nothing_then),
        ROW(use_without_new_samples_has_no_window_and_the_next_reaches_back),
        ROW(use_with_an_error_of_nvml_has_no_window),
        ROW(use_of_too_many_processes_is_of_some),
        ROW(use_leaves_out_samples_that_cannot_be),
        ROW(use_whose_age_cannot_be_has_none),
        ROW(use_after_the_clock_was_set_back_begins_anew),
        ROW(use_by_stamps_of_another_clock_has_a_window_and_no_age),
        ROW(use_of_a_gpu_to_skip_is_not_asked_for),
        ROW(use_ends_when_the_parent_is_gone),
    };
#undef ROW
    return cmocka_run_group_tests_name("use", tests, NULL, NULL);
}

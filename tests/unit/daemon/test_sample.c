/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of NVML: the line between child and parent, and how the parent asks for one, and for the
 * use beside it. The child is a shell script.
 */
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/nvml/protocol.h"
#include "daemon/nvml/reader.h"

/* ---- the line ---------------------------------------------------------------------------------
 */

#define GPU(rest) "{\"begun\":5,\"gpus\":[{\"uuid\":\"GPU-a\"," rest "}]}"
#define MEMORY "\"total\":100,\"used\":7,\"util\":3,\"memoryUtil\":-1,"

static int decode(const char *line, struct alq_sample *sample)
{
    return alq_sample_decode(line, strlen(line), sample, NULL);
}

static void decode_gives_back_what_encode_took(void **state)
{
    struct alq_process_sample processes[] = {{7, 1ll << 40, 100}, {8, ALQ_UNKNOWN, 0}};
    struct alq_gpu_sample gpus[] = {
        {"GPU-a", 80ll << 30, 5, 99, 3, 1, 2, processes},
        {"GPU-b", ALQ_UNKNOWN, ALQ_UNKNOWN, ALQ_UNKNOWN, ALQ_UNKNOWN, 0, 0, NULL},
    };
    struct alq_sample sample = {123456789012345, 2, gpus}, back;
    alq_auto_free char *line = alq_sample_encode(&sample);
    (void)state;
    assert_int_equal(decode(line, &back), 0);
    alq_auto_free char *again = alq_sample_encode(&back);
    assert_string_equal(again, line);
    assert_int_equal(back.begun_ns, sample.begun_ns);
    assert_int_equal(back.gpus[0].total_bytes, 80ll << 30);
    assert_int_equal(back.gpus[0].utilization_pct, 99);
    assert_int_equal(back.gpus[0].processes[0].used_bytes, 1ll << 40);
    assert_int_equal(back.gpus[0].processes[1].pid, 8);
    assert_true(back.gpus[0].has_processes && !back.gpus[1].has_processes);
    assert_int_equal(back.gpus[1].used_bytes, ALQ_UNKNOWN);
    alq_sample_clear(&back);
}

static void decode_what_no_child_says_is_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "[]",
        "{\"begun\":-1,\"gpus\":[]}",
        "{\"begun\":1,\"gpus\":{}}",
        "{\"begun\":1,\"gpus\":[{}]}",
        "{\"begun\":1,\"gpus\":[null]}",
        GPU("\"total\":100,\"used\":7,\"util\":101,\"memoryUtil\":1,\"processes\":[]"),
        GPU("\"total\":-2,\"used\":7,\"util\":1,\"memoryUtil\":1,\"processes\":[]"),
        GPU(MEMORY "\"processes\":7"),
        GPU(MEMORY "\"processes\":[[0,1,1]]"),
        GPU(MEMORY "\"processes\":[[2147483648,1,1]]"),
        GPU(MEMORY "\"processes\":[[1,-2,1]]"),
        GPU(MEMORY "\"processes\":[[1,1,101]]"),
        GPU(MEMORY "\"processes\":[[1,1]]"),
        GPU(MEMORY "\"processes\":[{}]"),
        "{\"begun\":5,\"gpus\":[{\"uuid\":\"GPU-00000000000000000000000000000000000000000000000\"}]"
        "}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct alq_sample sample;
        if (decode(lines[i], &sample) != ALQ_EPROTO)
            fail_msg("%s", lines[i]);
        alq_sample_clear(&sample);
    }
}

static void add_process_in_two_lists_is_one_with_the_larger_figure(void **state)
{
    struct alq_process_sample room[ALQ_SAMPLE_PROCESSES_MAX];
    struct alq_gpu_sample gpu = {.processes = room};
    (void)state;
    alq_sample_add_process(&gpu, 7, 10);
    alq_sample_add_process(&gpu, 8, ALQ_UNKNOWN);
    alq_sample_add_process(&gpu, 7, 30);
    alq_sample_add_process(&gpu, 7, 20);
    assert_int_equal(gpu.process_count, 2);
    assert_int_equal(room[0].used_bytes, 30);
    assert_int_equal(room[1].used_bytes, ALQ_UNKNOWN);
    for (uint32_t pid = 1; pid < 3000; pid++)
        alq_sample_add_process(&gpu, pid, 1);
    assert_int_equal(gpu.process_count, ALQ_SAMPLE_PROCESSES_MAX);
}

/* ---- asking -----------------------------------------------------------------------------------
 */

struct parent {
    char dir[32];
    struct event_base *base;
    struct alq_nvml *nvml;
    unsigned samples, absent;
    unsigned uses, uses_absent;
    int64_t begun_ns;
    int refused;         /* of a second request while one is out */
    struct event *waits; /* for the child to have been asked for events */
};

static void on_sample(void *arg, struct alq_sample *sample)
{
    struct parent *p = arg;
    if (sample) {
        p->samples++;
        p->begun_ns = sample->begun_ns;
    } else {
        p->absent++;
    }
    if (!sample || p->samples == 2)
        event_base_loopbreak(p->base);
    else
        assert_int_equal(alq_nvml_sample(p->nvml, on_sample, p), 0);
}

static void on_read(void *arg, const struct alq_nvml_reading *reading)
{
    struct parent *p = arg;
    if (reading->code)
        return;
    assert_int_equal(reading->list.count, 0);
    assert_int_equal(alq_nvml_sample(p->nvml, on_sample, p), 0);
    p->refused = alq_nvml_sample(p->nvml, on_sample, p);
}

/* Both wanted, none again; the loop ends when both are told. */
static void is_told(struct parent *p)
{
    /* Of a child that is gone nothing is to be had. */
    if (p->absent || p->uses_absent)
        assert_int_equal(alq_nvml_use(p->nvml, NULL, NULL), -1);
    if (p->samples + p->absent && p->uses + p->uses_absent)
        event_base_loopbreak(p->base);
}

static void on_one_sample(void *arg, struct alq_sample *sample)
{
    struct parent *p = arg;
    *(sample ? &p->samples : &p->absent) += 1;
    is_told(p);
}

static void on_one_use(void *arg, struct alq_use *use)
{
    struct parent *p = arg;
    *(use ? &p->uses : &p->uses_absent) += 1;
    if (use)
        assert_int_equal(alq_use_find(use, "GPU-a")->processes[0].sm_pct, 80);
    is_told(p);
}

static void want_both(struct parent *p)
{
    assert_int_equal(alq_nvml_use(p->nvml, on_one_use, p), 0);
    assert_int_equal(alq_nvml_sample(p->nvml, on_one_sample, p), 0);
    assert_int_equal(alq_nvml_use(p->nvml, on_one_use, p), -1);
    assert_int_equal(alq_nvml_sample(p->nvml, on_one_sample, p), -1);
    assert_int_equal(p->samples + p->absent + p->uses + p->uses_absent, 0); /* not at once */
}

static void on_read_want_both(void *arg, const struct alq_nvml_reading *reading)
{
    if (!reading->code)
        want_both(arg);
}

static void on_read_want_both_and_end(void *arg, const struct alq_nvml_reading *reading)
{
    struct parent *p = arg;
    on_read_want_both(p, reading);
    event_base_loopbreak(p->base);
}

/* One byte of request at a time decides what the child says: $1/r, $1/s or $1/u. */
#define CHILD "while c=$(dd bs=1 count=1 2>/dev/null) && [ -n \"$c\" ]; do "

static void run_with(struct parent *p, const char *script, long events_ms,
                     void (*read)(void *arg, const struct alq_nvml_reading *reading))
{
    const struct alq_nvml_timing quick = {.first_reply_ms = 10000,
                                          .reply_ms = 10000,
                                          .poll_ms = 60000,
                                          .events_ms = events_ms,
                                          .retry_min_ms = 5,
                                          .retry_max_ms = 20};
    char shell[] = "/bin/sh", option[] = "-c", zero[] = "child";
    alq_auto_free char *text = strdup(script);
    char *const argv[] = {shell, option, text, zero, p->dir, NULL};
    const struct alq_nvml_calls calls = {.read = read, .arg = p};
    p->nvml = alq_nvml_start_with(p->base, argv[0], argv, &quick, &calls, NULL);
    assert_non_null(p->nvml);
    event_base_loopexit(p->base, &(struct timeval){.tv_sec = 20});
    event_base_dispatch(p->base);
    alq_nvml_stop(p->nvml);
}

static void run(struct parent *p, const char *script)
{
    run_with(p, script, 0, on_read);
}

static void put(const struct parent *p, const char *name, const char *line)
{
    alq_auto_free char *path = alq_str_printf("%s/%s", p->dir, name);
    alq_auto_free char *text = alq_str_printf("%s\n", line);
    assert_int_equal(alq_file_write_atomic(path, text, strlen(text), 0644, 0, NULL), 0);
}

static int setup(void **state)
{
    struct parent *p = calloc(1, sizeof(*p));
    struct alq_nvml_reading *none = calloc(1, sizeof(*none));
    snprintf(p->dir, sizeof(p->dir), "/tmp/alq-sample-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->base = event_base_new();
    alq_auto_free char *reading = alq_nvml_encode(none);
    put(p, "r", reading);
    put(p, "s", "{\"begun\":5,\"gpus\":[]}");
    put(p, "u", "{\"gpus\":[{\"uuid\":\"GPU-a\",\"window\":9,\"age\":1,\"processes\":[[7,80]]}]}");
    put(p, "e", "{\"readingDue\":false,\"events\":[]}");
    put(p, "bad", "{\"begun\":5}");
    free(none);
    alq_log_init(ALQ_LOG_ERROR, ALQ_LOG_TEXT, 2);
    signal(SIGPIPE, SIG_IGN); /* as the daemon does */
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct parent *p = *state;
    alq_file_remove_tree(p->dir, NULL);
    event_base_free(p->base);
    free(p);
    return 0;
}

static void sample_while_one_is_out_is_refused_and_each_comes_once(void **state)
{
    struct parent *p = *state;
    run(p, CHILD "cat $1/$c >&3; done");
    assert_int_equal(p->refused, -1);
    assert_int_equal(p->samples, 2);
    assert_int_equal(p->absent, 0);
    assert_int_equal(p->begun_ns, 5);
}

static void sample_of_child_that_dies_or_lies_is_absent(void **state)
{
    static const char *const scripts[] = {CHILD "[ $c = r ] || exit; cat $1/r >&3; done", CHILD
                                          "[ $c = r ] && cat $1/r >&3 || cat $1/bad >&3; done"};
    struct parent *p = *state;
    for (unsigned i = 0; i < 2; i++) {
        run(p, scripts[i]);
        assert_int_equal(p->absent, i + 1);
        assert_int_equal(p->samples, 0);
    }
}

static void use_and_sample_wanted_at_once_come_both(void **state)
{
    struct parent *p = *state;
    run_with(p, CHILD "cat $1/$c >&3; done", 0, on_read_want_both);
    assert_int_equal(p->samples, 1);
    assert_int_equal(p->uses, 1);
    assert_int_equal(p->absent + p->uses_absent, 0);
}

static void want_when_events_are_out(evutil_socket_t fd, short what, void *arg)
{
    struct parent *p = arg;
    alq_auto_free char *asked = alq_str_printf("%s/asked", p->dir);
    (void)fd;
    (void)what;
    if (access(asked, F_OK))
        return;
    event_del(p->waits);
    want_both(p);
    put(p, "go", "");
}

static void on_read_wait_for_events(void *arg, const struct alq_nvml_reading *reading)
{
    struct parent *p = arg;
    assert_int_equal(reading->code, 0);
    event_add(p->waits, &(struct timeval){.tv_usec = 5000});
}

static void sample_goes_before_a_use_that_was_wanted_earlier(void **state)
{
    struct parent *p = *state;
    alq_auto_free char *path = alq_str_printf("%s/order", p->dir), *order = NULL;
    size_t len = 0;
    p->waits = event_new(p->base, -1, EV_PERSIST, want_when_events_are_out, p);
    run_with(p,
             CHILD "if [ $c = e ]; then touch $1/asked; until [ -e $1/go ]; do sleep 0.01; done; "
                   "else printf $c >>$1/order; fi; cat $1/$c >&3; done",
             200, on_read_wait_for_events);
    event_free(p->waits);
    assert_int_equal(alq_file_read(path, 16, &order, &len, NULL), 0);
    assert_string_equal(order, "rsu");
}

static void use_and_sample_of_child_that_fails_are_absent_once(void **state)
{
    static const char *const scripts[] = {
        CHILD "[ $c = r ] || exit; cat $1/r >&3; done",
        CHILD "[ $c = u ] && cat $1/bad >&3 || cat $1/$c >&3; done",
        /* It does not even listen any more. */
        "dd bs=1 count=1 >/dev/null 2>&1; exec <&-; cat $1/r >&3; exec sleep 60",
    };
    struct parent *p = *state;
    for (unsigned i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        p->absent = p->uses_absent = 0;
        run_with(p, scripts[i], 0, on_read_want_both);
        assert_int_equal(p->absent, 1);
        assert_int_equal(p->uses_absent, 1);
        assert_int_equal(p->samples + p->uses, 0);
    }
}

static void use_and_sample_are_not_told_by_stop(void **state)
{
    struct parent *p = *state;
    run_with(p, CHILD "[ $c = r ] || exec sleep 60; cat $1/r >&3; done", 0,
             on_read_want_both_and_end);
    assert_int_equal(p->samples + p->absent + p->uses + p->uses_absent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_gives_back_what_encode_took),
        cmocka_unit_test(decode_what_no_child_says_is_refused),
        cmocka_unit_test(add_process_in_two_lists_is_one_with_the_larger_figure),
        cmocka_unit_test_setup_teardown(sample_while_one_is_out_is_refused_and_each_comes_once,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(sample_of_child_that_dies_or_lies_is_absent, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(use_and_sample_wanted_at_once_come_both, setup, teardown),
        cmocka_unit_test_setup_teardown(sample_goes_before_a_use_that_was_wanted_earlier, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(use_and_sample_of_child_that_fails_are_absent_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(use_and_sample_are_not_told_by_stop, setup, teardown),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}

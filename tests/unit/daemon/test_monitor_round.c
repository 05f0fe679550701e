/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of the monitor over a share directory, without NVML and without a daemon: what becomes of
 * the corrections that an earlier daemon wrote.
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

#include "aliquot/share.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/monitor/round.h"

#define S 1000000000ll
#define PPM 700000u
#define UUID "GPU-5d1f0c5e-8a0b-4f0e-9b7a-6a1d3c2e4f50"

struct world {
    char dir[64];
    struct alq_round_files files;
    struct alq_figures figures; /* kept from round to round */
};

static int control_fd(const struct world *w, int flags)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/shares/s-0/control", w->dir);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* A share with corrections in force. */
static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char path[128];
    struct alq_control control = {
        .magic = ALQ_CONTROL_MAGIC,
        .version = ALQ_SHARE_VERSION,
        .bytes = ALQ_CONTROL_BYTES,
        .corrected_until_ns = 5 * S,
        .values[0] = {.overhead_correction_bytes = 1 << 20,
                      .compute_limit_pct = 30,
                      .time_correction_ppm = PPM},
    };
    assert_non_null(w);
    snprintf(w->dir, sizeof(w->dir), "/tmp/alq-round-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(path, sizeof(path), "%s/shares", w->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/shares/s-0", w->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    w->files.run_dir = w->dir;
    alq_auto_close int fd = control_fd(w, O_RDWR | O_CREAT);
    assert_int_equal(write(fd, &control, sizeof(control)), sizeof(control));
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char path[128];
    alq_mounts_free(w->files.mounts);
    snprintf(path, sizeof(path), "%s/shares/s-0/control", w->dir);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    rmdir(w->dir);
    free(w);
    return 0;
}

/* NVML shows a process that is in no share. */
static void take_sample(struct alq_round *r)
{
    r->sample.gpus = calloc(1, sizeof(*r->sample.gpus));
    assert_non_null(r->sample.gpus);
    r->sample.gpu_count = 1;
    struct alq_gpu_sample *gpu = &r->sample.gpus[0];
    snprintf(gpu->uuid, sizeof(gpu->uuid), UUID);
    gpu->has_processes = 1;
    gpu->process_count = 1;
    gpu->processes = calloc(1, sizeof(*gpu->processes));
    assert_non_null(gpu->processes);
    gpu->processes[0] = (struct alq_process_sample){.pid = INT32_MAX, .sm_pct = 50};
    r->has_sample = 1;
}

static struct alq_control round_at(struct world *w, int64_t now_ns, int has_sample)
{
    struct alq_control control;
    struct alq_round *r = alq_round_new(1);
    assert_non_null(r);
    r->files = &w->files;
    r->begun_ns = now_ns;
    r->last_ns = now_ns - S;
    struct alq_round_share *s = &r->shares[0];
    snprintf(s->id, sizeof(s->id), "s-0");
    snprintf(s->gpu_uuid, sizeof(s->gpu_uuid), UUID);
    s->is_enforced = 1;
    s->f = w->figures;
    if (has_sample)
        take_sample(r);
    alq_round_run(r);
    w->figures = s->f;
    alq_round_free(r);
    alq_auto_close int fd = control_fd(w, O_RDONLY);
    assert_int_equal(pread(fd, &control, sizeof(control), 0), sizeof(control));
    return control;
}

static const struct alq_control_values *in_force(const struct alq_control *control)
{
    return &control->values[control->sequence & 1];
}

static void round_of_a_new_daemon_leaves_the_correction_of_time_alone(void **state)
{
    struct world *w = *state;
    for (int64_t at = 2; at < 8; at++) {
        struct alq_control control = round_at(w, at * S, (int)(at % 2));
        assert_int_equal(in_force(&control)->time_correction_ppm, PPM);
        assert_int_equal(control.corrected_until_ns, 5 * S);
    }
}

static void round_takes_back_an_overhead_that_nobody_has_any_more(void **state)
{
    struct world *w = *state;
    struct alq_control control = round_at(w, 2 * S, 1);
    assert_true(w->figures.is_correction_known);
    assert_int_equal(w->figures.correction_bytes, 0); /* no process */
    assert_int_equal(in_force(&control)->overhead_correction_bytes, 0);
    assert_int_equal(in_force(&control)->compute_limit_pct, 30);
}

static void round_leaves_a_share_that_nobody_uses_without_figures(void **state)
{
    static const struct alq_figures unused = {.is_correction_known = 1};
    struct world *w = *state;
    for (int64_t at = 2; at < 5; at++)
        round_at(w, at * S, 1);
    w->figures.usage = unused.usage; /* there is no usage file here */
    w->figures.flawed_rounds = 0;
    const void *is = &w->figures, *nothing = &unused;
    assert_int_equal(memcmp(is, nothing, sizeof(unused)), 0);
}

static struct alq_control paced(struct world *w, const struct alq_time_correction *correction)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_control control;
    alq_auto_close int fd = control_fd(w, O_RDWR);
    assert_int_equal(alq_control_pace(fd, correction, "s-0", &err), 0);
    assert_int_equal(pread(fd, &control, sizeof(control), 0), sizeof(control));
    return control;
}

static void control_pace_adds_credits_and_wakes_for_another_rate(void **state)
{
    struct world *w = *state;
    struct alq_time_correction c = {
        .ppm = PPM, .credit_ns = 5000, .is_contended = 1, .until_ns = 9 * S};
    struct alq_control control = paced(w, &c);
    assert_int_equal(control.time_credit_ns, 5000);
    assert_int_equal(control.contended_until_ns, 9 * S);
    assert_int_equal(control.corrected_until_ns, 9 * S);
    assert_int_equal(control.wake, 0); /* the rate is what it was */
    c.credit_ns = -12000;
    c.ppm = PPM / 2;
    control = paced(w, &c);
    assert_int_equal(control.time_credit_ns, (uint64_t)-7000);
    assert_int_equal(in_force(&control)->time_correction_ppm, PPM / 2);
    assert_int_equal(in_force(&control)->overhead_correction_bytes, 1 << 20);
    assert_int_equal(control.wake, 1);
    c.is_contended = 0;
    control = paced(w, &c);
    assert_int_equal(control.contended_until_ns, 0);
}

static void control_pace_of_something_else_writes_nothing(void **state)
{
    struct world *w = *state;
    struct alq_err err = ALQ_ERR_INIT;
    const struct alq_time_correction c = {.ppm = PPM, .credit_ns = 1, .until_ns = S};
    alq_auto_close int fd = control_fd(w, O_RDWR);
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(alq_control_pace(fd, &c, "s-0", &err), ALQ_EPROTO);
    assert_string_equal(err.text, "s-0 is no control file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_of_a_new_daemon_leaves_the_correction_of_time_alone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(round_takes_back_an_overhead_that_nobody_has_any_more,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(control_pace_adds_credits_and_wakes_for_another_rate, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(control_pace_of_something_else_writes_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(round_leaves_a_share_that_nobody_uses_without_figures,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

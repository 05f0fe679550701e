/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pacer's steps on files of its own, in virtual time: what it writes for shares with company,
 * and that files that are none, an NVML that ends and shares that come and go hurt nobody else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <event2/event.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aliquot/share.h"
#include "daemon/monitor/pacer.h"

#define MS 1000000ll
#define GPU "GPU-11111111-2222-3333-4444-555555555555"
#define SHARES_MAX 8
#define OUTSIDE_PID 99

struct alq_timer {
    void (*cb)(void *arg);
    void *arg;
    int64_t at_ns;
};

static struct world {
    char dir[64];
    int64_t now_ns;
    struct alq_config cfg;
    struct event_base *base;
    struct alq_work *work;
    struct alq_timer timer;
    struct alq_watched watched[SHARES_MAX];
    struct alq_watched *all[SHARES_MAX];
    struct alq_figures figures;
    struct alq_shares shares;
    struct alq_round_process processes[SHARES_MAX + 1]; /* of share i: PID 1 + i */
    uint32_t process_count;
    uint64_t charged_ns[SHARES_MAX];
    alq_nvml_use_cb cb; /* NULL: nobody asks */
    void *cb_arg;
    struct alq_pacer *pacer;
} w;

/* ---- a clock, an NVML, files
 * --------------------------------------------------------------------- */

static int64_t clock_now(void *arg)
{
    (void)arg;
    return w.now_ns;
}

static struct alq_timer *timer_new(void *arg, void (*cb)(void *cb_arg), void *cb_arg)
{
    (void)arg;
    w.timer = (struct alq_timer){cb, cb_arg, ALQ_NEVER};
    return &w.timer;
}

static void timer_set(struct alq_timer *timer, int64_t at_ns)
{
    timer->at_ns = at_ns;
}

static void timer_free(struct alq_timer *timer)
{
    timer->at_ns = ALQ_NEVER;
}

static int ask_use(void *arg, alq_nvml_use_cb cb, void *cb_arg)
{
    (void)arg;
    w.cb = cb;
    w.cb_arg = cb_arg;
    return 0;
}

static const struct alq_round_process *processes(void *arg, uint32_t *count)
{
    (void)arg;
    *count = w.process_count;
    return w.processes;
}

static char *path_of(const char *id, const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/shares/%s%s%s", w.dir, id, name ? "/" : "", name ? name : "");
    return path;
}

static void write_file(const char *id, const char *name, const void *bytes, size_t len)
{
    int fd = open(path_of(id, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static void write_charged(const char *id, uint64_t charged_ns)
{
    const off_t at = ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, counters) +
                     offsetof(struct alq_counters, charged_ns);
    int fd = open(path_of(id, "usage"), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    (void)!pwrite(fd, &charged_ns, sizeof(charged_ns), at);
    close(fd);
}

static struct alq_control control_of(const char *id)
{
    struct alq_control control;
    int fd = open(path_of(id, "control"), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &control, sizeof(control)), sizeof(control));
    close(fd);
    return control;
}

static void add_share(uint32_t i, const char *id)
{
    struct alq_control control = {.magic = ALQ_CONTROL_MAGIC, .version = ALQ_SHARE_VERSION};
    struct alq_watched *share = &w.watched[i];
    memset(share, 0, sizeof(*share));
    snprintf(share->id, sizeof(share->id), "%s", id);
    snprintf(share->gpu_uuid, sizeof(share->gpu_uuid), "%s", GPU);
    share->lend.is_measured = 1;
    share->lend.cores_pct = 30;
    share->f = &w.figures;
    w.all[i] = share;
    memset(&w.processes[i], 0, sizeof(w.processes[i]));
    w.processes[i].pid = 1 + i;
    snprintf(w.processes[i].gpu_uuid, sizeof(w.processes[i].gpu_uuid), "%s", GPU);
    snprintf(w.processes[i].share_id, sizeof(w.processes[i].share_id), "%s", id);
    assert_int_equal(mkdir(path_of(id, NULL), 0700), 0);
    write_file(id, "control", &control, sizeof(control));
    w.charged_ns[i] = 0;
    write_charged(id, 0);
}

static void remove_share(const char *id)
{
    unlink(path_of(id, "usage"));
    unlink(path_of(id, "control"));
    rmdir(path_of(id, NULL));
}

/* With so many shares on one GPU, and a program outside them. */
static void begin(uint32_t count)
{
    struct alq_err err = ALQ_ERR_INIT;
    memset(&w, 0, sizeof(w));
    snprintf(w.dir, sizeof(w.dir), "/tmp/alq-pacer-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    assert_int_equal(mkdir(path_of("", NULL), 0700), 0);
    w.now_ns = 1000000 * MS;
    w.cfg.run_dir = w.dir;
    w.figures.gpu_processes = 1;
    for (uint32_t i = 0; i < count; i++) {
        char id[8];
        snprintf(id, sizeof(id), "s-%u", i);
        add_share(i, id);
    }
    w.processes[count] = (struct alq_round_process){.pid = OUTSIDE_PID, .gpu_uuid = GPU};
    w.process_count = count + 1;
    w.shares = (struct alq_shares){.cfg = &w.cfg, .all = w.all, .count = count};
    w.base = event_base_new();
    w.work = alq_work_new(w.base, 1, &err);
    assert_non_null(w.work);
    const struct alq_pacer_parts parts = {
        .clock = {clock_now, timer_new, timer_set, timer_free, NULL},
        .work = w.work,
        .shares = &w.shares,
        .processes = processes,
        .use = ask_use,
    };
    w.pacer = alq_pacer_new(&parts);
    assert_non_null(w.pacer);
}

static void finish(void)
{
    alq_work_free(w.work);
    alq_pacer_free(w.pacer);
    event_base_free(w.base);
    for (uint32_t i = 0; i < SHARES_MAX; i++)
        if (w.watched[i].id[0])
            remove_share(w.watched[i].id);
    assert_int_equal(rmdir(path_of("", NULL)), 0);
    assert_int_equal(rmdir(w.dir), 0);
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static void work_off(void)
{
    while (alq_work_pending(w.work))
        event_base_loop(w.base, EVLOOP_ONCE);
}

/* Up to the question to NVML. */
static void step_begins(void)
{
    w.now_ns += 100 * MS;
    if (w.timer.at_ns <= w.now_ns) {
        w.timer.at_ns = ALQ_NEVER;
        w.timer.cb(w.timer.arg);
    } else {
        alq_pacer_look(w.pacer);
    }
    work_off();
}

static void answer(struct alq_use *use)
{
    alq_nvml_use_cb cb = w.cb;
    w.cb = NULL;
    if (cb)
        cb(w.cb_arg, use);
    work_off();
}

/* NVML's percents: of share 0, of `pid`. Each share is charged as much as it has to be. */
static void step(uint32_t own_pct, uint32_t pid, uint32_t pct, uint32_t charged_pct)
{
    struct alq_use_process rows[] = {{1, own_pct}, {pid, pct}};
    struct alq_use_gpu gpu = {
        .uuid = GPU, .window_ns = 100 * MS, .process_count = 2, .processes = rows};
    struct alq_use use = {1, &gpu};
    for (uint32_t i = 0; i < w.shares.count; i++)
        write_charged(w.all[i]->id, w.charged_ns[i] += (uint64_t)MS * charged_pct);
    step_begins();
    answer(&use);
}

static int is_corrected(const char *id)
{
    const struct alq_control control = control_of(id);
    return control.contended_until_ns > (uint64_t)w.now_ns &&
           control.corrected_until_ns == control.contended_until_ns;
}

static uint32_t ppm_of(const char *id)
{
    const struct alq_control control = control_of(id);
    return control.values[control.sequence & 1].time_correction_ppm;
}

static void pacer_with_company_corrects(void **state)
{
    (void)state;
    begin(1);
    for (int i = 0; i < 50; i++)
        step(30, OUTSIDE_PID, 70, 60);
    assert_true(is_corrected("s-0"));
    assert_in_range(ppm_of("s-0"), 480000, 520000);
    assert_true((int64_t)control_of("s-0").time_credit_ns > 0);
    /* Nobody is beside it any more: what is in force ends with the next step. */
    w.process_count = 1;
    w.now_ns += 2000 * MS;
    step_begins();
    assert_null(w.cb);
    assert_false(is_corrected("s-0"));
    finish();
}

static void pacer_without_company_does_nothing(void **state)
{
    (void)state;
    begin(1);
    w.process_count = 1;
    for (int i = 0; i < 20; i++)
        step(30, 1, 0, 60);
    assert_null(w.cb);
    assert_int_equal(control_of("s-0").sequence, 0);
    assert_int_equal(control_of("s-0").contended_until_ns, 0);
    finish();
}

static void pacer_of_a_share_that_rests_writes_now_and_then(void **state)
{
    unsigned writes = 0;
    (void)state;
    begin(2);
    for (int i = 0; i < 50; i++)
        step(30, 2, 30, 60);
    for (int i = 0; i < 100; i++) {
        const struct alq_control before = control_of("s-1");
        w.charged_ns[1] -= 60 * MS; /* nothing is added */
        step(30, OUTSIDE_PID, 70, 60);
        assert_true(is_corrected("s-1"));
        if (i >= 40)
            writes += control_of("s-1").contended_until_ns != before.contended_until_ns;
    }
    assert_in_range(writes, 10, 15);
    finish();
}

static void pacer_of_a_process_it_does_not_know_leaves_the_window_out(void **state)
{
    (void)state;
    begin(1);
    for (int i = 0; i < 50; i++)
        step(30, OUTSIDE_PID, 70, 60);
    const uint64_t credit_ns = control_of("s-0").time_credit_ns;
    for (int i = 0; i < 20; i++)
        step(1, 12345, 99, 60);
    assert_in_range(ppm_of("s-0"), 480000, 520000);
    assert_int_equal(control_of("s-0").time_credit_ns, credit_ns);
    finish();
}

/* A container may do so much to the file that it was given; the rest an operator. */
static void spoil(const char *id, int how, const char *name)
{
    unlink(path_of(id, name));
    if (how == 1)
        assert_int_equal(mkfifo(path_of(id, name), 0600), 0);
    else if (how == 2)
        assert_int_equal(symlink("/dev/zero", path_of(id, name)), 0);
    else if (how == 3)
        write_file(id, name, "short", 5);
    else if (how == 4)
        assert_int_equal(mkdir(path_of(id, name), 0700), 0);
}

static void pacer_of_files_that_are_none_corrects_the_others(void **state)
{
    static const char *const names[] = {"usage", "control"};
    (void)state;
    for (int how = 0; how < 5; how++)
        for (int n = 0; n < 2; n++) {
            begin(2);
            for (int i = 0; i < 10; i++)
                step(30, 2, 70, 60);
            spoil("s-1", how, names[n]);
            for (int i = 0; i < 50; i++)
                step(30, 2, 70, 60);
            assert_true(is_corrected("s-0"));
            assert_in_range(ppm_of("s-0"), 480000, 520000);
            rmdir(path_of("s-1", names[n]));
            finish();
        }
}

static void pacer_of_an_nvml_that_ends_lets_its_corrections_end(void **state)
{
    (void)state;
    begin(1);
    for (int i = 0; i < 50; i++)
        step(30, OUTSIDE_PID, 70, 60);
    for (int i = 0; i < 20; i++) {
        write_charged("s-0", w.charged_ns[0] += 60 * MS);
        step_begins();
        assert_non_null(w.cb);
        answer(NULL);
    }
    assert_false(is_corrected("s-0"));
    for (int i = 0; i < 30; i++) /* and begin again */
        step(30, OUTSIDE_PID, 70, 60);
    assert_true(is_corrected("s-0"));
    /* One that does not answer at all is not asked again meanwhile, and is in nobody's way. */
    write_charged("s-0", w.charged_ns[0] += 60 * MS);
    step_begins();
    assert_non_null(w.cb);
    alq_nvml_use_cb asked = w.cb;
    w.cb = NULL;
    step_begins();
    alq_pacer_look(w.pacer);
    assert_null(w.cb);
    w.cb = asked;
    finish();
}

static void pacer_of_shares_that_go_while_it_waits_goes_on(void **state)
{
    (void)state;
    begin(2);
    for (int i = 0; i < 20; i++)
        step(30, OUTSIDE_PID, 70, 60);
    step_begins();
    assert_non_null(w.cb);
    remove_share("s-0");
    memset(&w.watched[0], 0xff, sizeof(w.watched[0])); /* freed */
    w.all[0] = w.all[1];
    w.shares.count = 1;
    w.process_count = 0;
    struct alq_use_process rows[] = {{1, 30}, {2, 70}};
    struct alq_use_gpu gpu = {
        .uuid = GPU, .window_ns = 100 * MS, .process_count = 2, .processes = rows};
    struct alq_use use = {1, &gpu};
    answer(&use);
    step_begins();
    memset(&w.watched[0], 0, sizeof(w.watched[0]));
    finish();
}

static void pacer_of_shares_that_come_and_go_keeps_nothing(void **state)
{
    size_t used = 0;
    (void)state;
    begin(1);
    for (int i = 0; i < 1000; i++) {
        char id[16];
        for (int n = 0; n < 2; n++)
            step(30, OUTSIDE_PID, 70, 60);
        remove_share(w.watched[0].id);
        snprintf(id, sizeof(id), "c-%d", i);
        add_share(0, id);
        if (i == 10)
            used = mallinfo2().uordblks;
    }
    assert_true(mallinfo2().uordblks <= used + 4096);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pacer_with_company_corrects),
        cmocka_unit_test(pacer_without_company_does_nothing),
        cmocka_unit_test(pacer_of_a_share_that_rests_writes_now_and_then),
        cmocka_unit_test(pacer_of_a_process_it_does_not_know_leaves_the_window_out),
        cmocka_unit_test(pacer_of_files_that_are_none_corrects_the_others),
        cmocka_unit_test(pacer_of_an_nvml_that_ends_lets_its_corrections_end),
        cmocka_unit_test(pacer_of_shares_that_go_while_it_waits_goes_on),
        cmocka_unit_test(pacer_of_shares_that_come_and_go_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

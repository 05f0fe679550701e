/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines between NVML child and parent, and the parent against children that misbehave: small
 * shell scripts in the child's place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/nvml/program.h"
#include "daemon/nvml/protocol.h"
#include "daemon/nvml/reader.h"
#include "daemon/nvml/sample.h"
#include "daemon/nvml/sysfs.h"

#define MIB (1024ull * 1024)

/* ---- texts ---------------------------------------------------------------------------------- */

static void semver_drops_zeros_and_fills_up(void **state)
{
    static const char *const rows[][2] = {
        {"570.086.10", "570.86.10"},
        {"535.54", "535.54.0"},
        {"550.163.01", "550.163.1"},
        {"580", "580.0.0"},
        {"1.2.3.4", "1.2.3"},
        {"", ""},
        {"abc", ""},
        {"535.54.03-x", "535.54.0"},
        {"535x", "535.0.0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[32];
        alq_nvml_semver(rows[i][0], text, sizeof(text));
        assert_string_equal(text, rows[i][1]);
    }
}

static void pci_address_is_sysfs_form(void **state)
{
    static const char *const rows[][2] = {
        {"00000000:65:00.0", "0000:65:00.0"},
        {"00000000:E3:0A.1", "0000:e3:0a.1"},
        {"00010000:01:00.0", "10000:01:00.0"},
        {"0000:65:00", ""},
        {"65:00.0", ""},
        {"00000000:65:00.0x", ""},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[16];
        alq_nvml_pci_address(rows[i][0], text, sizeof(text));
        assert_string_equal(text, rows[i][1]);
    }
}

static void sysfs_finds_root_and_node_where_they_are(void **state)
{
    char dir[] = "/tmp/alq-sys-XXXXXX", path[256], root[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/devices/LNXSYSTM:00/pci0000:64/0000:64:00.0/0000:65:00.0",
             dir);
    assert_int_equal(alq_file_mkdirs(path, 0755, NULL), 0);
    strcat(path, "/numa_node");
    assert_int_equal(alq_file_write_atomic(path, "1\n", 2, 0644, 0, NULL), 0);
    snprintf(path, sizeof(path), "%s/bus/pci/devices", dir);
    assert_int_equal(alq_file_mkdirs(path, 0755, NULL), 0);
    strcat(path, "/0000:65:00.0");
    assert_int_equal(
        symlink("../../../devices/LNXSYSTM:00/pci0000:64/0000:64:00.0/0000:65:00.0", path), 0);
    alq_sysfs_pcie_root(dir, "0000:65:00.0", root, sizeof(root));
    assert_string_equal(root, "pci0000:64");
    assert_int_equal(alq_sysfs_numa_node(dir, "0000:65:00.0"), 1);
    alq_sysfs_pcie_root(dir, "0000:66:00.0", root, sizeof(root));
    assert_string_equal(root, "");
    assert_int_equal(alq_sysfs_numa_node(dir, "0000:66:00.0"), -1);
    alq_sysfs_pcie_root(dir, "", root, sizeof(root));
    assert_string_equal(root, "");
    assert_int_equal(alq_sysfs_numa_node(dir, ""), -1);
    assert_int_equal(alq_file_remove_tree(dir, NULL), 0);
}

/* ---- protocol ------------------------------------------------------------------------------- */

static struct alq_gpu gpu(unsigned minor)
{
    struct alq_gpu g = {.minor = minor,
                        .index = minor + 1,
                        .product_name = "NVIDIA H100 80GB HBM3",
                        .driver_version = "550.163.1",
                        .driver_version_raw = "550.163.01",
                        .pci_bus_id = "0000:65:00.0",
                        .numa_node = -1,
                        .memory_total_bytes = 81559 * MIB,
                        .memory_promisable_bytes = 81000 * MIB + 5};
    snprintf(g.uuid, sizeof(g.uuid), "GPU-%u", minor);
    return g;
}

static void decode_gives_back_what_encode_took(void **state)
{
    (void)state;
    struct alq_nvml_reading *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    struct alq_gpu gpus[2] = {gpu(0), gpu(3)};
    a->list = (struct alq_gpu_list){gpus, 2};
    a->left_out_count = 1;
    a->left_out[0].index = 9;
    snprintf(a->load, sizeof(a->load), "17.3");
    gpus[1].recovery_action = 4;
    gpus[1].is_watched = gpus[0].is_hanging = 1;
    snprintf(a->left_out[0].reason, sizeof(a->left_out[0].reason), "MIG");
    alq_auto_free char *line = alq_nvml_encode(a);
    assert_null(strchr(line, '\n'));
    assert_int_equal(alq_nvml_decode(line, strlen(line), b, NULL), 0);
    assert_int_equal(b->list.count, 2);
    assert_memory_equal(b->list.gpus, gpus, sizeof(gpus));
    assert_int_equal(b->left_out_count, 1);
    assert_string_equal(b->left_out[0].reason, "MIG");
    assert_string_equal(b->load, "17.3");
    alq_nvml_reading_clear(b);
    free(a);
    free(b);
}

static void encode_of_a_name_that_is_no_text_loses_the_name_only(void **state)
{
    (void)state;
    struct alq_nvml_reading *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    struct alq_gpu g = gpu(0);
    snprintf(g.product_name, sizeof(g.product_name), "\xff\xfe");
    a->list = (struct alq_gpu_list){&g, 1};
    alq_auto_free char *line = alq_nvml_encode(a);
    assert_non_null(line);
    assert_int_equal(alq_nvml_decode(line, strlen(line), b, NULL), 0);
    assert_string_equal(b->list.gpus[0].product_name, "");
    assert_string_equal(b->list.gpus[0].uuid, "GPU-0");
    alq_nvml_reading_clear(b);
    free(a);
    free(b);
}

static void decode_events_gives_back_what_encode_took(void **state)
{
    (void)state;
    static struct alq_nvml_events a = {
        .is_reading_due = 1,
        .count = 2,
        .events = {{"GPU-0", ALQ_FAULT_XID, 79}, {"GPU-1", ALQ_FAULT_ECC, 0}}};
    static struct alq_nvml_events b;
    static const char *const bad[] = {
        "{}",
        "{\"events\":{}}",
        "{\"events\":[{\"uuid\":\"GPU-0\",\"kind\":2,\"code\":0}]}",
        "{\"events\":[{\"uuid\":\"GPU-0\",\"kind\":0,\"code\":-1}]}",
        "{\"events\":[{\"kind\":0,\"code\":1}]}",
    };
    alq_auto_free char *line = alq_nvml_encode_events(&a);
    assert_int_equal(alq_nvml_decode_events(line, strlen(line), &b, NULL), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(alq_nvml_decode_events(bad[i], strlen(bad[i]), &b, NULL), ALQ_EPROTO);
}

static void decode_progress_takes_an_index_only(void **state)
{
    (void)state;
    assert_int_equal(alq_nvml_decode_progress("@0", 2), 0);
    assert_int_equal(alq_nvml_decode_progress("@127", 4), 127);
    static const char *const bad[] = {"", "@", "@128", "@-1", "@0x", "0", "@1 ", "{}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(alq_nvml_decode_progress(bad[i], strlen(bad[i])), -1);
}

static void recovery_action_has_a_name_that_a_label_takes(void **state)
{
    (void)state;
    assert_string_equal(alq_nvml_recovery_name(-1), "");
    assert_string_equal(alq_nvml_recovery_name(0), "");
    assert_string_equal(alq_nvml_recovery_name(1), "reset");
    assert_string_equal(alq_nvml_recovery_name(4), "drain-and-reset");
    assert_string_equal(alq_nvml_recovery_name(99), "unknown");
    assert_true(alq_nvml_is_reset(1) && alq_nvml_is_reset(4));
    assert_false(alq_nvml_is_reset(0) || alq_nvml_is_reset(2) || alq_nvml_is_reset(-1));
}

static void decode_refuses_what_a_broken_child_may_say(void **state)
{
    (void)state;
    struct alq_nvml_reading *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    struct alq_gpu gpus[2] = {gpu(0), gpu(0)};
    a->list = (struct alq_gpu_list){gpus, 1};
    alq_auto_free char *line = alq_nvml_encode(a);
    static const char *const edits[][2] = {
        {"\"minor\":0", "\"minor\":-1"},
        {"\"minor\":0", "\"minor\":4294967296"},
        {"\"minor\":0", "\"minor\":\"0\""},
        {"\"uuid\":\"GPU-0\"", "\"uuid\":\"\""},
        {"\"uuid\":\"GPU-0\"", "\"uuid\":\"GPU-0123456789012345678901234567890123456789012345\""},
        {"\"numaNode\":-1", "\"numaNode\":-2"},
        {"\"code\":0", "\"code\":1"},
        {"\"gpus\":[", "\"gpus\":{},\"more\":["},
        {"{\"code\"", "[\"code\""},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        char *where = strstr(line, edits[i][0]);
        assert_non_null(where);
        alq_auto_free char *bad = alq_str_printf("%.*s%s%s", (int)(where - line), line, edits[i][1],
                                                 where + strlen(edits[i][0]));
        if (alq_nvml_decode(bad, strlen(bad), b, NULL) != ALQ_EPROTO)
            fail_msg("%s was taken", bad);
        alq_nvml_reading_clear(b);
    }
    a->list.count = 2; /* one UUID twice */
    alq_auto_free char *twice = alq_nvml_encode(a);
    assert_int_equal(alq_nvml_decode(twice, strlen(twice), b, NULL), ALQ_EPROTO);
    alq_nvml_reading_clear(b);
    free(a);
    free(b);
}

/* ---- parent --------------------------------------------------------------------------------- */

#define CALLS_MAX 16

struct parent {
    char dir[64];
    struct event_base *base;
    struct alq_nvml *nvml;
    unsigned calls, wanted;
    size_t counts[CALLS_MAX];
    int codes[CALLS_MAX];
    char texts[CALLS_MAX][ALQ_ERR_TEXT_BYTES];
    struct alq_gpu last;
    size_t left_out[CALLS_MAX];
    size_t hanging; /* in the last reading */
    unsigned event_count, samples, uses;
    void (*read)(void *arg, const struct alq_nvml_reading *reading); /* on_read unless set */
    struct alq_gpu_event events[CALLS_MAX];
};

static void on_read(void *arg, const struct alq_nvml_reading *reading)
{
    struct parent *p = arg;
    const struct alq_gpu_list *list = &reading->list;
    assert_true(p->calls < CALLS_MAX);
    p->counts[p->calls] = list->count;
    p->codes[p->calls] = reading->code;
    p->left_out[p->calls] = reading->left_out_count;
    snprintf(p->texts[p->calls], sizeof(p->texts[0]), "%s", reading->reason);
    if (list->count)
        p->last = list->gpus[0];
    p->hanging = 0;
    for (size_t i = 0; i < list->count; i++)
        p->hanging += list->gpus[i].is_hanging != 0;
    if (++p->calls == p->wanted)
        event_base_loopbreak(p->base);
}

static void on_happened(void *arg, const struct alq_gpu_event *event)
{
    struct parent *p = arg;
    assert_true(p->event_count < CALLS_MAX);
    p->events[p->event_count++] = *event;
}

static const struct alq_nvml_timing quick = {
    .first_reply_ms = 5000, .reply_ms = 5000, .poll_ms = 5, .retry_min_ms = 5, .retry_max_ms = 20};

static char *line_of(unsigned gpus, int code, int is_restart_wanted)
{
    struct alq_nvml_reading *r = calloc(1, sizeof(*r));
    struct alq_gpu all[4];
    for (unsigned i = 0; i < gpus; i++)
        all[i] = gpu(i);
    r->list = (struct alq_gpu_list){all, gpus};
    r->code = code;
    r->is_restart_wanted = is_restart_wanted;
    snprintf(r->reason, sizeof(r->reason), "%s", code ? "no driver" : "");
    char *line = alq_nvml_encode(r);
    free(r);
    return line;
}

/* Runs script as the child until `wanted` calls have come. $1: directory with the lines as files.
 */
static void run(struct parent *p, const char *script, unsigned wanted,
                const struct alq_nvml_timing *timing)
{
    const struct alq_nvml_calls calls = {p->read ? p->read : on_read, on_happened, p};
    char shell[] = "/bin/sh", option[] = "-c", zero[] = "child";
    alq_auto_free char *text = strdup(script);
    char *const argv[] = {shell, option, text, zero, p->dir, NULL};
    p->wanted = wanted;
    p->nvml = alq_nvml_start_with(p->base, argv[0], argv, timing, &calls, NULL);
    assert_non_null(p->nvml);
    event_base_loopexit(p->base, &(struct timeval){.tv_sec = 20});
    event_base_dispatch(p->base);
    alq_nvml_stop(p->nvml);
    p->nvml = NULL;
    assert_int_equal(p->calls, wanted);
    /* No child may be left, neither running nor as a zombie. */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void put(const struct parent *p, const char *name, char *line)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", p->dir, name);
    alq_auto_free char *text = alq_str_printf("%s\n", line);
    assert_int_equal(alq_file_write_atomic(path, text, strlen(text), 0644, 0, NULL), 0);
    free(line);
}

static int setup(void **state)
{
    struct parent *p = calloc(1, sizeof(*p));
    snprintf(p->dir, sizeof(p->dir), "/tmp/alq-nvml-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->base = event_base_new();
    put(p, "one", line_of(1, 0, 0));
    put(p, "two", line_of(2, 0, 0));
    alq_auto_free char *once = line_of(1, 0, 0);
    put(p, "double", alq_str_printf("%s\n%s", once, once)); /* in one write */
    put(p, "absent", line_of(0, ALQ_ENOENT, 0));
    put(p, "restart", line_of(0, ALQ_EAGAIN, 1));
    alq_log_init(ALQ_LOG_ERROR, ALQ_LOG_TEXT, 2);
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

/* dd takes exactly the one byte of a request. */
#define ASKED "dd bs=1 count=1 of=/dev/null 2>/dev/null"

static void parent_tells_a_reading_once_and_then_changes(void **state)
{
    struct parent *p = *state;
    run(p,
        ASKED "; cat $1/one >&3; " ASKED "; cat $1/one >&3; " ASKED "; cat $1/two >&3; " ASKED
              "; cat $1/one >&3; " ASKED "; exec sleep 60",
        3, &quick);
    assert_int_equal(p->counts[0], 1);
    assert_int_equal(p->counts[1], 2);
    assert_int_equal(p->counts[2], 1);
    assert_int_equal(p->codes[0], 0);
    assert_int_equal(p->last.memory_total_bytes, 81559 * MIB);
}

static void parent_retries_while_the_driver_is_absent_and_tells_once(void **state)
{
    struct parent *p = *state;
    run(p,
        ASKED "; n=$(cat $1/n 2>/dev/null || echo 0); echo $((n+1)) >$1/n; "
              "if [ $n -lt 3 ]; then cat $1/absent >&3; else cat $1/one >&3; " ASKED
              "; exec sleep 60; fi",
        2, &quick);
    assert_int_equal(p->codes[0], ALQ_ENOENT);
    assert_string_equal(p->texts[0], "no driver");
    assert_int_equal(p->codes[1], 0);
    assert_int_equal(p->counts[1], 1);
}

static void parent_kills_a_child_that_hangs(void **state)
{
    struct parent *p = *state;
    struct alq_nvml_timing timing = quick;
    timing.first_reply_ms = 20;
    run(p, "exec sleep 60", 1, &timing);
    assert_int_equal(p->codes[0], ALQ_ETIMEDOUT);
}

static void parent_keeps_the_reading_over_one_crash_and_gives_up_after_more(void **state)
{
    struct parent *p = *state;
    run(p,
        ASKED "; n=$(cat $1/n 2>/dev/null || echo 0); echo $((n+1)) >$1/n; "
              "if [ $n -eq 0 ]; then cat $1/one >&3; " ASKED
              "; kill -SEGV $$; elif [ $n -eq 1 ]; then cat $1/two >&3; " ASKED
              "; kill -SEGV $$; else kill -SEGV $$; fi",
        3, &quick);
    assert_int_equal(p->counts[0], 1);
    assert_int_equal(p->counts[1], 2); /* not an empty list in between */
    assert_int_equal(p->codes[2], ALQ_EIO);
}

static void parent_starts_another_child_when_the_driver_changed(void **state)
{
    struct parent *p = *state;
    run(p,
        ASKED "; if [ ! -e $1/n ]; then touch $1/n; cat $1/one >&3; " ASKED
              "; cat $1/restart >&3; else cat $1/two >&3; " ASKED "; exec sleep 60; fi",
        2, &quick);
    assert_int_equal(p->counts[0], 1);
    assert_int_equal(p->counts[1], 2);
}

/* A request's byte as a number. */
#define BYTE "$(dd bs=1 count=1 2>/dev/null | od -An -tu1 | tr -d ' ')"

static void parent_lets_a_gpu_be_that_nvml_hangs_on(void **state)
{
    struct parent *p = *state;
    struct alq_nvml_timing timing = quick;
    timing.reply_ms = 1000; /* a busy machine's shell takes long to start */
    timing.skip_min_ms = timing.skip_max_ms = 60000;
    /* "two" has the indices 1 and 2. The second child is to be told "k", 2, "r". */
    run(p,
        "if [ ! -e $1/n ]; then touch $1/n; " ASKED
        "; printf '@1\\n@2\\n' >&3; cat $1/two >&3; " ASKED
        "; printf '@1\\n@2\\n' >&3; exec sleep 60; fi; "
        "[ " BYTE " = 107 ] && [ " BYTE " = 2 ] && [ " BYTE " = 114 ] && printf '@1\\n' >&3 && "
        "cat $1/one >&3 && " ASKED "; exec sleep 60",
        2, &timing);
    assert_int_equal(p->counts[0], 2);
    assert_int_equal(p->counts[1], 2); /* it is still there, as it was read last */
    assert_int_equal(p->codes[1], 0);
    assert_int_equal(p->hanging, 1);
}

static void parent_looks_again_at_a_gpu_that_hung(void **state)
{
    struct parent *p = *state;
    struct alq_nvml_timing timing = quick;
    timing.first_reply_ms = 1000; /* likewise */
    timing.skip_min_ms = timing.skip_max_ms = 50;
    run(p,
        "case $(cat $1/n 2>/dev/null) in '') echo 1 >$1/n; " ASKED
        "; printf '@2\\n' >&3; exec sleep 60;; "
        "1) echo 2 >$1/n; " ASKED "; " ASKED "; " ASKED "; cat $1/one >&3; while " ASKED
        " && [ ! -e $1/stop ]; do cat $1/one >&3; done;; "
        "2) " ASKED "; cat $1/two >&3; " ASKED "; exec sleep 60;; esac",
        2, &timing);
    assert_int_equal(p->counts[0], 1); /* hung from the start: never read, so left out */
    assert_int_equal(p->left_out[0], 1);
    assert_int_equal(p->counts[1], 2);
    assert_int_equal(p->hanging, 0);
}

static void parent_hands_events_over_and_reads_at_once(void **state)
{
    struct parent *p = *state;
    struct alq_nvml_timing timing = quick;
    timing.events_ms = 5;
    timing.poll_ms = 60000;
    put(p, "events",
        strdup("{\"readingDue\":true,\"events\":[{\"uuid\":\"GPU-0\",\"kind\":0,"
               "\"code\":79}]}"));
    run(p,
        "[ " BYTE " = 114 ] && cat $1/one >&3 && [ " BYTE " = 101 ] && cat $1/events >&3 && [ " BYTE
        " = 114 ] && cat $1/two >&3; " ASKED "; exec sleep 60",
        2, &timing);
    assert_int_equal(p->event_count, 1);
    assert_string_equal(p->events[0].uuid, "GPU-0");
    assert_int_equal(p->events[0].kind, ALQ_FAULT_XID);
    assert_int_equal(p->events[0].code, 79);
    assert_int_equal(p->counts[1], 2);
}

static void ask_again(void *arg, struct alq_sample *sample)
{
    struct parent *p = arg;
    if (sample)
        p->samples++;
    if (p->nvml)
        alq_nvml_sample(p->nvml, ask_again, p);
}

static void ask_for_use_again(void *arg, struct alq_use *use)
{
    struct parent *p = arg;
    if (use)
        p->uses++;
    if (p->nvml)
        alq_nvml_use(p->nvml, ask_for_use_again, p);
}

static void begin_sampling(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    ask_again(arg, NULL);
    ask_for_use_again(arg, NULL);
}

static void on_read_then_sample(void *arg, const struct alq_nvml_reading *reading)
{
    struct parent *p = arg;
    on_read(p, reading);
    if (p->calls == 1)
        event_base_once(p->base, -1, EV_TIMEOUT, begin_sampling, p, NULL);
}

static void parent_asked_for_samples_and_use_without_end_asks_for_events(void **state)
{
    struct parent *p = *state;
    struct alq_nvml_timing timing = quick;
    const struct alq_sample none = {0};
    const struct alq_use no_use = {0};
    timing.events_ms = 200;
    timing.poll_ms = 60000;
    p->read = on_read_then_sample;
    put(p, "sample", alq_sample_encode(&none));
    put(p, "use", alq_use_encode(&no_use));
    put(p, "none", strdup("{\"readingDue\":false,\"events\":[]}"));
    put(p, "events",
        strdup("{\"readingDue\":true,\"events\":[{\"uuid\":\"GPU-0\",\"kind\":0,"
               "\"code\":79}]}"));
    run(p,
        "answer=one; while byte=" BYTE "; do case $byte in 114) cat $1/$answer;; "
        "115) sampled=1; cat $1/sample;; 117) used=1; cat $1/use;; "
        "101) if [ \"$sampled$used\" = 11 ]; then answer=two; cat $1/events; "
        "else cat $1/none; fi;; esac >&3; done",
        2, &timing);
    assert_int_equal(p->event_count, 1);
    assert_true(p->samples > 0 && p->uses > 0);
}

static void parent_does_not_hold_a_gpu_that_waits_for_a_reset(void **state)
{
    struct parent *p = *state;
    struct alq_gpu g = gpu(0);
    struct alq_nvml_reading *r = calloc(1, sizeof(*r));
    g.recovery_action = 1;
    r->list = (struct alq_gpu_list){&g, 1};
    put(p, "reset", alq_nvml_encode(r));
    free(r);
    /* The first child has to go by itself: only the second one says something new. */
    run(p,
        ASKED "; if [ ! -e $1/n ]; then touch $1/n; cat $1/reset >&3; " ASKED
              "; cat $1/reset >&3; exec sleep 60; fi; cat $1/one >&3; " ASKED "; exec sleep 60",
        2, &quick);
    assert_int_equal(p->counts[0], 1);
    assert_int_equal(p->counts[1], 1);
    assert_int_equal(p->last.recovery_action, 0);
}

static void parent_takes_no_nonsense(void **state)
{
    static const char *const scripts[] = {
        ASKED "; echo nonsense >&3; exec sleep 60",
        ASKED "; cat $1/double >&3; exec sleep 60",
        ASKED "; exit 0",
        ASKED "; yes | tr -d '\\n' >&3; exec sleep 60",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        void *fresh;
        setup(&fresh);
        struct parent *p = fresh;
        run(p, scripts[i], 1, &quick);
        if (!p->codes[0])
            fail_msg("%s was taken", scripts[i]);
        teardown(&fresh);
    }
}

static void parent_without_a_program_says_so_and_retries(void **state)
{
    struct parent *p = *state;
    char missing[] = "/nonexistent/aliquotd";
    char *const argv[] = {missing, NULL};
    p->wanted = 1;
    const struct alq_nvml_calls calls = {on_read, on_happened, p};
    p->nvml = alq_nvml_start_with(p->base, argv[0], argv, &quick, &calls, NULL);
    event_base_loopexit(p->base, &(struct timeval){.tv_sec = 20});
    event_base_dispatch(p->base);
    alq_nvml_stop(p->nvml);
    assert_int_equal(p->codes[0], ALQ_EIO);
    assert_non_null(strstr(p->texts[0], "/nonexistent/aliquotd"));
}

static void program_is_found_beside_and_in_libexec_and_kept_when_replaced(void **state)
{
    struct parent *p = *state;
    struct alq_err err = ALQ_ERR_INIT;
    char sbin[128], libexec[128], path[256], seen[256] = "";
    int fd = -1;
    snprintf(sbin, sizeof(sbin), "%s/sbin", p->dir);
    snprintf(libexec, sizeof(libexec), "%s/libexec/aliquot", p->dir);
    assert_int_equal(alq_file_mkdirs(sbin, 0755, NULL), 0);
    assert_int_equal(alq_file_mkdirs(libexec, 0755, NULL), 0);
    if (!alq_nvml_program_open(sbin, &fd, &err)) { /* this machine has one installed */
        close(fd);
    } else {
        assert_int_equal(err.code, ALQ_ENOENT);
        assert_non_null(strstr(err.text, "install aliquot as a whole"));
        assert_non_null(strstr(err.text, sbin));
    }
    static const char script[] = "#!/bin/sh\n";
    snprintf(path, sizeof(path), "%s/" ALQ_NVML_PROGRAM, libexec);
    assert_int_equal(alq_file_write_atomic(path, script, sizeof(script) - 1, 0755, 0, NULL), 0);
    assert_int_equal(alq_nvml_program_open(sbin, &fd, NULL), 0);
    close(fd);
    snprintf(path, sizeof(path), "%s/" ALQ_NVML_PROGRAM, sbin);
    assert_int_equal(alq_file_write_atomic(path, script, sizeof(script) - 1, 0755, 0, NULL), 0);
    assert_int_equal(alq_nvml_program_open(sbin, &fd, NULL), 0);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert_true(readlink(path, seen, sizeof(seen) - 1) > 0);
    assert_non_null(strstr(seen, "/sbin/" ALQ_NVML_PROGRAM));
    assert_int_equal(access(path, X_OK), 0);
    close(fd);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(semver_drops_zeros_and_fills_up),
        cmocka_unit_test(pci_address_is_sysfs_form),
        cmocka_unit_test(sysfs_finds_root_and_node_where_they_are),
        cmocka_unit_test(decode_gives_back_what_encode_took),
        cmocka_unit_test(encode_of_a_name_that_is_no_text_loses_the_name_only),
        cmocka_unit_test(decode_events_gives_back_what_encode_took),
        cmocka_unit_test(decode_progress_takes_an_index_only),
        cmocka_unit_test(recovery_action_has_a_name_that_a_label_takes),
        cmocka_unit_test(decode_refuses_what_a_broken_child_may_say),
        ROW(parent_tells_a_reading_once_and_then_changes),
        ROW(parent_retries_while_the_driver_is_absent_and_tells_once),
        ROW(parent_kills_a_child_that_hangs),
        ROW(parent_keeps_the_reading_over_one_crash_and_gives_up_after_more),
        ROW(parent_starts_another_child_when_the_driver_changed),
        ROW(parent_lets_a_gpu_be_that_nvml_hangs_on),
        ROW(parent_looks_again_at_a_gpu_that_hung),
        ROW(parent_hands_events_over_and_reads_at_once),
        ROW(parent_asked_for_samples_and_use_without_end_asks_for_events),
        ROW(parent_does_not_hold_a_gpu_that_waits_for_a_reset),
        ROW(parent_takes_no_nonsense),
        ROW(parent_without_a_program_says_so_and_retries),
        ROW(program_is_found_beside_and_in_libexec_and_kept_when_replaced),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}

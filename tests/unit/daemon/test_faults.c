/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of GPUs: when they begin, how grave they are and when they are over, on a clock of the
 * test's own; and the table of XIDs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/devices/faults.h"
#include "daemon/devices/xid.h"

#define A "GPU-a"
#define B "GPU-b"
#define HOLD 60
#define QUIET 300

struct world {
    struct alq_faults *faults;
    struct alq_gpu gpus[2];
    struct alq_gpu_list list;
    unsigned changes; /* told since the last look */
    struct alq_fault told;
    int64_t now_s;
    int is_any_uuid;
};

static void on_change(void *arg, const char *uuid, enum alq_fault_kind kind,
                      const struct alq_fault *fault)
{
    struct world *w = arg;
    assert_true(w->is_any_uuid || !strcmp(uuid, A) || !strcmp(uuid, B));
    assert_in_range(kind, 0, ALQ_FAULT_KINDS - 1);
    w->changes++;
    w->told = *fault;
}

static const struct alq_faults_rules rules = {.hold_s = HOLD, .quiet_s = QUIET};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    w->faults = alq_faults_new(&rules, on_change, w);
    assert_non_null(w->faults);
    for (int i = 0; i < 2; i++)
        w->gpus[i] = (struct alq_gpu){.recovery_action = -1, .is_watched = 1};
    snprintf(w->gpus[0].uuid, sizeof(w->gpus[0].uuid), A);
    snprintf(w->gpus[1].uuid, sizeof(w->gpus[1].uuid), B);
    w->list = (struct alq_gpu_list){w->gpus, 2};
    w->now_s = 1000000;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    alq_faults_free(w->faults);
    free(w);
    return 0;
}

static void xid(struct world *w, uint64_t number)
{
    struct alq_gpu_event event = {.uuid = A, .kind = ALQ_FAULT_XID, .code = number};
    alq_faults_event(w->faults, &event, w->now_s);
}

static void reading(struct world *w, int action)
{
    w->gpus[0].recovery_action = action;
    alq_faults_reading(w->faults, &w->list, "", w->now_s);
}

static void pass(struct world *w, int64_t seconds)
{
    w->now_s += seconds;
    alq_faults_tick(w->faults, w->now_s);
}

static const struct alq_fault *fault(struct world *w, enum alq_fault_kind kind)
{
    alq_faults_fill(w->faults, &w->list);
    return &w->gpus[0].faults[kind];
}

static enum alq_fault_effect effect(struct world *w, enum alq_fault_kind kind)
{
    return fault(w, kind)->effect;
}

static void xid_is_classed_as_nvidias_catalog_has_it(void **state)
{
    static const struct {
        uint64_t number;
        enum alq_xid_class class;
    } known[] = {{13, ALQ_XID_APPLICATION}, {31, ALQ_XID_APPLICATION}, {43, ALQ_XID_APPLICATION},
                 {45, ALQ_XID_APPLICATION}, {94, ALQ_XID_APPLICATION}, {63, ALQ_XID_IGNORED},
                 {92, ALQ_XID_IGNORED},     {154, ALQ_XID_IGNORED},    {48, ALQ_XID_RESET},
                 {64, ALQ_XID_RESET},       {74, ALQ_XID_RESET},       {95, ALQ_XID_RESET},
                 {119, ALQ_XID_RESET},      {145, ALQ_XID_RESET},      {79, ALQ_XID_REBOOT},
                 {999, ALQ_XID_RESET},      {0, ALQ_XID_RESET}};
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct alq_xid got = alq_xid_find(known[i].number);
        if (got.class != known[i].class)
            fail_msg("XID %llu has class %d", (unsigned long long)known[i].number, (int)got.class);
        assert_true(*got.text);
    }
    assert_string_not_equal(alq_xid_find(79).text, alq_xid_find(78).text);
}

static void event_of_a_program_is_shown_for_a_while(void **state)
{
    struct world *w = *state;
    xid(w, 31);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NOTICE);
    assert_string_equal(w->told.value, "31");
    assert_non_null(strstr(w->told.reason, "page fault"));
    pass(w, QUIET - 1);
    xid(w, 13); /* the same fault goes on, under its first name */
    assert_int_equal(w->changes, 1);
    pass(w, QUIET - 1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NOTICE);
    pass(w, 1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
    assert_int_equal(w->changes, 2);
}

static void event_that_is_ignored_says_nothing(void **state)
{
    char seven[] = "7", dbe[] = "48";
    char *const ignored[] = {seven, dbe, NULL};
    struct alq_faults_rules more = rules;
    struct world *w = *state;
    more.ignored = ignored;
    alq_faults_set_rules(w->faults, &more);
    xid(w, 63);
    xid(w, 48);
    assert_int_equal(w->changes, 0);
    xid(w, 95);
    assert_int_equal(w->changes, 1);
}

static void fault_without_a_recovery_action_waits_for_a_reset(void **state)
{
    struct world *w = *state;
    reading(w, -1);
    xid(w, 48);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
    pass(w, 10 * 24 * 3600);
    reading(w, -1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
    w->list.count = 0; /* gone, as while it is reset */
    reading(w, -1);
    pass(w, 10 * HOLD);
    assert_int_equal(w->changes, 1); /* being away proves nothing */
    w->list.count = 2;
    reading(w, -1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
    pass(w, HOLD - 1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
    pass(w, 1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
    assert_int_equal(w->changes, 2);
}

static void fault_is_over_after_another_load_of_the_module(void **state)
{
    struct world *w = *state;
    alq_faults_reading(w->faults, &w->list, "1.1", w->now_s);
    struct alq_gpu_event event = {.uuid = A, .kind = ALQ_FAULT_ECC};
    alq_faults_event(w->faults, &event, w->now_s);
    alq_faults_reading(w->faults, &w->list, "1.1", w->now_s);
    pass(w, 2 * HOLD);
    assert_int_equal(effect(w, ALQ_FAULT_ECC), ALQ_FAULT_UNFIT);
    alq_faults_reading(w->faults, &w->list, "2.1", w->now_s);
    pass(w, HOLD);
    assert_int_equal(effect(w, ALQ_FAULT_ECC), ALQ_FAULT_NONE);
}

static void recovery_action_holds_a_gpu_until_it_is_none(void **state)
{
    struct world *w = *state;
    reading(w, 0);
    xid(w, 95);
    reading(w, 1);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
    assert_int_equal(effect(w, ALQ_FAULT_RECOVERY), ALQ_FAULT_UNFIT);
    assert_string_equal(fault(w, ALQ_FAULT_RECOVERY)->value, "reset");
    pass(w, 10 * HOLD);
    reading(w, 2);
    assert_string_equal(fault(w, ALQ_FAULT_RECOVERY)->value, "reboot");
    assert_int_equal(fault(w, ALQ_FAULT_RECOVERY)->since_s, 1000000);
    reading(w, 0);
    pass(w, HOLD - 1);
    assert_int_equal(effect(w, ALQ_FAULT_RECOVERY), ALQ_FAULT_UNFIT);
    pass(w, 1);
    assert_int_equal(effect(w, ALQ_FAULT_RECOVERY), ALQ_FAULT_NONE);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
}

static void xid_that_the_driver_wants_nothing_for_is_over_after_a_hold(void **state)
{
    struct world *w = *state;
    reading(w, 0);
    xid(w, 145);
    reading(w, 0);
    pass(w, HOLD / 2);
    xid(w, 31); /* a program's error proves nothing about the GPU */
    pass(w, HOLD / 2);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
}

static void fault_that_comes_back_is_held_twice_as_long(void **state)
{
    struct world *w = *state;
    reading(w, 0);
    int64_t hold = HOLD;
    for (int i = 0; i < 9; i++) {
        xid(w, 119);
        reading(w, 0);
        pass(w, hold - 1);
        assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
        pass(w, 1);
        assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
        hold = hold < 64 * HOLD ? 2 * hold : hold;
    }
    pass(w, 11 * hold); /* well for long: all is forgotten */
    xid(w, 119);
    reading(w, 0);
    pass(w, HOLD);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
}

static void gpu_that_hangs_is_unfit_until_it_is_read_again(void **state)
{
    struct world *w = *state;
    w->gpus[0].is_hanging = 1;
    reading(w, 0);
    assert_int_equal(effect(w, ALQ_FAULT_HANG), ALQ_FAULT_UNFIT);
    pass(w, 10 * HOLD);
    assert_int_equal(effect(w, ALQ_FAULT_HANG), ALQ_FAULT_UNFIT);
    w->gpus[0].is_hanging = 0;
    reading(w, 0);
    pass(w, HOLD);
    assert_int_equal(effect(w, ALQ_FAULT_HANG), ALQ_FAULT_NONE);
    assert_int_equal(w->gpus[1].faults[ALQ_FAULT_HANG].effect, ALQ_FAULT_NONE);
}

static void tick_says_when_the_next_fault_ends(void **state)
{
    struct world *w = *state;
    reading(w, 0);
    assert_int_equal(alq_faults_tick(w->faults, w->now_s), INT64_MAX);
    xid(w, 13);
    assert_int_equal(alq_faults_tick(w->faults, w->now_s), w->now_s + QUIET);
    xid(w, 48);
    reading(w, 1);
    assert_int_equal(alq_faults_tick(w->faults, w->now_s), INT64_MAX);
    reading(w, 0);
    assert_int_equal(alq_faults_tick(w->faults, w->now_s), w->now_s + HOLD);
    /* A clock that was set back by a day does not make it a day. */
    w->now_s -= 24 * 3600;
    assert_int_equal(alq_faults_tick(w->faults, w->now_s), w->now_s + HOLD);
}

static void operator_ends_what_nvml_does_not_show(void **state)
{
    struct world *w = *state;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_faults_clear(w->faults, A, &err), ALQ_ENOENT);
    reading(w, -1);
    xid(w, 48);
    assert_int_equal(alq_faults_clear(w->faults, A, NULL), 0);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
    reading(w, 1);
    assert_int_equal(alq_faults_clear(w->faults, A, NULL), 0);
    assert_int_equal(effect(w, ALQ_FAULT_RECOVERY), ALQ_FAULT_UNFIT);
}

static void saved_faults_go_on_in_another_run_of_the_same_boot(void **state)
{
    struct world *w = *state;
    reading(w, -1);
    xid(w, 48);
    alq_auto_free char *text = alq_faults_save(w->faults, "boot-1");
    struct alq_fault before = *fault(w, ALQ_FAULT_XID);

    alq_faults_forget(w->faults);
    assert_int_equal(alq_faults_load(w->faults, text, strlen(text), "boot-1", NULL), 0);
    assert_memory_equal(fault(w, ALQ_FAULT_XID), &before, sizeof(before));
    reading(w, -1); /* the first reading of a run is no return from a reset */
    pass(w, 10 * HOLD);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_UNFIT);
    alq_auto_free char *again = alq_faults_save(w->faults, "boot-1");
    assert_string_equal(again, text);

    alq_faults_forget(w->faults);
    assert_int_equal(alq_faults_load(w->faults, text, strlen(text), "boot-2", NULL), 0);
    assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
}

static void load_takes_all_or_nothing(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"version\":2,\"bootID\":\"b\",\"load\":\"\",\"devices\":[]}",
        "{\"version\":1,\"bootID\":\"b\",\"load\":\"\",\"devices\":{}}",
        "{\"version\":1,\"bootID\":\"b\",\"devices\":[]}",
        "{\"version\":1,\"bootID\":\"b\",\"load\":\"\",\"devices\":[{\"uuid\":\"" A
        "\",\"relapses\":0,\"ended\":0,\"faults\":[{\"kind\":0,\"effect\":2,\"since\":1,\"last\":1,"
        "\"value\":\"48\",\"reason\":\"r\"},{\"kind\":9,\"effect\":2}]}]}",
        "{\"version\":1,\"bootID\":\"b\",\"load\":\"\",\"devices\":[{\"uuid\":\"" A
        "\",\"relapses\":99,\"ended\":0,\"faults\":[]}]}",
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (!alq_faults_load(w->faults, bad[i], strlen(bad[i]), "b", NULL))
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(effect(w, ALQ_FAULT_XID), ALQ_FAULT_NONE);
    }
}

static void uuids_without_end_are_not_kept(void **state)
{
    struct world *w = *state;
    struct alq_gpu_event event = {.kind = ALQ_FAULT_XID, .code = 48};
    w->is_any_uuid = 1;
    for (int i = 0; i < 2000; i++) {
        snprintf(event.uuid, sizeof(event.uuid), "GPU-%d", i);
        alq_faults_event(w->faults, &event, w->now_s);
    }
    assert_in_range(w->changes, 128, 256);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xid_is_classed_as_nvidias_catalog_has_it),
        ROW(event_of_a_program_is_shown_for_a_while),
        ROW(event_that_is_ignored_says_nothing),
        ROW(fault_without_a_recovery_action_waits_for_a_reset),
        ROW(fault_is_over_after_another_load_of_the_module),
        ROW(recovery_action_holds_a_gpu_until_it_is_none),
        ROW(xid_that_the_driver_wants_nothing_for_is_over_after_a_hold),
        ROW(fault_that_comes_back_is_held_twice_as_long),
        ROW(gpu_that_hangs_is_unfit_until_it_is_read_again),
        ROW(tick_says_when_the_next_fault_ends),
        ROW(operator_ends_what_nvml_does_not_show),
        ROW(saved_faults_go_on_in_another_run_of_the_same_boot),
        ROW(load_takes_all_or_nothing),
        ROW(uuids_without_end_are_not_kept),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}

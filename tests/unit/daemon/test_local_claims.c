/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of one machine: their files, and what prepare learns when it looks them up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/standalone/claims.h"

#define UID_A "11111111-2222-4333-8444-555555555555"

static char dir[] = "/tmp/alq-local-XXXXXX";
static const struct alq_config cfg = {.state_dir = dir};
static const struct alq_claim_id id_a = {UID_A, "uid-7", "a"};

struct world {
    struct event_base *base;
    struct alq_locals locals;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    strcpy(dir, "/tmp/alq-local-XXXXXX");
    w->base = event_base_new();
    alq_locals_init(&w->locals, &cfg, w->base);
    *state = w;
    return mkdtemp(dir) && w->base ? 0 : -1;
}

static int teardown(void **state)
{
    struct world *w = *state;
    alq_locals_fini(&w->locals);
    event_base_free(w->base);
    free(w);
    return alq_file_remove_tree(dir, NULL);
}

static struct alq_local *add(struct world *w)
{
    json_t *object = json_pack("{s:{s:s, s:s, s:s}}", "metadata", "name", id_a.name, "namespace",
                               id_a.namespace_, "uid", id_a.uid);
    struct alq_local *local = alq_locals_add(&w->locals, &id_a, 7, object);
    assert_non_null(local);
    return local;
}

static void save(const struct alq_local *local)
{
    alq_auto_free char *text = alq_local_text(local);
    assert_non_null(text);
    assert_int_equal(alq_local_write(&cfg, local->id.uid, text, NULL), 0);
}

/* A second table, as after a start. */
static void load(struct world *w)
{
    alq_locals_fini(&w->locals);
    alq_locals_init(&w->locals, &cfg, w->base);
    assert_int_equal(alq_locals_load(&w->locals, NULL), 0);
}

struct answer {
    int status;
    char uid[64];
    int has_err;
};

static void on_answer(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct answer *a = arg;
    const char *uid = alq_json_str(body, "metadata.uid");
    a->status = status;
    a->has_err = err != NULL;
    snprintf(a->uid, sizeof(a->uid), "%s", uid ? uid : "");
}

static struct answer look_up(struct world *w, const char *name)
{
    struct answer a = {0};
    struct alq_claim_source *s = &w->locals.source;
    assert_non_null(s->get(s->arg, "uid-7", name, 1000, on_answer, &a, NULL));
    assert_int_equal(a.status, 0); /* never before the call has returned */
    event_base_loop(w->base, EVLOOP_NONBLOCK);
    return a;
}

static void claim_that_is_written_is_there_after_a_start(void **state)
{
    struct world *w = *state;
    save(add(w));
    load(w);
    const struct alq_local *local = alq_locals_by_uid(&w->locals, UID_A);
    assert_non_null(local);
    assert_int_equal(local->owner, 7);
    assert_int_equal(local->process.pid, 0);
    assert_ptr_equal(local, alq_locals_by_name(&w->locals, "uid-7", "a"));
    assert_int_equal(alq_locals_count_of(&w->locals, 7), 1);
    assert_int_equal(alq_local_remove(&cfg, UID_A, NULL), 0);
    assert_int_equal(alq_local_remove(&cfg, UID_A, NULL), 0);
    load(w);
    assert_null(alq_locals_by_uid(&w->locals, UID_A));
}

static void process_is_known_after_a_start_of_the_same_boot_alone(void **state)
{
    struct world *w = *state;
    struct alq_local *local = add(w);
    local->process = (struct alq_process){.pid = getpid(), .start_ticks = 42};
    save(local);
    load(w);
    local = alq_locals_by_uid(&w->locals, UID_A);
    assert_int_equal(local->process.pid, getpid());
    assert_int_equal(local->process.start_ticks, 42);

    alq_auto_free char *text = alq_local_text(local);
    char *boot = strstr(text, "\"boot\":\"");
    assert_non_null(boot);
    memset(boot + 8, '0', 8);
    assert_int_equal(alq_local_write(&cfg, UID_A, text, NULL), 0);
    load(w);
    assert_int_equal(alq_locals_by_uid(&w->locals, UID_A)->process.start_ticks, 0);
    assert_int_equal(alq_process_again(&alq_locals_by_uid(&w->locals, UID_A)->process), -1);
}

static void lookup_finds_claims_and_says_which_do_not_exist(void **state)
{
    struct world *w = *state;
    add(w);
    struct answer a = look_up(w, "a");
    assert_int_equal(a.status, 200);
    assert_string_equal(a.uid, UID_A);
    assert_false(a.has_err);
    a = look_up(w, "b");
    assert_int_equal(a.status, 404);
    assert_true(a.has_err);
}

static void lookup_that_is_cancelled_is_not_answered(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    struct alq_claim_source *s = &w->locals.source;
    s->cancel(s->get(s->arg, "uid-7", "a", 1000, on_answer, &a, NULL));
    event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_int_equal(a.status, 0);
}

/* Or its containers would lose their share to a bad sector. */
static void lookup_proves_nothing_while_a_file_is_damaged(void **state)
{
    static const char *const texts[] = {"", "garbage", "{\"version\":2}",
                                        "{\"version\":1,\"claim\":{\"metadata\":{\"uid\":\"../x\","
                                        "\"name\":\"a\",\"namespace\":\"b\"}}}"};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        save(add(w));
        assert_int_equal(alq_local_write(&cfg, "damaged", texts[i], NULL), 0);
        load(w);
        assert_int_equal(look_up(w, "a").status, 200);
        assert_int_equal(look_up(w, "b").status, 503);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(claim_that_is_written_is_there_after_a_start),
        TEST(process_is_known_after_a_start_of_the_same_boot_alone),
        TEST(lookup_finds_claims_and_says_which_do_not_exist),
        TEST(lookup_that_is_cancelled_is_not_answered),
        TEST(lookup_proves_nothing_while_a_file_is_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

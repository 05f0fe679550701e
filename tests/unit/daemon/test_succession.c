/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has the state, with several instances in one process: a lock of flock belongs to the open
 * file, not to the process. What dies is freed, which drops its locks as the kernel does.
 */
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "daemon/state/record.h"
#include "daemon/state/store.h"
#include "daemon/succession.h"

struct instance {
    struct alq_succession *s;
    int has_calls;
    unsigned acquired, asked;
};

struct world {
    struct event_base *base;
    char dir[32];
    struct instance a, b, c;
};

static struct world world;

static int is_connected(void *arg)
{
    (void)arg;
    return 1;
}

static int has_calls(void *arg)
{
    return ((struct instance *)arg)->has_calls;
}

static void on_acquired(void *arg)
{
    struct instance *i = arg;
    i->acquired++;
    alq_succession_listen(i->s);
}

static void on_asked(void *arg)
{
    ((struct instance *)arg)->asked++;
}

static int start(struct world *w, struct instance *i, int is_shared, struct alq_err *err)
{
    const struct alq_succession_calls calls = {is_connected, has_calls, on_acquired, on_asked, i};
    i->s = alq_succession_new(w->base, w->dir, is_shared, &calls, err);
    if (i->s && alq_succession_is_holder(i->s))
        alq_succession_listen(i->s);
    return i->s ? 0 : -1;
}

static void end(struct instance *i)
{
    alq_succession_free(i->s);
    i->s = NULL;
}

/* Runs the loop until what is looked at changes, or for ms. */
static void run(struct world *w, const unsigned *until, long ms)
{
    struct timespec begin, now;
    const struct timeval step = {.tv_usec = 5000};
    unsigned before = until ? *until : 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        event_base_loopexit(w->base, &step);
        event_base_dispatch(w->base);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((!until || *until == before) &&
             (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

#define SOON_MS 10000 /* bound of what must happen */
#define NEVER_MS 150  /* how long is looked at what must not */

static int setup(void **state)
{
    memset(&world, 0, sizeof(world));
    strcpy(world.dir, "/tmp/alq-succession-XXXXXX");
    assert_non_null(mkdtemp(world.dir));
    world.base = event_base_new();
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    end(&w->a);
    end(&w->b);
    end(&w->c);
    event_base_free(w->base);
    return alq_file_remove_tree(w->dir, NULL);
}

static void new_takes_a_free_lock_and_refuses_a_second_alone(void **state)
{
    struct world *w = *state;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(start(w, &w->a, 0, NULL), 0);
    assert_true(alq_succession_is_holder(w->a.s));
    assert_int_not_equal(start(w, &w->b, 0, &err), 0);
    assert_int_equal(err.code, ALQ_EBUSY);
    memset(&err, 0, sizeof(err));
    assert_int_not_equal(start(w, &w->b, 1, &err), 0);
    assert_int_equal(err.code, ALQ_EBUSY);
    assert_non_null(strstr(err.text, "cannot hand over"));
    end(&w->a);
    assert_int_equal(start(w, &w->b, 1, NULL), 0);
    memset(&err, 0, sizeof(err));
    assert_int_not_equal(start(w, &w->a, 0, &err), 0);
    assert_int_equal(err.code, ALQ_EBUSY);
}

static void one_that_has_calls_asks_and_gets_it(void **state)
{
    struct world *w = *state;
    assert_int_equal(start(w, &w->a, 1, NULL) | start(w, &w->b, 1, NULL), 0);
    assert_false(alq_succession_is_holder(w->b.s));
    run(w, &w->a.asked, NEVER_MS);
    assert_int_equal(w->a.asked, 0);
    w->b.has_calls = 1;
    run(w, &w->a.asked, SOON_MS);
    assert_int_equal(w->a.asked, 1);
    run(w, &w->b.acquired, NEVER_MS); /* not before the holder lets go */
    assert_int_equal(w->b.acquired, 0);
    alq_succession_release(w->a.s);
    run(w, &w->b.acquired, SOON_MS);
    assert_true(alq_succession_is_holder(w->b.s));
    run(w, NULL, NEVER_MS);
    assert_int_equal(w->a.acquired, 0);
    assert_int_equal(w->b.asked, 0);
    /* And back again. */
    w->b.has_calls = 0;
    w->a.has_calls = 1;
    run(w, &w->b.asked, SOON_MS);
    alq_succession_release(w->b.s);
    run(w, &w->a.acquired, SOON_MS);
    assert_true(alq_succession_is_holder(w->a.s));
}

static void death_of_the_holder_gives_it_to_whoever_is_there(void **state)
{
    struct world *w = *state;
    assert_int_equal(start(w, &w->a, 1, NULL) | start(w, &w->b, 1, NULL), 0);
    end(&w->a);
    run(w, &w->b.acquired, SOON_MS);
    assert_true(alq_succession_is_holder(w->b.s));
}

static void death_of_the_asker_leaves_it_or_gives_it_back(void **state)
{
    struct world *w = *state;
    assert_int_equal(start(w, &w->a, 1, NULL) | start(w, &w->b, 1, NULL), 0);
    w->b.has_calls = 1;
    run(w, &w->a.asked, SOON_MS);
    end(&w->b);
    alq_succession_release(w->a.s);
    run(w, &w->a.acquired, SOON_MS);
    assert_true(alq_succession_is_holder(w->a.s));
    /* After it has taken. */
    assert_int_equal(start(w, &w->b, 1, NULL), 0);
    run(w, &w->a.asked, SOON_MS);
    alq_succession_release(w->a.s);
    run(w, &w->b.acquired, SOON_MS);
    end(&w->b);
    run(w, &w->a.acquired, SOON_MS);
    assert_true(alq_succession_is_holder(w->a.s));
}

static void asker_that_does_not_take_is_waited_for_a_while(void **state)
{
    struct world *w = *state;
    int asker = -1;
    char next[64];
    snprintf(next, sizeof(next), "%s/aliquotd.next", w->dir);
    assert_int_equal(start(w, &w->a, 1, NULL), 0);
    assert_int_equal(alq_lock_take(next, "the succession",
                                   "hands over, records 1, chosen 9000000000000000000", &asker,
                                   NULL),
                     0);
    run(w, &w->a.asked, SOON_MS);
    assert_int_equal(w->a.asked, 1);
    alq_succession_release(w->a.s);
    run(w, &w->a.acquired, 1000);
    assert_int_equal(w->a.acquired, 0);
    run(w, &w->a.acquired, SOON_MS);
    assert_true(alq_succession_is_holder(w->a.s));
    close(asker);
}

static void two_that_are_wanted_get_it_one_after_the_other(void **state)
{
    struct world *w = *state;
    assert_int_equal(start(w, &w->a, 1, NULL) | start(w, &w->b, 1, NULL) | start(w, &w->c, 1, NULL),
                     0);
    w->b.has_calls = w->c.has_calls = 1;
    run(w, &w->a.asked, SOON_MS);
    alq_succession_release(w->a.s);
    struct instance *first = &w->b, *second = &w->c;
    run(w, &first->acquired, 500);
    if (!first->acquired) {
        first = &w->c;
        second = &w->b;
    }
    assert_true(alq_succession_is_holder(first->s));
    first->has_calls = 0;
    if (!first->asked)
        run(w, &first->asked, SOON_MS);
    alq_succession_release(first->s);
    run(w, &second->acquired, SOON_MS);
    assert_true(alq_succession_is_holder(second->s));
}

static void one_that_is_registered_later_ends_up_with_it(void **state)
{
    struct world *w = *state;
    assert_int_equal(start(w, &w->a, 1, NULL) | start(w, &w->b, 1, NULL), 0);
    /* The later one asks. */
    alq_succession_registered(w->a.s);
    alq_succession_registered(w->b.s);
    run(w, &w->a.asked, SOON_MS);
    alq_succession_release(w->a.s);
    run(w, &w->b.acquired, SOON_MS);
    run(w, &w->b.asked, NEVER_MS);
    assert_int_equal(w->b.asked, 0);
    /* The later one has it: the other gives up. */
    alq_succession_registered(w->a.s);
    alq_succession_registered(w->b.s);
    run(w, &w->b.asked, NEVER_MS);
    assert_int_equal(w->b.asked, 0);
    assert_true(alq_succession_is_holder(w->b.s));
    /* A call that waits goes over both. */
    w->a.has_calls = 1;
    run(w, &w->b.asked, SOON_MS);
    assert_int_equal(w->b.asked, 1);
}

static void records_of_a_newer_version_are_not_taken_back(void **state)
{
    struct world *w = *state;
    int newer = -1;
    char lock[64], note[96];
    snprintf(lock, sizeof(lock), "%s/aliquotd.lock", w->dir);
    assert_int_equal(start(w, &w->a, 1, NULL) | start(w, &w->b, 1, NULL), 0);
    w->b.has_calls = 1;
    run(w, &w->a.asked, SOON_MS);
    alq_succession_release(w->a.s);
    run(w, &w->b.acquired, SOON_MS);
    alq_lock_note(lock, note, sizeof(note));
    end(&w->b);
    int version = 0;
    assert_int_equal(sscanf(note, "hands over, records %d, chosen ", &version), 1);
    assert_int_equal(version, ALQ_RECORD_VERSION);
    snprintf(note, sizeof(note), "hands over, records %d, chosen 1", version + 1);
    assert_int_equal(alq_lock_take(lock, "the state", note, &newer, NULL), 0);
    close(newer);
    run(w, &w->a.acquired, NEVER_MS);
    assert_int_equal(w->a.acquired, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(new_takes_a_free_lock_and_refuses_a_second_alone),
        T(one_that_has_calls_asks_and_gets_it),
        T(death_of_the_holder_gives_it_to_whoever_is_there),
        T(death_of_the_asker_leaves_it_or_gives_it_back),
        T(asker_that_does_not_take_is_waited_for_a_while),
        T(two_that_are_wanted_get_it_one_after_the_other),
        T(one_that_is_registered_later_ends_up_with_it),
        T(records_of_a_newer_version_are_not_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

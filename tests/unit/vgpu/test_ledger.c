/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger, with real processes on shared memory: killed at every step of the protocol, and
 * racing at the limit. The steps are the hook that ledger.c has for this test alone; the code is
 * the library's own.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

static int kill_at_step = -1;
static int kill_at_visit;
static void yield(void);

static void step(int number)
{
    yield();
    if (number == kill_at_step && kill_at_visit-- == 0)
        raise(SIGKILL);
}

#define ALQ_LEDGER_STEP(n) step(n)
#include "vgpu/memory/ledger.c" /* NOLINT(bugprone-suspicious-include) */

#define STEPS 7       /* of an operation */
#define BURY_STEPS 14 /* and of emptying a slot */
#define MIB (1ull << 20)

static struct alq_usage_section *section_new(void)
{
    void *at = mmap(NULL, sizeof(struct alq_usage_section), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

static void section_free(struct alq_usage_section *section)
{
    munmap(section, sizeof(*section));
}

/* What all slots hold, the last operation settled. */
static uint64_t sum_held(struct alq_usage_section *section)
{
    uint64_t sum = 0;
    settle(section, section->total.tag);
    for (uint32_t i = 0; i < ALQ_SLOTS; i++)
        sum += alq_ledger_held(section, i);
    return sum;
}

static uint64_t bury(struct alq_usage_section *section, uint32_t slot)
{
    return alq_ledger_bury(section, slot, alq_ledger_look(section, slot), false);
}

static void take_that_fits_is_held_by_the_slot(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    assert_int_equal(alq_ledger_take(section, 3, 100, 100, 1000), 100);
    assert_int_equal(alq_ledger_held(section, 3), 100);
    assert_int_equal(alq_ledger_total(section), 100);
    section_free(section);
}

static void take_up_to_the_last_byte_is_admitted(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    assert_int_equal(alq_ledger_take(section, 0, 600, 600, 1000), 600);
    assert_int_equal(alq_ledger_take(section, 1, 401, 401, 1000), 0);
    assert_int_equal(alq_ledger_take(section, 1, 400, 400, 1000), 400);
    assert_int_equal(alq_ledger_take(section, 2, 1, 1, 1000), 0);
    assert_int_equal(alq_ledger_total(section), 1000);
    section_free(section);
}

static void take_of_a_part_gives_what_is_left(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    assert_int_equal(alq_ledger_take(section, 0, 900, 900, 1000), 900);
    assert_int_equal(alq_ledger_take(section, 0, 1, 500, 1000), 100);
    assert_int_equal(alq_ledger_held(section, 0), 1000);
    section_free(section);
}

static void take_above_a_lowered_ceiling_is_refused(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    assert_int_equal(alq_ledger_take(section, 0, 900, 900, 1000), 900);
    assert_int_equal(alq_ledger_take(section, 0, 1, 1, 500), 0);
    assert_int_equal(alq_ledger_total(section), 900);
    section_free(section);
}

static void take_of_sizes_near_2_64_does_not_wrap(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    assert_int_equal(alq_ledger_take(section, 0, 10, 10, UINT64_MAX), 10);
    assert_int_equal(alq_ledger_take(section, 0, UINT64_MAX, UINT64_MAX, UINT64_MAX), 0);
    assert_int_equal(alq_ledger_total(section), 10);
    section_free(section);
}

static void give_of_more_than_held_is_cut(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    alq_ledger_take(section, 0, 300, 300, 1000);
    alq_ledger_take(section, 1, 100, 100, 1000);
    alq_ledger_give(section, 1, 250);
    assert_int_equal(alq_ledger_held(section, 1), 0);
    assert_int_equal(alq_ledger_total(section), 300);
    section_free(section);
}

static void bury_returns_what_the_dead_held(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    alq_ledger_take(section, 0, 300, 300, 1000);
    alq_ledger_take(section, 1, 100, 100, 1000);
    assert_int_equal(bury(section, 0), 300);
    assert_int_equal(bury(section, 0), 0);
    assert_int_equal(alq_ledger_total(section), 100);
    assert_int_equal(alq_ledger_held(section, 1), 100);
    section_free(section);
}

static void bury_keeps_what_was_exported_until_it_may_go(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    alq_ledger_take(section, 0, 300, 300, 1000);
    section->slots[0].exported_bytes = 120;
    assert_int_equal(alq_ledger_bury(section, 0, alq_ledger_look(section, 0), true), 180);
    assert_int_equal(alq_ledger_bury(section, 0, alq_ledger_look(section, 0), true), 0);
    alq_ledger_forget(section, 0);
    assert_int_equal(section->slots[0].exported_bytes, 120);
    assert_int_equal(section->slots[0].counted_bytes, 120);
    assert_int_equal(alq_ledger_total(section), 120);
    assert_int_equal(bury(section, 0), 120);
    alq_ledger_forget(section, 0);
    assert_int_equal(section->slots[0].exported_bytes, 0);
    assert_int_equal(alq_ledger_total(section), 0);
    section_free(section);
}

static void settle_of_a_foreign_slot_number_touches_nothing(void **state)
{
    struct alq_usage_section *section = section_new();
    (void)state;
    section->total.tag = tag_of(0xffff, 1); /* written by a hostile tenant */
    assert_int_equal(alq_ledger_take(section, 0, 100, 100, 1000), 100);
    assert_int_equal(alq_ledger_total(section), 100);
    section_free(section);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/*
 * Actors that take turns at every step, by chance: two reapers and the next owner of a dead slot,
 * and a neighbour. An actor whose turns run out is one that is stopped for good.
 */
#define ACTORS 4
#define DEAD_SLOT 9
#define NEIGHBOUR 5
#define STACK_BYTES (64 * 1024)

static ucontext_t scheduler, actors[ACTORS];
static char stacks[ACTORS][STACK_BYTES];
static bool has_ended[ACTORS], owner_has_come, reaper_sleeps, import_is_open;
static int acting = -1;
static struct alq_usage_section *stage;

static void yield(void)
{
    if (acting >= 0)
        swapcontext(&actors[acting], &scheduler);
}

static void act(int who)
{
    if (who < 2) {
        struct alq_pair seen = alq_ledger_look(stage, DEAD_SLOT);
        yield();
        bool is_dead = !owner_has_come; /* it looks at the lock now; what it does may come later */
        while (is_dead && reaper_sleeps && !has_ended[2])
            yield();
        if (is_dead)
            alq_ledger_bury(stage, DEAD_SLOT, seen, who == 0 && import_is_open);
    } else if (who == 2) {
        owner_has_come = true;
        while (alq_ledger_held(stage, DEAD_SLOT))
            bury(stage, DEAD_SLOT);
        alq_ledger_take(stage, DEAD_SLOT, 70, 70, 1000);
        alq_ledger_give(stage, DEAD_SLOT, 30);
        alq_ledger_take(stage, DEAD_SLOT, 50, 50, 1000);
    } else {
        alq_ledger_take(stage, NEIGHBOUR, 200, 200, 1000);
        alq_ledger_give(stage, NEIGHBOUR, 80);
    }
    has_ended[who] = true;
}

/* Some turns for each, then as many as they need for the owner and the neighbour. */
static void play(uint32_t *seed)
{
    owner_has_come = false;
    for (int i = 0; i < ACTORS; i++) {
        has_ended[i] = false;
        getcontext(&actors[i]);
        actors[i].uc_stack.ss_sp = stacks[i];
        actors[i].uc_stack.ss_size = STACK_BYTES;
        actors[i].uc_link = &scheduler;
        makecontext(&actors[i], (void (*)(void))act, 1, i);
    }
    for (int turns = (int)(next_random(seed) % 120);
         turns-- > 0 || !has_ended[2] || !has_ended[3];) {
        acting = (int)(next_random(seed) % ACTORS);
        if (turns < 0)
            acting = has_ended[2] ? 3 : 2;
        if (!has_ended[acting])
            swapcontext(&scheduler, &actors[acting]);
    }
    for (acting = 0; reaper_sleeps && acting < 2; acting++)
        while (!has_ended[acting])
            swapcontext(&scheduler, &actors[acting]);
    acting = -1;
}

static void die_in_an_operation(int is_take)
{
    if (is_take)
        alq_ledger_take(stage, DEAD_SLOT, 70, 70, 1000); /* as many as the next owner takes */
    else
        alq_ledger_give(stage, DEAD_SLOT, 30);
    has_ended[2] = true;
}

/* The owner dies in its last operation at a step that chance chooses. */
static void leave_dead(uint32_t *seed)
{
    int turns = (int)(next_random(seed) % 8);
    alq_ledger_take(stage, NEIGHBOUR, 100, 100, 1000);
    alq_ledger_take(stage, DEAD_SLOT, 300, 300, 1000);
    getcontext(&actors[2]);
    actors[2].uc_stack.ss_sp = stacks[2];
    actors[2].uc_stack.ss_size = STACK_BYTES;
    actors[2].uc_link = &scheduler;
    makecontext(&actors[2], (void (*)(void))die_in_an_operation, 1, (int)(next_random(seed) % 2));
    for (acting = 2, has_ended[2] = false; turns-- > 0 && !has_ended[2];)
        swapcontext(&scheduler, &actors[2]);
    acting = -1;
}

static void reapers_and_the_next_owner_at_once_lose_no_byte(void **state)
{
    const char *given = getenv("ALIQUOT_STRESS_S");
    int plays = given ? 1000000 : 20000;
    uint32_t seed = 7;
    (void)state;
    stage = section_new();
    for (int i = 0; i < plays; i++) {
        memset(&stage->total, 0, sizeof(stage->total));
        memset(&stage->slots[DEAD_SLOT], 0, sizeof(struct alq_slot));
        memset(&stage->slots[NEIGHBOUR], 0, sizeof(struct alq_slot));
        stage->slots[DEAD_SLOT].exported_bytes = (uint64_t)(i % 3) * 200;
        reaper_sleeps = i % 2;
        import_is_open = i % 5 == 0;
        leave_dead(&seed);
        play(&seed);
        settle(stage, stage->total.tag);
        assert_int_equal(alq_ledger_held(stage, DEAD_SLOT), 90);
        assert_int_equal(alq_ledger_held(stage, NEIGHBOUR), 220);
        assert_int_equal(alq_ledger_total(stage), 310);
    }
    section_free(stage);
}

/* Runs the operation in a child that dies at the given step, at the given visit to it. True when it
 * died there. */
static bool die_in(struct alq_usage_section *section, uint32_t slot, bool is_take, int at_step,
                   int at_visit)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        kill_at_step = at_step;
        kill_at_visit = at_visit;
        if (is_take)
            alq_ledger_take(section, slot, 70, 70, 1000);
        else
            alq_ledger_give(section, slot, 30);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/*
 * A neighbour holds bytes, the victim holds bytes and dies in its next operation; sometimes the
 * neighbour works on before anybody looks. Then a reaper buries the victim: exactly the
 * neighbour's bytes are left.
 */
static void death_at_every_step_loses_no_byte(void **state)
{
    int deaths = 0;
    (void)state;
    for (int at_step = 0; at_step < STEPS; at_step++)
        for (int at_visit = 0; at_visit < 3; at_visit++)
            for (int variant = 0; variant < 8; variant++) {
                struct alq_usage_section *section = section_new();
                bool is_take = variant & 1, neighbour_works = variant & 2,
                     neighbour_last = variant & 4;
                uint64_t neighbour = 200;
                if (!neighbour_last)
                    alq_ledger_take(section, 5, 200, 200, 1000);
                alq_ledger_take(section, 9, 50, 50, 1000);
                if (neighbour_last)
                    alq_ledger_take(section, 5, 200, 200, 1000);
                deaths += die_in(section, 9, is_take, at_step, at_visit);
                if (neighbour_works) {
                    assert_int_equal(alq_ledger_take(section, 5, 10, 10, 1000), 10);
                    neighbour += 10;
                }
                bury(section, 9);
                assert_int_equal(alq_ledger_total(section), neighbour);
                assert_int_equal(sum_held(section), neighbour);
                /* The slot's next owner starts from nothing and is admitted to the byte. */
                assert_int_equal(
                    alq_ledger_take(section, 9, 1000 - neighbour, 1000 - neighbour, 1000),
                    1000 - neighbour);
                assert_int_equal(bury(section, 9), 1000 - neighbour);
                section_free(section);
            }
    assert_true(deaths >= 40); /* every step was died in, most of them in every variant */
}

/* A reaper dies at every step of burying; the next one finishes. */
static void death_of_a_reaper_loses_no_byte(void **state)
{
    int deaths = 0;
    (void)state;
    for (int at = 0; at < 3 * BURY_STEPS; at++) {
        struct alq_usage_section *section = section_new();
        int status;
        alq_ledger_take(section, 5, 200, 200, 1000);
        alq_ledger_take(section, 9, 50, 50, 1000);
        /* Nothing was exported; or a part, and the reaper dies in its first operation or its
         * second. */
        section->slots[9].exported_bytes = at < BURY_STEPS ? 0 : 20;
        pid_t child = fork();
        if (child == 0) {
            kill_at_step = at % BURY_STEPS;
            kill_at_visit = at / (2 * BURY_STEPS);
            bury(section, 9);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        deaths += WIFSIGNALED(status);
        bury(section, 9);
        assert_int_equal(alq_ledger_total(section), 200);
        assert_int_equal(sum_held(section), 200);
        section_free(section);
    }
    assert_int_equal(deaths, 8 + 8 + 7); /* settle's one, and all of its own; the look is one */
}

#define RACERS 6
#define ROUNDS 20000

/* Takes and gives at random; dies by its own hand at a random step when told to. Exit 1: the limit
 * was passed. */
static void race(struct alq_usage_section *section, uint32_t slot, uint64_t limit, uint32_t seed,
                 bool dies)
{
    if (dies) {
        kill_at_step = (int)(next_random(&seed) % STEPS);
        kill_at_visit = (int)(next_random(&seed) % ROUNDS);
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (next_random(&seed) % 2)
            alq_ledger_take(section, slot, 1, 1 + next_random(&seed) % (limit / 2), limit);
        else
            alq_ledger_give(section, slot, 1 + next_random(&seed) % (limit / 2));
        if (alq_ledger_total(section) > limit)
            _exit(1);
    }
    _exit(0);
}

static void race_at_the_limit(bool with_deaths)
{
    struct alq_usage_section *section = section_new();
    pid_t children[RACERS];
    for (int round = 0; round < (with_deaths ? 12 : 2); round++) {
        for (uint32_t i = 0; i < RACERS; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0)
                race(section, i, 10 * MIB, (uint32_t)round * 100 + i, with_deaths && i % 2);
        }
        for (int i = 0; i < RACERS; i++) {
            int status;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_true(WIFSIGNALED(status) ? with_deaths : WEXITSTATUS(status) == 0);
        }
        assert_int_equal(alq_ledger_total(section), sum_held(section));
        assert_true(alq_ledger_total(section) <= 10 * MIB);
        for (uint32_t i = 0; i < RACERS; i++)
            bury(section, i);
        assert_int_equal(alq_ledger_total(section), 0);
    }
    section_free(section);
}

static void processes_racing_at_the_limit_never_pass_it(void **state)
{
    (void)state;
    race_at_the_limit(false);
}

static void processes_racing_and_dying_never_pass_it(void **state)
{
    (void)state;
    race_at_the_limit(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_that_fits_is_held_by_the_slot),
        cmocka_unit_test(take_up_to_the_last_byte_is_admitted),
        cmocka_unit_test(take_of_a_part_gives_what_is_left),
        cmocka_unit_test(take_above_a_lowered_ceiling_is_refused),
        cmocka_unit_test(take_of_sizes_near_2_64_does_not_wrap),
        cmocka_unit_test(give_of_more_than_held_is_cut),
        cmocka_unit_test(bury_returns_what_the_dead_held),
        cmocka_unit_test(bury_keeps_what_was_exported_until_it_may_go),
        cmocka_unit_test(settle_of_a_foreign_slot_number_touches_nothing),
        cmocka_unit_test(death_at_every_step_loses_no_byte),
        cmocka_unit_test(death_of_a_reaper_loses_no_byte),
        cmocka_unit_test(reapers_and_the_next_owner_at_once_lose_no_byte),
        cmocka_unit_test(processes_racing_at_the_limit_never_pass_it),
        cmocka_unit_test(processes_racing_and_dying_never_pass_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What prepare.c (the interface, start, GPUs), steps.c (an operation's way from its turn to its
 * end) and admit.c (promises and room) share; nobody else includes it. A claim has a queue of
 * operations, only its head runs, and each step waits for one thing. Loop thread only; workers see
 * operations of their own.
 *
 *   prepare:    turn -> get -> (gpus) -> (room -> get) -> work -> end
 *   unprepare:  turn -> work -> end
 *   rebuild:    turn -> work -> end
 *   limit:      turn -> work -> end
 */
#ifndef ALQ_DAEMON_PREPARE_MACHINE_H
#define ALQ_DAEMON_PREPARE_MACHINE_H

#include "daemon/prepare/claims.h"
#include "daemon/prepare/prepare.h"
#include "daemon/work.h"

#define ALQ_ANSWER_NS (1000 * ALQ_NS_PER_MS) /* of a deadline, kept for the answer itself */

enum alq_operation_kind { ALQ_PREPARE, ALQ_UNPREPARE, ALQ_REBUILD, ALQ_LIMIT };

enum alq_step {
    ALQ_STEP_TURN, /* another operation of the claim is the head */
    ALQ_STEP_GET,  /* the API server has been asked for the claim */
    ALQ_STEP_GPUS, /* no reading of the GPUs yet */
    ALQ_STEP_ROOM, /* others hold what is needed, or came earlier for it */
    ALQ_STEP_WORK, /* a worker makes or removes files */
};

struct alq_room_holder;

struct alq_operation {
    struct alq_job job;              /* first: jobs are operations */
    TAILQ_ENTRY(alq_operation) link; /* in claim->operations */
    TAILQ_ENTRY(alq_operation) open; /* in prepare->open, a Prepare's */
    struct alq_prepare *prepare;
    struct alq_claim *claim;
    enum alq_operation_kind kind;
    enum alq_step step;
    struct alq_claim_id id;
    uint64_t arrival;  /* 1, 2, ... over all claims */
    int64_t refuse_ns; /* a Prepare that waits is answered then */
    int64_t wake_ns;   /* when a step that waits is looked at again; ALQ_NEVER */
    int64_t started_ns;
    int64_t asked_ns; /* when the API server was asked */
    int64_t api_ns;   /* how long its answer took */
    int64_t answered_ns;
    alq_prepare_cb cb;
    void *arg;
    void *call;                  /* ALQ_STEP_GET */
    json_t *object;              /* the claim as the API server gave it */
    int is_in_line;              /* has found no room and still wants it */
    int has_room;                /* ALQ_STEP_GET: for the second time; counts like a promise */
    int has_asked;               /* ALQ_STEP_ROOM: the holders are being looked up */
    int is_last_chance;          /* ALQ_STEP_ROOM: for the second time, before the refusal */
    int is_cancelled;            /* ALQ_STEP_WORK: an Unprepare has come */
    int is_removal;              /* the job takes away */
    int has_record;              /* the job repairs what is there already */
    struct alq_claim_spec *spec; /* what is asked; the worker's while ALQ_STEP_WORK */
    struct alq_err job_err;
    char share_id[ALQ_SHARE_ID_BYTES]; /* ALQ_LIMIT, and the rest too */
    struct alq_limit_change change;
    uint32_t limit_index;
    struct alq_claim_spec *before; /* the worker's: what is put back when it fails */
};

TAILQ_HEAD(alq_operation_list, alq_operation);

/* A claim that an earlier life began to prepare; told when the loop runs. */
struct alq_rolled_back {
    SLIST_ENTRY(alq_rolled_back) link;
    struct alq_claim_id id;
    struct alq_err why;
};

struct alq_prepare {
    const struct alq_config *cfg;
    struct alq_clock clock;
    struct alq_timer *timer;
    int64_t alarm_ns; /* what the timer is set to */
    struct alq_work *work;
    struct alq_files *files;
    struct alq_claim_source source;
    char boot_id[ALQ_BOOT_ID_BYTES];
    struct alq_claims claims;
    SLIST_HEAD(, alq_rolled_back) rolled_back;
    struct alq_operation_list open; /* every Prepare, in order of arrival */
    struct alq_operation *cursor;   /* the next of them that a walk looks at */
    int is_line_shorter;            /* one that waited for room has ended */
    uint64_t arrivals;
    struct alq_lookups lookups;
    struct alq_prepare_watcher watcher;
    struct alq_gpu_list gpus;
    int has_reading;        /* or the reason why there is none */
    int has_gpus;           /* there has been one */
    struct alq_err no_gpus; /* code set: why there is no reading */
    int is_ending;
    void (*on_change)(void *arg); /* NULL: nobody listens */
    void *change_arg;
};

/* ---- prepare.c ---- */

/* A promise has begun or ended. */
void alq_prepare_changed(struct alq_prepare *p);

/* ---- steps.c ---- */

int64_t alq_prepare_now_ns(const struct alq_prepare *p);
/* Has the timer go off at at_ns or earlier. */
void alq_prepare_wake_by(struct alq_prepare *p, int64_t at_ns);

/* Puts an operation at the end of its claim's queue and runs it when it is the head's turn. NULL
 * with err set when out of memory; else it may have ended already. */
struct alq_operation *alq_steps_start(struct alq_prepare *p, enum alq_operation_kind kind,
                                      const struct alq_claim_id *id, int64_t deadline_ns,
                                      alq_prepare_cb cb, void *arg, struct alq_err *err);
/* The two halves of it, for who has to fill the operation. */
struct alq_operation *alq_steps_new(struct alq_prepare *p, enum alq_operation_kind kind,
                                    const struct alq_claim_id *id, int64_t deadline_ns,
                                    alq_prepare_cb cb, void *arg, struct alq_err *err);
void alq_steps_begin(struct alq_operation *op);
/* An Unprepare has come: every Prepare before it in its claim's queue is answered with an error. */
void alq_steps_cancel_before(struct alq_operation *unprepare);

/* Asks the API server for the claim; its answer goes to alq_admit. */
void alq_steps_get(struct alq_operation *op);
/* Waits in a step until alq_steps_retry or wake_ns. */
void alq_steps_wait(struct alq_operation *op, enum alq_step step, int64_t wake_ns);
void alq_steps_work(struct alq_operation *op, int is_removal);
/* Answers and frees the operation; its claim's next one runs. fail names the claim in err. */
void alq_steps_fail(struct alq_operation *op, struct alq_err *err);

/* Looks again at each Prepare that waits for GPUs or room, in order of arrival. */
void alq_steps_retry(struct alq_prepare *p);
void alq_steps_on_time(void *prepare);

/* ---- admit.c ---- */

/* From the object to a promise and the worker, or to a step that waits, or to a refusal. */
void alq_admit(struct alq_operation *op);
/* wake_ns has come in ALQ_STEP_ROOM. */
void alq_admit_on_time(struct alq_operation *op);
/* Ends the claim's promise; a lookup of it too. */
void alq_promise_end(struct alq_prepare *p, struct alq_claim *claim);

/* All who hold something but op's own claim; malloc'ed, NULL when out of memory. */
struct alq_room_holder *alq_holders_of_others(const struct alq_operation *op, size_t *count);

/* A removal of the claim's files has failed: it is tried again by and by. */
void alq_holder_remove_again(struct alq_prepare *p, struct alq_claim *claim);

/* A lookup has been answered: a claim that is gone is unprepared, at once or a little later. */
void alq_holder_on_answer(void *prepare, struct alq_claim *claim, const json_t *object);
/* Unprepares the claims whose time has come; when the next one's does. */
int64_t alq_holders_take_back(struct alq_prepare *p);

/* ---- limit.c ---- */

/* It is its turn; the worker has ended. */
void alq_limit_run(struct alq_operation *op);
void alq_limit_done(struct alq_operation *op);

#endif

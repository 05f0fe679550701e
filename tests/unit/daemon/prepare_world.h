/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node around the claims' state machine, in virtual time and one thread: an API server whose
 * answers come when the test says so, workers whose jobs end when it says so, files that are a
 * table. Claim n is ns/c<n> with UID u<n>; two GPUs of 1000 MiB.
 */
#ifndef ALQ_TEST_PREPARE_WORLD_H
#define ALQ_TEST_PREPARE_WORLD_H

#include <stdint.h>

#include "daemon/prepare/machine.h"

#define WORLD_CLAIMS 256
#define WORLD_CALLS 1024
#define WORLD_GPU_MIB 1000u
#define MS ALQ_NS_PER_MS
#define SECOND (1000 * ALQ_NS_PER_MS)

/* The API server's object of a claim, and how it answers for it. */
struct world_object {
    int exists;
    int is_replaced; /* another claim has the name */
    int is_unallocated;
    int is_unreserved;
    int is_admin;
    unsigned gpu;
    unsigned cores;
    unsigned memory_mib; /* 0: no consumedCapacity, the whole GPU */
    unsigned also_mib;   /* a second result, of the other GPU, 0 cores */
    unsigned share;      /* the shareID's number */
    int status;          /* 0: the object or a proper 404; else this; -1: no answer */
};

/* One call of the kubelet. */
struct world_call {
    unsigned n;
    int is_prepare;
    int answers; /* how often it was answered: must become 1 */
    int order;   /* 1, 2, ... of the answers */
    int64_t answered_ns;
    int code; /* 0: success */
    char text[ALQ_ERR_TEXT_BYTES];
    unsigned cores; /* of the first share, when prepared */
    uint64_t get;   /* the number of the first GET after it came */
};

struct world_get {
    unsigned n;
    uint64_t number; /* 1, 2, ... */
    int64_t timeout_ns;
    void (*cb)(void *arg, int status, json_t *body, const struct alq_err *err);
    void *arg;
};

struct world_files {
    int is_made;
    unsigned cores;
    int has_started_record; /* a removal that failed, or a kill */
};

extern struct world {
    struct alq_prepare *prepare;
    int64_t now_ns;
    int64_t timer_ns;
    struct world_object objects[WORLD_CLAIMS];
    struct world_files files[WORLD_CLAIMS];
    unsigned call_count, answered;
    struct world_get gets[WORLD_CALLS]; /* in flight, oldest first */
    unsigned get_count;
    uint64_t get_numbers;
    struct alq_operation *jobs[WORLD_CALLS]; /* submitted, oldest first */
    unsigned job_count;
    int is_failing; /* the job that runs */
    unsigned swept;
    struct world_call calls[WORLD_CALLS]; /* last: set when used */
} world;

/* With GPUs known; claims 0 to WORLD_CLAIMS-1 exist, with 10 cores and 10 MiB of GPU 0 each. */
void world_start(void);
void world_start_blind(void); /* GPUs not known yet */
void world_set_gpus(unsigned count);
/* Answers what is open, frees the machine, and checks that each call was answered once. */
void world_stop(void);

/* A record of an earlier life, before world_begin. */
void world_adopt(unsigned n, int is_this_boot, enum alq_record_state state);
void world_begin(void);

struct world_call *world_prepare(unsigned n, int64_t deadline_in_ns);
struct world_call *world_unprepare(unsigned n);
/* The same, with every answer and job given until it has ended. */
struct world_call *world_prepared(unsigned n);
struct world_call *world_unprepared(unsigned n);

void world_answer(unsigned i);          /* gets[i] */
void world_work(unsigned i, int fails); /* jobs[i] */
void world_settle(void);                /* answers and works until nothing is in flight */
void world_advance(int64_t ns);         /* timers and timeouts on the way go off */

/* How many GETs of claim n are in flight. */
unsigned world_gets_of(unsigned n);
/* Cores promised on a GPU, and MiB. */
unsigned world_cores(unsigned gpu);
unsigned world_mib(unsigned gpu);

#endif

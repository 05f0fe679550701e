/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU, its driver and a clock in this process, for tests of the compute gate: programs are
 * coroutines that launch, record and wait in virtual time, so every run is the same. The device
 * runs one process's kernels at a time, turns between processes go round by kernel, streams of one
 * process may overlap. Event times are when their stream reaches them: an event pair around a
 * kernel so includes the wait for another process's kernel, as on a real GPU at worst. One thread.
 */
#ifndef ALQ_TEST_FAKEGPU_H
#define ALQ_TEST_FAKEGPU_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot/share.h"
#include "vgpu/compute/compute.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

#define FAKE_PROCESSES 16
#define FAKE_STREAMS 8

struct fake_share {
    struct alq_control *control;
    struct alq_usage_section *section;
};

struct fake_process {
    struct alq_compute *compute; /* NULL: a neighbour without the library */
    int group;                   /* the share, for the oracle */
    bool is_overlapping;         /* its streams run at the same time */
    int graph_kernels;           /* launches through the graph API carry so many kernels */
    uint64_t launch_cost_ns;
    uint64_t launches;
    uint64_t own_calls;         /* driver calls made by the gate */
    uint64_t records;           /* of them, events put into streams */
    uint64_t records_at_launch; /* of them, at the last launch */
    uint64_t sleeps;            /* waits that would be system calls */
    uint64_t max_gap_ns;        /* longest time between two launches */
    uint64_t last_launch_ns;
    CUresult event_error; /* what event calls answer instead of success, from now on */
    const bool *until;    /* the next kernel spins until it is set, then runs for its duration */
    bool *sets;           /* the next kernel sets it at its end */
};

void fake_reset(void);
struct fake_share fake_share_new(uint32_t limit_pct);
void fake_share_limit(struct fake_share *share, uint32_t limit_pct, uint32_t policy);

/* A process under shares[0..count) and the program it runs; `program` returns when it ends. */
struct fake_process *fake_process_new(int group, const struct fake_share *share,
                                      void (*program)(void *), void *arg);

void fake_run_until(uint64_t t_ns);
uint64_t fake_now(void);
uint64_t fake_busy_ns(int group);
uint32_t fake_events_alive(void);

/* For programs. Streams are 0..FAKE_STREAMS-1, 0 the legacy default stream. */
struct fake_process *fake_self(void);
CUstream fake_stream(int stream);
void fake_launch(int stream, uintptr_t function, uint64_t duration_ns);
/* The same, not given to the gate: for captures and failures. */
void fake_launch_with(const struct alq_compute_launch *launch, int stream, uint64_t duration_ns,
                      CUresult rc);
void fake_graph_launch(int stream, uintptr_t exec, uint64_t duration_ns);
void fake_sync(int stream);
void fake_sleep(uint64_t ns);
void fake_set_capturing(int stream, bool is_capturing);

#endif

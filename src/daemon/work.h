/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few worker threads for blocking file I/O. A job runs on a worker; its end is told on the loop
 * thread. Jobs start in order of submission but end in any; who needs an order keeps it itself.
 */
#ifndef ALQ_DAEMON_WORK_H
#define ALQ_DAEMON_WORK_H

#include "base/err.h"

struct event_base;
struct alq_work;

/* Owned by the caller, usually the first member of its own job struct; touched by nobody else
 * between submission and done(). */
struct alq_job {
    void (*run)(struct alq_job *job);  /* on a worker; must not call the loop */
    void (*done)(struct alq_job *job); /* on the loop; may free the job and submit others */
    struct alq_job *next;              /* the queue's */
};

/* ALQ_EIO or ALQ_ENOMEM. All signals are blocked in the threads. */
struct alq_work *alq_work_new(struct event_base *base, unsigned threads, struct alq_err *err);

/* Waits for the jobs that run, runs the ones that wait, calls done() of all. NULL-safe. */
void alq_work_free(struct alq_work *work);

/* Never fails: the job brings its own memory. Loop thread only. */
void alq_work_submit(struct alq_work *work, struct alq_job *job);

/* Jobs submitted whose done() has not been called. Loop thread only. */
unsigned alq_work_pending(const struct alq_work *work);

#endif

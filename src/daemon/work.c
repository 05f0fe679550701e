/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads: one mutex guards both queues; an eventfd wakes the loop when the queue of ended
 * jobs was empty. The loop takes that queue whole and calls done() without the lock.
 */
#include "daemon/work.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct queue {
    struct alq_job *head;
    struct alq_job **tail;
};

struct alq_work {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct queue todo;  /* under lock */
    struct queue ended; /* under lock */
    int is_stopping;    /* under lock */
    unsigned pending;   /* loop thread */
    int fd;
    struct event *event;
    unsigned thread_count;
    pthread_t threads[];
};

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_put(struct queue *q, struct alq_job *job)
{
    job->next = NULL;
    *q->tail = job;
    q->tail = &job->next;
}

static struct alq_job *queue_get(struct queue *q)
{
    struct alq_job *job = q->head;
    if (job && !(q->head = job->next))
        q->tail = &q->head;
    return job;
}

static void *worker(void *arg)
{
    struct alq_work *work = arg;
    pthread_mutex_lock(&work->lock);
    for (;;) {
        struct alq_job *job = queue_get(&work->todo);
        if (job) {
            pthread_mutex_unlock(&work->lock);
            job->run(job);
            pthread_mutex_lock(&work->lock);
            if (!work->ended.head) {
                const uint64_t one = 1;
                /* Cannot block or fall short: the counter is far from its end. */
                if (write(work->fd, &one, sizeof(one)) < 0)
                    abort();
            }
            queue_put(&work->ended, job);
        } else if (work->is_stopping) {
            break;
        } else {
            pthread_cond_wait(&work->wake, &work->lock);
        }
    }
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

static void finish_ended(struct alq_work *work)
{
    pthread_mutex_lock(&work->lock);
    struct alq_job *job = work->ended.head;
    queue_init(&work->ended);
    pthread_mutex_unlock(&work->lock);
    while (job) {
        struct alq_job *next = job->next;
        work->pending--;
        job->done(job);
        job = next;
    }
}

static void on_ended(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    uint64_t count;
    if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        return;
    finish_ended(arg);
}

struct alq_work *alq_work_new(struct event_base *base, unsigned threads, struct alq_err *err)
{
    struct alq_work *work = calloc(1, sizeof(*work) + threads * sizeof(work->threads[0]));
    if (!work) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->wake, NULL);
    queue_init(&work->todo);
    queue_init(&work->ended);
    work->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (work->fd >= 0)
        work->event = event_new(base, work->fd, EV_READ | EV_PERSIST, on_ended, work);
    if (!work->event || event_add(work->event, NULL)) {
        alq_err_errno(err, errno, "eventfd for the workers");
        alq_work_free(work);
        return NULL;
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = 0;
    while (work->thread_count < threads && !rc) {
        rc = pthread_create(&work->threads[work->thread_count], NULL, worker, work);
        if (!rc)
            work->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        alq_err_errno(err, rc, "starting worker %u", work->thread_count);
        alq_work_free(work);
        return NULL;
    }
    return work;
}

void alq_work_free(struct alq_work *work)
{
    if (!work)
        return;
    pthread_mutex_lock(&work->lock);
    work->is_stopping = 1;
    pthread_cond_broadcast(&work->wake);
    pthread_mutex_unlock(&work->lock);
    for (unsigned i = 0; i < work->thread_count; i++)
        pthread_join(work->threads[i], NULL);
    finish_ended(work);
    for (struct alq_job *job; (job = queue_get(&work->todo));) {
        job->run(job);
        job->done(job);
    }
    if (work->event)
        event_free(work->event);
    if (work->fd >= 0)
        close(work->fd);
    pthread_cond_destroy(&work->wake);
    pthread_mutex_destroy(&work->lock);
    free(work);
}

void alq_work_submit(struct alq_work *work, struct alq_job *job)
{
    work->pending++;
    pthread_mutex_lock(&work->lock);
    queue_put(&work->todo, job);
    pthread_cond_signal(&work->wake);
    pthread_mutex_unlock(&work->lock);
}

unsigned alq_work_pending(const struct alq_work *work)
{
    return work->pending;
}

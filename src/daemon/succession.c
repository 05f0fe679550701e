/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two locks and a timer, see succession.h. Loop thread only.
 */
#include "daemon/succession.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/state/record.h"
#include "daemon/state/store.h"

#define ALQ_LOG_MODULE "succession"

#define NOTE "hands over, records %d, chosen %" PRId64
#define NOTE_SCAN "hands over, records %d, chosen %" SCNd64
#define ASK_STEPS (1000 / ALQ_SUCCESSION_STEP_MS)      /* between two requests of an asker */
#define PATIENCE_STEPS (2000 / ALQ_SUCCESSION_STEP_MS) /* with an asker who does not take */

struct alq_succession {
    struct alq_succession_calls calls;
    int is_shared;
    char *dir, *lock_path, *next_path;
    int64_t chosen_ns; /* 0: never */
    int lock;          /* -1: not the holder */
    int next;          /* -1: not asking */
    struct event *step;
    int inotify;
    struct event *request; /* on inotify; without that, a timer */
    int is_listening;
    int has_retired;
    int is_warned;
    unsigned asked_steps; /* since we wrote */
    unsigned idle_steps;  /* that another asked while the lock was free */
};

static void arm_step(struct alq_succession *s)
{
    const struct timeval step = {.tv_usec = ALQ_SUCCESSION_STEP_MS * 1000};
    event_add(s->step, &step);
}

static void let_go(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- what lock files say ----------------------------------------------------------------------
 */

struct note {
    int records; /* version of; 0: its holder does not hand over */
    int64_t chosen_ns;
};

static void read_note(const char *path, struct note *note)
{
    char text[96];
    alq_lock_note(path, text, sizeof(text));
    if (sscanf(text, NOTE_SCAN, &note->records, &note->chosen_ns) != 2)
        *note = (struct note){0};
}

static void format_note(const struct alq_succession *s, char text[96])
{
    *text = '\0';
    if (s->is_shared)
        snprintf(text, 96, NOTE, ALQ_RECORD_VERSION, s->chosen_ns);
}

static void choose(struct alq_succession *s)
{
    char text[96];
    s->chosen_ns = alq_now_ns();
    s->asked_steps = ASK_STEPS; /* asks again at once */
    format_note(s, text);
    if (s->lock >= 0 && s->is_shared)
        alq_lock_set_note(s->lock, text);
}

void alq_succession_registered(struct alq_succession *s)
{
    choose(s);
}

/* ---- not the holder ---------------------------------------------------------------------------
 */

static void ask(struct alq_succession *s)
{
    char text[96];
    int is_asking = s->next >= 0;
    if (is_asking && ++s->asked_steps < ASK_STEPS)
        return;
    s->asked_steps = 0;
    format_note(s, text);
    if (is_asking)
        alq_lock_set_note(s->next, text);
    else if (!alq_lock_take(s->next_path, "the succession", text, &s->next, NULL))
        alq_info(NULL, "asking the instance that has the node's state to hand over");
}

/* Whether the records that lie there are of a version that we know. */
static int may_take_back(struct alq_succession *s, const struct note *last)
{
    if (last->records <= ALQ_RECORD_VERSION)
        return 1;
    if (!s->is_warned)
        alq_error(NULL, "the node's state is not taken back: a newer aliquotd has written it");
    s->is_warned = 1;
    return 0;
}

/* Another has asked for the lock and is expected to take it. */
static int is_anothers_turn(struct alq_succession *s)
{
    if (s->next >= 0 || !alq_lock_is_held(s->next_path)) {
        s->idle_steps = 0;
        return 0;
    }
    if (alq_lock_is_held(s->lock_path))
        s->idle_steps = 0;
    return ++s->idle_steps < PATIENCE_STEPS;
}

void alq_succession_try(struct alq_succession *s)
{
    char text[96];
    struct note last;
    read_note(s->lock_path, &last);
    format_note(s, text);
    if (s->lock >= 0 || is_anothers_turn(s) || alq_lock_is_held(s->lock_path) ||
        (s->has_retired && !may_take_back(s, &last)) ||
        alq_lock_take(s->lock_path, s->dir, text, &s->lock, NULL))
        return;
    let_go(&s->next);
    event_del(s->step);
    s->has_retired = s->is_warned = 0;
    s->idle_steps = 0;
    s->calls.on_acquired(s->calls.arg);
}

static int is_wanted(struct alq_succession *s)
{
    struct note holder;
    read_note(s->lock_path, &holder);
    if (s->has_retired && !may_take_back(s, &holder))
        return 0;
    if (s->calls.has_calls(s->calls.arg)) {
        if (s->chosen_ns <= holder.chosen_ns)
            choose(s);
        return 1;
    }
    return s->chosen_ns > holder.chosen_ns && s->calls.is_connected(s->calls.arg);
}

static void on_step(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct alq_succession *s = arg;
    arm_step(s);
    if (is_wanted(s))
        ask(s);
    else
        let_go(&s->next);
    alq_succession_try(s);
}

/* ---- the holder -------------------------------------------------------------------------------
 */

static void check_asked(struct alq_succession *s)
{
    struct note asker;
    if (s->lock < 0 || !s->is_listening || !alq_lock_is_held(s->next_path))
        return;
    read_note(s->next_path, &asker);
    if (asker.chosen_ns <= s->chosen_ns)
        return; /* the kubelet has chosen us since */
    s->is_listening = 0;
    s->calls.on_asked(s->calls.arg);
}

static void on_request(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct alq_succession *s = arg;
    char events[4096];
    while (s->inotify >= 0 && read(fd, events, sizeof(events)) > 0)
        ;
    check_asked(s);
}

void alq_succession_listen(struct alq_succession *s)
{
    s->is_listening = s->is_shared;
    check_asked(s);
}

void alq_succession_release(struct alq_succession *s)
{
    let_go(&s->lock);
    s->has_retired = 1;
    s->idle_steps = 0;
    arm_step(s);
}

int alq_succession_is_holder(const struct alq_succession *s)
{
    return s->lock >= 0;
}

/* ---- life -------------------------------------------------------------------------------------
 */

static int watch_requests(struct alq_succession *s, struct event_base *base)
{
    static const struct timeval period = {.tv_usec = 250000};
    s->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (s->inotify >= 0 && inotify_add_watch(s->inotify, s->dir, IN_MODIFY) < 0)
        let_go(&s->inotify);
    if (s->inotify < 0)
        alq_warn(ALQ_LOG_KV({"directory", s->dir}), "no inotify, looking now and then: %s",
                 strerror(errno));
    s->request =
        event_new(base, s->inotify, EV_PERSIST | (s->inotify < 0 ? 0 : EV_READ), on_request, s);
    return s->request && !event_add(s->request, s->inotify < 0 ? &period : NULL) ? 0 : -1;
}

static int take_first(struct alq_succession *s, struct alq_err *err)
{
    char text[96];
    struct note holder;
    struct alq_err why = ALQ_ERR_INIT;
    format_note(s, text);
    int rc = alq_lock_take(s->lock_path, s->dir, text, &s->lock, &why);
    if (rc == ALQ_EBUSY && s->is_shared) {
        read_note(s->lock_path, &holder);
        if (holder.records)
            return 0;
        alq_err_wrap(&why, "one that was started without --pod-uid, or is older, cannot hand over");
    }
    if (rc)
        *err = why;
    return rc;
}

struct alq_succession *alq_succession_new(struct event_base *base, const char *dir, int is_shared,
                                          const struct alq_succession_calls *calls,
                                          struct alq_err *err)
{
    struct alq_succession *s = calloc(1, sizeof(*s));
    if (!s) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    s->calls = *calls;
    s->is_shared = is_shared;
    s->lock = s->next = s->inotify = -1;
    s->dir = strdup(dir);
    s->lock_path = alq_str_printf("%s/aliquotd.lock", dir);
    s->next_path = alq_str_printf("%s/aliquotd.next", dir);
    s->step = evtimer_new(base, on_step, s);
    if (!s->dir || !s->lock_path || !s->next_path || !s->step ||
        (is_shared && watch_requests(s, base)))
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
    else if (!take_first(s, err)) {
        if (s->lock < 0)
            arm_step(s);
        return s;
    }
    alq_succession_free(s);
    return NULL;
}

void alq_succession_free(struct alq_succession *s)
{
    if (!s)
        return;
    let_go(&s->lock);
    let_go(&s->next);
    if (s->step)
        event_free(s->step);
    if (s->request)
        event_free(s->request);
    let_go(&s->inotify);
    free(s->dir);
    free(s->lock_path);
    free(s->next_path);
    free(s);
}

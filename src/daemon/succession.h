/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which instance of aliquotd has the node's state. Without a pod UID there is one instance, and a
 * second is refused. With one, a rolling update runs two side by side for a while, and the state
 * follows the kubelet: it goes to the instance that the kubelet registered last, for that is where
 * the kubelet sends its calls.
 *
 *   holder    has the lock <plugin dir>/aliquotd.lock, and its state open
 *   asker     was chosen later than the holder; holds the lock <plugin dir>/aliquotd.next and has
 *             written to that file, which the holder sees by inotify; the holder closes its state
 *             and lets go of its lock
 *   retired   has handed over, and takes back a lock that is free when nobody asks for it
 *
 * Chosen is who was registered, or has a call waiting; when (CLOCK_MONOTONIC) stands in both lock
 * files, so that of two that are registered at the same moment the later one ends up as holder.
 *
 * The kernel drops the locks of a process that dies, at whatever point: of an asker, and the holder
 * stays or the retired one takes back; of a holder, and whoever else is there takes over. Nobody is
 * asked twice, and no message can be lost: who is not the holder tries every
 * ALQ_SUCCESSION_STEP_MS, and an asker writes again each second.
 *
 * The lock file's second line says what its holder can do: one that cannot hand over (started
 * without a pod UID, or of a version before this) makes a second instance fail at once, and an
 * instance that has retired does not take back records of a version that it cannot read. Loop
 * thread only; the locks are on a local file system.
 */
#ifndef ALQ_DAEMON_SUCCESSION_H
#define ALQ_DAEMON_SUCCESSION_H

#include "base/err.h"

#define ALQ_SUCCESSION_STEP_MS 20

struct event_base;
struct alq_succession;

struct alq_succession_calls {
    int (*is_connected)(void *arg); /* to the kubelet: no call goes elsewhere any more */
    int (*has_calls)(void *arg);    /* that wait for the state */
    void (*on_acquired)(void *arg); /* the holder now */
    /* The holder no longer, as soon as it says alq_succession_release. */
    void (*on_asked)(void *arg);
    void *arg;
};

/* dir exists. Takes the lock when it is free; on_acquired is not called for that. ALQ_EBUSY:
 * another instance has it and does not share (is_shared: whether this one does). */
struct alq_succession *alq_succession_new(struct event_base *base, const char *dir, int is_shared,
                                          const struct alq_succession_calls *calls,
                                          struct alq_err *err);
/* Lets go. NULL-safe. */
void alq_succession_free(struct alq_succession *succession);

int alq_succession_is_holder(const struct alq_succession *succession);

/* The kubelet has registered this instance, just now. */
void alq_succession_registered(struct alq_succession *succession);

/* After on_asked, once the state is closed. */
void alq_succession_release(struct alq_succession *succession);

/* Takes the lock now if that is allowed; on_acquired has been called then. */
void alq_succession_try(struct alq_succession *succession);

/* The holder is ready to be asked: on_asked comes if somebody asks already, or asks later. */
void alq_succession_listen(struct alq_succession *succession);

#endif

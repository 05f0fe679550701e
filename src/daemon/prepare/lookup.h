/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the claims that hold promises still exist. At most one request per claim and four in all
 * are in flight, the rest waits in line; an answer is good for a second, so that a hundred claims
 * that wait for one holder ask once. Loop thread only.
 */
#ifndef ALQ_DAEMON_PREPARE_LOOKUP_H
#define ALQ_DAEMON_PREPARE_LOOKUP_H

#include <jansson.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "daemon/clock.h"
#include "daemon/domain.h"

struct alq_claim;

/* How claims are looked up; alq_kube_get_claim and alq_kube_cancel, with their contracts. */
struct alq_claim_source {
    void *(*get)(void *arg, const char *namespace_, const char *name, long timeout_ms,
                 void (*cb)(void *cb_arg, int status, json_t *body, const struct alq_err *err),
                 void *cb_arg, struct alq_err *err);
    void (*cancel)(void *call);
    void *arg;
};

/* What the API server says of the claim that a promise was made for. Only ALQ_CLAIM_GONE ends a
 * promise: for the others the kubelet's Unprepare is waited for, since containers may still run. */
enum alq_claim_state {
    ALQ_CLAIM_UNKNOWN,     /* not asked, no answer, or one that proves nothing */
    ALQ_CLAIM_PRESENT,     /* allocated as promised and reserved for a pod */
    ALQ_CLAIM_UNALLOCATED, /* its allocation was taken away */
    ALQ_CLAIM_MOVED,       /* allocated anew since */
    ALQ_CLAIM_UNUSED,      /* reserved for no pod */
    ALQ_CLAIM_GONE,        /* no more, or another claim has its name */
};

/* Judges an answer. GONE takes a Status that says NotFound of this very name, or an object with
 * another UID: a 404 of a proxy, or of a server without this API, says nothing. Pure. */
enum alq_claim_state alq_claim_state_read(const struct alq_claim_spec *promise, int status,
                                          const json_t *body);

/* For a person, as a remark on a holder: "no longer allocated"; "" for UNKNOWN and PRESENT. */
const char *alq_claim_state_remark(enum alq_claim_state state);

/* In each claim. */
struct alq_lookup {
    TAILQ_ENTRY(alq_claim) link; /* in line, while is_in_line */
    int is_in_line;
    struct alq_lookups *owner;  /* while call */
    void *call;                 /* in flight */
    int64_t answered_ns;        /* 0: never */
    enum alq_claim_state state; /* by the last answer that said something */
};

struct alq_lookups {
    const struct alq_claim_source *source;
    const struct alq_clock *clock;
    /* an answer has come: claim->lookup.state, and the object if there is one (borrowed) */
    void (*cb)(void *arg, struct alq_claim *claim, const json_t *object);
    void *arg;
    TAILQ_HEAD(, alq_claim) line;
    unsigned in_flight;
};

void alq_lookups_init(struct alq_lookups *lookups, const struct alq_claim_source *source,
                      const struct alq_clock *clock,
                      void (*cb)(void *arg, struct alq_claim *claim, const json_t *object),
                      void *arg);

/* Nothing more is asked; what is in flight is the caller's to cancel. */
void alq_lookups_fini(struct alq_lookups *lookups);

/* Asks for the object of a claim with a promise, unless it is being asked for or was just now. */
void alq_lookups_ask(struct alq_lookups *lookups, struct alq_claim *claim);
/* No answer for it will come. */
void alq_lookups_cancel(struct alq_lookups *lookups, struct alq_claim *claim);

#endif

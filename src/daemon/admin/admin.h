/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon serves over HTTP: probes and metrics on TCP, contract 7 on the admin socket
 * (docs/admin.md), and the findings of all modules. A port or path that is taken is a finding and
 * tried again, never the end. Other modules add their paths to alq_admin_http and their findings to
 * alq_admin_findings. Loop thread only.
 */
#ifndef ALQ_DAEMON_ADMIN_ADMIN_H
#define ALQ_DAEMON_ADMIN_ADMIN_H

#include "base/err.h"
#include "daemon/admin/http.h"
#include "daemon/config.h"
#include "daemon/findings.h"

struct alq_admin;

/* What the probes ask; why (at most 256 bytes) is set when the answer is 0. */
struct alq_admin_probes {
    int (*is_ready)(void *arg, char *why, size_t size);
    int (*is_live)(void *arg, char *why, size_t size);
    void *arg;
};

/* Listens on TCP from now on. Looks the group up, so before the loop runs. cfg outlives it. */
struct alq_admin *alq_admin_new(const struct alq_config *cfg, struct event_base *base,
                                const struct alq_admin_probes *probes, struct alq_err *err);
/* NULL-safe. */
void alq_admin_free(struct alq_admin *admin);

struct alq_http *alq_admin_http(struct alq_admin *admin);
struct alq_findings *alq_admin_findings(struct alq_admin *admin);

/* The admin socket is that instance's which has the node's state. */
void alq_admin_open(struct alq_admin *admin);
void alq_admin_close(struct alq_admin *admin);

/* Listens again where it should and does not. */
void alq_admin_look(struct alq_admin *admin);

/* The status that an ALQ_E* is answered with. */
int alq_admin_status(int code);

/* Answers with a JSON value, taken over (NULL: out of memory). */
void alq_admin_answer(struct alq_http_call *call, int status, json_t *value);

#endif

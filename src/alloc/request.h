/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked for: a pod's claims flattened into requests and their alternatives, with classes
 * looked up and selectors compiled. Borrows the JSON it was made from. One thread per object.
 */
#ifndef ALQ_ALLOC_REQUEST_H
#define ALQ_ALLOC_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "alloc/arena.h"
#include "alloc/cel.h"
#include "base/err.h"

#define ALQ_CLAIMS_MAX 64   /* together; a claim is a bit in alq_device.claims */
#define ALQ_RESULTS_MAX 32  /* AllocationResultsMaxSize */
#define ALQ_REQUESTS_MAX 32 /* per claim: DeviceRequestsMaxSize */

struct alq_device;
struct alq_fit;

struct alq_selector {
    const char *text;
    struct alq_cel_program *program; /* owned by the request set; shared by equal texts */
    struct alq_selector *next;       /* in the set */
};

struct alq_selectors {
    struct alq_selector **items;
    size_t count;
};

/* One way to satisfy a request: its "exactly", or one of its "firstAvailable". */
struct alq_option {
    const char *name; /* "request" or "request/subrequest" */
    json_t *spec;
    json_t *class_object;
    const char *class_name;
    bool is_all; /* allocationMode All */
    bool is_admin;
    size_t count; /* devices; All: set when the inventory is known */
    struct alq_selectors class_selectors, selectors;
    json_t *tolerations;
    struct alq_device **all_devices; /* allocationMode All: which they are */
    struct alq_fit *fits;            /* per device id, filled as the search looks at devices */
};

struct alq_request {
    const char *name;
    struct alq_option *options;
    size_t option_count;
    bool has_suboptions; /* firstAvailable */
    size_t chosen;       /* option in use, when the search is done */
};

struct alq_constraint {
    json_t *requests;                /* names, or NULL for all */
    const char *attribute;           /* fully qualified */
    bool is_distinct;                /* else all devices must agree */
    json_t *values[ALQ_RESULTS_MAX]; /* of the devices in use: a stack */
    size_t value_count;
};

struct alq_claim {
    json_t *json;
    const char *uid;
    char *label; /* namespace/name */
    struct alq_request *requests;
    size_t request_count;
    struct alq_constraint *constraints;
    size_t constraint_count;
};

struct alq_request_set {
    struct alq_arena *arena;
    struct alq_claim claims[ALQ_CLAIMS_MAX];
    size_t claim_count;
    struct alq_selector *selectors;
};

/*
 * Reads a claim that is to be allocated and adds it to the set. ALQ_ENOENT: a DeviceClass does not
 * exist (the claim must wait); ALQ_EINVAL, ALQ_EPROTO: the claim or a class is malformed, or a
 * selector does not compile; ALQ_ERANGE: too many claims or requests; ALQ_ENOMEM.
 */
int alq_request_set_add(struct alq_request_set *set, json_t *claim, json_t *classes,
                        struct alq_err *err);
void alq_request_set_fini(struct alq_request_set *set);

/* Whether names (a JSON list, NULL or empty: all) hold the request, or its chosen alternative. */
bool alq_request_is_named(json_t *names, const struct alq_request *request,
                          const struct alq_option *option);

/* Puts the device into the constraint, if the request is concerned. False: it would be broken,
 * nothing is changed. */
bool alq_constraint_add(struct alq_constraint *constraint, const struct alq_request *request,
                        const struct alq_option *option, const struct alq_device *device);

/* Takes the last device out that alq_constraint_add put in for this option. */
void alq_constraint_remove(struct alq_constraint *constraint, const struct alq_request *request,
                           const struct alq_option *option);

/* Whether the option's tolerations accept the device's NoSchedule and NoExecute taints. */
bool alq_option_tolerates(const struct alq_option *option, const struct alq_device *device);

#endif

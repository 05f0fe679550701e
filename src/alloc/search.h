/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backtracking search over requests and devices. Works on an inventory and a request set, keeps
 * no JSON. One thread.
 */
#ifndef ALQ_ALLOC_SEARCH_H
#define ALQ_ALLOC_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "alloc/inventory.h"
#include "alloc/request.h"

/* What a request would take of a device, found once per pair. */
struct alq_fit {
    enum { ALQ_FIT_UNKNOWN, ALQ_FIT_NO, ALQ_FIT_YES } selected, sized;
    struct alq_amount *amounts; /* per capacity of the device */
    const char *lacking; /* ALQ_FIT_NO: the capacity that is absent, or too small by itself */
};

/* One device given to a request. */
struct alq_choice {
    const struct alq_request *request;
    const struct alq_option *option;
    struct alq_device *device;
    const struct alq_amount *amounts; /* NULL: not shared by capacity */
};

struct alq_choices {
    struct alq_choice items[ALQ_RESULTS_MAX];
    size_t count;
};

/* Why devices did not do for the request at which the search got furthest. */
struct alq_misfits {
    const struct alq_claim *claim; /* NULL: every device was placed, or none was looked for */
    const struct alq_option *option;
    size_t depth; /* devices placed before */
    size_t seen, unselected, in_use, too_small, no_room, tainted, constrained, unsupported;
    const char *lacking_size, *lacking_room; /* an example of a capacity; NULL when there is none */
};

struct alq_search {
    struct alq_inventory *inventory;
    struct alq_request_set *set;
    unsigned server_minor;
    struct alq_choices choices[ALQ_CLAIMS_MAX]; /* the result, per claim */
    struct alq_misfits misfits;
    size_t steps;
};

/*
 * Looks for a solution. *found tells whether there is one; then choices and each request's chosen
 * option hold it. Errors as alq_alloc.
 */
int alq_search_run(struct alq_search *search, bool *found, struct alq_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent's side with its command line and times open to tests; everybody else calls
 * alq_nvml_start.
 */
#ifndef ALQ_DAEMON_NVML_READER_H
#define ALQ_DAEMON_NVML_READER_H

#include "daemon/nvml/nvml.h"

struct alq_nvml_timing {
    long first_reply_ms; /* a child that has not answered its first request by then hangs */
    long reply_ms;       /* likewise for the later ones */
    long poll_ms;        /* between readings */
    long events_ms;      /* between questions for events; 0: none are asked for */
    long retry_min_ms;   /* back-off between children, doubled up to the maximum */
    long retry_max_ms;
    long skip_min_ms; /* how long a GPU that hangs is let be, doubled up to the maximum */
    long skip_max_ms;
};

/* program: a path; argv: the child's arguments from its name on, NULL-terminated; both copied. */
struct alq_nvml *alq_nvml_start_with(struct event_base *base, const char *program,
                                     char *const *argv, const struct alq_nvml_timing *timing,
                                     const struct alq_nvml_calls *calls, struct alq_err *err);

#endif

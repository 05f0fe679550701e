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
    long retry_min_ms;   /* back-off between children, doubled up to the maximum */
    long retry_max_ms;
};

/* program: a path; argv: the child's arguments from its name on, NULL-terminated; both copied.
 * reserve_bytes: kept back from each GPU. */
struct alq_nvml *alq_nvml_start_with(struct event_base *base, const char *program,
                                     char *const *argv, uint64_t reserve_bytes,
                                     const struct alq_nvml_timing *timing,
                                     alq_nvml_devices_cb on_devices, void *arg,
                                     struct alq_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings read again while the daemon runs (SIGHUP): what is live changes at once, what is not is
 * told, a file that is no good changes nothing. Loop thread only; reads the file, blocking.
 */
#ifndef ALQ_DAEMON_RELOAD_H
#define ALQ_DAEMON_RELOAD_H

#include "daemon/config.h"
#include "daemon/findings.h"

struct alq_reload {
    struct alq_config *cfg;
    int argc;
    char **argv;
    struct alq_config_changes last; /* what waits for a restart since the last reading */
    struct alq_err err;             /* code set: the last reading failed */
};

/* Reads all sources again. Whether something live has changed; the log level is in force then. */
int alq_reload_run(struct alq_reload *reload);

/* For alq_findings_register. */
void alq_reload_tell(void *reload, struct alq_findings *findings);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP, see reload.h.
 */
#include "daemon/reload.h"

#include "base/log.h"

#define ALQ_LOG_MODULE "config"

int alq_reload_run(struct alq_reload *r)
{
    struct alq_config fresh;
    enum alq_config_action action;
    struct alq_err err = ALQ_ERR_INIT;
    int rc = alq_config_load(&fresh, r->argc, r->argv, &action, &err);
    r->err = err;
    if (rc) {
        alq_error(NULL, "SIGHUP: the settings stay as they were: %s", err.text);
        alq_config_free(&fresh);
        return 0;
    }
    alq_config_take_live(r->cfg, &fresh, &r->last);
    alq_config_free(&fresh);
    alq_log_set_level(r->cfg->log_level);
    if (*r->last.waiting)
        alq_warn(NULL, "SIGHUP: changed, but in force only after a restart: %s", r->last.waiting);
    alq_info(NULL, "SIGHUP: %s%s", *r->last.taken ? "in force now: " : "nothing to change now",
             r->last.taken);
    return *r->last.taken != '\0';
}

void alq_reload_tell(void *arg, struct alq_findings *f)
{
    const struct alq_reload *r = arg;
    if (r->err.code)
        alq_findings_add(f, "config.reload", ALQ_FINDING_ERROR,
                         "set it right and send SIGHUP again; a restart would fail",
                         "the settings could not be read again: %s", r->err.text);
    if (*r->last.waiting)
        alq_findings_add(f, "config.restart", ALQ_FINDING_WARNING, "restart aliquotd",
                         "settings have changed that need a restart: %s", r->last.waiting);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a prepared claim is on disk, made, repaired, taken away and swept: record, share
 * directories, CDI spec. Each function may be called for different claims at the same time; the
 * caller keeps those of one claim apart. Blocking: workers, or before the loop runs.
 */
#ifndef ALQ_DAEMON_PREPARE_FILES_H
#define ALQ_DAEMON_PREPARE_FILES_H

#include "base/err.h"
#include "daemon/cdi/cdi.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/state/store.h"

struct alq_files;

/* Checks run and CDI directory, makes them when absent and installs the library; errors name the
 * directory. What may pass (read-only, full) is logged, and Prepare fails while it lasts. cfg and
 * store outlive it. boot_id is this boot's. */
int alq_files_open(const struct alq_config *cfg, struct alq_store *store, const char *boot_id,
                   struct alq_files **files, struct alq_err *err);
void alq_files_close(struct alq_files *files);

/*
 * Record "started", share directories, CDI spec, record "completed". On failure everything that
 * this call may have made is taken away again. A claim that was completed before in this boot
 * (has_record) keeps its record and its share files, and only what was lost is made, the record
 * too.
 */
int alq_files_prepare(struct alq_files *files, const struct alq_claim_spec *claim, int has_record,
                      struct alq_err *err);

/* CDI spec, share directories, record: in this order, so that what is left after a crash is known.
 * A claim that was never prepared is success. Works with no driver, no GPU and no API server. */
int alq_files_unprepare(struct alq_files *files, const char *uid, struct alq_err *err);

/* Removes share directories, CDI specs and temporaries of ours whose claim is_kept(arg, uid)
 * denies and whose record was not set aside, then installed libraries that no spec names. Before
 * the loop runs. What cannot be removed is logged. */
void alq_files_sweep(struct alq_files *files, int (*is_kept)(void *arg, const char *uid),
                     void *arg);

#endif

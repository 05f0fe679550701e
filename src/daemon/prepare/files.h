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
#include "daemon/findings.h"
#include "daemon/state/store.h"

struct alq_files;

/* Checks run and CDI directory, makes them when absent and installs the library; errors name the
 * directory. What may pass (read-only, full) is logged, and Prepare fails while it lasts. cfg and
 * store outlive it. boot_id is this boot's. */
int alq_files_open(const struct alq_config *cfg, struct alq_store *store, const char *boot_id,
                   struct alq_files **files, struct alq_err *err);
void alq_files_close(struct alq_files *files);

/* For alq_findings_register, with a struct alq_files: how the last scan of the driver ended. */
void alq_files_tell(void *files, struct alq_findings *findings);

/*
 * Record "started", share directories, CDI spec, record "completed". On failure everything that
 * this call may have made is taken away again. A claim that was completed before in this boot
 * (has_record) keeps its record and its share files, and only what was lost is made, the record
 * too. So does one whose containers may run though its record is lost or was set aside.
 */
int alq_files_prepare(struct alq_files *files, const struct alq_claim_spec *claim, int has_record,
                      struct alq_err *err);

/* The operator has set limits: record, then control. On failure the old ones are in force, unless
 * the disk took neither the new record nor the old one again. */
int alq_files_limit(struct alq_files *files, const struct alq_claim_spec *claim,
                    const struct alq_claim_spec *before, struct alq_err *err);

/* Whether the sweep found the claim without a record and with containers that may run: a Prepare of
 * it that fails leaves them their files, and its promise goes on. Any thread. */
int alq_files_is_found(const struct alq_files *files, const char *uid);

/* CDI spec, share directories, record: in this order, so that what is left after a crash is known.
 * A claim that was never prepared is success. Works with no driver, no GPU and no API server. */
int alq_files_unprepare(struct alq_files *files, const char *uid, struct alq_err *err);

/* What a sweep asks and tells. */
struct alq_files_sweeper {
    int (*is_kept)(void *arg, const char *uid); /* whether the claim has a record of this boot */
    /* The promise of a claim without one whose files stay; namespace and name are not known. */
    void (*on_found)(void *arg, const struct alq_claim_spec *claim);
    void *arg;
};

/* Removes what no record of this boot accounts for: share directories, CDI specs, temporaries, and
 * installed libraries that no spec names. The files of a claim whose record was set aside stay, and
 * those of one with a process that runs: its promise is what its control files say (uid, and each
 * share's GPU, memory and cores). Before the loop runs. What cannot be removed is logged. */
void alq_files_sweep(struct alq_files *files, const struct alq_files_sweeper *sweeper);

#endif

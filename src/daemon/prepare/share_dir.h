/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of one share: control, usage and hami.cache (contract 2, include/aliquot/share.h).
 * Files are made once, then changed in place only, since containers have them bind-mounted.
 * Blocking: workers, one at a time per share.
 */
#ifndef ALQ_DAEMON_PREPARE_SHARE_DIR_H
#define ALQ_DAEMON_PREPARE_SHARE_DIR_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"

/* <run dir>/shares; malloc'ed. */
char *alq_share_root(const struct alq_config *cfg);

/* Makes <run dir>/shares (0755) and checks that it is on tmpfs (ALQ_ENOTSUP: on a disk) and that
 * nobody but root may write there (ALQ_EACCES). */
int alq_share_root_prepare(const struct alq_config *cfg, struct alq_err *err);

/* Until fd is closed no other aliquotd may have its shares in <run dir>/shares, which is there: it
 * would take away those that no record of its own accounts for. ALQ_EBUSY: one has them there. */
int alq_share_root_lock(const struct alq_config *cfg, int *fd, struct alq_err *err);

/* Makes what is missing of the share's directory and files; publishes limits that differ from those
 * in force. *made (may be NULL) counts files made. ALQ_EIO: names the file. */
int alq_share_dir_ensure(const struct alq_config *cfg, const struct alq_share_spec *share,
                         unsigned *made, struct alq_err *err);

/* What the share's control file has in force, for a claim without a record: gpu_uuid, memory_bytes,
 * cores_pct, and its id. -1: there is no such file, or it is none of this share. */
int alq_share_dir_read(const struct alq_config *cfg, const char *share_id,
                       struct alq_share_spec *share);

/* Whether a process holds a slot of the share: it runs, and so does its container. */
int alq_share_dir_is_in_use(const struct alq_config *cfg, const char *share_id);

/* Takes the directory away; a missing one is success. */
int alq_share_dir_remove(const struct alq_config *cfg, const char *share_id, struct alq_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The YAML file that --config names: the settings of the table by their keys, and the lists that
 * exist in YAML only. Blocking: before the loop runs, or on SIGHUP.
 */
#ifndef ALQ_DAEMON_CONFIG_FILE_H
#define ALQ_DAEMON_CONFIG_FILE_H

#include "daemon/config.h"

/* Sets in cfg what the file has. ALQ_EINVAL names the file and the key (with the one that may have
 * been meant); ALQ_ENOENT, ALQ_EIO: the file. */
int alq_config_file_load(struct alq_config *cfg, const char *path, struct alq_err *err);

#endif

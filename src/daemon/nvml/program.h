/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the NVML child's program lies. Blocking file I/O; runs once at start.
 */
#ifndef ALQ_DAEMON_NVML_PROGRAM_H
#define ALQ_DAEMON_NVML_PROGRAM_H

#include "base/err.h"

#define ALQ_NVML_PROGRAM "aliquotd-nvml"

/*
 * Opens (O_PATH) the program in dir, the folder of the running executable, in ../libexec/aliquot
 * from there, or where it was configured to be installed. It is kept open and executed by its
 * descriptor: a package exchanged below a running daemon never mixes two versions. ALQ_ENOENT
 * naming the places.
 */
int alq_nvml_program_open(const char *dir, int *fd, struct alq_err *err);

/* The folder of the running executable, malloc'ed. ALQ_EIO when it cannot be told. */
int alq_nvml_program_dir(char **dir, struct alq_err *err);

#endif

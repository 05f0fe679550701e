/* SPDX-License-Identifier: Apache-2.0 */
/* Where libvgpu.so is: beside the tool, as it was installed or built. */
#ifndef ALQ_CLI_RUN_LIBRARY_H
#define ALQ_CLI_RUN_LIBRARY_H

#include "base/err.h"

/* given: the path that the user names, or NULL. An absolute path without blanks, malloc'ed; NULL
 * with ALQ_ENOENT, or ALQ_EINVAL for one that a preload file cannot name. */
char *alq_run_library(const char *given, struct alq_err *err);

#endif

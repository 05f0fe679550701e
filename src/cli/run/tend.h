/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program as a child that behaves as if it had been started without us: it stays in our process
 * group, so terminal and job control are its; signals that reach us alone are passed on; we stop
 * when it stops and end when it ends. It is killed if we are. One thread; the process has no other
 * children.
 */
#ifndef ALQ_CLI_RUN_TEND_H
#define ALQ_CLI_RUN_TEND_H

#include "base/err.h"

#define ALQ_TEND_NOT_FOUND 127
#define ALQ_TEND_NOT_RUN 126

/*
 * Forks; in the child prepare(arg, err) runs, then argv[0] is looked up in PATH and executed.
 * *status: what the program ended with, 128+n for signal n, or ALQ_TEND_*. An error where it was
 * not started: that of prepare, ALQ_ENOENT or ALQ_EACCES with *status ALQ_TEND_* set, ALQ_EIO.
 */
int alq_tend(char *const *argv, int (*prepare)(void *arg, struct alq_err *err), void *arg,
             int *status, struct alq_err *err);

#endif

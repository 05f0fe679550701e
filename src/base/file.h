/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are whole or absent. Writing goes to a hidden temporary file beside the target
 * (".<name>.tmp-<pid>-<n>"), is synced when durable, renamed over it, and the directory is synced
 * too; a failure leaves the old file and no temporary (only when the last step, the sync of the
 * directory, fails is the new file in place). Reading is bounded. Blocking calls: workers only, or
 * before the loop runs.
 */
#ifndef ALQ_BASE_FILE_H
#define ALQ_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Replaces path with data[0..len), mode exactly as given whatever the umask. */
int alq_file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                          int is_durable, struct alq_err *err);

/* Reads a regular file of at most max_bytes (else ALQ_ERANGE) without following a final symlink.
 * *data is malloc'ed, has a NUL after the last byte, and is the caller's. */
int alq_file_read(const char *path, size_t max_bytes, char **data, size_t *len,
                  struct alq_err *err);

/* The same of what path leads to: for files that an administrator names, as a ConfigMap's are links
 * into a directory that is exchanged as a whole. */
int alq_file_read_target(const char *path, size_t max_bytes, char **data, size_t *len,
                         struct alq_err *err);

/* mkdir -p: parents with mode 0755, the last one with exactly mode. An existing directory is left
 * as it is. */
int alq_file_mkdirs(const char *path, mode_t mode, struct alq_err *err);

/* Unlinks; a missing file is success. The directory is synced when durable. */
int alq_file_remove(const char *path, int is_durable, struct alq_err *err);

/* Removes a directory tree without following links; a missing one is success. */
int alq_file_remove_tree(const char *path, struct alq_err *err);

/* Copies a file's bytes to dst atomically (as alq_file_write_atomic). */
int alq_file_copy_atomic(const char *src, const char *dst, mode_t mode, struct alq_err *err);

/* Unlinks leftover temporaries of alq_file_write_atomic in dir (at start, when no writer runs).
 * Returns how many, or a code when one or more stay. */
int alq_file_sweep_temporaries(const char *dir, struct alq_err *err);

/* A file of ours beside this program, the first that is there: as installed
 * (<program's directory>/../libexec/aliquot/name), in the build tree
 * (<program's directory>/../in_tree/name), in the directory that it was built for. malloc'ed; NULL:
 * nowhere. */
char *alq_file_beside(const char *name, const char *in_tree, const char *installed_dir);

/* asprintf that cannot be ignored: returns a malloc'ed string, or NULL when out of memory. */
char *alq_str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

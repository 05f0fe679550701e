/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths below a driver root: symbolic links are followed as a process chroot'ed there would follow
 * them, so that an absolute link stays inside. No state, any thread; blocking file I/O.
 */
#ifndef ALQ_DAEMON_CDI_ROOT_H
#define ALQ_DAEMON_CDI_ROOT_H

#include "base/err.h"

/* Directories, relative to the root, that may hold the driver's libraries, in order of preference;
 * NULL-terminated. */
extern const char *const alq_driver_library_dirs[];

/* Where a library of a directory below the root is mounted, so that the loader of a container like
 * the host finds it without a cache; a container of another kind needs the hook update-ldcache. */
const char *alq_driver_container_dir(const char *library_dir);

/*
 * Opens root/path and returns the descriptor. flags is O_PATH, O_DIRECTORY, or 0 for reading a
 * regular file (ALQ_EIO: it is none; a FIFO or device is not opened). When host_path is not NULL it
 * gets the resolved path on the host, malloc'ed. ALQ_ENOENT, ALQ_EIO and the like name root and
 * path.
 */
int alq_root_open(const char *root, const char *path, int flags, char **host_path,
                  struct alq_err *err);

/* The same below a directory that is open, so that all is of one root whatever happens to its path;
 * root names it in errors. */
int alq_root_open_at(int dir, const char *root, const char *path, int flags, char **host_path,
                     struct alq_err *err);

/* "<root>/<path>" with one slash between; malloc'ed, NULL when out of memory. */
char *alq_root_join(const char *root, const char *path);

#endif

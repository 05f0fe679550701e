/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic links in a container: one by name, and those by which the loader finds the libraries of
 * a directory. One thread; no state. */
#ifndef ALQ_HOOK_LINK_H
#define ALQ_HOOK_LINK_H

#include "hook/rootfs.h"

/*
 * Makes dir/name a link to `target`. A link that says so already is left alone, and so is what the
 * runtime has mounted there; anything else but a directory is replaced by rename. dir may be
 * O_PATH. 0 or -errno: -EISDIR, -EROFS...
 */
int alq_link_put(int dir, const char *name, const char *target);

/*
 * In the directory `folder` of the container makes for every shared object lib*.so.* a link by its
 * SONAME, to the highest version where several have one. Nothing but a link is replaced. A missing
 * folder has no libraries. 0, or -errno of the first link that could not be made, after a report.
 */
int alq_link_sonames(const struct alq_rootfs *rootfs, const char *folder);

/* As ldconfig orders names: "libx.so.10" is above "libx.so.9". */
int alq_link_version_cmp(const char *a, const char *b);

#endif

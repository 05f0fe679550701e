/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /etc/ld.so.cache: which directory the host's loader takes a library from. Pure: works on
 * bytes in memory and trusts none of them. Any thread.
 */
#ifndef ALQ_DAEMON_CDI_LDCACHE_H
#define ALQ_DAEMON_CDI_LDCACHE_H

#include <stddef.h>

#include "base/err.h"

/*
 * Calls on_library(arg, name, path) for each entry of this machine's 64-bit glibc ABI, in the
 * cache's order, until it returns non-zero, which is then returned; 0 at the end. name and path end
 * within data. ALQ_EPROTO: not a cache in glibc's format of 2.2 or newer, alone or behind the older
 * one, or one whose tables lead outside of data.
 */
int alq_ldcache_each(const char *data, size_t len,
                     int (*on_library)(void *arg, const char *name, const char *path), void *arg,
                     struct alq_err *err);

#endif

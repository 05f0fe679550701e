/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking through a container's ld.so.conf before the host's ldconfig does: ldconfig opens whatever
 * an include names, and a FIFO there would hold it, a device node be opened. Writes nothing. One
 * thread; static buffers.
 */
#ifndef ALQ_HOOK_CONF_H
#define ALQ_HOOK_CONF_H

struct alq_rootfs;

/* Whether ldconfig may be let at the file `path` and at what it includes: all that is there are
 * files and directories, of sane number, size and depth, and no include has a pattern for
 * directories. 0, or -errno after a report that names the thing. */
int alq_conf_check(const struct alq_rootfs *rootfs, const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's ldconfig on a container's root. The container's own is never run: an image may bring
 * any program under that name. One thread.
 */
#ifndef ALQ_HOOK_LDCONFIG_H
#define ALQ_HOOK_LDCONFIG_H

struct alq_container;

/*
 * Makes a cache of what the text `conf`, in the form of ld.so.conf, names in the container, with
 * the links by SONAME that ldconfig makes on the way. The program runs with the container's root as
 * its own, in a mount namespace without the host's mounts, in which a tmpfs with conf, and for the
 * cache, covers /proc of the container (a link through /proc/1/root would lead out), without
 * environment and capabilities other than CAP_DAC_OVERRIDE, and not longer than 20 s. It is a copy
 * in memory: no process of the container can write to the host's file through /proc.
 *
 * Devices cannot be opened there (Linux 5.12), and a FIFO holds it for two seconds (child.h).
 *
 * A descriptor of the cache; -ENOENT: the host has no ldconfig; -ENOEXEC: it has, but one that
 * would need the container's loader; those two, and another -errno after a report: there is no
 * cache.
 */
int alq_ldconfig_run(const struct alq_container *container, const char *conf);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's ldconfig on a container's root. The container's own is never run: an image may bring
 * any program under that name. One thread.
 */
#ifndef ALQ_HOOK_LDCONFIG_H
#define ALQ_HOOK_LDCONFIG_H

struct alq_container;

/*
 * Makes /etc/ld.so.cache of the container with its configuration and the folders, which may name
 * any paths: the program runs with the container's root as its own, in a mount namespace in which
 * /proc of the container is covered (a link through /proc/1/root would lead out), without
 * environment and capabilities other than CAP_DAC_OVERRIDE, and not longer than 20 s. It is a copy
 * in memory: no process of the container can write to the host's file through /proc.
 *
 * 0; -ENOENT: the host has none; -ENOEXEC: it has, but one that would need the container's loader;
 * another -errno: it did not succeed, after a report.
 */
int alq_ldconfig_run(const struct alq_container *container, char **folders, int count);

#endif

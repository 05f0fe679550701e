/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which shares a process has: what of our run directory is mounted in its mount namespace, as the
 * kernel tells in /proc/<pid>/mountinfo. The device and the root of a mount are compared, which a
 * container cannot choose, and not the place where it is mounted, which it can. A PID that NVML
 * listed counts only for a process that was there before; nothing is looked up through the
 * container's root. Blocking file I/O; one thread at a time.
 */
#ifndef ALQ_DAEMON_MONITOR_MOUNTS_H
#define ALQ_DAEMON_MONITOR_MOUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "aliquot/share.h"
#include "base/err.h"

#define ALQ_SHARES_OF_PROCESS_MAX 32u

/* Shares of a process, in order of their ids. */
struct alq_share_set {
    uint32_t count;
    char (*ids)[ALQ_SHARE_ID_BYTES]; /* owned */
};

struct alq_mounts;

/* proc is "/proc". ALQ_ENOENT or ALQ_EIO: the run directory, or its mount, cannot be told. */
struct alq_mounts *alq_mounts_new(const char *proc, const char *run_dir, struct alq_err *err);
void alq_mounts_free(struct alq_mounts *mounts);

/*
 * A round of lookups begins: what was learnt of a mount namespace stands only while a process of it
 * that was seen in the last round still runs, for the kernel uses its number again.
 */
void alq_mounts_begin(struct alq_mounts *mounts);

/* The shares of a process that ran at at_ns (CLOCK_BOOTTIME); borrowed until the next round. NULL:
 * it has none, is gone, or its PID is another's by now. */
const struct alq_share_set *alq_mounts_find(struct alq_mounts *mounts, uint32_t pid, int64_t at_ns);

/* For tests: mountinfo files read since the beginning, and namespaces known now. */
unsigned long alq_mounts_reads(const struct alq_mounts *mounts);
unsigned alq_mounts_known(const struct alq_mounts *mounts);

/* ---- the parsers, pure ---- */

/* Where the files of shares are: "<major>:<minor>" of their file system and the path in it. */
struct alq_mount_place {
    char device[24];
    char root[4096]; /* of "<run dir>/shares" */
};

const struct alq_mount_place *alq_mounts_place(const struct alq_mounts *mounts);

/* From our own mountinfo: the mount with this id has the run directory at path. -1: it is not
 * there. */
int alq_mount_place_find(const char *mountinfo, unsigned long mount_id, const char *path,
                         struct alq_mount_place *place);

/* Adds the shares that are mounted; without memory, or past the maximum, the rest is left out. */
void alq_mount_shares(const char *mountinfo, const struct alq_mount_place *place,
                      struct alq_share_set *set);

/* Start of the process, in clock ticks since boot, from /proc/<pid>/stat. -1: that is none. */
int alq_stat_start(const char *stat, uint64_t *ticks);

#endif

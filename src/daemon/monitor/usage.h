/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a share from its usage file, which the processes of its containers write as they like.
 * It is read with pread into memory of our own, no link is followed, every number is checked, and
 * the time spent on one file is bounded: whatever a container does to its file costs the figures of
 * its own share. Which slots are alive is asked of the kernel (their locks), never taken from a
 * PID. Blocking; workers.
 */
#ifndef ALQ_DAEMON_MONITOR_USAGE_H
#define ALQ_DAEMON_MONITOR_USAGE_H

#include <stddef.h>
#include <stdint.h>

#include "aliquot/share.h"

/* Every family of entry points with the name that metrics and the admin socket give it. */
#define ALQ_FAMILY_NAMES(X)                                                                        \
    X(LINEAR, "linear")                                                                            \
    X(MANAGED, "managed")                                                                          \
    X(ARRAY, "array")                                                                              \
    X(PHYSICAL, "physical")                                                                        \
    X(POOL, "pool")                                                                                \
    X(GRAPH, "graph")                                                                              \
    X(CONTEXT, "context")                                                                          \
    X(MODULE, "module")

struct alq_usage {
    const char *flaw; /* static; why the figures are all zero, NULL: they are not */
    int is_slow; /* the flaw: reading cost more than its time; leave the file alone for a while */
    int is_oversize;         /* its files are longer than they are made: alq_usage_trim */
    uint32_t processes;      /* that hold a slot */
    uint64_t counted_bytes;  /* of the living */
    uint64_t overhead_bytes; /* likewise; counted + overhead is what the ledger holds */
    uint64_t spilled_bytes;  /* likewise, on the host in place of device memory */
    struct alq_counters counters;
    uint64_t refused[ALQ_FAMILY_COUNT];
};

/* Opens a file of a share, by its name in the share's directory; what is no regular file is not
 * waited for. -1: it cannot be had. */
int alq_usage_open(const char *run_dir, const char *share_id, const char *name, int flags);

/* dir: an open share directory. An unreadable file is a flaw. */
void alq_usage_read(int dir, struct alq_usage *usage);

/* Takes back what a container has put behind the end of its files, so that it cannot fill the file
 * system that all shares lie on. Bytes cut off. */
uint64_t alq_usage_trim(int dir);

/* Header and section, slots aside (ALQ_USAGE_HEAD_BYTES from the file's begin): NULL with the
 * counters and refused, or the flaw. Pure. */
#define ALQ_USAGE_HEAD_BYTES (ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, slots))
const char *alq_usage_judge(const void *head, struct alq_usage *usage);

/* Adds a living slot, with what it has in the host's section (NULL: there is none), or says what is
 * wrong with it. Pure. */
const char *alq_usage_add_slot(const struct alq_slot *slot, const struct alq_slot *host,
                               struct alq_usage *usage);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The share contract: what the daemon and the library say to each other through the two files of a
 * share directory (docs/share-abi.md has the offsets as a table; a test holds them).
 *
 *   control   ALQ_CONTROL_BYTES, 0644, written by the daemon alone, mapped read-only by the library
 *   usage     ALQ_USAGE_BYTES(n), 0666, preallocated by the daemon, written by the library; the
 * daemon preads it into its own memory, checks every number and never maps it
 *
 * Both lie on tmpfs, are updated in place and never replaced, truncated or re-created while the
 * share lives. All numbers are little endian and of fixed width. Fields marked [once] are written
 * before the magic and never again. Every other field says who writes it and how readers order
 * their loads.
 *
 * A reader accepts the major version it knows (ALQ_SHARE_VERSION). What is reserved today is zero;
 * a field put there later reads as zero from an older writer and does not change the version.
 */
#ifndef ALIQUOT_SHARE_H
#define ALIQUOT_SHARE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define ALQ_SHARE_VERSION 1u

/* In a container a share is at <ALQ_SHARE_ROOT>/<claim uid>-<result index>/{control,usage}. */
#define ALQ_SHARE_ROOT "/run/aliquot/shares"
#define ALQ_SHARE_ID_BYTES 64 /* "<claim uid>-<index>", NUL padded */
#define ALQ_UUID_BYTES 48     /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", NUL padded */

/* ---- control
 * ---------------------------------------------------------------------------------------------- */

#define ALQ_CONTROL_MAGIC 0x314c525443514c41ull /* "ALQCTRL1" */
#define ALQ_CONTROL_BYTES 4096u

enum alq_policy {
    ALQ_POLICY_HARD = 0,  /* the compute limit holds even when the GPU is idle */
    ALQ_POLICY_BURST = 1, /* the limit is a guarantee; idle time may be borrowed */
    ALQ_POLICY_NONE = 2,  /* compute is not limited */
};

#define ALQ_TIME_CORRECTION_ONE 1000000u

/* A loan of compute: percent of the GPU that a share may take in place of its limit, 1..100, and
 * until when (CLOCK_MONOTONIC). In one word, so that it is renewed and taken back by one store. */
#define ALQ_LOAN(pct, until_ns) ((uint64_t)(until_ns) / 1000 << 8 | (uint64_t)(pct))
#define ALQ_LOAN_PCT(loan) ((uint32_t)((loan)&0xff))
#define ALQ_LOAN_UNTIL_NS(loan) (((uint64_t)(loan) >> 8) * 1000)
#define ALQ_LOAN_NS_MAX 100000000u /* one that ends further ahead is not believed */

/* One set of limits. Written by the daemon into the copy that is not active, then made active. */
struct alq_control_values {
    uint64_t memory_limit_bytes;       /* counted + overhead never exceed this at an admission */
    uint64_t context_estimate_bytes;   /* reserved before a context is made */
    int64_t overhead_correction_bytes; /* NVML's figure of the share less the ledger's; added to
                                          what is held */
    uint32_t compute_limit_pct;        /* 0..100; 0: no guarantee, takes what it is lent */
    uint32_t policy;                   /* enum alq_policy */
    uint32_t priority;                 /* 0 is lent to before 1 */
    uint32_t time_correction_ppm;      /* charged = measured * this / 1e6; 0 is read as
                                          ALQ_TIME_CORRECTION_ONE */
    uint32_t log_level;                /* 0 unset, 1 error, 2 warn, 3 info, 4 debug */
    uint32_t memory_wait_s;      /* so long an allocation waits for other processes of the share to
                                    make room; 0: it is refused at once */
    uint64_t memory_spill_bytes; /* so much of what does not fit is served from the host's memory;
                                    0: nothing */
    uint64_t reserved[25];
};
static_assert(sizeof(struct alq_control_values) == 256, "control values");

struct alq_control {
    uint64_t magic;                    /* ALQ_CONTROL_MAGIC, stored last with release order */
    uint32_t version;                  /* [once] ALQ_SHARE_VERSION */
    uint32_t bytes;                    /* [once] ALQ_CONTROL_BYTES */
    char share_id[ALQ_SHARE_ID_BYTES]; /* [once] */
    char gpu_uuid[ALQ_UUID_BYTES];     /* [once] */
    uint8_t reserved0[128];
    /* Number of publications; values[sequence & 1] is in force. The daemon writes the other copy
     * (behind a release fence, so that none of it overtakes the last publication), stores sequence
     * + 1 with release order, and wakes `wake`. A reader loads it with acquire order, copies the
     * values, loads it again, and takes the copy when it has not moved. */
    uint32_t sequence;
    uint32_t wake; /* futex word: the daemon adds 1 and wakes all after a publication or another
                      loan; waiters map it read-only */
    /* Written by the daemon outside the publications, with relaxed order; each is complete in
     * itself and read at every decision. */
    uint64_t loan; /* ALQ_LOAN; policy Burst, and 0 percent under any policy. 0: nobody
                      has ever lent to this share */
    uint64_t corrected_until_ns; /* CLOCK_MONOTONIC: from then on time_correction_ppm is read as
                                    ALQ_TIME_CORRECTION_ONE; 0: it has no end */
    uint64_t time_credit_ns;     /* sum of what was given back, in GPU time, wrapping: charged too
                                    much as NVML has it; what was charged too little is negative */
    uint64_t contended_until_ns; /* CLOCK_MONOTONIC: until then others are on the GPU, and time is
                                    corrected by NVML */
    uint8_t reserved1[216];
    struct alq_control_values values[2];
    uint8_t reserved2[ALQ_CONTROL_BYTES - 1024];
};
static_assert(sizeof(struct alq_control) == ALQ_CONTROL_BYTES, "control");
static_assert(offsetof(struct alq_control, sequence) == 256, "control.sequence");
static_assert(offsetof(struct alq_control, loan) == 264, "control.loan");
static_assert(offsetof(struct alq_control, values) == 512, "control.values");

/* ---- usage
 * ------------------------------------------------------------------------------------------------
 */

#define ALQ_USAGE_MAGIC 0x3147415355514c41ull /* "ALQUSAG1" */
#define ALQ_SLOTS 1024u                       /* processes of one share at a time */
#define ALQ_SECTIONS_MAX 16u
#define ALQ_USAGE_HEADER_BYTES 4096u

/* The sections of a share directory's file. The ledger of the second one is that of memory on the
 * host which stands for device memory; of its other fields only the slots' figures are used. */
#define ALQ_SECTION_DEVICE 0u
#define ALQ_SECTION_HOST 1u

/*
 * A process slot is the same number in every section of a file. It is taken by an OFD write lock on
 * byte <slot> of `usage`, held by the mapping alone (the description is mapped, then closed), so
 * that it ends with the last address space that has it, in whatever way that ends. No PID is ever
 * consulted.
 */
struct alq_usage_header {
    uint64_t magic;         /* ALQ_USAGE_MAGIC, stored last with release order */
    uint32_t version;       /* [once] ALQ_SHARE_VERSION */
    uint32_t header_bytes;  /* [once] ALQ_USAGE_HEADER_BYTES */
    uint32_t section_bytes; /* [once] sizeof(struct alq_usage_section) */
    uint32_t section_count; /* [once] in a share directory 1, or 2 where the share may spill; up to
                               ALQ_SECTIONS_MAX from the environment */
    uint32_t slot_count;    /* [once] ALQ_SLOTS */
    uint32_t slot_bytes;    /* [once] sizeof(struct alq_slot) */
    uint32_t slot_high; /* no slot at or above it was ever taken; raised by CAS by who takes one,
                           never lowered */
    uint8_t reserved[ALQ_USAGE_HEADER_BYTES - 36];
};
static_assert(sizeof(struct alq_usage_header) == ALQ_USAGE_HEADER_BYTES, "usage header");

/* A pair of words that is always changed by one 16-byte compare-and-swap. */
struct alq_pair {
    uint64_t value;
    uint64_t tag;
} __attribute__((aligned(16)));

/*
 * One process on one device. The ledger (src/vgpu/memory/ledger.h) has the protocol:
 *   op    {delta as two's complement, seq}: what the owner is about to add to the section's total
 *   done  {bytes held, seq of the last op that was applied}
 */
struct alq_slot {
    struct alq_pair
        op; /* written by the slot's owner (or its reapers) before it swaps its tag in */
    struct alq_pair
        done; /* written by whoever settles the op; counted + overhead of this process */
    uint64_t counted_bytes;  /* written by the owner; shown, never used for admission */
    uint64_t overhead_bytes; /* likewise: contexts, modules, granule slack */
    uint64_t pid_ns_inode;   /* PID namespace in which pid means something; for display */
    uint32_t pid;            /* as the process sees itself; for display only */
    uint32_t contexts;       /* contexts charged */
    uint64_t started_ns;     /* CLOCK_BOOTTIME when the slot was taken */
    /* GPU time read back in the turn (CLOCK_MONOTONIC >> ALQ_BUSY_SHIFT) that busy_turn names, and
     * in the one before; written by the owner with relaxed order; for display */
    uint64_t busy_turn;
    uint64_t busy_ns;
    uint64_t busy_before_ns;
    /* Memory between processes, written by the owner with relaxed order: of what it holds, so much
     * may be open elsewhere, and so many pieces that were exported are open here. What a dead
     * owner had exported stays charged while a living process of the share has any open. */
    uint64_t exported_bytes;
    uint32_t imports;
    uint8_t reserved0[4];
    /* GPU time that threads which wait at the gate have reserved, written by the owner with relaxed
     * order; who takes the slot next gives back what a dead owner left. */
    uint64_t waiting_ns;
    uint8_t reserved1[8];
};
#define ALQ_BUSY_SHIFT 28u /* 268 ms */
static_assert(sizeof(struct alq_slot) == 128, "slot");

/* Compute gate of one share and device (src/vgpu/compute/gate.h). */
struct alq_gate {
    uint64_t
        tat_ns; /* virtual clock: theoretical arrival time, CLOCK_MONOTONIC; CAS by any process */
    uint64_t boot_id; /* first 8 bytes of the kernel's boot id for which tat_ns is meant; CAS by any
                         process */
    uint32_t rated_pct; /* the limit by which tat_ns was reckoned, 0 before the first; CAS by any
                           process */
    uint32_t reserved0;
    uint64_t time_credit_ns; /* of the control file's, what tat_ns holds; CAS by any process */
    uint64_t settled_ns; /* sum of what tat_ns was moved by after the fact, wrapping; added to by
                            any process */
    uint8_t reserved1[88];
};
static_assert(sizeof(struct alq_gate) == 128, "gate");

/*
 * What has been charged for which part of wall time: the union of GPU work over the processes of a
 * share. Slot (t >> ALQ_COVER_SHIFT) % ALQ_COVER_SLOTS holds (low 32 bits of t >> (ALQ_COVER_SHIFT
 * + 8)) << 32 | ns charged in that slot; CAS by any process. A slot of an older turn counts as
 * empty.
 */
#define ALQ_COVER_SHIFT 20u /* 1.05 ms */
#define ALQ_COVER_SLOTS 256u
struct alq_cover {
    uint64_t slots[ALQ_COVER_SLOTS];
};
static_assert(sizeof(struct alq_cover) == 2048, "cover");

/* The same sums in coarser slots, for what lies further back than those above reach; CAS by any
 * process. */
#define ALQ_COVER_FAR_SHIFT 25u /* 33.6 ms */
#define ALQ_COVER_FAR_SLOTS 128u
struct alq_cover_far {
    uint64_t slots[ALQ_COVER_FAR_SLOTS];
};
static_assert(sizeof(struct alq_cover_far) == 1024, "cover_far");

/* Sums since the file was made; added to with relaxed order by any process, read by the daemon. */
struct alq_counters {
    uint64_t refusals; /* allocations refused by us */
    uint64_t allocations;
    uint64_t launches;         /* kernels, graphs, fills and copies that passed the gate */
    uint64_t charged_ns;       /* GPU time charged */
    uint64_t throttled_ns;     /* time that threads waited at the gate */
    uint64_t peak_bytes;       /* highest total seen at an admission */
    uint64_t unknown_entries;  /* entry points handed out that the table does not know */
    uint64_t last_activity_ns; /* CLOCK_BOOTTIME, updated at most every 10 ms */
    uint64_t gate_calls;       /* driver calls that the gate made on its own account */
    uint64_t reserved[7];
};
static_assert(sizeof(struct alq_counters) == 128, "counters");

/* Which entry points of the driver something was refused to. New ones go to the end. */
enum alq_family {
    ALQ_FAMILY_LINEAR,   /* cuMemAlloc, cuMemAllocPitch */
    ALQ_FAMILY_MANAGED,  /* cuMemAllocManaged */
    ALQ_FAMILY_ARRAY,    /* cuArrayCreate, cuMipmappedArrayCreate */
    ALQ_FAMILY_PHYSICAL, /* cuMemCreate */
    ALQ_FAMILY_POOL,     /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
    ALQ_FAMILY_GRAPH,    /* launches of graphs that allocate */
    ALQ_FAMILY_CONTEXT,  /* cuCtxCreate, cuDevicePrimaryCtxRetain, cuCtxSetLimit */
    ALQ_FAMILY_MODULE,   /* cuModuleLoad, cuLibraryLoad */
    ALQ_FAMILY_COUNT
};
#define ALQ_FAMILIES_MAX 16u

struct alq_usage_section {
    char gpu_uuid[ALQ_UUID_BYTES]; /* [once] in a share directory; else written by the first
                                      process, see config.h */
    uint64_t memory_limit_bytes; /* environment only: the limit the first process set; 0 in a share
                                    directory */
    uint32_t compute_limit_pct;  /* likewise */
    uint32_t reserved0;
    /* {counted + overhead of all slots, slot << 48 | seq of the op that is in it but perhaps not
     * settled}; tag 0: none */
    struct alq_pair total;
    uint8_t reserved1[48];
    struct alq_gate gate;
    struct alq_counters counters;
    struct alq_cover cover;
    /* counters.refusals by enum alq_family; added to and read as the counters are */
    uint64_t refused[ALQ_FAMILIES_MAX];
    struct alq_cover_far cover_far;
    uint8_t reserved2[4096 - 2432 - 8 * ALQ_FAMILIES_MAX - 1024];
    struct alq_slot slots[ALQ_SLOTS];
};
static_assert(offsetof(struct alq_usage_section, total) == 64, "section.total");
static_assert(offsetof(struct alq_usage_section, gate) == 128, "section.gate");
static_assert(offsetof(struct alq_usage_section, counters) == 256, "section.counters");
static_assert(offsetof(struct alq_usage_section, cover) == 384, "section.cover");
static_assert(offsetof(struct alq_usage_section, refused) == 2432, "section.refused");
static_assert(offsetof(struct alq_usage_section, cover_far) == 2560, "section.cover_far");
static_assert(ALQ_FAMILY_COUNT <= ALQ_FAMILIES_MAX, "families");
static_assert(offsetof(struct alq_usage_section, slots) == 4096, "section.slots");
static_assert(sizeof(struct alq_usage_section) == 4096 + 128 * ALQ_SLOTS, "section");
static_assert(sizeof(struct alq_usage_section) <= 256 * 1024, "a section is at most 256 KiB");

#define ALQ_USAGE_BYTES(sections)                                                                  \
    (ALQ_USAGE_HEADER_BYTES + (sections) * sizeof(struct alq_usage_section))

#endif

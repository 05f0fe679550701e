/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's state: which shares are in force in this process, on which device, and how to reach
 * them. Found on the first call that needs it and never before; a process without a share has
 * ALQ_MODE_NONE and every hook is a jump.
 *
 * Threading: the mode goes from ALQ_MODE_UNKNOWN to its final value once, under a lock (and stays
 * unknown, each use being refused, while an error that may pass is in the way); what the
 * pointers below reach is immutable from then on, apart from `section`, which a fork child replaces
 * before its first use (it has one thread then). Nothing here calls the driver except alq_dev_of
 * and alq_dev_current.
 */
#ifndef ALQ_VGPU_CORE_H
#define ALQ_VGPU_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aliquot/cuda_abi.h"
#include "aliquot/share.h"
#include "vgpu/entry/entry.h"

#define ALQ_SHARES_MAX 16u  /* shares of one process */
#define ALQ_DEVICES_MAX 16u /* devices with a share in one process */

struct alq_file; /* a mapped usage file, see usage.h */

/* One share, as this process sees it. */
struct alq_share {
    char id[ALQ_SHARE_ID_BYTES]; /* order of charging; "env" without a share directory */
    char uuid[ALQ_UUID_BYTES];   /* of the GPU, as NVML writes it; "" until known, only without a
                                    share directory */
    const struct alq_control
        *control; /* mapped read-only; from the environment: a page of our own, never changed */
    struct alq_file *file;
    uint32_t section_index;
    /* NULL until the usage file is mapped (alq_core_attach). The slot of this process is
     * section->slots[*slot]. */
    struct alq_usage_section *section;
    struct alq_usage_section *host_section; /* NULL: it may not spill */
};

/* One device of this process that has at least one share. */
struct alq_dev {
    CUdevice ordinal; /* as the driver numbers it here */
    uint32_t index;   /* of this struct, below ALQ_DEVICES_MAX */
    char uuid[ALQ_UUID_BYTES];
    uint32_t share_count;
    struct alq_share *share[ALQ_SHARES_MAX]; /* by ascending id */
};

enum alq_mode {
    ALQ_MODE_UNKNOWN = 0, /* nobody looked yet */
    ALQ_MODE_NONE =
        1, /* no share, no environment: hooks do nothing; entry/pass.h's stubs compare with it */
    ALQ_MODE_LIMITED = 2, /* at least one share in force */
    ALQ_MODE_BROKEN =
        3, /* limits were asked for and cannot be had: cuInit and allocations are refused */
};

extern _Atomic uint32_t alq_core_mode_word;

uint32_t alq_core_find(void);

/* The mode; looks for shares on the first call. */
static inline uint32_t alq_core_mode(void)
{
    uint32_t mode = atomic_load_explicit(&alq_core_mode_word, memory_order_acquire);
    return __builtin_expect(mode != ALQ_MODE_UNKNOWN, 1) ? mode : alq_core_find();
}

/*
 * For those who are about to use the GPU (cuInit, and who asks for its address): where no share was
 * found, looks again, as one may have come since. True as alq_core_is_on.
 */
bool alq_core_look_again(void);

/* True where a hook has work to do (limits, or their refusal). */
static inline bool alq_core_is_on(void)
{
    return __builtin_expect(alq_core_mode() != ALQ_MODE_NONE, 0);
}

/*
 * Takes this process's slot in every usage file (again after a fork). 0, -EUSERS when all slots of
 * a file are taken, or an error that may pass (alq_usage_may_pass): then the next call tries again.
 * Both have been said in one line. Cheap when done: one load.
 */
int alq_core_attach(void);

/* For cuInit: CUDA_SUCCESS, or the refusal (its reason has been said). Takes the slots and empties
 * dead ones. */
CUresult alq_core_admit(void);

/*
 * The state of a device: NULL where it has no share (its use is not limited), or the driver is not
 * initialised. The first call asks the driver for its devices and their UUIDs. An error is the
 * driver's answer to such a question of ours: what would be limited must not go on then.
 */
CUresult alq_dev_find(CUdevice ordinal, struct alq_dev **dev);

/* The same of the calling thread's current context. Costs no driver call while the process has one
 * device, else one cuCtxGetDevice. */
CUresult alq_dev_find_current(struct alq_dev **dev);

/* True once it is known that the driver shows one device. */
bool alq_dev_is_only(void);

/* For those who only tell: NULL on an error too. */
struct alq_dev *alq_dev_of(CUdevice ordinal);
struct alq_dev *alq_dev_current(void);

/* Devices with a share, once alq_dev_of has found them; NULL past the end. */
struct alq_dev *alq_dev_at(uint32_t index);

/* ---- control: what the daemon says ----------------------------------------------------------- */

/*
 * The values in force, to load single fields from at once (each is one naturally aligned word, so a
 * load sees an old or a new value, never a mixture). Do not keep the pointer: the second
 * publication from now writes over it.
 */
static inline const struct alq_control_values *alq_control_now(const struct alq_share *share)
{
    uint32_t sequence = __atomic_load_n(&share->control->sequence, __ATOMIC_ACQUIRE);
    return &share->control->values[sequence & 1];
}

/* A consistent copy of all of them. Bounded: after 1,000 moves of the sequence it takes what it
 * has. */
void alq_control_read(const struct alq_share *share, struct alq_control_values *out);

/* Sum of the memory limits of a device's shares; UINT64_MAX where memory is not limited. 0 admits
 * nothing. */
uint64_t alq_dev_limit_bytes(const struct alq_dev *dev);
uint64_t alq_shares_limit_bytes(struct alq_share *const *shares, uint32_t count);

/* What is reserved for a context on the device. */
uint64_t alq_dev_context_bytes(const struct alq_dev *dev);

/* True where limits come from the environment. */
bool alq_core_is_env(void);

/*
 * The shares of the GPU that NVML calls by this UUID; out holds ALQ_SHARES_MAX. env_index: NVML's
 * order, asked only where limits come from the environment. Does not need libcuda.
 */
uint32_t alq_shares_of_uuid(const char *uuid, uint32_t env_index, struct alq_share **out);

/* ---- the driver ------------------------------------------------------------------------------ */

/* Indices of hooked and needed entry points: ALQ_CU_<name>, from entry/cuda.def, in entry/entry.h.
 */
extern _Atomic uintptr_t alq_real_table[ALQ_ENTRY_COUNT]; /* 0: lacked, or not looked for yet */
void *alq_real_slow(uint32_t index);

/* NULL when the driver lacks it or is not loaded. */
static inline void *alq_real_cu(uint32_t index)
{
    uintptr_t address = atomic_load_explicit(&alq_real_table[index], memory_order_relaxed);
    return __builtin_expect(address != 0, 1) ? (void *)address : alq_real_slow(index);
}

/* Calls the driver's own function: ALQ_CALL(cuEventQuery, event). The caller knows that the driver
 * has it, or checks alq_has. */
#define ALQ_CALL(name, ...) (((__typeof__(name) *)alq_real_cu(ALQ_CU_##name))(__VA_ARGS__))
/* What an entry point answers that the driver lacks: CUDA_ERROR_NOT_SUPPORTED, or NOT_INITIALIZED
 * without a driver. */
CUresult alq_absent(uint32_t index);
#define ALQ_HAS(name) (alq_real_cu(ALQ_CU_##name) != NULL)

/* ---- fork ------------------------------------------------------------------------------------ */

/*
 * Number of the process image's generation: differs in a fork child from its parent. Modules that
 * keep state of the driver (events, estimates) compare it and start anew; the page behind it is
 * wiped by fork, so it costs one load.
 */
uint32_t alq_fork_generation(void);

/* Drops what a fork child has from its parent, once; every entry that charges or reads slots calls
 * it first. */
void alq_core_renew(void);

#endif

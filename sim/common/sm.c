/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table and arithmetic of sm.h. Figures: CUDA C++ Programming Guide, "technical specifications per
 * compute capability". Registers are handed out by the warp in units of 256, warps in fours (one
 * for each quarter of an SM), shared memory in units of 128 bytes.
 */
#include "common/sm.h"

#define WARP 32u
#define KIB 1024u
#define REGISTER_UNIT 256u
#define WARP_UNIT 4u
#define SHARED_UNIT 128u
#define BLOCK_THREADS 1024u

static const struct {
    uint32_t cc; /* first that has these: major * 10 + minor */
    struct sim_sm sm;
} table[] = {
    {120, {1536, 24, 65536, 100 * KIB, 99 * KIB, KIB, 8}},
    {90, {2048, 32, 65536, 228 * KIB, 227 * KIB, KIB, 8}},
    {89, {1536, 24, 65536, 100 * KIB, 99 * KIB, KIB, 0}},
    {87, {1536, 16, 65536, 164 * KIB, 163 * KIB, KIB, 0}},
    {86, {1536, 16, 65536, 100 * KIB, 99 * KIB, KIB, 0}},
    {80, {2048, 32, 65536, 164 * KIB, 163 * KIB, KIB, 0}},
    {75, {1024, 16, 65536, 64 * KIB, 64 * KIB, 0, 0}},
    {70, {2048, 32, 65536, 96 * KIB, 96 * KIB, 0, 0}},
    {0, {2048, 32, 65536, 96 * KIB, 48 * KIB, 0, 0}},
};

struct sim_sm sim_sm_of(uint32_t cc_major, uint32_t cc_minor)
{
    uint32_t cc = cc_major * 10 + cc_minor;
    unsigned int i = 0;

    while (table[i].cc > cc)
        i++;
    return table[i].sm;
}

static uint64_t up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Warps whose registers an SM holds at once. */
static uint32_t warps_by_registers(const struct sim_sm *sm, uint32_t registers)
{
    uint32_t each = (uint32_t)up((uint64_t)registers * WARP, REGISTER_UNIT);

    return each ? sm->registers / each / WARP_UNIT * WARP_UNIT : UINT32_MAX;
}

uint32_t sim_threads_by_registers(const struct sim_sm *sm, uint32_t registers)
{
    uint32_t warps = warps_by_registers(sm, registers);

    return warps < BLOCK_THREADS / WARP ? warps * WARP : BLOCK_THREADS;
}

uint32_t sim_blocks_per_sm(const struct sim_sm *sm, const struct sim_kernel_need *need)
{
    uint32_t warps = (need->threads + WARP - 1) / WARP, blocks;
    uint64_t shared = up(need->shared_bytes + sm->shared_reserved_bytes, SHARED_UNIT), by_shared;

    if (!need->threads || need->threads > BLOCK_THREADS ||
        need->shared_bytes > sm->shared_optin_bytes)
        return 0;
    blocks = sm->threads / WARP / warps;
    if (blocks > sm->blocks)
        blocks = sm->blocks;
    if (warps_by_registers(sm, need->registers) / warps < blocks)
        blocks = warps_by_registers(sm, need->registers) / warps;
    by_shared = shared ? sm->shared_bytes / shared : UINT32_MAX;
    return by_shared < blocks ? (uint32_t)by_shared : blocks;
}

uint64_t sim_shared_left(const struct sim_sm *sm, uint32_t blocks, uint64_t static_bytes)
{
    uint64_t each = blocks ? sm->shared_bytes / blocks / SHARED_UNIT * SHARED_UNIT : 0;
    uint64_t taken = static_bytes + sm->shared_reserved_bytes,
             left = each > taken ? each - taken : 0;
    uint64_t most =
        sm->shared_optin_bytes > static_bytes ? sm->shared_optin_bytes - static_bytes : 0;

    return left < most ? left : most;
}

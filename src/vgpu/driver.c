/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/driver.h"

#include <stddef.h>

#include "vgpu/atomics.h"
#include "vgpu/elf.h"
#include "vgpu/process.h"
#include "vgpu/text.h"

enum { LIB_CUDA, LIB_NVML, LIB_COUNT };

/* Open addressing over the addresses of hooked rows; 0 is free, else row + 1. */
#define REVERSE_SIZE 1024u
static_assert(ALQ_ENTRY_COUNT * 2 < REVERSE_SIZE, "room in the reverse table");

struct library {
    _Atomic uintptr_t base; /* 0: not found yet; written last, with release order */
    _Atomic uintptr_t end;
};

static struct library libraries[LIB_COUNT];
_Atomic uintptr_t alq_real_table[ALQ_ENTRY_COUNT];
static _Atomic uint16_t reverse[REVERSE_SIZE];

static int library_of(uint32_t index)
{
    return index < ALQ_CU_END ? LIB_CUDA : LIB_NVML;
}

static uint32_t reverse_start(uintptr_t address)
{
    return (uint32_t)((address >> 4) * 0x9e3779b1u >> 20) & (REVERSE_SIZE - 1);
}

static void reverse_put(uintptr_t address, uint32_t index)
{
    uint32_t at = reverse_start(address);
    for (uint32_t i = 0; i < REVERSE_SIZE; i++, at = (at + 1) & (REVERSE_SIZE - 1)) {
        uint16_t have = atomic_load_explicit(&reverse[at], memory_order_relaxed);
        if (have == index + 1)
            return;
        if (have == 0) {
            atomic_store_explicit(&reverse[at], (uint16_t)(index + 1), memory_order_release);
            return;
        }
    }
}

int alq_real_entry_at(const void *address)
{
    uint32_t at = reverse_start((uintptr_t)address);
    for (uint32_t i = 0; i < REVERSE_SIZE; i++, at = (at + 1) & (REVERSE_SIZE - 1)) {
        uint16_t have = atomic_load_explicit(&reverse[at], memory_order_acquire);
        if (have == 0)
            return -1;
        if (atomic_load_explicit(&alq_real_table[have - 1], memory_order_relaxed) ==
            (uintptr_t)address)
            return have - 1;
    }
    return -1;
}

bool alq_real_holds(const void *address)
{
    for (int lib = 0; lib < LIB_COUNT; lib++) {
        uintptr_t base = atomic_load_explicit(&libraries[lib].base, memory_order_acquire);
        if (base && (uintptr_t)address >= base &&
            (uintptr_t)address < atomic_load_explicit(&libraries[lib].end, memory_order_relaxed))
            return true;
    }
    return false;
}

int alq_real_entry_named(const char *name)
{
    for (uint32_t i = 0; i < ALQ_ENTRY_COUNT; i++)
        if (alq_entry_wrapper(i) && alq_text_is(alq_entry_name(i), name))
            return (int)i;
    return -1;
}

extern const char ours_begin[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char ours_end[] __asm__("_end") __attribute__((visibility("hidden")));

bool alq_is_ours(const void *address)
{
    return (uintptr_t)address >= (uintptr_t)ours_begin && (uintptr_t)address < (uintptr_t)ours_end;
}

static bool is_library(const struct alq_elf *elf, void *data)
{
    return alq_text_is(elf->soname, data) && !alq_is_ours((const void *)elf->begin);
}

/* Caller holds the lock. */
static void find(int lib)
{
    struct alq_elf elf;
    const char *soname = lib == LIB_CUDA ? "libcuda.so.1" : "libnvidia-ml.so.1";
    uint32_t begin = lib == LIB_CUDA ? 0 : ALQ_NVML_BEGIN,
             end = lib == LIB_CUDA ? ALQ_CU_END : ALQ_ENTRY_COUNT;

    if (!alq_elf_find(is_library, (void *)(uintptr_t)soname, &elf) ||
        atomic_load_explicit(&libraries[lib].base, memory_order_relaxed) == elf.begin)
        return;
    for (uint32_t i = begin; i < end; i++) {
        uintptr_t address = (uintptr_t)alq_elf_symbol(&elf, alq_entry_name(i));
        atomic_store_explicit(&alq_real_table[i], address, memory_order_relaxed);
        if (address && alq_entry_wrapper(i))
            reverse_put(address, i);
    }
    atomic_store_explicit(&libraries[lib].end, elf.end, memory_order_relaxed);
    atomic_store_explicit(&libraries[lib].base, elf.begin, memory_order_release);
}

static bool is_found(int lib)
{
    if (__builtin_expect(atomic_load_explicit(&libraries[lib].base, memory_order_acquire) != 0, 1))
        return true;
    alq_lock_take(&alq_process_page()->lock_driver);
    if (!atomic_load_explicit(&libraries[lib].base, memory_order_relaxed))
        find(lib);
    alq_lock_drop(&alq_process_page()->lock_driver);
    return atomic_load_explicit(&libraries[lib].base, memory_order_acquire) != 0;
}

void *alq_real_slow(uint32_t index)
{
    return is_found(library_of(index))
               ? (void *)atomic_load_explicit(&alq_real_table[index], memory_order_relaxed)
               : NULL;
}

bool alq_real_is_loaded(uint32_t index)
{
    return is_found(library_of(index));
}

void alq_real_rescan(void)
{
    alq_lock_take(&alq_process_page()->lock_driver);
    for (int lib = 0; lib < LIB_COUNT; lib++)
        find(lib);
    alq_lock_drop(&alq_process_page()->lock_driver);
}

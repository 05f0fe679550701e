/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real libcuda and libnvidia-ml of this process: the ones that the program loads, found among
 * the loader's objects by their SONAME. The library never loads libcuda itself. Addresses are read
 * from the object's own symbol table, so no other preload stands between. Any thread.
 */
#ifndef ALQ_VGPU_DRIVER_H
#define ALQ_VGPU_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/core.h"
#include "vgpu/entry/entry.h"

/* The driver's own function of a row (enum alq_entry), or NULL: it lacks it, or is not loaded. */
static inline void *alq_real(uint32_t index)
{
    return alq_real_cu(index);
}

/* True once the library that the row belongs to is loaded. */
bool alq_real_is_loaded(uint32_t index);

/* The hooked row whose driver function this is, or -1. */
int alq_real_entry_at(const void *address);

/* True where the address lies in the driver's libraries, as far as they have been found. */
bool alq_real_holds(const void *address);

/* The hooked row of this name, or -1. */
int alq_real_entry_named(const char *name);

/* Looks again for the libraries: an entry point came out of an object that is not known yet. */
void alq_real_rescan(void);

/* True where the address lies in this library. */
bool alq_is_ours(const void *address);

#define ALQ_CALL_NVML(name, ...) (((__typeof__(name) *)alq_real(ALQ_NVML_##name))(__VA_ARGS__))

#endif

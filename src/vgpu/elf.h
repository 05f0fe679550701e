/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of this process as the loader keeps them, and their symbol tables, read in place. It
 * is how the library finds the driver that the program itself loaded, the next dlsym, and the vDSO,
 * without asking a libc that may not have the function it would need. Sees the namespace the
 * library is in. Threads: dl_iterate_phdr holds the loader's lock.
 */
#ifndef ALQ_VGPU_ELF_H
#define ALQ_VGPU_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One loaded object. Good while the object stays loaded. */
struct alq_elf {
    uintptr_t base;     /* load address */
    uintptr_t begin;    /* first mapped byte */
    uintptr_t end;      /* past the last mapped byte */
    const char *soname; /* "" without one */
    const char *name;   /* as the loader names the file; "" for the program */
    const Elf64_Sym *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
};

/* Which object to take; called with the loader's lock held, must not load, look up by dlsym or
 * allocate. */
typedef bool alq_elf_test(const struct alq_elf *elf, void *data);

/* The first object in load order that passes. False when none does (or the libc has no
 * dl_iterate_phdr). */
bool alq_elf_find(alq_elf_test *test, void *data, struct alq_elf *out);
bool alq_elf_find_vdso(struct alq_elf *out);

/* Address of a function that the object exports under this name, in any version (the default one
 * where there are several), or NULL. */
void *alq_elf_symbol(const struct alq_elf *elf, const char *name);

#endif

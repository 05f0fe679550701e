/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/elf.h"

#include <link.h>

#include "vgpu/text.h"

/* Weak: a process whose libc lacks it gets no hooks, and starts. */
extern int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
    __attribute__((weak));

struct search {
    alq_elf_test *test;
    void *data;
    struct alq_elf found;
};

/*
 * glibc adds the load address to the pointers of most objects' dynamic sections; musl and the vDSO
 * leave them. Either way an address below the object is an offset.
 */
static const void *in_object(const struct alq_elf *elf, Elf64_Addr value)
{
    uintptr_t address = (uintptr_t)value;
    return (const void *)(address < elf->begin ? address + elf->base : address);
}

static bool read_object(const struct dl_phdr_info *info, struct alq_elf *out)
{
    const Elf64_Dyn *dynamic = NULL;
    Elf64_Xword soname = 0;
    bool has_soname = false;

    *out = (struct alq_elf){
        .base = info->dlpi_addr, .begin = UINTPTR_MAX, .soname = "", .name = info->dlpi_name};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_DYNAMIC) {
            dynamic = (const Elf64_Dyn *)(out->base + ph->p_vaddr);
        } else if (ph->p_type == PT_LOAD) {
            uintptr_t begin = out->base + ph->p_vaddr, end = begin + ph->p_memsz;
            if (begin < out->begin)
                out->begin = begin;
            if (end > out->end)
                out->end = end;
        }
    }
    if (!dynamic || out->begin == UINTPTR_MAX)
        return false;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            out->symbols = in_object(out, dynamic->d_un.d_ptr);
            break;
        case DT_STRTAB:
            out->strings = in_object(out, dynamic->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            out->gnu_hash = in_object(out, dynamic->d_un.d_ptr);
            break;
        case DT_HASH:
            out->sysv_hash = in_object(out, dynamic->d_un.d_ptr);
            break;
        case DT_SONAME:
            soname = dynamic->d_un.d_val;
            has_soname = true;
            break;
        default:
            break;
        }
    }
    if (!out->symbols || !out->strings)
        return false;
    if (has_soname)
        out->soname = out->strings + soname;
    if (!out->name)
        out->name = "";
    return true;
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    (void)size;
    return read_object(info, &search->found) && search->test(&search->found, search->data);
}

bool alq_elf_find(alq_elf_test *test, void *data, struct alq_elf *out)
{
    struct search search = {.test = test, .data = data};
    if (!dl_iterate_phdr || dl_iterate_phdr(visit, &search) == 0)
        return false;
    *out = search.found;
    return true;
}

static bool is_vdso(const struct alq_elf *elf, void *data)
{
    (void)data;
    return alq_text_starts(elf->soname, "linux-vdso.so");
}

bool alq_elf_find_vdso(struct alq_elf *out)
{
    return alq_elf_find(is_vdso, NULL, out);
}

static void *if_it_is(const struct alq_elf *elf, uint32_t index, const char *name)
{
    const Elf64_Sym *symbol = &elf->symbols[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0 || type != STT_FUNC ||
        (bind != STB_GLOBAL && bind != STB_WEAK) ||
        !alq_text_is(elf->strings + symbol->st_name, name))
        return NULL;
    return (void *)(elf->base + symbol->st_value);
}

static void *by_gnu_hash(const struct alq_elf *elf, const char *name)
{
    const uint32_t *table = elf->gnu_hash;
    uint32_t bucket_count = table[0], first = table[1], bloom_words = table[2];
    const uint32_t *buckets = table + 4 + 2 * (size_t)bloom_words;
    const uint32_t *chain = buckets + bucket_count;
    uint32_t hash = 5381;

    if (!bucket_count)
        return NULL;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    for (uint32_t i = buckets[hash % bucket_count]; i >= first && i != 0; i++) {
        uint32_t entry = chain[i - first];
        if ((entry | 1) == (hash | 1)) {
            void *address = if_it_is(elf, i, name);
            if (address)
                return address;
        }
        if (entry & 1)
            break;
    }
    return NULL;
}

static void *by_sysv_hash(const struct alq_elf *elf, const char *name)
{
    const uint32_t *table = elf->sysv_hash;
    uint32_t bucket_count = table[0], hash = 0;

    if (!bucket_count)
        return NULL;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        uint32_t high = hash & 0xf0000000u;
        hash = (hash ^ high >> 24) & ~high;
    }
    for (uint32_t i = table[2 + hash % bucket_count]; i != 0; i = table[2 + bucket_count + i]) {
        void *address = if_it_is(elf, i, name);
        if (address)
            return address;
    }
    return NULL;
}

void *alq_elf_symbol(const struct alq_elf *elf, const char *name)
{
    if (elf->gnu_hash)
        return by_gnu_hash(elf, name);
    return elf->sysv_hash ? by_sysv_hash(elf, name) : NULL;
}

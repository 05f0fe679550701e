/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object opened with RTLD_DEEPBIND looks into itself and what it needs before the preloaded
 * library: linked with libcuda it would call the driver past us, and its dlsym would be libc's. Its
 * dynamic section tells. RTLD_DEEPBIND is kept for an object that names neither a driver function
 * nor a door and needs nothing that is not loaded already; what has no path (found by a search that
 * only the loader knows) or cannot be read counts as one that matters.
 */
#include "vgpu/doors/doors.h"

#include <stddef.h>

#include "vgpu/elf.h"
#include "vgpu/sys.h"
#include "vgpu/text.h"

struct file {
    const unsigned char *at;
    uint64_t bytes;
};

/* Offset in the file of a virtual address; UINT64_MAX when no segment holds it. */
static uint64_t offset_of(const struct file *file, const Elf64_Ehdr *header, Elf64_Addr address)
{
    const Elf64_Phdr *ph = (const Elf64_Phdr *)(const void *)(file->at + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (ph[i].p_type == PT_LOAD && address >= ph[i].p_vaddr &&
            address - ph[i].p_vaddr < ph[i].p_filesz)
            return address - ph[i].p_vaddr + ph[i].p_offset;
    return UINT64_MAX;
}

static bool is_soname(const struct alq_elf *elf, void *data)
{
    return alq_text_is(elf->soname, data);
}

static bool is_driver_name(const char *s)
{
    if (s[0] == 'c' && s[1] == 'u')
        return s[2] >= 'A' && s[2] <= 'Z';
    return alq_text_starts(s, "nvml") && s[4] >= 'A' && s[4] <= 'Z';
}

static bool is_door(const char *s)
{
    return alq_text_is(s, "dlsym") || alq_text_is(s, "dlvsym") || alq_text_is(s, "dlopen") ||
           alq_text_is(s, "dlmopen");
}

static bool matters(const struct file *file)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)file->at;
    const Elf64_Dyn *dynamic = NULL;
    uint64_t dynamic_bytes = 0, strings = UINT64_MAX, strings_bytes = 0;

    if (file->bytes < sizeof(*header) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phoff % 8 ||
        header->e_phoff > file->bytes ||
        (file->bytes - header->e_phoff) / sizeof(Elf64_Phdr) < header->e_phnum)
        return true;
    const Elf64_Phdr *ph = (const Elf64_Phdr *)(const void *)(file->at + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (ph[i].p_type == PT_DYNAMIC && ph[i].p_offset % 8 == 0 &&
            ph[i].p_offset <= file->bytes && ph[i].p_filesz <= file->bytes - ph[i].p_offset) {
            dynamic = (const Elf64_Dyn *)(const void *)(file->at + ph[i].p_offset);
            dynamic_bytes = ph[i].p_filesz;
        }
    if (!dynamic)
        return true;
    size_t count = dynamic_bytes / sizeof(*dynamic);
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            strings = offset_of(file, header, dynamic[i].d_un.d_ptr);
        else if (dynamic[i].d_tag == DT_STRSZ)
            strings_bytes = dynamic[i].d_un.d_val;
    }
    if (strings >= file->bytes || strings_bytes == 0 || strings_bytes > file->bytes - strings)
        return true;
    const char *table = (const char *)file->at + strings;
    if (table[strings_bytes - 1] != '\0')
        return true;
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        struct alq_elf loaded;
        if (dynamic[i].d_tag != DT_NEEDED)
            continue;
        if (dynamic[i].d_un.d_val >= strings_bytes)
            return true;
        const char *needed = table + dynamic[i].d_un.d_val;
        if (alq_text_starts(needed, "libcuda.so") || alq_text_starts(needed, "libnvidia-ml.so") ||
            !alq_elf_find(is_soname, (void *)(uintptr_t)needed, &loaded))
            return true;
    }
    for (uint64_t at = 0; at < strings_bytes; at += alq_text_len(table + at) + 1)
        if (is_driver_name(table + at) || is_door(table + at))
            return true;
    return false;
}

bool alq_deepbind_matters(const char *file_name)
{
    bool has_path = false, answer = true;
    for (const char *c = file_name; *c; c++)
        has_path |= *c == '/';
    if (!has_path)
        return true;
    int fd = alq_sys_open(file_name, 0, 0);
    if (fd < 0)
        return true;
    int64_t bytes = alq_sys_size(fd);
    void *at = bytes > 0 ? alq_sys_mmap((size_t)bytes, ALQ_PROT_READ, ALQ_MAP_PRIVATE, fd) : NULL;
    if (at) {
        struct file file = {at, (uint64_t)bytes};
        answer = matters(&file);
        alq_sys_munmap(at, (size_t)bytes);
    }
    alq_sys_close(fd);
    return answer;
}

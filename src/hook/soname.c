/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of ELF program headers and dynamic sections, see soname.h. */
#include "hook/soname.h"

#include <linux/elf.h>

#include "hook/sys.h"
#include "vgpu/text.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#error "which ELF machine is this?"
#endif

#define SEGMENTS_MAX 64
#define DYNAMIC_MAX 512

/* pread answers EINVAL there. */
static bool ends_beyond_files(uint64_t offset, size_t bytes)
{
    return offset > INT64_MAX - bytes;
}

static int read_at(int fd, uint64_t offset, void *data, size_t bytes)
{
    if (ends_beyond_files(offset, bytes))
        return -ENOEXEC;
    long n = alq_sys_pread(fd, data, bytes, offset);
    return n < 0 ? (int)n : (size_t)n == bytes ? 0 : -ENOEXEC;
}

static bool is_usable(const Elf64_Ehdr *h)
{
    return h->e_ident[EI_MAG0] == ELFMAG0 && h->e_ident[EI_MAG1] == ELFMAG1 &&
           h->e_ident[EI_MAG2] == ELFMAG2 && h->e_ident[EI_MAG3] == ELFMAG3 &&
           h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_ident[EI_DATA] == ELFDATA2LSB &&
           h->e_machine == MACHINE && (h->e_type == ET_DYN || h->e_type == ET_EXEC) &&
           h->e_phentsize == sizeof(Elf64_Phdr) && h->e_phnum && h->e_phnum <= SEGMENTS_MAX;
}

/* File offset of a virtual address, by the loadable segments. */
static bool offset_of(const Elf64_Phdr *segments, size_t count, uint64_t address, uint64_t *offset)
{
    for (size_t i = 0; i < count; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz &&
            s->p_offset <= INT64_MAX) {
            *offset = s->p_offset + (address - s->p_vaddr);
            return true;
        }
    }
    return false;
}

/* A name that cannot lead out of the directory it is put in. */
static bool is_plain(const char *name)
{
    for (const char *c = name; *c; c++) {
        if (*c == '/')
            return false;
    }
    return name[0] && !alq_text_is(name, ".") && !alq_text_is(name, "..");
}

static int read_soname(int fd, uint64_t offset, char soname[ALQ_SONAME_BYTES])
{
    long n = ends_beyond_files(offset, ALQ_SONAME_BYTES)
                 ? -ENOEXEC
                 : alq_sys_pread(fd, soname, ALQ_SONAME_BYTES, offset);
    bool is_whole = false;
    for (long i = 0; i < n && !is_whole; i++)
        is_whole = !soname[i];
    if (is_whole && is_plain(soname))
        return 0;
    soname[0] = '\0';
    return n < 0 ? (int)n : -ENOEXEC;
}

static int read_dynamic(int fd, const Elf64_Phdr *segments, size_t count, const Elf64_Phdr *where,
                        char soname[ALQ_SONAME_BYTES])
{
    Elf64_Dyn dynamic[DYNAMIC_MAX];
    size_t entries = where->p_filesz / sizeof(Elf64_Dyn);
    if (entries > DYNAMIC_MAX)
        entries = DYNAMIC_MAX;
    int rc = read_at(fd, where->p_offset, dynamic, entries * sizeof(Elf64_Dyn));
    if (rc)
        return rc;
    uint64_t strings = 0, name = 0;
    bool has_strings = false, has_name = false;
    for (size_t i = 0; i < entries && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            has_strings = offset_of(segments, count, dynamic[i].d_un.d_ptr, &strings);
        if (dynamic[i].d_tag == DT_SONAME) {
            has_name = true;
            name = dynamic[i].d_un.d_val;
        }
    }
    if (!has_name)
        return 0;
    return has_strings && name <= UINT32_MAX ? read_soname(fd, strings + name, soname) : -ENOEXEC;
}

int alq_elf_facts(int fd, struct alq_elf_facts *facts)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[SEGMENTS_MAX];
    facts->soname[0] = '\0';
    facts->has_interpreter = false;
    int rc = read_at(fd, 0, &header, sizeof(header));
    if (rc || !is_usable(&header))
        return rc ? rc : -ENOEXEC;
    size_t count = header.e_phnum;
    rc = read_at(fd, header.e_phoff, segments, count * sizeof(Elf64_Phdr));
    if (rc)
        return rc;
    const Elf64_Phdr *dynamic = NULL;
    for (size_t i = 0; i < count; i++) {
        if (segments[i].p_type == PT_INTERP)
            facts->has_interpreter = true;
        if (segments[i].p_type == PT_DYNAMIC && !dynamic)
            dynamic = &segments[i];
    }
    return dynamic ? read_dynamic(fd, segments, count, dynamic, facts->soname) : 0;
}

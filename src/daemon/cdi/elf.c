/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of ELF dynamic sections, see elf.h. Every offset is checked by pread itself: what lies
 * outside the file cannot be read, and what is read goes into buffers of fixed size. */
#include "daemon/cdi/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE EM_AARCH64
#else
#error "which ELF machine is this?"
#endif

#define SEGMENTS_MAX 64
#define DYNAMIC_MAX 512

static int read_at(int fd, const char *path, uint64_t offset, void *data, size_t len,
                   struct alq_err *err)
{
    if (offset > INT64_MAX - len)
        return alq_err_set(err, ALQ_EPROTO,
                           "%s: not a usable shared object: an offset is outside the file", path);
    ssize_t n = pread(fd, data, len, (off_t)offset);
    if (n < 0)
        return alq_err_errno(err, errno, "read %s", path);
    if ((size_t)n != len)
        return alq_err_set(err, ALQ_EPROTO, "%s: not a usable shared object: it is cut short",
                           path);
    return 0;
}

/* File offset of a virtual address, by the loadable segments. */
static int offset_of(const Elf64_Phdr *segments, size_t count, uint64_t address, uint64_t *offset)
{
    for (size_t i = 0; i < count; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz) {
            *offset = s->p_offset + (address - s->p_vaddr);
            return 1;
        }
    }
    return 0;
}

static int read_name(int fd, const char *path, uint64_t offset, char name[ALQ_ELF_NAME_BYTES],
                     struct alq_err *err)
{
    if (offset > INT64_MAX)
        return alq_err_set(err, ALQ_EPROTO,
                           "%s: not a usable shared object: a name is outside the file", path);
    ssize_t n = pread(fd, name, ALQ_ELF_NAME_BYTES, (off_t)offset);
    if (n < 0)
        return alq_err_errno(err, errno, "read %s", path);
    if (!memchr(name, '\0', (size_t)n)) {
        name[0] = '\0';
        return alq_err_set(err, ALQ_EPROTO, "%s: not a usable shared object: a name does not end",
                           path);
    }
    return 0;
}

/* Header and segments of an object of one of the two types (ET_DYN twice: of one). */
static int read_segments(int fd, const char *path, unsigned type, unsigned other_type,
                         Elf64_Phdr segments[SEGMENTS_MAX], size_t *count, struct alq_err *err)
{
    Elf64_Ehdr header;
    int rc = read_at(fd, path, 0, &header, sizeof(header), err);
    if (rc)
        return rc;
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) ||
        (header.e_type != type && header.e_type != other_type))
        return alq_err_set(err, ALQ_EPROTO, "%s: not a %s", path,
                           type == ET_DYN ? "shared object" : "program");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != ELF_MACHINE)
        return alq_err_set(err, ALQ_ENOTSUP, "%s: made for another processor (ELF machine %u, %s)",
                           path, header.e_machine,
                           header.e_ident[EI_CLASS] == ELFCLASS64 ? "64-bit" : "32-bit");
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
        header.e_phnum > SEGMENTS_MAX)
        return alq_err_set(err, ALQ_EPROTO, "%s: not usable: %u segments", path, header.e_phnum);
    *count = header.e_phnum;
    return read_at(fd, path, header.e_phoff, segments, *count * sizeof(Elf64_Phdr), err);
}

int alq_elf_check_program(int fd, const char *path, struct alq_err *err)
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    size_t count;
    int rc = read_segments(fd, path, ET_EXEC, ET_DYN, segments, &count, err);
    for (size_t i = 0; !rc && i < count; i++) {
        if (segments[i].p_type == PT_INTERP)
            rc = alq_err_set(err, ALQ_ENOTSUP, "%s: needs a loader; a static program is wanted",
                             path);
    }
    return rc;
}

int alq_elf_read(int fd, const char *path, struct alq_elf *elf, struct alq_err *err)
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    Elf64_Dyn dynamic[DYNAMIC_MAX];
    size_t segment_count;

    memset(elf, 0, sizeof(*elf));
    int rc = read_segments(fd, path, ET_DYN, ET_DYN, segments, &segment_count, err);
    if (rc)
        return rc;

    const Elf64_Phdr *where = NULL;
    for (size_t i = 0; i < segment_count && !where; i++) {
        if (segments[i].p_type == PT_DYNAMIC)
            where = &segments[i];
    }
    if (!where)
        return alq_err_set(err, ALQ_EPROTO, "%s: not a usable shared object: no dynamic section",
                           path);
    size_t count = where->p_filesz / sizeof(Elf64_Dyn);
    if (count > DYNAMIC_MAX)
        count = DYNAMIC_MAX;
    rc = read_at(fd, path, where->p_offset, dynamic, count * sizeof(Elf64_Dyn), err);
    if (rc)
        return rc;

    uint64_t strings = 0;
    int has_strings = 0;
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            has_strings = offset_of(segments, segment_count, dynamic[i].d_un.d_ptr, &strings);
    }
    if (!has_strings)
        return alq_err_set(err, ALQ_EPROTO, "%s: not a usable shared object: no string table",
                           path);
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        char *name = NULL;
        if (dynamic[i].d_tag == DT_SONAME)
            name = elf->soname;
        else if (dynamic[i].d_tag == DT_NEEDED && elf->needed_count < ALQ_ELF_NEEDED_MAX)
            name = elf->needed[elf->needed_count++];
        if (!name)
            continue;
        if (dynamic[i].d_un.d_val > UINT32_MAX)
            return alq_err_set(err, ALQ_EPROTO,
                               "%s: not a usable shared object: a name is outside the file", path);
        rc = read_name(fd, path, strings + dynamic[i].d_un.d_val, name, err);
        if (rc)
            return rc;
    }
    return 0;
}

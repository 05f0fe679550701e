/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest shared object that has a SONAME, for the tests of what reads and links them. */
#ifndef ALQ_TESTS_SMALL_ELF_H
#define ALQ_TESTS_SMALL_ELF_H

#include <elf.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#define SMALL_ELF_MACHINE EM_X86_64
#else
#define SMALL_ELF_MACHINE EM_AARCH64
#endif

struct small_elf {
    Elf64_Ehdr header;
    Elf64_Phdr load, dynamic, other;
    Elf64_Dyn entries[3];
    char names[300];
};

static inline void small_elf_make(struct small_elf *file, const char *soname)
{
    memset(file, 0, sizeof(*file));
    memcpy(file->header.e_ident, ELFMAG, SELFMAG);
    file->header.e_ident[EI_CLASS] = ELFCLASS64;
    file->header.e_ident[EI_DATA] = ELFDATA2LSB;
    file->header.e_type = ET_DYN;
    file->header.e_machine = SMALL_ELF_MACHINE;
    file->header.e_phoff = sizeof(file->header);
    file->header.e_phentsize = sizeof(Elf64_Phdr);
    file->header.e_phnum = 3;
    file->load = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_filesz = sizeof(*file)};
    file->dynamic = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                 .p_offset = offsetof(struct small_elf, entries),
                                 .p_filesz = sizeof(file->entries)};
    file->entries[0].d_tag = DT_STRTAB;
    file->entries[0].d_un.d_ptr = 0x1000 + offsetof(struct small_elf, names);
    file->entries[1].d_tag = DT_SONAME;
    file->entries[1].d_un.d_val = 1;
    snprintf(file->names + 1, sizeof(file->names) - 1, "%s", soname);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SONAME and interpreter of ELF files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hook/small_elf.h"
#include "hook/soname.h"

static int facts_of(const void *data, size_t bytes, struct alq_elf_facts *facts)
{
    int fd = memfd_create("elf", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    memset(facts, 0x55, sizeof(*facts));
    int rc = alq_elf_facts(fd, facts);
    close(fd);
    assert_non_null(memchr(facts->soname, '\0', sizeof(facts->soname)));
    return rc;
}

static void facts_of_a_library_are_read(void **state)
{
    struct small_elf file;
    struct alq_elf_facts facts;
    (void)state;
    small_elf_make(&file, "libcuda.so.1");
    assert_int_equal(facts_of(&file, sizeof(file), &facts), 0);
    assert_string_equal(facts.soname, "libcuda.so.1");
    assert_false(facts.has_interpreter);
    file.other.p_type = PT_INTERP;
    assert_int_equal(facts_of(&file, sizeof(file), &facts), 0);
    assert_true(facts.has_interpreter);
    file.entries[1].d_tag = DT_NULL;
    assert_int_equal(facts_of(&file, sizeof(file), &facts), 0);
    assert_string_equal(facts.soname, "");
}

static void facts_of_the_tests_own_program_have_an_interpreter(void **state)
{
    struct alq_elf_facts facts;
    (void)state;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_int_equal(alq_elf_facts(fd, &facts), 0);
    assert_true(facts.has_interpreter);
    close(fd);
}

static void soname_that_leads_elsewhere_is_refused(void **state)
{
    static const char *const names[] = {"", ".", "..", "/etc/passwd", "../libcuda.so.1", "a/b"};
    struct small_elf file;
    struct alq_elf_facts facts;
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        small_elf_make(&file, names[i]);
        assert_int_equal(facts_of(&file, sizeof(file), &facts), -ENOEXEC);
        assert_string_equal(facts.soname, "");
    }
    small_elf_make(&file, "x");
    memset(file.names + 1, 'x', 255);
    assert_int_equal(facts_of(&file, sizeof(file), &facts), 0);
    assert_int_equal(strlen(facts.soname), 255);
    memset(file.names + 1, 'x', 256);
    assert_int_equal(facts_of(&file, sizeof(file), &facts), -ENOEXEC);
}

static void facts_of_a_file_cut_anywhere_are_refused(void **state)
{
    struct small_elf file;
    struct alq_elf_facts facts;
    (void)state;
    small_elf_make(&file, "libcuda.so.1");
    for (size_t bytes = 0; bytes < offsetof(struct small_elf, names) + 14; bytes++)
        assert_int_equal(facts_of(&file, bytes, &facts), -ENOEXEC);
}

static void facts_of_other_files_are_refused(void **state)
{
    struct small_elf file, good;
    struct alq_elf_facts facts;
    (void)state;
    small_elf_make(&good, "libcuda.so.1");
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        file = good;                                                                               \
        change;                                                                                    \
        assert_int_equal(facts_of(&file, sizeof(file), &facts), -ENOEXEC);                         \
    } while (0)
    REFUSED(file.header.e_ident[0] = 0);
    REFUSED(file.header.e_ident[EI_CLASS] = ELFCLASS32);
    REFUSED(file.header.e_ident[EI_DATA] = ELFDATA2MSB);
    REFUSED(file.header.e_machine = EM_S390);
    REFUSED(file.header.e_type = ET_REL);
    REFUSED(file.header.e_phnum = 0);
    REFUSED(file.header.e_phnum = 65535);
    REFUSED(file.header.e_phentsize = 8);
    REFUSED(file.header.e_phoff = UINT64_MAX);
    REFUSED(file.header.e_phoff = INT64_MAX);
    REFUSED(file.dynamic.p_offset = UINT64_MAX);
    REFUSED(file.load.p_offset = UINT64_MAX - 8);
    REFUSED(file.load.p_offset = INT64_MAX);
    REFUSED(file.load.p_offset = INT64_MAX - 400); /* the name crosses the end of all files */
    REFUSED(file.load.p_filesz = 8);
    REFUSED(file.entries[0].d_tag = DT_SYMTAB);
    REFUSED(file.entries[0].d_un.d_ptr = 0);
    REFUSED(file.entries[1].d_un.d_val = UINT64_MAX);
    REFUSED(file.entries[1].d_un.d_val = 1u << 30);
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_of_a_library_are_read),
        cmocka_unit_test(facts_of_the_tests_own_program_have_an_interpreter),
        cmocka_unit_test(soname_that_leads_elsewhere_is_refused),
        cmocka_unit_test(facts_of_a_file_cut_anywhere_are_refused),
        cmocka_unit_test(facts_of_other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

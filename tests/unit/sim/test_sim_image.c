/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cubins and fatbins, made here section by section: what is read, and that nothing outside the
 * bytes given is (the sanitizers watch; every buffer has its exact size). Single-threaded.
 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/fatbin.h"
#include "common/image.h"

enum {
    NAMES = 1,
    STRINGS,
    SYMBOLS,
    INFO,
    KERNEL_INFO,
    TEXT,
    BANK,
    SHARED,
    CONSTANT,
    GLOBAL,
    COUNT
};

static const char names[] = "\0.shstrtab\0.strtab\0.symtab\0.nv.info\0.nv.info.k\0.text.k\0"
                            ".nv.constant0.k\0.nv.shared.k\0.nv.constant3\0.nv.global";
static const uint32_t name_at[COUNT] = {0, 1, 11, 19, 27, 36, 47, 55, 71, 84, 98};
static const char strings[] = "\0k\0table\0pi";

/* Parameters as ptxas lists them: the last first. */
static const uint32_t kernel_info[] = {
    0x000c1704,
    0,
    1 | 8u << 16,
    4u << 18, /* 4 bytes at 8 */
    0x000c1704,
    0,
    0 | 0u << 16,
    8u << 18 | 0x1f000, /* 8 bytes at 0 */
    0x000c0504,
    32,
    4,
    1, /* at most 128 threads */
    0x000c3d04,
    2,
    1,
    1, /* clusters of 2 */
    0x00ff1b03,
};
static const uint32_t file_info[] = {0x00082f04, 1, 40, 0x00081104, 1, 64};
static const double pi = 3.25;

struct file {
    unsigned char bytes[2048];
    size_t size;
    Elf64_Shdr *sections;
};

static void put(struct file *f, int index, uint32_t type, const void *data, size_t size)
{
    f->size = (f->size + 7) & ~(size_t)7;
    f->sections[index].sh_name = name_at[index];
    f->sections[index].sh_type = type;
    f->sections[index].sh_offset = f->size;
    f->sections[index].sh_size = size;
    if (type == SHT_NOBITS)
        return;
    memcpy(f->bytes + f->size, data, size);
    f->size += size;
}

/* A cubin for compute capability 9.0 in a buffer of its exact size. */
static unsigned char *make(size_t *size)
{
    static const Elf64_Sym symbols[] = {
        {0},
        {1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0x10, TEXT, 0, 64},
        {3, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 4, GLOBAL, 16, 100},
        {9, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, CONSTANT, 0, 8},
    };
    Elf64_Ehdr h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8},
                    .e_type = ET_EXEC,
                    .e_machine = 190,
                    .e_flags = 0x06005a04,
                    .e_ehsize = sizeof(h),
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_shnum = COUNT,
                    .e_shstrndx = NAMES,
                    .e_shoff = sizeof(h)};
    Elf64_Shdr sections[COUNT] = {{0}};
    struct file f = {.size = sizeof(h) + sizeof(sections), .sections = sections};
    unsigned char *made;

    put(&f, NAMES, SHT_STRTAB, names, sizeof(names));
    put(&f, STRINGS, SHT_STRTAB, strings, sizeof(strings));
    put(&f, SYMBOLS, SHT_SYMTAB, symbols, sizeof(symbols));
    sections[SYMBOLS].sh_link = STRINGS;
    sections[SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
    put(&f, INFO, SHT_LOPROC, file_info, sizeof(file_info));
    put(&f, KERNEL_INFO, SHT_LOPROC, kernel_info, sizeof(kernel_info));
    put(&f, TEXT, SHT_PROGBITS, strings, 8);
    put(&f, BANK, SHT_PROGBITS, strings, 4);
    put(&f, SHARED, SHT_NOBITS, NULL, 512);
    put(&f, CONSTANT, SHT_PROGBITS, &pi, sizeof(pi));
    put(&f, GLOBAL, SHT_NOBITS, NULL, 200);
    memcpy(f.bytes, &h, sizeof(h));
    memcpy(f.bytes + sizeof(h), sections, sizeof(sections));
    made = malloc(f.size);
    assert_non_null(made);
    memcpy(made, f.bytes, f.size);
    *size = f.size;
    return made;
}

static int read_copy(const unsigned char *bytes, size_t size, struct sim_image *image)
{
    unsigned char *exact = malloc(size + 1);
    int rc;

    assert_non_null(exact);
    exact = realloc(exact, size ? size : 1);
    memcpy(exact, bytes, size);
    memset(image, 0, sizeof(*image));
    rc = sim_cubin_read(exact, size, image);
    free(exact);
    return rc;
}

static void cubin_with_a_kernel_and_variables_is_read(void **state)
{
    struct sim_image image;
    unsigned char *bytes;
    size_t size;

    (void)state;
    bytes = make(&size);
    assert_int_equal(sim_cubin_bytes(bytes, SIM_CUBIN_HEADER_BYTES),
                     sizeof(Elf64_Ehdr) + COUNT * sizeof(Elf64_Shdr));
    assert_int_equal(read_copy(bytes, size, &image), 0);
    assert_int_equal(image.cc, 90);
    assert_int_equal(image.kernel_count, 1);
    assert_string_equal(image.kernels[0].name, "k");
    assert_int_equal(image.kernels[0].param_count, 2);
    assert_int_equal(image.kernels[0].params[0].bytes, 8);
    assert_int_equal(image.kernels[0].params[1].offset, 8);
    assert_int_equal(image.kernels[0].max_threads, 128);
    assert_int_equal(image.kernels[0].cluster[0], 2);
    assert_int_equal(image.kernels[0].registers, 40);
    assert_int_equal(image.kernels[0].local_bytes, 64);
    assert_int_equal(image.kernels[0].shared_bytes, 512);
    assert_int_equal(image.global_count, 2);
    assert_string_equal(image.globals[0].name, "table");
    assert_int_equal(image.globals[0].bytes, 100);
    assert_true(image.globals[0].is_managed);
    assert_null(image.globals[0].initial);
    assert_true(image.globals[1].is_constant);
    assert_memory_equal(image.globals[1].initial, &pi, sizeof(pi));
    assert_int_equal(image.constant_bytes, 8);
    sim_image_free(&image);
    free(bytes);
}

static void cubin_cut_anywhere_is_refused_or_whole(void **state)
{
    struct sim_image image;
    unsigned char *bytes;
    size_t size;

    (void)state;
    bytes = make(&size);
    for (size_t n = 0; n < size; n++) {
        if (read_copy(bytes, n, &image) == 0)
            fail_msg("taken: the first %zu of %zu bytes", n, size);
        assert_null(image.kernels);
    }
    free(bytes);
}

static void cubin_with_any_byte_changed_is_read_or_refused(void **state)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    struct sim_image image;
    unsigned char *bytes;
    size_t size, taken = 0, refused = 0;

    (void)state;
    bytes = make(&size);
    for (size_t at = 0; at < size; at++) {
        unsigned char was = bytes[at];

        for (size_t v = 0; v < sizeof(values); v++) {
            int rc;

            bytes[at] = values[v];
            rc = read_copy(bytes, size, &image);
            assert_true(rc == 0 || rc == -EINVAL || rc == -ENOMEM);
            taken += rc == 0;
            refused += rc != 0;
            sim_image_free(&image);
        }
        bytes[at] = was;
    }
    assert_true(taken && refused);
    free(bytes);
}

static void cubin_with_parameters_that_overlap_is_refused(void **state)
{
    struct sim_image image;
    unsigned char *bytes, *at;
    size_t size;

    (void)state;
    bytes = make(&size);
    at = memmem(bytes, size, kernel_info, sizeof(kernel_info));
    assert_non_null(at);
    at[10] = 4; /* the second begins within the first */
    assert_int_equal(read_copy(bytes, size, &image), -EINVAL);
    at[10] = 8;
    at[8] = 2; /* and one is missing */
    assert_int_equal(read_copy(bytes, size, &image), -EINVAL);
    free(bytes);
}

static void cubin_whose_names_lie_nowhere_is_refused(void **state)
{
    static const int which[] = {NAMES, INFO, KERNEL_INFO, STRINGS};
    struct sim_image image;
    size_t size;

    (void)state;
    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
        unsigned char *bytes = make(&size);
        Elf64_Shdr s;
        size_t at = sizeof(Elf64_Ehdr) + (size_t)which[i] * sizeof(s);

        memcpy(&s, bytes + at, sizeof(s));
        s.sh_type = SHT_NOBITS; /* whose offset nobody checks */
        s.sh_offset = UINT64_MAX - 7;
        memcpy(bytes + at, &s, sizeof(s));
        assert_int_equal(read_copy(bytes, size, &image),
                         which[i] == NAMES || which[i] == KERNEL_INFO ? -EINVAL : 0);
        sim_image_free(&image);
        free(bytes);
    }
}

static size_t entry(unsigned char *at, uint16_t kind, uint32_t cc, uint32_t flags, uint64_t bytes)
{
    uint32_t header = 64;

    memset(at, 0, 64 + bytes);
    memcpy(at, &kind, 2);
    memcpy(at + 4, &header, 4);
    memcpy(at + 8, &bytes, 8);
    memcpy(at + 28, &cc, 4);
    memcpy(at + 40, &flags, 4);
    return 64 + bytes;
}

static uint64_t fatbin(unsigned char *bytes)
{
    const uint32_t magic = SIM_FATBIN_MAGIC;
    const uint16_t version = 1, header = 16;
    uint64_t at = 16, rest;

    at += entry(bytes + at, SIM_FATBIN_PTX, 70, 0x11, 8);
    at += entry(bytes + at, SIM_FATBIN_CUBIN, 80, 0x11, 16);
    at += entry(bytes + at, SIM_FATBIN_CUBIN, 86, 0x8011, 8);
    at += entry(bytes + at, 7, 90, 0x11, 0);
    at += entry(bytes + at, SIM_FATBIN_PTX, 90, 0x11, 8);
    rest = at - 16;
    memcpy(bytes, &magic, 4);
    memcpy(bytes + 4, &version, 2);
    memcpy(bytes + 6, &header, 2);
    memcpy(bytes + 8, &rest, 8);
    return at;
}

static void fatbin_entry_for_a_device_is_the_newest_that_runs(void **state)
{
    static const struct {
        uint32_t cc;
        int rc;
        enum sim_fatbin_kind kind;
        uint32_t chosen;
    } rows[] = {
        {52, -ENOENT, 0, 0},           {70, 0, SIM_FATBIN_PTX, 70},   {75, 0, SIM_FATBIN_PTX, 70},
        {80, 0, SIM_FATBIN_CUBIN, 80}, {86, 0, SIM_FATBIN_CUBIN, 86}, {89, 0, SIM_FATBIN_CUBIN, 86},
        {90, 0, SIM_FATBIN_PTX, 90},   {120, 0, SIM_FATBIN_PTX, 90},
    };
    unsigned char bytes[1024];
    uint64_t size = fatbin(bytes);

    (void)state;
    assert_int_equal(sim_fatbin_bytes(bytes, SIM_FATBIN_HEADER_BYTES), size);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sim_fatbin_entry e;

        assert_int_equal(sim_fatbin_choose(bytes, size, rows[i].cc, &e), rows[i].rc);
        assert_int_equal(e.kind, rows[i].kind);
        assert_int_equal(e.cc, rows[i].chosen);
        assert_int_equal(e.is_compressed, rows[i].chosen == 86);
    }
}

static void fatbin_cut_anywhere_is_refused(void **state)
{
    unsigned char bytes[1024];
    uint64_t size = fatbin(bytes);
    struct sim_fatbin_entry e;

    (void)state;
    for (uint64_t n = 0; n < size; n++) {
        unsigned char *exact = malloc(n ? n : 1);

        assert_non_null(exact);
        memcpy(exact, bytes, n);
        assert_int_equal(sim_fatbin_choose(exact, n, 90, &e), -EINVAL);
        free(exact);
    }
    memset(bytes + 20, 0xff, 4); /* a header that is longer than all */
    assert_int_equal(sim_fatbin_choose(bytes, size, 90, &e), -EINVAL);
    memset(bytes + 20, 0, 4); /* or of no length, which would never end */
    assert_int_equal(sim_fatbin_choose(bytes, size, 90, &e), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cubin_with_a_kernel_and_variables_is_read),
        cmocka_unit_test(cubin_cut_anywhere_is_refused_or_whole),
        cmocka_unit_test(cubin_with_any_byte_changed_is_read_or_refused),
        cmocka_unit_test(cubin_with_parameters_that_overlap_is_refused),
        cmocka_unit_test(cubin_whose_names_lie_nowhere_is_refused),
        cmocka_unit_test(fatbin_entry_for_a_device_is_the_newest_that_runs),
        cmocka_unit_test(fatbin_cut_anywhere_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What an image says of its variables, before it is loaded. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "vgpu/memory/image.h"

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static void measure_of_ptx_sums_what_it_declares(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {HEAD, 0},
        {HEAD ".global .u32 a;", 4},
        {HEAD ".visible .global .align 8 .b8 big[8589934592];", 8589934592},
        {HEAD ".global .align 16 .v4 .f32 m[3][0x10];", 768},
        {HEAD ".global .b8 a[3U], b[5]; .global .f64 c;", 16},
        {HEAD ".global .attribute(.managed) .align 4 .b8 a[64] = {1, 2, 3};.global .u8 b;", 65},
        {HEAD ".extern .global .b8 a[64];.weak .global .b8 b[2];", 2},
        {HEAD ".global .texref t;.const .b8 k[100];.shared .b8 s[200];", 8},
        {HEAD "// .global .b8 a[64];\n/* .global .b8 b[64]; */.file 1 \".global .b8 c[64];\"\n", 0},
        {HEAD ".entry k(.param .u64 .ptr .global .align 4 p, .param .align 8 .b8 q[64])\n"
              "{\n.reg .b32 %r<5>;\nld.global.u32 %r1, [%rd1];\n.global .u64 inner;\nret;\n}",
         8},
        {HEAD ".global .b64 a[18446744073709551615];", UINT64_MAX},
        {HEAD ".global .b8 a[64", 0},
        {HEAD ".global", 0},
        {"", 0},
        {"x", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct alq_image image = alq_image_measure(cases[i].text);
        if (image.variable_bytes != cases[i].bytes)
            print_error("%s\n", cases[i].text);
        assert_int_equal(image.variable_bytes, cases[i].bytes);
        assert_int_equal(image.bytes, strlen(cases[i].text));
    }
    assert_int_equal(alq_image_measure(NULL).bytes, 0);
}

struct cubin {
    Elf64_Ehdr head;
    char names[64];
    Elf64_Shdr sections[4];
};

static const char names[] = "\0.nv.global\0.nv.global.init\0.nv.shared.k";

static struct cubin cubin_of(uint64_t zeroes_bytes)
{
    struct cubin c = {.head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                               .e_shoff = offsetof(struct cubin, sections),
                               .e_shentsize = sizeof(Elf64_Shdr),
                               .e_shnum = 4,
                               .e_shstrndx = 0},
                      .sections = {{.sh_type = SHT_STRTAB,
                                    .sh_offset = offsetof(struct cubin, names),
                                    .sh_size = sizeof(names)},
                                   {.sh_name = 1, .sh_type = SHT_NOBITS, .sh_size = zeroes_bytes},
                                   {.sh_name = 12, .sh_type = SHT_PROGBITS, .sh_size = 100},
                                   {.sh_name = 28, .sh_type = SHT_NOBITS, .sh_size = 4096}}};
    memcpy(c.names, names, sizeof(names));
    return c;
}

static void measure_of_a_cubin_is_what_is_not_in_it(void **state)
{
    struct cubin c = cubin_of(1ull << 33);
    (void)state;
    struct alq_image image = alq_image_measure(&c);
    assert_int_equal(image.bytes, sizeof(c));
    assert_int_equal(image.variable_bytes, 1ull << 33);
    c.sections[0].sh_offset = UINT64_MAX - 8;
    assert_int_equal(alq_image_measure(&c).variable_bytes, 0);
    c = cubin_of(1);
    c.head.e_shstrndx = 9;
    assert_int_equal(alq_image_measure(&c).variable_bytes, 0);
    c = cubin_of(1);
    c.sections[1].sh_name = UINT32_MAX;
    assert_int_equal(alq_image_measure(&c).variable_bytes, 0);
}

struct fat {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    struct {
        uint16_t kind, version;
        uint32_t header_bytes;
        uint64_t bytes;
        uint32_t unused[6];
        uint64_t flags, more[2];
        struct cubin code;
    } entry[3];
};

static struct fat fat_of(uint64_t a, uint64_t b, uint64_t compressed)
{
    struct fat f = {0xba55ed50, 1, 16, sizeof(f) - 16, {{.kind = 2}}};
    for (int i = 0; i < 3; i++) {
        f.entry[i].header_bytes = 64;
        f.entry[i].bytes = sizeof(struct cubin);
        f.entry[i].code = cubin_of(i == 0 ? a : i == 1 ? b : compressed);
    }
    f.entry[2].flags = 0x8000;
    return f;
}

static void measure_of_a_fat_binary_is_the_most_of_its_entries(void **state)
{
    struct fat f = fat_of(100, 200, 300);
    const struct {
        uint32_t magic, version;
        const void *fat;
    } wrapper = {0x466243b1, 1, &f};
    (void)state;
    assert_int_equal(alq_image_measure(&f).variable_bytes, 200);
    assert_int_equal(alq_image_measure(&f).bytes, sizeof(f));
    assert_int_equal(alq_image_measure(&wrapper).variable_bytes, 200);
    f.entry[1].bytes = UINT64_MAX - 7;
    assert_int_equal(alq_image_measure(&f).variable_bytes, 100);
    f.entry[0].header_bytes = 0;
    assert_int_equal(alq_image_measure(&f).variable_bytes, 0);
}

static void measure_of_a_file_is_that_of_its_content(void **state)
{
    char path[] = "/tmp/alq-image-XXXXXX";
    struct cubin c = cubin_of(12345);
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &c, sizeof(c)), sizeof(c));
    assert_int_equal(alq_image_measure_file(path).variable_bytes, 12345);
    assert_int_equal(alq_image_measure_file(path).bytes, sizeof(c));
    assert_int_equal(ftruncate(fd, sizeof(c.head) - 1), 0);
    assert_int_equal(alq_image_measure_file(path).variable_bytes, 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(alq_image_measure_file(path).bytes, 0);
    close(fd);
    unlink(path);
    assert_int_equal(alq_image_measure_file(path).bytes, 0);
    assert_int_equal(alq_image_measure_file(NULL).bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measure_of_ptx_sums_what_it_declares),
        cmocka_unit_test(measure_of_a_cubin_is_what_is_not_in_it),
        cmocka_unit_test(measure_of_a_fat_binary_is_the_most_of_its_entries),
        cmocka_unit_test(measure_of_a_file_is_that_of_its_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cubins: 64-bit ELF files of machine type 190. A kernel K is code in .text.K; .nv.info.K says its
 * parameters and bounds, .nv.shared.K and .nv.constant0.K what it takes; variables are symbols of
 * .nv.global, .nv.global.init and .nv.constantN. The format of .nv.info is not published: the
 * attributes read here were taken from what ptxas 13.0 writes for known kernels. Every offset is
 * checked against the size given; nothing is followed twice.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/image.h"

#define EM_CUDA_NUMBER 190
#define OBJECT_MANAGED 4u     /* in st_other of a variable */
#define SHARED_RESERVED 1024u /* counted in .nv.shared.K where .nv.shared.reserved.0 exists */

/* Attributes of .nv.info: a form, a code, then two bytes of value or of length. */
enum { FORM_SIZED = 4 };
enum {
    INFO_MAX_THREADS = 0x05,
    INFO_REQUIRED_THREADS = 0x10,
    INFO_FRAME_BYTES = 0x11,
    INFO_PARAM = 0x17,
    INFO_REGISTERS = 0x2f,
    INFO_CLUSTER = 0x3d,
};

struct cubin {
    const unsigned char *bytes;
    size_t size;
    uint32_t section_count;
    uint64_t sections_at;
    Elf64_Shdr names, symbols, strings;
    bool has_symbols, has_reserved_shared;
};

static bool inside(const struct cubin *c, uint64_t offset, uint64_t bytes)
{
    return offset <= c->size && bytes <= c->size - offset;
}

static int section(const struct cubin *c, uint32_t index, Elf64_Shdr *s)
{
    if (index >= c->section_count)
        return -EINVAL;
    memcpy(s, c->bytes + c->sections_at + (uint64_t)index * sizeof(*s), sizeof(*s));
    return s->sh_type == SHT_NOBITS || inside(c, s->sh_offset, s->sh_size) ? 0 : -EINVAL;
}

/* The bytes of a section that has some in the file; NULL otherwise. */
static const unsigned char *content(const struct cubin *c, const Elf64_Shdr *s)
{
    return s->sh_type == SHT_NOBITS ? NULL : c->bytes + s->sh_offset;
}

/* A string of a string section, NUL within it; NULL when it is not. */
static const char *string(const struct cubin *c, const Elf64_Shdr *strings, uint64_t offset)
{
    const unsigned char *text = content(c, strings);

    if (!text || offset >= strings->sh_size ||
        !memchr(text + offset, '\0', strings->sh_size - offset))
        return NULL;
    return (const char *)text + offset;
}

static const char *section_name(const struct cubin *c, const Elf64_Shdr *s)
{
    return string(c, &c->names, s->sh_name);
}

/* What follows the prefix, or NULL. */
static const char *after(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(name, prefix, len) == 0 ? name + len : NULL;
}

uint64_t sim_cubin_bytes(const void *bytes, size_t size)
{
    Elf64_Ehdr h;
    uint64_t sections, programs;

    if (size < sizeof(h))
        return 0;
    memcpy(&h, bytes, sizeof(h));
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != EM_CUDA_NUMBER ||
        h.e_shentsize != sizeof(Elf64_Shdr) ||
        __builtin_add_overflow(h.e_shoff, (uint64_t)h.e_shnum * h.e_shentsize, &sections) ||
        __builtin_add_overflow(h.e_phoff, (uint64_t)h.e_phnum * h.e_phentsize, &programs))
        return 0;
    /* Writers put one of the two tables last. */
    return sections > programs ? sections : programs;
}

static int open_file(struct cubin *c, const void *bytes, size_t size, uint32_t *cc)
{
    Elf64_Ehdr h;
    Elf64_Shdr s;

    memset(c, 0, sizeof(*c));
    c->bytes = bytes;
    c->size = size;
    if (sim_cubin_bytes(bytes, size) == 0)
        return -EINVAL;
    memcpy(&h, bytes, sizeof(h));
    if (!inside(c, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)))
        return -EINVAL;
    c->sections_at = h.e_shoff;
    c->section_count = h.e_shnum;
    /* From ABI version 8 the flags have the compute capability in the second byte. */
    *cc = h.e_ident[EI_ABIVERSION] >= 8 ? h.e_flags >> 8 & 0xff : h.e_flags & 0xff;
    if (section(c, h.e_shstrndx, &c->names) != 0)
        return -EINVAL;
    for (uint32_t i = 1; i < c->section_count; i++) {
        const char *name;

        if (section(c, i, &s) != 0 || !(name = section_name(c, &s)))
            return -EINVAL;
        if (strcmp(name, ".nv.shared.reserved.0") == 0)
            c->has_reserved_shared = true;
        if (s.sh_type != SHT_SYMTAB || c->has_symbols)
            continue;
        if (s.sh_entsize != sizeof(Elf64_Sym) || section(c, s.sh_link, &c->strings) != 0)
            return -EINVAL;
        c->symbols = s;
        c->has_symbols = true;
    }
    return 0;
}

static bool symbol(const struct cubin *c, uint64_t index, Elf64_Sym *y)
{
    if (!c->has_symbols || index >= c->symbols.sh_size / sizeof(*y))
        return false;
    memcpy(y, c->bytes + c->symbols.sh_offset + index * sizeof(*y), sizeof(*y));
    return true;
}

static uint32_t word(const unsigned char *at)
{
    uint32_t w;

    memcpy(&w, at, sizeof(w));
    return w;
}

static uint32_t product(const unsigned char *three)
{
    uint64_t n = (uint64_t)word(three) * word(three + 4);

    n = n > UINT32_MAX ? n : n * word(three + 8);
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* A parameter: position in the low half of the second word, offset in the high one; size above
 * bit 18 of the third. They are listed last first. */
struct found_param {
    uint16_t ordinal, offset;
    uint32_t bytes;
};

static int by_ordinal(const void *a, const void *b)
{
    const struct found_param *p = a, *q = b;

    return (p->ordinal > q->ordinal) - (p->ordinal < q->ordinal);
}

static int add_params(struct sim_image_kernel *k, struct found_param *found, size_t count)
{
    uint32_t end = 0;

    qsort(found, count, sizeof(*found), by_ordinal);
    for (size_t i = 0; i < count; i++) {
        const struct found_param *p = &found[i];

        if (p->ordinal != i || p->offset < end || p->offset + p->bytes > SIM_PARAM_BYTES_MAX)
            return -EINVAL;
        end = p->offset + p->bytes;
        if (sim_image_add_param(k, p->bytes, p->offset) != 0)
            return -ENOMEM;
    }
    return 0;
}

/* One attribute of the section at *at, and on to the next; false at the end or when cut off. */
static bool attribute(const unsigned char *info, uint64_t size, uint64_t *at, int *code,
                      const unsigned char **value, uint32_t *bytes)
{
    uint16_t half;

    if (size - *at < 4)
        return false;
    memcpy(&half, info + *at + 2, sizeof(half));
    *code = info[*at + 1];
    *value = info + *at + 4;
    *bytes = info[*at] == FORM_SIZED ? half : 0;
    if (*bytes > size - *at - 4)
        return false;
    *at += 4 + *bytes;
    return true;
}

/* .nv.info.K */
static int kernel_info(const struct cubin *c, const Elf64_Shdr *s, struct sim_image_kernel *k)
{
    const unsigned char *info = content(c, s), *value;
    size_t room = s->sh_size / 16, count = 0; /* a parameter takes 16 bytes */
    struct found_param *found;
    uint64_t at = 0;
    uint32_t bytes;
    int code, rc;

    if (!info || k->param_count)
        return -EINVAL;
    found = calloc(room + 1, sizeof(*found));
    if (!found)
        return -ENOMEM;
    while (attribute(info, s->sh_size, &at, &code, &value, &bytes)) {
        if (code == INFO_PARAM && bytes == 12) {
            found[count].ordinal = (uint16_t)(word(value + 4) & 0xffff);
            found[count].offset = (uint16_t)(word(value + 4) >> 16);
            found[count++].bytes = word(value + 8) >> 18;
        } else if ((code == INFO_MAX_THREADS || code == INFO_REQUIRED_THREADS) && bytes == 12) {
            k->max_threads = product(value);
        } else if (code == INFO_CLUSTER && bytes == 12) {
            for (int i = 0; i < 3; i++)
                k->cluster[i] = word(value + 4 * i);
        }
    }
    rc = add_params(k, found, count);
    free(found);
    return rc;
}

/* .nv.info: attributes of symbols, which bring the symbol's number */
static void file_info(const struct cubin *c, const Elf64_Shdr *s, struct sim_image *image)
{
    const unsigned char *info = content(c, s), *value;
    uint64_t at = 0;
    uint32_t bytes;
    int code;

    while (info && attribute(info, s->sh_size, &at, &code, &value, &bytes)) {
        struct sim_image_kernel *k;
        const char *name;
        Elf64_Sym y;

        if (bytes != 8 || (code != INFO_REGISTERS && code != INFO_FRAME_BYTES) ||
            !symbol(c, word(value), &y) || !(name = string(c, &c->strings, y.st_name)) ||
            !(k = sim_image_kernel(image, name)))
            continue;
        if (code == INFO_REGISTERS)
            k->registers = word(value + 4);
        else
            k->local_bytes = word(value + 4);
    }
}

/* Symbols that are functions with a section .text.<name> are kernels or device functions; only
 * kernels have .nv.constant0.<name>, the bank that their parameters come in. */
static int add_kernels(const struct cubin *c, struct sim_image *image)
{
    Elf64_Shdr s;

    for (uint32_t i = 1; i < c->section_count; i++) {
        const char *name;

        if (section(c, i, &s) != 0)
            return -EINVAL;
        name = after(section_name(c, &s), ".nv.constant0.");
        if (name && *name && !sim_image_kernel(image, name) && !sim_image_add_kernel(image, name))
            return -ENOMEM;
    }
    return 0;
}

static int read_sections(const struct cubin *c, struct sim_image *image)
{
    Elf64_Shdr s;
    int rc = 0;

    for (uint32_t i = 1; rc == 0 && i < c->section_count; i++) {
        const char *name, *of;
        struct sim_image_kernel *k;

        if (section(c, i, &s) != 0)
            return -EINVAL;
        name = section_name(c, &s);
        if (strcmp(name, ".nv.info") == 0) {
            file_info(c, &s, image);
        } else if ((of = after(name, ".nv.info.")) && (k = sim_image_kernel(image, of))) {
            rc = kernel_info(c, &s, k);
        } else if ((of = after(name, ".nv.shared.")) && (k = sim_image_kernel(image, of))) {
            uint64_t reserved =
                c->has_reserved_shared && s.sh_size >= SHARED_RESERVED ? SHARED_RESERVED : 0;

            k->shared_bytes =
                s.sh_size < UINT32_MAX ? (uint32_t)(s.sh_size - reserved) : UINT32_MAX;
        } else if ((of = after(name, ".text.")) && (k = sim_image_kernel(image, of))) {
            if (!k->registers) /* older writers keep the count here */
                k->registers = s.sh_info >> 24;
        }
    }
    return rc;
}

static int add_variable(const struct cubin *c, struct sim_image *image, const Elf64_Sym *y,
                        const char *name)
{
    struct sim_image_global *g;
    const char *from;
    Elf64_Shdr s;
    bool is_constant;

    if (section(c, y->st_shndx, &s) != 0 || !(from = section_name(c, &s)))
        return 0; /* a symbol of no section is elsewhere's */
    is_constant = after(from, ".nv.constant") && strchr("123", from[12]) && from[12] && !from[13];
    if (!is_constant && strcmp(from, ".nv.global") != 0 && strcmp(from, ".nv.global.init") != 0)
        return 0;
    if (y->st_value > s.sh_size || y->st_size > s.sh_size - y->st_value)
        return -EINVAL;
    g = sim_image_add_global(image, name);
    if (!g)
        return -ENOMEM;
    g->bytes = y->st_size;
    g->is_managed = y->st_other & OBJECT_MANAGED;
    g->is_constant = is_constant;
    if (is_constant)
        image->constant_bytes += (uint32_t)(y->st_size & 0xffffff);
    if (s.sh_type == SHT_NOBITS || !y->st_size)
        return 0;
    g->initial = malloc(y->st_size);
    if (!g->initial)
        return -ENOMEM;
    memcpy(g->initial, c->bytes + s.sh_offset + y->st_value, y->st_size);
    g->initial_bytes = y->st_size;
    return 0;
}

static int add_variables(const struct cubin *c, struct sim_image *image)
{
    Elf64_Sym y;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && symbol(c, i, &y); i++) {
        const char *name = string(c, &c->strings, y.st_name);

        if (ELF64_ST_TYPE(y.st_info) == STT_OBJECT && name && *name && y.st_shndx != SHN_UNDEF)
            rc = add_variable(c, image, &y, name);
    }
    return rc;
}

int sim_cubin_read(const void *bytes, size_t size, struct sim_image *image)
{
    struct cubin c;
    int rc = open_file(&c, bytes, size, &image->cc);

    if (rc == 0)
        rc = add_kernels(&c, image);
    if (rc == 0)
        rc = read_sections(&c, image);
    if (rc == 0)
        rc = add_variables(&c, image);
    if (rc != 0)
        sim_image_free(image);
    return rc;
}

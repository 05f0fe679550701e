/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/image.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>

#include "vgpu/arith.h"
#include "vgpu/sys.h"
#include "vgpu/text.h"

#define FAT_MAGIC 0xba55ed50u
#define WRAPPER_MAGIC 0x466243b1u
#define ELF_MAGIC 0x464c457fu
#define FILE_BYTES_MAX (1ull << 30) /* larger ones are not read */

/* ---- PTX ------------------------------------------------------------------------------------- */

struct scan {
    const char *at, *end;
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '.' || c == '%';
}

static bool starts(const struct scan *s, const char *with)
{
    const char *at = s->at;
    while (*with && at < s->end && *at == *with)
        at++, with++;
    return !*with;
}

static void skip_past(struct scan *s, const char *what)
{
    while (s->at < s->end && !starts(s, what))
        s->at++;
    s->at += s->at < s->end ? alq_text_len(what) : 0;
}

/* To the next token, past comments and strings; false at the end. */
static bool more(struct scan *s)
{
    while (s->at < s->end) {
        if (starts(s, "//")) {
            skip_past(s, "\n");
        } else if (starts(s, "/*")) {
            s->at += 2;
            skip_past(s, "*/");
        } else if (*s->at == '"') {
            s->at++;
            skip_past(s, "\"");
        } else if (*s->at == ' ' || (*s->at >= '\t' && *s->at <= '\r')) {
            s->at++;
        } else {
            return true;
        }
    }
    return false;
}

/* The token at s, which moves past it: a word, or one other character. */
static struct scan token(struct scan *s)
{
    struct scan word = {s->at, s->at + 1};
    if (is_word(*s->at))
        while (word.end < s->end && is_word(*word.end))
            word.end++;
    s->at = word.end;
    return word;
}

static bool is(const struct scan *word, const char *text)
{
    return (size_t)(word->end - word->at) == alq_text_len(text) && starts(word, text);
}

static uint64_t number(const struct scan *word)
{
    const char *at = word->at;
    bool is_hex = word->end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    uint64_t base = is_hex ? 16 : 10, n = 0;

    for (at += is_hex ? 2 : 0; at < word->end; at++) {
        uint64_t digit = *at >= '0' && *at <= '9'   ? (uint64_t)(*at - '0')
                         : *at >= 'a' && *at <= 'f' ? (uint64_t)(*at - 'a') + 10
                         : *at >= 'A' && *at <= 'F' ? (uint64_t)(*at - 'A') + 10
                                                    : base;
        if (digit >= base)
            break; /* a suffix: U */
        if (__builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, digit, &n))
            return UINT64_MAX;
    }
    return n;
}

/* Bytes of a type word, as .b8, .f64, .v4; 0: it is none. */
static uint64_t type_bytes(const struct scan *word, uint64_t *vector)
{
    const struct scan digits = {word->at + 2, word->end};

    if (word->end - word->at < 3 || *word->at != '.' || *digits.at < '0' || *digits.at > '9')
        return is(word, ".texref") || is(word, ".samplerref") || is(word, ".surfref") ? 8 : 0;
    if (word->at[1] == 'v') {
        *vector = number(&digits);
        return 0;
    }
    return number(&digits) / 8;
}

/* What was declared, from after .global to the end of the declaration. */
static uint64_t declared(struct scan *s)
{
    uint64_t element = 0, vector = 1, sum = 0, count = 1;
    bool is_named = false;

    while (more(s)) {
        struct scan word = token(s);
        if (is(&word, ".align") && more(s)) {
            token(s);
        } else if (is(&word, "(")) {
            skip_past(s, ")");
        } else if (is(&word, "[") && more(s)) {
            word = token(s);
            count = is(&word, "]") ? count : alq_product(count, number(&word));
        } else if (*word.at == '.') {
            uint64_t its = type_bytes(&word, &vector);
            element = its ? its : element;
        } else if (is(&word, ",") || is(&word, "=") || is(&word, ";")) {
            sum = alq_sum(sum, is_named ? alq_product(element * vector, count) : 0);
            count = 1;
            is_named = false;
            if (is(&word, "=")) /* its values are in the text, and so are other names' after it */
                skip_past(s, ";");
            if (!is(&word, ","))
                break;
        } else if (is_word(*word.at)) {
            is_named = true;
        }
    }
    return sum;
}

static uint64_t variables_of_ptx(const char *text, uint64_t bytes)
{
    struct scan s = {text, text + bytes}, last = {NULL, NULL};
    bool is_extern = false;
    uint64_t sum = 0;

    while (more(&s)) {
        struct scan word = token(&s);
        if (is(&word, ".extern"))
            is_extern = true;
        /* After .ptr it says where a parameter points. */
        bool is_declaration = is(&word, ".global") && !is(&last, ".ptr");
        uint64_t its = is_declaration ? declared(&s) : 0;
        sum = alq_sum(sum, is_extern ? 0 : its);
        if (is_declaration || is(&word, ";"))
            is_extern = false;
        last = word;
    }
    return sum;
}

/* ---- cubins ---------------------------------------------------------------------------------- */

static uint64_t elf_bytes(const Elf64_Ehdr *elf)
{
    return elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize;
}

static uint64_t variables_of_cubin(const char *image, uint64_t bytes)
{
    static const char global[] = ".nv.global";
    Elf64_Ehdr elf;
    Elf64_Shdr names, section;
    uint64_t sum = 0;

    if (bytes < sizeof(elf))
        return 0;
    __builtin_memcpy(&elf, image, sizeof(elf));
    if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_shentsize != sizeof(section) ||
        elf.e_shstrndx >= elf.e_shnum || elf.e_shoff > bytes || elf_bytes(&elf) > bytes)
        return 0;
    const char *table = image + elf.e_shoff;
    __builtin_memcpy(&names, table + (size_t)elf.e_shstrndx * sizeof(names), sizeof(names));
    if (names.sh_offset > bytes || names.sh_size > bytes - names.sh_offset)
        return 0;
    for (size_t i = 0; i < elf.e_shnum; i++) {
        __builtin_memcpy(&section, table + i * sizeof(section), sizeof(section));
        struct scan name = {image + names.sh_offset + section.sh_name,
                            image + names.sh_offset + names.sh_size};
        if (section.sh_type == SHT_NOBITS && section.sh_name < names.sh_size &&
            starts(&name, global))
            sum = alq_sum(sum, section.sh_size);
    }
    return sum;
}

/* ---- fat binaries ---------------------------------------------------------------------------- */

struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* after the header */
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t unused[6];
    uint64_t flags;
};

#define FAT_COMPRESSED 0xa000u /* LZ4, Zstandard */

/* No magic number has a zero byte, and PTX may be shorter than one. */
static uint32_t magic_of(const char *image)
{
    uint32_t magic = 0;
    for (unsigned i = 0; i < sizeof(magic) && image[i]; i++)
        magic |= (uint32_t)(unsigned char)image[i] << 8 * i;
    return magic;
}

static uint64_t variables_of_code(const char *image, uint64_t bytes)
{
    return bytes >= sizeof(uint32_t) && magic_of(image) == ELF_MAGIC
               ? variables_of_cubin(image, bytes)
               : variables_of_ptx(image, bytes);
}

static uint64_t variables_of_fat(const char *image, uint64_t bytes, uint64_t header_bytes)
{
    struct fat_entry entry;
    uint64_t most = 0;

    for (uint64_t at = header_bytes; at <= bytes && bytes - at >= sizeof(entry);) {
        __builtin_memcpy(&entry, image + at, sizeof(entry));
        uint64_t room = bytes - at;
        if (entry.header_bytes < sizeof(entry) || entry.header_bytes > room ||
            entry.bytes > room - entry.header_bytes)
            break;
        uint64_t its = entry.flags & FAT_COMPRESSED
                           ? 0
                           : variables_of_code(image + at + entry.header_bytes, entry.bytes);
        most = its > most ? its : most;
        at += entry.header_bytes + entry.bytes;
    }
    return most;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static struct alq_image measure(const char *image, uint64_t bytes)
{
    struct fat_header fat;

    if (bytes < sizeof(fat) || magic_of(image) != FAT_MAGIC)
        return (struct alq_image){bytes, variables_of_code(image, bytes)};
    __builtin_memcpy(&fat, image, sizeof(fat));
    return (struct alq_image){bytes, variables_of_fat(image, bytes, fat.header_bytes)};
}

struct alq_image alq_image_measure(const void *image)
{
    const char *at = image;
    struct fat_header fat;
    Elf64_Ehdr elf;

    if (at && magic_of(at) == WRAPPER_MAGIC) /* {magic, version, pointer to the fat binary, ...} */
        __builtin_memcpy(&at, at + 8, sizeof(at));
    if (!at)
        return (struct alq_image){0, 0};
    if (magic_of(at) == FAT_MAGIC) {
        __builtin_memcpy(&fat, at, sizeof(fat));
        return measure(at, alq_sum(fat.header_bytes, fat.bytes));
    }
    if (magic_of(at) == ELF_MAGIC) {
        __builtin_memcpy(&elf, at, sizeof(elf));
        return measure(at, elf_bytes(&elf));
    }
    return measure(at, alq_text_len(at));
}

struct alq_image alq_image_measure_file(const char *path)
{
    struct alq_image out = {0, 0};
    int fd = path ? alq_sys_open(path, 0, 0) : -1;

    if (fd < 0)
        return out;
    int64_t size = alq_sys_size(fd);
    out.bytes = size > 0 ? (uint64_t)size : 0;
    char *copy = out.bytes && out.bytes <= FILE_BYTES_MAX ? alq_sys_anon(out.bytes) : NULL;
    uint64_t have = 0;
    for (long n = 1; copy && n > 0 && have<out.bytes; have += n> 0 ? (uint64_t)n : 0)
        n = alq_sys_pread(fd, copy + have, out.bytes - have, have);
    if (copy) {
        out = measure(copy, out.bytes);
        alq_sys_munmap(copy, out.bytes);
    }
    alq_sys_close(fd);
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache file of glibc's ldconfig, see ldcache.h. Two formats: "ld.so-1.7.0" of libc5's days,
 * in front of the newer one for loaders that know only it (ldconfig -c compat, the default until
 * glibc 2.32), and "glibc-ld.so.cache1.1", whose offsets count from its own header.
 */
#include "daemon/cdi/ldcache.h"

#include <stdint.h>
#include <string.h>

#define OLD_MAGIC "ld.so-1.7.0"
#define NEW_MAGIC "glibc-ld.so.cache1.1"
#define ENTRIES_MAX (1u << 20)

/* Flags of an entry: the low byte is the kind of libc, the next the ABI (glibc, dl-cache.h). */
#define FLAG_ELF_LIBC6 0x0003
#if defined(__x86_64__)
#define FLAG_ABI 0x0300
#elif defined(__aarch64__)
#define FLAG_ABI 0x0a00
#else
#error "which ABI flag does this machine's loader look for?"
#endif

struct old_header {
    char magic[12]; /* with a NUL */
    uint32_t count;
};
#define OLD_ENTRY_BYTES 12u

struct new_header {
    char magic[20]; /* without a NUL */
    uint32_t count;
    uint32_t strings_bytes;
    uint32_t unused[5];
};

struct new_entry {
    int32_t flags;
    uint32_t name, path; /* offsets from the header */
    uint32_t os_version;
    uint64_t hwcap;
};

static int broken(struct alq_err *err, const char *what)
{
    return alq_err_set(err, ALQ_EPROTO, "ld.so.cache: %s", what);
}

/* The newer part, NULL when there is none. */
static const char *newer_part(const char *data, size_t *len)
{
    struct old_header old;
    size_t skip = 0;
    if (*len >= sizeof(old) && !memcmp(data, OLD_MAGIC, sizeof(OLD_MAGIC) - 1)) {
        memcpy(&old, data, sizeof(old));
        if (old.count > ENTRIES_MAX)
            return NULL;
        skip = sizeof(old) + (size_t)old.count * OLD_ENTRY_BYTES;
        skip = (skip + 7) & ~(size_t)7; /* the newer header is aligned for its 64-bit fields */
    }
    if (skip > *len || *len - skip < sizeof(struct new_header) ||
        memcmp(data + skip, NEW_MAGIC, sizeof(NEW_MAGIC) - 1) != 0)
        return NULL;
    *len -= skip;
    return data + skip;
}

static const char *text_at(const char *part, size_t len, uint32_t offset)
{
    return offset < len && memchr(part + offset, '\0', len - offset) ? part + offset : NULL;
}

int alq_ldcache_each(const char *data, size_t len,
                     int (*on_library)(void *arg, const char *name, const char *path), void *arg,
                     struct alq_err *err)
{
    struct new_header header;
    const char *part = newer_part(data, &len);
    if (!part)
        return broken(err, "not in the format of glibc's ldconfig");
    memcpy(&header, part, sizeof(header));
    if (header.count > ENTRIES_MAX ||
        (size_t)header.count * sizeof(struct new_entry) > len - sizeof(header))
        return broken(err, "it is cut short");
    for (uint32_t i = 0; i < header.count; i++) {
        struct new_entry entry;
        memcpy(&entry, part + sizeof(header) + (size_t)i * sizeof(entry), sizeof(entry));
        if (entry.flags != (FLAG_ABI | FLAG_ELF_LIBC6))
            continue;
        const char *name = text_at(part, len, entry.name), *path = text_at(part, len, entry.path);
        if (!name || !path)
            return broken(err, "a name lies outside of the file");
        int rc = on_library(arg, name, path);
        if (rc)
            return rc;
    }
    return 0;
}

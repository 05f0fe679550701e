/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fatbin: a header of 16 bytes, then entries, each with a header of its own. Of an entry: kind at
 * 0, header size at 4, code size at 8, architecture at 28, flags at 40.
 */
#include "common/fatbin.h"

#include <errno.h>
#include <string.h>

#define ENTRY_BYTES 64u
#define FLAGS_COMPRESSED 0xa000u /* LZ4, Zstandard */

struct header {
    uint32_t magic;
    uint16_t version, bytes;
    uint64_t rest; /* after the header */
};

static uint32_t field(const unsigned char *at)
{
    uint32_t n;

    memcpy(&n, at, sizeof(n));
    return n;
}

uint64_t sim_fatbin_bytes(const void *bytes, size_t size)
{
    struct header h;
    uint64_t all;

    if (size < sizeof(h))
        return 0;
    memcpy(&h, bytes, sizeof(h));
    if (h.magic != SIM_FATBIN_MAGIC || h.bytes < sizeof(h) ||
        __builtin_add_overflow(h.bytes, h.rest, &all))
        return 0;
    return all;
}

/* Whether the device can run it, and better than the one found so far (kind 0: none). */
static bool is_better(const struct sim_fatbin_entry *e, const struct sim_fatbin_entry *best,
                      uint32_t cc)
{
    if (e->cc > cc || (e->kind == SIM_FATBIN_CUBIN && e->cc / 10 != cc / 10))
        return false;
    if (!best->kind || e->kind != best->kind)
        return !best->kind || e->kind == SIM_FATBIN_CUBIN;
    return e->cc > best->cc;
}

int sim_fatbin_choose(const void *bytes, size_t size, uint32_t cc, struct sim_fatbin_entry *entry)
{
    const unsigned char *b = bytes;
    uint64_t all = sim_fatbin_bytes(bytes, size), at;
    struct header h;

    memset(entry, 0, sizeof(*entry));
    if (all == 0 || all > size)
        return -EINVAL;
    memcpy(&h, bytes, sizeof(h));
    for (at = h.bytes; at < all;) {
        struct sim_fatbin_entry e;
        uint32_t header_bytes;
        uint64_t code_bytes;

        if (all - at < ENTRY_BYTES)
            return -EINVAL;
        header_bytes = field(b + at + 4);
        memcpy(&code_bytes, b + at + 8, sizeof(code_bytes));
        if (header_bytes < ENTRY_BYTES || header_bytes > all - at ||
            code_bytes > all - at - header_bytes)
            return -EINVAL;
        e = (struct sim_fatbin_entry){.kind = b[at],
                                      .cc = field(b + at + 28),
                                      .is_compressed = field(b + at + 40) & FLAGS_COMPRESSED,
                                      .offset = at + header_bytes,
                                      .bytes = code_bytes};
        if ((e.kind == SIM_FATBIN_PTX || e.kind == SIM_FATBIN_CUBIN) && is_better(&e, entry, cc))
            *entry = e;
        at += header_bytes + code_bytes;
    }
    return entry->kind ? 0 : -ENOENT;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Usage files as containers may write them: figures stay within what a share can have. */
#include <stdlib.h>
#include <string.h>

#include "daemon/monitor/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static char head[ALQ_USAGE_HEAD_BYTES];
    const struct alq_usage_header good = {.magic = ALQ_USAGE_MAGIC,
                                          .version = ALQ_SHARE_VERSION,
                                          .header_bytes = ALQ_USAGE_HEADER_BYTES,
                                          .section_bytes = sizeof(struct alq_usage_section),
                                          .section_count = 1,
                                          .slot_count = ALQ_SLOTS,
                                          .slot_bytes = sizeof(struct alq_slot)};
    struct alq_usage usage = {0};
    const size_t counters = ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, counters);
    /* The first byte says whether the header is whole, so that what is behind it is reached. */
    int is_whole = len && (data[0] & 1);
    memset(head, 0, sizeof(head));
    memcpy(head, &good, sizeof(good));
    if (len)
        data++, len--;
    size_t at = is_whole ? counters : 0, n = len < sizeof(head) - at ? len : sizeof(head) - at;
    memcpy(head + at, data, n);
    usage.flaw = alq_usage_judge(head, &usage);
    for (; !usage.flaw && len >= sizeof(struct alq_slot); len -= sizeof(struct alq_slot)) {
        struct alq_slot slot;
        memcpy(&slot, data, sizeof(slot));
        data += sizeof(slot);
        usage.flaw = alq_usage_add_slot(&slot, NULL, &usage);
    }
    if (!usage.flaw && (usage.counted_bytes > 1ull << 50 || usage.overhead_bytes > 1ull << 50 ||
                        usage.counters.charged_ns > 1ull << 62))
        abort();
    return 0;
}

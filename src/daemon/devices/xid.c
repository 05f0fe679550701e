/* SPDX-License-Identifier: Apache-2.0 */
/* The table of XIDs, see xid.h. Pure. */
#include "daemon/devices/xid.h"

#include <stddef.h>

static const struct {
    uint64_t first, last;
    struct alq_xid xid;
} rows[] = {
#define XID(first, last, class, text) {first, last, {ALQ_XID_##class, text}},
#include "daemon/devices/xid.def"
#undef XID
};

struct alq_xid alq_xid_find(uint64_t number)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (number >= rows[i].first && number <= rows[i].last)
            return rows[i].xid;
    }
    return (struct alq_xid){ALQ_XID_RESET, "an error that this version does not know"};
}

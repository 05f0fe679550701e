/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's XID numbers mean for new claims (xid.def). Pure functions; any thread.
 */
#ifndef ALQ_DAEMON_DEVICES_XID_H
#define ALQ_DAEMON_DEVICES_XID_H

#include <stdint.h>

enum alq_xid_class {
    ALQ_XID_IGNORED,     /* nothing is to be done */
    ALQ_XID_APPLICATION, /* a program's own error, which ended that program */
    ALQ_XID_RESET,       /* the GPU needs a reset, or its driver a reload */
    ALQ_XID_REBOOT,      /* the node needs a reboot */
};

struct alq_xid {
    enum alq_xid_class class;
    const char *text;
};

/* A number that is not known needs a reset: better one GPU too few than pods on a broken one. */
struct alq_xid alq_xid_find(uint64_t number);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation given to a stream: what stands in a client's ring and what the model is fed with.
 * Fixed width, part of SIM_LAYOUT_VERSION. A stream is an index of the client; its operations,
 * opening and closing included, are numbered from 1 for as long as the index is used, also by later
 * streams.
 */
#ifndef SIM_MODEL_OP_H
#define SIM_MODEL_OP_H

#include <assert.h>
#include <stdint.h>

enum sim_op_kind {
    SIM_OP_OPEN = 1, /* of a closed index: target = context number, blocks = device, value =
                        priority + SIM_PRIORITY_ZERO, flags of a stream */
    SIM_OP_CLOSE,    /* when all before is done, nothing may follow */
    SIM_OP_KERNEL,   /* value = ns with all the SMs it can use, blocks = its grid */
    SIM_OP_COPY,     /* value = ns on a copy engine */
    SIM_OP_EVENT,    /* target = event cell, value = record number */
    SIM_OP_WAIT,     /* until operation number value of stream target is done */
    SIM_OP_HOST,     /* until the client signals it */
    SIM_OP_MARK,     /* nothing; done when its turn comes */
};

/* Flags of an OPEN */
#define SIM_STREAM_LEGACY 1u       /* the context's legacy default stream */
#define SIM_STREAM_NON_BLOCKING 2u /* does not synchronise with it */

/* Flags of the others */
#define SIM_OP_UNCOUNTED 1u /* KERNEL: a fill or copy, not a launch */
#define SIM_OP_SIGNALLED 2u /* KERNEL: runs until the client signals it, value does not count */
#define SIM_OP_AFTER_ALL 4u /* MARK: after every earlier operation of the context */
#define SIM_OP_AFTER_BLOCKING 8u /* MARK: after those of the legacy and the blocking streams */

#define SIM_STREAMS 16384u /* indices of a client */

#define SIM_PRIORITY_ZERO 64u
#define SIM_DURATION_MAX_NS (1ull << 50) /* 13 days; longer is that */

struct sim_op {
    uint64_t submit_ns;
    uint64_t value;
    uint32_t blocks;
    uint32_t target;
    uint32_t stream;
    uint8_t kind;
    uint8_t flags;
    uint16_t reserved;
};

static_assert(sizeof(struct sim_op) == 32, "entry of the ring");

#endif

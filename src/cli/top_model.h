/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What aliquot top shows: rows made of the daemon's answers, with their history, in an order. No
 * I/O. One thread.
 */
#ifndef ALQ_CLI_TOP_MODEL_H
#define ALQ_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define ALQ_TOP_HISTORY 64u
#define ALQ_TOP_UNKNOWN (-1)

enum alq_top_kind { ALQ_TOP_GPU, ALQ_TOP_SHARE, ALQ_TOP_PROCESS, ALQ_TOP_KINDS };
enum alq_top_sort { ALQ_TOP_BY_MEMORY, ALQ_TOP_BY_COMPUTE, ALQ_TOP_BY_NAME, ALQ_TOP_SORTS };
extern const char *const alq_top_sort_names[ALQ_TOP_SORTS];

struct alq_top_row {
    enum alq_top_kind kind;
    char id[80];    /* what it is known again by: UUID, share's id, PID and UUID */
    char name[160]; /* printable ASCII */
    char note[160]; /* what stands behind the figures; printable ASCII */
    int64_t memory_bytes, memory_limit_bytes; /* ALQ_TOP_UNKNOWN; a limit of 0: none */
    int compute_pct, compute_limit_pct;       /* likewise */
    int processes;                            /* ALQ_TOP_UNKNOWN */
    int is_flawed;                            /* a fault, or figures that are none */
    uint8_t history[ALQ_TOP_HISTORY];         /* compute_pct, the oldest first */
    unsigned history_count;
    int is_seen; /* the model's own */
};

struct alq_top_model {
    struct alq_top_row *rows; /* owned; GPUs, then shares, then processes, each in order */
    size_t count, size;
    size_t counts[ALQ_TOP_KINDS];
    enum alq_top_sort sort;
    int is_reversed;
};

/* Takes over what the daemon says of GPUs, shares and processes ({"gpus": [...]} and so on; NULL:
 * nothing); who is not in it any more goes. -1: out of memory, some are missing. */
int alq_top_update(struct alq_top_model *model, const json_t *gpus, const json_t *shares,
                   const json_t *processes);
/* After a change of sort or is_reversed. */
void alq_top_order(struct alq_top_model *model);
void alq_top_clear(struct alq_top_model *model);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of aliquot top, see top_model.h.
 */
#include "cli/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

const char *const alq_top_sort_names[ALQ_TOP_SORTS] = {"memory", "compute", "name"};

static int64_t number(const json_t *object, const char *path)
{
    const json_t *value = alq_json_at(object, path);
    return json_is_integer(value) ? json_integer_value(value) : ALQ_TOP_UNKNOWN;
}

/* Names come from programs, too (comm): no byte of them may command the terminal. */
static void set_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
    for (char *c = to; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static struct alq_top_row *row_of(struct alq_top_model *m, enum alq_top_kind kind, const char *id)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->rows[i].kind == kind && !strcmp(m->rows[i].id, id))
            return &m->rows[i];
    if (m->count == m->size) {
        size_t size = m->size ? m->size * 2 : 32;
        struct alq_top_row *rows = realloc(m->rows, size * sizeof(*rows));
        if (!rows)
            return NULL;
        m->rows = rows;
        m->size = size;
    }
    struct alq_top_row *row = &m->rows[m->count++];
    *row = (struct alq_top_row){.kind = kind};
    snprintf(row->id, sizeof(row->id), "%s", id);
    return row;
}

static void see(struct alq_top_row *row)
{
    row->is_seen = 1;
    if (row->history_count == ALQ_TOP_HISTORY)
        memmove(row->history, row->history + 1, --row->history_count);
    int pct = row->compute_pct < 0 ? 0 : row->compute_pct > 100 ? 100 : row->compute_pct;
    row->history[row->history_count++] = (uint8_t)pct;
}

static int take_gpu(struct alq_top_model *m, const json_t *gpu)
{
    struct alq_top_row *row = row_of(m, ALQ_TOP_GPU, alq_json_text(gpu, "uuid"));
    if (!row)
        return -1;
    set_text(row->name, sizeof(row->name), alq_json_text(gpu, "device"));
    row->is_flawed = *alq_json_text(gpu, "fault") != '\0';
    set_text(row->note, sizeof(row->note),
             row->is_flawed ? alq_json_text(gpu, "fault") : alq_json_text(gpu, "product"));
    row->memory_bytes = number(gpu, "memoryUsedBytes");
    row->memory_limit_bytes = number(gpu, "memoryTotalBytes");
    row->compute_pct = (int)number(gpu, "utilizationPercent");
    row->compute_limit_pct = 100;
    row->processes = 0;
    see(row);
    return 0;
}

static int take_share(struct alq_top_model *m, const json_t *share)
{
    char name[sizeof(((struct alq_top_row *)0)->name)];
    struct alq_top_row *row = row_of(m, ALQ_TOP_SHARE, alq_json_text(share, "id"));
    int is_enforced = json_is_true(json_object_get(share, "enforced"));
    if (!row)
        return -1;
    if (*alq_json_text(share, "claim.name"))
        snprintf(name, sizeof(name), "%s/%s", alq_json_text(share, "claim.namespace"),
                 alq_json_text(share, "claim.name"));
    else
        snprintf(name, sizeof(name), "%s", alq_json_text(share, "id"));
    set_text(row->name, sizeof(row->name), name);
    set_text(row->note, sizeof(row->note), alq_json_text(share, "id"));
    row->is_flawed = *alq_json_text(share, "usage.error") != '\0';
    row->memory_bytes = number(share, "usage.countedBytes");
    if (row->memory_bytes >= 0 && number(share, "usage.overheadBytes") > 0)
        row->memory_bytes += number(share, "usage.overheadBytes");
    if (!is_enforced)
        row->memory_bytes = number(share, "usage.physicalBytes");
    row->memory_limit_bytes = is_enforced ? number(share, "limits.memoryBytes") : 0;
    row->compute_pct = (int)number(share, "usage.usedPercent");
    row->compute_limit_pct = is_enforced ? (int)number(share, "limits.cores") : 0;
    row->processes = (int)number(share, "usage.processes");
    see(row);
    return 0;
}

static const struct alq_top_row *share_of(const struct alq_top_model *m, const char *id)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->rows[i].kind == ALQ_TOP_SHARE && !strcmp(m->rows[i].id, id))
            return &m->rows[i];
    return NULL;
}

static int take_process(struct alq_top_model *m, const json_t *process)
{
    char id[80], name[64];
    snprintf(id, sizeof(id), "%lld/%s", (long long)number(process, "pid"),
             alq_json_text(process, "gpu"));
    struct alq_top_row *row = row_of(m, ALQ_TOP_PROCESS, id);
    const struct alq_top_row *share = share_of(m, alq_json_text(process, "share"));
    if (!row)
        return -1;
    snprintf(name, sizeof(name), "%lld %s", (long long)number(process, "pid"),
             alq_json_text(process, "command"));
    set_text(row->name, sizeof(row->name), name);
    set_text(row->note, sizeof(row->note), share ? share->name : "no share");
    row->memory_bytes = number(process, "memoryBytes");
    row->memory_limit_bytes = share ? share->memory_limit_bytes : 0;
    row->compute_pct = (int)number(process, "usedPercent");
    row->compute_limit_pct = share ? share->compute_limit_pct : 0;
    row->processes = ALQ_TOP_UNKNOWN;
    see(row);
    for (size_t i = 0; i < m->count; i++)
        if (m->rows[i].kind == ALQ_TOP_GPU && !strcmp(m->rows[i].id, alq_json_text(process, "gpu")))
            m->rows[i].processes++;
    return 0;
}

static int take_all(struct alq_top_model *m, const json_t *answer, const char *key,
                    int (*take)(struct alq_top_model *m, const json_t *item))
{
    int rc = 0;
    size_t i;
    const json_t *item;
    json_array_foreach (json_object_get(answer, key), i, item)
        rc |= take(m, item);
    return rc;
}

int alq_top_update(struct alq_top_model *m, const json_t *gpus, const json_t *shares,
                   const json_t *processes)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->count; i++)
        m->rows[i].is_seen = 0;
    int rc = take_all(m, gpus, "gpus", take_gpu) | take_all(m, shares, "shares", take_share) |
             take_all(m, processes, "processes", take_process);
    memset(m->counts, 0, sizeof(m->counts));
    for (size_t i = 0; i < m->count; i++)
        if (m->rows[i].is_seen) {
            m->counts[m->rows[i].kind]++;
            m->rows[kept++] = m->rows[i];
        }
    m->count = kept;
    alq_top_order(m);
    return rc;
}

/* Figures the largest first, names from A; equals by name, and then as they are known. */
static int compare(const void *x, const void *y, void *model)
{
    const struct alq_top_model *m = model;
    const struct alq_top_row *a = x, *b = y;
    int64_t by = 0;
    if (a->kind != b->kind)
        return (int)a->kind - (int)b->kind;
    if (a->kind == ALQ_TOP_GPU)
        return strcmp(a->name, b->name);
    if (m->sort == ALQ_TOP_BY_MEMORY)
        by = b->memory_bytes - a->memory_bytes;
    else if (m->sort == ALQ_TOP_BY_COMPUTE)
        by = b->compute_pct - a->compute_pct;
    if (!by)
        by = strcmp(a->name, b->name);
    if (!by)
        by = strcmp(a->id, b->id);
    int sign = by < 0 ? -1 : by > 0;
    return m->is_reversed ? -sign : sign;
}

void alq_top_order(struct alq_top_model *m)
{
    if (m->count)
        qsort_r(m->rows, m->count, sizeof(*m->rows), compare, m);
}

void alq_top_clear(struct alq_top_model *m)
{
    free(m->rows);
    *m = (struct alq_top_model){0};
}

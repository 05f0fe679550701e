/* SPDX-License-Identifier: Apache-2.0 */
/* The watched shares, see shares.h. An array of pointers sorted by id. */
#include "daemon/monitor/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/monitor/metrics.h"
#include "daemon/prepare/prepare.h"
#include "daemon/state/claim_spec.h"

#define LABELS_BYTES 2048 /* every value at its longest, and the names */

static void watched_free(struct alq_watched *w)
{
    if (w)
        free(w->labels);
    free(w);
}

static int by_id(const void *a, const void *b)
{
    const struct alq_watched *const *x = a, *const *y = b;
    return strcmp((*x)->id, (*y)->id);
}

static int id_is(const void *key, const void *element)
{
    const struct alq_watched *const *w = element;
    return strcmp(key, (*w)->id);
}

struct alq_watched *alq_shares_find(const struct alq_shares *shares, const char *id)
{
    struct alq_watched **at =
        shares->count ? bsearch(id, shares->all, shares->count, sizeof(*shares->all), id_is) : NULL;
    return at ? *at : NULL;
}

/* ---- labels -----------------------------------------------------------------------------------
 */

static int set_labels(struct alq_watched *w, const char *labels, size_t fixed)
{
    char *copy = w->labels && !strcmp(w->labels, labels) ? w->labels : strdup(labels);
    if (!copy)
        return -1;
    if (copy != w->labels)
        free(w->labels);
    w->labels = copy;
    w->fixed = (uint16_t)fixed;
    return 0;
}

static void label_user(struct alq_watched *w)
{
    char labels[LABELS_BYTES];
    memcpy(labels, w->labels, w->fixed);
    labels[w->fixed] = '\0';
    alq_metrics_label(labels, sizeof(labels), "pod", w->pod ? w->pod : "");
    alq_metrics_label(labels, sizeof(labels), "container", w->container ? w->container : "");
    set_labels(w, labels, w->fixed); /* without memory the old ones stay */
}

void alq_shares_set_users(struct alq_shares *shares, const struct alq_share_user *users,
                          size_t count)
{
    for (size_t i = 0; i < shares->count; i++)
        shares->all[i]->pod = shares->all[i]->container = NULL;
    for (size_t i = 0; i < count; i++) {
        struct alq_watched *w = alq_shares_find(shares, users[i].share_id);
        if (!w)
            continue;
        if (!w->pod) {
            w->pod = users[i].pod;
            w->container = users[i].container;
        } else if (strcmp(w->pod, users[i].pod) != 0) {
            w->pod = w->container = "";
        } else if (strcmp(w->container, users[i].container) != 0) {
            w->container = "";
        }
    }
    for (size_t i = 0; i < shares->count; i++)
        label_user(shares->all[i]);
}

uint64_t alq_watched_overhead(const struct alq_watched *w)
{
    int64_t bytes = (int64_t)w->f.usage.overhead_bytes + w->f.correction.overhead_bytes;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* The labels that a claim fixes; who uses it is kept while they are the same. */
static int label(struct alq_watched *w, const struct alq_claim_spec *claim,
                 const struct alq_share_spec *share)
{
    char labels[LABELS_BYTES] = "";
    alq_metrics_label(labels, sizeof(labels), "namespace", claim->namespace_);
    alq_metrics_label(labels, sizeof(labels), "claim", claim->name ? claim->name : "");
    alq_metrics_label(labels, sizeof(labels), "request", share->request);
    alq_metrics_label(labels, sizeof(labels), "uuid", share->gpu_uuid);
    alq_metrics_label(labels, sizeof(labels), "device", share->device);
    size_t fixed = strlen(labels);
    if (w->labels && w->fixed == fixed && !strncmp(w->labels, labels, fixed))
        return 0;
    alq_metrics_label(labels, sizeof(labels), "pod", "");
    alq_metrics_label(labels, sizeof(labels), "container", "");
    return set_labels(w, labels, fixed);
}

/* ---- the table --------------------------------------------------------------------------------
 */

struct sync {
    struct alq_shares *shares;
    size_t old; /* the first so many are sorted; new ones come behind them */
    int rc;
};

static struct alq_watched *add(struct sync *s, const char *id)
{
    struct alq_shares *t = s->shares;
    if (t->count == t->size) {
        size_t size = t->size ? t->size * 2 : 16;
        void *all = realloc(t->all, size * sizeof(*t->all));
        if (!all)
            return NULL;
        t->all = all;
        t->size = size;
    }
    struct alq_watched *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    snprintf(w->id, sizeof(w->id), "%s", id);
    t->all[t->count++] = w;
    return w;
}

static void see_share(struct sync *s, const struct alq_claim_spec *claim,
                      const struct alq_share_spec *share)
{
    const struct alq_shares known = {s->shares->cfg, s->shares->all, s->old, 0};
    struct alq_watched *w = alq_shares_find(&known, share->share_id);
    if (!w)
        w = add(s, share->share_id);
    if (!w) {
        s->rc = -1;
        return;
    }
    if (strcmp(w->gpu_uuid, share->gpu_uuid) != 0)
        memset(&w->f, 0, sizeof(w->f)); /* allocated anew elsewhere */
    snprintf(w->gpu_uuid, sizeof(w->gpu_uuid), "%s", share->gpu_uuid);
    w->is_admin = (uint8_t)(share->is_admin != 0);
    w->is_enforced = (uint8_t)(alq_share_is_enforced(s->shares->cfg, share) != 0);
    w->is_exclusive = !w->is_enforced && !w->is_admin;
    w->limit_bytes = share->is_admin ? 0 : alq_share_memory_in_force(share);
    w->cores_pct = share->is_admin ? 0 : alq_share_cores_in_force(share);
    w->is_seen = label(w, claim, share) == 0;
    if (!w->is_seen)
        s->rc = -1;
}

static void see_claim(void *arg, const struct alq_claim_spec *claim)
{
    for (uint32_t i = 0; i < claim->share_count; i++)
        see_share(arg, claim, &claim->shares[i]);
}

int alq_shares_sync(struct alq_shares *shares, const struct alq_prepare *prepare)
{
    struct sync s = {.shares = shares, .old = shares->count};
    size_t kept = 0;
    for (size_t i = 0; i < shares->count; i++)
        shares->all[i]->is_seen = 0;
    if (prepare)
        alq_prepare_each(prepare, see_claim, &s);
    for (size_t i = 0; i < shares->count; i++) {
        if (shares->all[i]->is_seen)
            shares->all[kept++] = shares->all[i];
        else
            watched_free(shares->all[i]);
    }
    shares->count = kept;
    if (kept)
        qsort(shares->all, kept, sizeof(*shares->all), by_id);
    if (!kept) {
        free(shares->all);
        shares->all = NULL;
        shares->size = 0;
    }
    return s.rc;
}

void alq_shares_clear(struct alq_shares *shares)
{
    alq_shares_sync(shares, NULL);
}

void alq_shares_promised(const struct alq_shares *shares, const char *gpu_uuid,
                         uint64_t *memory_bytes, uint32_t *cores_pct)
{
    *memory_bytes = 0;
    *cores_pct = 0;
    for (size_t i = 0; i < shares->count; i++) {
        const struct alq_watched *w = shares->all[i];
        if (strcmp(w->gpu_uuid, gpu_uuid) != 0)
            continue;
        *memory_bytes += w->limit_bytes;
        *cores_pct += w->cores_pct;
    }
}

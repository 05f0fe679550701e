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
    if (w) {
        free(w->pod);
        free(w->container);
        free(w->f);
    }
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

/* Text of one share's labels; *fixed: how much of it comes before pod and container. */
static void write_labels(const struct alq_watched *w, char *labels, uint32_t *fixed)
{
    labels[0] = '\0';
    alq_metrics_label(labels, LABELS_BYTES, "namespace", w->claim->namespace_);
    alq_metrics_label(labels, LABELS_BYTES, "claim", w->claim->name ? w->claim->name : "");
    alq_metrics_label(labels, LABELS_BYTES, "request", w->share->request);
    alq_metrics_label(labels, LABELS_BYTES, "uuid", w->gpu_uuid);
    alq_metrics_label(labels, LABELS_BYTES, "device", w->share->device);
    *fixed = (uint32_t)strlen(labels);
    alq_metrics_label(labels, LABELS_BYTES, "pod", w->pod ? w->pod : "");
    alq_metrics_label(labels, LABELS_BYTES, "container", w->container ? w->container : "");
}

int alq_shares_label(struct alq_shares *shares)
{
    char one[LABELS_BYTES];
    size_t bytes = 0, at = 0;
    uint32_t fixed;
    for (size_t i = 0; i < shares->count; i++) {
        write_labels(shares->all[i], one, &fixed);
        bytes += strlen(one) + 1;
    }
    shares->labels = malloc(bytes + 1);
    if (!shares->labels)
        return -1;
    for (size_t i = 0; i < shares->count; i++) {
        struct alq_watched *w = shares->all[i];
        write_labels(w, one, &w->fixed);
        w->labels = memcpy(shares->labels + at, one, strlen(one) + 1);
        at += strlen(one) + 1;
    }
    return 0;
}

void alq_shares_unlabel(struct alq_shares *shares)
{
    for (size_t i = 0; i < shares->count; i++)
        shares->all[i]->labels = NULL;
    free(shares->labels);
    shares->labels = NULL;
}

/* ---- users ------------------------------------------------------------------------------------
 */

static int is_text(const char *have, const char *text)
{
    return have && !strcmp(have, text);
}

static void set_text(char **text, const char *value)
{
    if (value && is_text(*text, value))
        return;
    free(*text);
    *text = value ? strdup(value) : NULL; /* without memory the label is empty */
}

static void tell_user(struct alq_watched *w, const struct alq_share_user *user)
{
    if (!w->is_told) {
        set_text(&w->pod, user->pod);
        set_text(&w->container, user->container);
    } else if (!is_text(w->pod, user->pod)) {
        set_text(&w->pod, NULL);
        set_text(&w->container, NULL);
    } else if (!is_text(w->container, user->container)) {
        set_text(&w->container, NULL);
    }
    w->is_told = 1;
}

void alq_shares_set_users(struct alq_shares *shares, const struct alq_share_user *users,
                          size_t count)
{
    for (size_t i = 0; i < shares->count; i++)
        shares->all[i]->is_told = 0;
    for (size_t i = 0; i < count; i++) {
        struct alq_watched *w = alq_shares_find(shares, users[i].share_id);
        if (w)
            tell_user(w, &users[i]);
    }
    for (size_t i = 0; i < shares->count; i++) {
        struct alq_watched *w = shares->all[i];
        if (w->is_told)
            continue;
        set_text(&w->pod, NULL);
        set_text(&w->container, NULL);
    }
}

/* ---- figures ----------------------------------------------------------------------------------
 */

int alq_watched_is_enforced(const struct alq_shares *shares, const struct alq_watched *w)
{
    return alq_share_is_enforced(shares->cfg, w->share);
}

uint64_t alq_watched_limit_bytes(const struct alq_watched *w)
{
    return w->share->is_admin ? 0 : alq_share_memory_in_force(w->share);
}

uint32_t alq_watched_cores_pct(const struct alq_watched *w)
{
    return w->share->is_admin ? 0 : alq_share_cores_in_force(w->share);
}

static const struct alq_figures unused;

const struct alq_figures *alq_watched_figures(const struct alq_watched *w)
{
    return w->f ? w->f : &unused;
}

void alq_watched_get(const struct alq_watched *w, struct alq_figures *f)
{
    *f = *alq_watched_figures(w);
    f->is_correction_known = w->is_read;
}

void alq_watched_set(struct alq_watched *w, const struct alq_figures *f)
{
    struct alq_figures kept = *f;
    /* Bytes: were some padding to differ, figures of nothing would be kept, no more. */
    const void *bytes = &kept, *bytes_unused = &unused;
    kept.is_correction_known = 0;
    if (!w->f && memcmp(bytes, bytes_unused, sizeof(kept)) != 0 && !(w->f = malloc(sizeof(*w->f))))
        return;
    if (w->f)
        *w->f = kept;
    w->is_read = f->is_correction_known;
}

uint64_t alq_watched_overhead(const struct alq_watched *w)
{
    const struct alq_figures *f = alq_watched_figures(w);
    int64_t bytes = (int64_t)f->usage.overhead_bytes + f->correction_bytes;
    return bytes > 0 ? (uint64_t)bytes : 0;
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

/* On what terms it shares compute with the others of its GPU. */
static void see_terms(const struct alq_shares *shares, struct alq_watched *w)
{
    const uint32_t policy = w->share->tuning.policy, cores_pct = alq_watched_cores_pct(w);
    w->lend.cores_pct = cores_pct;
    w->lend.is_measured = alq_watched_is_enforced(shares, w) && policy != ALQ_POLICY_NONE &&
                          cores_pct < ALQ_CORES_ALL;
    w->lend.is_borrower = w->lend.is_measured && (policy == ALQ_POLICY_BURST || !cores_pct);
    w->lend.rank = (uint8_t)(!cores_pct ? ALQ_LEND_RANKS - 1 : w->share->tuning.priority ? 1 : 0);
}

static void see_share(struct sync *s, const struct alq_claim_spec *claim,
                      const struct alq_share_spec *share)
{
    const struct alq_shares known = {.all = s->shares->all, .count = s->old};
    struct alq_watched *w = alq_shares_find(&known, share->share_id);
    if (!w)
        w = add(s, share->share_id);
    if (!w) {
        s->rc = -1;
        return;
    }
    if (strcmp(w->gpu_uuid, share->gpu_uuid) != 0) { /* allocated anew elsewhere */
        free(w->f);
        w->f = NULL;
        w->is_read = 0;
        memset(&w->lend, 0, sizeof(w->lend));
    }
    snprintf(w->gpu_uuid, sizeof(w->gpu_uuid), "%s", share->gpu_uuid);
    w->claim = claim;
    w->share = share;
    see_terms(s->shares, w);
    w->is_seen = 1;
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
        *memory_bytes += alq_watched_limit_bytes(w);
        *cores_pct += alq_watched_cores_pct(w);
    }
}

uint32_t alq_watched_lent_pct(const struct alq_shares *shares, const struct alq_watched *w)
{
    for (size_t i = 0; i < shares->count; i++) {
        const struct alq_watched *other = shares->all[i];
        if (other != w && other->lend.borrowed_pct && !strcmp(other->gpu_uuid, w->gpu_uuid))
            return w->lend.cores_pct > w->lend.kept_pct ? w->lend.cores_pct - w->lend.kept_pct : 0;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of claims: what the kubelet asks becomes operations that take effect per claim
 * in order of arrival, and in parallel for different claims (contract 6). It asks the API server
 * for the claim, checks that the GPUs have room for what is promised, and has workers make the
 * files. Loop thread only.
 *
 * An Unprepare cancels every Prepare of its claim that came before it. A Prepare is judged by a GET
 * made when its turn has come. Memory and cores promised on a GPU never exceed what it has; a
 * Prepare without room waits for an Unprepare, and near its deadline is refused with the names of
 * the holders. Holders whose claims no longer exist are found at once and unprepared (admit.c,
 * which also says who may pass whom).
 */
#ifndef ALQ_DAEMON_PREPARE_PREPARE_H
#define ALQ_DAEMON_PREPARE_PREPARE_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/prepare/allocation.h"
#include "daemon/prepare/files.h"
#include "daemon/prepare/lookup.h"

struct alq_work;
struct alq_prepare;

/* The end of an operation. err NULL: success; claim (borrowed) is what is prepared, NULL for
 * Unprepare. May come before the call that asked returns. */
typedef void (*alq_prepare_cb)(void *arg, const struct alq_claim_spec *claim,
                               const struct alq_err *err);

/* Who wants to know how the claims fare; told after the kubelet. Everything is borrowed. */
struct alq_prepare_watcher {
    /* Prepared now, or known to be from earlier; object: the claim, as the API server just gave it
     */
    void (*prepared)(void *arg, const struct alq_claim_spec *claim, const json_t *object);
    /* A Prepare was answered with an error about a claim that exists, or one that an earlier life
     * had begun was rolled back; err begins with its name. */
    void (*refused)(void *arg, const struct alq_claim_id *id, const struct alq_err *err);
    /* The same, whatever the reason; object: the claim, NULL where the API server gave none. */
    void (*failed)(void *arg, const struct alq_claim_id *id, const json_t *object,
                   const struct alq_err *err);
    /* The share's GPU is no longer among the node's; told once while it is gone. */
    void (*lost)(void *arg, const struct alq_claim_spec *claim, const struct alq_share_spec *share);
    /* Its promise is over. */
    void (*unprepared)(void *arg, const char *uid);
    void *arg;
};

/* Everything passed outlives it, but clock and source, which are copied. NULL when out of memory.
 */
struct alq_prepare *alq_prepare_new(const struct alq_config *cfg, const struct alq_clock *clock,
                                    struct alq_work *work, struct alq_files *files,
                                    const struct alq_claim_source *source, const char *boot_id,
                                    struct alq_err *err);
/* Open operations end with ALQ_ECANCELED. No job may be running: free the workers first. NULL-safe.
 */
void alq_prepare_free(struct alq_prepare *prepare);

/* One watcher, copied, before alq_prepare_start. */
void alq_prepare_watch(struct alq_prepare *prepare, const struct alq_prepare_watcher *watcher);

/* A record that was found; its claim is taken over, or what it left is taken away. Blocking: before
 * alq_prepare_start, by one thread at a time. */
int alq_prepare_adopt(struct alq_prepare *prepare, struct alq_record *record, struct alq_err *err);

/* After the last record: removes the files that no record knows. Blocking, as alq_prepare_adopt. */
void alq_prepare_sweep(struct alq_prepare *prepare);

/* From here on the loop's: rebuilds what was lost, then looks up the claims one by one and
 * unprepares those that are gone. */
void alq_prepare_start(struct alq_prepare *prepare);

/* The node's GPUs (copied; named). err non-NULL: there is no reading, for this reason. */
void alq_prepare_set_gpus(struct alq_prepare *prepare, const struct alq_gpu_list *list,
                          const struct alq_err *err);

/* The last reading; why is set where there is none. */
const struct alq_gpu_list *alq_prepare_gpus(const struct alq_prepare *prepare, struct alq_err *why);

/* The prepared claims that have a share of a GPU. */
void alq_prepare_each_on(const struct alq_prepare *prepare, const char *gpu_uuid,
                         void (*each)(void *arg, const struct alq_claim_spec *claim), void *arg);

/* deadline_ns on CLOCK_MONOTONIC, INT64_MAX for none. Every error is retryable by the kubelet. */
void alq_prepare_claim(struct alq_prepare *prepare, const struct alq_claim_id *id,
                       int64_t deadline_ns, alq_prepare_cb cb, void *arg);
void alq_unprepare_claim(struct alq_prepare *prepare, const struct alq_claim_id *id,
                         alq_prepare_cb cb, void *arg);

/* A share's limits as the operator wants them; what is not given stays. */
struct alq_limit_change {
    int is_reset; /* to what was allocated */
    int has_memory, has_cores;
    uint64_t memory_bytes; /* ALQ_LIMIT_MEMORY_MIN_BYTES to what the GPU has */
    uint32_t cores_pct;
};
#define ALQ_LIMIT_MEMORY_MIN_BYTES (UINT64_C(1) << 20)

/* Takes effect in running processes, and lasts as long as the allocation, over restarts too. cb's
 * claim has it. ALQ_ENOENT: no such share; ALQ_EINVAL: out of range; ALQ_ENOTSUP: a share without
 * limits; ALQ_EBUSY: others are promised what is asked; ALQ_EAGAIN: not prepared in this boot. */
void alq_limit_share(struct alq_prepare *prepare, const char *share_id,
                     const struct alq_limit_change *change, alq_prepare_cb cb, void *arg);

/* Calls each(arg, ...) for all claims with a promise; is_prepared: its files were made in this
 * boot; removals_failed: how often their removal has failed. */
void alq_prepare_each_state(const struct alq_prepare *prepare,
                            void (*each)(void *arg, const struct alq_claim_spec *claim,
                                         int is_prepared, unsigned removals_failed),
                            void *arg);

/* Calls each(arg, ...) for every Prepare that is not answered yet: its claim, the object (NULL: the
 * API server has not given it yet), what it waits for, and for how long. */
void alq_prepare_each_open(const struct alq_prepare *prepare,
                           void (*each)(void *arg, const struct alq_claim_id *id,
                                        const json_t *object, const char *waits_for,
                                        int64_t waited_ns),
                           void *arg);

/* Claims with a promise in force. */
unsigned alq_prepare_count(const struct alq_prepare *prepare);
/* Each of them; claim is borrowed for the call. */
void alq_prepare_each(const struct alq_prepare *prepare,
                      void (*see)(void *arg, const struct alq_claim_spec *claim), void *arg);
/* Tells when a promise has begun or ended; one listener, NULL: none. */
void alq_prepare_on_change(struct alq_prepare *prepare, void (*on_change)(void *arg), void *arg);

#endif

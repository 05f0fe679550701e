/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with each GPU, from NVML's events and readings: when a fault begins, how grave it
 * is, and when it is over (docs/health.md has the rules). A plain function of what it is fed and of
 * the time: no clock, no I/O, no NVML. Not thread-safe; whoever owns it calls it.
 */
#ifndef ALQ_DAEMON_DEVICES_FAULTS_H
#define ALQ_DAEMON_DEVICES_FAULTS_H

#include "base/err.h"
#include "daemon/domain.h"

struct alq_faults;

/* A fault began, changed its gravity, or is over (effect ALQ_FAULT_NONE; reason says why). */
typedef void (*alq_faults_cb)(void *arg, const char *uuid, enum alq_fault_kind kind,
                              const struct alq_fault *fault);

struct alq_faults_rules {
    int64_t hold_s;  /* how long a GPU must be well before a fault that made it unfit is over */
    int64_t quiet_s; /* how long a program's error is shown after the last one */
    char *const *ignored; /* XIDs that are no fault here, decimal; NULL-terminated or NULL */
};

/* NULL when out of memory. */
struct alq_faults *alq_faults_new(const struct alq_faults_rules *rules, alq_faults_cb changed,
                                  void *arg);
void alq_faults_free(struct alq_faults *faults);
/* As new. Nothing is told. */
void alq_faults_forget(struct alq_faults *faults);
void alq_faults_set_rules(struct alq_faults *faults, const struct alq_faults_rules *rules);

void alq_faults_event(struct alq_faults *faults, const struct alq_gpu_event *event, int64_t now_s);

/* A reading. load names the load of the kernel module ("" unknown): another one has reset all GPUs.
 * What the reading lacks is gone for now. */
void alq_faults_reading(struct alq_faults *faults, const struct alq_gpu_list *list,
                        const char *load, int64_t now_s);

/* Time passes: ends what is over. Returns when to come again at the latest, INT64_MAX: when
 * something happens. */
int64_t alq_faults_tick(struct alq_faults *faults, int64_t now_s);

/* Somebody who can tell says that the GPU is well: ends its faults but those that NVML shows at
 * this moment. ALQ_ENOENT: it has none. */
int alq_faults_clear(struct alq_faults *faults, const char *uuid, struct alq_err *err);

/* Writes faults[] of every GPU of the list. */
void alq_faults_fill(const struct alq_faults *faults, struct alq_gpu_list *list);

/* For the disk: malloc'ed text, NULL when out of memory. It holds of one boot only. */
char *alq_faults_save(const struct alq_faults *faults, const char *boot_id);
/* Takes what another run saved; nothing of another boot. ALQ_EPROTO: not such a text, nothing is
 * taken. Changes are not told. */
int alq_faults_load(struct alq_faults *faults, const char *text, size_t len, const char *boot_id,
                    struct alq_err *err);

#endif

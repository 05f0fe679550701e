/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When what clients give to simulated devices happens (README.md says by what rules). The caller
 * brings the clock: it pushes operations with the time of their submission, moves the model
 * forward, and is told of every operation as it is done. Nothing here knows of processes or shared
 * memory. Deterministic to the nanosecond; single-threaded; allocates with malloc. What a client
 * pushes is checked; a model never fails otherwise but for lack of memory.
 */
#ifndef SIM_MODEL_MODEL_H
#define SIM_MODEL_MODEL_H

#include <stdbool.h>

#include "model/op.h"
#include "model/usage.h"

#define SIM_SLICE_NS 2000000ull

struct sim_model;
struct sim_model_client;

struct sim_model_device {
    uint32_t sms;          /* 1 to 8,191 */
    uint32_t copy_engines; /* at least 1 */
};

/* Operation `number` of a stream was done at time_ns. In order of time; client is what
 * sim_model_client_new was given. */
typedef void sim_model_done_fn(void *client, const struct sim_op *op, uint64_t number,
                               uint64_t time_ns);

/* A machine at that time without devices and with room for so many; NULL without memory. `done` may
 * be NULL. */
struct sim_model *sim_model_new(uint32_t device_max, uint64_t now_ns, sim_model_done_fn *done);

/* Puts a device in a place, instead of one that no stream is open on; its busy time begins anew. 0,
 * -EINVAL, -EBUSY, -ENOMEM. */
int sim_model_device_set(struct sim_model *model, uint32_t index,
                         const struct sim_model_device *device);
void sim_model_free(struct sim_model *model);

/* `tag` is given to the done function. NULL without memory. */
struct sim_model_client *sim_model_client_new(struct sim_model *model, void *tag);

/* The client dies now, at the model's time: its operations are gone, its busy time is not taken
 * back from the devices. */
void sim_model_client_free(struct sim_model_client *client);

/*
 * Takes one operation, submitted at latest_ns or before: a later time counts as that, one before
 * the client's last or the model's as these. 0; -EINVAL for what makes no sense (a stream that is
 * not open, a device or kind there is none of), with nothing changed; -ENOMEM.
 */
int sim_model_push(struct sim_model_client *client, const struct sim_op *op, uint64_t latest_ns);

/* The host operation, or signalled kernel, with that number and all before it in the stream are
 * finished, as of that time. */
void sim_model_signal(struct sim_model_client *client, uint32_t stream, uint64_t number,
                      uint64_t time_ns);

/* Everything up to and including that time happens; earlier than the model's changes nothing. */
void sim_model_advance(struct sim_model *model, uint64_t now_ns);

uint64_t sim_model_now(const struct sim_model *model);

/* The time of the next change if nothing else is pushed; UINT64_MAX when nothing is pending that
 * time alone would finish. */
uint64_t sim_model_next(const struct sim_model *model);

/* Operations taken and not done, of a client. */
uint64_t sim_model_pending(const struct sim_model_client *client);

/* How many operations of a stream are done. */
uint64_t sim_model_done(const struct sim_model_client *client, uint32_t stream);

/* Operation `number` of a stream is not done before that time, whatever else is pushed, unless a
 * client dies; the model's time if it is done or not yet known. Exact when nothing else wants the
 * device. */
uint64_t sim_model_earliest(const struct sim_model_client *client, uint32_t stream,
                            uint64_t number);

/* Kernels pushed for a device. */
uint64_t sim_model_launches(const struct sim_model_client *client, uint32_t device);

/* Up to the model's time. A client's is NULL while it never opened a stream on the device. */
const struct sim_usage *sim_model_client_usage(const struct sim_model_client *client,
                                               uint32_t device);
const struct sim_usage *sim_model_device_usage(const struct sim_model *model, uint32_t device);

#endif

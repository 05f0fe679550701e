/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML reader: a child process (aliquotd-nvml, child.c) with a pipe, so that a hang, a crash, a
 * driver change or an absent driver stay there. It is a program of its own because the daemon's
 * libraries would triple its memory. The parent kills and restarts it with back-off; it never calls
 * NVML itself. Loop thread only.
 */
#ifndef ALQ_DAEMON_NVML_NVML_H
#define ALQ_DAEMON_NVML_NVML_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/nvml/protocol.h"
#include "daemon/nvml/sample.h"
#include "daemon/nvml/use.h"

struct event_base;
struct alq_nvml;

struct alq_nvml_calls {
    /*
     * The first reading and each change of it; reading is borrowed. code == 0: list is what NVML
     * has (count may be 0), names are "" and nothing is kept back yet. code != 0: there is none,
     * e.g. ALQ_ENOENT "no libnvidia-ml.so.1 below /run/nvidia/driver" or ALQ_EAGAIN "driver not
     * loaded"; the reader keeps trying and calls again only when the reason or the reading changes.
     *
     * A GPU on which NVML hangs is in the list as it was read last, with is_hanging; the others are
     * read on without it. One that has hung since the start is left out.
     */
    void (*read)(void *arg, const struct alq_nvml_reading *reading);
    /* An XID or ECC event, within about a second. */
    void (*happened)(void *arg, const struct alq_gpu_event *event);
    void *arg;
};

/* Starts the child. A missing driver is no error here. ALQ_ENOENT when its program is not
 * installed, ALQ_EIO or ALQ_ENOMEM when no child can be had at all. */
struct alq_nvml *alq_nvml_start(struct event_base *base, const struct alq_config *cfg,
                                const struct alq_nvml_calls *calls, struct alq_err *err);

/* A sample, borrowed, or taken over by leaving an empty one; NULL: there is none (no driver, or the
 * child failed). */
typedef void (*alq_nvml_sample_cb)(void *arg, struct alq_sample *sample);

/* Asks for a sample; cb is called later, once, and not by alq_nvml_stop. -1: one is being taken
 * already, or there is no reading of the GPUs to sample; cb is not called. */
int alq_nvml_sample(struct alq_nvml *nvml, alq_nvml_sample_cb cb, void *arg);

/* The use of the GPUs, likewise: a use and a sample may be wanted at the same time, and the sample
 * goes first. */
typedef void (*alq_nvml_use_cb)(void *arg, struct alq_use *use);
int alq_nvml_use(struct alq_nvml *nvml, alq_nvml_use_cb cb, void *arg);

/* Kills and reaps the child. NULL-safe. */
void alq_nvml_stop(struct alq_nvml *nvml);

/* Lets go of the driver for so long, so that its module can be unloaded or a GPU reset. The last
 * reading stands. */
void alq_nvml_release(struct alq_nvml *nvml, unsigned seconds);

#endif

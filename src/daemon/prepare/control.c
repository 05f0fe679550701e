/* SPDX-License-Identifier: Apache-2.0 */
/* Publications in control files, see control.h. One mutex for all: a publication takes
 * microseconds. */
#include "daemon/prepare/control.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* Puts together what is to be in force from what is. */
typedef void (*merge_fn)(struct alq_control_values *values, const void *what);

static void wake_all(struct alq_control *control)
{
    _Atomic uint32_t *wake = (_Atomic uint32_t *)&control->wake;
    atomic_fetch_add_explicit(wake, 1, memory_order_release);
    syscall(SYS_futex, wake, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void publish(struct alq_control *control, merge_fn merge, const void *arg)
{
    _Atomic uint32_t *sequence = (_Atomic uint32_t *)&control->sequence;
    /* Nobody else writes while we have the turn: relaxed will do for reading our own number. */
    uint32_t now = atomic_load_explicit(sequence, memory_order_relaxed);
    const struct alq_control_values *in_force = &control->values[now & 1];
    struct alq_control_values want = *in_force;
    merge(&want, arg);
    if (!memcmp(in_force, &want, sizeof(want)))
        return;
    /* A reader that still sees the last publication must not see the copy change under it. */
    atomic_thread_fence(memory_order_release);
    control->values[(now + 1) & 1] = want;
    atomic_store_explicit(sequence, now + 1, memory_order_release);
    wake_all(control);
}

static struct alq_control *map(int fd, const char *what, struct alq_err *err)
{
    void *control = mmap(NULL, ALQ_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control != MAP_FAILED)
        return control;
    alq_err_errno(err, errno, "mapping %s", what);
    return NULL;
}

static int change(int fd, merge_fn merge, const void *arg, const char *what, struct alq_err *err)
{
    struct alq_control *control = map(fd, what, err);
    if (!control)
        return err->code;
    pthread_mutex_lock(&turn);
    publish(control, merge, arg);
    pthread_mutex_unlock(&turn);
    munmap(control, ALQ_CONTROL_BYTES);
    return 0;
}

static void merge_limits(struct alq_control_values *values, const void *what)
{
    struct alq_control_values want = *(const struct alq_control_values *)what;
    want.overhead_correction_bytes = values->overhead_correction_bytes;
    want.time_correction_ppm = values->time_correction_ppm;
    *values = want;
}

int alq_control_publish(int fd, const struct alq_control_values *limits, const char *what,
                        struct alq_err *err)
{
    return change(fd, merge_limits, limits, what, err);
}

static void merge_overhead(struct alq_control_values *values, const void *what)
{
    values->overhead_correction_bytes = *(const int64_t *)what;
}

static void merge_rate(struct alq_control_values *values, const void *what)
{
    values->time_correction_ppm = *(const uint32_t *)what;
}

/* Not a byte is written to what is not whole: a store beyond the end would be a SIGBUS. */
static int check(int fd, const char *what, struct alq_err *err)
{
    struct alq_control have;
    if (pread(fd, &have, sizeof(have), 0) == (ssize_t)sizeof(have) &&
        have.magic == ALQ_CONTROL_MAGIC && have.version == ALQ_SHARE_VERSION)
        return 0;
    return alq_err_set(err, ALQ_EPROTO, "%s is no control file", what);
}

int alq_control_correct(int fd, int64_t overhead_bytes, const char *what, struct alq_err *err)
{
    int rc = check(fd, what, err);
    return rc ? rc : change(fd, merge_overhead, &overhead_bytes, what, err);
}

static void set_word(uint64_t *word, uint64_t value)
{
    atomic_store_explicit((_Atomic uint64_t *)word, value, memory_order_relaxed);
}

int alq_control_pace(int fd, const struct alq_time_correction *correction, const char *what,
                     struct alq_err *err)
{
    int rc = check(fd, what, err);
    if (rc)
        return rc;
    struct alq_control *control = map(fd, what, err);
    if (!control)
        return err->code;
    pthread_mutex_lock(&turn);
    set_word(&control->corrected_until_ns, correction->until_ns);
    set_word(&control->contended_until_ns, correction->is_contended ? correction->until_ns : 0);
    /* Who waits looks every 10 ms. */
    set_word(&control->time_credit_ns, control->time_credit_ns + (uint64_t)correction->credit_ns);
    publish(control, merge_rate, &correction->ppm);
    pthread_mutex_unlock(&turn);
    munmap(control, ALQ_CONTROL_BYTES);
    return 0;
}

int alq_control_lend(int fd, uint32_t pct, uint64_t until_ns, const char *what, struct alq_err *err)
{
    int rc = check(fd, what, err);
    if (rc)
        return rc;
    struct alq_control *control = map(fd, what, err);
    if (!control)
        return err->code;
    pthread_mutex_lock(&turn);
    _Atomic uint64_t *loan = (_Atomic uint64_t *)&control->loan;
    uint64_t had = atomic_exchange_explicit(loan, ALQ_LOAN(pct, until_ns), memory_order_relaxed);
    if (ALQ_LOAN_PCT(had) != pct)
        wake_all(control);
    pthread_mutex_unlock(&turn);
    munmap(control, ALQ_CONTROL_BYTES);
    return 0;
}

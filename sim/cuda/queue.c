/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's end of the queue that it shares with simgpud (layout.h, sim/model/README.md):
 * operations go in under one lock with the time of the call, and are read by simgpud when it makes
 * a pass. One thread's append is never half visible to it. No lock is held while waiting, and no
 * wait outlives simgpud by more than a fraction of a second.
 */
#include "cuda/driver.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS 60000ull      /* a sleeper is woken this much early, and spins the rest */
#define LOOK_NS 50000ull      /* between two questions of threads that only look */
#define ALIVE_NS 200000000ull /* between two looks whether simgpud lives */
#define ASK_OPS (SIM_RING / 8)
#define QUEUE_SLACK 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. */
static uint64_t tail, head_seen, asked_at;
static uint64_t last_number[SIM_STREAMS]; /* of each index, whoever had it */
static uint32_t closed[SIM_STREAMS];      /* indices given back, the oldest first */
static uint32_t closed_first, closed_count, fresh;

static _Atomic uint64_t look_after_ns;

static struct sim_queue *queue(void)
{
    return &driver_connection.client->queue;
}

bool queue_is_done(uint32_t index, uint64_t number)
{
    return atomic_load_explicit(&queue()->stream[index].done, memory_order_acquire) >= number;
}

/* Asking */

static CUresult ask(void)
{
    struct sim_header message = {SIM_ASK, sizeof(message)};
    ssize_t n;

    if (atomic_exchange(&queue()->asked, 1))
        return CUDA_SUCCESS;
    do
        n = send(driver_connection.fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        return CUDA_SUCCESS;
    if (errno != EAGAIN)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    atomic_store(&queue()->asked, 0); /* its queue of messages is full; the next one asks again */
    return CUDA_SUCCESS;
}

CUresult queue_look(uint64_t earliest_ns)
{
    uint64_t now = now_ns(), after = atomic_load_explicit(&look_after_ns, memory_order_relaxed);

    if (now < earliest_ns || now < after)
        return CUDA_SUCCESS;
    atomic_store_explicit(&look_after_ns, now + LOOK_NS, memory_order_relaxed);
    if (atomic_load_explicit(&queue()->asked, memory_order_relaxed) &&
        sim_connection_lost(&driver_connection))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return ask();
}

/* Sleeps while the word has that value, until then at the latest. */
static void sleep_while(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns)
{
    struct timespec at = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};

    atomic_fetch_add(&queue()->sleepers, 1);
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, &at, NULL, FUTEX_BITSET_MATCH_ANY);
    atomic_fetch_sub(&queue()->sleepers, 1);
}

/* Until simgpud has made a pass for this client since `passes` was read. */
static CUresult await_pass(uint32_t passes)
{
    uint64_t begun = now_ns();

    while (atomic_load_explicit(&queue()->passes, memory_order_acquire) == passes) {
        uint64_t now = now_ns();

        if (now - begun < SPIN_NS) {
            sched_yield();
            continue;
        }
        sleep_while(&queue()->passes, passes, now + ALIVE_NS);
        if (now_ns() - now >= ALIVE_NS && sim_connection_lost(&driver_connection))
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    return CUDA_SUCCESS;
}

CUresult queue_refresh(void)
{
    uint32_t passes = atomic_load_explicit(&queue()->passes, memory_order_acquire);

    TRY(ask());
    return await_pass(passes);
}

/* Waiting */

/* A place to wait in; -1 when all are taken. */
static int wait_take(uint32_t index, uint64_t number)
{
    uint64_t seen;
    int i = -1;

    pthread_mutex_lock(&lock);
    seen = atomic_load_explicit(&queue()->waits, memory_order_relaxed);
    if (~seen) {
        i = __builtin_ctzll(~seen);
        atomic_store_explicit(&queue()->wait[i].stream, index, memory_order_relaxed);
        atomic_store_explicit(&queue()->wait[i].number, number, memory_order_relaxed);
        atomic_store_explicit(&queue()->waits, seen | 1ull << i, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return i;
}

static void wait_put(int i)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_and_explicit(&queue()->waits, ~(1ull << i), memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

/* Asks when it can be done; *earliest_ns in the past: ask again. */
static CUresult consult(int place, uint64_t *earliest_ns)
{
    uint32_t passes = atomic_load_explicit(&queue()->passes, memory_order_acquire);

    if (place >= 0)
        atomic_store_explicit(&queue()->wait[place].earliest_ns, 0, memory_order_relaxed);
    TRY(ask());
    TRY(await_pass(passes));
    *earliest_ns =
        place < 0 ? now_ns() + SPIN_NS
                  : atomic_load_explicit(&queue()->wait[place].earliest_ns, memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult queue_wait(uint32_t index, uint64_t number, uint64_t earliest_ns,
                    const struct CUctx_st *context)
{
    CUresult rc = CUDA_SUCCESS;
    int place = -1;

    for (;;) {
        uint32_t hurries = atomic_load_explicit(&queue()->hurries, memory_order_acquire);
        uint64_t now;

        if (queue_is_done(index, number) || (context && (rc = context_fault(context))))
            break;
        now = now_ns();
        if (now >= earliest_ns) {
            if (place < 0)
                place = wait_take(index, number);
            if ((rc = consult(place, &earliest_ns)) != CUDA_SUCCESS)
                break;
        } else if (earliest_ns - now <= SPIN_NS) {
            sched_yield();
        } else {
            uint64_t until = earliest_ns - SPIN_NS;

            sleep_while(&queue()->hurries, hurries,
                        until < now + ALIVE_NS ? until : now + ALIVE_NS);
            if (atomic_load_explicit(&queue()->hurries, memory_order_acquire) != hurries)
                earliest_ns = 0;
            else if (now_ns() - now >= ALIVE_NS && sim_connection_lost(&driver_connection)) {
                rc = CUDA_ERROR_DEVICE_UNAVAILABLE;
                break;
            }
        }
    }
    if (place >= 0)
        wait_put(place);
    return rc;
}

void queue_signal(uint32_t index, uint64_t number)
{
    struct sim_stream_cell *cell = &queue()->stream[index];

    atomic_store_explicit(&cell->signal_ns, now_ns(), memory_order_relaxed);
    atomic_store_explicit(&cell->signal, number, memory_order_release);
    (void)ask();
}

/* Appending, under the lock */

/* Room for so many operations; the lock is let go while waiting for it. */
static CUresult make_room(uint64_t count)
{
    CUresult rc = CUDA_SUCCESS;

    while (rc == CUDA_SUCCESS && tail + count - head_seen > SIM_RING) {
        uint32_t passes = atomic_load_explicit(&queue()->passes, memory_order_acquire);

        head_seen = atomic_load_explicit(&queue()->head, memory_order_acquire);
        if (tail + count - head_seen <= SIM_RING)
            break;
        pthread_mutex_unlock(&lock);
        rc = ask();
        if (rc == CUDA_SUCCESS)
            rc = await_pass(passes);
        pthread_mutex_lock(&lock);
    }
    return rc;
}

/* Room for one more kernel in the stream: QUEUE_DEPTH that may be unfinished, and no more than
 * QUEUE_SLACK times that which simgpud has not confirmed to be. Its cell is looked at when that may
 * change the answer: simgpud writes there all the time. */
static CUresult make_depth(struct CUstream_st *s, uint64_t now)
{
    uint32_t index = atomic_load_explicit(&s->index, memory_order_relaxed);
    uint64_t pushed = atomic_load_explicit(&s->pushed, memory_order_relaxed);
    struct stream_kernel oldest;
    CUresult rc;

    if (!s->recent || !s->recent[s->kernels % QUEUE_DEPTH].number)
        return CUDA_SUCCESS;
    oldest = s->recent[s->kernels % QUEUE_DEPTH];
    if (oldest.earliest_ns <= now) {
        if (pushed - s->done_seen < QUEUE_SLACK * QUEUE_DEPTH)
            return CUDA_SUCCESS;
        oldest.number = pushed - QUEUE_SLACK * QUEUE_DEPTH + 1;
    }
    s->done_seen = atomic_load_explicit(&queue()->stream[index].done, memory_order_acquire);
    if (s->done_seen >= oldest.number)
        return CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    rc = queue_wait(index, oldest.number, oldest.earliest_ns, s->context);
    pthread_mutex_lock(&lock);
    return rc;
}

static void append(const struct sim_op *op)
{
    queue()->op[tail % SIM_RING] = *op;
    last_number[op->stream]++;
    atomic_store_explicit(&queue()->tail, ++tail, memory_order_release);
}

/* Gives the stream its index: the oldest one given back, if its last operation is done. */
static CUresult open_stream(struct CUstream_st *s)
{
    uint32_t index = closed[closed_first];
    uint8_t flags = s->flags & CU_STREAM_NON_BLOCKING ? SIM_STREAM_NON_BLOCKING : 0;

    if (s->is_legacy) /* a green context's one is not that of the context it belongs to */
        flags = s->context->green ? SIM_STREAM_NON_BLOCKING : SIM_STREAM_LEGACY;
    if (closed_count && queue_is_done(index, last_number[index])) {
        closed_first = (closed_first + 1) % SIM_STREAMS;
        closed_count--;
    } else if (fresh < SIM_STREAMS) {
        index = fresh++;
    } else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    append(&(struct sim_op){
        .kind = SIM_OP_OPEN,
        .stream = index,
        .target = s->context->id,
        .blocks = s->context->device->info.index,
        .value = (uint64_t)(s->priority + (int)SIM_PRIORITY_ZERO),
        .flags = flags,
        .submit_ns = now_ns(),
    });
    s->done_seen = last_number[index];
    atomic_store_explicit(&s->pushed, last_number[index], memory_order_relaxed);
    atomic_store_explicit(&s->index, index, memory_order_release);
    return CUDA_SUCCESS;
}

/* Notes what is known of a kernel's end before it happens. */
static void note_kernel(struct CUstream_st *s, uint64_t number, uint64_t earliest_ns)
{
    if (!s->recent)
        s->recent = calloc(QUEUE_DEPTH, sizeof(*s->recent));
    if (s->recent) /* without memory for it the stream has no bound: nothing else depends on it */
        s->recent[s->kernels++ % QUEUE_DEPTH] = (struct stream_kernel){number, earliest_ns};
}

CUresult queue_push(struct CUstream_st *s, struct sim_op op, uint64_t *number, uint64_t *seq)
{
    uint64_t earliest, mine;
    CUresult rc;
    bool is_time;

    pthread_mutex_lock(&lock);
    op.submit_ns = now_ns();
    rc = op.kind == SIM_OP_KERNEL ? make_depth(s, op.submit_ns) : CUDA_SUCCESS;
    if (rc == CUDA_SUCCESS)
        rc = make_room(2);
    if (rc == CUDA_SUCCESS &&
        atomic_load_explicit(&s->index, memory_order_relaxed) == STREAM_UNUSED)
        rc = open_stream(s);
    if (rc != CUDA_SUCCESS) {
        pthread_mutex_unlock(&lock);
        return rc;
    }
    op.stream = atomic_load_explicit(&s->index, memory_order_relaxed);
    earliest = atomic_load_explicit(&s->earliest_ns, memory_order_relaxed);
    if (earliest < op.submit_ns)
        earliest = op.submit_ns;
    if (op.kind == SIM_OP_KERNEL || op.kind == SIM_OP_COPY)
        earliest += op.value;
    append(&op);
    mine = last_number[op.stream];
    atomic_store_explicit(&s->earliest_ns, earliest, memory_order_relaxed);
    atomic_store_explicit(&s->pushed, mine, memory_order_relaxed);
    if (s != &s->context->control)
        atomic_store_explicit(&s->context->last_seq, tail, memory_order_relaxed);
    if (op.kind == SIM_OP_KERNEL)
        note_kernel(s, mine, earliest);
    if (number)
        *number = mine;
    if (seq)
        *seq = tail;
    is_time = tail - asked_at >= ASK_OPS;
    if (is_time)
        asked_at = tail;
    pthread_mutex_unlock(&lock);
    return is_time ? ask() : CUDA_SUCCESS;
}

void queue_close(struct CUstream_st *s)
{
    uint32_t index;

    pthread_mutex_lock(&lock);
    index = atomic_load_explicit(&s->index, memory_order_relaxed);
    if (index != STREAM_UNUSED && make_room(1) == CUDA_SUCCESS) {
        append(&(struct sim_op){.kind = SIM_OP_CLOSE, .stream = index, .submit_ns = now_ns()});
        atomic_store_explicit(&s->index, STREAM_UNUSED, memory_order_relaxed);
        closed[(closed_first + closed_count++) % SIM_STREAMS] = index;
    }
    free(s->recent);
    s->recent = NULL;
    pthread_mutex_unlock(&lock);
}

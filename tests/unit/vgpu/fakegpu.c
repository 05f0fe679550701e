/* SPDX-License-Identifier: Apache-2.0 */
/* The device, the coroutines and the driver calls of fakegpu.h. One thread. */
#include "fakegpu.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_BYTES (256 * 1024)
#define QUEUE 1024 /* of a stream, as a driver's; a launch into a full one waits */
#define GROUPS 8
#define SPINS UINT64_MAX /* the end of a kernel that waits for its flag */

struct item {
    struct fake_event *event; /* NULL: a kernel */
    uint64_t duration_ns;
    uint64_t queued_ns;
    const bool *until; /* spins until it is set, then for its duration; NULL: it does not */
    bool *sets;        /* at its end */
};

struct fake_event {
    bool is_done;
    uint64_t at_ns;
    uint64_t pending; /* records not reached yet */
    bool is_gone;     /* destroyed; freed once reached */
};

struct stream {
    struct item queue[QUEUE];
    uint32_t head, count;
    bool is_running;
    bool is_capturing;
    uint64_t end_ns;   /* of the running kernel */
    uint64_t ready_ns; /* end of the last item */
};

struct process {
    struct fake_process pub;
    struct stream streams[FAKE_STREAMS];
    ucontext_t context;
    void *stack;
    void (*program)(void *);
    void *arg;
    uint64_t wake_ns; /* UINT64_MAX: waits for a stream, or has ended */
    int waits_for;    /* stream, or -1 */
    bool wants_room;  /* waits for room in the stream, not for its end */
};

static struct process *processes[FAKE_PROCESSES];
static int process_count, current = -1, owner;
static uint64_t now_ns, device_ns;
static uint64_t busy_ns[GROUPS], busy_since[GROUPS];
static uint32_t running[GROUPS], events_alive;
static ucontext_t scheduler;
static uint64_t run_limit_ns;
static struct fake_share shares_made[FAKE_PROCESSES];
static int share_count;

/* ---- device
 * --------------------------------------------------------------------------------------------------------------
 */

static bool is_waiting(struct process *p)
{
    for (int s = 0; s < FAKE_STREAMS; s++)
        if (!p->streams[s].is_running && p->streams[s].count &&
            !p->streams[s].queue[p->streams[s].head].event)
            return true;
    return false;
}

static int running_of(struct process *p)
{
    int n = 0;
    for (int s = 0; s < FAKE_STREAMS; s++)
        n += p->streams[s].is_running;
    return n;
}

static void pop(struct stream *st)
{
    st->head = (st->head + 1) % QUEUE;
    st->count--;
}

static void reach_events(struct process *p)
{
    for (int s = 0; s < FAKE_STREAMS; s++) {
        struct stream *st = &p->streams[s];
        while (!st->is_running && st->count && st->queue[st->head].event) {
            struct item *it = &st->queue[st->head];
            if (st->ready_ns < it->queued_ns)
                st->ready_ns = it->queued_ns;
            it->event->at_ns = st->ready_ns;
            if (--it->event->pending == 0) {
                it->event->is_done = true;
                if (it->event->is_gone)
                    free(it->event);
            }
            pop(st);
        }
    }
}

static void start(struct process *p, struct stream *st)
{
    int group = p->pub.group;
    const struct item *it = &st->queue[st->head];
    st->is_running = true;
    st->end_ns = it->until && !*it->until ? SPINS : device_ns + it->duration_ns;
    if (running[group]++ == 0)
        busy_since[group] = device_ns;
}

static void start_kernels(void)
{
    bool is_busy = false;
    for (int i = 0; i < process_count; i++) {
        reach_events(processes[i]);
        is_busy = is_busy || running_of(processes[i]);
    }
    if (is_busy) {
        /* More of the owner's, unless somebody else waits for a turn. */
        struct process *p = processes[owner];
        for (int i = 0; i < process_count; i++)
            if (i != owner && is_waiting(processes[i]))
                return;
        if (p->pub.is_overlapping)
            for (int s = 0; s < FAKE_STREAMS; s++)
                if (!p->streams[s].is_running && p->streams[s].count)
                    start(p, &p->streams[s]);
        return;
    }
    for (int i = 1; i <= process_count; i++) {
        int next = (owner + i) % process_count;
        struct process *p = processes[next];
        if (!is_waiting(p))
            continue;
        owner = next;
        /* Streams by turns too: the one whose last kernel ended first. */
        struct stream *first = NULL;
        for (int s = 0; s < FAKE_STREAMS; s++) {
            struct stream *st = &p->streams[s];
            if (!st->count)
                continue;
            if (p->pub.is_overlapping)
                start(p, st);
            else if (!first || st->ready_ns < first->ready_ns)
                first = st;
        }
        if (first)
            start(p, first);
        return;
    }
}

/* A flag was set: who spins for it goes on. */
static void release_spinners(const bool *flag)
{
    for (int i = 0; i < process_count; i++)
        for (int s = 0; s < FAKE_STREAMS; s++) {
            struct stream *st = &processes[i]->streams[s];
            const struct item *it = &st->queue[st->head];
            if (st->is_running && it->until == flag && st->end_ns == SPINS)
                st->end_ns = device_ns + it->duration_ns;
        }
}

static uint64_t next_end(void)
{
    uint64_t next = UINT64_MAX;
    for (int i = 0; i < process_count; i++)
        for (int s = 0; s < FAKE_STREAMS; s++)
            if (processes[i]->streams[s].is_running && processes[i]->streams[s].end_ns < next)
                next = processes[i]->streams[s].end_ns;
    return next;
}

static void advance(uint64_t to)
{
    for (;;) {
        start_kernels();
        uint64_t next = next_end();
        if (next > to || next == SPINS)
            break;
        device_ns = next;
        for (int i = 0; i < process_count; i++)
            for (int s = 0; s < FAKE_STREAMS; s++) {
                struct stream *st = &processes[i]->streams[s];
                if (!st->is_running || st->end_ns != next)
                    continue;
                int group = processes[i]->pub.group;
                st->is_running = false;
                st->ready_ns = next;
                bool *sets = st->queue[st->head].sets;
                pop(st);
                if (sets) {
                    *sets = true;
                    release_spinners(sets);
                }
                if (--running[group] == 0)
                    busy_ns[group] += next - busy_since[group];
            }
    }
    if (to > device_ns)
        device_ns = to;
}

/* ---- coroutines
 * ----------------------------------------------------------------------------------------------------------
 */

static void release_waiters(void)
{
    for (int i = 0; i < process_count; i++) {
        struct process *p = processes[i];
        if (p->waits_for < 0)
            continue;
        struct stream *st = &p->streams[p->waits_for];
        if (p->wants_room ? st->count < QUEUE : st->count == 0) {
            p->waits_for = -1;
            p->wake_ns = device_ns + 5 * US;
        }
    }
}

static int earliest(void)
{
    int best = -1;
    for (int i = 0; i < process_count; i++)
        if (processes[i]->waits_for < 0 &&
            (best < 0 || processes[i]->wake_ns < processes[best]->wake_ns))
            best = i;
    return best;
}

/* The running program goes on at wake_ns, after everybody who is earlier. */
static void sleep_until(uint64_t wake_ns)
{
    struct process *p = processes[current];
    p->wake_ns = wake_ns;
    if (p->waits_for < 0) {
        /* Stay on this stack when nobody is earlier. */
        bool is_first = wake_ns <= run_limit_ns;
        for (int i = 0; i < process_count && is_first; i++)
            is_first =
                i == current || processes[i]->waits_for >= 0 || processes[i]->wake_ns > wake_ns;
        if (is_first && process_count > 1) {
            start_kernels();
            is_first = next_end() > wake_ns;
        }
        if (is_first) {
            now_ns = wake_ns;
            advance(now_ns);
            return;
        }
    }
    swapcontext(&p->context, &scheduler);
}

static void entry(void)
{
    struct process *p = processes[current];
    p->program(p->arg);
    for (;;)
        sleep_until(UINT64_MAX - 1);
}

void fake_run_until(uint64_t t_ns)
{
    run_limit_ns = t_ns;
    for (;;) {
        int next = earliest();
        uint64_t wake = next < 0 ? UINT64_MAX : processes[next]->wake_ns;
        start_kernels();
        uint64_t end = next_end();
        if (end <= wake && end <= t_ns) {
            advance(end);
            if (now_ns < end)
                now_ns = end;
            release_waiters();
            continue;
        }
        if (wake > t_ns)
            break;
        if (now_ns < wake)
            now_ns = wake;
        advance(now_ns);
        release_waiters();
        current = next;
        swapcontext(&scheduler, &processes[next]->context);
        current = -1;
    }
    now_ns = t_ns;
    advance(t_ns);
    release_waiters();
}

static void spend(uint64_t ns)
{
    sleep_until(now_ns + ns);
}

uint64_t fake_now(void)
{
    return now_ns;
}

uint64_t fake_busy_ns(int group)
{
    return busy_ns[group] + (running[group] ? device_ns - busy_since[group] : 0);
}

uint32_t fake_events_alive(void)
{
    return events_alive;
}

/* ---- driver
 * --------------------------------------------------------------------------------------------------------------
 */

static struct process *self(void)
{
    return processes[current];
}

static CUresult event_create(CUevent *out)
{
    self()->pub.own_calls++;
    if (self()->pub.event_error)
        return self()->pub.event_error;
    spend(300);
    *out = (CUevent)calloc(1, sizeof(struct fake_event));
    events_alive++;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_destroy(CUevent event)
{
    struct fake_event *e = (struct fake_event *)event;
    events_alive--;
    e->is_gone = true;
    if (e->pending == 0)
        free(e);
    return CUDA_SUCCESS;
}

static int stream_of(CUstream stream)
{
    return (uintptr_t)stream < 16 ? 0 : (int)((uintptr_t)stream & 15);
}

static void enqueue(int stream, struct item it)
{
    struct process *p = self();
    struct stream *st = &p->streams[stream];
    while (st->count == QUEUE) {
        p->waits_for = stream;
        p->wants_room = true;
        sleep_until(UINT64_MAX);
    }
    it.queued_ns = now_ns;
    st->queue[(st->head + st->count++) % QUEUE] = it;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    struct fake_event *e = (struct fake_event *)event;
    self()->pub.own_calls++;
    if (self()->pub.event_error)
        return self()->pub.event_error;
    self()->pub.records++;
    e->is_done = false;
    e->pending++;
    enqueue(stream_of(stream), (struct item){.event = e});
    reach_events(self());
    spend(500);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    struct fake_event *e = (struct fake_event *)event;
    self()->pub.own_calls++;
    if (self()->pub.event_error)
        return self()->pub.event_error;
    spend(200);
    return e->is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    struct fake_event *a = (struct fake_event *)from, *b = (struct fake_event *)to;
    self()->pub.own_calls++;
    if (self()->pub.event_error)
        return self()->pub.event_error;
    if (!a->is_done || !b->is_done)
        return CUDA_ERROR_NOT_READY;
    /* The resolution of a real one. */
    *ms = (float)((double)(((int64_t)(b->at_ns - a->at_ns) + 250) / 500 * 500) * 1e-6);
    return CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *out)
{
    *out = self()->streams[stream_of(stream)].is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                           : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult context_current(CUcontext *out)
{
    *out = (CUcontext)(uintptr_t)(0x1000 + current);
    return CUDA_SUCCESS;
}

static void wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns)
{
    self()->pub.sleeps++;
    if (*word != expect)
        return;
    /* Late, as timers are. */
    sleep_until(until_ns + 3 * US);
}

static void relax(void)
{
    spend(500);
}

/* ---- set-up
 * --------------------------------------------------------------------------------------------------------------
 */

void fake_reset(void)
{
    for (int i = 0; i < process_count; i++) {
        free(processes[i]->pub.compute);
        free(processes[i]->stack);
        free(processes[i]);
    }
    for (int i = 0; i < share_count; i++) {
        free(shares_made[i].control);
        free(shares_made[i].section);
    }
    process_count = share_count = owner = 0;
    current = -1;
    now_ns = device_ns = 1000 * SEC;
    memset(busy_ns, 0, sizeof(busy_ns));
    memset(running, 0, sizeof(running));
    events_alive = 0;
}

struct fake_share fake_share_new(uint32_t limit_pct)
{
    struct fake_share share = {calloc(1, sizeof(struct alq_control)),
                               calloc(1, sizeof(struct alq_usage_section))};
    if (!share.control || !share.section)
        abort();
    share.control->values[0].compute_limit_pct = limit_pct;
    shares_made[share_count++] = share;
    return share;
}

void fake_share_limit(struct fake_share *share, uint32_t limit_pct, uint32_t policy)
{
    uint32_t next = share->control->sequence + 1;
    share->control->values[next & 1].compute_limit_pct = limit_pct;
    share->control->values[next & 1].policy = policy;
    share->control->sequence = next;
    share->control->wake++;
}

struct fake_process *fake_process_new(int group, const struct fake_share *share,
                                      void (*program)(void *), void *arg)
{
    struct process *p = calloc(1, sizeof(*p));
    int was = current;
    if (!p || !(p->stack = malloc(STACK_BYTES)))
        abort();
    processes[process_count] = p;
    p->pub.group = group;
    p->pub.launch_cost_ns = 2 * US;
    p->program = program;
    p->arg = arg;
    p->wake_ns = now_ns;
    p->waits_for = -1;
    if (share) {
        p->pub.compute = calloc(1, sizeof(*p->pub.compute));
        if (!p->pub.compute)
            abort();
        p->pub.compute->driver = (struct alq_compute_driver){
            .event_create = event_create,
            .event_destroy = event_destroy,
            .event_record = event_record,
            .event_query = event_query,
            .event_elapsed = event_elapsed,
            .stream_is_capturing = stream_is_capturing,
            .context_current = context_current,
            .now_ns = fake_now,
            .wait_until = wait_until,
            .relax = relax,
        };
        struct alq_compute_share s = alq_compute_share_of(share->control, share->section, NULL);
        current = process_count;
        alq_compute_add_device(p->pub.compute, 0, &s, 1, 1);
        current = was;
    }
    getcontext(&p->context);
    p->context.uc_stack.ss_sp = p->stack;
    p->context.uc_stack.ss_size = STACK_BYTES;
    p->context.uc_link = &scheduler;
    makecontext(&p->context, entry, 0);
    process_count++;
    return &p->pub;
}

/* ---- programs
 * ------------------------------------------------------------------------------------------------------------
 */

struct fake_process *fake_self(void)
{
    return &self()->pub;
}

CUstream fake_stream(int stream)
{
    return stream ? (CUstream)(uintptr_t)(0x7000 + stream) : NULL;
}

void fake_launch_with(const struct alq_compute_launch *launch, int stream, uint64_t duration_ns,
                      CUresult rc)
{
    struct process *p = self();
    struct alq_compute_ticket ticket;
    if (p->pub.compute)
        alq_compute_before(p->pub.compute, launch, &ticket);
    if (p->pub.last_launch_ns && now_ns - p->pub.last_launch_ns > p->pub.max_gap_ns)
        p->pub.max_gap_ns = now_ns - p->pub.last_launch_ns;
    p->pub.last_launch_ns = now_ns;
    p->pub.launches++;
    p->pub.records_at_launch = p->pub.records;
    if (rc == CUDA_SUCCESS && !p->streams[stream].is_capturing)
        enqueue(
            stream,
            (struct item){.duration_ns = duration_ns, .until = p->pub.until, .sets = p->pub.sets});
    p->pub.until = NULL;
    p->pub.sets = NULL;
    spend(p->pub.launch_cost_ns);
    if (p->pub.compute)
        alq_compute_after(p->pub.compute, launch, &ticket, rc);
}

void fake_launch(int stream, uintptr_t function, uint64_t duration_ns)
{
    struct alq_compute_launch launch = {
        .stream = fake_stream(stream), .handle = (const void *)function, .size_class = 10};
    fake_launch_with(&launch, stream, duration_ns, CUDA_SUCCESS);
}

void fake_graph_launch(int stream, uintptr_t exec, uint64_t duration_ns)
{
    struct alq_compute_launch launch = {
        .stream = fake_stream(stream), .handle = (const void *)exec, .kind = ALQ_ESTIMATE_GRAPH};
    fake_launch_with(&launch, stream, duration_ns, CUDA_SUCCESS);
}

void fake_sync(int stream)
{
    struct process *p = self();
    if (p->streams[stream].count) {
        p->waits_for = stream;
        p->wants_room = false;
        sleep_until(UINT64_MAX);
    } else {
        spend(1000);
    }
    if (p->pub.compute)
        alq_compute_synced(p->pub.compute, ALQ_SYNCED_STREAM);
}

void fake_sleep(uint64_t ns)
{
    sleep_until(now_ns + ns);
}

void fake_set_capturing(int stream, bool is_capturing)
{
    self()->streams[stream].is_capturing = is_capturing;
}

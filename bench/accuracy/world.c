/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock, the coroutines, the driver calls and the daemon's rounds of world.h. One thread. The
 * model is moved forward when somebody looks or waits, which changes nothing in its times.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "daemon/monitor/pace.h"
#include "model/model.h"
#include "vgpu/compute/compute.h"

#define STACK_BYTES (128u * 1024)
#define PROCESSES 64u
#define SHARES 8u
#define QUEUE 1024u /* operations of a stream, as a driver's; a launch into a full one waits */
#define NEVER UINT64_MAX

#define LAUNCH_NS (2 * US)
#define SYNC_RETURN_NS (5 * US)
#define ROUND_NS (100 * MS)     /* as the daemon has it, */
#define CORRECTED_NS SEC        /* and how long a correction holds */
#define EVENT_RESOLUTION_NS 500 /* of a card */

struct event {
    uint64_t recorded, reached; /* numbers of records */
    uint64_t at_ns;
};

struct world_share {
    bool is_gated;
    uint32_t limit_pct, correction_ppm;
    struct alq_control control;
    struct alq_usage_section section;
    struct alq_pace pace;
    uint64_t nvml_ns; /* in the last round */
    uint64_t dead_busy_ns;
};

struct world_process {
    struct world_share *share;
    struct alq_compute *compute; /* NULL: without the library */
    struct sim_model_client *client;
    bool is_dead;
    ucontext_t context;
    void *stack;
    void (*program)(void *);
    void *arg;
    uint32_t number;
    uint32_t slot; /* of its share */
    uint32_t random;
    uint64_t wake_ns; /* NEVER: waits for an operation */
    uint32_t wait_stream;
    uint64_t wait_number;
    uint64_t pushed[WORLD_STREAMS];
    uint64_t kernels;
    uint32_t event_count;
    struct event events[ALQ_EVENTS];
};

static struct {
    struct sim_model *model;
    uint64_t now_ns, limit_ns, round_ns, seen_period;
    struct world_share *shares[SHARES];
    uint32_t share_count;
    struct world_process *processes[PROCESSES];
    uint32_t process_count, waiting;
    struct world_process *current;
    ucontext_t main;
} w;

static void *make(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) {
        fputs("accuracy: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static void push(struct sim_op op)
{
    op.submit_ns = w.now_ns;
    if (sim_model_push(w.current->client, &op, w.now_ns) != 0) {
        fputs("accuracy: the model refused an operation\n", stderr);
        exit(1);
    }
    w.current->pushed[op.stream]++;
}

/* ---- the daemon's rounds ------------------------------------------------------------------- */

static void publish(struct world_share *share)
{
    uint32_t next = share->control.sequence + 1;
    share->control.values[next & 1] = (struct alq_control_values){
        .compute_limit_pct = share->limit_pct, .time_correction_ppm = share->correction_ppm};
    share->control.sequence = next;
    share->control.wake++;
}

/* What NVML says of a process in its samples since the last round: whole percents. */
static uint64_t nvml_ns(const struct world_process *p, uint64_t last, uint64_t periods)
{
    const struct sim_usage *usage = sim_model_client_usage(p->client, 0);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < periods; i++)
        sum += sim_usage_percent(sim_usage_of(usage, last - i)) * (SIM_PERIOD_NS / 100);
    return sum;
}

static void correct(struct world_share *share, uint64_t end_ns, uint64_t wall_ns, uint64_t all_ns)
{
    const struct alq_pace_window window = {
        .now_ns = (int64_t)w.now_ns,
        .charged_ns = share->section.counters.charged_ns,
        .end_ns = (int64_t)end_ns,
        .wall_ns = wall_ns,
        .nvml_ns = share->nvml_ns,
        .others_ns = all_ns - share->nvml_ns,
        .limit_pct = share->limit_pct,
    };
    struct alq_pace_order order;
    alq_pace(&share->pace, &window, &order);
    share->control.time_credit_ns += (uint64_t)order.credit_ns;
    share->control.contended_until_ns = order.is_contended ? w.now_ns + CORRECTED_NS : 0;
    share->control.corrected_until_ns = w.now_ns + CORRECTED_NS;
    if (order.ppm == share->correction_ppm)
        return;
    share->correction_ppm = order.ppm;
    publish(share);
}

static void run_round(void)
{
    const uint64_t last = sim_usage_last_period(w.now_ns), periods = last - w.seen_period;
    uint64_t all_ns = 0;
    sim_model_advance(w.model, w.now_ns);
    for (uint32_t i = 0; i < w.share_count; i++)
        w.shares[i]->nvml_ns = 0;
    for (uint32_t i = 0; i < w.process_count; i++) {
        if (w.processes[i]->is_dead)
            continue;
        uint64_t ns = nvml_ns(w.processes[i], last, periods);
        w.processes[i]->share->nvml_ns += ns;
        all_ns += ns;
    }
    for (uint32_t i = 0; i < w.share_count; i++)
        if (w.shares[i]->is_gated)
            correct(w.shares[i], periods ? (last + 1) * SIM_PERIOD_NS : 0, periods * SIM_PERIOD_NS,
                    all_ns);
    w.seen_period = last;
    w.round_ns += ROUND_NS;
}

/* ---- coroutines ---------------------------------------------------------------------------- */

static void on_done(void *client, const struct sim_op *op, uint64_t number, uint64_t time_ns)
{
    struct world_process *p = client;
    if (op->kind == SIM_OP_EVENT && op->value > p->events[op->target].reached) {
        p->events[op->target].reached = op->value;
        p->events[op->target].at_ns = time_ns;
    }
    if (p->wake_ns == NEVER && p->wait_stream == op->stream && number >= p->wait_number) {
        p->wake_ns = time_ns + SYNC_RETURN_NS;
        w.waiting--;
    }
}

static struct world_process *earliest(void)
{
    struct world_process *best = NULL;
    for (uint32_t i = 0; i < w.process_count; i++) {
        struct world_process *p = w.processes[i];
        if (!p->is_dead && p->wake_ns != NEVER && (!best || p->wake_ns < best->wake_ns))
            best = p;
    }
    return best;
}

/* Who runs next, and from when; NULL: nobody before the limit. */
static struct world_process *schedule(void)
{
    for (;;) {
        struct world_process *next = earliest();
        uint64_t at = next && next->wake_ns < w.round_ns ? next->wake_ns : w.round_ns;
        if (w.waiting) {
            uint64_t change = sim_model_next(w.model);
            if (change <= at && change <= w.limit_ns) {
                sim_model_advance(w.model, change);
                continue;
            }
        }
        if (at > w.limit_ns)
            return NULL;
        w.now_ns = at;
        if (at != w.round_ns)
            return next;
        run_round();
    }
}

static void go_on(ucontext_t *from)
{
    struct world_process *next = schedule();
    if (from == (next ? &next->context : &w.main))
        return;
    w.current = next;
    swapcontext(from, next ? &next->context : &w.main);
}

void world_run_until(uint64_t time_ns)
{
    w.limit_ns = time_ns;
    go_on(&w.main);
    w.now_ns = time_ns;
    sim_model_advance(w.model, time_ns);
}

uint64_t world_now(void)
{
    return w.now_ns;
}

void world_sleep_until(uint64_t time_ns)
{
    w.current->wake_ns = time_ns > w.now_ns ? time_ns : w.now_ns;
    go_on(&w.current->context);
}

static void spend(uint64_t ns)
{
    world_sleep_until(w.now_ns + ns);
}

static void wait_for(uint32_t stream, uint64_t number)
{
    sim_model_advance(w.model, w.now_ns);
    if (sim_model_done(w.current->client, stream) >= number)
        return;
    w.current->wait_stream = stream;
    w.current->wait_number = number;
    w.current->wake_ns = NEVER;
    w.waiting++;
    go_on(&w.current->context);
}

static uint32_t random_of(struct world_process *p)
{
    p->random ^= p->random << 13;
    p->random ^= p->random >> 17;
    p->random ^= p->random << 5;
    return p->random;
}

uint32_t world_random(void)
{
    return random_of(w.current);
}

/* ---- driver -------------------------------------------------------------------------------- */

static struct event *event_of(CUevent handle)
{
    return &w.current->events[(uintptr_t)handle - 1];
}

static uint32_t stream_of(CUstream stream)
{
    return (uint32_t)((uintptr_t)stream & 15u);
}

static CUresult event_create(CUevent *out)
{
    spend(300);
    if (w.current->event_count == ALQ_EVENTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUevent)(uintptr_t)++w.current->event_count;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event; /* no context of this world ends before its process */
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    push((struct sim_op){.kind = SIM_OP_EVENT,
                         .stream = stream_of(stream),
                         .target = (uint32_t)((uintptr_t)event - 1),
                         .value = ++event_of(event)->recorded});
    spend(500);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    spend(200);
    sim_model_advance(w.model, w.now_ns);
    const struct event *e = event_of(event);
    return e->reached == e->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    const struct event *a = event_of(from), *b = event_of(to);
    if (a->reached != a->recorded || b->reached != b->recorded)
        return CUDA_ERROR_NOT_READY;
    /* A card reads a clock that counts so, twice. */
    int64_t ns = (int64_t)(b->at_ns / EVENT_RESOLUTION_NS - a->at_ns / EVENT_RESOLUTION_NS) *
                 EVENT_RESOLUTION_NS;
    *ms = (float)((double)ns * 1e-6);
    return CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *out)
{
    (void)stream;
    *out = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult context_current(CUcontext *out)
{
    *out = (CUcontext)(uintptr_t)(0x1000 + w.current->number);
    return CUDA_SUCCESS;
}

/* 61 us late at the median with the least timer slack, now and then much later: what was measured
 * on a virtual machine. */
static void wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns)
{
    uint32_t r = world_random();
    if (*word != expect)
        return;
    uint64_t late_ns = 50 * US + r % (22 * US);
    if (r >> 16 < 0x10000u / 50)
        late_ns += r % (200 * US);
    world_sleep_until((until_ns > w.now_ns ? until_ns : w.now_ns) + late_ns);
}

static void relax(void)
{
    spend(500);
}

/* ---- what programs do ---------------------------------------------------------------------- */

void world_launch(uint32_t stream, uintptr_t function, uint32_t kernels, uint64_t kernel_ns,
                  uint32_t blocks)
{
    struct world_process *p = w.current;
    struct alq_compute_ticket ticket;
    struct alq_compute_launch launch = {
        .stream = (CUstream)(uintptr_t)(0x7000 + stream),
        .handle = (const void *)function,
        .kind = kernels > 1 ? ALQ_ESTIMATE_GRAPH : ALQ_ESTIMATE_FUNCTION,
        .size_class = kernels > 1 ? 0 : alq_estimate_class(blocks, 256),
    };
    if (p->compute)
        alq_compute_before(p->compute, &launch, &ticket);
    if (p->pushed[stream] + kernels > sim_model_done(p->client, stream) + QUEUE)
        wait_for(stream, p->pushed[stream] + kernels - QUEUE);
    for (uint32_t i = 0; i < kernels; i++)
        push((struct sim_op){
            .kind = SIM_OP_KERNEL, .stream = stream, .value = kernel_ns, .blocks = blocks});
    p->kernels += kernels;
    spend(LAUNCH_NS);
    if (p->compute)
        alq_compute_after(p->compute, &launch, &ticket, CUDA_SUCCESS);
}

void world_sync(uint32_t stream)
{
    wait_for(stream, w.current->pushed[stream]);
    if (w.current->compute)
        alq_compute_synced(w.current->compute, ALQ_SYNCED_STREAM);
}

/* ---- set-up -------------------------------------------------------------------------------- */

void world_open(uint32_t sms)
{
    const struct sim_model_device device = {.sms = sms, .copy_engines = 2};
    w.now_ns = 1000 * SEC;
    w.round_ns = w.now_ns + ROUND_NS;
    w.seen_period = sim_usage_last_period(w.now_ns);
    w.model = sim_model_new(1, w.now_ns, on_done);
    if (!w.model || sim_model_device_set(w.model, 0, &device) != 0) {
        fputs("accuracy: no model\n", stderr);
        exit(1);
    }
}

void world_close(void)
{
    sim_model_free(w.model);
    for (uint32_t i = 0; i < w.process_count; i++) {
        free(w.processes[i]->compute);
        free(w.processes[i]->stack);
        free(w.processes[i]);
    }
    for (uint32_t i = 0; i < w.share_count; i++)
        free(w.shares[i]);
    w.process_count = w.share_count = w.waiting = 0;
    w.current = NULL;
}

struct world_share *world_share_new(uint32_t limit_pct)
{
    struct world_share *share = make(sizeof(*share));
    share->is_gated = limit_pct != 0;
    share->limit_pct = limit_pct;
    share->correction_ppm = ALQ_TIME_CORRECTION_ONE;
    publish(share);
    w.shares[w.share_count++] = share;
    return share;
}

void world_share_limit(struct world_share *share, uint32_t limit_pct)
{
    share->limit_pct = limit_pct;
    publish(share);
    for (uint32_t i = 0; i < w.process_count; i++)
        if (w.processes[i]->share == share && !w.processes[i]->is_dead &&
            w.processes[i]->wake_ns != NEVER && w.processes[i]->wake_ns > w.now_ns + 60 * US)
            w.processes[i]->wake_ns = w.now_ns + 60 * US;
}

static uint64_t client_busy_ns(const struct world_process *p)
{
    return sim_model_client_usage(p->client, 0)->busy_ns;
}

uint64_t world_share_busy_ns(const struct world_share *share)
{
    uint64_t sum = share->dead_busy_ns;
    for (uint32_t i = 0; i < w.process_count; i++)
        if (w.processes[i]->share == share && !w.processes[i]->is_dead)
            sum += client_busy_ns(w.processes[i]);
    return sum;
}

static void run_program(void)
{
    w.current->program(w.current->arg);
    abort();
}

/* The first that no living process of the share has. */
static struct alq_slot *take_slot(struct world_process *p)
{
    bool is_taken[PROCESSES] = {false};
    for (uint32_t i = 0; i < w.process_count; i++)
        if (w.processes[i]->share == p->share && !w.processes[i]->is_dead)
            is_taken[w.processes[i]->slot] = true;
    for (p->slot = 0; is_taken[p->slot];)
        p->slot++;
    return &p->share->section.slots[p->slot];
}

struct world_process *world_process_new(struct world_share *share, void (*program)(void *),
                                        void *arg)
{
    struct world_process *p = make(sizeof(*p));
    struct world_process *was = w.current;
    p->share = share;
    p->program = program;
    p->arg = arg;
    p->number = w.process_count;
    p->random = 0x9e3779b9u * (p->number + 1);
    p->wake_ns = w.now_ns;
    p->stack = make(STACK_BYTES);
    p->client = sim_model_client_new(w.model, p);
    w.current = p;
    for (uint32_t i = 0; i < WORLD_STREAMS; i++)
        push((struct sim_op){.kind = SIM_OP_OPEN, .stream = i, .value = SIM_PRIORITY_ZERO});
    if (share->is_gated) {
        struct alq_compute_share s =
            alq_compute_share_of(&share->control, &share->section, take_slot(p));
        p->compute = make(sizeof(*p->compute));
        p->compute->estimates.random = random_of(p);
        p->compute->driver = (struct alq_compute_driver){
            .event_create = event_create,
            .event_destroy = event_destroy,
            .event_record = event_record,
            .event_query = event_query,
            .event_elapsed = event_elapsed,
            .stream_is_capturing = stream_is_capturing,
            .context_current = context_current,
            .now_ns = world_now,
            .wait_until = wait_until,
            .relax = relax,
        };
        alq_compute_add_device(p->compute, 0, &s, 1, 1);
    }
    w.current = was;
    getcontext(&p->context);
    p->context.uc_stack.ss_sp = p->stack;
    p->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&p->context, run_program, 0);
    w.processes[w.process_count++] = p;
    return p;
}

void world_process_kill(struct world_process *p)
{
    sim_model_advance(w.model, w.now_ns);
    p->share->dead_busy_ns += client_busy_ns(p);
    w.waiting -= p->wake_ns == NEVER;
    p->is_dead = true;
    sim_model_client_free(p->client);
}

uint64_t world_process_kernels(const struct world_process *process)
{
    return process->kernels;
}

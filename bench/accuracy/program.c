/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of program.h launches. Inside a coroutine of world.h. */
#include "program.h"

#include "world.h"

#define STEP_NS (10 * MS)
#define GRAPH_NS (10 * MS) /* a graph is no longer, */
#define GRAPH_KERNELS 16u  /* and has no more kernels */
#define MIX_FUNCTIONS 6u   /* of 5 us, and each four times as long and half as frequent */
#define MIX_FIRST_NS (5 * US)

struct launch {
    uintptr_t function;
    uint64_t kernel_ns;
    uint32_t kernels;
};

static struct launch choose(const struct program *p)
{
    struct launch l = {.function = 0x10000, .kernel_ns = p->kernel_ns, .kernels = 1};
    if (!l.kernel_ns) {
        uint32_t r = world_random(), k = 0;
        while (k + 1 < MIX_FUNCTIONS && r >> k & 1u)
            k++;
        l.function += k << 8;
        l.kernel_ns = MIX_FIRST_NS << 2 * k;
    }
    if (p->is_graph) {
        uint64_t fit = GRAPH_NS / l.kernel_ns;
        l.kernels = fit < 1 ? 1 : fit > GRAPH_KERNELS ? GRAPH_KERNELS : (uint32_t)fit;
    }
    l.kernel_ns = l.kernel_ns / 100 * 98 + l.kernel_ns * (world_random() & 1023u) / 25600u;
    return l;
}

static void sync_all(const struct program *p)
{
    for (uint32_t s = 0; s < p->streams; s++)
        world_sync(s);
}

/* Work of that length at least. */
static uint64_t launch_some(const struct program *p, uint64_t work_ns)
{
    uint64_t done_ns = 0;
    for (uint32_t s = 0; done_ns < work_ns; s = (s + 1) % p->streams) {
        struct launch l = choose(p);
        world_launch(s, l.function, l.kernels, l.kernel_ns, p->blocks);
        done_ns += l.kernel_ns * l.kernels;
    }
    return done_ns;
}

/* A step is due every so often; one that is late is made up for. */
static void run_demand(const struct program *p)
{
    uint64_t due_ns = world_now(), debt_ns = 0;
    for (;;) {
        uint64_t work_ns = STEP_NS * p->demand_ppm / 1000000;
        if (work_ns > debt_ns)
            debt_ns += launch_some(p, work_ns - debt_ns) - work_ns;
        else
            debt_ns -= work_ns;
        sync_all(p);
        due_ns += STEP_NS;
        world_sleep_until(due_ns);
    }
}

void program_run(void *arg)
{
    const struct program *p = arg;
    if (p->demand_ppm)
        run_demand(p);
    for (;;) {
        launch_some(p, STEP_NS * p->streams);
        if (p->has_steps)
            sync_all(p);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that run. How long one takes comes from its arguments (built-in ones), from the device
 * file's rules for its name, or from grid and block: a wave of as many blocks as fit takes 20 us.
 * Built-in kernels compute on the device's bytes, at launch; the clock says when a program may see
 * that.
 */
#include "cuda/callback.h"
#include "cuda/host.h"
#include "cuda/memory.h"

#include <fnmatch.h>
#include <string.h>

#define WAVE_NS 20000ull

/* What the built-in kernels compute */

static uint64_t busy_us_duration(const uint64_t *args)
{
    return args[0] > UINT64_MAX / 2000 ? UINT64_MAX / 2 : args[0] * 1000;
}

/* vector_add(const float *a, const float *b, float *c, n) */
static void vector_add(const uint64_t *args)
{
    uint64_t bytes = args[3] * sizeof(float);
    const float *a, *b;
    float *c;

    if (args[3] > UINT64_MAX / 8 || !(a = memory_host(args[0], bytes, false)) ||
        !(b = memory_host(args[1], bytes, false)) || !(c = memory_host(args[2], bytes, true)))
        return;
    for (uint64_t i = 0; i < args[3]; i++)
        c[i] = a[i] + b[i];
}

/* saxpy(n, float alpha, const float *x, float *y) */
static void saxpy(const uint64_t *args)
{
    uint64_t bytes = args[0] * sizeof(float);
    uint32_t bits = (uint32_t)args[1];
    const float *x;
    float *y, alpha;

    memcpy(&alpha, &bits, sizeof(alpha));
    if (args[0] > UINT64_MAX / 8 || !(x = memory_host(args[2], bytes, false)) ||
        !(y = memory_host(args[3], bytes, true)))
        return;
    for (uint64_t i = 0; i < args[0]; i++)
        y[i] = alpha * x[i] + y[i];
}

/* fill(uint32_t *to, uint32_t value, n) */
static void fill(const uint64_t *args)
{
    uint32_t *to;

    if (args[2] > UINT64_MAX / 8 || !(to = memory_host(args[0], args[2] * sizeof(*to), true)))
        return;
    for (uint64_t i = 0; i < args[2]; i++)
        to[i] = (uint32_t)args[1];
}

/* set_conditional(handle, uint32_t value): of a conditional node of a graph */
static void set_conditional(const uint64_t *args)
{
    condition_set(args[0], (unsigned int)args[1]);
}

/* count_down(handle, uint32_t *left): one less, which is what the node goes by */
static void count_down(const uint64_t *args)
{
    uint32_t *left = memory_host(args[1], sizeof(*left), true);

    if (left)
        condition_set(args[0], --*left);
}

/* spin_until(uint32_t *flag): until it is not 0, or its memory is gone */
static bool is_set(void *args)
{
    const uint64_t address = *(const uint64_t *)args;
    struct host_range range;
    const uint32_t *flag = NULL;

    if (memory_device(address))
        flag = memory_host(address, sizeof(*flag), false);
    else if (host_find(address, &range) && address - range.base + sizeof(*flag) <= range.bytes)
        flag = (const uint32_t *)(uintptr_t)address;
    return !flag || __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static const struct builtin builtins[] = {
    {"busy_us", {8}, busy_us_duration, NULL, NULL},
    {"vector_add", {8, 8, 8, 8}, NULL, vector_add, NULL},
    {"saxpy", {8, 4, 8, 8}, NULL, saxpy, NULL},
    {"fill", {8, 4, 8}, NULL, fill, NULL},
    {"set_conditional", {8, 4}, NULL, set_conditional, NULL},
    {"count_down", {8, 8}, NULL, count_down, NULL},
    {"spin_until", {8}, NULL, NULL, is_set},
};

const struct builtin *builtin_find(const char *name)
{
    for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++) {
        if (strcmp(name, builtins[i].name) == 0)
            return &builtins[i];
    }
    return NULL;
}

/* Time */

const struct sim_kernel_rule *launch_rule(const char *name)
{
    const struct sim_kernel_rule *r = driver_connection.rule;

    for (uint32_t i = 0; i < SIM_KERNEL_RULES && *r[i].name; i++) {
        if (fnmatch(r[i].name, name, 0) == 0)
            return &r[i];
    }
    return NULL;
}

void launch_time(const struct device *d, const struct launch_shape *shape, struct launch *launch)
{
    uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2], waves, wave_ns;

    launch->blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
    if (launch->builtin && launch->builtin->duration_ns) {
        launch->duration_ns = launch->builtin->duration_ns(launch->args);
        return;
    }
    waves = (blocks - 1) / ((uint64_t)d->info.sms * launch->per_sm) + 1;
    wave_ns = launch->rule ? launch->rule->duration_ns : WAVE_NS;
    if (launch->rule && !launch->rule->is_wave)
        waves = 1;
    launch->duration_ns =
        wave_ns && waves > SIM_DURATION_MAX_NS / wave_ns ? SIM_DURATION_MAX_NS : waves * wave_ns;
}

static void compute(void *what)
{
    const struct launch *launch = what;

    pthread_rwlock_rdlock(&memory_bytes_lock);
    launch->builtin->run(launch->args);
    pthread_rwlock_unlock(&memory_bytes_lock);
}

CUresult launch_run(const struct launch *launch, struct CUstream_st *stream)
{
    if (launch->builtin && launch->builtin->is_over)
        return spin_push(stream, launch->blocks, launch->builtin->is_over, launch->args,
                         sizeof(launch->args));
    if (launch->builtin && launch->builtin->run)
        TRY(effect_push(stream, compute, launch, sizeof(*launch)));
    return stream_kernel(stream, launch->duration_ns, launch->blocks);
}

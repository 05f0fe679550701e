/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules and their functions. A module costs device memory (moduleBytes, and its globals), and
 * holds the initial values of its globals from the moment it is loaded. Lists are under
 * driver_lock.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/module.h"

CUresult module_check(CUmodule module)
{
    return module && module->magic == MAGIC_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void module_uncharge(struct CUmod_st *m)
{
    struct device *d = m->context->device;

    for (uint32_t i = 0; m->globals && i < m->image->code.global_count; i++) {
        if (m->globals[i])
            (void)memory_release(m->globals[i],
                                 va_contains(&d->managed, m->globals[i]) ? VA_MANAGED : VA_GLOBAL);
    }
    if (m->charged_bytes) {
        pthread_mutex_lock(&d->memory_lock);
        sim_uncharge(&d->ledger, m->charged_bytes, SIM_CHARGE_MODULE);
        pthread_mutex_unlock(&d->memory_lock);
    }
}

static void module_drop(struct CUmod_st *m)
{
    module_uncharge(m);
    for (struct CUfunc_st *f = m->functions; f; f = f->next) {
        f->magic = MAGIC_DEAD;
        f->info = NULL;
        free(f->legacy);
        f->legacy = NULL;
    }
    free(m->globals);
    m->globals = NULL;
    image_put(m->image);
    m->image = NULL;
    m->magic = MAGIC_DEAD;
}

static CUresult global_make(struct CUmod_st *m, const struct sim_image_global *g,
                            CUdeviceptr *address)
{
    void *host;

    TRY(memory_alloc(m->context, g->bytes, g->is_managed ? VA_MANAGED : VA_GLOBAL, address));
    if (!g->initial_bytes)
        return CUDA_SUCCESS;
    host = memory_host(*address, g->initial_bytes, true);
    NEED(host, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(host, g->initial, g->initial_bytes);
    return CUDA_SUCCESS;
}

static CUresult module_charge(struct CUmod_st *m)
{
    struct device *d = m->context->device;
    bool fits;

    pthread_mutex_lock(&d->memory_lock);
    fits = sim_charge(&d->ledger, d->info.module_bytes, SIM_CHARGE_MODULE);
    pthread_mutex_unlock(&d->memory_lock);
    NEED(fits, CUDA_ERROR_OUT_OF_MEMORY);
    m->charged_bytes = d->info.module_bytes;
    for (uint32_t i = 0; i < m->image->code.global_count; i++) {
        if (m->image->code.globals[i].bytes)
            TRY(global_make(m, &m->image->code.globals[i], &m->globals[i]));
    }
    return CUDA_SUCCESS;
}

CUresult module_new(struct CUctx_st *context, struct image *image, struct CUmod_st **module)
{
    struct CUmod_st *m = calloc(1, sizeof(*m));
    CUresult rc;

    if (m)
        m->globals = calloc(image->code.global_count + 1u, sizeof(*m->globals));
    if (!m || !m->globals) {
        free(m);
        image_put(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->context = context;
    m->image = image;
    rc = module_charge(m);
    if (rc != CUDA_SUCCESS) {
        module_drop(m);
        free(m);
        return rc;
    }
    m->magic = MAGIC_MODULE;
    m->next = context->modules;
    context->modules = m;
    *module = m;
    return CUDA_SUCCESS;
}

void module_unlink(struct CUmod_st *module)
{
    struct CUmod_st **at = &module->context->modules;

    while (*at && *at != module)
        at = &(*at)->next;
    if (*at)
        *at = module->next;
    module_drop(module);
}

void module_free_all(struct CUctx_st *context)
{
    for (struct CUmod_st *m = context->modules; m; m = m->next) {
        if (m->library)
            library_forget(m->library, m);
        module_drop(m);
    }
    context->modules = NULL;
}

static CUresult load(CUmodule *module, const void *bytes, size_t known, struct jit_log *log)
{
    struct CUctx_st *c;
    struct image *image;
    CUresult rc;

    TRY(current(&c));
    NEED(module && bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(capture_unsafe());
    TRY(image_new(bytes, known, c->device, log, &image));
    pthread_mutex_lock(&driver_lock);
    rc = module_new(c->root, image, module);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct jit_log log = {0};

    return load(module, image, 0, &log);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    struct jit_log log;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(jit_options(count, options, values, &log));
    rc = load(module, image, 0, &log);
    jit_results(count, options, values, &log);
    return rc;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    struct jit_log log = {0};
    size_t size;
    CUresult rc;
    char *bytes;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(module && path, CUDA_ERROR_INVALID_VALUE);
    bytes = file_read(path, &size, &rc);
    if (bytes)
        rc = load(module, bytes, size, &log);
    free(bytes);
    return rc;
}

CUresult cuModuleUnload(CUmodule module)
{
    struct CUctx_st *c;
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;

    TRY(current(&c));
    TRY(module_check(module));
    NEED(!module->library, CUDA_ERROR_NOT_PERMITTED);
    (void)context_wait(module->context);
    pthread_mutex_lock(&driver_lock);
    if (module->magic == MAGIC_MODULE) {
        module_unlink(module);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    const char *wanted = getenv("CUDA_MODULE_LOADING");

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(mode, CUDA_ERROR_INVALID_VALUE);
    *mode =
        wanted && strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult module_global(struct CUmod_st *m, const char *name, CUdeviceptr *address, uint64_t *bytes,
                       bool *is_managed)
{
    for (uint32_t i = 0; i < m->image->code.global_count; i++) {
        const struct sim_image_global *g = &m->image->code.globals[i];

        if (strcmp(g->name, name) == 0) {
            *address = m->globals[i];
            *bytes = g->bytes;
            *is_managed = g->is_managed;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name)
{
    struct CUctx_st *c;
    CUdeviceptr at;
    uint64_t size;
    bool is_managed;

    TRY(current(&c));
    NEED(name && (address || bytes), CUDA_ERROR_INVALID_VALUE);
    TRY(module_check(module));
    TRY(module_global(module, name, &at, &size, &is_managed));
    if (address)
        *address = at;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

/* The form of 32-bit addresses; ours do not fit it, so it can only name sizes. */
CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned int *bytes, CUmodule module,
                           const char *name)
{
    CUdeviceptr at = 0;
    size_t size = 0;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(address || bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(cuModuleGetGlobal_v2(&at, &size, module, name));
    NEED((!address || at <= UINT32_MAX) && size <= UINT32_MAX, CUDA_ERROR_INVALID_VALUE);
    if (address)
        *address = (CUdeviceptr_v1)at;
    if (bytes)
        *bytes = (unsigned int)size;
    return CUDA_SUCCESS;
}

/* Functions */

static CUresult function_make(struct CUmod_st *m, const char *name, struct CUfunc_st **function)
{
    struct CUfunc_st *f = calloc(1, sizeof(*f));

    if (f)
        f->name = strdup(name);
    if (!f || !f->name) {
        free(f);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    f->module = m;
    f->builtin = builtin_find(name);
    f->rule = launch_rule(name);
    f->info = sim_image_kernel(&m->image->code, name);
    function_describe(f);
    f->magic = MAGIC_FUNCTION;
    f->next = m->functions;
    m->functions = f;
    *function = f;
    return CUDA_SUCCESS;
}

CUresult module_function(struct CUmod_st *m, const char *name, struct CUfunc_st **function)
{
    struct CUfunc_st *f;

    for (f = m->functions; f; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            *function = f;
            return CUDA_SUCCESS;
        }
    }
    NEED(image_has(m->image, name), CUDA_ERROR_NOT_FOUND);
    return function_make(m, name, function);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(function && name, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = module_check(module);
    if (rc == CUDA_SUCCESS)
        rc = module_function(module, name, function);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(module_check(module));
    *count = module->image->code.kernel_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
    const struct sim_image *code;
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(functions || !count, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = module_check(module);
    code = rc == CUDA_SUCCESS ? &module->image->code : NULL;
    for (unsigned int i = 0; rc == CUDA_SUCCESS && i < count && i < code->kernel_count; i++)
        rc = module_function(module, code->kernels[i].name, &functions[i]);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

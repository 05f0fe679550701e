/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, libraries and functions. PTX text says which kernels and globals there are; of any other
 * image nothing is known, so every kernel name is taken for one that is there and globals are not
 * found. A module costs device memory (moduleBytes, and its globals). Lists are under driver_lock.
 */
#include "cuda/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ELF_MAGIC "\177ELF"
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FILE_MAX_BYTES (1ull << 30)

/* Images */

static bool is_text(const char *image)
{
    uint32_t word;

    memcpy(&word, image, sizeof(word));
    return memcmp(image, ELF_MAGIC, 4) != 0 && word != FATBIN_MAGIC && word != FATBIN_WRAPPER_MAGIC;
}

static CUresult image_new(const void *bytes, struct image **image)
{
    struct image *i = calloc(1, sizeof(*i));
    int rc;

    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    i->references = 1;
    if (is_text(bytes) && sim_ptx_is(bytes)) {
        rc = sim_ptx_parse(bytes, &i->ptx);
        if (rc != 0) {
            free(i);
            return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
        }
        i->is_ptx = true;
    }
    *image = i;
    return CUDA_SUCCESS;
}

static void image_put(struct image *i)
{
    if (--i->references == 0) {
        sim_ptx_free(&i->ptx);
        free(i);
    }
}

static const struct sim_ptx_kernel *image_kernel(const struct image *image, const char *name)
{
    for (uint32_t i = 0; i < image->ptx.kernel_count; i++) {
        if (strcmp(image->ptx.kernels[i].name, name) == 0)
            return &image->ptx.kernels[i];
    }
    return NULL;
}

static bool image_has(const struct image *image, const char *name)
{
    return *name && (!image->is_ptx || image_kernel(image, name));
}

/* Modules */

static void module_uncharge(struct CUmod_st *m)
{
    struct device *d = m->context->device;

    for (uint32_t i = 0; m->globals && i < m->image->ptx.global_count; i++) {
        struct va_record *r;
        uint64_t base;

        if (!m->globals[i].address)
            continue;
        pthread_mutex_lock(&d->memory_lock);
        r = va_find(&d->memory, m->globals[i].address, &base);
        if (r && r->kind == VA_GLOBAL) {
            uint64_t physical = sim_round_bytes(r->bytes);

            va_free(&d->memory, base);
            sim_uncharge(&d->ledger, physical, SIM_CHARGE_MEMORY);
        }
        pthread_mutex_unlock(&d->memory_lock);
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
    for (struct CUfunc_st *f = m->functions; f; f = f->next)
        f->magic = MAGIC_DEAD;
    free(m->globals);
    m->globals = NULL;
    image_put(m->image);
    m->image = NULL;
    m->magic = MAGIC_DEAD;
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
    for (uint32_t i = 0; i < m->image->ptx.global_count; i++) {
        const struct sim_ptx_global *g = &m->image->ptx.globals[i];

        m->globals[i].name = g->name;
        m->globals[i].bytes = g->bytes;
        if (g->bytes)
            TRY(memory_alloc(m->context, g->bytes, VA_GLOBAL, &m->globals[i].address));
    }
    return CUDA_SUCCESS;
}

/* Takes over one reference of the image, also on failure. Under driver_lock. */
static CUresult module_new(struct CUctx_st *context, struct image *image, struct CUmod_st **module)
{
    struct CUmod_st *m = calloc(1, sizeof(*m));
    CUresult rc;

    if (m)
        m->globals = calloc(image->ptx.global_count + 1u, sizeof(*m->globals));
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

void module_free_all(struct CUctx_st *context)
{
    for (struct CUmod_st *m = context->modules; m; m = m->next) {
        if (m->library)
            m->library->modules[context->device->ordinal] = NULL;
        module_drop(m);
    }
    context->modules = NULL;
}

static CUresult load(CUmodule *module, const void *bytes)
{
    struct CUctx_st *c;
    struct image *image;
    CUresult rc;

    TRY(current(&c));
    NEED(module && bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(capture_unsafe());
    TRY(image_new(bytes, &image));
    pthread_mutex_lock(&driver_lock);
    rc = module_new(c, image, module);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    NEED(!count || (options && values), CUDA_ERROR_INVALID_VALUE);
    /* Nothing is compiled, so logs are empty. */
    for (unsigned int i = 0; i < count; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[i] = NULL;
    }
    return load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return load(module, image);
}

/* Reads a whole file and a NUL; the caller's, or NULL with *rc. */
static char *read_file(const char *path, CUresult *rc)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct statx st; /* fstat() would bind the library to glibc 2.33 */
    char *bytes = NULL;

    *rc = CUDA_ERROR_FILE_NOT_FOUND;
    if (fd < 0)
        return NULL;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &st) == 0 && S_ISREG(st.stx_mode) &&
        st.stx_size < FILE_MAX_BYTES) {
        size_t size = (size_t)st.stx_size, done = 0;

        *rc = CUDA_ERROR_OUT_OF_MEMORY;
        bytes = calloc(1, size + 8);
        while (bytes && done < size) {
            ssize_t n = read(fd, bytes + done, size - done);

            if (n <= 0)
                break;
            done += (size_t)n;
        }
    }
    close(fd);
    return bytes;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    CUresult rc;
    char *bytes;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(module && path, CUDA_ERROR_INVALID_VALUE);
    bytes = read_file(path, &rc);
    if (bytes)
        rc = load(module, bytes);
    free(bytes);
    return rc;
}

CUresult cuModuleUnload(CUmodule module)
{
    struct CUctx_st *c;
    struct CUmod_st **at;
    CUresult rc = CUDA_SUCCESS;

    TRY(current(&c));
    NEED(module && module->magic == MAGIC_MODULE && !module->library, CUDA_ERROR_INVALID_HANDLE);
    wait_until(atomic_load(&module->context->all_end_ns));
    pthread_mutex_lock(&driver_lock);
    for (at = &module->context->modules; *at && *at != module; at = &(*at)->next)
        ;
    if (*at) {
        *at = module->next;
        module_drop(module);
    } else {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(mode, CUDA_ERROR_INVALID_VALUE);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(name && (address || bytes), CUDA_ERROR_INVALID_VALUE);
    NEED(module && module->magic == MAGIC_MODULE, CUDA_ERROR_INVALID_HANDLE);
    for (uint32_t i = 0; i < module->image->ptx.global_count; i++) {
        if (strcmp(module->globals[i].name, name) == 0) {
            if (address)
                *address = module->globals[i].address;
            if (bytes)
                *bytes = module->globals[i].bytes;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* Functions */

static CUresult function_make(struct CUmod_st *m, const char *name, struct CUfunc_st **function)
{
    const struct sim_ptx_kernel *k = image_kernel(m->image, name);
    struct CUfunc_st *f = calloc(1, sizeof(*f));

    if (f)
        f->info.name = strdup(name);
    if (!f || !f->info.name) {
        free(f);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    f->module = m;
    f->info.builtin = builtin_find(name);
    if (k) {
        f->info.has_params = true;
        f->info.param_count = k->param_count;
        memcpy(f->info.param_bytes, k->param_bytes, sizeof(k->param_bytes));
        memcpy(f->info.param_offset, k->param_offset, sizeof(k->param_offset));
    }
    f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    f->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = f->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] =
        (int)(m->context->device->info.cc_major * 10 + m->context->device->info.cc_minor);
    f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    f->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    f->magic = MAGIC_FUNCTION;
    f->next = m->functions;
    m->functions = f;
    *function = f;
    return CUDA_SUCCESS;
}

static CUresult module_function(struct CUmod_st *m, const char *name, struct CUfunc_st **function)
{
    struct CUfunc_st *f;

    for (f = m->functions; f; f = f->next) {
        if (strcmp(f->info.name, name) == 0) {
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
    NEED(module && module->magic == MAGIC_MODULE, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&driver_lock);
    rc = module->magic == MAGIC_MODULE ? module_function(module, name, function)
                                       : CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

/* Libraries: context-independent; a module of theirs is made in a context when first needed */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **values, unsigned int count)
{
    struct CUlib_st *l;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(library && code && (!jit_count || (jit_options && jit_values)) &&
             (!count || (options && values)),
         CUDA_ERROR_INVALID_VALUE);
    l = calloc(1, sizeof(*l));
    if (l)
        l->modules = calloc(SIM_MAX_DEVICES, sizeof(*l->modules));
    if (!l || !l->modules) {
        free(l);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult rc = image_new(code, &l->image);
    if (rc != CUDA_SUCCESS) {
        free(l->modules);
        free(l);
        return rc;
    }
    l->magic = MAGIC_LIBRARY;
    *library = l;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count)
{
    CUresult rc;
    char *bytes;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(library && path, CUDA_ERROR_INVALID_VALUE);
    bytes = read_file(path, &rc);
    if (bytes)
        rc = cuLibraryLoadData(library, bytes, jit_options, jit_values, jit_count, options, values,
                               count);
    free(bytes);
    return rc;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(library && library->magic == MAGIC_LIBRARY, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&driver_lock);
    for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++) {
        struct CUmod_st *m = library->modules[i], **at;

        if (!m)
            continue;
        for (at = &m->context->modules; *at && *at != m; at = &(*at)->next)
            ;
        if (*at)
            *at = m->next;
        module_drop(m);
        library->modules[i] = NULL;
    }
    for (struct CUkern_st *k = library->kernels; k; k = k->next)
        k->magic = MAGIC_DEAD;
    image_put(library->image);
    library->magic = MAGIC_DEAD;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    struct CUkern_st *k = NULL;
    CUresult rc = CUDA_SUCCESS;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(kernel && name, CUDA_ERROR_INVALID_VALUE);
    NEED(library && library->magic == MAGIC_LIBRARY, CUDA_ERROR_INVALID_HANDLE);
    NEED(image_has(library->image, name), CUDA_ERROR_NOT_FOUND);
    pthread_mutex_lock(&driver_lock);
    for (k = library->kernels; k && strcmp(k->name, name) != 0; k = k->next)
        ;
    if (!k) {
        k = calloc(1, sizeof(*k));
        if (k)
            k->name = strdup(name);
        if (k && k->name) {
            k->library = library;
            k->next = library->kernels;
            library->kernels = k;
            k->magic = MAGIC_KERNEL;
        } else {
            free(k);
            k = NULL;
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *kernel = k;
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

/* Under driver_lock. */
static CUresult library_module(struct CUlib_st *l, struct CUctx_st *c, struct CUmod_st **module)
{
    struct CUmod_st **slot = &l->modules[c->device->ordinal];

    if (!*slot || (*slot)->context != c) {
        if (*slot)
            return CUDA_ERROR_INVALID_CONTEXT; /* a second context of the device: not there yet */
        l->image->references++;
        TRY(module_new(c, l->image, slot));
        (*slot)->library = l;
    }
    *module = *slot;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(module, CUDA_ERROR_INVALID_VALUE);
    NEED(library && library->magic == MAGIC_LIBRARY, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&driver_lock);
    rc = library_module(library, c, module);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name)
{
    CUmodule module;

    TRY(cuLibraryGetModule(&module, library));
    return cuModuleGetGlobal_v2(address, bytes, module, name);
}

static CUresult kernel_function(struct CUkern_st *k, struct CUctx_st *c, struct CUfunc_st **f)
{
    struct CUmod_st *m;
    CUresult rc;

    pthread_mutex_lock(&driver_lock);
    rc = k->magic == MAGIC_KERNEL ? library_module(k->library, c, &m) : CUDA_ERROR_INVALID_HANDLE;
    if (rc == CUDA_SUCCESS)
        rc = module_function(m, k->name, f);
    if (rc == CUDA_SUCCESS)
        (*f)->kernel = k;
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(function, CUDA_ERROR_INVALID_VALUE);
    NEED(kernel && kernel->magic == MAGIC_KERNEL, CUDA_ERROR_INVALID_HANDLE);
    return kernel_function(kernel, c, function);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    NEED(kernel && kernel->magic == MAGIC_KERNEL, CUDA_ERROR_INVALID_HANDLE);
    *name = kernel->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    NEED(library, CUDA_ERROR_INVALID_VALUE);
    NEED(kernel && kernel->magic == MAGIC_KERNEL, CUDA_ERROR_INVALID_HANDLE);
    *library = kernel->library;
    return CUDA_SUCCESS;
}

/* Launch calls take a CUkernel in the place of a CUfunction. */
CUresult function_of(CUfunction handle, struct CUctx_st *context, struct CUfunc_st **function)
{
    NEED(handle, CUDA_ERROR_INVALID_HANDLE);
    if (handle->magic == MAGIC_FUNCTION) {
        *function = handle;
        return CUDA_SUCCESS;
    }
    NEED(handle->magic == MAGIC_KERNEL, CUDA_ERROR_INVALID_HANDLE);
    return kernel_function((struct CUkern_st *)handle, context, function);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries: code that belongs to no context. A context that uses one has a module of it, made when
 * first needed. Under driver_lock.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/module.h"

static CUresult library_check(CUlibrary library)
{
    return library && library->magic == MAGIC_LIBRARY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult kernel_check(CUkernel kernel)
{
    return kernel && kernel->magic == MAGIC_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Loading */

/* One image for each device that the code fits; devices of one kind share it. */
static CUresult load_images(struct CUlib_st *l, const void *code, size_t known, struct jit_log *log)
{
    CUresult failed = CUDA_ERROR_NO_BINARY_FOR_GPU;
    bool has_any = false;

    for (int i = 0; i < driver_device_count; i++) {
        const struct device *d = &driver_devices[i];
        CUresult rc;

        for (int k = 0; k < i && !l->image[i]; k++) {
            const struct sim_device_info *other = &driver_devices[k].info;

            if (l->image[k] && other->cc_major == d->info.cc_major &&
                other->cc_minor == d->info.cc_minor) {
                l->image[i] = l->image[k];
                l->image[i]->references++;
            }
        }
        rc = l->image[i] ? CUDA_SUCCESS : image_new(code, known, d, log, &l->image[i]);
        if (rc == CUDA_SUCCESS)
            has_any = true;
        else if (i == 0)
            failed = rc;
    }
    return has_any ? CUDA_SUCCESS : failed;
}

static CUresult options_check(const CUlibraryOption *options, void **values, unsigned int count)
{
    NEED(!count || (options && values), CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < count; i++)
        NEED((int)options[i] >= 0 && options[i] < CU_LIBRARY_NUM_OPTIONS, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult load(CUlibrary *library, const void *code, size_t known, struct jit_log *log)
{
    struct CUlib_st *l = calloc(1, sizeof(*l));
    CUresult rc;

    NEED(l, CUDA_ERROR_OUT_OF_MEMORY);
    rc = load_images(l, code, known, log);
    if (rc != CUDA_SUCCESS) {
        free(l);
        return rc;
    }
    l->magic = MAGIC_LIBRARY;
    *library = l;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_names,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **values, unsigned int count)
{
    struct jit_log log;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(library && code, CUDA_ERROR_INVALID_VALUE);
    TRY(options_check(options, values, count));
    TRY(jit_options(jit_count, jit_names, jit_values, &log));
    rc = load(library, code, 0, &log);
    jit_results(jit_count, jit_names, jit_values, &log);
    return rc;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_names,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count)
{
    struct jit_log log;
    size_t size;
    CUresult rc;
    char *bytes;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(library && path, CUDA_ERROR_INVALID_VALUE);
    TRY(options_check(options, values, count));
    TRY(jit_options(jit_count, jit_names, jit_values, &log));
    bytes = file_read(path, &size, &rc);
    if (bytes)
        rc = load(library, bytes, size, &log);
    free(bytes);
    jit_results(jit_count, jit_names, jit_values, &log);
    return rc;
}

static void forget_functions(struct CUmod_st *m)
{
    for (struct CUfunc_st *f = m->functions; f; f = f->next)
        f->kernel = NULL;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    pthread_mutex_lock(&driver_lock);
    rc = library_check(library);
    if (rc == CUDA_SUCCESS) {
        for (struct CUmod_st *m = library->modules, *after; m; m = after) {
            after = m->next_of_library;
            forget_functions(m);
            module_unlink(m);
        }
        library->modules = NULL;
        for (struct CUkern_st *k = library->kernels; k; k = k->next)
            k->magic = MAGIC_DEAD;
        for (int i = 0; i < driver_device_count; i++) {
            if (library->image[i])
                image_put(library->image[i]);
        }
        library->magic = MAGIC_DEAD;
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

void library_forget(struct CUlib_st *library, struct CUmod_st *module)
{
    struct CUmod_st **at = &library->modules;

    while (*at && *at != module)
        at = &(*at)->next_of_library;
    if (*at)
        *at = module->next_of_library;
}

/* Kernels */

static const struct image *any_image(const struct CUlib_st *l)
{
    for (int i = 0; i < driver_device_count; i++) {
        if (l->image[i])
            return l->image[i];
    }
    return NULL; /* not of a loaded library */
}

static bool library_has(const struct CUlib_st *l, const char *name)
{
    for (int i = 0; i < driver_device_count; i++) {
        if (l->image[i] && image_has(l->image[i], name))
            return true;
    }
    return false;
}

static CUresult kernel_get(struct CUlib_st *l, const char *name, struct CUkern_st **kernel)
{
    struct CUkern_st *k;

    for (k = l->kernels; k && strcmp(k->name, name) != 0; k = k->next)
        ;
    if (!k) {
        k = calloc(1, sizeof(*k));
        if (k)
            k->name = strdup(name);
        if (!k || !k->name) {
            free(k);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        k->library = l;
        k->next = l->kernels;
        l->kernels = k;
        k->magic = MAGIC_KERNEL;
    }
    *kernel = k;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(kernel && name, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = library_check(library);
    if (rc == CUDA_SUCCESS && !library_has(library, name))
        rc = CUDA_ERROR_NOT_FOUND;
    if (rc == CUDA_SUCCESS)
        rc = kernel_get(library, name, kernel);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(library_check(library));
    *count = any_image(library)->code.kernel_count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
    const struct sim_image *code;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(kernels || !count, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = library_check(library);
    code = rc == CUDA_SUCCESS ? &any_image(library)->code : NULL;
    for (unsigned int i = 0; rc == CUDA_SUCCESS && i < count && i < code->kernel_count; i++)
        rc = kernel_get(library, code->kernels[i].name, &kernels[i]);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

/* The library's module in a context. Under driver_lock. */
static CUresult library_module(struct CUlib_st *l, struct CUctx_st *c, struct CUmod_st **module)
{
    struct image *image = l->image[c->device->ordinal];
    struct CUmod_st *m;

    c = c->root;
    for (m = l->modules; m && m->context != c; m = m->next_of_library)
        ;
    if (!m) {
        NEED(image, CUDA_ERROR_NO_BINARY_FOR_GPU);
        image->references++;
        TRY(module_new(c, image, &m));
        m->library = l;
        m->next_of_library = l->modules;
        l->modules = m;
    }
    *module = m;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(module, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = library_check(library);
    if (rc == CUDA_SUCCESS)
        rc = library_module(library, c, module);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

static CUresult library_global(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                               const char *name, bool wants_managed)
{
    CUmodule module;
    CUdeviceptr at;
    uint64_t size;
    bool is_managed;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(name && (address || bytes), CUDA_ERROR_INVALID_VALUE);
    TRY(cuLibraryGetModule(&module, library));
    TRY(module_global(module, name, &at, &size, &is_managed));
    NEED(is_managed || !wants_managed, CUDA_ERROR_NOT_FOUND);
    if (address)
        *address = at;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name)
{
    return library_global(address, bytes, library, name, false);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                             const char *name)
{
    return library_global(address, bytes, library, name, true);
}

/* A function pointer that host and device both call: no code here has one. */
CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *name)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(function && name, CUDA_ERROR_INVALID_VALUE);
    TRY(library_check(library));
    return CUDA_ERROR_NOT_FOUND;
}

CUresult kernel_function(struct CUkern_st *k, struct CUctx_st *c, struct CUfunc_st **f)
{
    int device = c->device->ordinal;
    struct CUmod_st *m;
    CUresult rc;

    pthread_mutex_lock(&driver_lock);
    rc = kernel_check(k);
    if (rc == CUDA_SUCCESS)
        rc = library_module(k->library, c, &m);
    if (rc == CUDA_SUCCESS)
        rc = module_function(m, k->name, f);
    if (rc == CUDA_SUCCESS && !(*f)->kernel) {
        (*f)->kernel = k;
        (*f)->cache = k->cache[device];
        for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++) {
            if (k->is_set[device] & 1u << i)
                (*f)->attributes[i] = k->attribute[device][i];
        }
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(function, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_check(kernel));
    return kernel_function(kernel, c, function);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_check(kernel));
    *name = kernel->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(library, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_check(kernel));
    *library = kernel->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    const struct sim_image_kernel *info;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(offset, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_check(kernel));
    info = sim_image_kernel(&any_image(kernel->library)->code, kernel->name);
    NEED(info && index < info->param_count, CUDA_ERROR_INVALID_VALUE);
    *offset = info->params[index].offset;
    if (bytes)
        *bytes = info->params[index].bytes;
    return CUDA_SUCCESS;
}

/* Attributes of a kernel on a device, whether or not a context there uses it yet */

static CUresult describe(struct CUkern_st *k, const struct device *d, int *attributes)
{
    struct image *image = k->library->image[d->ordinal];
    struct CUctx_st context = {.device = &driver_devices[d->ordinal]};
    struct CUmod_st module = {.context = &context, .image = image};
    struct CUfunc_st f = {.module = &module};

    NEED(image, CUDA_ERROR_NO_BINARY_FOR_GPU);
    f.info = sim_image_kernel(&image->code, k->name);
    function_describe(&f);
    for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++)
        attributes[i] =
            k->is_set[d->ordinal] & 1u << i ? k->attribute[d->ordinal][i] : f.attributes[i];
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice dev)
{
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    struct device *d;
    CUresult rc;

    TRY(device_get(dev, &d));
    NEED(value && (int)attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX,
         CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = kernel_check(kernel);
    if (rc == CUDA_SUCCESS)
        rc = describe(kernel, d, attributes);
    pthread_mutex_unlock(&driver_lock);
    if (rc == CUDA_SUCCESS)
        *value = attributes[attribute];
    return rc;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice dev)
{
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    struct device *d;
    CUresult rc;

    TRY(device_get(dev, &d));
    pthread_mutex_lock(&driver_lock);
    rc = kernel_check(kernel);
    if (rc == CUDA_SUCCESS)
        rc = describe(kernel, d, attributes);
    if (rc == CUDA_SUCCESS)
        rc = attribute_set(attributes, d, attribute, value);
    if (rc == CUDA_SUCCESS) {
        kernel->attribute[dev][attribute] = value;
        kernel->is_set[dev] |= 1u << attribute;
        for (struct CUmod_st *m = kernel->library->modules; m; m = m->next_of_library) {
            for (struct CUfunc_st *f = m->functions; f; f = f->next) {
                if (m->context->device == d && f->kernel == kernel)
                    f->attributes[attribute] = value;
            }
        }
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED((int)config >= 0 && config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_check(kernel));
    kernel->cache[dev] = config;
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

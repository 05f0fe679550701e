/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: cuGetProcAddress, error names and texts, the export tables (which a stand-in does not
 * have) and the answer of entry points that are not implemented. Works before cuInit.
 */
#include "cuda/driver.h"

#include <string.h>

#include "client/entries.h"

#define PER_THREAD_VERSION 7000 /* the first with per-thread default streams */

int sim_unsupported(unsigned int index)
{
    if (!driver_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    atomic_fetch_add_explicit(&driver_connection.client->unsupported[index], 1,
                              memory_order_relaxed);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* First row of that name, or sim_proc_count. */
static unsigned int first_row(const char *name)
{
    unsigned int low = 0, high = sim_proc_count;

    while (low < high) {
        unsigned int middle = (low + high) / 2;

        if (strcmp(sim_procs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sim_proc_count && strcmp(sim_procs[low].name, name) == 0 ? low : sim_proc_count;
}

/* The newest form that the version may have. Flag 2 asks for per-thread default streams. */
static CUdriverProcAddressQueryResult find(const char *name, int version, cuuint64_t flags,
                                           void **function)
{
    unsigned int row = first_row(name);
    const struct sim_proc *best = NULL;

    *function = NULL;
    if (row == sim_proc_count)
        return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (; row < sim_proc_count && strcmp(sim_procs[row].name, name) == 0; row++) {
        if (sim_procs[row].version <= version)
            best = &sim_procs[row];
    }
    if (!best)
        return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    *function =
        flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && version >= PER_THREAD_VERSION
            ? (void *)best->per_thread
            : (void *)best->legacy;
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

/* As the real driver: an unknown name is no error, the status says so, and NULL is returned. */
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult found;

    NEED(name && function && flags <= 2, CUDA_ERROR_INVALID_VALUE);
    found = find(name, version, flags, function);
    if (status)
        *status = found;
    return CUDA_SUCCESS;
}

/* The first form reports an unknown name as an error and leaves *function alone. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    void *found;

    NEED(name && function && flags <= 2, CUDA_ERROR_INVALID_VALUE);
    NEED(find(name, version, flags, &found) == CU_GET_PROC_ADDRESS_SUCCESS, CUDA_ERROR_NOT_FOUND);
    *function = found;
    return CUDA_SUCCESS;
}

/* NVIDIA's private tables prove to its runtime that the driver is genuine. This one is not, and
 * does not pretend to be. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    NEED(table && id, CUDA_ERROR_INVALID_VALUE);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

static const struct {
    CUresult code;
    const char *name;
} names[] = {
#define ROW(name, value) {name, #name},
    ALQ_CUDA_ERRORS(ROW)
#undef ROW
};

CUresult cuGetErrorName(CUresult error, const char **name)
{
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].code == error) {
            *name = names[i].name;
            return CUDA_SUCCESS;
        }
    }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

static const struct {
    CUresult code;
    const char *text;
} texts[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
    {CUDA_ERROR_FILE_NOT_FOUND, "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver "
                                        "combination"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "unknown error"},
};

/* The driver's words for common errors; for others the name, in words enough. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
    NEED(text, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].code == error) {
            *text = texts[i].text;
            return CUDA_SUCCESS;
        }
    }
    return cuGetErrorName(error, text);
}

CUresult cuProfilerStart(void)
{
    struct CUctx_st *c;

    return current(&c);
}

CUresult cuProfilerStop(void)
{
    struct CUctx_st *c;

    return current(&c);
}

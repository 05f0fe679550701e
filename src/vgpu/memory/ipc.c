/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuIpc: linear memory that other processes may open. It is its maker's (export.h); who opens it
 * only says that it has. EXPORTED and IMPORT entries of the table go with their contexts.
 */
#include "vgpu/memory/alloc.h"
#include "vgpu/memory/export.h"

static void exported(CUdeviceptr address)
{
    struct alq_entry_value value;
    CUdeviceptr base = address;

    if (ALQ_HAS(cuPointerGetAttribute) &&
        ALQ_CALL(cuPointerGetAttribute, &base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
            CUDA_SUCCESS)
        base = address;
    if (alq_table_change(base, ALQ_KIND_LINEAR, ALQ_KIND_EXPORTED, &value))
        alq_export_add(alq_dev_at(value.device), value.counted_bytes);
}

ALQ_HOOK CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    if (!ALQ_HAS(cuIpcGetMemHandle))
        return alq_absent(ALQ_CU_cuIpcGetMemHandle);
    CUresult result = ALQ_CALL(cuIpcGetMemHandle, handle, address);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        exported(address);
    }
    return result;
}

/* IMPORT: overhead_bytes = how often it is open. */
static void opened(CUdeviceptr at)
{
    struct alq_here here = alq_context_here();
    struct alq_entry_value value;

    if (!here.dev)
        return;
    bool is_open = alq_table_take(at, ALQ_KIND_IMPORT, &value);
    if (!is_open)
        value =
            (struct alq_entry_value){0, 0, here.context, (uint8_t)here.dev->index, ALQ_KIND_IMPORT};
    value.overhead_bytes++;
    if (alq_table_put(at, &value) && !is_open)
        alq_export_opened(here.dev, 1);
}

#define OPEN(name)                                                                                 \
    ALQ_HOOK CUresult name(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)            \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult result = ALQ_CALL(name, out, handle, flags);                                      \
        if (result == CUDA_SUCCESS && alq_core_is_on())                                            \
            opened(*out);                                                                          \
        return result;                                                                             \
    }

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

ALQ_HOOK CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
    struct alq_entry_value value;

    if (!ALQ_HAS(cuIpcCloseMemHandle))
        return alq_absent(ALQ_CU_cuIpcCloseMemHandle);
    if (!alq_core_is_on())
        return ALQ_CALL(cuIpcCloseMemHandle, at);
    alq_core_renew();
    bool is_known = alq_table_take(at, ALQ_KIND_IMPORT, &value);
    CUresult result = ALQ_CALL(cuIpcCloseMemHandle, at);
    if (is_known && (result != CUDA_SUCCESS || --value.overhead_bytes))
        alq_table_put(at, &value);
    else if (is_known)
        alq_export_opened(alq_dev_at(value.device), -1);
    return result;
}

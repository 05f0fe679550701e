/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the just-in-time compiler. Nothing is compiled here: what matters is that options are
 * checked as the driver does, that logs get a compiler's words and lengths are written back.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda/module.h"

static size_t as_size(void *value)
{
    return (size_t)(uintptr_t)value;
}

CUresult jit_options(unsigned int count, const CUjit_option *options, void **values,
                     struct jit_log *log)
{
    memset(log, 0, sizeof(*log));
    NEED(!count || (options && values), CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < count; i++) {
        NEED((int)options[i] >= 0 && options[i] < CU_JIT_NUM_OPTIONS, CUDA_ERROR_INVALID_VALUE);
        switch (options[i]) {
        case CU_JIT_INFO_LOG_BUFFER:
            log->info = values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            log->info_bytes = (unsigned int)as_size(values[i]);
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            log->error = values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            log->error_bytes = (unsigned int)as_size(values[i]);
            break;
        case CU_JIT_OPTIMIZATION_LEVEL:
            NEED((unsigned int)as_size(values[i]) <= 4, CUDA_ERROR_INVALID_VALUE);
            break;
        default:
            break;
        }
    }
    /* A buffer without a size, or the other way round, is no buffer. */
    if (!log->info || !log->info_bytes)
        log->info = NULL;
    if (!log->error || !log->error_bytes)
        log->error = NULL;
    if (log->info)
        *log->info = '\0';
    if (log->error)
        *log->error = '\0';
    return CUDA_SUCCESS;
}

void jit_say(char *buffer, size_t bytes, const char *format, ...)
{
    size_t used;
    va_list args;

    if (!buffer)
        return;
    used = strnlen(buffer, bytes);
    if (used >= bytes)
        return;
    va_start(args, format);
    vsnprintf(buffer + used, bytes - used, format, args);
    va_end(args);
}

static void *filled(const char *buffer, size_t bytes)
{
    return (void *)(uintptr_t)(buffer ? strnlen(buffer, bytes) : 0);
}

void jit_results(unsigned int count, const CUjit_option *options, void **values,
                 const struct jit_log *log)
{
    const float none = 0;

    for (unsigned int i = 0; i < count; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
            values[i] = filled(log->info, log->info_bytes);
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[i] = filled(log->error, log->error_bytes);
        else if (options[i] == CU_JIT_WALL_TIME)
            memcpy(&values[i], &none, sizeof(none));
    }
}

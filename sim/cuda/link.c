/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linker as far as text goes: PTX inputs are joined, since a module is read as declarations and
 * names may come in any order. A single input of another kind is its own result; joining several of
 * those is not supported. Device libraries (archives) add nothing that is read here. A link state
 * is used by one thread at a time, as the driver asks.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/module.h"

#define ARCHIVE_MAGIC "!<arch>\n"

struct CUlinkState_st {
    uint32_t magic;
    const struct device *device;
    struct jit_log log; /* the caller's buffers, which live as long as the state */
    unsigned int option_count;
    CUjit_option *options;
    void **values; /* the caller's, for the lengths */
    char *output;
    size_t bytes;
    bool is_text, has_other, is_complete;
};

static CUresult state_check(CUlinkState state)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return state && state->magic == MAGIC_LINK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values,
                         CUlinkState *state)
{
    struct CUlinkState_st *s;
    struct jit_log log;
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(state, CUDA_ERROR_INVALID_VALUE);
    TRY(jit_options(count, options, values, &log));
    s = calloc(1, sizeof(*s));
    NEED(s, CUDA_ERROR_OUT_OF_MEMORY);
    s->magic = MAGIC_LINK;
    s->device = c->device;
    s->log = log;
    s->option_count = count;
    s->options = options;
    s->values = values;
    *state = s;
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
    return cuLinkCreate_v2(count, options, values, state);
}

static CUresult append(struct CUlinkState_st *s, const char *data, size_t bytes)
{
    char *more = realloc(s->output, s->bytes + bytes + SIM_CUBIN_HEADER_BYTES);

    NEED(more, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(more + s->bytes, data, bytes);
    memset(more + s->bytes + bytes, 0, SIM_CUBIN_HEADER_BYTES);
    s->output = more;
    s->bytes += bytes;
    return CUDA_SUCCESS;
}

/* Reads the input as a module would, to find what is wrong with it now. */
static CUresult input_check(struct CUlinkState_st *s, const char *data, size_t bytes)
{
    struct image *image;
    char *copy = calloc(1, bytes + SIM_CUBIN_HEADER_BYTES);
    CUresult rc;

    NEED(copy, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(copy, data, bytes);
    rc = image_new(copy, bytes, s->device, &s->log, &image);
    free(copy);
    if (rc == CUDA_SUCCESS)
        image_put(image);
    return rc;
}

static CUresult add(struct CUlinkState_st *s, CUjitInputType type, const char *data, size_t bytes)
{
    bool is_text = type == CU_JIT_INPUT_PTX;

    NEED(!s->is_complete && data && bytes, CUDA_ERROR_INVALID_VALUE);
    if (type == CU_JIT_INPUT_LIBRARY) {
        NEED(bytes >= 8 && memcmp(data, ARCHIVE_MAGIC, 8) == 0, CUDA_ERROR_INVALID_IMAGE);
        return CUDA_SUCCESS;
    }
    NEED(type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_FATBINARY ||
             type == CU_JIT_INPUT_OBJECT,
         type < CU_JIT_NUM_INPUT_TYPES ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
    NEED(is_text || image_is_binary(data, bytes), CUDA_ERROR_INVALID_IMAGE);
    if (is_text) /* lengths may or may not count the NUL */
        bytes = strnlen(data, bytes);
    TRY(input_check(s, data, bytes));
    NEED(!s->has_other && (is_text || !s->is_text), CUDA_ERROR_NOT_SUPPORTED);
    TRY(append(s, data, bytes));
    s->is_text |= is_text;
    s->has_other |= !is_text;
    return is_text ? append(s, "\n", 1) : CUDA_SUCCESS;
}

static CUresult add_data(CUlinkState state, CUjitInputType type, const void *data, size_t bytes,
                         unsigned int count, CUjit_option *options, void **values)
{
    struct jit_log log;
    CUresult rc;

    TRY(state_check(state));
    TRY(jit_options(count, options, values, &log));
    rc = add(state, type, data, bytes);
    if (rc != CUDA_SUCCESS)
        jit_results(state->option_count, state->options, state->values, &state->log);
    return rc;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                          const char *name, unsigned int count, CUjit_option *options,
                          void **values)
{
    (void)name;
    return add_data(state, type, data, bytes, count, options, values);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                       const char *name, unsigned int count, CUjit_option *options, void **values)
{
    return cuLinkAddData_v2(state, type, data, bytes, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int count, CUjit_option *options, void **values)
{
    size_t bytes;
    CUresult rc;
    char *data;

    TRY(state_check(state));
    NEED(path, CUDA_ERROR_INVALID_VALUE);
    data = file_read(path, &bytes, &rc);
    if (data)
        rc = add_data(state, type, data, bytes, count, options, values);
    free(data);
    return rc;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                       CUjit_option *options, void **values)
{
    return cuLinkAddFile_v2(state, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes)
{
    TRY(state_check(state));
    NEED(image && state->output, CUDA_ERROR_INVALID_VALUE);
    state->is_complete = true;
    jit_results(state->option_count, state->options, state->values, &state->log);
    *image = state->output; /* the state's: it lives until cuLinkDestroy */
    if (bytes)
        *bytes = state->bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    TRY(state_check(state));
    state->magic = MAGIC_DEAD;
    free(state->output);
    state->output = NULL;
    bury(state);
    return CUDA_SUCCESS;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulator knows of a module's code: its kernels with their parameters and needs, and its
 * global variables. Filled by the readers of the forms that code comes in: PTX text (ptx.c) and
 * cubin (cubin.c); fatbin.h takes one of these out of a container. Readers take any bytes, look at
 * none beyond the size they are given, and leave an image that they refuse empty.
 */
#ifndef SIM_COMMON_IMAGE_H
#define SIM_COMMON_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_PARAM_BYTES_MAX 32764u /* all parameters of a kernel, since compute capability 7.0 */

struct sim_param {
    uint32_t bytes, offset; /* in the parameter buffer */
};

struct sim_image_kernel {
    char *name;
    uint32_t param_count;
    struct sim_param *params; /* in order */
    uint32_t shared_bytes;    /* static */
    uint32_t local_bytes;     /* of a thread */
    uint32_t registers;       /* of a thread; 0: not known */
    uint32_t max_threads;     /* of a block, as the code was compiled for; 0: no bound */
    uint32_t cluster[3];      /* required; 0: none */
};

struct sim_image_global {
    char *name;
    uint64_t bytes;
    void *initial; /* its first initial_bytes; the rest is zero */
    size_t initial_bytes;
    bool is_managed, is_constant;
};

struct sim_image {
    uint32_t kernel_count, global_count;
    struct sim_image_kernel *kernels;
    struct sim_image_global *globals;
    uint32_t cc;             /* it was made for: major * 10 + minor; 0: not known */
    uint32_t ptx_version;    /* likewise; 0 of a cubin */
    uint32_t constant_bytes; /* of all constant variables */
};

/* A new, empty one with a copy of the name at the end of the list; NULL without memory. */
struct sim_image_kernel *sim_image_add_kernel(struct sim_image *image, const char *name);
struct sim_image_global *sim_image_add_global(struct sim_image *image, const char *name);

/* NULL when there is none of that name. */
struct sim_image_kernel *sim_image_kernel(const struct sim_image *image, const char *name);

/* Appends a parameter; -ENOMEM without memory. */
int sim_image_add_param(struct sim_image_kernel *kernel, uint32_t bytes, uint32_t offset);

void sim_image_free(struct sim_image *image);

/* Whether the text (NUL-terminated) claims to be PTX: it has a .version directive. */
bool sim_ptx_is(const char *text);

/* Adds what the text declares. 0, -EINVAL for a declaration that cannot be read (its line, from 1,
 * in *line), -ENOMEM. */
int sim_ptx_read(const char *text, struct sim_image *image, uint32_t *line);

/*
 * The size of the cubin that starts with these bytes, as its header says; 0 when they are too few
 * or are not one. The header is the first SIM_CUBIN_HEADER_BYTES.
 */
#define SIM_CUBIN_HEADER_BYTES 64u
uint64_t sim_cubin_bytes(const void *bytes, size_t size);

/* As sim_ptx_read for a cubin, an ELF file of NVIDIA's machine type. 0, -EINVAL, -ENOMEM. */
int sim_cubin_read(const void *bytes, size_t size, struct sim_image *image);

#endif

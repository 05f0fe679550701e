/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code in the stand-in libcuda: images, the modules that contexts make of them, libraries, and
 * functions. An image is what was loaded; a module is an image in one context, where its variables
 * have addresses. Lists are under driver_lock.
 */
#ifndef SIM_CUDA_MODULE_H
#define SIM_CUDA_MODULE_H

#include "common/image.h"
#include "cuda/driver.h"

#define LEGACY_PARAM_BYTES 4096u

/* What a module is made of; shared by a library and the modules made of it. */
struct image {
    unsigned int references;
    bool is_opaque; /* nothing is known of it: any kernel name is taken for one that is there */
    struct sim_image code;
};

/* Launches of before CUDA 4 keep their configuration in the function. */
struct legacy_launch {
    unsigned int block[3], shared_bytes, param_bytes;
    char params[LEGACY_PARAM_BYTES];
};

struct CUfunc_st {
    uint32_t magic;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    struct CUkern_st *kernel; /* set when it came from a library */
    char *name;
    const struct sim_image_kernel *info; /* NULL of an opaque image */
    const struct builtin *builtin;
    const struct sim_kernel_rule *rule; /* of the device file, or NULL */
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared_config;
    bool is_loaded;
    struct legacy_launch *legacy; /* made at first use */
};

struct CUmod_st {
    uint32_t magic;
    struct CUctx_st *context;
    struct CUmod_st *next;
    struct image *image;
    struct CUlib_st *library; /* whose it is, if it is one's */
    struct CUmod_st *next_of_library;
    struct CUfunc_st *functions;
    CUdeviceptr *globals; /* addresses, in the image's order; 0 of an empty one */
    uint64_t charged_bytes;
};

struct CUkern_st {
    uint32_t magic;
    struct CUlib_st *library;
    struct CUkern_st *next;
    char *name;
    int attribute[SIM_MAX_DEVICES][CU_FUNC_ATTRIBUTE_MAX]; /* as set before a module was made */
    uint32_t is_set[SIM_MAX_DEVICES];                      /* a bit of each attribute */
    CUfunc_cache cache[SIM_MAX_DEVICES];
};

struct CUlib_st {
    uint32_t magic;
    struct image *image[SIM_MAX_DEVICES]; /* NULL: it has no code for that device */
    struct CUkern_st *kernels;
    struct CUmod_st *modules;
    bool is_enumerated; /* every kernel has its object */
};

/* jit.c: compile options */
struct jit_log {
    char *info, *error; /* the caller's buffers, or NULL */
    size_t info_bytes, error_bytes;
};
/* Takes what matters here out of the options; CUDA_ERROR_INVALID_VALUE for one that does not exist
 * or is malformed. */
CUresult jit_options(unsigned int count, const CUjit_option *options, void **values,
                     struct jit_log *log);
/* Writes back what the options ask for: how much of each log was filled, the time it took. */
void jit_results(unsigned int count, const CUjit_option *options, void **values,
                 const struct jit_log *log);
void jit_say(char *buffer, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* image.c: bytes (a NUL-terminated text, a cubin, a fatbin or its wrapper) as the device would take
 * them; a new reference. `known` is how many there are, 0 when only their header says. */
CUresult image_new(const void *bytes, size_t known, const struct device *device,
                   struct jit_log *log, struct image **image);
void image_put(struct image *image);
bool image_has(const struct image *image, const char *name);
/* A whole file and NULs after it; the caller's, or NULL with the error in *rc. */
char *file_read(const char *path, size_t *bytes, CUresult *rc);
bool image_is_binary(const void *bytes, size_t size);
/* The size of an image in memory, text without its NUL; 0 when it is none or cannot be read. */
size_t image_bytes(const void *bytes);

/* module.c. These take driver_lock as held. module_new takes over a reference of the image, also
 * on failure. */
CUresult module_new(struct CUctx_st *context, struct image *image, struct CUmod_st **module);
void module_unlink(struct CUmod_st *module); /* off its context, and gone */
CUresult module_function(struct CUmod_st *module, const char *name, struct CUfunc_st **function);
CUresult module_global(struct CUmod_st *module, const char *name, CUdeviceptr *address,
                       uint64_t *bytes, bool *is_managed);
CUresult module_check(CUmodule module);

/* library.c */
CUresult kernel_function(struct CUkern_st *kernel, struct CUctx_st *context,
                         struct CUfunc_st **function);
/* A module of the library goes with its context. */
void library_forget(struct CUlib_st *library, struct CUmod_st *module);

/* function.c: fills the attributes of a new function. */
void function_describe(struct CUfunc_st *function);
CUresult attribute_set(int *attributes, const struct device *device, CUfunction_attribute attribute,
                       int value);

/* launch_call.c */
/* The arguments of a launch that launch_prepare took, as pointers to copies: one block, the
 * caller's to free; NULL when nobody says how many there are, or none is. */
CUresult launch_copy_args(const struct CUfunc_st *function, void **params, void **extra,
                          void ***copy);
struct sim_kernel_need function_need(const struct CUfunc_st *function, uint32_t threads,
                                     uint64_t dynamic_bytes);

#endif

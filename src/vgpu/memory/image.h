/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a module takes of the device, as its image tells before it is loaded: cubins, PTX, and fat
 * binaries of them. Images are believed to be as long as they say, as the driver believes them. No
 * state; no driver call.
 */
#ifndef ALQ_VGPU_MEMORY_IMAGE_H
#define ALQ_VGPU_MEMORY_IMAGE_H

#include <stdint.h>

struct alq_image {
    uint64_t bytes; /* its length */
    /* Its variables' that are not in it (a cubin's .nv.global, arrays of PTX); of a fat binary the
     * most of any entry, without those that are compressed. */
    uint64_t variable_bytes;
};

/* As cuModuleLoadData takes it; NULL is an empty one. */
struct alq_image alq_image_measure(const void *image);

/* As cuModuleLoad takes it; a file that cannot be read is an empty one. */
struct alq_image alq_image_measure_file(const char *path);

#endif

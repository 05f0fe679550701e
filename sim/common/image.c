/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of image.h.
 */
#include "common/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The list with room for one more item, zeroed; doubled at powers of two. */
static void *grow(void *items, uint32_t count, size_t size)
{
    char *bigger = items;

    if ((count & (count - 1)) == 0)
        bigger = realloc(items, (count ? (size_t)count * 2 : 1) * size);
    if (bigger)
        memset(bigger + count * size, 0, size);
    return bigger;
}

struct sim_image_kernel *sim_image_add_kernel(struct sim_image *image, const char *name)
{
    void *list = grow(image->kernels, image->kernel_count, sizeof(*image->kernels));
    struct sim_image_kernel *k;

    if (!list)
        return NULL;
    image->kernels = list;
    k = &image->kernels[image->kernel_count];
    k->name = strdup(name);
    if (!k->name)
        return NULL;
    image->kernel_count++;
    return k;
}

struct sim_image_global *sim_image_add_global(struct sim_image *image, const char *name)
{
    void *list = grow(image->globals, image->global_count, sizeof(*image->globals));
    struct sim_image_global *g;

    if (!list)
        return NULL;
    image->globals = list;
    g = &image->globals[image->global_count];
    g->name = strdup(name);
    if (!g->name)
        return NULL;
    image->global_count++;
    return g;
}

struct sim_image_kernel *sim_image_kernel(const struct sim_image *image, const char *name)
{
    for (uint32_t i = 0; i < image->kernel_count; i++) {
        if (strcmp(image->kernels[i].name, name) == 0)
            return &image->kernels[i];
    }
    return NULL;
}

int sim_image_add_param(struct sim_image_kernel *kernel, uint32_t bytes, uint32_t offset)
{
    void *list = grow(kernel->params, kernel->param_count, sizeof(*kernel->params));

    if (!list)
        return -ENOMEM;
    kernel->params = list;
    kernel->params[kernel->param_count++] = (struct sim_param){bytes, offset};
    return 0;
}

void sim_image_free(struct sim_image *image)
{
    for (uint32_t i = 0; i < image->kernel_count; i++) {
        free(image->kernels[i].name);
        free(image->kernels[i].params);
    }
    for (uint32_t i = 0; i < image->global_count; i++) {
        free(image->globals[i].name);
        free(image->globals[i].initial);
    }
    free(image->kernels);
    free(image->globals);
    memset(image, 0, sizeof(*image));
}

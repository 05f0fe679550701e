/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cubins and fatbins under any bytes. What must hold: nothing outside them is read, parameters do
 * not overlap, initial values fit their variables, an image that is refused leaves nothing behind.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fatbin.h"
#include "common/image.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_cubin(const uint8_t *data, size_t size)
{
    struct sim_image image = {0};

    if (sim_cubin_read(data, size, &image) != 0) {
        REQUIRE(!image.kernels && !image.globals && !image.kernel_count && !image.global_count);
        return;
    }
    REQUIRE(sim_cubin_bytes(data, size));
    for (uint32_t i = 0; i < image.kernel_count; i++) {
        const struct sim_image_kernel *k = &image.kernels[i];
        uint32_t end = 0;

        REQUIRE(k->name && *k->name);
        for (uint32_t p = 0; p < k->param_count; p++) {
            REQUIRE(k->params[p].offset >= end);
            end = k->params[p].offset + k->params[p].bytes;
            REQUIRE(end <= SIM_PARAM_BYTES_MAX);
        }
    }
    for (uint32_t i = 0; i < image.global_count; i++)
        REQUIRE(*image.globals[i].name && image.globals[i].initial_bytes <= image.globals[i].bytes);
    sim_image_free(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_cubin(data, size);
    for (uint32_t cc = 70; cc <= 120; cc += 10) {
        struct sim_fatbin_entry e;

        if (sim_fatbin_choose(data, size, cc, &e) == 0) {
            REQUIRE(e.offset <= size && e.bytes <= size - e.offset && e.cc <= cc);
            check_cubin(data + e.offset, e.bytes);
        }
    }
    return 0;
}

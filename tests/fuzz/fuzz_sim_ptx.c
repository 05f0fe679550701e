/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Module texts and device files under any bytes. What must hold: a kernel's parameters do not
 * overlap and stay within what a launch can carry, a text that is refused leaves nothing behind,
 * and a device file is taken or refused with a reason that names it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/devfile.h"
#include "common/image.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_kernel(const struct sim_image_kernel *k)
{
    uint32_t end = 0;

    REQUIRE(k->name && *k->name && !k->params == !k->param_count);
    for (uint32_t i = 0; i < k->param_count; i++) {
        REQUIRE(k->params[i].offset >= end);
        end = k->params[i].offset + k->params[i].bytes;
        REQUIRE(end <= SIM_PARAM_BYTES_MAX);
    }
}

static void check_module(const char *text)
{
    struct sim_image ptx = {0};
    uint32_t line = 0;

    if (sim_ptx_read(text, &ptx, &line) != 0) {
        REQUIRE(line);
        REQUIRE(!ptx.kernels && !ptx.globals && !ptx.kernel_count && !ptx.global_count);
        return;
    }
    for (uint32_t i = 0; i < ptx.kernel_count; i++)
        check_kernel(&ptx.kernels[i]);
    for (uint32_t i = 0; i < ptx.global_count; i++)
        REQUIRE(ptx.globals[i].name && *ptx.globals[i].name &&
                ptx.globals[i].initial_bytes <= ptx.globals[i].bytes);
    sim_image_free(&ptx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sim_machine machine;
    struct alq_err err = ALQ_ERR_INIT;
    char *text = malloc(size + 1);

    REQUIRE(text);
    memcpy(text, data, size);
    text[size] = '\0';
    check_module(text);
    if (sim_machine_parse(text, size, "fuzz", &machine, &err) != 0) {
        REQUIRE(strstr(err.text, "fuzz"));
    } else {
        REQUIRE(machine.device_count <= SIM_MAX_DEVICES);
        for (uint32_t i = 0; i < machine.device_count; i++)
            REQUIRE(machine.device[i].reserved_bytes < machine.device[i].total_bytes &&
                    machine.device[i].sms);
    }
    free(text);
    return 0;
}

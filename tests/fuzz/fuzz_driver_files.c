/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's cache and the texts of NVIDIA's kernel module under any bytes. The first byte
 * chooses the reader. What must hold: names end within the data, numbers are within their bounds,
 * and a cache that is refused is refused with a reason.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cdi/kernel.h"
#include "daemon/cdi/ldcache.h"
#include "require.h"

struct bounds {
    const char *start, *end;
};

static int within(void *arg, const char *name, const char *path)
{
    const struct bounds *b = arg;
    REQUIRE(name >= b->start && name + strlen(name) < b->end);
    REQUIRE(path >= b->start && path + strlen(path) < b->end);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    size_t len = size - 1;
    if (data[0] % 2) {
        struct alq_err err = ALQ_ERR_INIT;
        struct bounds bounds = {(const char *)data + 1, (const char *)data + size};
        int rc = alq_ldcache_each(bounds.start, len, within, &bounds, &err);
        REQUIRE(rc == 0 || (rc == ALQ_EPROTO && err.text[0]));
        return 0;
    }
    char *text = malloc(len + 1);
    REQUIRE(text);
    memcpy(text, data + 1, len);
    text[len] = '\0';
    struct alq_kernel_params params;
    unsigned major;
    uint32_t minor = 0;
    alq_kernel_params_parse(text, &params);
    REQUIRE(params.mode <= 0777 &&
            (params.is_modify_allowed == 0 || params.is_modify_allowed == 1));
    REQUIRE(alq_kernel_major_parse(text, "nvidia-uvm", &major) || major <= 4095);
    (void)alq_kernel_number(text, "Device Minor", &minor);
    if (alq_driver_version_is_valid(text))
        REQUIRE(alq_driver_version_cmp(text, text) == 0);
    free(text);
    return 0;
}

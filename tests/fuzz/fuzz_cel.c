/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device selectors under any bytes. What must hold: an expression compiles or gives an error with a
 * text; what compiles gives the same answer or the same error twice, and a match only from a device
 * that is there.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/cel.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char device_json[] =
    "{\"name\": \"g\", \"allowMultipleAllocations\": true,"
    " \"attributes\": {\"s\": {\"string\": \"aab\"}, \"i\": {\"int\": 7}, \"b\": {\"bool\": true},"
    "  \"v\": {\"version\": \"1.2.3-rc.1\"}, \"e/s\": {\"string\": \"\"}},"
    " \"capacity\": {\"m\": {\"value\": \"4Gi\"}, \"h\": {\"value\": \"500m\"}}}";

static struct alq_cel_device *device(void)
{
    static struct alq_cel_device *made;

    if (!made) {
        json_t *j = json_loads(device_json, 0, NULL);
        REQUIRE(alq_cel_device_new("d", j, &made, NULL) == 0);
        json_decref(j);
    }
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alq_err err = ALQ_ERR_INIT, again = ALQ_ERR_INIT;
    struct alq_cel_program *p = NULL;
    bool first = false, second = false;
    int rc = alq_cel_compile((const char *)data, size, &p, &err);

    if (rc) {
        REQUIRE(rc < 0 && err.code == rc && err.text[0] && !p);
        return 0;
    }
    rc = alq_cel_matches(p, device(), &first, &err);
    REQUIRE(rc == err.code && (rc == 0 || err.text[0]));
    REQUIRE(alq_cel_matches(p, device(), &second, &again) == rc);
    REQUIRE(first == second && !strcmp(err.text, again.text));
    alq_cel_program_free(p);
    return 0;
}

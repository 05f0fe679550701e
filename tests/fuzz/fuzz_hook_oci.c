/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook's JSON reader under any bytes, held against jansson: what it takes is what jansson takes
 * (which also refuses what is not UTF-8, numbers out of range and NULs), and the string is the
 * same.
 */
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "hook/oci.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"root", "path", NULL};
    char out[256];
    int rc = alq_oci_string((const char *)data, size, names, out, sizeof(out));
    REQUIRE(memchr(out, '\0', sizeof(out)));
    REQUIRE(rc == 0 || rc == -EBADMSG || rc == -ENOENT || rc == -EINVAL || rc == -ENAMETOOLONG);
    REQUIRE(!rc || !out[0]);

    json_t *theirs =
        json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    const char *path = json_string_value(json_object_get(json_object_get(theirs, "root"), "path"));
    if (theirs && rc != -EBADMSG) {
        REQUIRE((rc == 0 || rc == -ENAMETOOLONG) == (path != NULL));
        REQUIRE(rc || !strcmp(path, out));
    }
    json_decref(theirs);
    return 0;
}

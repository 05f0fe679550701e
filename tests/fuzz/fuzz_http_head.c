/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of HTTP requests under any bytes. What must hold: text of a head that was taken lies within
 * the bytes that were given, a path begins with "/", and a refusal has a status of HTTP.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin/http_head.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(const char *part, const char *text, size_t size)
{
    REQUIRE(!*part || (part >= text && part + strlen(part) < text + size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alq_http_head head;
    if (!size)
        return 0;
    char *text = malloc(size);
    memcpy(text, data, size);
    int status = alq_http_head_parse(text, size, &head);
    if (status) {
        REQUIRE(status >= 400 && status < 600);
    } else {
        REQUIRE(head.path[0] == '/' && *head.method);
        inside(head.method, text, size);
        inside(head.path, text, size);
        inside(head.query, text, size);
        inside(head.accept, text, size);
    }
    free(text);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts of HAMi-core's environment under any bytes: an error leaves the result alone; what is
 * read is at most 2^63; plain digits are themselves; blanks around and the case of a suffix change
 * nothing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgpu/size.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[64], other[80];
    uint64_t bytes = 12345, again = 12345;
    uint32_t percent = 7;

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    int ok = alq_size_read(text, &bytes);
    if (!ok ? bytes != 12345 : bytes > 1ull << 63)
        abort();
    snprintf(other, sizeof(other), "  %s\t", text);
    for (char *c = other; *c; c++)
        if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - 'a' + 'A');
    if (alq_size_read(other, &again) != ok || again != bytes)
        abort();
    if (alq_percent_read(text, &percent) ? percent > 100 : percent != 7)
        abort();
    return 0;
}

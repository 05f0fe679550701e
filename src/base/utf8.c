/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that are UTF-8 whatever came in, see utf8.h. */
#include "base/utf8.h"

#include <stddef.h>

void alq_utf8_clean(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s;) {
        size_t n = *s < 0x80 ? 1 : (*s & 0xe0) == 0xc0 ? 2 : (*s & 0xf0) == 0xe0 ? 3 : 4;
        int is_good = *s < 0x80 || (*s >= 0xc2 && *s <= 0xf4);
        for (size_t i = 1; i < n && is_good; i++)
            is_good = (s[i] & 0xc0) == 0x80;
        if (is_good && n == 3)
            is_good = !(s[0] == 0xe0 && s[1] < 0xa0) && !(s[0] == 0xed && s[1] > 0x9f);
        if (is_good && n == 4)
            is_good = !(s[0] == 0xf0 && s[1] < 0x90) && !(s[0] == 0xf4 && s[1] > 0x8f);
        if (!is_good)
            *s = '?';
        s += is_good ? n : 1;
    }
}

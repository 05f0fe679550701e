/* SPDX-License-Identifier: Apache-2.0 */
/* Names and times, see names.h. */
#include "base/names.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

static int is_alnum_lower(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

int alq_is_dns_name(const char *text, size_t len, int has_dots)
{
    for (size_t i = 0; i < len; i++) {
        int is_edge = i == 0 || i + 1 == len || text[i - 1] == '.' || text[i + 1] == '.';
        if (is_alnum_lower(text[i]) || (text[i] == '-' && !is_edge) ||
            (text[i] == '.' && has_dots && !is_edge))
            continue;
        return 0;
    }
    return len > 0;
}

int alq_uuid_random(char text[ALQ_UUID_TEXT_BYTES])
{
    unsigned char b[16];
    ssize_t n;
    do
        n = getrandom(b, sizeof(b), 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(b))
        return -1;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(text, ALQ_UUID_TEXT_BYTES,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return 0;
}

const char *alq_time_format(time_t seconds, char text[ALQ_TIME_TEXT_BYTES])
{
    struct tm utc;
    if (!gmtime_r(&seconds, &utc) ||
        !strftime(text, ALQ_TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc))
        text[0] = '\0';
    return text;
}

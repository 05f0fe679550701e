/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of requests, see http_head.h. Strict where leniency has let requests be read in two ways:
 * one length, no folded fields, no blank before a colon, no bare line feed.
 */
#include "daemon/admin/http_head.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define TARGET_MAX_BYTES 2048u
#define METHOD_MAX_BYTES 16u
#define LENGTH_DIGITS_MAX 9

struct seen {
    int has_host;
    int has_length;
    int is_1_0;
};

/* Cuts the next line off; NULL: it does not end as it should. */
static char *next_line(char **at, const char *end)
{
    char *line = *at;
    char *feed = memchr(line, '\n', (size_t)(end - line));
    if (!feed || feed == line || feed[-1] != '\r')
        return NULL;
    feed[-1] = '\0';
    *at = feed + 1;
    return line;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* %XX in place; no NUL may come of it. */
static int decode(char *path)
{
    char *to = path;
    for (const char *from = path; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = hex(from[1]), low = high < 0 ? -1 : hex(from[2]);
        if (low < 0 || !(high | low))
            return -1;
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = '\0';
    return 0;
}

static int parse_target(char *target, struct alq_http_head *head)
{
    if (target[0] != '/')
        return 400;
    if (strlen(target) > TARGET_MAX_BYTES)
        return 414;
    for (const char *p = target; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f || *p == '#')
            return 400;
    char *query = strchr(target, '?');
    if (query) {
        *query = '\0';
        head->query = query + 1;
    }
    head->path = target;
    return decode(target) ? 400 : 0;
}

static int parse_request_line(char *line, struct alq_http_head *head, struct seen *seen)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version)
        return 400;
    *target++ = *version++ = '\0';
    size_t len = strlen(line);
    if (!len || len > METHOD_MAX_BYTES || strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") < len)
        return 400;
    head->method = line;
    if (strncmp(version, "HTTP/", 5) != 0)
        return 400;
    seen->is_1_0 = !strcmp(version, "HTTP/1.0");
    if (!seen->is_1_0 && strcmp(version, "HTTP/1.1") != 0)
        return 505;
    head->is_kept = !seen->is_1_0;
    return parse_target(target, head);
}

static int has_token(const char *list, const char *token)
{
    size_t len = strlen(token);
    for (const char *p = list; *p; p += strcspn(p, ",")) {
        p += strspn(p, ", \t");
        if (!strncasecmp(p, token, len) && (!p[len] || strchr(", \t", p[len])))
            return 1;
    }
    return 0;
}

static int parse_length(const char *value, struct alq_http_head *head, struct seen *seen)
{
    size_t digits = strspn(value, "0123456789");
    if (!digits || value[digits] || digits > LENGTH_DIGITS_MAX || seen->has_length++)
        return 400;
    for (const char *p = value; *p; p++)
        head->body_bytes = head->body_bytes * 10 + (size_t)(*p - '0');
    return 0;
}

static int parse_field(char *line, struct alq_http_head *head, struct seen *seen)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t name = strspn(line, token);
    if (!name || line[name] != ':')
        return 400;
    line[name] = '\0';
    char *value = line + name + 1;
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n && strchr(" \t", value[n - 1]); n--)
        value[n - 1] = '\0';
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
            return 400;
    if (!strcasecmp(line, "host"))
        return seen->has_host++ ? 400 : 0;
    if (!strcasecmp(line, "content-length"))
        return parse_length(value, head, seen);
    if (!strcasecmp(line, "transfer-encoding"))
        return 501;
    if (!strcasecmp(line, "expect"))
        return 417;
    if (!strcasecmp(line, "accept"))
        head->accept = value;
    else if (!strcasecmp(line, "connection"))
        head->is_kept = has_token(value, seen->is_1_0 ? "keep-alive" : "close") == seen->is_1_0;
    return 0;
}

int alq_http_head_parse(char *text, size_t len, struct alq_http_head *head)
{
    const char *end = text + len;
    struct seen seen = {0};
    *head = (struct alq_http_head){.method = "", .path = "", .query = "", .accept = ""};
    if (memchr(text, '\0', len))
        return 400;
    char *line = next_line(&text, end);
    int status = line ? parse_request_line(line, head, &seen) : 400;
    while (!status) {
        line = next_line(&text, end);
        if (!line)
            return 400;
        if (!*line)
            break;
        status = parse_field(line, head, &seen);
    }
    return status || seen.has_host || seen.is_1_0 ? status : 400;
}

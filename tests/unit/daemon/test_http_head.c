/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of HTTP requests: what is taken, how it is read, and what is refused with which status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/admin/http_head.h"

static char text[ALQ_HTTP_HEAD_MAX_BYTES];
static struct alq_http_head head;

static int parse(const char *request)
{
    snprintf(text, sizeof(text), "%s", request);
    return alq_http_head_parse(text, strlen(text), &head);
}

static void refused(const char *request, int status)
{
    int got = parse(request);
    if (got != status)
        fail_msg("%d instead of %d for: %s", got, status, request);
}

static void parse_of_a_scrape_gives_its_parts(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /metrics?a=b%20c HTTP/1.1\r\nHost: node:9487\r\n"
                           "ACCEPT:  application/openmetrics-text;version=1.0.0 \t\r\n"
                           "User-Agent: Prometheus/3\r\n\r\n"),
                     0);
    assert_string_equal(head.method, "GET");
    assert_string_equal(head.path, "/metrics");
    assert_string_equal(head.query, "a=b%20c");
    assert_string_equal(head.accept, "application/openmetrics-text;version=1.0.0");
    assert_int_equal(head.body_bytes, 0);
    assert_true(head.is_kept);
}

static void parse_reads_length_and_connection(void **state)
{
    (void)state;
    assert_int_equal(
        parse("PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nConnection: x, close\r\n\r\n"),
        0);
    assert_int_equal(head.body_bytes, 12);
    assert_false(head.is_kept);
    assert_int_equal(parse("GET /x HTTP/1.0\r\n\r\n"), 0);
    assert_false(head.is_kept);
    assert_int_equal(parse("GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), 0);
    assert_true(head.is_kept);
    assert_int_equal(parse("GET /x HTTP/1.1\r\nHost: x\r\nConnection: closed\r\n\r\n"), 0);
    assert_true(head.is_kept);
}

static void parse_decodes_the_path_alone(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /%41%2fb%3F?%41 HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_string_equal(head.path, "/A/b?");
    assert_string_equal(head.query, "%41");
    refused("GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400);
}

static void parse_refuses_what_could_be_read_in_two_ways(void **state)
{
    (void)state;
    refused("GET / HTTP/1.1\r\n\r\n", 400);                       /* no host */
    refused("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400); /* two */
    refused("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 501);
    refused("GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400); /* folded */
    refused("GET / HTTP/1.1\nHost: x\n\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: x\r\n", 400); /* no end */
}

static void parse_refuses_what_it_does_not_speak(void **state)
{
    (void)state;
    refused("GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505);
    refused("GET / FTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("GET /\r\n\r\n", 400);
    refused("get / HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused(" / HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("GET / a HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    refused("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", 417);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_of_a_scrape_gives_its_parts),
        cmocka_unit_test(parse_reads_length_and_connection),
        cmocka_unit_test(parse_decodes_the_path_alone),
        cmocka_unit_test(parse_refuses_what_could_be_read_in_two_ways),
        cmocka_unit_test(parse_refuses_what_it_does_not_speak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

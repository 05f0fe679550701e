/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch stream under any bytes, cut into pieces as the first byte says. What must hold: the
 * pieces do not matter (the same events and the same outcome as for the whole), and after an error
 * nothing more is delivered.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/kube/watch.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINE_BYTES_MAX 4096
struct sum {
    unsigned events;
    uint64_t hash;
};

static void on_event(void *arg, const struct alq_watch_event *event)
{
    struct sum *sum = arg;
    REQUIRE(json_is_object(event->object));
    REQUIRE(event->type == ALQ_WATCH_ERROR || *event->resource_version);
    sum->events++;
    sum->hash = sum->hash * 31 + (uint64_t)event->type + (uint64_t)event->is_expired * 7;
    for (const char *c = event->resource_version; c && *c; c++)
        sum->hash = sum->hash * 31 + (uint8_t)*c;
}

static struct sum run(const char *data, size_t size, size_t piece, int *rc)
{
    struct sum sum = {0};
    struct alq_watch *w = alq_watch_new(LINE_BYTES_MAX, on_event, &sum);
    *rc = 0;
    for (size_t at = 0; at < size && !*rc; at += piece)
        *rc = alq_watch_feed(w, data + at, size - at < piece ? size - at : piece, NULL);
    if (*rc) {
        unsigned before = sum.events;
        REQUIRE(alq_watch_feed(w, data, size, NULL) != 0);
        REQUIRE(sum.events == before);
    }
    alq_watch_end(w);
    alq_watch_free(w);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 1;
    int whole_rc, pieces_rc;
    struct sum whole = run(text, size - 1, size, &whole_rc);
    struct sum pieces = run(text, size - 1, 1u + data[0] % 64, &pieces_rc);
    REQUIRE(whole_rc == pieces_rc);
    REQUIRE(whole.events == pieces.events && whole.hash == pieces.hash);
    return 0;
}

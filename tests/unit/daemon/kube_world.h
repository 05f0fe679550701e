/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An API server for unit tests of parts of kube/: the client's calls end here (the linker's --wrap)
 * and wait until the test answers them; time stands still until the test moves it.
 */
#ifndef ALQ_TEST_KUBE_WORLD_H
#define ALQ_TEST_KUBE_WORLD_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/kube/kube.h"

#define SECOND (1000 * ALQ_NS_PER_MS)

struct kube_request {
    char method[16], path[512], content_type[64];
    json_t *body; /* NULL: none */
    alq_kube_cb cb;
    void *arg;
};

struct kube_world {
    struct kube_request open; /* cb NULL: nothing is asked at present */
    unsigned asked, cancelled;
    long retry_after_ms;
    struct alq_config cfg;
    struct alq_clock clock;
};
extern struct kube_world kube;

void kube_start(void);
void kube_end(void);

/* Fails unless there is an open request with this method and this piece of its path. */
const struct kube_request *kube_expect(const char *method, const char *path);
/* Answers it; body (a JSON text, NULL: none). status 0: no answer. */
void kube_answer(int status, const char *body);
/* Moves time by ns and lets the timers that are due go off, in order. */
void kube_pass(int64_t ns);

#endif

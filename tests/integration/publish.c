/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's API client and slice publisher without the rest of the daemon, for
 * test_publisher.py: publish KUBECONFIG|- NODE [SPREAD_S]
 * ("-": in-cluster environment). Takes commands on stdin, one a line: "gpus N DRIVERVERSION",
 * "claim NAMESPACE NAME TIMEOUT_MS", "cancel" (the last claim call), "state". Answers on stdout,
 * one JSON object a line.
 */
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/kube/kube.h"
#include "daemon/kube/slices.h"

static struct event_base *base;
static struct alq_kube *kube;
static struct alq_slices *slices;
static struct alq_kube_call *claim_call;

static void answer(json_t *value)
{
    alq_auto_free char *text = alq_json_dump(value);
    printf("%s\n", text);
    fflush(stdout);
    json_decref(value);
}

static void on_claim(void *arg, int status, json_t *body, const struct alq_err *err)
{
    (void)arg;
    claim_call = NULL;
    answer(json_pack("{s:i, s:s?, s:i, s:s}", "status", status, "uid",
                     alq_json_str(body, "metadata.uid"), "code", err ? err->code : 0, "text",
                     err ? err->text : ""));
}

static void set_gpus(unsigned count, const char *version)
{
    struct alq_gpu gpus[16] = {0};
    for (unsigned i = 0; i < count && i < 16; i++) {
        struct alq_gpu *g = &gpus[i];
        snprintf(g->uuid, sizeof(g->uuid), "GPU-00000000-0000-0000-0000-%012u", i);
        snprintf(g->name, sizeof(g->name), "hami-gpu-%u", i);
        snprintf(g->product_name, sizeof(g->product_name), "NVIDIA H100 80GB HBM3");
        snprintf(g->driver_version, sizeof(g->driver_version), "%s", version);
        g->minor = g->index = i;
        g->numa_node = -1;
        g->memory_total_bytes = g->memory_promisable_bytes = 16384ull << 20;
    }
    alq_slices_set_devices(slices, &(struct alq_gpu_list){gpus, count}, NULL);
}

static void on_line(char *line)
{
    char a[256], b[256];
    unsigned count;
    long ms;
    if (sscanf(line, "gpus %u %255s", &count, a) == 2)
        set_gpus(count, a);
    else if (sscanf(line, "claim %255s %255s %ld", a, b, &ms) == 3)
        claim_call = alq_kube_get_claim(kube, a, b, ms, on_claim, NULL, NULL);
    else if (!strcmp(line, "cancel"))
        alq_kube_cancel(claim_call);
    else if (!strcmp(line, "state"))
        answer(json_pack("{s:b}", "published", alq_slices_is_published(slices)));
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    static char line[1024];
    static size_t len;
    (void)what;
    (void)arg;
    ssize_t n = read(fd, line + len, sizeof(line) - 1 - len);
    if (n <= 0) {
        event_base_loopbreak(base);
        return;
    }
    len += (size_t)n;
    line[len] = '\0';
    for (char *end; (end = strchr(line, '\n'));) {
        *end = '\0';
        on_line(line);
        len -= (size_t)(end + 1 - line);
        memmove(line, end + 1, len + 1);
    }
}

int main(int argc, char **argv)
{
    struct alq_err err = ALQ_ERR_INIT;
    char driver[] = ALQ_DRIVER_NAME_DEFAULT;
    if (argc < 3)
        return 2;
    struct alq_config cfg = {.driver_name = driver,
                             .start_spread_s = argc > 3 ? atoi(argv[3]) : 0,
                             .node_name = argv[2],
                             .kubeconfig = strcmp(argv[1], "-") ? argv[1] : NULL};
    srandom((unsigned)getpid()); /* as main.c does, lest all wait alike */
    alq_log_init(ALQ_LOG_DEBUG, ALQ_LOG_TEXT, 2);
    base = event_base_new();
    kube = alq_kube_new(&cfg, base, &err);
    if (!kube) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    slices = alq_slices_new(&cfg, kube, NULL, base, &err);
    struct event *input = event_new(base, 0, EV_READ | EV_PERSIST, on_input, NULL);
    event_add(input, NULL);
    event_base_dispatch(base);
    event_free(input);
    alq_slices_free(slices);
    alq_kube_free(kube);
    event_base_free(base);
    libevent_global_shutdown();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health streams as a client of gRPC sees them. No socket; libevent's timer is only armed.
 */
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/kubelet/health.h"
#include "grpc_peer.h"
#include "health.pb-c.h"

#define V1 "/v1.DRAResourceHealth/NodeWatchResources"
#define V1ALPHA1 "/v1alpha1.DRAResourceHealth/NodeWatchResources"

enum {
    UNKNOWN = ALQ__HEALTH__HEALTH_STATUS__UNKNOWN,
    HEALTHY = ALQ__HEALTH__HEALTH_STATUS__HEALTHY,
    UNHEALTHY = ALQ__HEALTH__HEALTH_STATUS__UNHEALTHY,
};

struct world {
    struct event_base *base;
    struct alq_health *health;
    struct peer peer;
    struct alq_gpu gpus[2];
};

static struct world world;
static const uint8_t empty[5];

static struct alq_gpu_list list(struct world *w, size_t count)
{
    return (struct alq_gpu_list){w->gpus, count};
}

/* A reading with a fault of one GPU, "": none. */
static void read_fault(struct world *w, int i, enum alq_fault_effect effect, const char *reason)
{
    struct alq_gpu_list both = list(w, 2);
    struct alq_fault *fault = &w->gpus[i].faults[ALQ_FAULT_XID];
    fault->effect = effect;
    snprintf(fault->reason, sizeof(fault->reason), "%s", reason);
    alq_health_set_gpus(w->health, &both, NULL);
}

static int setup(void **state)
{
    memset(&world, 0, sizeof(world));
    world.base = event_base_new();
    world.health = alq_health_new(world.base, "node-a", NULL);
    assert_non_null(world.health);
    for (int i = 0; i < 2; i++) {
        snprintf(world.gpus[i].uuid, sizeof(world.gpus[i].uuid), "GPU-%d", i);
        snprintf(world.gpus[i].name, sizeof(world.gpus[i].name), "hami-gpu-%d", i);
    }
    peer_open(&world.peer, alq_health_methods(world.health), 0);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    peer_close(&w->peer);
    alq_health_free(w->health);
    event_base_free(w->base);
    return 0;
}

static int32_t watch(struct world *w, const char *path)
{
    struct request r = {.path = path, .upload = {empty, sizeof(empty), 0}};
    return peer_ask(&w->peer, &r);
}

/* How many messages came whole on the stream; *last is the last one, decoded. */
static unsigned messages(struct world *w, int32_t id,
                         Alq__Health__NodeWatchResourcesResponse **last)
{
    const struct answer *a = &w->peer.answers[id];
    unsigned count = 0;
    *last = NULL;
    for (size_t at = 0; at + 5 <= a->len;) {
        size_t len = (size_t)a->data[at + 3] << 8 | a->data[at + 4];
        assert_int_equal(a->data[at] | a->data[at + 1] | a->data[at + 2], 0);
        if (at + 5 + len > a->len)
            break;
        if (*last)
            alq__health__node_watch_resources_response__free_unpacked(*last, NULL);
        *last = alq__health__node_watch_resources_response__unpack(NULL, len, a->data + at + 5);
        assert_non_null(*last);
        at += 5 + len;
        count++;
    }
    return count;
}

static void assert_last(struct world *w, int32_t id, unsigned count, size_t device, int health,
                        const char *message)
{
    Alq__Health__NodeWatchResourcesResponse *last;
    peer_pump(&w->peer);
    assert_int_equal(messages(w, id, &last), count);
    assert_true(last && device < last->n_devices);
    const Alq__Health__DeviceHealth *d = last->devices[device];
    assert_string_equal(d->device->pool_name, "node-a");
    assert_string_equal(d->device->device_name, w->gpus[device].name);
    assert_int_equal(d->health, health);
    if (!strstr(d->message, message) || !*message != !*d->message)
        fail_msg("message is \"%s\"", d->message);
    assert_int_equal(d->health_check_timeout_seconds, 30);
    assert_true(d->last_updated_time >= time(NULL) - 60 && d->last_updated_time <= time(NULL));
    alq__health__node_watch_resources_response__free_unpacked(last, NULL);
}

static void watch_in_both_forms_gets_the_state_at_once_and_at_changes(void **state)
{
    struct world *w = *state;
    struct alq_gpu_list both = list(w, 2), one = list(w, 1);
    alq_health_set_gpus(w->health, &both, NULL);
    int32_t a = watch(w, V1), b = watch(w, V1ALPHA1);
    assert_last(w, a, 1, 0, HEALTHY, "");
    assert_last(w, b, 1, 1, HEALTHY, "");
    alq_health_set_gpus(w->health, &one, NULL);
    assert_last(w, a, 2, 0, HEALTHY, "");
    assert_last(w, b, 2, 1, UNHEALTHY, "GPU-1 is no longer found by NVML");
    alq_health_set_gpus(w->health, &both, NULL);
    assert_last(w, a, 3, 1, HEALTHY, "");
}

static void watch_before_any_device_is_known_says_nothing(void **state)
{
    struct world *w = *state;
    Alq__Health__NodeWatchResourcesResponse *last;
    int32_t id = watch(w, V1);
    assert_int_equal(messages(w, id, &last), 0);
    assert_false(w->peer.answers[id].is_closed);
    alq_health_know(w->health, "GPU-0", "hami-gpu-0");
    assert_last(w, id, 1, 0, UNKNOWN, "not been read yet");
}

static void set_gpus_without_a_reading_is_unknown_with_the_reason(void **state)
{
    struct world *w = *state;
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_gpu_list both = list(w, 2), none = {0};
    int32_t id = watch(w, V1);
    alq_health_set_gpus(w->health, &both, NULL);
    alq_err_set(&err, ALQ_EAGAIN, "driver not loaded \xff");
    alq_health_set_gpus(w->health, &none, &err);
    assert_last(w, id, 2, 0, UNKNOWN, "no reading of the GPUs: driver not loaded ?");
    assert_last(w, id, 2, 1, UNKNOWN, "driver not loaded");
}

static void set_gpus_with_a_fault_is_unhealthy_until_it_is_over(void **state)
{
    struct world *w = *state;
    struct alq_gpu_list both = list(w, 2);
    alq_health_set_gpus(w->health, &both, NULL);
    int32_t id = watch(w, V1);
    read_fault(w, 1, ALQ_FAULT_UNFIT, "XID 79");
    assert_last(w, id, 2, 0, HEALTHY, "");
    assert_last(w, id, 2, 1, UNHEALTHY, "XID 79");
    read_fault(w, 1, ALQ_FAULT_NOTICE, "XID 31"); /* a program's error is none of the GPU's */
    assert_last(w, id, 3, 1, HEALTHY, "");
    read_fault(w, 0, ALQ_FAULT_UNFIT, "XID 48");
    both.count = 0; /* gone: what was wrong with it stays the reason */
    alq_health_set_gpus(w->health, &both, NULL);
    assert_last(w, id, 5, 0, UNHEALTHY, "XID 48");
}

static void slow_watcher_skips_to_the_latest_state(void **state)
{
    struct world *w = *state;
    struct alq_gpu_list both = list(w, 2);
    Alq__Health__NodeWatchResourcesResponse *last;
    peer_close(&w->peer);
    peer_open(&w->peer, alq_health_methods(w->health), 1);
    w->peer.is_slow = 1;
    alq_health_set_gpus(w->health, &both, NULL);
    int32_t id = watch(w, V1);
    for (int i = 0; i < 100000; i++)
        read_fault(w, 0, ALQ_FAULT_UNFIT, i % 2 ? "odd" : "even");
    read_fault(w, 0, ALQ_FAULT_UNFIT, "the latest");
    peer_pump(&w->peer);
    assert_int_equal(w->peer.answers[id].len, 1);
    w->peer.is_slow = 0;
    nghttp2_session_consume(w->peer.h2, id, 1);
    peer_pump(&w->peer);
    assert_int_equal(messages(w, id, &last), 2); /* the first, and the latest */
    alq__health__node_watch_resources_response__free_unpacked(last, NULL);
    assert_last(w, id, 2, 0, UNHEALTHY, "the latest");
}

static void watcher_that_goes_away_costs_the_others_nothing(void **state)
{
    struct world *w = *state;
    struct alq_gpu_list both = list(w, 2);
    alq_health_set_gpus(w->health, &both, NULL);
    int32_t gone = watch(w, V1), stays = watch(w, V1ALPHA1);
    nghttp2_submit_rst_stream(w->peer.h2, NGHTTP2_FLAG_NONE, gone, NGHTTP2_CANCEL);
    peer_pump(&w->peer);
    assert_int_equal(alq_grpc_session_open_calls(w->peer.server), 1);
    alq_health_set_gpus(w->health, &both, NULL);
    assert_last(w, stays, 2, 0, HEALTHY, "");
}

static void clear_forgets_devices_and_keeps_watchers(void **state)
{
    struct world *w = *state;
    struct alq_gpu_list both = list(w, 2), one = list(w, 1);
    alq_health_set_gpus(w->health, &both, NULL);
    int32_t id = watch(w, V1);
    alq_health_clear(w->health);
    alq_health_set_gpus(w->health, &one, NULL);
    assert_last(w, id, 2, 0, HEALTHY, "");
    Alq__Health__NodeWatchResourcesResponse *last;
    messages(w, id, &last);
    assert_int_equal(last->n_devices, 1);
    alq__health__node_watch_resources_response__free_unpacked(last, NULL);
}

static void end_finishes_every_watch(void **state)
{
    struct world *w = *state;
    struct alq_gpu_list both = list(w, 2);
    int32_t silent = watch(w, V1);
    alq_health_set_gpus(w->health, &both, NULL);
    int32_t told = watch(w, V1ALPHA1);
    alq_health_end(w->health);
    peer_pump(&w->peer);
    assert_string_equal(w->peer.answers[silent].grpc_status, "14");
    assert_string_equal(w->peer.answers[told].grpc_status, "14");
    assert_int_equal(alq_grpc_session_open_calls(w->peer.server), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(watch_in_both_forms_gets_the_state_at_once_and_at_changes),
        T(watch_before_any_device_is_known_says_nothing),
        T(set_gpus_without_a_reading_is_unknown_with_the_reason),
        T(set_gpus_with_a_fault_is_unhealthy_until_it_is_over),
        T(slow_watcher_skips_to_the_latest_state),
        T(watcher_that_goes_away_costs_the_others_nothing),
        T(clear_forgets_devices_and_keeps_watchers),
        T(end_finishes_every_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

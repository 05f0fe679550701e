/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of top.h from two answers of the oracle: busy time is what came to it in between.
 */
#include "ctl/top.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"

#define FIRST_INTERVAL_S 0.2 /* the first picture need not wait longer */
#define MIB 1048576.0

static double number(const json_t *o, const char *key)
{
    return (double)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));

    return value ? value : "";
}

/* The object of array whose key is as in `like`. */
static const json_t *same(const json_t *array, const json_t *like, const char *key)
{
    size_t i;
    json_t *o;

    json_array_foreach (array, i, o) {
        if (json_equal(json_object_get(o, key), json_object_get(like, key)))
            return o;
    }
    return NULL;
}

/* Percent of the time between the two in which it was busy. */
static double busy_pct(const json_t *now, const json_t *before, double elapsed_ns)
{
    double ns = number(now, "busy_ns") - number(before, "busy_ns");

    return before && elapsed_ns > 0 && ns > 0 ? ns * 100 / elapsed_ns : 0;
}

static void show_device(const json_t *facts, const json_t *d, double busy)
{
    const char *state = text(facts, "condition");
    char note[24];

    snprintf(note, sizeof(note), "%s%s%s", state,
             json_is_integer(json_object_get(facts, "frozen_pct")) ? " frozen" : "",
             number(facts, "withheld_bytes") > 0 ? " shrunk" : "");
    printf("%3.0f  %-26.26s %9.0f %9.0f MiB %4.0f %%  %-14.14s\n", number(d, "index"),
           text(facts, "name"), number(d, "used_bytes") / MIB, number(d, "total_bytes") / MIB, busy,
           note);
}

static void show_groups(const json_t *d, const json_t *before, double elapsed_ns)
{
    size_t i;
    json_t *g;

    json_array_foreach (json_object_get(d, "groups"), i, g) {
        double busy = busy_pct(g, same(json_object_get(before, "groups"), g, "group"), elapsed_ns);

        printf("%3.0f  %-26.26s %9.0f %9.0f MiB %4.0f %%  %3.0f %9.0f\n", number(d, "index"),
               *text(g, "group") ? text(g, "group") : "-", number(g, "bytes") / MIB,
               number(g, "peak_bytes") / MIB, busy, number(g, "processes"), number(g, "launches"));
    }
}

static void show_processes(const json_t *d, const json_t *before, const json_t *clients,
                           double elapsed_ns)
{
    size_t i;
    json_t *p;

    json_array_foreach (json_object_get(d, "processes"), i, p) {
        double busy = busy_pct(p, same(json_object_get(before, "processes"), p, "pid"), elapsed_ns);

        printf("%3.0f  %7.0f %-18.18s %9.0f %9.0f MiB %4.0f %%  %3.0f %9.0f\n", number(d, "index"),
               number(p, "pid"), text(same(clients, p, "pid"), "name"), number(p, "bytes") / MIB,
               number(p, "context_bytes") / MIB, busy, number(p, "contexts"),
               number(p, "launches"));
    }
}

static void show(const json_t *list, const json_t *clients, const json_t *now, const json_t *before)
{
    const json_t *devices = json_object_get(now, "devices"), *old, *facts;
    double elapsed_ns = number(now, "time_ns") - number(before, "time_ns");
    const json_t *past = json_object_get(before, "devices");
    size_t i;
    json_t *d;

    if (isatty(STDOUT_FILENO))
        fputs("\033[H\033[J", stdout);
    printf("simgpud, driver %s: %zu devices, %zu clients, %zu entry points called in vain\n\n",
           text(list, "driver_version"), json_array_size(devices),
           json_array_size(json_object_get(list, "clients")),
           json_object_size(json_object_get(list, "unsupported_calls")));
    printf("GPU  %-26s %9s %9s     %6s  %s\n", "NAME", "USED", "TOTAL", "BUSY", "STATE");
    json_array_foreach (devices, i, d) {
        old = same(past, d, "uuid");
        facts = same(json_object_get(list, "devices"), d, "uuid");
        show_device(facts, d, busy_pct(d, old, elapsed_ns));
    }
    printf("\nGPU  %-26s %9s %9s     %6s  %3s %9s\n", "GROUP", "HELD", "PEAK", "BUSY", "PRC",
           "LAUNCHES");
    json_array_foreach (devices, i, d)
        show_groups(d, same(past, d, "uuid"), elapsed_ns);
    printf("\nGPU  %7s %-18s %9s %9s     %6s  %3s %9s\n", "PID", "COMMAND", "HELD", "CONTEXTS",
           "BUSY", "CTX", "LAUNCHES");
    json_array_foreach (devices, i, d)
        show_processes(d, same(past, d, "uuid"), clients, elapsed_ns);
    if (!isatty(STDOUT_FILENO))
        putchar('\n');
}

static void pause_s(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};

    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static int look(const struct sim_connection *c, json_t **list, json_t **processes, json_t **oracle,
                struct alq_err *err)
{
    alq_auto_json json_t *command = json_pack("{s:s}", "command", "processes");
    int rc;

    if ((rc = sim_ctl_report(c, SIM_LIST, list, err)) != 0 ||
        (rc = sim_ctl_command(c, command, processes, err)) != 0)
        return rc;
    return sim_ctl_report(c, SIM_ORACLE, oracle, err);
}

int sim_top_run(const struct sim_connection *c, double interval_s, long count, bool as_json,
                struct alq_err *err)
{
    alq_auto_json json_t *before = NULL;
    int rc = sim_ctl_report(c, SIM_ORACLE, &before, err);

    for (long i = 0; rc == 0 && (i < count || !count); i++) {
        alq_auto_json json_t *list = NULL, *processes = NULL, *oracle = NULL;

        pause_s(i || interval_s < FIRST_INTERVAL_S ? interval_s : FIRST_INTERVAL_S);
        if ((rc = look(c, &list, &processes, &oracle, err)) != 0)
            break;
        if (as_json) {
            json_dumpf(oracle, stdout, JSON_COMPACT);
            putchar('\n');
        } else {
            show(list, json_object_get(processes, "processes"), oracle, before);
        }
        if (fflush(stdout) != 0)
            return alq_err_errno(err, errno, "cannot write");
        json_decref(before);
        before = json_incref(oracle);
    }
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot top: GPUs, shares and processes as a live table on a terminal, or as text for a pipe.
 */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/monotonic.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "cli/top_view.h"

#define PLAIN_COLUMNS 100
#define NS_PER_MS 1000000

struct top {
    const struct alq_cli *cli;
    struct alq_top_model model;
    struct alq_top_look look;
    long interval_ms, iterations; /* 0: without end */
    struct alq_err err;           /* of the last update */
    json_t *gpus, *shares, *processes;
};

/* ---- options ----------------------------------------------------------------------------------
 */

static int take_sort(struct top *t, const char *name)
{
    for (int i = 0; i < ALQ_TOP_SORTS; i++)
        if (!strcmp(name, alq_top_sort_names[i])) {
            t->model.sort = (enum alq_top_sort)i;
            return 0;
        }
    return alq_cli_usage(&alq_cli_top, "--sort: \"%s\" is neither memory, compute nor name", name);
}

static int parse(struct top *t)
{
    const char *sort = alq_cli_value(t->cli, "sort");
    const char *interval = alq_cli_value(t->cli, "interval");
    const char *iterations = alq_cli_value(t->cli, "iterations");
    char *end;
    t->interval_ms = 1000;
    t->iterations = alq_term_is_capable() && !t->cli->is_json ? 0 : 1;
    t->model.is_reversed = alq_cli_value(t->cli, "reverse") != NULL;
    if (interval) {
        double s = strtod(interval, &end);
        if (*end || !(s >= 0.1 && s <= 3600))
            return alq_cli_usage(&alq_cli_top,
                                 "--interval: \"%s\" is no number of seconds from 0.1 to 3600",
                                 interval);
        t->interval_ms = (long)(s * 1000);
    }
    if (iterations) {
        t->iterations = strtol(iterations, &end, 10);
        if (*end || t->iterations < 1 || t->iterations > 1000000000)
            return alq_cli_usage(&alq_cli_top, "--iterations: \"%s\" is no number from 1 on",
                                 iterations);
    }
    return sort ? take_sort(t, sort) : 0;
}

/* ---- an update --------------------------------------------------------------------------------
 */

static void forget(struct top *t)
{
    json_decref(t->gpus);
    json_decref(t->shares);
    json_decref(t->processes);
    t->gpus = t->shares = t->processes = NULL;
}

static int ask(struct top *t)
{
    const char *socket = t->cli->socket;
    int status;
    t->err = (struct alq_err)ALQ_ERR_INIT;
    forget(t);
    int rc = alq_client_ask(socket, "GET", "/v1/gpus", NULL, &status, &t->gpus, &t->err);
    if (!rc)
        rc = alq_client_ask(socket, "GET", "/v1/shares", NULL, &status, &t->shares, &t->err);
    if (!rc)
        rc = alq_client_ask(socket, "GET", "/v1/processes", NULL, &status, &t->processes, &t->err);
    return rc;
}

static int update(struct top *t)
{
    int rc = ask(t);
    if (!rc && alq_top_update(&t->model, t->gpus, t->shares, t->processes))
        rc = alq_err_set(&t->err, ALQ_ENOMEM, "out of memory");
    return rc;
}

static void paint(struct top *t, FILE *out)
{
    char title[160], clock[16];
    time_t now = time(NULL);
    struct tm local;
    const size_t *counts = t->model.counts;
    strftime(clock, sizeof(clock), "%T", localtime_r(&now, &local));
    snprintf(title, sizeof(title), "%s  GPUs: %zu  shares: %zu  processes: %zu  by %s%s%s", clock,
             counts[ALQ_TOP_GPU], counts[ALQ_TOP_SHARE], counts[ALQ_TOP_PROCESS],
             alq_top_sort_names[t->model.sort], t->model.is_reversed ? ", reversed" : "",
             t->look.rows ? "  keys: m c n r q" : "");
    t->look.title = title;
    t->look.error = t->err.code ? t->err.text : NULL;
    alq_top_paint(&t->model, &t->look, out);
    t->look.title = NULL;
}

/* ---- text and JSON ----------------------------------------------------------------------------
 */

static void print_json(const struct top *t)
{
    alq_auto_json json_t *all =
        json_pack("{s:O, s:O, s:O}", "gpus", json_object_get(t->gpus, "gpus"), "shares",
                  json_object_get(t->shares, "shares"), "processes",
                  json_object_get(t->processes, "processes"));
    alq_client_print(all);
}

static void sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * NS_PER_MS};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

static int run_plain(struct top *t)
{
    const char *columns = getenv("COLUMNS");
    t->look.columns = columns ? atoi(columns) : 0;
    if (t->look.columns < 20 || t->look.columns > 1000)
        t->look.columns = PLAIN_COLUMNS;
    t->look.line_end = "\n";
    for (long i = 0; !t->iterations || i < t->iterations; i++) {
        if (i)
            sleep_ms(t->interval_ms);
        if (update(t))
            return alq_cli_fail("%s", t->err.text);
        if (t->cli->is_json)
            print_json(t);
        else
            paint(t, stdout);
        if (t->iterations != 1 && !t->cli->is_json)
            putchar('\n');
        if (fflush(stdout))
            return ALQ_CLI_FAILED; /* main says it */
    }
    return ALQ_CLI_OK;
}

/* ---- the terminal -----------------------------------------------------------------------------
 */

static int paint_screen(struct top *t)
{
    alq_auto_free char *text = NULL;
    size_t len = 0;
    alq_term_size(&t->look.columns, &t->look.rows);
    size_t most = alq_top_scroll_max(&t->model, &t->look);
    if (t->look.first > most)
        t->look.first = most;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return -1;
    fputs("\033[H", out);
    paint(t, out);
    fputs("\033[J", out);
    if (fclose(out))
        return -1;
    /* The last line has no end: with one, a full screen would scroll. */
    static const char last[] = "\033[K\r\n\033[J";
    size_t tail = sizeof(last) - 1;
    if (len >= tail && !memcmp(text + len - tail, last, tail)) {
        memcpy(text + len - tail, "\033[K\033[J", 6);
        len -= 2;
    }
    return fwrite(text, 1, len, stdout) == len && !fflush(stdout) ? 0 : -1;
}

/* 1: it ends. */
static int on_key(struct top *t, int key)
{
    const size_t page = 10;
    switch (key) {
    case 'q':
    case 'Q':
    case 4: /* ^D */
    case -1:
        return 1;
    case 'm':
        t->model.sort = ALQ_TOP_BY_MEMORY;
        break;
    case 'c':
        t->model.sort = ALQ_TOP_BY_COMPUTE;
        break;
    case 'n':
        t->model.sort = ALQ_TOP_BY_NAME;
        break;
    case 'r':
        t->model.is_reversed = !t->model.is_reversed;
        break;
    case 'j':
    case ALQ_KEY_DOWN:
        t->look.first++;
        break;
    case 'k':
    case ALQ_KEY_UP:
        t->look.first -= t->look.first > 0;
        break;
    case ' ':
    case ALQ_KEY_PAGE_DOWN:
        t->look.first += page;
        break;
    case ALQ_KEY_PAGE_UP:
        t->look.first -= t->look.first < page ? t->look.first : page;
        break;
    default:
        return 0;
    }
    alq_top_order(&t->model);
    return 0;
}

static int run_screen(struct top *t)
{
    int is_over = 0;
    t->look.line_end = "\033[K\r\n";
    t->look.has_colours = alq_term_has_colours();
    if (alq_term_open())
        return alq_cli_fail("the terminal: %m");
    for (long i = 0; !is_over && (!t->iterations || i < t->iterations); i++) {
        update(t); /* an error is in the first line; it is tried again */
        int64_t next_ns = alq_now_ns() + t->interval_ms * NS_PER_MS;
        do {
            if (paint_screen(t))
                is_over = 1;
            int64_t left_ns = next_ns - alq_now_ns();
            int key = is_over || left_ns <= 0
                          ? 0
                          : alq_term_key((int)((left_ns + NS_PER_MS - 1) / NS_PER_MS));
            is_over |= on_key(t, key);
        } while (!is_over && alq_now_ns() < next_ns);
    }
    alq_term_close();
    return ALQ_CLI_OK;
}

static int run(const struct alq_cli *cli)
{
    struct top t = {.cli = cli};
    setlocale(LC_CTYPE, "");
    t.look.is_utf8 = alq_term_is_utf8();
    int rc = parse(&t);
    if (!rc)
        rc = alq_term_is_capable() && !cli->is_json ? run_screen(&t) : run_plain(&t);
    forget(&t);
    alq_top_clear(&t.model);
    return rc;
}

const struct alq_cli_command alq_cli_top = {
    .name = "top",
    .arguments = "[--sort KEY] [--reverse] [--interval SECONDS] [--iterations N]",
    .summary = "a live table of GPUs, shares and processes",
    .help = "Memory and compute against their limits, with the compute of the last minute as\n"
            "history: of a share what its ledger holds and the part of the GPU's time that it\n"
            "used in the last second, of GPUs and processes what NVML says. A process has the\n"
            "limits of its share. Narrow terminals get fewer columns. Into a pipe it is written\n"
            "once as text, COLUMNS wide (100).\n"
            "\n"
            "Keys: m, c and n sort by memory, compute and name, r turns the order round, the\n"
            "arrows, j, k, space and the page keys scroll, q ends.\n",
    .options =
        (const struct alq_cli_option[]){
            {.name = "sort",
             .value = "KEY",
             .summary = "memory, compute or name [memory]",
             .words = "memory compute name"},
            {.name = "reverse", .summary = "the other way round"},
            {.name = "interval", .value = "SECONDS", .summary = "between updates [1]"},
            {.name = "iterations", .letter = 'n', .value = "N", .summary = "so many, then end"},
            {.name = NULL},
        },
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot top", "until q is pressed"},
            {"aliquot top --sort compute --iterations 5 | cat", "five times as text"},
            {"aliquot top --output json | jq '.processes[] | .pid'", "every PID on a GPU"},
            {0},
        },
    .run = run,
};

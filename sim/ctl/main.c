/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simctl: looks into a running simgpud, makes its machine misbehave, and lays driver roots. Prints
 * JSON on stdout (top: a table), reasons of failure on stderr; exit status 0 or 1.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "ctl/command.h"
#include "ctl/root.h"
#include "ctl/top.h"

static const char usage[] =
    "usage: simctl [OPTION...] COMMAND [ARGUMENT...]\n"
    "\n"
    "Looking (JSON; DEVICE is an index or a UUID that list shows)\n"
    "  oracle                        true bytes and busy time per device, group, process\n"
    "  list                          devices, clients, counts of unsupported calls\n"
    "  processes                     every client and what it holds of each device\n"
    "  describe DEVICE               one device: facts, condition, what was done to it\n"
    "  top                           live view (--interval S, --count N, --json)\n"
    "\n"
    "Devices\n"
    "  add MEMORY [NAME]             one more device; or add '{...}', as in a device file\n"
    "  remove DEVICE                 gone for newcomers, lost for who has it open\n"
    "  lose DEVICE                   XID 79, then GPU_IS_LOST and failing contexts\n"
    "  recover DEVICE                usable again for new contexts\n"
    "  xid DEVICE NUMBER             an XID event; --fail CODE: its contexts fail from then on\n"
    "  ecc DEVICE KIND [COUNT]       errors of KIND corrected or uncorrected, and their event\n"
    "  action DEVICE ACTION          recovery action that NVML reports: none, reset, reboot,\n"
    "                                drain-p2p, drain-and-reset\n"
    "  shrink DEVICE BYTES           takes BYTES (5Gi) out of what is free; 0 gives them back\n"
    "  freeze DEVICE [PERCENT]       utilisation stays as it is, or at PERCENT\n"
    "  thaw DEVICE                   utilisation is measured again\n"
    "\n"
    "Faults\n"
    "  fault ENTRY...                from now on calls of these entry points of libcuda and\n"
    "                                libnvidia-ml ('cuMem*' works) fail or take longer:\n"
    "      --return CODE             they return CODE and do nothing\n"
    "      --delay TIME              they take so much longer (500us, 20ms, 3s)\n"
    "      --call N                  only the N-th call, counted over all processes\n"
    "      --times M                 M calls from there on; 0: all\n"
    "      --pid PID, --group GROUP  only calls of these processes\n"
    "      --caller OBJECT           only calls made by an object file of that name\n"
    "      --own OBJECT              only calls that OBJECT makes for itself: a call in which it\n"
    "                                forwards the application's call of the same name goes on\n"
    "  faults                        faults in force, how often they were met and acted\n"
    "  clear [ID]                    takes one, or all, out of force\n"
    "\n"
    "simgpud\n"
    "  reset                         forget groups without processes, zero busy time and peaks\n"
    "  kill [SIGNAL]                 ends simgpud: KILL, or TERM, STOP, CONT, ...\n"
    "  install-root --config FILE DIR\n"
    "                                lay a driver root like NVIDIA's below DIR\n"
    "\n"
    "  --socket SOCKET   simgpud's socket (default: $SIMGPU_SOCKET or " SIM_SOCKET_DEFAULT ")\n"
    "  --config FILE     device file of install-root\n"
    "  --lib-dir DIR     where the stand-in libraries are (default: beside simctl)\n"
    "  --json            JSON from top as well, an object a line\n"
    "  --help            this text\n";

static const char *socket_path, *config, *lib_dir, *interval, *count;
static struct sim_ctl_options fault_options;
static bool as_json;

static int print(const json_t *answer, struct alq_err *err)
{
    if (json_dumpf(answer, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF ||
        fflush(stdout) != 0)
        return alq_err_errno(err, errno, "cannot write");
    return 0;
}

static int report(const struct sim_connection *c, uint32_t type, struct alq_err *err)
{
    alq_auto_json json_t *answer = NULL;
    int rc = sim_ctl_report(c, type, &answer, err);

    return rc ? rc : print(answer, err);
}

static int top(const struct sim_connection *c, struct alq_err *err)
{
    char *end = NULL, *count_end = NULL;
    double s = interval ? strtod(interval, &end) : 1;
    long n = count ? strtol(count, &count_end, 10) : 0;

    if ((end && *end) || s < 0.01 || s > 3600)
        return alq_err_set(err, ALQ_EINVAL, "--interval: give seconds from 0.01 to 3600");
    if ((count_end && *count_end) || n < 0 || n == LONG_MAX)
        return alq_err_set(err, ALQ_EINVAL, "--count: give a whole number");
    return sim_top_run(c, s, n, as_json, err);
}

static int end_daemon(const struct sim_connection *c, const char *name, struct alq_err *err)
{
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);

        if (known && strcasecmp(known, name) == 0)
            return sim_ctl_kill(c, i, err);
    }
    return alq_err_set(err, ALQ_EINVAL, "kill: no signal %s; give KILL, TERM, STOP or CONT", name);
}

static int command(const struct sim_connection *c, const json_t *request, struct alq_err *err)
{
    alq_auto_json json_t *answer = NULL;
    int rc = sim_ctl_command(c, request, &answer, err);

    return rc ? rc : json_object_size(answer) ? print(answer, err) : 0;
}

static int install(int words, char **word, struct alq_err *err)
{
    static struct sim_machine machine;
    alq_auto_free char *found = NULL;
    int rc;

    if (!config || words != 2)
        return alq_err_set(err, ALQ_EINVAL, "install-root needs --config FILE and DIR");
    if ((rc = sim_machine_read(config, &machine, err)) != 0 ||
        (!lib_dir && (rc = sim_root_find_libraries(&found, err)) != 0))
        return rc;
    return sim_root_install(&machine, lib_dir ? lib_dir : found, word[1], err);
}

static int run(int words, char **word, struct alq_err *err)
{
    static struct sim_connection c;
    alq_auto_json json_t *request = NULL;
    int rc;

    if (strcmp(word[0], "install-root") == 0)
        return install(words, word, err);
    bool is_report = strcmp(word[0], "oracle") == 0 || strcmp(word[0], "list") == 0;
    bool is_reset = strcmp(word[0], "reset") == 0, is_top = strcmp(word[0], "top") == 0;
    bool is_kill = strcmp(word[0], "kill") == 0;

    if ((is_report || is_reset || is_top) && words > 1)
        return alq_err_set(err, ALQ_EINVAL, "%s takes no arguments", word[0]);
    if (is_kill && words > 2)
        return alq_err_set(err, ALQ_EINVAL, "kill takes one signal, or none for KILL");
    if (!is_report && !is_reset && !is_top && !is_kill &&
        (rc = sim_ctl_build(words, word, &fault_options, &request, err)) != 0)
        return rc;
    if ((rc = sim_ctl_connect(&c, err)) != 0)
        return rc;
    rc = is_report  ? report(&c, strcmp(word[0], "list") == 0 ? SIM_LIST : SIM_ORACLE, err)
         : is_reset ? sim_ctl_reset(&c, err)
         : is_top   ? top(&c, err)
         : is_kill  ? end_daemon(&c, words == 2 ? word[1] : "KILL", err)
                    : command(&c, request, err);
    sim_disconnect(&c);
    return rc;
}

/* What getopt could not take: an option without its value, a long one there is none of, or a
 * letter, as the first of a negative number. */
static void refuse_option(const char *word)
{
    if (optopt >= 256)
        fprintf(stderr, "simctl: %s needs a value\n", word);
    else if (optopt)
        fprintf(stderr, "simctl: no option -%c; \"simctl --help\" lists them\n", optopt);
    else
        fprintf(stderr, "simctl: no option %s; \"simctl --help\" lists them\n", word);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        const char **value;
    } values[] = {
        {"socket", &socket_path},
        {"config", &config},
        {"lib-dir", &lib_dir},
        {"interval", &interval},
        {"count", &count},
        {"return", &fault_options.result},
        {"delay", &fault_options.delay},
        {"call", &fault_options.call},
        {"times", &fault_options.times},
        {"pid", &fault_options.pid},
        {"group", &fault_options.group},
        {"caller", &fault_options.caller},
        {"own", &fault_options.own},
        {"fail", &fault_options.fail},
    };
    enum { VALUES = sizeof(values) / sizeof(values[0]) };
    struct option options[VALUES + 3] = {{0}};
    struct alq_err err = ALQ_ERR_INIT;
    int option;

    for (int i = 0; i < VALUES; i++)
        options[i] = (struct option){values[i].name, required_argument, NULL, 256 + i};
    options[VALUES] = (struct option){"json", no_argument, NULL, 'j'};
    options[VALUES + 1] = (struct option){"help", no_argument, NULL, 'h'};
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option >= 256) {
            *values[option - 256].value = optarg;
        } else if (option == 'j') {
            as_json = true;
        } else if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        } else {
            refuse_option(argv[optind - 1]);
            return 1;
        }
    }
    if (optind == argc) {
        fputs(usage, stderr);
        return 1;
    }
    if (socket_path)
        setenv("SIMGPU_SOCKET", socket_path, 1);
    if (run(argc - optind, argv + optind, &err) != 0) {
        fprintf(stderr, "simctl: %s\n", err.text);
        return 1;
    }
    return 0;
}

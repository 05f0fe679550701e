/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simgpud: reads the device file, serves until SIGTERM or SIGINT, in the foreground. Prints one
 * line on stdout when it is ready for clients. Exit status 0, or 1 with the reason on stderr.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "daemon/server.h"

#define ALQ_LOG_MODULE "simgpud"

static const char usage[] =
    "usage: simgpud --config FILE.json --run-dir DIR\n"
    "Plays the kernel driver of a machine of simulated GPUs: holds the devices of FILE and serves\n"
    "the stand-in libcuda and libnvidia-ml through DIR/" SIM_SOCKET_NAME ", in the foreground.\n"
    "\n"
    "  --config FILE   device file (sim/README.md lists its keys)\n"
    "  --run-dir DIR   where the socket goes; made if missing\n"
    "  --help          this text\n";

static int serve(const char *config, const char *run_dir, struct alq_err *err)
{
    static struct sim_server server;
    sigset_t stop;
    int rc;

    if ((rc = sim_machine_read(config, &server.machine, err)) != 0 ||
        (rc = alq_file_mkdirs(run_dir, 0755, err)) != 0)
        return rc;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    int signal_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    if (signal_fd < 0)
        return alq_err_errno(err, errno, "cannot wait for signals");
    if ((rc = sim_server_open(&server, run_dir, err)) != 0)
        return rc;
    printf("simgpud ready: %u devices, driver %s, socket %s/%s\n", server.machine.device_count,
           sim_profile_facts(server.machine.profile)->driver_version, run_dir, SIM_SOCKET_NAME);
    fflush(stdout);
    rc = sim_server_run(&server, signal_fd, err);
    sim_server_close(&server, run_dir);
    close(signal_fd);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"run-dir", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *config = NULL, *run_dir = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    struct rlimit files;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'c')
            config = optarg;
        else if (option == 'r')
            run_dir = optarg;
        else {
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 1;
        }
    }
    if (!config || !run_dir || optind != argc) {
        fputs(usage, stderr);
        return 1;
    }
    /* Memory that a limit on files refuses is an answer to a client, not the end of simgpud. */
    signal(SIGXFSZ, SIG_IGN);
    /* A descriptor per client. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (serve(config, run_dir, &err) != 0) {
        alq_error(NULL, "%s", err.text);
        return 1;
    }
    return 0;
}

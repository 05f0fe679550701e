/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simctl: looks into a running simgpud and lays driver roots. Prints JSON on stdout, reasons of
 * failure on stderr; exit status 0 or 1.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/client.h"
#include "ctl/root.h"

static const char usage[] =
    "usage: simctl [--socket SOCKET] COMMAND\n"
    "\n"
    "  oracle                            true bytes and busy time per device, group and process\n"
    "  list                              devices, clients, counts of unsupported calls\n"
    "  reset                             forget groups without processes, zero busy time and "
    "peaks\n"
    "  install-root --config FILE DIR    lay a driver root like NVIDIA's below DIR\n"
    "\n"
    "  --socket SOCKET   simgpud's socket (default: $SIMGPU_SOCKET or " SIM_SOCKET_DEFAULT ")\n"
    "  --config FILE     device file of install-root\n"
    "  --lib-dir DIR     where the stand-in libraries are (default: beside simctl)\n"
    "  --help            this text\n";

static int fail(const char *what, int rc)
{
    fprintf(stderr, "simctl: %s: %s\n", what,
            rc == -ECONNREFUSED || rc == -ENOENT
                ? "no simgpud runs there; start one or give --socket"
            : rc == -EPROTO ? "simgpud is of another version"
                            : strerror(-rc));
    return 1;
}

static int copy_out(int fd)
{
    char buffer[65536];
    ssize_t n;

    while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
        if (fwrite(buffer, 1, (size_t)n, stdout) != (size_t)n)
            return -EIO;
    }
    putchar('\n');
    return n < 0 ? -errno : fflush(stdout) == 0 ? 0 : -errno;
}

static int ask(uint32_t type)
{
    struct sim_connection connection;
    struct sim_header request = {type, sizeof(request)};
    struct sim_answer answer;
    int rc = sim_connect(&connection, SIM_KIND_CONTROL);

    if (rc != 0)
        return fail("cannot connect", rc);
    if (type == SIM_RESET) {
        rc = sim_call(&connection, &request, sizeof(request), &answer, sizeof(answer));
    } else {
        rc = sim_call_fd(&connection, &request, sizeof(request));
        if (rc >= 0) {
            int fd = rc;

            rc = copy_out(fd);
            close(fd);
        }
    }
    sim_disconnect(&connection);
    return rc < 0 ? fail("no answer", rc) : 0;
}

static int install(const char *config, const char *lib_dir, const char *dir)
{
    static struct sim_machine machine;
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_free char *found = NULL;

    if (!config || !dir) {
        fputs(usage, stderr);
        return 1;
    }
    if (sim_machine_read(config, &machine, &err) != 0 ||
        (!lib_dir && sim_root_find_libraries(&found, &err) != 0) ||
        sim_root_install(&machine, lib_dir ? lib_dir : found, dir, &err) != 0) {
        fprintf(stderr, "simctl: %s\n", err.text);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"config", required_argument, NULL, 'c'},
        {"lib-dir", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *config = NULL, *lib_dir = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            setenv("SIMGPU_SOCKET", optarg, 1);
        else if (option == 'c')
            config = optarg;
        else if (option == 'l')
            lib_dir = optarg;
        else {
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 1;
        }
    }
    if (optind == argc - 1 && strcmp(argv[optind], "oracle") == 0)
        return ask(SIM_ORACLE);
    if (optind == argc - 1 && strcmp(argv[optind], "list") == 0)
        return ask(SIM_LIST);
    if (optind == argc - 1 && strcmp(argv[optind], "reset") == 0)
        return ask(SIM_RESET);
    if (optind == argc - 2 && strcmp(argv[optind], "install-root") == 0)
        return install(config, lib_dir, argv[optind + 1]);
    fputs(usage, stderr);
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of aliquot share: the options of all of them, and the exit statuses. One
 * thread.
 */
#ifndef ALQ_CLI_CLI_H
#define ALQ_CLI_CLI_H

#define ALQ_CLI_SOCKET "/run/aliquot/aliquotd.sock"

enum alq_cli_status {
    ALQ_CLI_OK = 0,
    ALQ_CLI_FAILED = 1, /* it was understood, but could not be done */
    ALQ_CLI_USAGE = 2,  /* it was not understood */
};

struct alq_cli {
    const char *socket;
    int is_json;
    int argc; /* what is left after the command's name */
    char **argv;
};

struct alq_cli_command {
    const char *name, *arguments, *summary, *help;
    int (*run)(const struct alq_cli *cli);
};

extern const struct alq_cli_command alq_cli_doctor, alq_cli_set, alq_cli_shares, alq_cli_version;

/* Says it on stderr, with where help is; ALQ_CLI_USAGE. */
int alq_cli_usage(const struct alq_cli_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Says it on stderr; ALQ_CLI_FAILED. */
int alq_cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* For commands that take none: 0, or the usage error. */
int alq_cli_no_arguments(const struct alq_cli_command *command, const struct alq_cli *cli);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of aliquot as data. A command is one row of the table in main.c; its help, its page
 * in aliquot(1), what shells complete and how its arguments are read all come from the row. One
 * thread.
 */
#ifndef ALQ_CLI_CLI_H
#define ALQ_CLI_CLI_H

#include <stddef.h>
#include <stdint.h>

#define ALQ_CLI_SOCKET "/run/aliquot/aliquotd.sock"
#define ALQ_CLI_GIVEN_MAX 64

enum alq_cli_status {
    ALQ_CLI_OK = 0,
    ALQ_CLI_FAILED = 1, /* it was understood, but could not be done */
    ALQ_CLI_USAGE = 2,  /* it was not understood */
};

/* What a shell offers for a value or an operand, in place of words with blanks between them. */
#define ALQ_CLI_FILES "@files"
#define ALQ_CLI_SHARES "@shares" /* ids, as the daemon knows them */
#define ALQ_CLI_CLAIMS "@claims" /* namespace/name and the ids of shares */
#define ALQ_CLI_GPUS "@gpus"     /* device names */

struct alq_cli_option {
    const char *name;    /* without the dashes */
    const char *value;   /* what it takes ("SIZE"); NULL: nothing, it is a switch */
    const char *summary; /* with the default in brackets */
    const char *words;   /* what a shell offers; NULL: nothing */
    char letter;         /* "-f"; 0: none */
};

struct alq_cli_example {
    const char *command, *what;
};

struct alq_cli;

struct alq_cli_command {
    const char *name;      /* "set"; two words where several belong together: "claim apply" */
    const char *arguments; /* of the usage line, without the options of all commands */
    const char *summary;
    const char *help;                       /* lines of at most 79 characters, each with its '\n' */
    const struct alq_cli_option *options;   /* its own; the last has no name. NULL: none */
    const struct alq_cli_example *examples; /* the last has no command */
    const char *operand_words;              /* what a shell offers for an operand; NULL: nothing */
    size_t operands_max;
    /* The first operand, or what follows "--", is a program, and all behind it are its arguments;
     * operands_max is not looked at. */
    int takes_program;
    int (*run)(const struct alq_cli *cli);
};

struct alq_cli {
    const struct alq_cli_command *command;
    const char *family; /* the first word alone of commands with two, when help is wanted on it */
    const char *socket;
    int is_json;
    struct {
        const struct alq_cli_option *option;
        const char *value; /* "" for a switch */
    } given[ALQ_CLI_GIVEN_MAX];
    size_t given_count;
    int argc; /* operands */
    char **argv;
};

/* All of them; the last is NULL. */
extern const struct alq_cli_command *const alq_cli_commands[];
/* What every command takes. */
extern const struct alq_cli_option alq_cli_common_options[];

/* The command's own option as it was given last: its value, "" for a switch, NULL: not given. */
const char *alq_cli_value(const struct alq_cli *cli, const char *name);

/* A percentage of --cores. ALQ_CLI_USAGE, and said, where it is none. */
int alq_cli_cores(const struct alq_cli_command *command, const char *text, uint32_t *pct);

/* Says it on stderr in one line, with where help is; ALQ_CLI_USAGE. */
int alq_cli_usage(const struct alq_cli_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Says it on stderr; ALQ_CLI_FAILED. */
int alq_cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

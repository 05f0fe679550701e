/* SPDX-License-Identifier: Apache-2.0 */
/* aliquot-hook: the table of commands and the command line, see hook.h. */
#include "hook/hook.h"

#include <stdbool.h>

#include "hook/container.h"
#include "hook/sys.h"
#include "vgpu/text.h"

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define VALUES_MAX 256

static const char usage[] =
    "usage: aliquot-hook update-ldcache --folder DIR [--folder DIR...]\n"
    "       aliquot-hook create-symlinks --link TARGET::PATH [--link TARGET::PATH...]\n"
    "       aliquot-hook disable-device-node-modification\n"
    "       aliquot-hook --version | --help\n"
    "An OCI createContainer hook: reads the container's state from standard input.\n";

static const struct command {
    const char *name;
    const char *option; /* of its values; NULL: it has none */
    int (*run)(const struct alq_container *container, char **values, int count);
} commands[] = {
    {"update-ldcache", "--folder", alq_update_ldcache},
    {"create-symlinks", "--link", alq_create_symlinks},
    {"disable-device-node-modification", NULL, alq_disable_device_node_modification},
};

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (alq_text_is(commands[i].name, name))
            return &commands[i];
    }
    return NULL;
}

static void say(int fd, const char *text)
{
    alq_sys_write(fd, text, alq_text_len(text));
}

/* "--folder A", "--folder=A" and "--folder A B". How many values, or -1 after a report. */
static int parse(const struct command *command, char **args, char *values[VALUES_MAX])
{
    bool is_open = false;
    int count = 0;
    size_t len = command->option ? alq_text_len(command->option) : 0;
    for (; *args; args++) {
        char *value = *args;
        if (len && alq_text_is(value, command->option)) {
            is_open = true;
            continue;
        }
        if (len && alq_text_starts(value, command->option) && value[len] == '=')
            value += len + 1;
        else if (!is_open || value[0] == '-')
            return alq_report(value, "not an option of this command; see --help", 0) - 1;
        if (count == VALUES_MAX)
            return alq_report(command->name, "too many values", 0) - 1;
        values[count++] = value;
    }
    if (len && !count)
        return alq_report(command->name, "a value is missing; see --help", 0) - 1;
    return count;
}

int alq_hook_main(int argc, char **argv)
{
    static struct alq_container container;
    char *values[VALUES_MAX];
    if (argc == 2 && alq_text_is(argv[1], "--help"))
        return say(1, usage), 0;
    if (argc == 2 && alq_text_is(argv[1], "--version"))
        return say(1, "aliquot-hook " ALQ_VERSION "\n"), 0;
    const struct command *command = argc > 1 ? find(argv[1]) : NULL;
    if (!command) {
        if (argc > 1)
            alq_report(argv[1], "no such command; see --help", 0);
        else
            say(2, usage);
        return EXIT_USAGE;
    }
    int count = parse(command, argv + 2, values);
    if (count < 0)
        return EXIT_USAGE;
    alq_syscall6(__NR_umask, 022, 0, 0, 0, 0, 0);
    if (alq_container_open(&container, 0))
        return EXIT_FAILED;
    if (alq_container_is_host(&container))
        return 0;
    return command->run(&container, values, count) ? EXIT_FAILED : 0;
}

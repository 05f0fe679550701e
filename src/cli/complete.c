/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion, see complete.h.
 */
#include "cli/complete.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/client.h"
#include "cli/options.h"

struct line {
    const char *socket;
    const char *typed; /* what is to be completed */
    int prefix_len;    /* of "--name=", which stands before it in the same word */
    const struct alq_cli_command *command;
    const struct alq_cli_option *pending; /* an option whose value is the next word */
    size_t operands;
    int is_over;     /* "--" was there, or a program */
    char family[32]; /* the first word of commands with two */
};

static void offer(const struct line *l, const char *word, const char *what)
{
    if (!strncmp(word, l->typed, strlen(l->typed)))
        printf("%.*s%s%s%s\n", l->prefix_len, l->typed - l->prefix_len, word, what ? "\t" : "",
               what ? what : "");
}

static void offer_of_list(const struct line *l, const char *path, const char *list, const char *key)
{
    alq_auto_json json_t *answer = NULL;
    int status;
    size_t i;
    const json_t *item;
    if (alq_client_ask(l->socket, "GET", path, NULL, &status, &answer, NULL))
        return;
    json_array_foreach (json_object_get(answer, list), i, item) {
        const char *word = alq_json_str(item, key), *name = alq_json_str(item, "claim.name");
        if (word)
            offer(l, word, name ? name : alq_json_str(item, "product"));
    }
}

static void offer_claims(const struct line *l)
{
    alq_auto_json json_t *answer = NULL;
    int status;
    size_t i;
    const json_t *item;
    if (alq_client_ask(l->socket, "GET", "/v1/claims", NULL, &status, &answer, NULL))
        return;
    json_array_foreach (json_object_get(answer, "claims"), i, item) {
        char name[512];
        snprintf(name, sizeof(name), "%s/%s", alq_json_str(item, "namespace"),
                 alq_json_str(item, "name"));
        offer(l, name, "claim");
    }
}

static void offer_words(const struct line *l, const char *words)
{
    if (!strcmp(words, ALQ_CLI_FILES)) {
        puts(":files");
    } else if (!strcmp(words, ALQ_CLI_GPUS)) {
        offer_of_list(l, "/v1/gpus", "gpus", "device");
    } else if (!strcmp(words, ALQ_CLI_SHARES)) {
        offer_of_list(l, "/v1/shares", "shares", "id");
    } else if (!strcmp(words, ALQ_CLI_CLAIMS)) {
        offer_claims(l);
        offer_of_list(l, "/v1/shares", "shares", "id");
    } else {
        for (size_t len; *words; words += len + (words[len] == ' ')) {
            char word[64];
            len = strcspn(words, " ");
            snprintf(word, sizeof(word), "%.*s", (int)len, words);
            offer(l, word, NULL);
        }
    }
}

static void offer_options(const struct line *l, const struct alq_cli_option *options)
{
    for (const struct alq_cli_option *o = options; o && o->name; o++) {
        char word[64];
        snprintf(word, sizeof(word), "--%s", o->name);
        offer(l, word, o->summary);
    }
}

/* First words, or what follows the family's. */
static void offer_commands(const struct line *l)
{
    const char *last = "";
    for (const struct alq_cli_command *const *c = alq_cli_commands; *c; c++) {
        char word[32];
        size_t first = strcspn((*c)->name, " ");
        snprintf(word, sizeof(word), "%.*s", (int)first, (*c)->name);
        if (*l->family) {
            if (!strcmp(word, l->family) && (*c)->name[first])
                offer(l, (*c)->name + first + 1, (*c)->summary);
        } else if (!(*c)->name[first]) {
            offer(l, word, (*c)->summary);
        } else if (strncmp((*c)->name, last, first + 1) != 0) {
            offer(l, word, NULL);
        }
        last = (*c)->name;
    }
}

/* A word before the one under the cursor. */
static void pass(struct line *l, const char *word)
{
    const char *value = NULL;
    if (!strcmp(word, "=") && l->pending)
        return; /* bash makes three words of --name=value */
    if (l->pending) {
        if (!strcmp(l->pending->name, "socket"))
            l->socket = word;
        l->pending = NULL;
    } else if (l->is_over) {
        l->operands++;
    } else if (!strcmp(word, "--")) {
        l->is_over = 1;
    } else if (word[0] == '-') {
        const struct alq_cli_option *o = alq_options_find(l->command, word, &value);
        l->pending = o && o->value && !value ? o : NULL;
    } else if (!l->command) {
        char *words[2] = {*l->family ? l->family : (char *)word, (char *)word};
        size_t used;
        l->command = alq_options_command(words, *l->family ? 2 : 1, &used);
        if (!l->command)
            snprintf(l->family, sizeof(l->family), "%s", word);
    } else {
        l->operands++;
        l->is_over = l->command->takes_program;
    }
}

static void offer_operand(const struct line *l)
{
    if (l->command->takes_program)
        puts(l->operands ? ":files" : ":program");
    else if (l->command->operand_words && l->operands < l->command->operands_max)
        offer_words(l, l->command->operand_words);
}

int alq_complete_print(const char *socket_path, int count, char **words)
{
    struct line l = {.socket = socket_path, .typed = count ? words[count - 1] : ""};
    const char *value = NULL;
    for (int i = 0; i + 1 < count; i++)
        pass(&l, words[i]);
    if (l.pending) {
        if (!strcmp(l.typed, "="))
            l.typed = "";
        if (l.pending->words)
            offer_words(&l, l.pending->words);
    } else if (!l.is_over && l.typed[0] == '-') {
        const struct alq_cli_option *o = alq_options_find(l.command, l.typed, &value);
        if (o && value && o->words) {
            l.prefix_len = (int)(value - l.typed);
            l.typed = value;
            offer_words(&l, o->words);
            return 0;
        }
        if (l.command)
            offer_options(&l, l.command->options);
        offer_options(&l, alq_cli_common_options);
    } else if (!l.command) {
        offer_commands(&l);
    } else {
        offer_operand(&l);
    }
    return 0;
}

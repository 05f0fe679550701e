/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot explain: what a pod, claim or share got, and why it was refused; out of the daemon's
 * shares and its memory of the last claims.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/quantity.h"
#include "cli/client.h"
#include "cli/commands.h"

struct answers {
    json_t *history, *shares;
};

static uint64_t number(const json_t *object, const char *path)
{
    return (uint64_t)json_integer_value(alq_json_at(object, path));
}

/* ---- who is meant -----------------------------------------------------------------------------
 */

/* "name" or "namespace/name". */
static int is_name(const char *wanted, const char *namespace_, const char *name)
{
    const char *slash = strchr(wanted, '/');
    if (!slash)
        return *name && !strcmp(wanted, name);
    return strlen(namespace_) == (size_t)(slash - wanted) &&
           !strncmp(wanted, namespace_, (size_t)(slash - wanted)) && !strcmp(slash + 1, name);
}

static int is_pod_of(const json_t *claim, const char *wanted)
{
    size_t i;
    const json_t *pod;
    json_array_foreach (json_object_get(claim, "pods"), i, pod)
        if (is_name(wanted, alq_json_text(claim, "namespace"), json_string_value(pod)))
            return 1;
    return 0;
}

static int is_claim(const json_t *claim, const char *wanted)
{
    return !strcmp(wanted, alq_json_text(claim, "uid")) ||
           is_name(wanted, alq_json_text(claim, "namespace"), alq_json_text(claim, "name"));
}

static int is_share(const json_t *share, const char *wanted)
{
    return !strcmp(wanted, alq_json_text(share, "id")) ||
           is_claim(json_object_get(share, "claim"), wanted) ||
           is_name(wanted, alq_json_text(share, "claim.namespace"), alq_json_text(share, "pod"));
}

/* The claim's entry of the result, made where it is new; from: its claim. */
static json_t *entry_of(json_t *claims, const json_t *from)
{
    size_t i;
    json_t *known;
    json_array_foreach (claims, i, known)
        if (!strcmp(alq_json_text(known, "uid"), alq_json_text(from, "uid")))
            return known;
    json_t *entry = json_copy((json_t *)from);
    json_object_set_new(entry, "shares", json_array());
    if (!json_object_get(entry, "state"))
        json_object_set_new(entry, "state", json_string("prepared"));
    json_array_append_new(claims, entry);
    return entry;
}

static json_t *claim_of_history(const struct answers *a, const char *uid)
{
    size_t i;
    json_t *claim;
    json_array_foreach (json_object_get(a->history, "claims"), i, claim)
        if (!strcmp(alq_json_text(claim, "uid"), uid))
            return claim;
    return NULL;
}

/* The claims that are meant, each with its shares (of one share's id, that one alone). */
static json_t *select_claims(const struct answers *a, const char *wanted)
{
    json_t *claims = json_array();
    size_t i, k;
    json_t *claim, *share;
    json_array_foreach (json_object_get(a->history, "claims"), i, claim)
        if (is_claim(claim, wanted) || is_pod_of(claim, wanted))
            entry_of(claims, claim);
    json_array_foreach (json_object_get(a->shares, "shares"), i, share) {
        const json_t *of = json_object_get(share, "claim");
        int is_meant = is_share(share, wanted);
        json_array_foreach (claims, k, claim)
            is_meant |= !strcmp(alq_json_text(claim, "uid"), alq_json_text(of, "uid"));
        if (!is_meant)
            continue;
        const json_t *known = claim_of_history(a, alq_json_text(of, "uid"));
        json_t *entry = entry_of(claims, known ? known : of);
        json_array_append(json_object_get(entry, "shares"), share);
    }
    return claims;
}

/* ---- what there is to say ---------------------------------------------------------------------
 */

/* By reason of the refusal (alq_err_name). */
static const char *remedy_of(const json_t *claim)
{
    static const struct {
        const char *reason, *remedy;
    } remedies[] = {
        {"busy", "it waits for room: delete a pod that holds the rest, or lower what was set by "
                 "aliquot set; the kubelet tries again by itself"},
        {"invalid", "what the claim asks for cannot be had: set its manifest right and make it "
                    "anew"},
        {"unsupported", "this node or its driver cannot do that; leave it out of the claim"},
        {"not-found", "something is missing on this node: aliquot doctor says what"},
        {"io", "see aliquot doctor and the log of aliquotd; the kubelet tries again by itself"},
        {"denied", "give aliquotd's service account the right (deploy/helm has the rules)"},
    };
    if (!*alq_json_text(claim, "reason"))
        return NULL;
    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++)
        if (!strcmp(remedies[i].reason, alq_json_text(claim, "reason")))
            return remedies[i].remedy;
    return "the kubelet tries again by itself; if it stays, see aliquot doctor";
}

static void print_bytes(const char *before, uint64_t bytes)
{
    char quantity[ALQ_QUANTITY_TEXT_BYTES];
    alq_quantity_format(alq_quantity_from_u64(bytes), 1, quantity);
    printf("%s%s", before, quantity);
}

static void print_limits(const char *before, const json_t *limits)
{
    print_bytes(before, number(limits, "memoryBytes"));
    printf(" of memory, %" PRIu64 " %% of compute", number(limits, "cores"));
}

static void print_usage(const json_t *share)
{
    const json_t *usage = json_object_get(share, "usage"), *count;
    const char *entry;
    if (!usage)
        return;
    if (*alq_json_text(usage, "error")) {
        printf("    its usage file is damaged: %s\n", alq_json_text(usage, "error"));
        return;
    }
    print_bytes("    uses ", number(usage, "countedBytes") + number(usage, "overheadBytes"));
    print_bytes(" (", number(usage, "countedBytes"));
    print_bytes(" asked for, the driver takes ", number(usage, "overheadBytes"));
    print_bytes("), at most ", number(usage, "peakBytes"));
    printf(", in %" PRIu64 " processes; %" PRIu64 " %% of the GPU's time\n",
           number(usage, "processes"), number(usage, "usedPercent"));
    printf("    charged %.1f s of compute, waited %.1f s for it\n",
           (double)number(usage, "chargedNs") / 1e9, (double)number(usage, "throttledNs") / 1e9);
    json_object_foreach ((json_t *)json_object_get(usage, "refusals"), entry, count)
        printf("    refused %lld times for want of memory: %s\n",
               (long long)json_integer_value(count), entry);
    if (json_object_size(json_object_get(usage, "refusals")))
        printf("      -> a larger limit: aliquot set %s --memory SIZE, or in the claim\n",
               alq_json_text(share, "id"));
}

static void print_share(const json_t *share)
{
    printf("  share %s: %s (%s)%s%s\n", alq_json_text(share, "id"), alq_json_text(share, "device"),
           alq_json_text(share, "gpu"), *alq_json_text(share, "request") ? ", request " : "",
           alq_json_text(share, "request"));
    if (json_is_true(json_object_get(share, "adminAccess"))) {
        puts("    adminAccess: nothing is limited");
    } else if (!json_is_true(json_object_get(share, "enforced"))) {
        puts("    the whole GPU: nothing is limited");
    } else {
        print_limits("    got ", json_object_get(share, "allocated"));
        printf("; policy %s, priority %" PRIu64 "\n", alq_json_text(share, "policy"),
               number(share, "priority"));
        if (json_is_true(json_object_get(share, "changed"))) {
            print_limits("    now ", json_object_get(share, "limits"));
            puts(", set by the operator (aliquot set --reset goes back)");
        }
    }
    print_usage(share);
}

static void print_claim(const json_t *claim)
{
    const json_t *pods = json_object_get(claim, "pods");
    size_t i;
    const json_t *item;
    printf("claim %s/%s (%s): %s%s%s\n", alq_json_text(claim, "namespace"),
           alq_json_text(claim, "name"), alq_json_text(claim, "uid"), alq_json_text(claim, "state"),
           *alq_json_text(claim, "time") ? ", " : "", alq_json_text(claim, "time"));
    if (*alq_json_text(claim, "waitsFor"))
        printf("  waits for %s, %" PRIu64 " s so far\n", alq_json_text(claim, "waitsFor"),
               number(claim, "waitedSeconds"));
    json_array_foreach (pods, i, item)
        printf("%s%s%s", i ? ", " : "  for pod ", json_string_value(item),
               i + 1 == json_array_size(pods) ? "\n" : "");
    json_array_foreach (json_object_get(claim, "shares"), i, item)
        print_share(item);
    if (!*alq_json_text(claim, "error"))
        return;
    printf("  refused %" PRIu64 " times, last because: %s\n", number(claim, "refusals"),
           alq_json_text(claim, "error"));
    printf("    -> %s\n", alq_json_text(claim, "remedy"));
}

static int show(const struct alq_cli *cli, const struct answers *a, const char *wanted)
{
    alq_auto_json json_t *claims = select_claims(a, wanted);
    size_t i;
    json_t *claim;
    if (!json_array_size(claims))
        return alq_cli_fail("aliquotd knows no pod, claim or share %.200s: the kubelet has not "
                            "asked for it here; see kubectl describe pod, or aliquot shares",
                            wanted);
    json_array_foreach (claims, i, claim)
        if (remedy_of(claim))
            json_object_set_new(claim, "remedy", json_string(remedy_of(claim)));
    if (cli->is_json) {
        alq_auto_json json_t *all = json_pack("{s:O}", "claims", claims);
        alq_client_print(all);
        return ALQ_CLI_OK;
    }
    alq_client_clean(claims);
    json_array_foreach (claims, i, claim)
        print_claim(claim);
    return ALQ_CLI_OK;
}

static int run(const struct alq_cli *cli)
{
    alq_auto_json json_t *history = NULL, *shares = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    int status;
    if (!cli->argc)
        return alq_cli_usage(cli->command, "which pod, claim or share?");
    if (alq_client_ask(cli->socket, "GET", "/v1/history", NULL, &status, &history, &err) ||
        alq_client_ask(cli->socket, "GET", "/v1/shares", NULL, &status, &shares, &err))
        return alq_cli_fail("%s", err.text);
    return show(cli, &(struct answers){history, shares}, cli->argv[0]);
}

const struct alq_cli_command alq_cli_explain = {
    .name = "explain",
    .arguments = "POD|CLAIM|SHARE",
    .summary = "what it got, and why it was refused",
    .help = "A pod or claim is a name, or namespace/name; a claim may be its UID, and a share is\n"
            "its id. Says what was allocated and is in force, what is used, what was refused to\n"
            "its programs, and the last reason why the claim was refused, with the remedy.\n"
            "aliquotd remembers the last 256 claims that the kubelet asked for since its start.\n",
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot explain default/train-0", "why a pod waits, or what it got"},
            {"aliquot explain train-0 -o json | jq -r '.claims[].error'", "the reason alone"},
            {0},
        },
    .operand_words = ALQ_CLI_CLAIMS,
    .operands_max = 1,
    .run = run,
};

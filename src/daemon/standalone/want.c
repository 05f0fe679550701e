/* SPDX-License-Identifier: Apache-2.0 */
/* From manifests and from words to ResourceClaims, see want.h. Pure. */
#include "daemon/standalone/want.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"

#define GROUP "resource.k8s.io/"
#define LABEL_MAX 63u
#define SUBDOMAIN_MAX 253u
#define UUID_LEAST 8 /* so much of a UUID names a GPU: "GPU-5d1f" */

/* ---- manifests --------------------------------------------------------------------------------
 */

int alq_want_kind(const json_t *document, enum alq_want *kind, const char **why,
                  struct alq_err *err)
{
    const char *name = alq_json_str(document, "kind");
    const char *version = alq_json_str(document, "apiVersion");
    if (!name || !version)
        return alq_err_set(err, ALQ_EINVAL,
                           "no object of Kubernetes: kind or apiVersion is missing");
    int is_claim = !strcmp(name, "ResourceClaim"), is_class = !strcmp(name, "DeviceClass");
    *kind = is_claim ? ALQ_WANT_CLAIM : is_class ? ALQ_WANT_CLASS : ALQ_WANT_NOTHING;
    if (*kind == ALQ_WANT_NOTHING) {
        *why = strcmp(name, "ResourceClaimTemplate")
                   ? "has no meaning on one machine; only ResourceClaim and DeviceClass have"
                   : "makes claims for pods, of which there are none here; write a ResourceClaim";
        return 0;
    }
    if (strcmp(version, GROUP "v1") != 0 && strcmp(version, GROUP "v1beta2") != 0)
        return alq_err_set(err, ALQ_EINVAL, "apiVersion %.60s is not served; write " GROUP "v1",
                           version);
    return 0;
}

/* As the API server has it: a label. What is missing the allocation names. */
static int check_requests(const json_t *requests, struct alq_err *err)
{
    size_t i;
    const json_t *request;
    json_array_foreach (requests, i, request) {
        const char *name = alq_json_str(request, "name");
        if (name && (strlen(name) > LABEL_MAX || !alq_is_dns_name(name, strlen(name), 0)))
            return alq_err_set(
                err, ALQ_EINVAL,
                "the name \"%.80s\" of a request is none (lower-case letters, digits "
                "and '-', at most %u)",
                name, LABEL_MAX);
        int rc = check_requests(json_object_get(request, "firstAvailable"), err);
        if (rc)
            return rc;
    }
    return 0;
}

int alq_want_name(const json_t *document, const char **name, struct alq_err *err)
{
    *name = alq_json_str(document, "metadata.name");
    if (!*name)
        return alq_err_set(err, ALQ_EINVAL, "metadata.name is missing");
    if (strlen(*name) > SUBDOMAIN_MAX || !alq_is_dns_name(*name, strlen(*name), 1))
        return alq_err_set(err, ALQ_EINVAL,
                           "metadata.name \"%.80s\" is no name (lower-case letters, digits, '-' "
                           "and '.', at most 253)",
                           *name);
    return check_requests(alq_json_at(document, "spec.devices.requests"), err);
}

int alq_want_is_admin(const json_t *document)
{
    size_t i;
    const json_t *request;
    json_array_foreach (alq_json_at(document, "spec.devices.requests"), i, request)
        if (json_is_true(alq_json_at(request, "exactly.adminAccess")))
            return 1;
    return 0;
}

json_t *alq_want_object(const json_t *document, const struct alq_claim_id *id)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:O*}, s:O*}", "apiVersion", GROUP "v1", "kind",
                     "ResourceClaim", "metadata", "name", id->name, "namespace", id->namespace_,
                     "uid", id->uid, "annotations", alq_json_at(document, "metadata.annotations"),
                     "spec", json_object_get(document, "spec"));
}

json_t *alq_want_own_class(const struct alq_config *cfg)
{
    return json_pack("{s:{s:s}, s:{s:[{s:{s:o}}]}}", "metadata", "name", cfg->driver_name, "spec",
                     "selectors", "cel", "expression",
                     json_sprintf("device.driver == '%s'", cfg->driver_name));
}

/* ---- words ------------------------------------------------------------------------------------
 */

static int is_index(const char *word, uint32_t index)
{
    char *end;
    unsigned long number = strtoul(word, &end, 10);
    return isdigit((unsigned char)*word) && !*end && number == index;
}

static int is_meant(const struct alq_gpu *gpu, const char *word)
{
    return is_index(word, gpu->index) || !strcmp(word, gpu->name) ||
           (strlen(word) >= UUID_LEAST && !strncasecmp(gpu->uuid, word, strlen(word)));
}

static const struct alq_gpu *find_gpu(const struct alq_gpu_list *gpus, const char *word,
                                      struct alq_err *err)
{
    const struct alq_gpu *found = NULL;
    char known[160] = "";
    for (size_t i = 0; i < gpus->count; i++) {
        const struct alq_gpu *gpu = &gpus->gpus[i];
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%" PRIu32, used ? ", " : "", gpu->index);
        if (!is_meant(gpu, word))
            continue;
        if (found) {
            alq_err_set(err, ALQ_EINVAL, "\"%.64s\" is the beginning of more than one UUID", word);
            return NULL;
        }
        found = gpu;
    }
    if (!found)
        alq_err_set(err, ALQ_ENOENT, "there is no GPU \"%.64s\"; this machine has %s%s", word,
                    gpus->count ? "number " : "none", known);
    return found;
}

/* The amounts as a claim has them, both as text; {} where nothing is asked. */
static int read_amounts(const json_t *body, json_t *amounts, struct alq_err *err)
{
    const json_t *memory = json_object_get(body, "memory"), *cores = json_object_get(body, "cores");
    char text[ALQ_QUANTITY_TEXT_BYTES];
    uint64_t bytes = 0;
    if (memory) {
        int rc = json_is_string(memory) ? alq_bytes_parse(json_string_value(memory), 0, &bytes, err)
                                        : alq_err_set(err, ALQ_EINVAL, "not a text like \"4Gi\"");
        if (!rc && !bytes)
            rc = alq_err_set(err, ALQ_EINVAL, "0 bytes; ask for 1Mi or more");
        if (rc)
            return alq_err_wrap(err, "memory");
        alq_quantity_format(alq_quantity_from_u64(bytes), 1, text);
        json_object_set_new(amounts, "memory", json_string(text));
    }
    if (cores) {
        if (!json_is_integer(cores) || json_integer_value(cores) < 0 ||
            json_integer_value(cores) > ALQ_CORES_ALL)
            return alq_err_set(err, ALQ_EINVAL, "cores: no whole number from 0 to 100");
        json_object_set_new(amounts, "cores", json_sprintf("%d", (int)json_integer_value(cores)));
    }
    return 0;
}

static json_t *request(const struct alq_config *cfg, const char *name, const json_t *amounts,
                       const struct alq_gpu *gpu)
{
    alq_auto_json json_t *exactly = json_pack("{s:s, s:{s:O}}", "deviceClassName", cfg->driver_name,
                                              "capacity", "requests", amounts);
    if (exactly && gpu)
        json_object_set_new(exactly, "selectors",
                            json_pack("[{s:{s:o}}]", "cel", "expression",
                                      json_sprintf("device.attributes['%s'].uuid == '%s'",
                                                   cfg->driver_name, gpu->uuid)));
    return json_pack("{s:s, s:O}", "name", name, "exactly", exactly);
}

int alq_want_run(const json_t *body, const struct alq_config *cfg, const struct alq_gpu_list *gpus,
                 json_t **document, struct alq_err *err)
{
    static const char *const keys[] = {"gpus", "memory", "cores", NULL};
    const json_t *words = json_object_get(body, "gpus"), *word;
    alq_auto_json json_t *amounts = json_object(), *requests = json_array();
    size_t i, count = json_array_size(words);
    if (!json_is_object(body) || (words && !json_is_array(words)))
        return alq_err_set(err, ALQ_EINVAL,
                           "give {\"gpus\": [...], \"memory\": \"4Gi\", "
                           "\"cores\": 30}");
    int rc = alq_json_only_keys(body, keys, "the request", err);
    if (!rc)
        rc = read_amounts(body, amounts, err);
    if (!rc && count > ALQ_CLAIM_RESULTS_MAX)
        rc = alq_err_set(err, ALQ_EINVAL, "%zu GPUs; at most %u are possible", count,
                         ALQ_CLAIM_RESULTS_MAX);
    if (!rc && !count)
        json_array_append_new(requests, request(cfg, "gpu", amounts, NULL));
    for (i = 0; !rc && i < count; i++) {
        char name[32];
        word = json_array_get(words, i);
        const struct alq_gpu *gpu =
            find_gpu(gpus, json_is_string(word) ? json_string_value(word) : "", err);
        if (!gpu)
            return err->code;
        snprintf(name, sizeof(name), "gpu-%zu", i);
        json_array_append_new(requests, request(cfg, name, amounts, gpu));
    }
    if (rc)
        return rc;
    *document = json_pack("{s:{s:{s:O}}}", "spec", "devices", "requests", requests);
    return *document && json_array_size(requests) == (count ? count : 1)
               ? 0
               : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

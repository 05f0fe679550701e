/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests as users of one machine send them, under any bytes. What must hold: what is refused is
 * refused with a reason; a claim that is taken has the identity that we give it and no allocation.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/standalone/want.h"
#include "daemon/yaml.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const json_t *document)
{
    struct alq_claim_id id = {.uid = "uid", .namespace_ = "uid-1"};
    struct alq_err err = ALQ_ERR_INIT;
    enum alq_want kind;
    const char *why = NULL, *name = NULL;
    int rc = alq_want_kind(document, &kind, &why, &err);
    REQUIRE(rc == err.code && !rc == !err.text[0]);
    if (rc || kind != ALQ_WANT_CLAIM) {
        REQUIRE(rc || kind == ALQ_WANT_CLASS || why);
        return;
    }
    rc = alq_want_name(document, &name, &err);
    REQUIRE(rc == err.code && (rc || strlen(name) < sizeof(id.name)));
    if (rc)
        return;
    snprintf(id.name, sizeof(id.name), "%s", name);
    json_t *object = alq_want_object(document, &id);
    REQUIRE(object && !json_object_get(object, "status"));
    REQUIRE(!strcmp(alq_json_str(object, "metadata.uid"), id.uid));
    REQUIRE(!strcmp(alq_json_str(object, "metadata.name"), name));
    REQUIRE(alq_want_is_admin(document) == alq_want_is_admin(object));
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alq_err err = ALQ_ERR_INIT;
    json_t *documents = NULL, *document;
    size_t i;
    int rc = alq_yaml_parse_all((const char *)data, size, "fuzz", &documents, &err);
    REQUIRE(rc == err.code && !rc == !err.text[0]);
    json_array_foreach (documents, i, document)
        check(document);
    json_decref(documents);
    return 0;
}

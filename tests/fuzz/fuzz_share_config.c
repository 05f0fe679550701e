/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShareConfig under any JSON. What must hold: what is refused is refused with a reason; what is
 * taken stays within its bounds, says what an own look at the object says, and taken twice changes
 * nothing more.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/prepare/share_config.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const json_t *object)
{
    struct alq_share_tuning tuning = {.policy = ALQ_POLICY_BURST, .priority = 1, .log_level = 2};
    struct alq_err err = ALQ_ERR_INIT;
    int rc = alq_share_config_apply(object, &tuning, &err);
    REQUIRE(rc == err.code);
    if (rc) {
        REQUIRE((rc == ALQ_EINVAL || rc == ALQ_ERANGE) && err.text[0]);
        return;
    }
    REQUIRE(tuning.policy <= ALQ_POLICY_NONE && tuning.priority <= 1 && tuning.log_level <= 4);
    const char *kind = alq_json_str(object, "kind"), *version = alq_json_str(object, "apiVersion");
    REQUIRE(kind && !strcmp(kind, "ShareConfig"));
    REQUIRE(version && !strcmp(version, ALQ_SHARE_CONFIG_API_VERSION));
    const json_t *priority = alq_json_at(object, "compute.priority");
    REQUIRE(tuning.priority == (priority ? (uint32_t)json_integer_value(priority) : 1));
    const char *policy = alq_json_str(object, "compute.policy");
    REQUIRE(policy || tuning.policy == ALQ_POLICY_BURST);
    REQUIRE(alq_json_at(object, "logLevel") || tuning.log_level == 2);
    struct alq_share_tuning again = tuning;
    REQUIRE(!alq_share_config_apply(object, &again, NULL));
    REQUIRE(!memcmp(&again, &tuning, sizeof(tuning)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *object = NULL;
    if (alq_json_parse((const char *)data, size, "config", &object, NULL))
        return 0;
    check(object);
    json_decref(object);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A claim object from the API server: allocation, quantities and ShareConfig. What is accepted is
 * within its bounds, and a claim is never gone by the very object that its promise was read from.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/prepare/allocation.h"
#include "daemon/prepare/lookup.h"
#include "daemon/state/claim_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alq_gpu gpu = {
        .uuid = "GPU-0", .name = "hami-gpu-0", .memory_promisable_bytes = 80ull << 30};
    const struct alq_gpu_list gpus = {&gpu, 1};
    const struct alq_claim_id id = {"u", "n", "c"};
    struct alq_claim_spec *claim = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    json_t *object = NULL;
    if (alq_json_parse((const char *)data, size, "claim", &object, NULL))
        return 0;
    int rc = alq_allocation_read(object, &id, "d", "p", &gpus, NULL, &claim, &err);
    if (rc != err.code || (!rc && !claim))
        abort();
    for (uint32_t i = 0; !rc && i < claim->share_count; i++) {
        const struct alq_share_spec *s = &claim->shares[i];
        if (s->cores_pct > ALQ_CORES_ALL || s->memory_bytes > gpu.memory_promisable_bytes ||
            !s->memory_bytes || s->tuning.policy > ALQ_POLICY_NONE || s->tuning.priority > 1 ||
            s->tuning.log_level > 4)
            abort();
    }
    if (!rc) {
        enum alq_claim_state state = alq_claim_state_read(claim, 200, object);
        if (state != ALQ_CLAIM_PRESENT && state != ALQ_CLAIM_UNUSED)
            abort();
        if (alq_claim_state_read(claim, 404, object) != ALQ_CLAIM_UNKNOWN &&
            !json_object_get(object, "reason"))
            abort();
    }
    alq_claim_spec_free(claim);
    json_decref(object);
    return 0;
}

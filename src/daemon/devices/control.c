/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's requests, see control.h. Loop thread only. */
#include "daemon/devices/control.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/devices/report.h"

#define RELEASE_PATH "/v1/driver/release"
#define CLEAR_PATH "/v1/gpus/clear"
#define RELEASE_S_MAX 3600

/* A JSON body with this member alone; NULL: answered with what is wrong. */
static json_t *body_of(struct alq_http_call *call, const struct alq_http_request *request,
                       const char *key)
{
    const char *const keys[] = {key, NULL};
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *root = NULL;
    if (!alq_json_parse(request->body, request->body_bytes, "the body", &root, &err) &&
        !alq_json_only_keys(root, keys, "the body", &err))
        return alq_steal(&root);
    alq_http_fail(call, 400, "%s", err.text);
    return NULL;
}

/* {"seconds": 60}: the NVML child goes, for an unload of the module or a reset by hand. */
static void on_release(void *arg, struct alq_http_call *call,
                       const struct alq_http_request *request)
{
    struct alq_devices_control *control = arg;
    alq_auto_json json_t *root = body_of(call, request, "seconds");
    const json_t *value = json_object_get(root, "seconds");
    json_int_t seconds = json_integer_value(value);
    if (!root)
        return;
    if (!json_is_integer(value) || seconds < 1 || seconds > RELEASE_S_MAX) {
        alq_http_fail(call, 400, "give {\"seconds\": N}, N from 1 to %d", RELEASE_S_MAX);
        return;
    }
    alq_nvml_release(control->nvml, (unsigned)seconds);
    alq_admin_answer(call, 200, json_pack("{s:I}", "seconds", seconds));
}

/* {"uuid": "GPU-..."}: its faults are over, but for what NVML shows. */
static void on_clear(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    struct alq_devices_control *control = arg;
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *root = body_of(call, request, "uuid");
    const char *uuid = json_string_value(json_object_get(root, "uuid"));
    if (!root)
        return;
    if (!uuid)
        alq_http_fail(call, 400, "give {\"uuid\": \"GPU-...\"}");
    else if (alq_devices_clear(control->devices, uuid, &err))
        alq_http_fail(call, err.code == ALQ_ENOENT ? 404 : 503, "%s", err.text);
    else
        alq_admin_answer(call, 200, json_pack("{s:s}", "uuid", uuid));
}

int alq_devices_control_open(struct alq_devices_control *control, struct alq_admin *admin,
                             struct alq_err *err)
{
    struct alq_http *http = alq_admin_http(admin);
    if (alq_http_handle(http, ALQ_HTTP_ADMIN, "POST", RELEASE_PATH, on_release, control) ||
        alq_http_handle(http, ALQ_HTTP_ADMIN, "POST", CLEAR_PATH, on_clear, control) ||
        alq_findings_register(alq_admin_findings(admin), alq_report_findings, control->devices))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return 0;
}

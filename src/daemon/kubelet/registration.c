/* SPDX-License-Identifier: Apache-2.0 */
/* The registration service, see registration.h. The answer to GetInfo is packed once. Loop thread
 * only. */
#include "daemon/kubelet/registration.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "registration.pb-c.h"

#define ALQ_LOG_MODULE "registration"

struct alq_registration {
    uint8_t *info;
    size_t info_len;
    void (*on_registered)(void *arg);
    void *arg;
    struct alq_grpc_method methods[3];
};

static void get_info(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)message; /* InfoRequest has no fields */
    (void)len;
    const struct alq_registration *r = arg;
    alq_grpc_reply(call, r->info, r->info_len);
}

static void notify(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    const struct alq_registration *r = arg;
    Alq__Registration__RegistrationStatus *status =
        alq__registration__registration_status__unpack(NULL, len, message);
    if (!status) {
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "RegistrationStatus cannot be decoded");
        return;
    }
    if (status->plugin_registered)
        alq_info(NULL, "registered by the kubelet");
    else
        alq_error(ALQ_LOG_KV({"error", status->error}),
                  "the kubelet refused the registration; it tries again when the socket is made "
                  "anew");
    if (status->plugin_registered)
        r->on_registered(r->arg);
    alq__registration__registration_status__free_unpacked(status, NULL);
    alq_grpc_reply(call, NULL, 0); /* RegistrationStatusResponse has no fields */
}

struct alq_registration *alq_registration_new(const char *driver, const char *endpoint,
                                              void (*on_registered)(void *arg), void *arg,
                                              struct alq_err *err)
{
    /* Of each service the kubelet takes the first form that it knows. */
    static char v1[] = "v1.DRAPlugin", v1beta1[] = "v1beta1.DRAPlugin";
    static char health_v1[] = "v1.DRAResourceHealth";
    static char health_v1alpha1[] = "v1alpha1.DRAResourceHealth";
    static char *versions[] = {v1, v1beta1, health_v1, health_v1alpha1};
    static char type[] = "DRAPlugin";
    Alq__Registration__PluginInfo info = ALQ__REGISTRATION__PLUGIN_INFO__INIT;
    struct alq_registration *r = calloc(1, sizeof(*r));
    char *name = strdup(driver), *path = strdup(endpoint);
    if (r && name && path) {
        info.type = type;
        info.name = name;
        info.endpoint = path;
        info.supported_versions = versions;
        info.n_supported_versions = sizeof(versions) / sizeof(versions[0]);
        r->info = malloc(alq__registration__plugin_info__get_packed_size(&info));
        if (r->info)
            r->info_len = alq__registration__plugin_info__pack(&info, r->info);
    }
    free(name);
    free(path);
    if (!r || !r->info) {
        free(r);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    r->on_registered = on_registered;
    r->arg = arg;
    r->methods[0] =
        (struct alq_grpc_method){"/pluginregistration.Registration/GetInfo", get_info, r};
    r->methods[1] = (struct alq_grpc_method){
        "/pluginregistration.Registration/NotifyRegistrationStatus", notify, r};
    return r;
}

void alq_registration_free(struct alq_registration *registration)
{
    if (!registration)
        return;
    free(registration->info);
    free(registration);
}

const struct alq_grpc_method *alq_registration_methods(const struct alq_registration *registration)
{
    return registration->methods;
}

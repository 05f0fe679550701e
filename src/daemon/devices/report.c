/* SPDX-License-Identifier: Apache-2.0 */
/* Telling people of the GPUs, see report.h. Loop thread only. */
#include "daemon/devices/report.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/findings.h"
#include "daemon/kube/events.h"
#include "daemon/monitor/metrics.h"
#include "daemon/nvml/protocol.h"

#define ALQ_LOG_MODULE "devices"
#define NOTE_BYTES 512

static const struct {
    const char *name;   /* of the taint, and in figures */
    const char *reason; /* of the Event; each its own, for those of one reason are told together */
} kinds[ALQ_FAULT_KINDS] = {
    [ALQ_FAULT_XID] = {"xid", "GPUXid"},
    [ALQ_FAULT_ECC] = {"ecc", "GPUMemoryError"},
    [ALQ_FAULT_RECOVERY] = {"recovery-action", "GPURecoveryAction"},
    [ALQ_FAULT_HANG] = {"unresponsive", "GPUUnresponsive"},
};

static void post(struct alq_events *events, enum alq_event_type type, const char *reason,
                 const char *note)
{
    const struct alq_event event = {
        .type = type, .reason = reason, .action = "Monitor", .note = note};
    if (events)
        alq_events_node(events, &event);
}

void alq_report_fault(struct alq_events *events, const char *uuid, const char *name,
                      enum alq_fault_kind kind, const struct alq_fault *fault)
{
    char note[NOTE_BYTES];
    if (fault->effect == ALQ_FAULT_NONE) {
        alq_info(ALQ_LOG_KV({"device", name}, {"uuid", uuid}, {"fault", kinds[kind].name}),
                 "a fault of a GPU is over: %s", fault->reason);
        snprintf(note, sizeof(note), "%s (%s): %s is over: %s", name, uuid, kinds[kind].name,
                 fault->reason);
        post(events, ALQ_EVENT_NORMAL, "GPUFaultOver", note);
        return;
    }
    alq_metric_add(ALQ_METRIC_GPU_FAULTS, 1, uuid, kinds[kind].name);
    snprintf(note, sizeof(note), "%s (%s): %s", name, uuid, fault->reason);
    if (fault->effect == ALQ_FAULT_NOTICE) {
        alq_warn(ALQ_LOG_KV({"device", name}, {"uuid", uuid}), "%s", fault->reason);
        post(events, ALQ_EVENT_WARNING, "GPUApplicationError", note);
    } else {
        alq_error(ALQ_LOG_KV({"device", name}, {"uuid", uuid}), "GPU takes no new claims: %s",
                  fault->reason);
        post(events, ALQ_EVENT_WARNING, kinds[kind].reason, note);
    }
}

void alq_report_left_out(struct alq_events *events, const struct alq_left_out *out)
{
    char note[NOTE_BYTES], index[16];
    snprintf(index, sizeof(index), "%u", out->index);
    alq_warn(ALQ_LOG_KV({"index", index}, {"uuid", out->uuid}), "GPU is not offered: %s",
             out->reason);
    snprintf(note, sizeof(note), "GPU %s (%s) is not offered: %s", index,
             out->uuid[0] ? out->uuid : "UUID unknown", out->reason);
    post(events, ALQ_EVENT_WARNING, "GPUNotOffered", note);
}

void alq_report_devices(const struct alq_gpu_list *list, const struct alq_err *err)
{
    if (err)
        alq_warn(NULL, "no GPUs are published: %s", err->text);
    else
        alq_info(NULL, "%zu GPUs", list->count);
    for (size_t i = 0; i < list->count; i++)
        alq_info(ALQ_LOG_KV({"device", list->gpus[i].name}, {"uuid", list->gpus[i].uuid},
                            {"product", list->gpus[i].product_name}),
                 "GPU");
}

static const char *remedy_of(const struct alq_gpu *gpu, const struct alq_fault *fault)
{
    if (fault->effect == ALQ_FAULT_NOTICE)
        return "look at the program; the note goes by itself";
    if (gpu->recovery_action > 0 && !alq_nvml_is_reset(gpu->recovery_action))
        return "drain the node and do what the driver asks for; the GPU comes back by itself";
    return "end what runs on it and reset it (nvidia-smi -i <uuid> -r) or reboot the node; the GPU "
           "comes back by itself";
}

void alq_report_findings(void *arg, struct alq_findings *findings)
{
    const struct alq_devices *devices = arg;
    const struct alq_gpu_list *list = alq_devices_list(devices);
    const char *absent = alq_devices_absent(devices);
    size_t count;
    const struct alq_left_out *out = alq_devices_left_out(devices, &count);
    if (absent)
        alq_findings_add(findings, "gpus.absent", ALQ_FINDING_ERROR,
                         "see the text; aliquotd keeps trying", "no reading of the GPUs: %s",
                         absent);
    for (size_t i = 0; i < count; i++)
        alq_findings_add(findings, "gpus.left-out", ALQ_FINDING_WARNING, "see the text",
                         "GPU %u (%s) is not offered: %s", out[i].index,
                         out[i].uuid[0] ? out[i].uuid : "UUID unknown", out[i].reason);
    for (size_t i = 0; i < list->count; i++) {
        const struct alq_gpu *gpu = &list->gpus[i];
        const struct alq_fault *fault = alq_gpu_fault(gpu);
        if (fault)
            alq_findings_add(
                findings, "gpus.fault",
                fault->effect == ALQ_FAULT_UNFIT ? ALQ_FINDING_ERROR : ALQ_FINDING_WARNING,
                remedy_of(gpu, fault), "%s (%s): %s", gpu->name, gpu->uuid, fault->reason);
        if (!gpu->is_watched && !gpu->is_hanging)
            alq_findings_add(findings, "gpus.unwatched", ALQ_FINDING_WARNING,
                             "watch the kernel's log for \"NVRM: Xid\" by other means",
                             "%s (%s): its driver gives no events, so its XIDs are not seen",
                             gpu->name, gpu->uuid);
    }
    if (!absent && list->count)
        alq_findings_add(findings, "gpus.offered", ALQ_FINDING_OK, NULL, "%zu GPUs are offered",
                         list->count);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a run, see figures.h. */
#include "cli/run/figures.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"

#define NS_PER_S 1e9

static struct alq_run_figures *figures_of(struct alq_run_figures *figures, size_t *count,
                                          const char *uuid)
{
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(figures[i].gpu, uuid))
            return &figures[i];
    if (*count == ALQ_RUN_GPUS_MAX)
        return NULL;
    struct alq_run_figures *f = &figures[(*count)++];
    *f = (struct alq_run_figures){0};
    snprintf(f->gpu, sizeof(f->gpu), "%s", uuid);
    return f;
}

static void add_section(const struct alq_usage_section *section, struct alq_run_figures *figures,
                        size_t *count)
{
    const struct alq_counters *c = &section->counters;
    struct alq_run_figures *f;
    if (!section->gpu_uuid[0] || !memchr(section->gpu_uuid, '\0', sizeof(section->gpu_uuid)) ||
        !(f = figures_of(figures, count, section->gpu_uuid)))
        return;
    if (section->memory_limit_bytes && section->memory_limit_bytes < UINT64_MAX)
        f->memory_bytes = section->memory_limit_bytes;
    if (section->compute_limit_pct)
        f->cores_pct = section->compute_limit_pct;
    f->peak_bytes += c->peak_bytes;
    f->gpu_ns += c->charged_ns;
    f->throttled_ns += c->throttled_ns;
    f->refusals += c->refusals;
    f->allocations += c->allocations;
    f->launches += c->launches;
}

void alq_run_figures_read(const char *path, struct alq_run_figures *figures, size_t *count)
{
    struct alq_usage_header header;
    struct alq_usage_section section;
    const size_t head = offsetof(struct alq_usage_section, slots);
    alq_auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
        header.magic != ALQ_USAGE_MAGIC || header.version != ALQ_SHARE_VERSION ||
        header.section_bytes != sizeof(section))
        return;
    for (uint32_t i = 0; i < header.section_count && i < ALQ_SECTIONS_MAX; i++) {
        off_t at = (off_t)ALQ_USAGE_HEADER_BYTES + (off_t)i * (off_t)sizeof(section);
        if (pread(fd, &section, head, at) == (ssize_t)head)
            add_section(&section, figures, count);
    }
}

/* ---- printing ---------------------------------------------------------------------------------
 */

/* "3.7 GiB": for reading, not for asking. */
static const char *size_text(uint64_t bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1024;
    snprintf(text, room, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

static void print_line(const struct alq_run_figures *f)
{
    char peak[32], limit[32], of[48] = "", cores[32] = "";
    const char *name = f->device[0] ? f->device : f->gpu;
    if (f->memory_bytes)
        snprintf(of, sizeof(of), " of %s", size_text(f->memory_bytes, limit, sizeof(limit)));
    if (f->cores_pct && f->cores_pct < 100)
        snprintf(cores, sizeof(cores), " at %" PRIu32 " %%", f->cores_pct);
    if (!f->allocations && !f->launches && !f->refusals && !f->peak_bytes)
        fprintf(stderr, "aliquot: %s: not used\n", name);
    else
        fprintf(stderr,
                "aliquot: %s: peak memory %s%s, GPU time %.1f s%s, throttled %.1f s, "
                "%" PRIu64 " allocation%s refused\n",
                name, size_text(f->peak_bytes, peak, sizeof(peak)), of,
                (double)f->gpu_ns / NS_PER_S, cores, (double)f->throttled_ns / NS_PER_S,
                f->refusals, f->refusals == 1 ? "" : "s");
}

static void print_json(const struct alq_run_figures *figures, size_t count, int status,
                       int is_voluntary)
{
    alq_auto_json json_t *root =
        json_pack("{s:i, s:b, s:[]}", "exitStatus", status, "voluntary", is_voluntary, "gpus");
    for (size_t i = 0; root && i < count; i++) {
        const struct alq_run_figures *f = &figures[i];
        json_array_append_new(
            json_object_get(root, "gpus"),
            json_pack("{s:s, s:s, s:I, s:i, s:I, s:f, s:f, s:I, s:I, s:I}", "gpu", f->gpu, "device",
                      f->device, "memoryBytes", (json_int_t)f->memory_bytes, "cores",
                      (int)f->cores_pct, "peakBytes", (json_int_t)f->peak_bytes, "gpuSeconds",
                      (double)f->gpu_ns / NS_PER_S, "throttledSeconds",
                      (double)f->throttled_ns / NS_PER_S, "refusals", (json_int_t)f->refusals,
                      "allocations", (json_int_t)f->allocations, "launches",
                      (json_int_t)f->launches));
    }
    json_dumpf(root, stderr, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', stderr);
}

void alq_run_figures_print(const struct alq_run_figures *figures, size_t count, int status,
                           int is_voluntary, int is_json)
{
    if (is_json) {
        print_json(figures, count, status, is_voluntary);
        return;
    }
    for (size_t i = 0; i < count; i++)
        print_line(&figures[i]);
    if (!count)
        fputs("aliquot: no GPU was used\n", stderr);
}

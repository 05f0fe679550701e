/* SPDX-License-Identifier: Apache-2.0 */
/* What the NVML child may say, read by its parent: readings, events, progress, samples and the
 * use; what is taken is encoded and read back to the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/nvml/protocol.h"
#include "daemon/nvml/sample.h"
#include "daemon/nvml/use.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void readings(const char *line, size_t len)
{
    static struct alq_nvml_reading reading, again;
    if (!alq_nvml_decode(line, len, &reading, NULL)) {
        alq_auto_free char *text = alq_nvml_encode(&reading);
        REQUIRE(text && !alq_nvml_decode(text, strlen(text), &again, NULL));
        alq_auto_free char *twice = alq_nvml_encode(&again);
        REQUIRE(!strcmp(text, twice));
        alq_nvml_reading_clear(&again);
    }
    alq_nvml_reading_clear(&reading);
}

static void events(const char *line, size_t len)
{
    static struct alq_nvml_events events, again;
    if (alq_nvml_decode_events(line, len, &events, NULL))
        return;
    REQUIRE(events.count <= ALQ_NVML_EVENTS_MAX);
    alq_auto_free char *text = alq_nvml_encode_events(&events);
    REQUIRE(text && !alq_nvml_decode_events(text, strlen(text), &again, NULL));
    REQUIRE(!memcmp(&events, &again, sizeof(events)));
}

static void samples(const char *line, size_t len)
{
    struct alq_sample sample, again;
    if (!alq_sample_decode(line, len, &sample, NULL)) {
        alq_auto_free char *text = alq_sample_encode(&sample);
        REQUIRE(text && !alq_sample_decode(text, strlen(text), &again, NULL));
        alq_sample_clear(&again);
    }
    alq_sample_clear(&sample);
}

static void uses(const char *line, size_t len)
{
    struct alq_use use, again;
    if (!alq_use_decode(line, len, &use, NULL)) {
        alq_auto_free char *text = alq_use_encode(&use);
        REQUIRE(text && !alq_use_decode(text, strlen(text), &again, NULL));
        alq_auto_free char *twice = alq_use_encode(&again);
        REQUIRE(!strcmp(text, twice));
        alq_use_clear(&again);
    }
    alq_use_clear(&use);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    alq_auto_free char *line = malloc(size + 1);
    memcpy(line, data, size);
    line[size] = '\0';
    readings(line, size);
    events(line, size);
    samples(line, size);
    uses(line, size);
    REQUIRE(alq_nvml_decode_progress(line, size) < (int)ALQ_NVML_GPUS_MAX);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as bytes, see record.h. Every number and text is checked on decoding: a record is input,
 * even if its checksum is right. Pure functions, any thread.
 */
#include "daemon/state/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/state/claim_spec.h"

#define HEADER_MAX_BYTES 64

/* CRC-32C (Castagnoli), reflected, bit by bit: records are a few hundred bytes. */
static uint32_t crc32c(const char *data, size_t len)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned char)data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

static int format_header(char out[HEADER_MAX_BYTES], uint32_t crc, size_t len)
{
    return snprintf(out, HEADER_MAX_BYTES, "aliquot-record %d %08" PRIx32 " %zu\n",
                    ALQ_RECORD_VERSION, crc, len);
}

static json_t *share_json(const struct alq_share_spec *s, const char *pool)
{
    json_t *share = json_pack(
        "{s:s, s:I, s:I, s:I, s:i, s:b, s:{s:i, s:i, s:i, s:i, s:I}, s:s, s:s, s:s, s:s}", "gpu",
        s->gpu_uuid, "minor", (json_int_t)s->gpu_minor, "gpuMemory",
        (json_int_t)s->gpu_memory_bytes, "memory", (json_int_t)s->memory_bytes, "cores",
        (int)s->cores_pct, "admin", s->is_admin, "tuning", "policy", (int)s->tuning.policy,
        "priority", (int)s->tuning.priority, "logLevel", (int)s->tuning.log_level, "waitSeconds",
        (int)s->tuning.wait_s, "spill", (json_int_t)s->tuning.spill_bytes, "request", s->request,
        "pool", pool, "device", s->device, "shareID", s->share_uuid);
    if (share && s->limit.is_set &&
        json_object_set_new(share, "limit",
                            json_pack("{s:I, s:i}", "memory", (json_int_t)s->limit.memory_bytes,
                                      "cores", (int)s->limit.cores_pct))) {
        json_decref(share);
        return NULL;
    }
    return share;
}

int alq_record_encode(const struct alq_record *record, char **data, size_t *len,
                      struct alq_err *err)
{
    const struct alq_claim_spec *claim = &record->claim;
    alq_auto_json json_t *root = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:[]}", "state",
        record->state == ALQ_RECORD_COMPLETED ? "completed" : "started", "bootID", record->boot_id,
        "uid", claim->uid, "namespace", claim->namespace_, "name", claim->name, "shares");
    json_t *shares = json_object_get(root, "shares");
    for (uint32_t i = 0; shares && i < claim->share_count; i++)
        if (json_array_append_new(shares, share_json(&claim->shares[i], claim->pool)))
            return alq_err_set(err, ALQ_ENOMEM, "record of claim %s: out of memory", claim->uid);
    alq_auto_free char *text = root ? alq_json_dump(root) : NULL;
    if (!text)
        return alq_err_set(err, ALQ_ENOMEM, "record of claim %s: out of memory", claim->uid);
    size_t text_len = strlen(text);
    char *out = malloc(HEADER_MAX_BYTES + text_len + 2);
    if (!out)
        return alq_err_set(err, ALQ_ENOMEM, "record of claim %s: out of memory", claim->uid);
    int n = format_header(out, crc32c(text, text_len), text_len);
    memcpy(out + n, text, text_len);
    out[(size_t)n + text_len] = '\n';
    *data = out;
    *len = (size_t)n + text_len + 1;
    return 0;
}

static int take_text(const json_t *object, const char *key, char *out, size_t size,
                     struct alq_err *err)
{
    const char *text = NULL;
    int rc = alq_json_need_str(object, key, &text, err);
    if (rc)
        return rc;
    if (strlen(text) >= size)
        return alq_err_set(err, ALQ_EPROTO, "field %s is too long", key);
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

/* At most 255 bytes, malloc'ed; where one is known already it must be the same. */
static int take_same(const json_t *object, const char *key, char **out, struct alq_err *err)
{
    char text[256];
    int rc = take_text(object, key, text, sizeof(text), err);
    if (!rc && *out && strcmp(*out, text) != 0)
        rc = alq_err_set(err, ALQ_EPROTO, "field %s is not the same for all", key);
    if (!rc && !*out && !(*out = strdup(text)))
        rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return rc;
}

static int take_number(const json_t *object, const char *key, uint64_t max, uint64_t *out,
                       struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max)
        return alq_err_set(err, ALQ_EPROTO, "field %s is missing or out of range", key);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int take_u32(const json_t *object, const char *key, uint32_t max, uint32_t *out,
                    struct alq_err *err)
{
    uint64_t value;
    int rc = take_number(object, key, max, &value, err);
    if (!rc)
        *out = (uint32_t)value;
    return rc;
}

/* What the operator has set; most shares, and all records before it was known, have none. */
static int take_limit(const json_t *object, struct alq_share_limit *limit, struct alq_err *err)
{
    if (!object)
        return 0;
    limit->is_set = 1;
    int rc = take_number(object, "memory", INT64_MAX, &limit->memory_bytes, err);
    return rc ? rc : take_u32(object, "cores", ALQ_CORES_ALL, &limit->cores_pct, err);
}

static int take_share(const json_t *object, const char *uid, uint32_t index,
                      struct alq_share_spec *s, char **pool, struct alq_err *err)
{
    const json_t *tuning = json_object_get(object, "tuning");
    int rc = take_text(object, "gpu", s->gpu_uuid, sizeof(s->gpu_uuid), err);
    if (!rc)
        rc = take_u32(object, "minor", UINT32_MAX, &s->gpu_minor, err);
    if (!rc)
        rc = take_number(object, "gpuMemory", INT64_MAX, &s->gpu_memory_bytes, err);
    if (!rc)
        rc = take_number(object, "memory", INT64_MAX, &s->memory_bytes, err);
    if (!rc)
        rc = take_u32(object, "cores", ALQ_CORES_ALL, &s->cores_pct, err);
    if (!rc)
        rc = take_u32(tuning, "policy", ALQ_POLICY_NONE, &s->tuning.policy, err);
    if (!rc)
        rc = take_u32(tuning, "priority", 1, &s->tuning.priority, err);
    if (!rc)
        rc = take_u32(tuning, "logLevel", 4, &s->tuning.log_level, err);
    if (!rc && json_object_get(tuning, "waitSeconds")) /* not in records of the first version */
        rc = take_u32(tuning, "waitSeconds", ALQ_WAIT_MAX_S, &s->tuning.wait_s, err);
    if (!rc && json_object_get(tuning, "spill")) /* nor in those before spillToHost */
        rc = take_number(tuning, "spill", INT64_MAX, &s->tuning.spill_bytes, err);
    if (!rc)
        rc = take_limit(json_object_get(object, "limit"), &s->limit, err);
    if (!rc)
        rc = take_text(object, "request", s->request, sizeof(s->request), err);
    if (!rc)
        rc = take_same(object, "pool", pool, err);
    if (!rc)
        rc = take_text(object, "device", s->device, sizeof(s->device), err);
    if (!rc)
        rc = take_text(object, "shareID", s->share_uuid, sizeof(s->share_uuid), err);
    s->is_admin = json_is_true(json_object_get(object, "admin"));
    s->index = index;
    alq_share_id_format(uid, index, s->share_id);
    return rc;
}

static int take_root(const json_t *root, struct alq_record *record, struct alq_err *err)
{
    struct alq_claim_spec *claim = &record->claim;
    const char *state = NULL;
    json_t *shares = NULL;
    int rc = alq_json_need_str(root, "state", &state, err);
    if (!rc && strcmp(state, "started") != 0 && strcmp(state, "completed") != 0)
        rc = alq_err_set(err, ALQ_EPROTO, "unknown state \"%s\"", state);
    if (!rc)
        rc = take_text(root, "bootID", record->boot_id, sizeof(record->boot_id), err);
    if (!rc)
        rc = take_text(root, "uid", claim->uid, sizeof(claim->uid), err);
    if (!rc && !alq_claim_uid_is_valid(claim->uid))
        rc = alq_err_set(err, ALQ_EPROTO, "\"%s\" is not a UID", claim->uid);
    if (!rc)
        rc = take_text(root, "namespace", claim->namespace_, sizeof(claim->namespace_), err);
    if (!rc)
        rc = take_same(root, "name", &claim->name, err);
    if (!rc)
        rc = alq_json_need_array(root, "shares", &shares, err);
    if (!rc && json_array_size(shares) > ALQ_CLAIM_RESULTS_MAX)
        rc = alq_err_set(err, ALQ_EPROTO, "%zu shares", json_array_size(shares));
    if (rc)
        return rc;
    record->state = state[0] == 'c' ? ALQ_RECORD_COMPLETED : ALQ_RECORD_STARTED;
    claim->shares = calloc(json_array_size(shares) + 1, sizeof(*claim->shares));
    if (!claim->shares)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    size_t i;
    json_t *item;
    json_array_foreach (shares, i, item) {
        rc = take_share(item, claim->uid, (uint32_t)i, &claim->shares[i], &claim->pool, err);
        if (rc)
            return alq_err_wrap(err, "share %zu", i);
        claim->share_count++;
    }
    if (!claim->pool && !(claim->pool = strdup(""))) /* no share, no pool */
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return 0;
}

int alq_record_decode(const char *data, size_t len, struct alq_record *record, struct alq_err *err)
{
    char head[HEADER_MAX_BYTES];
    const char *end = memchr(data, '\n', len < sizeof(head) ? len : sizeof(head) - 1);
    if (!end)
        return alq_err_set(err, ALQ_EPROTO, len ? "no record header" : "empty record");
    size_t head_len = (size_t)(end - data);
    memcpy(head, data, head_len);
    head[head_len] = '\0';
    int version = 0;
    if (sscanf(head, "aliquot-record %9d", &version) != 1)
        return alq_err_set(err, ALQ_EPROTO, "no record header");
    if (version != ALQ_RECORD_VERSION)
        return alq_err_set(err, version > ALQ_RECORD_VERSION ? ALQ_ENOTSUP : ALQ_EPROTO,
                           "record of version %d; this aliquotd knows %d", version,
                           ALQ_RECORD_VERSION);
    size_t body_len = len - head_len - 1;
    const char *body = end + 1;
    if (!body_len || body[--body_len] != '\n')
        return alq_err_set(err, ALQ_EPROTO, "torn record");
    char want[HEADER_MAX_BYTES];
    format_header(want, crc32c(body, body_len), body_len);
    if (strlen(want) != head_len + 1 || memcmp(want, data, head_len + 1) != 0)
        return alq_err_set(err, ALQ_EPROTO, "torn or damaged record: length or checksum differ");
    alq_auto_json json_t *root = NULL;
    int rc = alq_json_parse(body, body_len, "record", &root, err);
    if (rc)
        return rc;
    memset(record, 0, sizeof(*record));
    rc = take_root(root, record, err);
    if (rc) {
        alq_record_fini(record);
        if (rc != ALQ_ENOMEM && err)
            err->code = rc = ALQ_EPROTO;
    }
    return rc;
}

void alq_record_fini(struct alq_record *record)
{
    alq_claim_spec_fini(&record->claim);
}

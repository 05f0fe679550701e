/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of one claim as bytes: a header line "aliquot-record <version> <crc32c> <length>" and
 * JSON of that length. The checksum is over the bytes, so a later field cannot break an older one.
 * Sans I/O: pure functions, any thread. Files are store.h's.
 */
#ifndef ALQ_DAEMON_STATE_RECORD_H
#define ALQ_DAEMON_STATE_RECORD_H

#include <stddef.h>

#include "base/err.h"
#include "daemon/domain.h"

#define ALQ_RECORD_VERSION 1
#define ALQ_RECORD_MAX_BYTES (256u * 1024)
#define ALQ_BOOT_ID_BYTES 40

enum alq_record_state {
    ALQ_RECORD_STARTED,   /* files of the claim may exist in part */
    ALQ_RECORD_COMPLETED, /* all exist, and the kubelet may have been told */
};

struct alq_record {
    enum alq_record_state state;
    char boot_id[ALQ_BOOT_ID_BYTES]; /* of the boot in which the files were made */
    struct alq_claim_spec claim;
};

/* *data is malloc'ed. ALQ_ENOMEM. */
int alq_record_encode(const struct alq_record *record, char **data, size_t *len,
                      struct alq_err *err);

/* ALQ_EPROTO: torn, damaged or not a record; ALQ_ENOTSUP: of a later version. On success the record
 * is the caller's (alq_record_fini). */
int alq_record_decode(const char *data, size_t len, struct alq_record *record, struct alq_err *err);
void alq_record_fini(struct alq_record *record);

#endif

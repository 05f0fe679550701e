/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user asks for, as ResourceClaims: from the manifests of a cluster, or from the few words
 * of `aliquot run`. Pure functions of their input but for the random uid.
 */
#ifndef ALQ_DAEMON_STANDALONE_WANT_H
#define ALQ_DAEMON_STANDALONE_WANT_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/prepare/allocation.h"

/* What becomes of one document of a file. */
enum alq_want {
    ALQ_WANT_CLAIM,
    ALQ_WANT_CLASS,
    ALQ_WANT_NOTHING, /* a kind of object that has no meaning without a cluster */
};

/* Judges a document by kind and apiVersion; *why is set for ALQ_WANT_NOTHING, static. ALQ_EINVAL:
 * no object, or a version with another layout. */
int alq_want_kind(const json_t *document, enum alq_want *kind, const char **why,
                  struct alq_err *err);

/* The name of a claim. ALQ_EINVAL: it has none, or one that is no DNS subdomain, or a request has
 * one that is no DNS label. */
int alq_want_name(const json_t *document, const char **name, struct alq_err *err);

/* Whether a request of the claim asks for adminAccess. */
int alq_want_is_admin(const json_t *document);

/* An object with the claim's spec and annotations, and the identity that it gets here; the
 * caller's. NULL: out of memory. */
json_t *alq_want_object(const json_t *document, const struct alq_claim_id *id);

/*
 * The spec for {"gpus": ["0", "GPU-..."], "memory": "4Gi", "cores": 30}: a request for each GPU by
 * NVML's index, UUID (or its beginning) or device name; one of any GPU when there are none. memory
 * and cores may be left out: all of it. ALQ_EINVAL; ALQ_ENOENT: there is no such GPU.
 */
int alq_want_run(const json_t *body, const struct alq_config *cfg, const struct alq_gpu_list *gpus,
                 json_t **document, struct alq_err *err);

/* The class that this driver's devices have, where no file brings one of the name. */
json_t *alq_want_own_class(const struct alq_config *cfg);

#endif

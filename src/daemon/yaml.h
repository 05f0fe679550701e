/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML read into jansson values: the daemon's configuration, kubeconfig files, and manifests. The
 * core schema (null, bool, integer, float, string; quoted scalars are strings), string keys. Pure
 * function of its input; any thread. Calls libyaml only.
 */
#ifndef ALQ_DAEMON_YAML_H
#define ALQ_DAEMON_YAML_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

#define ALQ_YAML_DEPTH_MAX 32      /* nesting */
#define ALQ_YAML_ANCHORS_MAX 1000  /* of a document */
#define ALQ_YAML_VALUES_MAX 100000 /* values after aliases are expanded */

/*
 * Reads data[0..len). what names the source in errors, which carry line and column. An empty
 * document is an empty object. Refused with ALQ_EINVAL: syntax errors, a second document, a key
 * that is not a scalar or stands twice, nesting, anchors or size above the limits (aliases are
 * expanded, so a small file cannot become a large value). *value is the caller's.
 */
int alq_yaml_parse(const char *data, size_t len, const char *what, json_t **value,
                   struct alq_err *err);

/* The same of a stream of documents, as an array; empty ones are left out. */
int alq_yaml_parse_all(const char *data, size_t len, const char *what, json_t **documents,
                       struct alq_err *err);

#endif

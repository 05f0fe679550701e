/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node a slice or an allocation is for: nodeName, allNodes and NodeSelector. Plain functions
 * of JSON; any thread.
 */
#ifndef ALQ_ALLOC_NODE_H
#define ALQ_ALLOC_NODE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Whether a core/v1 NodeSelector (terms ORed, requirements of a term ANDed) matches the Node.
 * ALQ_EPROTO: an unknown operator or field, or a number that is none. */
int alq_node_selector_matches(json_t *selector, json_t *node, bool *matches, struct alq_err *err);

/* As above for an object with nodeName, allNodes or nodeSelector (a slice's spec, or a device of
 * one). */
int alq_node_is_target(json_t *object, json_t *node, bool *matches, struct alq_err *err);

#endif

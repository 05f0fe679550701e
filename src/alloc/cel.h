/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device selectors of Dynamic Resource Allocation: the subset of CEL that they need
 * (https://cel.dev, Kubernetes' quantity and semver libraries). An expression is compiled once and
 * evaluated for many devices. What is outside the subset is refused at compile time with an error
 * that names it; a missing attribute is an error at evaluation, never a match. Compiled programs
 * and devices are immutable: any thread may evaluate them. No I/O.
 *
 * Understood: bool, int (64 bits, overflow is an error), string, list, quantity, semver, null; ==
 * != < <= > >= && || !
 * ?: in + - * / % has(); literals, [a, b], a.b, a["b"]; size startsWith endsWith contains matches
 * lowerAscii upperAscii trim; quantity() isQuantity() sign isInteger asInteger add sub compareTo
 * isLessThan isGreaterThan; semver() isSemver() major minor patch compareTo isLessThan
 * isGreaterThan; int() string(). && and || absorb the error of one side when the other side
 * decides, as CEL says.
 *
 * Variable: device.driver, device.attributes["domain"].name, device.capacity["domain"].name,
 * device.allowMultipleAllocations. A name published without a domain belongs to the driver's. An
 * unknown domain is an empty map, as in Kubernetes.
 */
#ifndef ALQ_ALLOC_CEL_H
#define ALQ_ALLOC_CEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define ALQ_CEL_EXPRESSION_MAX_BYTES (10 * 1024) /* Kubernetes: CELSelectorExpressionMaxLength */
#define ALQ_CEL_COST_MAX 1000000                 /* Kubernetes: CELSelectorExpressionMaxCost */
#define ALQ_CEL_DEPTH_MAX 250                    /* nesting of an expression */

struct alq_cel_program;
struct alq_cel_device;

/*
 * Compiles expression[0..len) (UTF-8) whose value must be a bool. ALQ_EINVAL: syntax, an undeclared
 * name, a wrong type; ALQ_ENOTSUP: CEL that Kubernetes knows and this subset does not; ALQ_ERANGE:
 * longer, deeper or larger than allowed; ALQ_ENOMEM. The text is "line:column: what: near ...". The
 * program copies the expression and is freed by the caller.
 */
int alq_cel_compile(const char *expression, size_t len, struct alq_cel_program **program,
                    struct alq_err *err);
void alq_cel_program_free(struct alq_cel_program *program);

/*
 * What a selector sees of one entry of ResourceSlice.spec.devices. Keeps a reference to device,
 * which must not change meanwhile; driver is copied. ALQ_EPROTO: an attribute or a capacity that is
 * malformed, by name.
 */
int alq_cel_device_new(const char *driver, json_t *device, struct alq_cel_device **out,
                       struct alq_err *err);
void alq_cel_device_free(struct alq_cel_device *device);

/*
 * ALQ_EINVAL: a run-time error, such as "no such key: absent", with its place in the expression;
 * ALQ_ERANGE: the cost or the memory limit; ALQ_ENOMEM. *matches is untouched on error.
 */
int alq_cel_matches(const struct alq_cel_program *program, const struct alq_cel_device *device,
                    bool *matches, struct alq_err *err);

#endif

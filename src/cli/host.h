/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What aliquot doctor finds out by itself: of the programs on this machine that read CDI specs, of
 * the specs of others, and of the kernel. It starts programs with --version and reads files.
 */
#ifndef ALQ_CLI_HOST_H
#define ALQ_CLI_HOST_H

#include <jansson.h>

/* Adds to a list of findings as the daemon makes it (id, level, text, remedy). */
void alq_host_look(json_t *findings);

/* ---- pure, for tests ---- */

struct alq_version {
    int part[3];
};

/* The first "1.2" or "1.2.3" in a text, perhaps after a "v"; -1: there is none. */
int alq_version_find(const char *text, struct alq_version *version);
int alq_version_cmp(const struct alq_version *a, const struct alq_version *b);

/* What is to be said of a program of a version: its level ("ok", "warning", "error") and in *remedy
 * why and what to do, NULL for "ok". */
const char *alq_host_judge(const char *program, const struct alq_version *version,
                           const char **remedy);

#endif

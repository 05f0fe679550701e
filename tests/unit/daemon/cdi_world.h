/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up host in a directory of its own, for tests of what is looked for and injected: drivers
 * made of the smallest shared objects, device nodes that are links to /dev/null, and the kernel's
 * files. Include after cmocka's headers are wanted; it includes them.
 */
#ifndef ALQ_TEST_CDI_WORLD_H
#define ALQ_TEST_CDI_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/config.h"

#if defined(__x86_64__)
#define LIB_DIR "usr/lib/x86_64-linux-gnu"
#define MACHINE EM_X86_64
#define OTHER_MACHINE EM_AARCH64
#else
#define LIB_DIR "usr/lib/aarch64-linux-gnu"
#define MACHINE EM_AARCH64
#define OTHER_MACHINE EM_X86_64
#endif

struct world {
    char root[64]; /* driver, dev and kernel root */
    struct alq_config cfg;
};

/* setup and teardown of a test. */
int setup(void **state);
int teardown(void **state);

/* "<root>/<path>"; good until the fourth call from now. */
char *at(const struct world *w, const char *path);

/* The smallest shared object that has a SONAME. */
void put_library(const struct world *w, const char *dir, const char *name, const char *soname);
void put_library_of(const struct world *w, const char *dir, const char *name, const char *soname,
                    unsigned machine);

/* A small driver of a version, and the nodes of GPUs 0 and 3. */
void put_driver(const struct world *w, const char *dir, const char *version);
void put_nodes(const struct world *w);

/* A file; its directory is made. */
void put_text(const struct world *w, const char *dir, const char *name, const char *text);

#endif

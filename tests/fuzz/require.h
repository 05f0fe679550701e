/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold whatever the bytes are: the fuzzer sees an abort, the reader the line. */
#ifndef ALQ_TESTS_FUZZ_REQUIRE_H
#define ALQ_TESTS_FUZZ_REQUIRE_H

#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the simulator's test clients: calls of libcuda.so.1, loaded by its SONAME as real programs
 * do, and checks of what they answer. The first that fails says where and ends the program with
 * status 1. Single-threaded but for what a client starts itself.
 */
#ifndef SIM_TESTS_CHECK_H
#define SIM_TESTS_CHECK_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aliquot/cuda_abi.h"

/* One for all sources of a client. */
__attribute__((weak)) void *check_library;
__attribute__((weak)) unsigned int check_count;

static inline void *check_symbol(const char *name, int line)
{
    void *found;

    if (!check_library)
        check_library = dlopen("libcuda.so.1", RTLD_NOW);
    found = check_library ? dlsym(check_library, name) : NULL;
    if (!found) {
        printf("line %d: no %s\n", line, name);
        exit(1);
    }
    return found;
}

static inline void check_result(CUresult want, CUresult got, const char *what, int line)
{
    check_count++;
    if (got != want) {
        printf("line %d: %s gave %d, not %d\n", line, what, (int)got, (int)want);
        exit(1);
    }
}

static inline void check_number(unsigned long long want, unsigned long long got, const char *what,
                                int line)
{
    check_count++;
    if (got != want) {
        printf("line %d: %s is %llu, not %llu\n", line, what, got, want);
        exit(1);
    }
}

/* A client's checks by their names. */
struct check_group {
    const char *name;
    void (*run)(void);
};

/* Runs the group of that name and prints how many checks it made; false: there is none. */
static inline bool check_run(const struct check_group *groups, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, groups[i].name) == 0) {
            groups[i].run();
            printf("ok %u\n", check_count);
            return true;
        }
    }
    return false;
}

/* The whole of main() for a client whose only argument is a group: its exit status. */
static inline int check_main(int argc, char **argv, const struct check_group *groups, size_t count)
{
    if (argc == 2 && check_run(groups, count, argv[1]))
        return 0;
    fprintf(stderr, "usage: %s GROUP\n", argv[0]);
    return 2;
}

#define DRIVER(function) ((__typeof__(function) *)check_symbol(#function, __LINE__))

/* The call gives that result. */
#define GIVES(result, function, ...)                                                               \
    check_result(result, DRIVER(function)(__VA_ARGS__), #function, __LINE__)
#define OK(function, ...) GIVES(CUDA_SUCCESS, function, __VA_ARGS__)
#define BAD(function, ...) GIVES(CUDA_ERROR_INVALID_VALUE, function, __VA_ARGS__)
#define IS(want, got)                                                                              \
    check_number((unsigned long long)(want), (unsigned long long)(got), #got, __LINE__)
#define TRUE(condition) check_number(1, !!(condition), #condition, __LINE__)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmarks of the library run on: one simulated GPU with its simgpud, the library and
 * the stand-in driver in a folder of their own under /tmp, and one share. One at a time, one
 * thread. What fails ends the program with status 1 and one line, and leaves nothing behind.
 *
 * Where the environment has PEER_LIBVGPU, the path of another preload library, that one is measured
 * in place of ours: it is told the same limits by HAMi-core's environment.
 */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "aliquot/share.h"

/* Finds the build (ALIQUOT_BUILD, else where the program lies) and starts simgpud. name begins each
 * line on stderr. */
void bench_machine_open(const char *name);
void bench_machine_close(void);

/* Ends the program: what failed, and errno's text. */
void bench_die(const char *what) __attribute__((noreturn));

/* True where it is another library that is measured. */
bool bench_is_peer(void);

/* A fresh share of 4 GiB and compute_pct, in place of the one before. */
void bench_share_make(uint32_t compute_pct);
void bench_share_counters(struct alq_counters *out); /* ours alone has some */

enum bench_mode { BENCH_BARE, BENCH_NO_SHARE, BENCH_SHARE, BENCH_MODES };

struct bench_child {
    FILE *to, *from; /* its standard input and output */
    pid_t pid;
};

/* Starts <build>/bench/<program> with at most one argument (NULL: none): bare, under the library
 * without a share, or with it. bench_child_end closes its input and output and wants status 0. */
struct bench_child bench_child_start(const char *program, char *argument, enum bench_mode mode);
void bench_child_end(const struct bench_child *child);

/* CPU time of one process on average, in microseconds from exec to exit: `count` of them at once. A
 * program with a slash is taken as it is. */
double bench_cpu_us(const char *program, char *argument, enum bench_mode mode, unsigned count);

void bench_sort(double *values, size_t count);

#endif

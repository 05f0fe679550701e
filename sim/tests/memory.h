/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The groups of sim-memory, and what they have in common.
 */
#ifndef SIM_TESTS_MEMORY_H
#define SIM_TESTS_MEMORY_H

#include "check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

extern CUcontext context; /* of device 0, current */
extern size_t before;     /* free bytes once it was there */

void open_context(void);
size_t free_now(void);
CUmemAllocationProp prop_of(int device, bool is_exportable);
CUmemAccessDesc access_of(int device, CUmemAccess_flags flags);

/* memory_shared.c */
void vmm(void);
void export(void);
void multicast(void);
void pools(void);
void descriptors(void);
void threads(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the assembler: an exported stub per SUBMITS row. With no share in force it jumps to the
 * driver's function, else to alq_gated_<name>, every argument where the caller put it. The
 * including file defines the macro PASS name, index.
 */
/* clang-format off */
        .set    row, 0
#define ALQ_CU(name, type, class) STUB_##class(name) .set row, row + 1 ;
#define ALQ_CU_NEED(name, type) .set row, row + 1 ;
#define STUB_DOOR(name)
#define STUB_ALLOCATES(name)
#define STUB_FREES(name)
#define STUB_REPORTS(name)
#define STUB_WATCHES(name)
#define STUB_SUBMITS(name) PASS name, row ;
#include "vgpu/entry/cuda.def"

/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of entry.h: rows of self-relative offsets, then the names. Nothing to relocate at load. */

        .section .rodata, "a"
        .balign 4
        .globl alq_entry_rows
        .hidden alq_entry_rows
alq_entry_rows:
#define ROW_HOOK(name) .long .Lname_##name - ., name - . ;
#define ROW_NEED(name) .long .Lname_##name - ., 0 ;
#define ALQ_CU(name, type, class) ROW_HOOK(name)
#define ALQ_NVML(name, type, class) ROW_HOOK(name)
#define ALQ_CU_NEED(name, type) ROW_NEED(name)
#define ALQ_NVML_NEED(name, type) ROW_NEED(name)
#include "vgpu/entry/cuda.def"
#include "vgpu/entry/nvml.def"
        .size alq_entry_rows, . - alq_entry_rows
#undef ALQ_CU
#undef ALQ_NVML
#undef ALQ_CU_NEED
#undef ALQ_NVML_NEED

#define NAME(name) .Lname_##name: .asciz #name ;
#define ALQ_CU(name, type, class) NAME(name)
#define ALQ_NVML(name, type, class) NAME(name)
#define ALQ_CU_NEED(name, type) NAME(name)
#define ALQ_NVML_NEED(name, type) NAME(name)
#include "vgpu/entry/cuda.def"
#include "vgpu/entry/nvml.def"

        .balign 4
        .globl alq_pass_rows
        .hidden alq_pass_rows
alq_pass_rows:
#define ALQ_CU_PASS(name, class) .long .Lpass_##name - . ;
#define ALQ_NVML_PASS(name, class) .long .Lpass_##name - . ;
#include "vgpu/entry/cuda_pass.def"
#include "vgpu/entry/nvml_pass.def"
        .size alq_pass_rows, . - alq_pass_rows
#undef ALQ_CU_PASS
#undef ALQ_NVML_PASS

#define ALQ_CU_PASS(name, class) .Lpass_##name: .asciz #name ;
#define ALQ_NVML_PASS(name, class) .Lpass_##name: .asciz #name ;
#include "vgpu/entry/cuda_pass.def"
#include "vgpu/entry/nvml_pass.def"

        .section .note.GNU-stack, "", %progbits

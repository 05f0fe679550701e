/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym, dlvsym, dlopen, dlmopen for x86-64; see doors.h. On the way through, every argument
 * register and the return address are as the caller left them.
 */
        .text

/* Jumps to the real function of a door, finding it first when need be. */
        .macro JUMP_ON door
        movq    alq_door_next_at + 8 * \door(%rip), %rax
        testq   %rax, %rax
        jz      9f
        jmp     *%rax
9:      pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movl    $\door, %edi
        call    alq_door_next
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .endm

/* Falls through when the name at %rsi begins cu[A-Z] or nvml[A-Z]; else jumps to label 1. Reads no
 * byte past the NUL. */
        .macro UNLESS_DRIVER_NAME_1F
        testq   %rsi, %rsi
        jz      1f
        movzbl  (%rsi), %eax
        cmpb    $'c', %al
        jne     2f
        cmpb    $'u', 1(%rsi)
        jne     1f
        movzbl  2(%rsi), %eax
        jmp     3f
2:      cmpb    $'n', %al
        jne     1f
        cmpb    $'v', 1(%rsi)
        jne     1f
        cmpb    $'m', 2(%rsi)
        jne     1f
        cmpb    $'l', 3(%rsi)
        jne     1f
        movzbl  4(%rsi), %eax
3:      subl    $'A', %eax
        cmpl    $('Z' - 'A'), %eax
        ja      1f
        .endm

        .macro LOOKUP name, door, version
        .globl  \name
        .type   \name, @function
        .balign 16
\name:
        .cfi_startproc
        endbr64
        UNLESS_DRIVER_NAME_1F
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        subq    $16, %rsp
        .cfi_adjust_cfa_offset 16
        .if     \version == 0
        xorl    %edx, %edx
        .endif
        movq    40(%rsp), %rcx          /* return address: the caller */
        movq    %rsp, %r8               /* where the answer goes */
        call    alq_door_lookup
        movq    (%rsp), %rcx
        addq    $16, %rsp
        .cfi_adjust_cfa_offset -16
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testb   %al, %al
        jz      1f
        movq    %rcx, %rax
        ret
1:      JUMP_ON \door
        .cfi_endproc
        .size   \name, . - \name
        .endm

        .macro OPEN name, door, mode
        .globl  \name
        .type   \name, @function
        .balign 16
\name:
        .cfi_startproc
        endbr64
        testb   $8, \mode              /* RTLD_DEEPBIND */
        jz      1f
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        .if     \door == 3
        movq    %rsi, %rdi
        movl    %edx, %esi
        .endif
        call    alq_door_open_mode
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        .if     \door == 3
        movl    %eax, %edx
        .else
        movl    %eax, %esi
        .endif
1:      JUMP_ON \door
        .cfi_endproc
        .size   \name, . - \name
        .endm

        LOOKUP  dlsym, 0, 0
        LOOKUP  dlvsym, 1, 1

        OPEN    dlopen, 2, %sil
        OPEN    dlmopen, 3, %dl

        .macro PASS name, index
        .globl  \name
        .type   \name, @function
        .balign 16
\name:
        .cfi_startproc
        endbr64
        movq    alq_real_table + 8 * (\index)(%rip), %rax
        testq   %rax, %rax
        jz      1f
        cmpl    $1, alq_core_mode_word(%rip) /* ALQ_MODE_NONE */
        jne     1f
        jmp     *%rax
1:      jmp     alq_gated_\name
        .cfi_endproc
        .size   \name, . - \name
        .endm

#include "vgpu/entry/pass.h"

        .section .note.GNU-stack, "", @progbits

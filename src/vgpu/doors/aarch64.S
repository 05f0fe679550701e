/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym, dlvsym, dlopen, dlmopen for aarch64; see doors.h and x86_64.S, its twin. */
        .text

        .macro SAVE
        stp     x29, x30, [sp, #-64]!
        .cfi_def_cfa_offset 64
        .cfi_offset 29, -64
        .cfi_offset 30, -56
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        .endm

        .macro RESTORE
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #64
        .cfi_def_cfa_offset 0
        .cfi_restore 29
        .cfi_restore 30
        .endm

        .macro JUMP_ON door
        adrp    x16, alq_door_next_at + 8 * \door
        ldr     x16, [x16, :lo12:alq_door_next_at + 8 * \door]
        cbz     x16, 9f
        br      x16
9:      SAVE
        mov     w0, #\door
        bl      alq_door_next
        mov     x16, x0
        RESTORE
        br      x16
        .endm

        .macro LOOKUP name, door, version
        .globl  \name
        .type   \name, %function
        .balign 16
\name:
        .cfi_startproc
        hint    #34                     /* bti c */
        cbz     x1, 1f
        ldrb    w9, [x1]
        cmp     w9, #'c'
        b.ne    2f
        ldrb    w9, [x1, #1]
        cmp     w9, #'u'
        b.ne    1f
        ldrb    w9, [x1, #2]
        b       3f
2:      cmp     w9, #'n'
        b.ne    1f
        ldrb    w9, [x1, #1]
        cmp     w9, #'v'
        b.ne    1f
        ldrb    w9, [x1, #2]
        cmp     w9, #'m'
        b.ne    1f
        ldrb    w9, [x1, #3]
        cmp     w9, #'l'
        b.ne    1f
        ldrb    w9, [x1, #4]
3:      sub     w9, w9, #'A'
        cmp     w9, #('Z' - 'A')
        b.hi    1f
        SAVE
        .if     \version == 0
        mov     x2, #0
        .endif
        mov     x3, x30                 /* the caller */
        add     x4, sp, #40             /* where the answer goes */
        bl      alq_door_lookup
        mov     w9, w0
        ldr     x10, [sp, #40]
        RESTORE
        tbz     w9, #0, 1f
        mov     x0, x10
        ret
1:      JUMP_ON \door
        .cfi_endproc
        .size   \name, . - \name
        .endm

        .macro OPEN name, door
        .globl  \name
        .type   \name, %function
        .balign 16
\name:
        .cfi_startproc
        hint    #34
        .if     \door == 3
        tbz     w2, #3, 1f              /* RTLD_DEEPBIND */
        .else
        tbz     w1, #3, 1f
        .endif
        SAVE
        .if     \door == 3
        mov     x0, x1
        mov     w1, w2
        .endif
        bl      alq_door_open_mode
        mov     w9, w0
        RESTORE
        .if     \door == 3
        mov     w2, w9
        .else
        mov     w1, w9
        .endif
1:      JUMP_ON \door
        .cfi_endproc
        .size   \name, . - \name
        .endm

        LOOKUP  dlsym, 0, 0
        LOOKUP  dlvsym, 1, 1

        OPEN    dlopen, 2
        OPEN    dlmopen, 3

        .macro PASS name, index
        .globl  \name
        .type   \name, %function
        .balign 16
\name:
        .cfi_startproc
        hint    #34
        adrp    x16, alq_real_table + 8 * (\index)
        ldr     x16, [x16, :lo12:alq_real_table + 8 * (\index)]
        cbz     x16, 1f
        adrp    x17, alq_core_mode_word
        ldr     w17, [x17, :lo12:alq_core_mode_word]
        cmp     w17, #1                 /* ALQ_MODE_NONE */
        b.ne    1f
        br      x16
1:      b       alq_gated_\name
        .cfi_endproc
        .size   \name, . - \name
        .endm

#include "vgpu/entry/pass.h"

        .section .note.GNU-stack, "", %progbits

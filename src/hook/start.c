/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kernel enters the hook: the program is linked without any C library, which would be
 * four times its allowed size and would read the environment before main does not.
 */
#include "hook/hook.h"
#include "hook/sys.h"

/* The kernel leaves argc at the stack pointer and argv after it. */
#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call alq_hook_start\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    mov x29, xzr\n"
        "    mov x0, sp\n"
        "    bl alq_hook_start\n");
#else
#error "no entry sequence for this architecture"
#endif

__attribute__((noreturn, used)) void alq_hook_start(long *stack);

void alq_hook_start(long *stack)
{
    alq_sys_exit(alq_hook_main((int)stack[0], (char **)(stack + 1)));
}

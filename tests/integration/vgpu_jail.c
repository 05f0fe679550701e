/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program with something taken from it, for test_vgpu_config.py: "no-lock" (fcntl's OFD
 * locks give EPERM), "no-map" (a shared mmap of as many bytes as a usage file has gives EPERM),
 * "no-capability" (root's word counts no more than another owner's). Arguments: what, program, its
 * arguments.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aliquot/share.h"

#define LOW(arg) (offsetof(struct seccomp_data, args) + 8 * (arg))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define IF_NOT(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define DENY BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define F_OFD_SETLK_ 37

static int filter(struct sock_filter *rules, size_t count)
{
    struct sock_fprog program = {(unsigned short)count, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program, 0, 0);
}

/* A system call with these two arguments is not permitted. */
static int deny(unsigned call, unsigned arg, unsigned value, unsigned other, unsigned other_value)
{
    struct sock_filter rules[] = {LOAD(offsetof(struct seccomp_data, nr)),
                                  IF_NOT(call, 5),
                                  LOAD((unsigned)LOW(arg)),
                                  IF_NOT(value, 3),
                                  LOAD((unsigned)LOW(other)),
                                  IF_NOT(other_value, 1),
                                  DENY,
                                  ALLOW};
    return filter(rules, sizeof(rules) / sizeof(rules[0]));
}

int main(int argc, char **argv)
{
    int rc = 1;
    if (argc < 3)
        return 2;
    if (!strcmp(argv[1], "no-lock"))
        rc = deny(__NR_fcntl, 1, F_OFD_SETLK_, 1, F_OFD_SETLK_);
    else if (!strcmp(argv[1], "no-map"))
        rc = deny(__NR_mmap, 1, ALQ_USAGE_BYTES(1), 3, MAP_SHARED) ||
             deny(__NR_mmap, 1, ALQ_USAGE_BYTES(ALQ_SECTIONS_MAX), 3, MAP_SHARED);
    else if (!strcmp(argv[1], "no-capability"))
        for (int i = rc = 0; i < 41; i++)
            rc |= prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0 && geteuid() == 0 && errno != EINVAL;
    if (rc) {
        perror(argv[1]);
        return 2;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}

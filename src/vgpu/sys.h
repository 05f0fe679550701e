/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls without libc: the library may sit in a process whose libc it does not know, and
 * errno and the interposed open/mmap of others stay untouched. Every function returns the kernel's
 * answer: a value, or -errno. Safe in any thread, in a signal handler and after fork.
 */
#ifndef ALQ_VGPU_SYS_H
#define ALQ_VGPU_SYS_H

#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <stddef.h>
#include <stdint.h>

#define ALQ_EINTR 4
#define ALQ_EINTR_TRIES 1000 /* a storm of signals: no reason to give up, nor to stay for ever */
#define ALQ_EAGAIN 11
#define ALQ_ENOENT 2
#define ALQ_EACCES 13

#define ALQ_PROT_READ 1
#define ALQ_PROT_WRITE 2
#define ALQ_MAP_SHARED 1
#define ALQ_MAP_PRIVATE 2
#define ALQ_MAP_ANONYMOUS 0x20
#define ALQ_MAP_POPULATE 0x8000
#define ALQ_MADV_WIPEONFORK 18

#if defined(__x86_64__)
static inline long alq_syscall6(long nr, long a, long b, long c, long d, long e, long f)
{
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__)
static inline long alq_syscall6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "no system call sequence for this architecture"
#endif

static inline int alq_sys_openat(int dir, const char *path, int flags, int mode)
{
    int rc = -ALQ_EINTR;
    for (int i = 0; i < ALQ_EINTR_TRIES && rc == -ALQ_EINTR; i++)
        rc = (int)alq_syscall6(__NR_openat, dir, (long)path, flags | O_CLOEXEC, mode, 0, 0);
    return rc;
}

static inline int alq_sys_open(const char *path, int flags, int mode)
{
    return alq_sys_openat(AT_FDCWD, path, flags, mode);
}

static inline void alq_sys_close(int fd)
{
    alq_syscall6(__NR_close, fd, 0, 0, 0, 0, 0);
}

static inline long alq_sys_pread(int fd, void *out, size_t bytes, uint64_t offset)
{
    return alq_syscall6(__NR_pread64, fd, (long)out, (long)bytes, (long)offset, 0, 0);
}

static inline long alq_sys_write(int fd, const void *data, size_t bytes)
{
    return alq_syscall6(__NR_write, fd, (long)data, (long)bytes, 0, 0, 0);
}

static inline long alq_sys_getdents(int fd, void *out, size_t bytes)
{
    return alq_syscall6(__NR_getdents64, fd, (long)out, (long)bytes, 0, 0, 0);
}

/* Size of an open file in bytes. */
static inline int64_t alq_sys_size(int fd)
{
    return alq_syscall6(__NR_lseek, fd, 0, 2, 0, 0, 0);
}

/* Reserves the blocks, so that a later store to the mapping cannot find the file system full
 * (SIGBUS). */
static inline int alq_sys_fallocate(int fd, uint64_t bytes)
{
    int rc = -ALQ_EINTR;
    for (int i = 0; i < ALQ_EINTR_TRIES && rc == -ALQ_EINTR; i++)
        rc = (int)alq_syscall6(__NR_fallocate, fd, 0, 0, (long)bytes, 0, 0);
    return rc;
}

static inline int alq_sys_link(const char *from, const char *to)
{
    return (int)alq_syscall6(__NR_linkat, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0, 0);
}

static inline int alq_sys_unlink(const char *path)
{
    return (int)alq_syscall6(__NR_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

static inline int alq_sys_fchmod(int fd, unsigned int mode)
{
    return (int)alq_syscall6(__NR_fchmod, fd, (long)mode, 0, 0, 0, 0);
}

/* NULL on failure. */
/* 0, or -errno; *out is untouched then. */
static inline int alq_sys_map(size_t bytes, int prot, int flags, int fd, void **out)
{
    long ret = alq_syscall6(__NR_mmap, 0, (long)bytes, prot, flags, fd, 0);
    if (ret < 0 && ret > -4096)
        return (int)ret;
    *out = (void *)ret;
    return 0;
}

static inline void *alq_sys_mmap(size_t bytes, int prot, int flags, int fd)
{
    void *at = NULL;
    alq_sys_map(bytes, prot, flags, fd, &at);
    return at;
}

static inline void *alq_sys_anon(size_t bytes)
{
    return alq_sys_mmap(bytes, ALQ_PROT_READ | ALQ_PROT_WRITE, ALQ_MAP_PRIVATE | ALQ_MAP_ANONYMOUS,
                        -1);
}

static inline void alq_sys_munmap(void *addr, size_t bytes)
{
    alq_syscall6(__NR_munmap, (long)addr, (long)bytes, 0, 0, 0, 0);
}

static inline int alq_sys_madvise(void *addr, size_t bytes, int advice)
{
    return (int)alq_syscall6(__NR_madvise, (long)addr, (long)bytes, advice, 0, 0, 0);
}

static inline uint32_t alq_sys_getpid(void)
{
    return (uint32_t)alq_syscall6(__NR_getpid, 0, 0, 0, 0, 0, 0);
}

/* Set-user-ID or set-group-ID. */
static inline int alq_sys_is_privileged(void)
{
    return alq_syscall6(__NR_getuid, 0, 0, 0, 0, 0, 0) !=
               alq_syscall6(__NR_geteuid, 0, 0, 0, 0, 0, 0) ||
           alq_syscall6(__NR_getgid, 0, 0, 0, 0, 0, 0) !=
               alq_syscall6(__NR_getegid, 0, 0, 0, 0, 0, 0);
}

static inline long alq_sys_readlink(const char *path, char *out, size_t bytes)
{
    return alq_syscall6(__NR_readlinkat, AT_FDCWD, (long)path, (long)out, (long)bytes, 0, 0);
}

/* Relative sleep; a signal may end it early. */
static inline void alq_sys_sleep_ns(uint64_t ns)
{
    struct {
        int64_t sec;
        int64_t nsec;
    } ts = {(int64_t)(ns / 1000000000u), (int64_t)(ns % 1000000000u)};
    alq_syscall6(__NR_nanosleep, (long)&ts, 0, 0, 0, 0, 0);
}

#define ALQ_FUTEX_WAIT 0
#define ALQ_FUTEX_WAKE 1
#define ALQ_FUTEX_WAIT_BITSET 9
#define ALQ_FUTEX_PRIVATE 128

static inline long alq_sys_futex(const void *word, int op, uint32_t value, const void *timeout,
                                 uint32_t bits)
{
    return alq_syscall6(__NR_futex, (long)word, op, (long)value, (long)timeout, 0, (long)bits);
}

/*
 * Waits until *word may differ from expect, or CLOCK_MONOTONIC reaches until_ns, or a signal comes.
 * Returns 0 when woken, -ETIMEDOUT, -EAGAIN (the word differs already) or -EINTR.
 */
static inline int alq_sys_futex_wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns,
                                           int is_private)
{
    struct {
        int64_t sec;
        int64_t nsec;
    } ts = {(int64_t)(until_ns / 1000000000u), (int64_t)(until_ns % 1000000000u)};
    int op = ALQ_FUTEX_WAIT_BITSET | (is_private ? ALQ_FUTEX_PRIVATE : 0);
    return (int)alq_sys_futex(word, op, expect, &ts, 0xffffffffu);
}

/* struct flock of the kernel's 64-bit ABI. */
struct alq_flock {
    int16_t type;
    int16_t whence;
    int32_t pad0;
    int64_t start;
    int64_t len;
    int32_t pid;
    int32_t pad1;
};

#define ALQ_F_OFD_GETLK 36
#define ALQ_F_OFD_SETLK 37

/* Takes an exclusive OFD lock on one byte. 0, or -EAGAIN when another description has it, or
 * another -errno. */
static inline int alq_sys_ofd_lock(int fd, uint64_t byte)
{
    struct alq_flock lock = {.type = F_WRLCK, .whence = 0, .start = (int64_t)byte, .len = 1};
    return (int)alq_syscall6(__NR_fcntl, fd, ALQ_F_OFD_SETLK, (long)&lock, 0, 0, 0);
}

/* True when no other description has a lock on the byte. False also when the kernel does not say.
 */
static inline int alq_sys_ofd_is_free(int fd, uint64_t byte)
{
    struct alq_flock lock = {.type = F_WRLCK, .whence = 0, .start = (int64_t)byte, .len = 1};
    return alq_syscall6(__NR_fcntl, fd, ALQ_F_OFD_GETLK, (long)&lock, 0, 0, 0) == 0 &&
           lock.type == F_UNLCK;
}

static inline int alq_sys_ofd_unlock(int fd, uint64_t byte)
{
    struct alq_flock lock = {.type = F_UNLCK, .whence = 0, .start = (int64_t)byte, .len = 1};
    return (int)alq_syscall6(__NR_fcntl, fd, ALQ_F_OFD_SETLK, (long)&lock, 0, 0, 0);
}

#endif

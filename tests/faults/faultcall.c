/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program and stops it before, or fails, one chosen system call. A seccomp filter sends the
 * calls that can change something outside the process to this supervisor, one at a time for all
 * threads, so "the n-th call" is well defined and what a kill leaves is what n - 1 calls made.
 * Calls of the program's children pass. Commands come on stdin, events go to stdout, a line each:
 *
 *   kill N           count from now; the process is killed in place of its N-th call that can
 * change something:                                  "killed N <call> <detail>" fail N ERRNO count
 * from now; the N-th call that may fail so on files below --under, or with descriptors, fails, and
 * from then on every one with "all" as a third word: "failed N <call> <detail>" off stop counting:
 * "off <calls counted>" (at the end)                                                 "exit
 * <status>" or "exit -<signal>"
 *
 * usage: alq-faultcall [--under DIR] [--boot-id FILE] [--nofile N] [--do "COMMAND"] -- PROGRAM
 * [ARG...]
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "private_mounts.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no audit architecture"
#endif

#define LINGER_MS 2000 /* how long children are served after the program's end */

enum {
    CHANGES = 1 << 0, /* may change something outside the process */
    SPACE = 1 << 1,   /* may need room on a file system: ENOSPC */
    WRITES = 1 << 2,  /* refused by a read-only file system: EROFS */
    DISK = 1 << 3,    /* touches a disk: EIO */
    NEWFD = 1 << 4,   /* gives a descriptor: EMFILE */
};

/* Where a call says what it works on: an argument's number. -1: none. */
struct call {
    const char *name;
    int nr;
    int what;
    int fd;    /* descriptor, or directory of path */
    int path;  /* pointer to a path */
    int flags; /* of open */
};

#define CALL(name, ...)                                                                            \
    {                                                                                              \
#name, __NR_##name, __VA_ARGS__                                                            \
    }
static const struct call calls[] = {
#ifdef __NR_open
    CALL(open, CHANGES | SPACE | WRITES | DISK | NEWFD, -1, 0, 1),
    CALL(mkdir, CHANGES | SPACE | WRITES | DISK, -1, 0, -1),
    CALL(rmdir, CHANGES | WRITES | DISK, -1, 0, -1),
    CALL(unlink, CHANGES | WRITES | DISK, -1, 0, -1),
    CALL(rename, CHANGES | SPACE | WRITES | DISK, -1, 0, -1),
    CALL(link, CHANGES | SPACE | WRITES | DISK, -1, 0, -1),
    CALL(symlink, CHANGES | SPACE | WRITES | DISK, -1, 1, -1),
    CALL(chmod, CHANGES | WRITES | DISK, -1, 0, -1),
    CALL(chown, CHANGES | WRITES | DISK, -1, 0, -1),
    CALL(fork, CHANGES, -1, -1, -1),
    CALL(vfork, CHANGES, -1, -1, -1),
    CALL(eventfd, NEWFD, -1, -1, -1),
    CALL(epoll_create, NEWFD, -1, -1, -1),
    CALL(pipe, NEWFD, -1, -1, -1),
#endif
    CALL(openat, CHANGES | SPACE | WRITES | DISK | NEWFD, 0, 1, 2),
    CALL(mkdirat, CHANGES | SPACE | WRITES | DISK, 0, 1, -1),
    CALL(unlinkat, CHANGES | WRITES | DISK, 0, 1, -1),
    CALL(renameat, CHANGES | SPACE | WRITES | DISK, 0, 1, -1),
    CALL(renameat2, CHANGES | SPACE | WRITES | DISK, 0, 1, -1),
    CALL(linkat, CHANGES | SPACE | WRITES | DISK, 0, 1, -1),
    CALL(symlinkat, CHANGES | SPACE | WRITES | DISK, 1, 2, -1),
    CALL(fchmodat, CHANGES | WRITES | DISK, 0, 1, -1),
    CALL(fchownat, CHANGES | WRITES | DISK, 0, 1, -1),
    CALL(fchmod, CHANGES | WRITES | DISK, 0, -1, -1),
    CALL(fchown, CHANGES | WRITES | DISK, 0, -1, -1),
    CALL(setxattr, CHANGES | SPACE | WRITES | DISK, -1, 0, -1),
    CALL(fsetxattr, CHANGES | SPACE | WRITES | DISK, 0, -1, -1),
    CALL(write, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(pwrite64, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(writev, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(pwritev, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(copy_file_range, CHANGES | SPACE | DISK, 2, -1, -1),
    CALL(sendfile, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(ftruncate, CHANGES | SPACE | WRITES | DISK, 0, -1, -1),
    CALL(truncate, CHANGES | SPACE | WRITES | DISK, -1, 0, -1),
    CALL(fallocate, CHANGES | SPACE | WRITES | DISK, 0, -1, -1),
    CALL(fsync, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(fdatasync, CHANGES | SPACE | DISK, 0, -1, -1),
    CALL(read, DISK, 0, -1, -1),
    CALL(pread64, DISK, 0, -1, -1),
    CALL(getdents64, DISK, 0, -1, -1),
    CALL(flock, CHANGES, 0, -1, -1),
    CALL(close, CHANGES, 0, -1, -1),
    CALL(sendto, CHANGES, 0, -1, -1),
    CALL(sendmsg, CHANGES, 0, -1, -1),
    CALL(sendmmsg, CHANGES, 0, -1, -1),
    CALL(shutdown, CHANGES, 0, -1, -1),
    CALL(bind, CHANGES, 0, -1, -1),
    CALL(listen, CHANGES, 0, -1, -1),
    CALL(connect, CHANGES, 0, -1, -1),
    CALL(accept4, CHANGES | NEWFD, 0, -1, -1),
    CALL(accept, CHANGES | NEWFD, 0, -1, -1),
    CALL(socket, NEWFD, -1, -1, -1),
    CALL(socketpair, NEWFD, -1, -1, -1),
    CALL(eventfd2, NEWFD, -1, -1, -1),
    CALL(epoll_create1, NEWFD, -1, -1, -1),
    CALL(pipe2, NEWFD, -1, -1, -1),
    CALL(dup, NEWFD, 0, -1, -1),
    CALL(mmap, CHANGES, 4, -1, -1),
    CALL(munmap, CHANGES, -1, -1, -1),
    CALL(clone, CHANGES, -1, -1, -1),
    CALL(clone3, CHANGES, -1, -1, -1),
    CALL(execve, CHANGES, -1, 0, -1),
    CALL(kill, CHANGES, -1, -1, -1),
};
#define CALL_COUNT (sizeof(calls) / sizeof(calls[0]))

static const struct {
    const char *name;
    int number;
    int what;
} faults[] = {{"ENOSPC", ENOSPC, SPACE},
              {"EDQUOT", EDQUOT, SPACE},
              {"EROFS", EROFS, WRITES},
              {"EIO", EIO, DISK},
              {"EMFILE", EMFILE, NEWFD}};

/* What is to happen, and how far we are. */
static struct {
    enum { OFF, KILL, FAIL } action;
    unsigned long at, count;
    int error, what, is_all;
} plan;

static const char *under = "/";
static pid_t program;

/* ---- the filter -------------------------------------------------------------------------------
 */

static int install_filter(void)
{
    struct sock_filter code[8 + 2 * CALL_COUNT];
    size_t n = 0;
#define STMT(...) code[n++] = (struct sock_filter)BPF_STMT(__VA_ARGS__)
#define JUMP(...) code[n++] = (struct sock_filter)BPF_JUMP(__VA_ARGS__)
    STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < CALL_COUNT; i++) {
        JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].nr, 0, 1);
        STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = (unsigned short)n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &filter);
}

/* ---- what a call is about ---------------------------------------------------------------------
 */

static const struct call *find_call(int nr)
{
    for (size_t i = 0; i < CALL_COUNT; i++)
        if (calls[i].nr == nr)
            return &calls[i];
    abort(); /* the filter lets no other one through */
}

/* Where /proc/<pid>/fd/<fd> leads to; AT_FDCWD: the working directory. */
static void read_link(pid_t pid, int fd, char *out, size_t size)
{
    char path[64];
    if (fd == AT_FDCWD)
        snprintf(path, sizeof(path), "/proc/%d/cwd", pid);
    else
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    ssize_t n = readlink(path, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
}

static void read_text(pid_t pid, uint64_t address, char *out, size_t size)
{
    /* In pieces that do not cross a page: the next one may not be mapped. */
    size_t used = 0;
    while (used + 1 < size) {
        size_t n = 4096 - (address + used) % 4096;
        if (n > size - 1 - used)
            n = size - 1 - used;
        struct iovec here = {out + used, n};
        struct iovec there = {(void *)(uintptr_t)(address + used), n};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got <= 0 || memchr(out + used, '\0', (size_t)got))
            break;
        used += (size_t)got;
    }
    out[size - 1] = '\0';
}

static void describe(const struct seccomp_notif *call, const struct call *c, char *out, size_t size)
{
    char path[PATH_MAX] = "", dir[PATH_MAX] = "";
    pid_t pid = (pid_t)call->pid;
    if (c->path >= 0)
        read_text(pid, call->data.args[c->path], path, sizeof(path));
    if (c->path >= 0 && path[0] != '/') {
        int fd = c->fd < 0 ? AT_FDCWD : (int)call->data.args[c->fd];
        read_link(pid, fd, dir, sizeof(dir));
        strncat(dir, "/", sizeof(dir) - strlen(dir) - 1);
    } else if (c->path < 0 && c->fd >= 0) {
        read_link(pid, (int)call->data.args[c->fd], dir, sizeof(dir));
    }
    snprintf(out, size, "%.*s%.*s", (int)size / 2, dir, (int)size / 2 - 1, path);
}

static int starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Whether the call, with these arguments, can change anything that outlives or leaves the process.
 */
static int changes(const struct seccomp_notif *call, const struct call *c, const char *detail)
{
    const __u64 *args = call->data.args;
    if (!(c->what & CHANGES))
        return 0;
    if (c->flags >= 0)
        return (args[c->flags] & (O_CREAT | O_TRUNC)) != 0;
    switch (c->nr) {
    case __NR_mmap: /* stores to a shared mapping need no call: at least before and after them */
        return (args[3] & MAP_SHARED) && (args[2] & PROT_WRITE) && starts(detail, "/");
    case __NR_munmap:
        return 0;
    case __NR_close:
        return starts(detail, "socket:") || starts(detail, "pipe:");
    case __NR_clone:
        return !(args[0] & CLONE_THREAD);
    case __NR_clone3: {
        uint64_t flags = 0;
        struct iovec here = {&flags, sizeof(flags)};
        struct iovec there = {(void *)(uintptr_t)args[0], sizeof(flags)};
        return process_vm_readv((pid_t)call->pid, &here, 1, &there, 1, 0) != sizeof(flags) ||
               !(flags & CLONE_THREAD);
    }
    case __NR_write:
    case __NR_writev:
        return args[0] != STDERR_FILENO; /* the log */
    default:
        return 1;
    }
}

static int can_fail(const struct seccomp_notif *call, const struct call *c, const char *detail)
{
    if (!(c->what & plan.what))
        return 0;
    if (plan.what == NEWFD)
        return 1;
    size_t n = strlen(under);
    if (c->path < 0 && call->data.args[c->fd] == STDERR_FILENO)
        return 0; /* the log */
    if (strncmp(detail, under, n) != 0 || (detail[n] && detail[n] != '/'))
        return 0;
    if (c->flags >= 0 && plan.what == SPACE)
        return (call->data.args[c->flags] & O_CREAT) != 0;
    if (c->flags >= 0 && plan.what == WRITES)
        return (call->data.args[c->flags] & (O_CREAT | O_WRONLY | O_RDWR)) != 0;
    return 1;
}

/* ---- the supervisor ---------------------------------------------------------------------------
 */

static int is_of_program(pid_t tid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d", program, tid);
    return !access(path, F_OK);
}

/* What is to become of a call: 0 to let it pass, an errno, or -1 when it was the program's last. */
static int judge(const struct seccomp_notif *call)
{
    char detail[PATH_MAX];
    const struct call *c = find_call(call->data.nr);
    if (plan.action == OFF || !is_of_program((pid_t)call->pid))
        return 0;
    describe(call, c, detail, sizeof(detail));
    if (plan.action == KILL ? !changes(call, c, detail) : !can_fail(call, c, detail))
        return 0;
    plan.count++;
    if (plan.count < plan.at || (plan.count > plan.at && !plan.is_all))
        return 0;
    if (plan.action == KILL)
        kill(program, SIGKILL);
    if (plan.count == plan.at)
        printf("%s %lu %s %s\n", plan.action == KILL ? "killed" : "failed", plan.count, c->name,
               detail);
    if (plan.action == FAIL)
        return plan.error;
    plan.action = OFF;
    return -1;
}

static void serve(int listener)
{
    struct seccomp_notif call;
    memset(&call, 0, sizeof(call));
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
        return; /* the caller has died meanwhile */
    int verdict = judge(&call);
    if (verdict < 0)
        return;
    struct seccomp_notif_resp answer = {.id = call.id, .error = -verdict};
    if (!verdict)
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static void obey(char *line)
{
    char word[16] = "", error[16] = "", more[16] = "";
    unsigned long at = 0;
    int n = sscanf(line, "%15s %lu %15s %15s", word, &at, error, more);
    if (n >= 1 && !strcmp(word, "off")) {
        printf("off %lu\n", plan.count);
        plan.action = OFF;
        return;
    }
    memset(&plan, 0, sizeof(plan));
    plan.at = at;
    if (n >= 2 && !strcmp(word, "kill")) {
        plan.action = KILL;
        return;
    }
    for (size_t i = 0; n >= 3 && i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strcmp(word, "fail") != 0 || strcmp(error, faults[i].name) != 0)
            continue;
        plan.action = FAIL;
        plan.error = faults[i].number;
        plan.what = faults[i].what;
        plan.is_all = !strcmp(more, "all");
        return;
    }
    fprintf(stderr, "alq-faultcall: no such command: %s\n", line);
    exit(2);
}

static int read_command(void)
{
    static char line[256];
    static size_t used;
    ssize_t n = read(STDIN_FILENO, line + used, sizeof(line) - 1 - used);
    if (n <= 0)
        return -1;
    used += (size_t)n;
    line[used] = '\0';
    for (char *end; (end = strchr(line, '\n'));) {
        *end = '\0';
        obey(line);
        used -= (size_t)(end + 1 - line);
        memmove(line, end + 1, used + 1);
    }
    return 0;
}

/* Serves until nobody has the filter any more. The program's end is told at once. */
static void supervise(int listener, int pidfd)
{
    struct pollfd fds[] = {
        {.fd = listener, .events = POLLIN},
        {.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = pidfd, .events = POLLIN},
    };
    for (;;) {
        if (poll(fds, 3, fds[2].fd < 0 ? LINGER_MS : -1) == 0)
            return;
        if (fds[2].fd >= 0 && fds[2].revents) {
            int status = 0;
            waitpid(program, &status, 0);
            printf("exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
            plan.action = OFF;
            fds[2].fd = -1;
        }
        if (fds[0].revents & POLLIN)
            serve(listener);
        else if (fds[0].revents)
            fds[0].fd = -1; /* nobody is left */
        if (fds[0].fd < 0 && fds[2].fd < 0)
            return;
        if (fds[1].fd >= 0 && fds[1].revents && read_command()) {
            kill(program, SIGKILL); /* who commands us is gone */
            fds[1].fd = -1;
        }
    }
}

/* ---- the program ------------------------------------------------------------------------------
 */

struct start {
    sem_t ready;
    int listener;
};

static int set_boot_id(const char *file)
{
    return private_mounts() || mount(file, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL);
}

static void run_program(struct start *start, const char *boot_id, long nofile, char **argv)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL)) {
        perror("alq-faultcall: descriptors");
    } else if (boot_id && set_boot_id(boot_id)) {
        perror("alq-faultcall: boot id");
    } else if (nofile &&
               setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)nofile, (rlim_t)nofile})) {
        perror("alq-faultcall: RLIMIT_NOFILE");
    } else if ((start->listener = install_filter()) < 0) {
        perror("alq-faultcall: seccomp");
    } else {
        sem_post(&start->ready); /* from here on nothing is done without the supervisor */
        execv(argv[0], argv);
        _exit(126);
    }
    start->listener = -1;
    sem_post(&start->ready);
    _exit(126);
}

int main(int argc, char **argv)
{
    const char *boot_id = NULL;
    long nofile = 0;
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (!strcmp(argv[i], "--under"))
            under = argv[i + 1];
        else if (!strcmp(argv[i], "--boot-id"))
            boot_id = argv[i + 1];
        else if (!strcmp(argv[i], "--nofile"))
            nofile = strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--do"))
            obey(argv[i + 1]);
        else
            break;
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
        fprintf(stderr, "usage: alq-faultcall [--under DIR] [--boot-id FILE] [--nofile N] "
                        "[--do COMMAND] -- PROGRAM [ARG...]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct start *start =
        mmap(NULL, sizeof(*start), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || sem_init(&start->ready, 1, 0)) {
        perror("alq-faultcall");
        return 2;
    }
    program = fork();
    if (program < 0) {
        perror("alq-faultcall: fork");
        return 2;
    }
    if (!program)
        run_program(start, boot_id, nofile, argv + i + 1);
    while (sem_wait(&start->ready))
        ;
    int pidfd = (int)syscall(SYS_pidfd_open, program, 0);
    int listener =
        start->listener < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, start->listener, 0);
    if (listener < 0) {
        perror("alq-faultcall: the filter's descriptor");
        kill(program, SIGKILL);
        return 2;
    }
    printf("pid %d\n", program);
    supervise(listener, pidfd);
    return 0;
}

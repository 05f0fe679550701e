/* SPDX-License-Identifier: Apache-2.0 */
/* Child, signals and exit status, see tend.h. */
#include "cli/run/tend.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

/* As we were started, for the program to be started so too. */
struct before {
    sigset_t mask;
    struct sigaction on_child;
};

/* What the child tells when it does not become the program. */
struct report {
    int exec_errno; /* 0: err is prepare's */
    struct alq_err err;
};

/* execvp says "permission denied" for a directory in PATH that may not be looked into, also when no
 * other has the program. */
static int is_in_path(const char *name)
{
    const char *path = getenv("PATH");
    if (strchr(name, '/'))
        return 1;
    for (size_t len; path && *path; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        alq_auto_free char *file = alq_str_printf("%.*s/%s", (int)len, path, name);
        if (file && !access(file, F_OK))
            return 1;
    }
    return 0;
}

/* ---- the child --------------------------------------------------------------------------------
 */

static void child(char *const *argv, int (*prepare)(void *arg, struct alq_err *err), void *arg,
                  const struct before *before, pid_t parent, int pipe_end)
    __attribute__((noreturn));
static void child(char *const *argv, int (*prepare)(void *arg, struct alq_err *err), void *arg,
                  const struct before *before, pid_t parent, int pipe_end)
{
    struct report report;
    memset(&report, 0, sizeof(report));
    if (!prepare(arg, &report.err)) {
        /* Namespaces have changed our credentials, which would have taken this back. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        sigaction(SIGCHLD, &before->on_child, NULL);
        sigprocmask(SIG_SETMASK, &before->mask, NULL);
        execvp(argv[0], argv);
        report.exec_errno = errno == EACCES && !is_in_path(argv[0]) ? ENOENT : errno;
    }
    ssize_t n = write(pipe_end, &report, sizeof(report));
    _exit(n == (ssize_t)sizeof(report) ? 0 : 1);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

/* The terminal has told the whole group; what one process sent was meant for the program. */
static void pass_on(pid_t pid, const siginfo_t *info)
{
    if (info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL)
        kill(pid, info->si_signo);
}

/* Whether it has ended. */
static int look(pid_t pid, int *status)
{
    int what;
    while (waitpid(pid, &what, WNOHANG | WUNTRACED) == pid) {
        if (WIFEXITED(what) || WIFSIGNALED(what)) {
            *status = WIFEXITED(what) ? WEXITSTATUS(what) : 128 + WTERMSIG(what);
            return 1;
        }
        /* Job control: the shell waits for us. SIGSTOP was somebody else's doing. */
        if (WIFSTOPPED(what) && WSTOPSIG(what) != SIGSTOP)
            raise(SIGSTOP);
    }
    return 0;
}

static void tend(pid_t pid, const sigset_t *set, int *status)
{
    while (!look(pid, status)) {
        siginfo_t info;
        int n = sigwaitinfo(set, &info);
        if (n > 0 && n != SIGCHLD)
            pass_on(pid, &info);
    }
}

/* 0 when the program runs. */
static int wait_for_exec(int pipe_end, pid_t pid, const char *name, int *status,
                         struct alq_err *err)
{
    struct report report;
    ssize_t n;
    while ((n = read(pipe_end, &report, sizeof(report))) < 0 && errno == EINTR)
        ;
    if (!n)
        return 0;
    waitpid(pid, NULL, 0);
    if (n != (ssize_t)sizeof(report))
        return alq_err_set(err, ALQ_EIO, "the program could not be started");
    if (!report.exec_errno) {
        *err = report.err;
        return err->code;
    }
    *status = report.exec_errno == ENOENT ? ALQ_TEND_NOT_FOUND : ALQ_TEND_NOT_RUN;
    return alq_err_errno(err, report.exec_errno, "%s", name);
}

int alq_tend(char *const *argv, int (*prepare)(void *arg, struct alq_err *err), void *arg,
             int *status, struct alq_err *err)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    struct before before;
    sigset_t set;
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC))
        return alq_err_errno(err, errno, "pipe");
    alq_auto_close int reading = ends[0];
    alq_auto_close int writing = ends[1];
    sigfillset(&set); /* a fault of our own ends us all the same */
    sigprocmask(SIG_BLOCK, &set, &before.mask);
    sigaction(SIGCHLD, &by_default, &before.on_child); /* ignored, it would tell us nothing */
    pid_t pid = fork();
    if (pid < 0)
        return alq_err_errno(err, errno, "fork");
    if (!pid)
        child(argv, prepare, arg, &before, parent, writing);
    close(alq_steal_fd(&writing));
    int rc = wait_for_exec(reading, pid, argv[0], status, err);
    if (!rc)
        tend(pid, &set, status);
    return rc;
}

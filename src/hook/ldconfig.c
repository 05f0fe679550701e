/* SPDX-License-Identifier: Apache-2.0 */
/* Running the host's ldconfig, see ldconfig.h. */
#include "hook/ldconfig.h"

#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/memfd.h>
#include <linux/prctl.h>

#include "hook/child.h"
#include "hook/container.h"
#include "hook/soname.h"
#include "hook/sys.h"
#include "hook/tmpfs.h"
#include "vgpu/text.h"

#define RUN_SECONDS_MAX 20
#define PROGRAM_BYTES_MAX (64u << 20)
#define WORD_BYTES 256
#define CHILD_REPORTED 127
#define ALQ_MFD_EXEC 0x10u /* Linux 6.3 */
#define CACHE_BYTES_MAX "16m"

/* Ubuntu's /sbin/ldconfig is a script around the real one. */
static const char *const programs[] = {"/sbin/ldconfig.real", "/sbin/ldconfig",
                                       "/usr/sbin/ldconfig", NULL};

/* ---- the program ---- */

static int open_program(void)
{
    struct alq_elf_facts facts;
    int rc = -ENOENT;
    for (size_t i = 0; programs[i]; i++) {
        alq_auto_fd fd = alq_sys_open(programs[i], O_RDONLY | O_NONBLOCK, 0);
        if (fd < 0)
            continue;
        rc = -ENOEXEC;
        if (alq_is_regular(fd) && !alq_elf_facts(fd, &facts) && !facts.has_interpreter)
            return alq_keep_fd(&fd);
    }
    return rc;
}

/* Where the node's default is that such memory is not executable, it has to be asked for. */
static int new_memory(void)
{
    unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = alq_sys_memfd("ldconfig", flags | ALQ_MFD_EXEC);
    return fd == -EINVAL ? alq_sys_memfd("ldconfig", flags) : fd;
}

/* A copy that nobody can write to. */
static int copy_program(void)
{
    alq_auto_fd program = open_program();
    if (program < 0)
        return program;
    alq_auto_fd copy = new_memory();
    if (copy < 0)
        return alq_report("ldconfig", "memory to run it from, links by SONAME instead", copy);
    long n;
    size_t len = 0;
    do {
        n = alq_sys_sendfile(copy, program, PROGRAM_BYTES_MAX - len);
        len += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    int rc = n < 0 ? (int)n
                   : alq_sys_fcntl(copy, F_ADD_SEALS,
                                   F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    return rc ? alq_report("ldconfig", "copying it, links by SONAME instead", rc)
              : alq_keep_fd(&copy);
}

/* ---- the child ---- */

/* The container's root as a mount of this namespace's own. */
static int open_own_root(const struct alq_container *container)
{
    char path[ALQ_FD_PATH_BYTES];
    alq_auto_fd root = alq_container_open_root(container);
    if (root < 0)
        return root;
    alq_fd_path(root, path);
    int rc = alq_sys_mount(path, path, NULL, MS_BIND | MS_REC, NULL);
    if (rc)
        return rc;
    int own = alq_container_open_root(container);
    if (own >= 0)
        alq_sys_mount_nodev(own); /* since Linux 5.12; devices' cgroup is there before */
    return own;
}

/* On an initramfs, whose root cannot be pivoted away, the host's mounts stay out of reach of a
 * program without CAP_SYS_CHROOT all the same. */
static int change_root(int root)
{
    int rc = alq_sys_fchdir(root);
    if (rc)
        return rc;
    return alq_sys_pivot_root_here() ? alq_sys_chroot(".") : alq_sys_umount(".");
}

/* A mount namespace with nothing but the container's mounts, its /proc covered by `tmpfs`. */
static int enter(const struct alq_container *container, int tmpfs)
{
    struct alq_rootfs rootfs;
    int rc = alq_sys_unshare(CLONE_NEWNS);
    if (!rc)
        rc = alq_sys_mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (rc)
        return rc;
    int root = open_own_root(container);
    rc = root < 0 ? root : alq_rootfs_init(&rootfs, root);
    if (rc)
        return rc;
    int proc = alq_rootfs_open(&rootfs, "/proc");
    rc = proc < 0 ? proc : alq_sys_move_mount(tmpfs, proc);
    return rc ? rc : change_root(root);
}

static int drop_privileges(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {{0}};
    caps[0].permitted = caps[0].effective = 1u << CAP_DAC_OVERRIDE;
    int rc = alq_sys_prctl(PR_SET_NO_NEW_PRIVS, 1);
    return rc ? rc : (int)alq_syscall6(__NR_capset, (long)&header, (long)caps, 0, 0, 0, 0);
}

/* At the end of the time the kernel sends SIGALRM; exec keeps the timer. */
static int set_time_limit(void)
{
    struct {
        int64_t interval_s, interval_us, value_s, value_us;
    } timer = {.value_s = RUN_SECONDS_MAX};
    return (int)alq_syscall6(__NR_setitimer, 0, (long)&timer, 0, 0, 0, 0);
}

struct files {
    int program, null, log, tmpfs;
};

static int become_ldconfig(const struct alq_container *container, const struct files *files)
{
    const char *const argv[] = {"ldconfig",         "-C", "/proc/ld.so.cache", "-f",
                                "/proc/ld.so.conf", NULL};
    const char *const nothing[] = {NULL};
    int rc = enter(container, files->tmpfs);
    if (!rc)
        rc = drop_privileges();
    if (!rc)
        rc = set_time_limit();
    if (rc)
        return rc;
    int own_stderr = alq_sys_fcntl(2, F_DUPFD_CLOEXEC, 3);
    alq_sys_dup3(files->null, 0);
    alq_sys_dup3(files->log, 1);
    alq_sys_dup3(files->log, 2);
    alq_syscall6(__NR_close_range, 3, 0x7fffffff, CLOSE_RANGE_CLOEXEC, 0, 0, 0);
    rc = alq_sys_execveat(files->program, argv, nothing);
    alq_sys_dup3(own_stderr, 2);
    return rc;
}

/* ---- the parent ---- */

/* ldconfig writes into this before it renames it, whatever lies there: a FIFO would hold it, a hard
 * link would have it write over another file. */
static void remove_leftover(const struct alq_rootfs *rootfs)
{
    alq_auto_fd dir = alq_rootfs_open(rootfs, "/var/cache/ldconfig");
    if (dir >= 0)
        alq_sys_unlinkat(dir, "aux-cache~");
}

static int write_conf(int tmpfs, const char *conf)
{
    size_t len = alq_text_len(conf);
    alq_auto_fd file = alq_sys_openat(tmpfs, "ld.so.conf", O_WRONLY | O_CREAT | O_EXCL, 0644);
    long n = file < 0 ? file : alq_sys_write(file, conf, len);
    return n < 0 ? (int)n : (size_t)n == len ? 0 : -ENOSPC;
}

/* What ldconfig said, its first line, or what became of it. */
static int judge(int status, int log)
{
    char word[WORD_BYTES];
    int signal = status & 0x7f, code = status >> 8 & 0xff;
    if (!status)
        return 0;
    if (!signal && code == CHILD_REPORTED)
        return -EIO;
    long n = alq_sys_pread(log, word, sizeof(word) - 1, 0);
    word[n > 0 ? n : 0] = '\0';
    for (char *c = word; *c; c++) {
        if (*c == '\n')
            *c = '\0';
    }
    if (signal == 14)
        return alq_report("ldconfig", "not finished in time; links by SONAME instead", 0),
               -ETIMEDOUT;
    if (word[0])
        return alq_report(word, "links by SONAME instead", 0), -EIO;
    struct alq_text text = alq_text_on(word, sizeof(word));
    alq_text_add(&text, signal ? "ended by signal " : "exit status ");
    alq_text_add_u64(&text, (uint64_t)(signal ? signal : code));
    alq_text_add(&text, "; links by SONAME instead");
    return alq_report("ldconfig", word, 0), -EIO;
}

static int run(const struct alq_container *container, const struct files *files)
{
    int status = 0, pidfd = -1;
    int child = alq_sys_fork(&pidfd);
    if (child < 0)
        return alq_report("ldconfig", "fork", child);
    if (!child) {
        alq_report("ldconfig", "not run, links by SONAME instead",
                   become_ldconfig(container, files));
        alq_sys_exit(CHILD_REPORTED);
    }
    int rc = alq_child_wait(child, pidfd, &status);
    alq_sys_close(pidfd);
    if (rc == -ETIMEDOUT)
        return alq_report("ldconfig", "held up by what is no file; links by SONAME instead", 0), rc;
    return rc ? alq_report("ldconfig", "wait", rc) : judge(status, files->log);
}

int alq_ldconfig_run(const struct alq_container *container, const char *conf)
{
    alq_auto_fd program = copy_program();
    if (program < 0)
        return program;
    alq_auto_fd tmpfs = alq_tmpfs_new(CACHE_BYTES_MAX);
    alq_auto_fd null = alq_sys_open("/dev/null", O_RDONLY, 0);
    alq_auto_fd log = alq_sys_memfd("log", MFD_CLOEXEC);
    int rc = tmpfs < 0 ? tmpfs : null < 0 ? null : log < 0 ? log : write_conf(tmpfs, conf);
    if (rc)
        return alq_report("ldconfig", "no place for its files, links by SONAME instead", rc);
    remove_leftover(&container->rootfs);
    rc = run(container, &(struct files){program, null, log, tmpfs});
    if (rc)
        return rc;
    int cache = alq_sys_openat(tmpfs, "ld.so.cache", O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    return cache < 0 ? alq_report("ldconfig", "made no cache, links by SONAME instead", cache)
                     : cache;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Atomic files: what is there after success, and after a failure of each step. System calls are
 * made to fail by the linker's --wrap; a full and a read-only file system are real ones, mounted in
 * a namespace of a child process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "private_mounts.h"

/* Each: 0 lets the call through, an errno makes it fail. */
static int fail_write, fail_fsync, fail_fchmod, fail_renameat, fail_close;
static int fsync_calls_allowed = -1; /* >= 0: fsync fails from then on */
static size_t write_chunk;           /* > 0: no write takes more */
static int write_eintr;              /* so many writes are interrupted first */

ssize_t __real_write(int fd, const void *buf, size_t n);
int __real_fsync(int fd);
int __real_fchmod(int fd, mode_t mode);
int __real_renameat(int od, const char *o, int nd, const char *n);
int __real_close(int fd);
ssize_t __wrap_write(int fd, const void *buf, size_t n);
int __wrap_fsync(int fd);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_renameat(int od, const char *o, int nd, const char *n);
int __wrap_close(int fd);

static int failed(int errnum)
{
    errno = errnum;
    return -1;
}

ssize_t __wrap_write(int fd, const void *buf, size_t n)
{
    if (write_eintr > 0) {
        write_eintr--;
        return failed(EINTR);
    }
    if (fail_write)
        return failed(fail_write);
    return __real_write(fd, buf, write_chunk && n > write_chunk ? write_chunk : n);
}

int __wrap_fsync(int fd)
{
    if (fsync_calls_allowed == 0)
        return failed(EIO);
    if (fsync_calls_allowed > 0)
        fsync_calls_allowed--;
    return fail_fsync ? failed(fail_fsync) : __real_fsync(fd);
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return fail_fchmod ? failed(fail_fchmod) : __real_fchmod(fd, mode);
}

int __wrap_renameat(int od, const char *o, int nd, const char *n)
{
    return fail_renameat ? failed(fail_renameat) : __real_renameat(od, o, nd, n);
}

int __wrap_close(int fd)
{
    int rc = __real_close(fd);
    return rc == 0 && fail_close ? failed(fail_close) : rc;
}

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/alq-file-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    fail_write = fail_fsync = fail_fchmod = fail_renameat = fail_close = 0;
    fsync_calls_allowed = -1;
    write_chunk = 0;
    write_eintr = 0;
    return alq_file_remove_tree(dir, NULL);
}

/* dir/name in one of a few buffers, so that two can be used in one call. */
static const char *in_dir(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static int entries(const char *path)
{
    int n = 0;
    alq_auto_closedir DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    return n - 2;
}

static void put(const char *path, const char *text)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_write_atomic(path, text, strlen(text), 0644, 0, &err) != 0)
        fail_msg("%s", err.text);
}

static void assert_content(const char *path, const char *want)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_read(path, 1 << 20, &data, &len, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(len, strlen(want));
    assert_string_equal(data, want);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void write_atomic_new_file_has_content_and_mode(void **state)
{
    (void)state;
    mode_t old = umask(077);
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_write_atomic(in_dir("f"), "a\0b", 3, 0646, 1, &err), 0);
    umask(old);
    assert_int_equal(err.code, ALQ_OK);
    assert_int_equal(mode_of(in_dir("f")), 0646);
    alq_auto_free char *data = NULL;
    size_t len = 0;
    assert_int_equal(alq_file_read(in_dir("f"), 3, &data, &len, NULL), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "a\0b", 4);
    assert_int_equal(entries(dir), 1);
}

static void write_atomic_over_a_file_replaces_the_inode(void **state)
{
    (void)state;
    put(in_dir("f"), "old");
    alq_auto_close int held = open(in_dir("f"), O_RDONLY);
    put(in_dir("f"), "new content");
    assert_content(in_dir("f"), "new content");
    char buf[8] = "";
    assert_int_equal(read(held, buf, sizeof(buf)), 3);
    assert_string_equal(buf, "old");
}

static void write_atomic_over_a_symlink_replaces_the_link(void **state)
{
    (void)state;
    put(in_dir("target"), "untouched");
    assert_int_equal(symlink("target", in_dir("f")), 0);
    put(in_dir("f"), "new");
    assert_content(in_dir("target"), "untouched");
    assert_content(in_dir("f"), "new");
}

static void write_atomic_empty_file_is_empty(void **state)
{
    (void)state;
    put(in_dir("f"), "");
    assert_content(in_dir("f"), "");
}

static void write_atomic_survives_short_and_interrupted_writes(void **state)
{
    (void)state;
    write_chunk = 2;
    write_eintr = 3;
    put(in_dir("f"), "0123456789");
    assert_content(in_dir("f"), "0123456789");
}

static void write_atomic_relative_path_uses_the_working_directory(void **state)
{
    (void)state;
    char before[512];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(dir), 0);
    int rc = alq_file_write_atomic("f", "x", 1, 0600, 1, NULL);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rc, 0);
    assert_content(in_dir("f"), "x");
}

static void write_atomic_failing_at_any_step_leaves_the_old_file_alone(void **state)
{
    (void)state;
    static const struct {
        int *fail;
        int errnum, code;
    } rows[] = {
        {&fail_write, ENOSPC, ALQ_EIO},   {&fail_write, EDQUOT, ALQ_EIO},
        {&fail_fsync, EIO, ALQ_EIO},      {&fail_fchmod, EPERM, ALQ_EACCES},
        {&fail_renameat, EROFS, ALQ_EIO}, {&fail_renameat, EACCES, ALQ_EACCES},
        {&fail_close, EDQUOT, ALQ_EIO},
    };
    put(in_dir("f"), "old");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        *rows[i].fail = rows[i].errnum;
        int rc = alq_file_write_atomic(in_dir("f"), "new", 3, 0644, 1, &err);
        *rows[i].fail = 0;
        assert_int_equal(rc, rows[i].code);
        assert_non_null(strstr(err.text, in_dir("f")));
        assert_non_null(strstr(err.text, strerror(rows[i].errnum)));
        assert_content(in_dir("f"), "old");
        assert_int_equal(entries(dir), 1);
    }
}

static void write_atomic_failing_directory_sync_is_reported(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    fsync_calls_allowed = 1; /* the file's */
    assert_int_equal(alq_file_write_atomic(in_dir("f"), "new", 3, 0644, 1, &err), ALQ_EIO);
    assert_non_null(strstr(err.text, "cannot sync the directory"));
    assert_content(in_dir("f"), "new");
    assert_int_equal(entries(dir), 1);
}

static void write_atomic_not_durable_does_not_sync(void **state)
{
    (void)state;
    fsync_calls_allowed = 0;
    put(in_dir("f"), "x");
}

static void write_atomic_in_a_missing_directory_is_not_found(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_write_atomic(in_dir("no/f"), "x", 1, 0644, 0, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, in_dir("no/f")));
}

static void write_atomic_over_a_directory_fails_and_leaves_no_temporary(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_dir("d"), 0755), 0);
    struct alq_err err = ALQ_ERR_INIT;
    assert_true(alq_file_write_atomic(in_dir("d"), "x", 1, 0644, 0, &err) < 0);
    assert_int_equal(entries(dir), 1);
}

static void write_atomic_to_a_name_that_is_none_is_invalid(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "/", "x/", ".", "..", "x/.."};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        assert_int_equal(alq_file_write_atomic(rows[i], "x", 1, 0644, 0, &err), ALQ_EINVAL);
    }
    char longest[400];
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_write_atomic(in_dir(longest), "x", 1, 0644, 0, &err), ALQ_EIO);
    longest[250] = '\0'; /* a name that fits, its temporary's does not */
    assert_int_equal(alq_file_write_atomic(in_dir(longest), "x", 1, 0644, 0, &err), ALQ_EIO);
    assert_int_equal(entries(dir), 0);
}

/* A daemon in a container has the same PID at every start. */
static void write_atomic_passes_over_a_leftover_temporary(void **state)
{
    (void)state;
    for (int n = 0; n < 100; n++) {
        char name[64];
        snprintf(name, sizeof(name), ".f.tmp-%ld-%d", (long)getpid(), n);
        put(in_dir(name), "leftover");
    }
    put(in_dir("f"), "x");
    assert_content(in_dir("f"), "x");
    assert_int_equal(alq_file_sweep_temporaries(dir, NULL), 100);
}

static void write_atomic_over_the_file_size_limit_leaves_no_temporary(void **state)
{
    (void)state;
    put(in_dir("f"), "old");
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit small = {4, before.rlim_max};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGXFSZ, &ignore, &old);
    setrlimit(RLIMIT_FSIZE, &small);
    struct alq_err err = ALQ_ERR_INIT;
    int rc = alq_file_write_atomic(in_dir("f"), "too much of it", 14, 0644, 0, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    sigaction(SIGXFSZ, &old, NULL);
    assert_int_equal(rc, ALQ_EIO);
    assert_content(in_dir("f"), "old");
    assert_int_equal(entries(dir), 1);
}

/* In the child: a tmpfs of one page over dir, filled; then the same read-only. Exit 0 good, 77
 * cannot mount here. */
static int full_and_read_only_child(void)
{
    if (private_mounts() < 0 || mount("alq", dir, "tmpfs", 0, "size=8k,mode=0777") < 0)
        return 77;
    char data[16384] = {0};
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_write_atomic(in_dir("f"), "old", 3, 0644, 1, &err) < 0)
        return 1;
    if (alq_file_write_atomic(in_dir("f"), data, sizeof(data), 0644, 1, &err) != ALQ_EIO ||
        !strstr(err.text, strerror(ENOSPC)) || entries(dir) != 1)
        return 2;
    if (mount("alq", dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
        return 77;
    if (alq_file_write_atomic(in_dir("f"), "x", 1, 0644, 1, &err) != ALQ_EIO ||
        !strstr(err.text, strerror(EROFS)) || entries(dir) != 1)
        return 3;
    if (alq_file_mkdirs(in_dir("d"), 0755, &err) != ALQ_EIO || !strstr(err.text, strerror(EROFS)))
        return 4;
    if (alq_file_remove(in_dir("f"), 0, &err) != ALQ_EIO || !strstr(err.text, strerror(EROFS)))
        return 5;
    if (alq_file_remove_tree(in_dir("f"), &err) != ALQ_EIO)
        return 6;
    return 0;
}

static void write_atomic_on_a_full_and_on_a_read_only_file_system_says_so(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(full_and_read_only_child());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("[  REASON  ] no mount namespace can be had here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void read_larger_than_the_limit_is_out_of_range(void **state)
{
    (void)state;
    put(in_dir("f"), "12345");
    alq_auto_free char *data = NULL;
    size_t len = 99;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_read(in_dir("f"), 4, &data, &len, &err), ALQ_ERANGE);
    assert_null(data);
    assert_int_equal(len, 99);
    assert_non_null(strstr(err.text, "larger than 4 bytes"));
    assert_int_equal(alq_file_read(in_dir("f"), 5, &data, &len, &err), 0);
    assert_int_equal(len, 5);
}

/* Files of /proc have no size; this one is longer than the first buffer on most machines, and never
 * empty. */
static void read_of_a_file_without_size_gives_all_of_it(void **state)
{
    (void)state;
    alq_auto_free char *data = NULL;
    size_t len = 0;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_read("/proc/self/smaps", 1 << 20, &data, &len, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(len > 4096);
    assert_int_equal(strlen(data), len);
}

static void read_of_a_symlink_is_refused(void **state)
{
    (void)state;
    put(in_dir("f"), "secret");
    assert_int_equal(symlink("f", in_dir("l")), 0);
    alq_auto_free char *data = NULL;
    size_t len;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_read(in_dir("l"), 100, &data, &len, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, "symbolic link"));
    assert_null(data);
}

static void read_of_what_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    const char *const rows[] = {dir, in_dir("fifo"), "/dev/null"};
    for (size_t i = 0; i < 3; i++) {
        alq_auto_free char *data = NULL;
        size_t len;
        struct alq_err err = ALQ_ERR_INIT;
        assert_int_equal(alq_file_read(rows[i], 100, &data, &len, &err), ALQ_EINVAL);
        assert_non_null(strstr(err.text, "not a regular file"));
    }
    alq_auto_free char *data = NULL;
    size_t len;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_read(in_dir("none"), 100, &data, &len, &err), ALQ_ENOENT);
}

static void mkdirs_makes_parents_0755_and_the_last_as_asked(void **state)
{
    (void)state;
    mode_t old = umask(077);
    int rc = alq_file_mkdirs(in_dir("a//b/c/"), 01777, NULL);
    umask(old);
    assert_int_equal(rc, 0);
    assert_int_equal(mode_of(in_dir("a")), 0755);
    assert_int_equal(mode_of(in_dir("a/b")), 0755);
    assert_int_equal(mode_of(in_dir("a/b/c")), 01777);
}

static void mkdirs_existing_directory_is_left_alone(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_dir("a"), 0700), 0);
    assert_int_equal(symlink("a", in_dir("l")), 0);
    assert_int_equal(alq_file_mkdirs(in_dir("a"), 0755, NULL), 0);
    assert_int_equal(alq_file_mkdirs(in_dir("l/b"), 0711, NULL), 0);
    assert_int_equal(mode_of(in_dir("a")), 0700);
    assert_int_equal(mode_of(in_dir("a/b")), 0711);
}

static void mkdirs_with_a_file_in_the_way_says_which(void **state)
{
    (void)state;
    put(in_dir("f"), "x");
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_mkdirs(in_dir("f"), 0755, &err), ALQ_EEXIST);
    assert_int_equal(alq_file_mkdirs(in_dir("f/b"), 0755, &err), ALQ_EEXIST);
    assert_non_null(strstr(err.text, in_dir("f")));
    assert_int_equal(alq_file_mkdirs("", 0755, &err), ALQ_EINVAL);
}

static void remove_missing_file_is_success(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_remove(in_dir("none"), 0, &err), 0);
    assert_int_equal(alq_file_remove(in_dir("none"), 1, &err), 0);
    assert_int_equal(alq_file_remove(in_dir("no/none"), 1, &err), 0);
    assert_int_equal(err.code, ALQ_OK);
    put(in_dir("f"), "x");
    assert_int_equal(alq_file_remove(in_dir("f"), 1, &err), 0);
    assert_int_equal(entries(dir), 0);
}

static void remove_of_a_directory_is_an_error_and_keeps_it(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_dir("d"), 0755), 0);
    struct alq_err err = ALQ_ERR_INIT;
    assert_true(alq_file_remove(in_dir("d"), 0, &err) < 0);
    assert_true(alq_file_remove(in_dir("d"), 1, &err) < 0);
    assert_int_equal(entries(dir), 1);
}

static void remove_tree_takes_all_and_follows_no_link(void **state)
{
    (void)state;
    assert_int_equal(alq_file_mkdirs(in_dir("keep"), 0755, NULL), 0);
    put(in_dir("keep/f"), "x");
    assert_int_equal(alq_file_mkdirs(in_dir("t/a/b"), 0755, NULL), 0);
    put(in_dir("t/f"), "x");
    put(in_dir("t/a/b/f"), "x");
    assert_int_equal(symlink("../../keep", in_dir("t/a/l")), 0);
    assert_int_equal(mkfifo(in_dir("t/fifo"), 0600), 0);
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_remove_tree(in_dir("t"), &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(access(in_dir("t"), F_OK), -1);
    assert_content(in_dir("keep/f"), "x");
    assert_int_equal(symlink("keep", in_dir("l")), 0);
    assert_int_equal(alq_file_remove_tree(in_dir("l"), &err), 0);
    assert_content(in_dir("keep/f"), "x");
    assert_int_equal(alq_file_remove_tree(in_dir("none"), &err), 0);
    assert_int_equal(err.code, ALQ_OK);
}

static void remove_tree_too_deep_stops_with_an_error(void **state)
{
    (void)state;
    char path[1024];
    int n = snprintf(path, sizeof(path), "%s", dir);
    for (int i = 0; i < 100; i++)
        n += snprintf(path + n, sizeof(path) - (size_t)n, "/d");
    assert_int_equal(alq_file_mkdirs(path, 0755, NULL), 0);
    struct alq_err err = ALQ_ERR_INIT;
    assert_true(alq_file_remove_tree(in_dir("d"), &err) < 0);
    /* From half-way down both halves are within the limit. */
    path[strlen(dir) + 2 * 60] = '\0';
    assert_int_equal(alq_file_remove_tree(path, &err), 0);
}

static void copy_atomic_copies_bytes_and_sets_the_mode(void **state)
{
    (void)state;
    size_t size = 200 * 1000;
    alq_auto_free char *data = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)('a' + i % 23);
    data[size] = '\0';
    put(in_dir("src"), data);
    assert_int_equal(symlink("src", in_dir("link")), 0);
    assert_int_equal(alq_file_copy_atomic(in_dir("link"), in_dir("dst"), 0755, NULL), 0);
    assert_content(in_dir("dst"), data);
    assert_int_equal(mode_of(in_dir("dst")), 0755);
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_copy_atomic(in_dir("none"), in_dir("dst"), 0755, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, in_dir("none")));
    fail_write = ENOSPC;
    assert_int_equal(alq_file_copy_atomic(in_dir("src"), in_dir("dst2"), 0755, &err), ALQ_EIO);
    assert_int_equal(entries(dir), 3);
}

static void sweep_removes_temporaries_and_nothing_else(void **state)
{
    (void)state;
    static const char *const kept[] = {
        "f",           ".f",        ".f.tmp",    ".f.tmp-1", ".f.tmp-1-",
        ".f.tmp-1-2x", "f.tmp-1-2", ".f.tmp--2", ".tmp-1-2", ".f.tmp-1-2.bak"};
    static const char *const swept[] = {".f.tmp-1-2", ".a.json.tmp-99999-0", "..tmp-1-1.tmp-1-1"};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        put(in_dir(kept[i]), "x");
    for (size_t i = 0; i < sizeof(swept) / sizeof(swept[0]); i++)
        put(in_dir(swept[i]), "x");
    assert_int_equal(alq_file_sweep_temporaries(dir, NULL), 3);
    assert_int_equal(entries(dir), sizeof(kept) / sizeof(kept[0]));
    assert_int_equal(alq_file_sweep_temporaries(dir, NULL), 0);
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_file_sweep_temporaries(in_dir("none"), &err), ALQ_ENOENT);
}

static void str_printf_formats_any_length(void **state)
{
    (void)state;
    alq_auto_free char *text = alq_str_printf("%s-%d:%4000d", "a", 7, 1);
    assert_non_null(text);
    assert_int_equal(strlen(text), 4 + 4000);
    assert_memory_equal(text, "a-7:    ", 8);
}

#define in_tmp(f) cmocka_unit_test_setup_teardown(f, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_tmp(write_atomic_new_file_has_content_and_mode),
        in_tmp(write_atomic_over_a_file_replaces_the_inode),
        in_tmp(write_atomic_over_a_symlink_replaces_the_link),
        in_tmp(write_atomic_empty_file_is_empty),
        in_tmp(write_atomic_survives_short_and_interrupted_writes),
        in_tmp(write_atomic_relative_path_uses_the_working_directory),
        in_tmp(write_atomic_failing_at_any_step_leaves_the_old_file_alone),
        in_tmp(write_atomic_failing_directory_sync_is_reported),
        in_tmp(write_atomic_not_durable_does_not_sync),
        in_tmp(write_atomic_in_a_missing_directory_is_not_found),
        in_tmp(write_atomic_over_a_directory_fails_and_leaves_no_temporary),
        in_tmp(write_atomic_to_a_name_that_is_none_is_invalid),
        in_tmp(write_atomic_passes_over_a_leftover_temporary),
        in_tmp(write_atomic_over_the_file_size_limit_leaves_no_temporary),
        in_tmp(write_atomic_on_a_full_and_on_a_read_only_file_system_says_so),
        in_tmp(read_larger_than_the_limit_is_out_of_range),
        in_tmp(read_of_a_file_without_size_gives_all_of_it),
        in_tmp(read_of_a_symlink_is_refused),
        in_tmp(read_of_what_is_no_file_is_refused),
        in_tmp(mkdirs_makes_parents_0755_and_the_last_as_asked),
        in_tmp(mkdirs_existing_directory_is_left_alone),
        in_tmp(mkdirs_with_a_file_in_the_way_says_which),
        in_tmp(remove_missing_file_is_success),
        in_tmp(remove_of_a_directory_is_an_error_and_keeps_it),
        in_tmp(remove_tree_takes_all_and_follows_no_link),
        in_tmp(remove_tree_too_deep_stops_with_an_error),
        in_tmp(copy_atomic_copies_bytes_and_sets_the_mode),
        in_tmp(sweep_removes_temporaries_and_nothing_else),
        cmocka_unit_test(str_printf_formats_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

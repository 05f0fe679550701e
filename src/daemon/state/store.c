/* SPDX-License-Identifier: Apache-2.0 */
/* Files of records, see store.h. Blocking calls; the struct is constant once open. */
#include "daemon/state/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/monitor/metrics.h"
#include "daemon/state/claim_spec.h"

#define ALQ_LOG_MODULE "state"
#define SUFFIX ".record"
#define SET_ASIDE_MAX 100

struct alq_store {
    char *dir; /* <state dir>/claims */
    int lock;
    char **unread; /* UIDs whose records lie there still but could not be read or set aside */
    size_t unread_count;
};

/* The two lines of a lock file. */
static void read_lock(int fd, char pid[16], char *note, size_t size)
{
    char text[256];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *second = strchr(text, '\n');
    if (second)
        *second++ = '\0';
    snprintf(pid, 16, "%.15s", *text ? text : "unknown");
    snprintf(note, size, "%.*s", second ? (int)strcspn(second, "\n") : 0, second ? second : "");
}

void alq_lock_set_note(int fd, const char *note)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "%d\n%s\n", (int)getpid(), note);
    /* It is for people and for hints: a full disk must not keep a daemon down that could free some.
     * Never empty in between, for others read it at any time. */
    if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n))
        alq_warn(NULL, "our pid is not noted in the lock file: %s", strerror(errno));
}

int alq_lock_take(const char *path, const char *what, const char *note, int *fd,
                  struct alq_err *err)
{
    char pid[16], text[128];
    alq_auto_close int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int is_read_only = lock < 0 && errno == EROFS;
    if (is_read_only) /* a lock does not need to be written to */
        lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0)
        return alq_err_errno(err, is_read_only ? EROFS : errno, "lock file %s", path);
    if (flock(lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK)
            return alq_err_errno(err, errno, "locking %s", path);
        read_lock(lock, pid, text, sizeof(text));
        return alq_err_set(err, ALQ_EBUSY, "another aliquotd (pid %s) has %s; stop it first", pid,
                           what);
    }
    alq_lock_set_note(lock, note);
    *fd = alq_steal_fd(&lock);
    return 0;
}

int alq_lock_is_held(const char *path)
{
    alq_auto_close int lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
}

void alq_lock_note(const char *path, char *note, size_t size)
{
    char pid[16];
    alq_auto_close int lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *note = '\0';
    if (lock >= 0)
        read_lock(lock, pid, note, size);
}

int alq_boot_id_read(char boot_id[ALQ_BOOT_ID_BYTES], struct alq_err *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot_id, ALQ_BOOT_ID_BYTES - 1);
    if (n <= 0)
        return alq_err_errno(err, errno, "%s", path);
    boot_id[n] = '\0';
    boot_id[strcspn(boot_id, "\n")] = '\0';
    return 0;
}

int alq_store_open(const char *state_dir, struct alq_store **store, struct alq_err *err)
{
    struct alq_store *s = calloc(1, sizeof(*s));
    alq_auto_free char *lock_path = alq_str_printf("%s/lock", state_dir);
    if (s) {
        s->lock = -1;
        s->dir = alq_str_printf("%s/claims", state_dir);
    }
    int rc = 0;
    if (!s || !s->dir || !lock_path)
        rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (!rc)
        rc = alq_file_mkdirs(state_dir, 0700, err);
    if (!rc)
        rc = alq_file_mkdirs(s->dir, 0700, err);
    if (!rc)
        rc = alq_lock_take(lock_path, state_dir, "", &s->lock, err);
    const char *const dirs[] = {state_dir, s ? s->dir : NULL};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && !rc; i++) {
        struct alq_err why = ALQ_ERR_INIT; /* a leftover harms nobody */
        if (alq_file_sweep_temporaries(dirs[i], &why) < 0)
            alq_warn(NULL, "%s", why.text);
    }
    if (rc) {
        alq_store_close(s);
        return rc;
    }
    *store = s;
    return 0;
}

void alq_store_close(struct alq_store *store)
{
    if (!store)
        return;
    if (store->lock >= 0)
        close(store->lock);
    for (size_t i = 0; i < store->unread_count; i++)
        free(store->unread[i]);
    free(store->unread);
    free(store->dir);
    free(store);
}

static char *record_path(const struct alq_store *store, const char *uid)
{
    return alq_str_printf("%s/%s" SUFFIX, store->dir, uid);
}

static char *aside_path(const char *path, int i)
{
    return i ? alq_str_printf("%s.bad.%d", path, i) : alq_str_printf("%s.bad", path);
}

static int rename_aside(const char *from, const char *why)
{
    for (int i = 0; i < SET_ASIDE_MAX; i++) {
        alq_auto_free char *to = aside_path(from, i);
        if (!to || renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) {
            if (to && errno == EEXIST)
                continue;
            return -1;
        }
        alq_error(ALQ_LOG_KV({"file", from}, {"kept_as", to}),
                  "record set aside: %s; its claim's files and promise stay for containers that "
                  "run, until the kubelet prepares it anew or unprepares it",
                  why);
        return 0;
    }
    return -1;
}

/* A record that cannot be read at all stays where it is: its disk may be better at the next start.
 */
static int set_aside(struct alq_store *store, const char *uid, int is_unreadable, const char *why)
{
    alq_auto_free char *path = record_path(store, uid);
    alq_metric_add(ALQ_METRIC_RECORDS_SET_ASIDE, 1, NULL, NULL);
    if (!is_unreadable && path && !rename_aside(path, why))
        return 0;
    alq_error(ALQ_LOG_KV({"file", path}),
              "record not used: %s; its claim's files and promise stay for containers that run, "
              "until the kubelet prepares it anew or unprepares it",
              why);
    char **more = realloc(store->unread, (store->unread_count + 1) * sizeof(*more));
    char *copy = strdup(uid);
    if (more)
        store->unread = more;
    if (!more || !copy) {
        free(copy);
        return -1;
    }
    store->unread[store->unread_count++] = copy;
    return 0;
}

/* The claim's UID out of "<uid>.record". */
static int uid_of(const char *name, char *uid, size_t size)
{
    size_t n = strlen(name), suffix = strlen(SUFFIX);
    if (n <= suffix || strcmp(name + n - suffix, SUFFIX) != 0 || n - suffix >= size)
        return -1;
    memcpy(uid, name, n - suffix);
    uid[n - suffix] = '\0';
    return 0;
}

static int load_one(const struct alq_store *store, const char *uid, struct alq_record *record,
                    struct alq_err *err)
{
    alq_auto_free char *path = record_path(store, uid);
    alq_auto_free char *data = NULL;
    size_t len = 0;
    if (!path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_read(path, ALQ_RECORD_MAX_BYTES, &data, &len, err);
    if (!rc)
        rc = alq_record_decode(data, len, record, err);
    if (rc)
        return rc;
    if (strcmp(record->claim.uid, uid) != 0) {
        rc = alq_err_set(err, ALQ_EPROTO, "holds claim %s", record->claim.uid);
        alq_record_fini(record);
    }
    return rc;
}

int alq_store_load(struct alq_store *store, void (*each)(void *arg, struct alq_record *record),
                   void *arg, struct alq_err *err)
{
    int bad = 0;
    alq_auto_closedir DIR *dir = opendir(store->dir);
    if (!dir)
        return alq_err_errno(err, errno, "%s", store->dir);
    struct dirent *entry;
    while ((errno = 0, entry = readdir(dir))) {
        char uid[128];
        struct alq_err why = ALQ_ERR_INIT;
        struct alq_record record;
        if (uid_of(entry->d_name, uid, sizeof(uid)))
            continue;
        int rc = load_one(store, uid, &record, &why);
        if (!rc) {
            each(arg, &record);
            alq_record_fini(&record);
        } else if (rc == ALQ_ENOMEM || rc == ALQ_EACCES || rc == ALQ_ENOENT || rc == ALQ_EAGAIN) {
            /* Not the record's fault: better no daemon than one that forgets a promise. */
            *err = why;
            return alq_err_wrap(err, "record of claim %s", uid);
        } else {
            if (set_aside(store, uid, rc == ALQ_EIO, why.text))
                return alq_err_set(err, ALQ_ENOMEM, "record of claim %s: out of memory", uid);
            bad++;
        }
    }
    return errno ? alq_err_errno(err, errno, "%s", store->dir) : bad;
}

int alq_store_put(struct alq_store *store, const struct alq_record *record, struct alq_err *err)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    alq_auto_free char *path = record_path(store, record->claim.uid);
    if (!path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_record_encode(record, &data, &len, err);
    if (!rc)
        rc = alq_file_mkdirs(store->dir, 0700, err);
    return rc ? rc : alq_file_write_atomic(path, data, len, 0600, 1, err);
}

int alq_store_has(const struct alq_store *store, const char *uid)
{
    alq_auto_free char *path = record_path(store, uid);
    return path && !access(path, F_OK);
}

int alq_store_is_set_aside(const struct alq_store *store, const char *uid)
{
    struct stat st;
    alq_auto_free char *path = record_path(store, uid);
    alq_auto_free char *aside = path ? aside_path(path, 0) : NULL;
    for (size_t i = 0; i < store->unread_count; i++)
        if (!strcmp(store->unread[i], uid))
            return 1;
    return aside && !lstat(aside, &st);
}

void alq_store_forget_aside(struct alq_store *store, const char *uid)
{
    struct stat st;
    alq_auto_free char *path = record_path(store, uid);
    for (int i = 0; path && i < SET_ASIDE_MAX; i++) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_free char *aside = aside_path(path, i);
        if (!aside || lstat(aside, &st))
            return;
        if (alq_file_remove_tree(aside, &err))
            alq_warn(ALQ_LOG_KV({"uid", uid}), "%s", err.text);
    }
}

int alq_store_remove(struct alq_store *store, const char *uid, struct alq_err *err)
{
    alq_auto_free char *path = record_path(store, uid);
    if (!path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return alq_file_remove(path, 1, err);
}

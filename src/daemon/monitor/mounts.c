/* SPDX-License-Identifier: Apache-2.0 */
/* Shares by mount namespace, see mounts.h. */
#include "daemon/monitor/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MOUNTINFO_BYTES_MAX (4u << 20)
#define MOUNTINFO_BYTES_FIRST (16u << 10)
#define FIELD_BYTES 4096
#define NS_PER_S 1000000000u

/* A mount namespace that a listed process is in. */
struct namespace
{
    LIST_ENTRY(namespace) link;
    char name[32]; /* "mnt:[4026532000]" */
    int is_seen;   /* in this round */
    /* one of its processes, and when that began: while it runs the name is this namespace's */
    uint32_t witness;
    uint64_t witness_ticks;
    struct alq_share_set set;
};

struct alq_mounts {
    char *proc;
    struct alq_mount_place place;
    long ticks_per_s;
    unsigned long reads;
    LIST_HEAD(, namespace) namespaces;
};

/* ---- parsers ----------------------------------------------------------------------------------
 */

/* mountinfo writes blanks, tabs, newlines and backslashes as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

struct mount_line {
    unsigned long id;
    char device[24];
    char root[FIELD_BYTES];
    char point[FIELD_BYTES];
};

/* The line at text; returns where the next one is. has_it tells whether it could be read. */
static const char *next_line(const char *text, struct mount_line *line, int *has_it)
{
    const char *end = strchrnul(text, '\n');
    *has_it = sscanf(text, "%lu %*d %23s %4095s %4095s", &line->id, line->device, line->root,
                     line->point) == 4;
    if (*has_it) {
        unescape(line->root);
        unescape(line->point);
    }
    return *end ? end + 1 : end;
}

/* What is left of path below dir ("" or "/..."), NULL when it is not there. */
static const char *below(const char *path, const char *dir)
{
    size_t n = strcmp(dir, "/") ? strlen(dir) : 0;
    if (strncmp(path, dir, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path + n;
}

int alq_mount_place_find(const char *mountinfo, unsigned long mount_id, const char *path,
                         struct alq_mount_place *place)
{
    struct mount_line line;
    int has_it;
    while (*mountinfo) {
        mountinfo = next_line(mountinfo, &line, &has_it);
        const char *rest = has_it && line.id == mount_id ? below(path, line.point) : NULL;
        if (!rest)
            continue;
        int n = snprintf(place->root, sizeof(place->root), "%s%s/shares",
                         strcmp(line.root, "/") ? line.root : "", rest);
        memcpy(place->device, line.device, sizeof(place->device));
        return n > 0 && (size_t)n < sizeof(place->root) ? 0 : -1;
    }
    return -1;
}

/* Keeps the set sorted, an id once. */
static void add_share(struct alq_share_set *set, const char *id, size_t len)
{
    uint32_t at = 0;
    char text[ALQ_SHARE_ID_BYTES];
    if (!len || len >= sizeof(text) || set->count == ALQ_SHARES_OF_PROCESS_MAX)
        return;
    memcpy(text, id, len);
    text[len] = '\0';
    while (at < set->count && strcmp(set->ids[at], text) < 0)
        at++;
    if (at < set->count && !strcmp(set->ids[at], text))
        return;
    void *ids = realloc(set->ids, (set->count + 1) * sizeof(set->ids[0]));
    if (!ids)
        return;
    set->ids = ids;
    memmove(set->ids[at + 1], set->ids[at], (set->count - at) * sizeof(set->ids[0]));
    memcpy(set->ids[at], text, len + 1);
    set->count++;
}

void alq_mount_shares(const char *mountinfo, const struct alq_mount_place *place,
                      struct alq_share_set *set)
{
    struct mount_line line;
    int has_it;
    while (*mountinfo) {
        mountinfo = next_line(mountinfo, &line, &has_it);
        const char *rest =
            has_it && !strcmp(line.device, place->device) ? below(line.root, place->root) : NULL;
        if (rest && *rest)
            add_share(set, rest + 1, strcspn(rest + 1, "/"));
    }
}

int alq_stat_start(const char *stat, uint64_t *ticks)
{
    /* The name, in brackets, may hold anything. */
    const char *at = strrchr(stat, ')');
    unsigned long long value;
    if (!at || sscanf(at + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                      "%*d %llu",
                      &value) != 1)
        return -1;
    *ticks = value;
    return 0;
}

/* ---- processes --------------------------------------------------------------------------------
 */

/* The whole of a file of /proc, which has no size. malloc'ed, NULL when it cannot be had. */
static char *read_all(int dir, const char *name)
{
    alq_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    size_t size = MOUNTINFO_BYTES_FIRST, len = 0;
    alq_auto_free char *text = fd < 0 ? NULL : malloc(size);
    for (ssize_t n; text && (n = read(fd, text + len, size - 1 - len)) != 0;) {
        if (n < 0)
            return NULL;
        len += (size_t)n;
        if (len + 1 < size)
            continue;
        char *more = size < MOUNTINFO_BYTES_MAX ? realloc(text, size *= 2) : NULL;
        if (!more)
            return NULL;
        text = more;
    }
    if (text)
        text[len] = '\0';
    return alq_steal(&text);
}

/* A process as /proc shows it, through one descriptor that stays with it. */
struct process {
    uint64_t ticks;
    char namespace[32];
};

static int open_process(const struct alq_mounts *m, uint32_t pid, struct process *p)
{
    char path[64], stat[1024];
    snprintf(path, sizeof(path), "%s/%u", m->proc, pid);
    alq_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    ssize_t n = readlinkat(dir, "ns/mnt", p->namespace, sizeof(p->namespace) - 1);
    if (n <= 0)
        return -1;
    p->namespace[n] = '\0';
    alq_auto_close int fd = openat(dir, "stat", O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
    if (n <= 0)
        return -1;
    stat[n] = '\0';
    return alq_stat_start(stat, &p->ticks) ? -1 : alq_steal_fd(&dir);
}

static struct namespace *find_namespace(const struct alq_mounts *m, const char *name)
{
    struct namespace *ns;
    LIST_FOREACH(ns, &m->namespaces, link)
    if (!strcmp(ns->name, name))
        break;
    return ns;
}

static void drop(struct namespace *ns)
{
    LIST_REMOVE(ns, link);
    free(ns->set.ids);
    free(ns);
}

static int is_alive(const struct alq_mounts *m, const struct namespace *ns)
{
    struct process p;
    alq_auto_close int dir = open_process(m, ns->witness, &p);
    return dir >= 0 && p.ticks == ns->witness_ticks && !strcmp(p.namespace, ns->name);
}

void alq_mounts_begin(struct alq_mounts *m)
{
    for (struct namespace *ns = LIST_FIRST(&m->namespaces), *next; ns; ns = next) {
        next = LIST_NEXT(ns, link);
        if (!ns->is_seen || !is_alive(m, ns))
            drop(ns);
        else
            ns->is_seen = 0;
    }
}

static struct namespace *learn(struct alq_mounts *m, int dir, uint32_t pid, const struct process *p)
{
    alq_auto_free char *mountinfo = read_all(dir, "mountinfo");
    struct namespace *ns = mountinfo ? calloc(1, sizeof(*ns)) : NULL;
    if (!ns)
        return NULL;
    m->reads++;
    memcpy(ns->name, p->namespace, sizeof(ns->name));
    ns->witness = pid;
    ns->witness_ticks = p->ticks;
    alq_mount_shares(mountinfo, &m->place, &ns->set);
    LIST_INSERT_HEAD(&m->namespaces, ns, link);
    return ns;
}

/* On CLOCK_BOOTTIME, rounded down to a tick. */
static int64_t start_ns(const struct alq_mounts *m, const struct process *p)
{
    const uint64_t per_s = (uint64_t)m->ticks_per_s;
    return (int64_t)(p->ticks / per_s * NS_PER_S + p->ticks % per_s * NS_PER_S / per_s);
}

const struct alq_share_set *alq_mounts_find(struct alq_mounts *m, uint32_t pid, int64_t at_ns)
{
    struct process p;
    alq_auto_close int dir = open_process(m, pid, &p);
    if (dir < 0 || start_ns(m, &p) > at_ns)
        return NULL;
    struct namespace *ns = find_namespace(m, p.namespace);
    if (!ns)
        ns = learn(m, dir, pid, &p);
    if (!ns)
        return NULL;
    ns->is_seen = 1;
    return ns->set.count ? &ns->set : NULL;
}

unsigned long alq_mounts_reads(const struct alq_mounts *m)
{
    return m->reads;
}

unsigned alq_mounts_known(const struct alq_mounts *m)
{
    const struct namespace *ns;
    unsigned n = 0;
    LIST_FOREACH(ns, &m->namespaces, link)
    n++;
    return n;
}

const struct alq_mount_place *alq_mounts_place(const struct alq_mounts *m)
{
    return &m->place;
}

/* ---- our own place ----------------------------------------------------------------------------
 */

static int find_place(struct alq_mounts *m, const char *run_dir, struct alq_err *err)
{
    char link[64], path[FIELD_BYTES];
    unsigned long id = 0;
    alq_auto_close int dir = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    alq_auto_close int self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || self < 0)
        return alq_err_errno(err, errno, "%s", dir < 0 ? run_dir : "/proc/self");
    snprintf(link, sizeof(link), "fd/%d", dir);
    ssize_t n = readlinkat(self, link, path, sizeof(path) - 1);
    snprintf(link, sizeof(link), "fdinfo/%d", dir);
    alq_auto_free char *info = read_all(self, link);
    alq_auto_free char *mountinfo = read_all(self, "mountinfo");
    const char *at = info ? strstr(info, "mnt_id:") : NULL;
    if (n > 0 && at && mountinfo && sscanf(at, "mnt_id: %lu", &id) == 1) {
        path[n] = '\0';
        if (!alq_mount_place_find(mountinfo, id, path, &m->place))
            return 0;
    }
    return alq_err_set(err, ALQ_EIO, "the mount of %s is not in /proc/self/mountinfo", run_dir);
}

struct alq_mounts *alq_mounts_new(const char *proc, const char *run_dir, struct alq_err *err)
{
    struct alq_mounts *m = calloc(1, sizeof(*m));
    if (!m || !(m->proc = strdup(proc))) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        free(m);
        return NULL;
    }
    m->ticks_per_s = sysconf(_SC_CLK_TCK);
    if (find_place(m, run_dir, err)) {
        alq_mounts_free(m);
        return NULL;
    }
    return m;
}

void alq_mounts_free(struct alq_mounts *m)
{
    if (!m)
        return;
    while (!LIST_EMPTY(&m->namespaces))
        drop(LIST_FIRST(&m->namespaces));
    free(m->proc);
    free(m);
}

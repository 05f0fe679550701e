/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for another plugin of our name, see rival.h. */
#include "daemon/kubelet/rival.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#define PROGRAM "aliquotd"
#define DELETED " (deleted)"

/* Whether somebody listens there; *pid is his, 0 unknown. */
static int is_live(int dir, const char *name, pid_t *pid)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    struct stat st;
    /* Through the directory: the path itself may be too long. */
    int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", dir, name);
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || n < 0 || (size_t)n >= sizeof(addr.sun_path) ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISSOCK(st.st_mode) ||
        connect(fd, (const struct sockaddr *)&addr, sizeof(addr)))
        return 0;
    *pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ? 0 : peer.pid;
    return 1;
}

/* The program's path, "" unknown. */
static void program_of(pid_t pid, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
    ssize_t n = pid > 0 ? readlink(link, path, size - 1) : -1;
    path[n < 0 ? 0 : n] = '\0';
    size_t len = strlen(path), cut = strlen(DELETED);
    if (len > cut && !strcmp(path + len - cut, DELETED))
        path[len - cut] = '\0';
}

static int is_aliquotd(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && !strcmp(slash + 1, PROGRAM);
}

/* prefix, perhaps "-" and more, suffix; *is_plain: nothing between. */
static int is_named(const char *name, const char *prefix, const char *suffix, int *is_plain)
{
    size_t before = strlen(prefix), after = strlen(suffix), len = strlen(name);
    if (len < before + after || strncmp(name, prefix, before) != 0 ||
        strcmp(name + len - after, suffix) != 0)
        return 0;
    *is_plain = len == before + after;
    return *is_plain || name[before] == '-';
}

static int look(const char *path, const char *prefix, const char *suffix, const char *driver,
                struct alq_err *err)
{
    alq_auto_closedir DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char program[256] = "";
        int is_plain = 0;
        pid_t pid = 0;
        if (!is_named(entry->d_name, prefix, suffix, &is_plain) ||
            !is_live(dirfd(dir), entry->d_name, &pid))
            continue;
        program_of(pid, program, sizeof(program));
        if (*program ? is_aliquotd(program) : !is_plain)
            continue;
        return alq_err_set(
            err, ALQ_EBUSY,
            "another plugin serves the driver name %s on this node: %.160s listens at "
            "%.120s/%.80s; remove that plugin, or give this one a name of its own "
            "with --driver-name",
            driver, *program ? program : "a program of another PID namespace", path, entry->d_name);
    }
    return 0;
}

int alq_rival_check(const struct alq_config *cfg, struct alq_err *err)
{
    alq_auto_free char *dir = alq_str_printf("%s/%s", cfg->kubelet_plugins_dir, cfg->driver_name);
    if (!dir)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = look(dir, "dra", ".sock", cfg->driver_name, err);
    return rc ? rc
              : look(cfg->kubelet_registry_dir, cfg->driver_name, "-reg.sock", cfg->driver_name,
                     err);
}

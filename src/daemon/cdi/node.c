/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device nodes, see node.h. Majors come from proc/devices, owner and mode from the module's params
 * (a capability's mode from its own file). A node is made under another name and linked or renamed,
 * so that nobody meets one with the wrong mode.
 */
#include "daemon/cdi/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/cdi/kernel.h"
#include "daemon/cdi/root.h"

#define ALQ_LOG_MODULE "cdi"
#define ANY_MODE UINT32_MAX
#define NAME_BYTES 64
#define NAME_TRIES 64
#define MINOR_MAX 1048575ul /* 20 bits in the kernel's dev_t */

/* Which major a node has: the first of these names that proc/devices knows. 535's module calls
 * itself nvidia-frontend, 580's nvidia and nvidiactl. */
static const struct family {
    const char *prefix; /* of the name below dev/ */
    long minor;         /* of a node with exactly this name; -1: the number behind the prefix */
    const char *const *majors;
} families[] = {
    {"nvidiactl", 255, (const char *const[]){"nvidia-frontend", "nvidiactl", "nvidia", NULL}},
    {"nvidia-modeset", 254, (const char *const[]){"nvidia-modeset", NULL}},
    {"nvidia-uvm", 0, (const char *const[]){"nvidia-uvm", NULL}},
    {"nvidia-uvm-tools", 1, (const char *const[]){"nvidia-uvm", NULL}},
    {"nvidia-caps/nvidia-cap", -1, (const char *const[]){"nvidia-caps", NULL}},
    {"nvidia-caps-imex-channels/channel", -1,
     (const char *const[]){"nvidia-caps-imex-channels", NULL}},
    {"nvidia", -1, (const char *const[]){"nvidia-frontend", "nvidia", NULL}},
};

static const struct family *family_of(const char *name, unsigned long *minor)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        const struct family *f = &families[i];
        size_t len = strlen(f->prefix);
        if (strncmp(name, f->prefix, len) != 0)
            continue;
        if (f->minor >= 0) {
            *minor = (unsigned long)f->minor;
            if (!name[len])
                return f;
            continue;
        }
        size_t digits = strspn(name + len, "0123456789");
        *minor = strtoul(name + len, NULL, 10);
        if (digits && !name[len + digits] && *minor <= MINOR_MAX)
            return f;
    }
    return NULL;
}

/* ---- making -----------------------------------------------------------------------------------
 */

/* A node that is to be made. */
struct plan {
    const char *below; /* where */
    const char *wrong; /* what is wrong there now */
    dev_t number;
    struct alq_kernel_params params;
};

/* The numbers that the loaded module's node of that name has. ALQ_ENOENT: it has none. */
static int kernel_number(const struct alq_config *cfg, const char *name, dev_t *number,
                         struct alq_err *err)
{
    unsigned long minor;
    unsigned major;
    const struct family *family = family_of(name, &minor);
    if (!family)
        return alq_err_set(err, ALQ_ENOENT, "no driver makes a node of that name");
    int rc = alq_kernel_major(cfg, family->majors, &major, err);
    if (!rc)
        *number = makedev(major, (unsigned)minor);
    return rc;
}

static int check_plan(const struct alq_config *cfg, struct plan *plan, struct alq_err *err)
{
    if (!cfg->is_mknod)
        return alq_err_set(err, ALQ_ENOENT,
                           "device node %s %s and --mknod is off; make it (nvidia-modprobe -c 0 "
                           "-u), or set --dev-root",
                           plan->below, plan->wrong);
    alq_kernel_params(cfg, &plan->params);
    if (!plan->params.is_modify_allowed)
        return alq_err_set(err, ALQ_ENOENT,
                           "device node %s %s, and ModifyDeviceFiles is 0 in the driver's params: "
                           "what makes the nodes on this host (udev's rules) must make it",
                           plan->below, plan->wrong);
    return 0;
}

/* A name for what gets its own by link or rename. One that is there already is a leftover of a
 * process with our number (a daemon is PID 1 in its container at every start), or another daemon
 * has our number in its own container: the next is tried, up to NAME_TRIES. */
static void next_name(char name[NAME_BYTES])
{
    static atomic_uint turn; /* relaxed: only to differ */
    snprintf(name, NAME_BYTES, ".aliquot-%d-%u", (int)getpid(),
             atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed));
}

static int mknod_somewhere(int dir, dev_t number, char name[NAME_BYTES])
{
    int rc = -1;
    for (int i = 0; i < NAME_TRIES && rc && (!i || errno == EEXIST); i++) {
        next_name(name);
        rc = mknodat(dir, name, S_IFCHR | 0600, number);
    }
    return rc;
}

static int make_at(int dir, const char *leaf, const struct plan *plan, int is_replaced,
                   struct alq_err *err)
{
    char name[NAME_BYTES];
    if (mknod_somewhere(dir, plan->number, name))
        return alq_err_errno(err, errno,
                             "device node %s %s and cannot be made (nvidia-modprobe -c 0 -u on the "
                             "host makes it; a daemon in a container needs CAP_MKNOD)",
                             plan->below, plan->wrong);
    int rc = fchownat(dir, name, plan->params.uid, plan->params.gid, 0) ||
             fchmodat(dir, name, plan->params.mode, 0) ||
             (is_replaced ? renameat(dir, name, dir, leaf)
                          : linkat(dir, name, dir, leaf, 0) && errno != EEXIST);
    if (rc)
        rc = alq_err_errno(err, errno, "device node %s %s and cannot be made", plan->below,
                           plan->wrong);
    unlinkat(dir, name, 0);
    return rc;
}

/* mode: of a capability, which has its own; ANY_MODE: the module's. */
static int make(const struct alq_config *cfg, const char *name, uint32_t mode, struct plan *plan,
                int is_replaced, struct alq_err *err)
{
    int rc = check_plan(cfg, plan, err);
    if (rc)
        return rc;
    if (mode != ANY_MODE)
        plan->params = (struct alq_kernel_params){.mode = mode & 0777};

    const char *slash = strrchr(name, '/');
    alq_auto_free char *dir =
        slash ? alq_str_printf("dev/%.*s", (int)(slash - name), name) : strdup("dev");
    alq_auto_free char *dir_path = dir ? alq_root_join(cfg->dev_root, dir) : NULL;
    if (!dir_path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    rc = slash ? alq_file_mkdirs(dir_path, 0755, err) : 0;
    if (rc)
        return rc;
    alq_auto_close int dir_fd = alq_root_open(cfg->dev_root, dir, O_DIRECTORY, NULL, err);
    if (dir_fd < 0)
        return dir_fd;
    rc = make_at(dir_fd, slash ? slash + 1 : name, plan, is_replaced, err);
    if (!rc)
        alq_info(ALQ_LOG_KV({"node", plan->below}), "device node %s and has been made",
                 plan->wrong);
    return rc;
}

static int make_missing(const struct alq_config *cfg, const char *name, uint32_t mode,
                        const char *below, struct alq_err *err)
{
    struct alq_err why = ALQ_ERR_INIT;
    struct plan plan = {.below = below, .wrong = "is missing"};
    if (cfg->is_mknod && kernel_number(cfg, name, &plan.number, &why))
        return alq_err_set(err, ALQ_ENOENT,
                           "device node %s is missing, and so is its kernel module (%s): load it "
                           "(nvidia-modprobe -c 0 -u), or set --dev-root",
                           below, why.text);
    return make(cfg, name, mode, &plan, 0, err);
}

/* A node stays when its module is unloaded, and the next one may get other numbers: nvidia-uvm's
 * and nvidia-caps' majors are dynamic. What is a link leads to something that is not ours. */
static int remake_stale(const struct alq_config *cfg, const char *name, uint32_t mode,
                        const char *below, struct alq_err *err)
{
    char wrong[96];
    struct stat st;
    struct plan plan = {.below = below, .wrong = wrong};
    if (lstat(below, &st) || !S_ISCHR(st.st_mode) || kernel_number(cfg, name, &plan.number, NULL) ||
        plan.number == st.st_rdev)
        return 0;
    snprintf(wrong, sizeof(wrong), "is %u:%u where the driver has %u:%u", major(st.st_rdev),
             minor(st.st_rdev), major(plan.number), minor(plan.number));
    return make(cfg, name, mode, &plan, 1, err);
}

/* ---- dev/char ---------------------------------------------------------------------------------
 */

static int replace_link(const char *dir, const char *target, const char *path)
{
    int rc = EEXIST;
    for (int i = 0; i < NAME_TRIES && rc == EEXIST; i++) {
        char name[NAME_BYTES];
        next_name(name);
        alq_auto_free char *other = alq_str_printf("%s/%s", dir, name);
        if (!other)
            return ENOMEM;
        rc = symlink(target, other) ? errno : 0;
        if (!rc && rename(other, path)) {
            rc = errno;
            unlink(other);
            return rc;
        }
    }
    return rc;
}

static int link_char(const struct alq_config *cfg, const char *name, const struct stat *st)
{
    char link[64], target[128], have[128];
    snprintf(link, sizeof(link), "dev/char/%u:%u", major(st->st_rdev), minor(st->st_rdev));
    snprintf(target, sizeof(target), "../%s", name);
    alq_auto_free char *path = alq_root_join(cfg->dev_root, link);
    alq_auto_free char *dir = alq_root_join(cfg->dev_root, "dev/char");
    struct stat there;
    if (!path || !dir)
        return ENOMEM;
    if (!stat(path, &there) && S_ISCHR(there.st_mode) && there.st_rdev == st->st_rdev)
        return 0;
    if (alq_file_mkdirs(dir, 0755, NULL))
        return errno ? errno : EIO;
    if (!symlink(target, path))
        return 0;
    if (errno != EEXIST)
        return errno;
    /* It leads nowhere, or to another device that had the numbers before. */
    ssize_t n = readlink(path, have, sizeof(have) - 1);
    if (n < 0)
        return EEXIST;
    return replace_link(dir, target, path);
}

static void ensure_char_link(const struct alq_config *cfg, const char *name, const struct stat *st)
{
    static atomic_int is_told; /* relaxed: one line more or less */
    int rc = link_char(cfg, name, st);
    if (rc && !atomic_exchange_explicit(&is_told, 1, memory_order_relaxed))
        alq_warn(ALQ_LOG_KV({"node", name}),
                 "cannot be linked below %s/dev/char (%s): where the container runtime uses "
                 "systemd's cgroups, `systemctl daemon-reload` takes running containers their GPU; "
                 "--dev-char=false says that the links are not wanted",
                 strcmp(cfg->dev_root, "/") ? cfg->dev_root : "", strerror(rc));
}

/* ---- finding ----------------------------------------------------------------------------------
 */

static int find(const struct alq_config *cfg, const char *name, uint32_t mode,
                struct alq_driver_node *node, struct alq_err *err)
{
    alq_auto_free char *path = alq_str_printf("/dev/%s", name);
    alq_auto_free char *below = path ? alq_root_join(cfg->dev_root, path) : NULL;
    if (!below)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    alq_auto_free char *real = realpath(below, NULL);
    int is_missing = !real && errno == ENOENT;
    int rc = is_missing ? make_missing(cfg, name, mode, below, err)
                        : remake_stale(cfg, name, mode, below, err);
    if (rc)
        return rc;
    if (is_missing)
        real = realpath(below, NULL);
    struct stat st;
    if (!real || stat(real, &st))
        return alq_err_errno(err, errno, "device node %s", below);
    if (!S_ISCHR(st.st_mode))
        return alq_err_set(err, ALQ_EINVAL, "device node %s: %s is not a character device", below,
                           real);
    if (cfg->is_dev_char && !strncmp(name, "nvidia", 6))
        ensure_char_link(cfg, name, &st);
    node->path = alq_steal(&path);
    node->host_path = alq_steal(&real);
    node->mode = st.st_mode & 0777;
    node->gid = st.st_gid;
    return 0;
}

int alq_driver_node_find(const struct alq_config *cfg, const char *name,
                         struct alq_driver_node *node, struct alq_err *err)
{
    return find(cfg, name, ANY_MODE, node, err);
}

int alq_driver_capability_find(const struct alq_config *cfg, uint32_t minor, uint32_t mode,
                               struct alq_driver_node *node, struct alq_err *err)
{
    char name[48];
    snprintf(name, sizeof(name), "nvidia-caps/nvidia-cap%u", minor);
    return find(cfg, name, mode, node, err);
}

void alq_driver_node_clear(struct alq_driver_node *node)
{
    free(node->path);
    free(node->host_path);
    *node = (struct alq_driver_node){0};
}

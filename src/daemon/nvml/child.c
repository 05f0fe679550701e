/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquotd-nvml, the NVML child: loads the driver's libnvidia-ml.so.1 and answers each request on
 * descriptor 0 with one line on descriptor 3 (protocol.h). Single-threaded; it may hang or crash in
 * any call of the driver, which is why it is a process of its own. It ends when its parent does,
 * when the library on disk is replaced, and after it has said why there is no reading. It never
 * touches a share, a record or the network, and links nothing but libc and jansson.
 */
#include "daemon/nvml/child.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/elf.h"
#include "daemon/cdi/root.h"
#include "daemon/nvml/child_sample.h"
#include "daemon/nvml/child_use.h"

#define REQUEST_FD 0
#define REPLY_FD 3
#define DEPENDENCY_DEPTH_MAX 4

struct child_nvml nvml;

int child_give_up(struct child *c, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->reading.reason, sizeof(c->reading.reason), fmt, args);
    va_end(args);
    c->reading.code = code;
    return code;
}

const char *child_error_text(nvmlReturn_t status)
{
    const char *text = nvml.nvmlErrorString ? nvml.nvmlErrorString(status) : NULL;
    return text ? text : "no text";
}

int child_is_lost(nvmlReturn_t status)
{
    return status == NVML_ERROR_GPU_IS_LOST || status == NVML_ERROR_UNINITIALIZED ||
           status == NVML_ERROR_DRIVER_NOT_LOADED || status == NVML_ERROR_RESET_REQUIRED ||
           status == NVML_ERROR_UNKNOWN;
}

/* ---- loading ----------------------------------------------------------------------------------
 */

/*
 * Opens what the library needs from the directory it lies in, where the loader would not find it.
 * The C library's own parts are loaded already and found by name; they must never come from the
 * driver's root, which may hold a whole other system.
 */
static void open_dependencies(const char *path, unsigned depth)
{
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct alq_elf elf;
    if (depth > DEPENDENCY_DEPTH_MAX || fd < 0 || alq_elf_read(fd, path, &elf, NULL))
        return;
    int dir_len = (int)(strrchr(path, '/') - path);
    for (size_t i = 0; i < elf.needed_count; i++) {
        if (strchr(elf.needed[i], '/') || dlopen(elf.needed[i], RTLD_NOW | RTLD_GLOBAL))
            continue;
        alq_auto_free char *beside = alq_str_printf("%.*s/%s", dir_len, path, elf.needed[i]);
        if (!beside || access(beside, R_OK))
            continue;
        open_dependencies(beside, depth + 1);
        dlopen(beside, RTLD_NOW | RTLD_GLOBAL);
    }
}

static int find_library(struct child *c, const char *driver_root)
{
    for (const char *const *dir = alq_driver_library_dirs; *dir; dir++) {
        alq_auto_free char *name = alq_str_printf("%s/libnvidia-ml.so.1", *dir);
        alq_auto_close int fd =
            name ? alq_root_open(driver_root, name, O_PATH, &c->library, NULL) : -1;
        if (fd >= 0 && !fstat(fd, &c->library_stat))
            return 0;
    }
    char looked[ALQ_NVML_REASON_BYTES];
    size_t used = 0;
    for (const char *const *dir = alq_driver_library_dirs; *dir && used < sizeof(looked) - 1; dir++)
        used +=
            (size_t)snprintf(looked + used, sizeof(looked) - used, "%s%s", used ? ", " : "", *dir);
    return child_give_up(
        c, ALQ_ENOENT,
        "no libnvidia-ml.so.1 below %.64s (looked in %.120s); install NVIDIA's driver "
        "or set --driver-root",
        driver_root, looked);
}

static int load(struct child *c)
{
    open_dependencies(c->library, 0);
    void *handle = dlopen(c->library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return child_give_up(c, ALQ_ENOENT, "%s cannot be loaded: %s", c->library, dlerror());
#define RESOLVE(name, is_needed)                                                                   \
    *(void **)&nvml.name = dlsym(handle, #name);                                                   \
    if ((is_needed) && !nvml.name)                                                                 \
        return child_give_up(c, ALQ_ENOTSUP, "%s has no %s; the driver is too old", c->library,    \
                             #name);
    NVML_FUNCTIONS(RESOLVE)
#undef RESOLVE
    alq_child_sample_init(handle);
    nvmlReturn_t status = nvml.nvmlInit_v2();
    switch (status) {
    case NVML_SUCCESS:
        return 0;
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return child_give_up(c, ALQ_EAGAIN, "NVML: %s; load the nvidia kernel module",
                             child_error_text(status));
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return child_give_up(c, ALQ_EAGAIN, "NVML: %s; reload the nvidia kernel module or reboot",
                             child_error_text(status));
    case NVML_ERROR_NO_PERMISSION:
        return child_give_up(c, ALQ_EACCES, "NVML: %s; the daemon needs access to /dev/nvidiactl",
                             child_error_text(status));
    default:
        return child_give_up(c, ALQ_EAGAIN, "NVML: nvmlInit_v2 gives %d: %s", (int)status,
                             child_error_text(status));
    }
}

/* ---- requests ---------------------------------------------------------------------------------
 */

/* Another driver version was put where ours came from: the mapped one must go before it can be of
 * use. */
static int is_library_replaced(const struct child *c)
{
    struct stat now;
    return stat(c->library, &now) || now.st_dev != c->library_stat.st_dev ||
           now.st_ino != c->library_stat.st_ino || now.st_size != c->library_stat.st_size;
}

/* NVML shows a GPU that was plugged in later to a new process only. */
static int is_machine_changed(const struct child *c)
{
    alq_auto_free char *now = child_machine(c->dev_root);
    return now && c->machine && strcmp(now, c->machine) != 0;
}

int child_send(char *line)
{
    alq_auto_free char *text = line;
    if (!text)
        return -1;
    size_t len = strlen(text);
    text[len++] = '\n'; /* in place of the NUL */
    for (size_t sent = 0; sent < len;) {
        ssize_t n = write(REPLY_FD, text + sent, len - sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        sent += (size_t)n;
    }
    return 0;
}

/* Waits for a byte of the parent's; -1 when it is gone. */
static int next_byte(void)
{
    unsigned char byte;
    ssize_t n;
    do {
        n = read(REQUEST_FD, &byte, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1 ? byte : -1;
}

/* Whether this process has to give way to another one, which sees the machine as it is now. */
static int is_outdated(struct child *c)
{
    if (is_library_replaced(c))
        child_give_up(c, ALQ_EAGAIN, "%s was replaced", c->library);
    else if (is_machine_changed(c))
        child_give_up(c, ALQ_EAGAIN, "the GPUs of this machine are others than before");
    else
        return 0;
    return 1;
}

/* Returns whether the child goes on. */
static int answer_reading(struct child *c, const char *driver_root)
{
    int rc = 0;
    c->reading.code = 0;
    c->reading.left_out_count = 0;
    if (!c->library) {
        c->machine = child_machine(c->dev_root);
        rc = find_library(c, driver_root);
        if (!rc)
            rc = load(c);
    } else if (is_outdated(c)) {
        c->reading.is_restart_wanted = 1;
        rc = c->reading.code;
    } else if (c->is_stale) {
        c->reading.is_restart_wanted = 1;
        rc = child_give_up(c, ALQ_EAGAIN, "a GPU was lost, looking whether it is back");
    }
    if (!rc)
        rc = child_read(c);
    int is_sent = !child_send(alq_nvml_encode(&c->reading));
    alq_nvml_reading_clear(&c->reading);
    return !rc && is_sent;
}

static int answer_events(struct child *c)
{
    child_collect(c);
    c->events.is_reading_due |= is_outdated(c);
    return !child_send(alq_nvml_encode_events(&c->events));
}

static int answer_sample(struct child *c)
{
    struct alq_sample sample = {0};
    char *line = alq_child_sample(c, &sample) ? NULL : alq_sample_encode(&sample);
    alq_sample_clear(&sample);
    return !child_send(line);
}

static int answer_use(struct child *c)
{
    struct alq_use use = {0};
    char *line = alq_child_use(c, &use) ? NULL : alq_use_encode(&use);
    alq_use_clear(&use);
    return !child_send(line);
}

int main(int argc, char **argv)
{
    if (argc != 3 || fcntl(REPLY_FD, F_GETFD) < 0) {
        dprintf(2, "aliquotd-nvml is for aliquotd's own use\n");
        return 2;
    }
    prctl(PR_SET_NAME, "aliquotd-nvml");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);

    struct child *c = calloc(1, sizeof(*c));
    if (!c)
        return 1;
    c->dev_root = argv[2];
    for (int goes_on = 1, byte, index; goes_on && (byte = next_byte()) >= 0;) {
        switch (byte) {
        case ALQ_NVML_ASK_READING:
            goes_on = answer_reading(c, argv[1]);
            break;
        case ALQ_NVML_ASK_EVENTS:
            goes_on = c->library && answer_events(c);
            break;
        case ALQ_NVML_ASK_SAMPLE:
            goes_on = c->library && answer_sample(c);
            break;
        case ALQ_NVML_ASK_USE:
            goes_on = c->library && answer_use(c);
            break;
        case ALQ_NVML_SKIP:
            index = next_byte();
            goes_on = index >= 0 && index < (int)ALQ_NVML_GPUS_MAX;
            if (goes_on)
                c->skipped[index] = 1;
            break;
        default:
            goes_on = 0;
        }
    }
    /* No nvmlShutdown: the kernel releases the driver, and a broken driver may never come back from
     * it. */
    _exit(0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See child.h. Whether a process did anything is told by its status in /proc: as long as it sleeps
 * and the counts of context switches, the last lines, stay the same, it did not. */
#include "hook/child.h"

#include "hook/hook.h"
#include "hook/sys.h"
#include "vgpu/text.h"

#define LOOK_NS 250000000
#define LOOKS_MAX 8
#define TEXT_BYTES 8192

static void read_text(const char *path, char text[TEXT_BYTES])
{
    alq_auto_fd fd = alq_sys_open(path, O_RDONLY, 0);
    long n = fd < 0 ? fd : alq_sys_read(fd, text, TEXT_BYTES - 1);
    text[n > 0 ? n : 0] = '\0';
}

/* What follows the key in a text of lines, "" without it. */
static const char *value_of(const char *text, const char *key)
{
    while (*text && !alq_text_starts(text, key)) {
        while (*text && *text != '\n')
            text++;
        text += *text == '\n';
    }
    return *text ? text + alq_text_len(key) : text;
}

/* /proc/<pid>/status, "" when it cannot be read. The number is that of the host's /proc, whose PID
 * namespace may be another one than ours. */
static void read_status(int pidfd, char text[TEXT_BYTES])
{
    char path[64];
    uint64_t pid = 0;
    struct alq_text name = alq_text_on(path, sizeof(path));
    alq_text_add(&name, "/proc/self/fdinfo/");
    alq_text_add_u64(&name, (uint64_t)pidfd);
    read_text(path, text);
    const char *value = value_of(text, "Pid:\t");
    if (!alq_text_read_u64(&value, &pid) || !pid) {
        text[0] = '\0';
        return;
    }
    name = alq_text_on(path, sizeof(path));
    alq_text_add(&name, "/proc/");
    alq_text_add_u64(&name, pid);
    alq_text_add(&name, "/status");
    read_text(path, text);
}

/* Whether the process slept and did not run between two such texts. */
static bool is_asleep(const char *before, const char *now)
{
    const char *switches = value_of(now, "voluntary_ctxt_switches:");
    return alq_text_starts(value_of(now, "State:\t"), "S") && switches[0] &&
           alq_text_is(switches, value_of(before, "voluntary_ctxt_switches:"));
}

int alq_child_wait(int pid, int pidfd, int *status)
{
    static char texts[2][TEXT_BYTES];
    int rc, looks = 0;
    for (unsigned turn = 0; looks < LOOKS_MAX && !alq_sys_poll_in(pidfd, LOOK_NS); turn++) {
        char *now = texts[turn % 2];
        read_status(pidfd, now);
        looks = is_asleep(texts[(turn + 1) % 2], now) ? looks + 1 : 0;
    }
    if (looks == LOOKS_MAX)
        alq_sys_kill(pid, 9);
    do {
        rc = alq_sys_wait(pid, status);
    } while (rc == -EINTR);
    return rc < 0 ? rc : looks == LOOKS_MAX ? -ETIMEDOUT : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads NSpid of /proc/<pid>/status and walks the namespaces outwards with NS_GET_PARENT. Called by
 * simgpud's only thread.
 */
#include "daemon/pidns.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static uint32_t read_numbers(pid_t pid, pid_t *numbers)
{
    char path[64], line[1024];
    uint32_t count = 0;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    alq_auto_fclose FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        char *at = line + 6, *end;

        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        for (; count < SIM_PIDNS_LEVELS; count++, at = end) {
            long n = strtol(at, &end, 10);

            if (end == at)
                break;
            numbers[count] = (pid_t)n;
        }
        break;
    }
    return count;
}

/* Inodes from the process's own namespace outwards, `levels` of them. */
static int read_namespaces(pid_t pid, uint64_t *inodes, uint32_t levels)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (uint32_t i = 0; i < levels; i++) {
        if (fd < 0 || fstat(fd, &st) != 0)
            break;
        inodes[i] = st.st_ino;
        if (i + 1 == levels) {
            close(fd);
            return 0;
        }
        int parent = ioctl(fd, NS_GET_PARENT);
        close(fd);
        fd = parent;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

void sim_pidns_read(pid_t pid, struct sim_pidns *p)
{
    uint64_t outwards[SIM_PIDNS_LEVELS];

    memset(p, 0, sizeof(*p));
    p->levels = pid > 0 ? read_numbers(pid, p->pid) : 0;
    if (!p->levels || read_namespaces(pid, outwards, p->levels) != 0) {
        p->levels = 0;
        p->pid[0] = pid;
        return;
    }
    for (uint32_t i = 0; i < p->levels; i++)
        p->namespace_[i] = outwards[p->levels - 1 - i];
}

pid_t sim_pidns_translate(const struct sim_pidns *of, const struct sim_pidns *to)
{
    if (!of->levels || !to->levels)
        return of->pid[0];
    if (of->levels < to->levels || of->namespace_[to->levels - 1] != to->namespace_[to->levels - 1])
        return 0;
    return of->pid[to->levels - 1];
}

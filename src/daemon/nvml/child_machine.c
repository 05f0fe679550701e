/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the system shows of GPUs and driver without a call of NVML: the kernel module lists its GPUs
 * below /proc/driver/nvidia/gpus, each gets a device node, and /sys/module/nvidia is made anew by
 * each load of the module. All of it may be missing (containers, simulated GPUs).
 */
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/nvml/child.h"

static int is_gpu_node(const struct dirent *entry)
{
    return !strncmp(entry->d_name, "nvidia", 6) && isdigit((unsigned char)entry->d_name[6]);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Appends the names in dir that match, in order, to *text; -1 when out of memory. */
static int add_names(char **text, const char *dir, int (*is_wanted)(const struct dirent *entry))
{
    struct dirent **names = NULL;
    int count = scandir(dir, &names, is_wanted, alphasort);
    int rc = 0;
    for (int i = 0; i < count; i++) {
        char *longer = rc ? NULL : alq_str_printf("%s %s", *text, names[i]->d_name);
        if (longer) {
            free(*text);
            *text = longer;
        } else {
            rc = -1;
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

char *child_machine(const char *dev_root)
{
    alq_auto_free char *text = strdup("");
    alq_auto_free char *dev = alq_str_printf("%s/dev", dev_root);
    if (!text || !dev || add_names(&text, "/proc/driver/nvidia/gpus", is_visible) ||
        add_names(&text, dev, is_gpu_node))
        return NULL;
    return alq_steal(&text);
}

void child_module_load(char *text, size_t size)
{
    struct stat s;
    text[0] = '\0';
    if (!stat("/sys/module/nvidia", &s))
        snprintf(text, size, "%" PRIu64 ".%" PRId64 ".%09ld", (uint64_t)s.st_ino,
                 (int64_t)s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

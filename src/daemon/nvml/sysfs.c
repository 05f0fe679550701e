/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of a PCI device from sysfs, see sysfs.h. */
#include "daemon/nvml/sysfs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"

/* "pci<domain>:<bus>", as the kernel names the device of a host bridge. */
static int is_root_name(const char *name, size_t len)
{
    if (len < strlen("pci0000:00") || strncmp(name, "pci", 3))
        return 0;
    for (size_t i = 3; i < len; i++) {
        if (i == len - 3 ? name[i] != ':' : !isxdigit((unsigned char)name[i]))
            return 0;
    }
    return 1;
}

void alq_sysfs_pcie_root(const char *sys, const char *pci_address, char *root, size_t size)
{
    root[0] = '\0';
    alq_auto_free char *link = alq_str_printf("%s/bus/pci/devices/%s", sys, pci_address);
    alq_auto_free char *path = link && *pci_address ? realpath(link, NULL) : NULL;
    /* The first such name from the top; on Hyper-V it lies below LNXSYSTM and VMBUS directories. */
    for (const char *step = path; step && *step;) {
        const char *end = strchrnul(step + 1, '/');
        size_t len = (size_t)(end - step - 1);
        if (is_root_name(step + 1, len)) {
            snprintf(root, size, "%.*s", (int)len, step + 1);
            return;
        }
        step = end;
    }
}

int alq_sysfs_numa_node(const char *sys, const char *pci_address)
{
    alq_auto_free char *path = alq_str_printf("%s/bus/pci/devices/%s/numa_node", sys, pci_address);
    alq_auto_fclose FILE *f = path && *pci_address ? fopen(path, "re") : NULL;
    int node = -1;
    if (!f || fscanf(f, "%d", &node) != 1 || node < 0)
        return -1;
    return node;
}

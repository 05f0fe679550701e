/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a PCI device sits, as /sys tells. Everything may be missing (virtual machines, simulated
 * GPUs, containers without /sys): then it is unknown, never an error. Blocking file I/O; any
 * thread.
 */
#ifndef ALQ_DAEMON_NVML_SYSFS_H
#define ALQ_DAEMON_NVML_SYSFS_H

#include <stddef.h>

/* "pci0000:64", the root complex above the device; "" unknown. sys is "/sys". */
void alq_sysfs_pcie_root(const char *sys, const char *pci_address, char *root, size_t size);

/* -1 unknown. */
int alq_sysfs_numa_node(const char *sys, const char *pci_address);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loaded kernel module says of itself, below cfg->kernel_root: its version, how device
 * nodes are to be made, which GPU has which minor, and its capability files. The parsers are pure
 * and trust nothing; the rest is blocking file I/O. No state, any thread.
 */
#ifndef ALQ_DAEMON_CDI_KERNEL_H
#define ALQ_DAEMON_CDI_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/config.h"

#define ALQ_DRIVER_VERSION_BYTES 32

/* "550.163.01": numbers with points between, two at least. */
int alq_driver_version_is_valid(const char *text);

/* <0, 0, >0 as a is older than, as old as, newer than b; number by number. */
int alq_driver_version_cmp(const char *a, const char *b);

/* The version of the loaded module; "" when no module says one (not loaded, or a platform without
 * the file). Cheap: one small file. */
void alq_kernel_version(const struct alq_config *cfg, char version[ALQ_DRIVER_VERSION_BYTES]);

/* Of proc/driver/nvidia/params. */
struct alq_kernel_params {
    int is_modify_allowed; /* ModifyDeviceFiles: user space may make nodes */
    uint32_t uid, gid;
    uint32_t mode; /* permission bits */
};

/* The driver's defaults (0666, root, allowed) where the file says nothing. */
void alq_kernel_params(const struct alq_config *cfg, struct alq_kernel_params *params);
void alq_kernel_params_parse(const char *text, struct alq_kernel_params *params);

/* The major number of the first of names (NULL-terminated) that is a character device in
 * proc/devices; ALQ_ENOENT: none is, so the module that makes it is not loaded. */
int alq_kernel_major(const struct alq_config *cfg, const char *const *names, unsigned *major,
                     struct alq_err *err);
int alq_kernel_major_parse(const char *text, const char *name, unsigned *major);

/* Value of the line "<key>: <number>" of a text of the driver's; 0 or ALQ_ENOENT. */
int alq_kernel_number(const char *text, const char *key, uint32_t *value);

/* Reads root/path (a kernel file: its size says nothing) into text, cut at size. 0 or a code. */
int alq_kernel_read(const struct alq_config *cfg, const char *path, char *text, size_t size,
                    struct alq_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The files of NVIDIA's kernel module, see kernel.h. Formats as drivers 470 to 580 write them. */
#include "daemon/cdi/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/cdi/root.h"

#define TEXT_BYTES 16384
#define MAJOR_MAX 4095u /* 12 bits in the kernel's dev_t */

int alq_driver_version_is_valid(const char *text)
{
    size_t len = strlen(text);
    return len > 2 && len < ALQ_DRIVER_VERSION_BYTES && strchr(text, '.') &&
           strspn(text, "0123456789.") == len && text[0] != '.' && text[len - 1] != '.' &&
           !strstr(text, "..");
}

int alq_driver_version_cmp(const char *a, const char *b)
{
    while (*a && *b) {
        char *a_end, *b_end;
        unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
        if (x != y)
            return x < y ? -1 : 1;
        a = a_end + (*a_end == '.');
        b = b_end + (*b_end == '.');
    }
    return (*a != '\0') - (*b != '\0');
}

int alq_kernel_read(const struct alq_config *cfg, const char *path, char *text, size_t size,
                    struct alq_err *err)
{
    size_t used = 0;
    alq_auto_close int fd = alq_root_open(cfg->kernel_root, path, 0, NULL, err);
    text[0] = '\0';
    if (fd < 0)
        return fd;
    while (used + 1 < size) {
        ssize_t n = read(fd, text + used, size - 1 - used);
        if (n < 0)
            return alq_err_errno(err, errno, "read %s", path);
        if (n == 0)
            break;
        used += (size_t)n;
    }
    text[used] = '\0';
    return 0;
}

void alq_kernel_version(const struct alq_config *cfg, char version[ALQ_DRIVER_VERSION_BYTES])
{
    char text[1024];
    version[0] = '\0';
    if (alq_kernel_read(cfg, "proc/driver/nvidia/version", text, sizeof(text), NULL))
        return;
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue ...", the open module with
     * other words before the number, and below it the compiler's version. */
    char *line_end = strchr(text, '\n'), *state = NULL;
    if (line_end)
        *line_end = '\0';
    for (char *word = strtok_r(text, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
        if (alq_driver_version_is_valid(word)) {
            snprintf(version, ALQ_DRIVER_VERSION_BYTES, "%s", word);
            return;
        }
    }
}

int alq_kernel_number(const char *text, const char *key, uint32_t *value)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        line += strspn(line, " \t");
        if (strncmp(line, key, len) != 0)
            continue;
        const char *rest = line + len + strspn(line + len, " \t");
        if (*rest != ':')
            continue;
        rest += 1 + strspn(rest + 1, " \t");
        char *end;
        unsigned long long number = strtoull(rest, &end, 10);
        if (end == rest || *rest == '-' || number > UINT32_MAX ||
            (*end && !strchr(" \t\r\n", *end)))
            return ALQ_ENOENT;
        *value = (uint32_t)number;
        return 0;
    }
    return ALQ_ENOENT;
}

void alq_kernel_params_parse(const char *text, struct alq_kernel_params *params)
{
    uint32_t value;
    *params = (struct alq_kernel_params){.is_modify_allowed = 1, .mode = 0666};
    if (!alq_kernel_number(text, "ModifyDeviceFiles", &value))
        params->is_modify_allowed = value != 0;
    if (!alq_kernel_number(text, "DeviceFileUID", &value))
        params->uid = value;
    if (!alq_kernel_number(text, "DeviceFileGID", &value))
        params->gid = value;
    if (!alq_kernel_number(text, "DeviceFileMode", &value))
        params->mode = value & 0777;
}

void alq_kernel_params(const struct alq_config *cfg, struct alq_kernel_params *params)
{
    char text[TEXT_BYTES];
    (void)alq_kernel_read(cfg, "proc/driver/nvidia/params", text, sizeof(text), NULL);
    alq_kernel_params_parse(text, params);
}

int alq_kernel_major_parse(const char *text, const char *name, unsigned *major)
{
    const char *line = strstr(text, "Character devices:");
    const char *end = line ? strstr(line, "Block devices:") : NULL;
    size_t len = strlen(name);
    for (line = line ? strchr(line, '\n') : NULL; line && (!end || line < end);
         line = strchr(line + 1, '\n')) {
        char *rest;
        unsigned long number = strtoul(line + 1, &rest, 10);
        if (rest == line + 1 || *rest != ' ' || number > MAJOR_MAX ||
            strncmp(rest + 1, name, len) != 0 || (rest[1 + len] && rest[1 + len] != '\n'))
            continue;
        *major = (unsigned)number;
        return 0;
    }
    return ALQ_ENOENT;
}

int alq_kernel_major(const struct alq_config *cfg, const char *const *names, unsigned *major,
                     struct alq_err *err)
{
    char text[TEXT_BYTES];
    int rc = alq_kernel_read(cfg, "proc/devices", text, sizeof(text), err);
    if (rc)
        return rc;
    for (const char *const *name = names; *name; name++) {
        if (!alq_kernel_major_parse(text, *name, major))
            return 0;
    }
    return alq_err_set(err, ALQ_ENOENT, "%s is not among the character devices of %s/proc/devices",
                       names[0], strcmp(cfg->kernel_root, "/") ? cfg->kernel_root : "");
}

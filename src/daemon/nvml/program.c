/* SPDX-License-Identifier: Apache-2.0 */
/* Where the NVML child's program lies, see program.h. */
#include "daemon/nvml/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

int alq_nvml_program_dir(char **dir, struct alq_err *err)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return alq_err_errno(err, errno, "readlink /proc/self/exe (is /proc mounted?)");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    *dir = slash ? strndup(path, (size_t)(slash - path)) : NULL;
    return *dir ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

int alq_nvml_program_open(const char *dir, int *fd, struct alq_err *err)
{
    alq_auto_free char *beside = alq_str_printf("%s/" ALQ_NVML_PROGRAM, dir);
    alq_auto_free char *near = alq_str_printf("%s/../libexec/aliquot/" ALQ_NVML_PROGRAM, dir);
    const char *const places[] = {beside, near, ALQ_LIBEXEC_DIR "/" ALQ_NVML_PROGRAM};
    if (!beside || !near)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (access(places[i], X_OK))
            continue;
        *fd = open(places[i], O_PATH | O_CLOEXEC);
        return *fd >= 0 ? 0 : alq_err_errno(err, errno, "open %s", places[i]);
    }
    return alq_err_set(err, ALQ_ENOENT,
                       "the NVML reader " ALQ_NVML_PROGRAM
                       " is not installed (looked for %s, %s and %s); install aliquot as a whole",
                       places[0], places[1], places[2]);
}

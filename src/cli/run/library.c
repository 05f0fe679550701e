/* SPDX-License-Identifier: Apache-2.0 */
/* Finding libvgpu.so, see library.h. */
#include "cli/run/library.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

static char *beside_tool(void)
{
    static const char *const places[] = {"../libexec/aliquot/libvgpu.so", "../vgpu/libvgpu.so"};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        alq_auto_free char *path = alq_str_printf("%s/%s", exe, places[i]);
        char *found = path ? realpath(path, NULL) : NULL;
        if (found)
            return found;
    }
    return realpath(ALQ_LIBEXEC_DIR "/libvgpu.so", NULL);
}

char *alq_run_library(const char *given, struct alq_err *err)
{
    alq_auto_free char *path = given ? realpath(given, NULL) : beside_tool();
    if (!path && given)
        alq_err_errno(err, errno, "--library %s", given);
    else if (!path)
        alq_err_set(err, ALQ_ENOENT,
                    "libvgpu.so is not beside this program; install aliquot as a whole, or name it "
                    "with --library");
    else if (access(path, R_OK))
        alq_err_errno(err, errno, "%s", path);
    else if (path[strcspn(path, " \t\n:")])
        alq_err_set(err, ALQ_EINVAL,
                    "%s: the loader takes no blank or colon in the path of a preloaded library; "
                    "install it elsewhere",
                    path);
    else
        return alq_steal(&path);
    return NULL;
}

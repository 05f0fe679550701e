/* SPDX-License-Identifier: Apache-2.0 */
/* Finding libvgpu.so, see library.h. */
#include "cli/run/library.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

char *alq_run_library(const char *given, struct alq_err *err)
{
    alq_auto_free char *beside =
        given ? NULL : alq_file_beside("libvgpu.so", "vgpu", ALQ_LIBEXEC_DIR);
    const char *wanted = given ? given : beside;
    alq_auto_free char *path = wanted ? realpath(wanted, NULL) : NULL;
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

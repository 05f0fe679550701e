/* SPDX-License-Identifier: Apache-2.0 */
/* Labels, see label.h. A file that has a label shows that the host labels files: no need to ask
 * whether selinuxfs is mounted, which in a container it often is not. */
#include "daemon/cdi/label.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define ALQ_LOG_MODULE "cdi"
#define ATTRIBUTE "security.selinux"
#define LABEL "system_u:object_r:container_file_t:s0"

void alq_label_fd_for_containers(int fd, const char *path)
{
    static atomic_int is_told; /* relaxed: one line more or less */
    char have[256] = "";
    ssize_t n = fgetxattr(fd, ATTRIBUTE, have, sizeof(have) - 1);
    if (n <= 0 || !strcmp(have, LABEL))
        return;
    if (!fsetxattr(fd, ATTRIBUTE, LABEL, sizeof(LABEL), 0) ||
        atomic_exchange_explicit(&is_told, 1, memory_order_relaxed))
        return;
    alq_warn(ALQ_LOG_KV({"file", path}, {"label", have}),
             "cannot be labelled " LABEL " (%s): confined containers will not be able to use it; "
             "install the policy for containers (container-selinux)",
             strerror(errno));
}

void alq_label_for_containers(const char *path)
{
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        alq_label_fd_for_containers(fd, path);
}

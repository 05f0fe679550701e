/* SPDX-License-Identifier: Apache-2.0 */
/* Access lists as the kernel takes them, see access.h (linux/posix_acl_xattr.h, acl(5)). */
#include "daemon/standalone/access.h"

#include <endian.h>
#include <errno.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define NOBODY ((uint32_t)ACL_UNDEFINED_ID)

struct list {
    struct posix_acl_xattr_header header;
    struct posix_acl_xattr_entry entries[5];
};

int alq_access_grant(const char *dir, uid_t user, struct alq_err *err)
{
    const unsigned all = ACL_READ | ACL_WRITE | ACL_EXECUTE, look = ACL_READ | ACL_EXECUTE;
    const struct list list = {.header = {.a_version = htole32(POSIX_ACL_XATTR_VERSION)},
                              .entries = {{htole16(ACL_USER_OBJ), htole16(all), htole32(NOBODY)},
                                          {htole16(ACL_USER), htole16(look), htole32(user)},
                                          {htole16(ACL_GROUP_OBJ), 0, htole32(NOBODY)},
                                          {htole16(ACL_MASK), htole16(look), htole32(NOBODY)},
                                          {htole16(ACL_OTHER), 0, htole32(NOBODY)}}};
    if (!setxattr(dir, "system.posix_acl_access", &list, sizeof(list), 0))
        return 0;
    if (errno == EOPNOTSUPP && !chmod(dir, 0755))
        return 0;
    return alq_err_errno(err, errno, "access list of %s", dir);
}

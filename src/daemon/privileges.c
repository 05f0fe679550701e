/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capabilities by the kernel's own calls, see privileges.h.
 */
#include "daemon/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    unsigned capability;
    const char *name, *purpose;
} needed[] = {
    {CAP_CHOWN, "CAP_CHOWN",
     "to give the admin socket, and device nodes that it makes, to their owners"},
    {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "to read files that a container has made unreadable"},
    {CAP_FOWNER, "CAP_FOWNER", "to set right the mode of files that a container has given away"},
    {CAP_MKNOD, "CAP_MKNOD", "for the device nodes that it and NVML make where they are missing"},
    {CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "to see which share a process of a container belongs to"},
};

static int get(uint64_t *effective, uint64_t *permitted)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &header, data))
        return -1;
    *effective = (uint64_t)data[1].effective << 32 | data[0].effective;
    *permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
    return 0;
}

static int set(uint64_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)kept, .permitted = (uint32_t)kept},
        {.effective = (uint32_t)(kept >> 32), .permitted = (uint32_t)(kept >> 32)},
    };
    return (int)syscall(SYS_capset, &header, data);
}

int alq_privileges_drop(struct alq_err *err)
{
    uint64_t effective = 0, permitted = 0, kept = 0;
    if (get(&effective, &permitted))
        return alq_err_errno(err, errno, "capabilities");
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        uint64_t bit = UINT64_C(1) << needed[i].capability;
        if (!(permitted & bit) && geteuid() == 0)
            return alq_err_set(err, ALQ_EACCES,
                               "capability %s is missing: it is needed %s; add it "
                               "(AmbientCapabilities, CapabilityBoundingSet, or the container's "
                               "securityContext.capabilities.add)",
                               needed[i].name, needed[i].purpose);
        kept |= permitted & bit;
    }
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    /* The bounding set can be lowered only by who has CAP_SETPCAP; who has not got it can gain
     * nothing by no_new_privs. */
    for (unsigned c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (!(kept >> c & 1))
            prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || set(kept))
        return alq_err_errno(err, errno, "dropping capabilities");
    return 0;
}

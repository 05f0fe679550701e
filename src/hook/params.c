/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disable-device-node-modification: NVIDIA's programs make missing device nodes as
 * /proc/driver/nvidia/params allows, and would make those of GPUs that are not the container's. In
 * the container the file gets another text, a read-only mount that says ModifyDeviceFiles: 0.
 */
#include "hook/container.h"
#include "hook/sys.h"
#include "hook/tmpfs.h"
#include "vgpu/text.h"

#define PARAMS_PATH "/proc/driver/nvidia/params"
#define PARAMS_BYTES 65536
#define KEY "ModifyDeviceFiles: "

/* Puts 0 behind the key. False when it is 0 already, or the driver has no such line. */
static bool forbid(const char *params, struct alq_text *out)
{
    bool is_changed = false;
    while (*params) {
        size_t len = 0;
        while (params[len] && params[len] != '\n')
            len++;
        len += params[len] == '\n';
        if (alq_text_starts(params, KEY) && !alq_text_starts(params, KEY "0\n")) {
            alq_text_add(out, KEY "0\n");
            is_changed = true;
        } else {
            alq_text_add_n(out, params, len);
        }
        params += len;
    }
    return is_changed;
}

int alq_disable_device_node_modification(const struct alq_container *container, char **args,
                                         int count)
{
    static char old[PARAMS_BYTES], changed[PARAMS_BYTES + sizeof(KEY)];
    struct alq_text text = alq_text_on(changed, sizeof(changed));
    const struct alq_rootfs *rootfs = &container->rootfs;
    (void)args;
    (void)count;
    alq_auto_fd target = alq_rootfs_open(rootfs, PARAMS_PATH);
    if (target == -ENOENT || target == -ENOTDIR) /* no driver, or no /proc */
        return 0;
    long len = target < 0 ? target : alq_rootfs_read(rootfs, target, old, sizeof(old));
    if (len < 0)
        return alq_report(PARAMS_PATH, "reading", (int)len);
    if (!forbid(old, &text))
        return 0;
    int rc = alq_tmpfs_cover(container, PARAMS_PATH, text.at, text.len);
    return rc ? alq_report(PARAMS_PATH, "mounting over it", rc) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of wanted.h. */
#include "daemon/cdi/wanted.h"

#include <stddef.h>
#include <string.h>

#include "daemon/cdi/inject.h"

/* Libraries without ".so.<version>". */
static const struct {
    const char *name;
    uint32_t set;
} libraries[] = {
    {"libcuda", ALQ_INJECT_COMPUTE},
    {"libcudadebugger", ALQ_INJECT_COMPUTE},
    {"libnvidia-allocator", ALQ_INJECT_COMPUTE},
    {"libnvidia-compiler", ALQ_INJECT_COMPUTE},
    {"libnvidia-fatbinaryloader", ALQ_INJECT_COMPUTE},
    {"libnvidia-gpucomp", ALQ_INJECT_COMPUTE},
    {"libnvidia-nvvm", ALQ_INJECT_COMPUTE},
    {"libnvidia-opencl", ALQ_INJECT_COMPUTE},
    {"libnvidia-pkcs11", ALQ_INJECT_COMPUTE},
    {"libnvidia-pkcs11-openssl3", ALQ_INJECT_COMPUTE},
    {"libnvidia-ptxjitcompiler", ALQ_INJECT_COMPUTE},
    {"libnvidia-tileiras", ALQ_INJECT_COMPUTE},
    {"libnvidia-cfg", ALQ_INJECT_UTILITY},
    {"libnvidia-ml", ALQ_INJECT_UTILITY},
    {"libnvidia-nscq", ALQ_INJECT_UTILITY},
    {"libnvidia-sandboxutils", ALQ_INJECT_UTILITY},
    {"libnvcuvid", ALQ_INJECT_VIDEO},
    {"libnvcuextend", ALQ_INJECT_VIDEO},
    {"libnvidia-encode", ALQ_INJECT_VIDEO},
    {"libnvidia-opticalflow", ALQ_INJECT_VIDEO},
    {"libvdpau_nvidia", ALQ_INJECT_VIDEO},
    {"libEGL_nvidia", ALQ_INJECT_GRAPHICS},
    {"libGLESv1_CM_nvidia", ALQ_INJECT_GRAPHICS},
    {"libGLESv2_nvidia", ALQ_INJECT_GRAPHICS},
    {"libGLX_nvidia", ALQ_INJECT_GRAPHICS},
    {"libnvidia-cbl", ALQ_INJECT_GRAPHICS},
    {"libnvidia-eglcore", ALQ_INJECT_GRAPHICS},
    {"libnvidia-fbc", ALQ_INJECT_GRAPHICS},
    {"libnvidia-glcore", ALQ_INJECT_GRAPHICS},
    {"libnvidia-glsi", ALQ_INJECT_GRAPHICS},
    {"libnvidia-glvkspirv", ALQ_INJECT_GRAPHICS},
    {"libnvidia-ifr", ALQ_INJECT_GRAPHICS},
    {"libnvidia-ngx", ALQ_INJECT_GRAPHICS},
    {"libnvidia-present", ALQ_INJECT_GRAPHICS},
    {"libnvidia-rtcore", ALQ_INJECT_GRAPHICS},
    {"libnvidia-tls", ALQ_INJECT_GRAPHICS},
    {"libnvidia-vksc-core", ALQ_INJECT_GRAPHICS},
    {"libnvidia-vulkan-producer", ALQ_INJECT_GRAPHICS},
    {"libnvoptix", ALQ_INJECT_GRAPHICS},
    /* nvidia-settings and the X server, which do not run in containers. */
    {"libglxserver_nvidia", 0},
    {"libnvidia-gtk2", 0},
    {"libnvidia-gtk3", 0},
    {"libnvidia-wayland-client", 0},
};

/* Libraries that come with the driver but have versions of their own. */
static const struct {
    const char *name;
    uint32_t set;
} of_any_version[] = {
    {"libnvidia-nvvm70", ALQ_INJECT_COMPUTE},        {"libnvidia-api", ALQ_INJECT_GRAPHICS},
    {"libnvidia-egl-gbm", ALQ_INJECT_GRAPHICS},      {"libnvidia-egl-wayland", ALQ_INJECT_GRAPHICS},
    {"libnvidia-egl-wayland2", ALQ_INJECT_GRAPHICS}, {"libnvidia-egl-xcb", ALQ_INJECT_GRAPHICS},
    {"libnvidia-egl-xlib", ALQ_INJECT_GRAPHICS},
};

const struct alq_wanted_file alq_wanted_programs[] = {
    {"nvidia-smi", ALQ_INJECT_UTILITY},
    {"nvidia-debugdump", ALQ_INJECT_UTILITY},
    {"nvidia-persistenced", ALQ_INJECT_UTILITY},
    {"nvidia-cuda-mps-control", ALQ_INJECT_COMPUTE},
    {"nvidia-cuda-mps-server", ALQ_INJECT_COMPUTE},
    {"nvidia-imex", ALQ_INJECT_IMEX},
    {"nvidia-imex-ctl", ALQ_INJECT_IMEX},
    {NULL, 0},
};

/* Distributions; Debian without its alternatives; COS and Talos; driver containers; Bottlerocket
 * has them in usr/bin. */
const char *const alq_wanted_bin_dirs[] = {
    "usr/bin",
    "bin",
    "usr/sbin",
    "usr/local/bin",
    "usr/lib/nvidia/current",
    "usr/local/nvidia/bin",
    "opt/nvidia/bin",
    "run/current-system/sw/bin",
    NULL,
};

const struct alq_wanted_file alq_wanted_data[] = {
    {"etc/OpenCL/vendors/nvidia.icd", ALQ_INJECT_COMPUTE},
    {"usr/share/nvidia/nvoptix.bin", ALQ_INJECT_GRAPHICS},
    {"usr/share/glvnd/egl_vendor.d/10_nvidia.json", ALQ_INJECT_GRAPHICS},
    {"etc/glvnd/egl_vendor.d/10_nvidia.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/vulkan/icd.d/nvidia_icd.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/vulkan/icd.d/nvidia_icd.x86_64.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/vulkan/icd.d/nvidia_icd.aarch64.json", ALQ_INJECT_GRAPHICS},
    {"etc/vulkan/icd.d/nvidia_icd.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/vulkan/implicit_layer.d/nvidia_layers.json", ALQ_INJECT_GRAPHICS},
    {"etc/vulkan/implicit_layer.d/nvidia_layers.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json", ALQ_INJECT_GRAPHICS},
    {"usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json", ALQ_INJECT_GRAPHICS},
    {NULL, 0},
};

const struct alq_wanted_file alq_wanted_sockets[] = {
    {"run/nvidia-persistenced/socket", ALQ_INJECT_SOCKETS},
    {"run/nvidia-fabricmanager/socket", ALQ_INJECT_SOCKETS},
    {"tmp/nvidia-mps", ALQ_INJECT_SOCKETS},
    {NULL, 0},
};

/* Programs that were not linked against the driver open it as libcuda.so; libvdpau and libgbm look
 * where it says. */
const struct alq_wanted_link alq_wanted_links[] = {
    {"libcuda.so.1", "libcuda.so", "libcuda.so.1", ALQ_INJECT_COMPUTE},
    {"libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1",
     ALQ_INJECT_VIDEO},
    {"libGLX_nvidia.so.0", "libGLX_indirect.so.0", "libGLX_nvidia.so.0", ALQ_INJECT_GRAPHICS},
    {"libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1",
     ALQ_INJECT_GRAPHICS},
    {NULL, NULL, NULL, 0},
};

uint32_t alq_wanted_library(const char *name, const char *version)
{
    const char *so = strstr(name, ".so.");
    size_t len = so ? (size_t)(so - name) : 0;
    if (!len)
        return 0;
    for (size_t i = 0; i < sizeof(of_any_version) / sizeof(of_any_version[0]); i++) {
        if (strlen(of_any_version[i].name) == len && !strncmp(of_any_version[i].name, name, len))
            return of_any_version[i].set;
    }
    if (strcmp(so + 4, version) != 0)
        return 0;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        if (strlen(libraries[i].name) == len && !strncmp(libraries[i].name, name, len))
            return libraries[i].set;
    }
    return strncmp(name, "libnv", 5) && strncmp(name, "libcu", 5) ? 0 : ALQ_INJECT_COMPUTE;
}

int alq_wanted_is_vdpau(const char *name)
{
    return !strncmp(name, "libvdpau_nvidia.so.", strlen("libvdpau_nvidia.so."));
}

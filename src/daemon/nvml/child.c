/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquotd-nvml, the NVML child: loads the driver's libnvidia-ml.so.1 and answers each byte on
 * descriptor 0 with one line on descriptor 3. Single-threaded; it may hang or crash in any call of
 * the driver, which is why it is a process of its own. It ends when its parent does, when the
 * library on disk is replaced, and after it has said why there is no reading. It never touches a
 * share, a record or the network, and links nothing but libc and jansson.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aliquot/nvml_abi.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/elf.h"
#include "daemon/cdi/root.h"
#include "daemon/nvml/child_sample.h"
#include "daemon/nvml/protocol.h"
#include "daemon/nvml/sysfs.h"

#define REQUEST_FD 0
#define REPLY_FD 3
#define DEPENDENCY_DEPTH_MAX 4

/* The functions used: name, whether a driver without it is too old for us. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(nvmlInit_v2, 1)                                                                              \
    X(nvmlErrorString, 0)                                                                          \
    X(nvmlSystemGetDriverVersion, 1)                                                               \
    X(nvmlSystemGetCudaDriverVersion, 0)                                                           \
    X(nvmlSystemGetCudaDriverVersion_v2, 0)                                                        \
    X(nvmlDeviceGetCount_v2, 1)                                                                    \
    X(nvmlDeviceGetHandleByIndex_v2, 1)                                                            \
    X(nvmlDeviceGetUUID, 1)                                                                        \
    X(nvmlDeviceGetMinorNumber, 1)                                                                 \
    X(nvmlDeviceGetName, 1)                                                                        \
    X(nvmlDeviceGetBrand, 0)                                                                       \
    X(nvmlDeviceGetCudaComputeCapability, 1)                                                       \
    X(nvmlDeviceGetPciInfo_v3, 1)                                                                  \
    X(nvmlDeviceGetMemoryInfo, 1)                                                                  \
    X(nvmlDeviceGetMemoryInfo_v2, 0)                                                               \
    X(nvmlDeviceGetMigMode, 0)

static struct {
#define MEMBER(name, is_needed) __typeof__(&name) name;
    NVML_FUNCTIONS(MEMBER)
#undef MEMBER
} nvml;

struct child {
    char *library; /* path of libnvidia-ml on the host */
    struct stat library_stat;
    int is_stale; /* a GPU or the driver went away: only a new process may see it come back */
    struct alq_nvml_reading reading;
};

static int give_up(struct child *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int give_up(struct child *c, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->reading.reason, sizeof(c->reading.reason), fmt, args);
    va_end(args);
    c->reading.code = code;
    return code;
}

static const char *nvml_text(nvmlReturn_t status)
{
    const char *text = nvml.nvmlErrorString ? nvml.nvmlErrorString(status) : NULL;
    return text ? text : "no text";
}

/* ---- loading ----------------------------------------------------------------------------------
 */

/*
 * Opens what the library needs from the directory it lies in, where the loader would not find it.
 * The C library's own parts are loaded already and found by name; they must never come from the
 * driver's root, which may hold a whole other system.
 */
static void open_dependencies(const char *path, unsigned depth)
{
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct alq_elf elf;
    if (depth > DEPENDENCY_DEPTH_MAX || fd < 0 || alq_elf_read(fd, path, &elf, NULL))
        return;
    int dir_len = (int)(strrchr(path, '/') - path);
    for (size_t i = 0; i < elf.needed_count; i++) {
        if (strchr(elf.needed[i], '/') || dlopen(elf.needed[i], RTLD_NOW | RTLD_GLOBAL))
            continue;
        alq_auto_free char *beside = alq_str_printf("%.*s/%s", dir_len, path, elf.needed[i]);
        if (!beside || access(beside, R_OK))
            continue;
        open_dependencies(beside, depth + 1);
        dlopen(beside, RTLD_NOW | RTLD_GLOBAL);
    }
}

static int find_library(struct child *c, const char *driver_root)
{
    for (const char *const *dir = alq_driver_library_dirs; *dir; dir++) {
        alq_auto_free char *name = alq_str_printf("%s/libnvidia-ml.so.1", *dir);
        alq_auto_close int fd =
            name ? alq_root_open(driver_root, name, O_PATH, &c->library, NULL) : -1;
        if (fd >= 0 && !fstat(fd, &c->library_stat))
            return 0;
    }
    char looked[ALQ_NVML_REASON_BYTES];
    size_t used = 0;
    for (const char *const *dir = alq_driver_library_dirs; *dir && used < sizeof(looked) - 1; dir++)
        used +=
            (size_t)snprintf(looked + used, sizeof(looked) - used, "%s%s", used ? ", " : "", *dir);
    return give_up(c, ALQ_ENOENT,
                   "no libnvidia-ml.so.1 below %.64s (looked in %.120s); install NVIDIA's driver "
                   "or set --driver-root",
                   driver_root, looked);
}

static int load(struct child *c)
{
    open_dependencies(c->library, 0);
    void *handle = dlopen(c->library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return give_up(c, ALQ_ENOENT, "%s cannot be loaded: %s", c->library, dlerror());
#define RESOLVE(name, is_needed)                                                                   \
    *(void **)&nvml.name = dlsym(handle, #name);                                                   \
    if ((is_needed) && !nvml.name)                                                                 \
        return give_up(c, ALQ_ENOTSUP, "%s has no %s; the driver is too old", c->library, #name);
    NVML_FUNCTIONS(RESOLVE)
#undef RESOLVE
    alq_child_sample_init(handle);
    nvmlReturn_t status = nvml.nvmlInit_v2();
    switch (status) {
    case NVML_SUCCESS:
        return 0;
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return give_up(c, ALQ_EAGAIN, "NVML: %s; load the nvidia kernel module", nvml_text(status));
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return give_up(c, ALQ_EAGAIN, "NVML: %s; reload the nvidia kernel module or reboot",
                       nvml_text(status));
    case NVML_ERROR_NO_PERMISSION:
        return give_up(c, ALQ_EACCES, "NVML: %s; the daemon needs access to /dev/nvidiactl",
                       nvml_text(status));
    default:
        return give_up(c, ALQ_EAGAIN, "NVML: nvmlInit_v2 gives %d: %s", (int)status,
                       nvml_text(status));
    }
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static const char *brand_text(nvmlBrandType_t brand)
{
    static const char *const names[] = {
        [NVML_BRAND_QUADRO] = "Quadro",
        [NVML_BRAND_TESLA] = "Tesla",
        [NVML_BRAND_NVS] = "NVS",
        [NVML_BRAND_GRID] = "Grid",
        [NVML_BRAND_GEFORCE] = "GeForce",
        [NVML_BRAND_TITAN] = "Titan",
        [NVML_BRAND_NVIDIA_VAPPS] = "NvidiaVApps",
        [NVML_BRAND_NVIDIA_VPC] = "NvidiaVPC",
        [NVML_BRAND_NVIDIA_VCS] = "NvidiaVCS",
        [NVML_BRAND_NVIDIA_VWS] = "NvidiaVWS",
        [NVML_BRAND_NVIDIA_CLOUD_GAMING] = "NvidiaCloudGaming",
        [NVML_BRAND_QUADRO_RTX] = "QuadroRTX",
        [NVML_BRAND_NVIDIA_RTX] = "NvidiaRTX",
        [NVML_BRAND_NVIDIA] = "Nvidia",
        [NVML_BRAND_GEFORCE_RTX] = "GeForceRTX",
        [NVML_BRAND_TITAN_RTX] = "TitanRTX",
    };
    size_t i = (size_t)brand;
    return i < sizeof(names) / sizeof(names[0]) && names[i] ? names[i] : "Unknown";
}

static void read_driver(struct alq_gpu *gpu)
{
    char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "";
    int cuda = 0;
    if (nvml.nvmlSystemGetDriverVersion(driver, sizeof(driver)) == NVML_SUCCESS) {
        snprintf(gpu->driver_version_raw, sizeof(gpu->driver_version_raw), "%.31s", driver);
        alq_nvml_semver(driver, gpu->driver_version, sizeof(gpu->driver_version));
    }
    int has_cuda = nvml.nvmlSystemGetCudaDriverVersion_v2
                       ? nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda) == NVML_SUCCESS
                       : nvml.nvmlSystemGetCudaDriverVersion &&
                             nvml.nvmlSystemGetCudaDriverVersion(&cuda) == NVML_SUCCESS;
    if (has_cuda)
        snprintf(gpu->cuda_driver_version, sizeof(gpu->cuda_driver_version), "%d.%d.0", cuda / 1000,
                 cuda % 1000 / 10);
}

/* Total, and what the driver does not keep for itself. */
static nvmlReturn_t read_memory(nvmlDevice_t device, struct alq_gpu *gpu)
{
    nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
    if (nvml.nvmlDeviceGetMemoryInfo_v2 &&
        nvml.nvmlDeviceGetMemoryInfo_v2(device, &v2) == NVML_SUCCESS && v2.reserved <= v2.total) {
        gpu->memory_total_bytes = v2.total;
        gpu->memory_promisable_bytes = v2.total - v2.reserved;
        return NVML_SUCCESS;
    }
    nvmlMemory_t v1 = {0};
    nvmlReturn_t status = nvml.nvmlDeviceGetMemoryInfo(device, &v1);
    gpu->memory_total_bytes = gpu->memory_promisable_bytes = v1.total;
    return status;
}

static int is_lost(nvmlReturn_t status)
{
    return status == NVML_ERROR_GPU_IS_LOST || status == NVML_ERROR_UNINITIALIZED ||
           status == NVML_ERROR_DRIVER_NOT_LOADED || status == NVML_ERROR_RESET_REQUIRED ||
           status == NVML_ERROR_UNKNOWN;
}

/* Fills *gpu, or *reason with why the GPU cannot be shared. The first failing call ends it. */
static int read_gpu(struct child *c, uint32_t index, struct alq_gpu *gpu, char *reason, size_t size)
{
    nvmlDevice_t device = NULL;
    nvmlPciInfo_t pci = {0};
    nvmlBrandType_t brand = NVML_BRAND_UNKNOWN;
    unsigned int minor = 0, mig = 0, pending = 0;
    int cc_major = 0, cc_minor = 0;

    gpu->index = index;
    gpu->numa_node = -1;
#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        nvmlReturn_t status = nvml.name(__VA_ARGS__);                                              \
        if (status != NVML_SUCCESS) {                                                              \
            snprintf(reason, size, "%s gives %d: %.100s", #name, (int)status, nvml_text(status));  \
            c->is_stale |= is_lost(status);                                                        \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)
    CALL(nvmlDeviceGetHandleByIndex_v2, index, &device);
    CALL(nvmlDeviceGetUUID, device, gpu->uuid, sizeof(gpu->uuid));
    CALL(nvmlDeviceGetMinorNumber, device, &minor);
    CALL(nvmlDeviceGetName, device, gpu->product_name, sizeof(gpu->product_name));
    CALL(nvmlDeviceGetCudaComputeCapability, device, &cc_major, &cc_minor);
    CALL(nvmlDeviceGetPciInfo_v3, device, &pci);
#undef CALL
    gpu->minor = minor;
    if (nvml.nvmlDeviceGetMigMode &&
        nvml.nvmlDeviceGetMigMode(device, &mig, &pending) == NVML_SUCCESS && mig) {
        snprintf(reason, size, "%s is in MIG mode", gpu->uuid);
        return -1;
    }
    nvmlReturn_t status = read_memory(device, gpu);
    if (status != NVML_SUCCESS) {
        snprintf(reason, size, "%s does not tell its memory: %.100s", gpu->uuid, nvml_text(status));
        c->is_stale |= is_lost(status);
        return -1;
    }
    if (nvml.nvmlDeviceGetBrand)
        nvml.nvmlDeviceGetBrand(device, &brand);
    snprintf(gpu->brand, sizeof(gpu->brand), "%s", brand_text(brand));
    snprintf(gpu->architecture, sizeof(gpu->architecture), "%s",
             alq_nvml_architecture(cc_major, cc_minor));
    snprintf(gpu->compute_capability, sizeof(gpu->compute_capability), "%d.%d.0", cc_major,
             cc_minor);
    pci.busId[sizeof(pci.busId) - 1] = '\0';
    alq_nvml_pci_address(pci.busId, gpu->pci_bus_id, sizeof(gpu->pci_bus_id));
    alq_sysfs_pcie_root("/sys", gpu->pci_bus_id, gpu->pcie_root, sizeof(gpu->pcie_root));
    gpu->numa_node = alq_sysfs_numa_node("/sys", gpu->pci_bus_id);
    read_driver(gpu);
    return 0;
}

static int by_minor(const void *a, const void *b)
{
    const struct alq_gpu *x = a, *y = b;
    return (x->minor > y->minor) - (x->minor < y->minor);
}

static int read_all(struct child *c)
{
    unsigned int count = 0;
    nvmlReturn_t status = nvml.nvmlDeviceGetCount_v2(&count);
    if (status != NVML_SUCCESS)
        return give_up(c, ALQ_EAGAIN, "NVML: nvmlDeviceGetCount_v2 gives %d: %s", (int)status,
                       nvml_text(status));
    if (count > ALQ_NVML_GPUS_MAX)
        count = ALQ_NVML_GPUS_MAX;
    struct alq_gpu_list *list = &c->reading.list;
    list->gpus = calloc(count ? count : 1, sizeof(*list->gpus));
    if (!list->gpus)
        return give_up(c, ALQ_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        struct alq_nvml_left_out *out = &c->reading.left_out[c->reading.left_out_count];
        struct alq_gpu *gpu = &list->gpus[list->count];
        *gpu = (struct alq_gpu){0};
        if (!read_gpu(c, i, gpu, out->reason, sizeof(out->reason))) {
            list->count++;
        } else {
            out->index = i;
            c->reading.left_out_count++;
        }
    }
    qsort(list->gpus, list->count, sizeof(*list->gpus), by_minor);
    return 0;
}

/* Another driver version was put where ours came from: the mapped one must go before it can be of
 * use. */
static int is_library_replaced(const struct child *c)
{
    struct stat now;
    return stat(c->library, &now) || now.st_dev != c->library_stat.st_dev ||
           now.st_ino != c->library_stat.st_ino || now.st_size != c->library_stat.st_size;
}

static int send_line(char *line)
{
    if (!line)
        return -1;
    size_t len = strlen(line);
    line[len++] = '\n'; /* in place of the NUL */
    for (size_t sent = 0; sent < len;) {
        ssize_t n = write(REPLY_FD, line + sent, len - sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        sent += (size_t)n;
    }
    return 0;
}

static int send_reading(const struct child *c)
{
    alq_auto_free char *line = alq_nvml_encode(&c->reading);
    return send_line(line);
}

static int send_sample(void)
{
    struct alq_sample sample = {0};
    alq_auto_free char *line = alq_child_sample(&sample) ? NULL : alq_sample_encode(&sample);
    alq_sample_clear(&sample);
    return send_line(line);
}

/* Waits for the parent to ask; what it asks for, 0 when it is gone. */
static char wait_for_request(void)
{
    char byte;
    ssize_t n;
    do {
        n = read(REQUEST_FD, &byte, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1 ? byte : 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 || fcntl(REPLY_FD, F_GETFD) < 0) {
        dprintf(2, "aliquotd-nvml is for aliquotd's own use\n");
        return 2;
    }
    prctl(PR_SET_NAME, "aliquotd-nvml");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);

    struct child *c = calloc(1, sizeof(*c));
    if (!c)
        return 1;
    int rc = 0, is_loaded = 0;
    for (char ask; !rc && (ask = wait_for_request());) {
        if (ask == ALQ_NVML_ASK_SAMPLE) {
            if (send_sample())
                break;
            continue;
        }
        c->reading.code = 0;
        c->reading.left_out_count = 0;
        if (!is_loaded) {
            rc = find_library(c, argv[1]);
            if (!rc)
                rc = load(c);
            is_loaded = 1;
        } else if (is_library_replaced(c)) {
            c->reading.is_restart_wanted = 1;
            rc = give_up(c, ALQ_EAGAIN, "%s was replaced", c->library);
        } else if (c->is_stale) {
            c->reading.is_restart_wanted = 1;
            rc = give_up(c, ALQ_EAGAIN, "a GPU was lost, looking whether it is back");
        }
        if (!rc)
            rc = read_all(c);
        if (send_reading(c))
            break;
        alq_nvml_reading_clear(&c->reading);
    }
    /* No nvmlShutdown: the kernel releases the driver, and a broken driver may never come back from
     * it. */
    _exit(0);
}

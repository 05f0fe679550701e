/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML as Aliquot's own minimal declarations: constants, structures and function types, named as
 * NVIDIA names them, for the daemon's reader, the library's view and the simulator. Only names,
 * numbers and layouts. nvml.h is not part of the CUDA toolkit; tests/unit/sim/test_abi.c compares
 * the two where one is installed.
 */
#ifndef ALIQUOT_NVML_ABI_H
#define ALIQUOT_NVML_ABI_H

#include <assert.h>

/* clang-format off */
#define ALQ_NVML_ERRORS(X) \
    X(NVML_SUCCESS, 0) \
    X(NVML_ERROR_UNINITIALIZED, 1) \
    X(NVML_ERROR_INVALID_ARGUMENT, 2) \
    X(NVML_ERROR_NOT_SUPPORTED, 3) \
    X(NVML_ERROR_NO_PERMISSION, 4) \
    X(NVML_ERROR_ALREADY_INITIALIZED, 5) \
    X(NVML_ERROR_NOT_FOUND, 6) \
    X(NVML_ERROR_INSUFFICIENT_SIZE, 7) \
    X(NVML_ERROR_INSUFFICIENT_POWER, 8) \
    X(NVML_ERROR_DRIVER_NOT_LOADED, 9) \
    X(NVML_ERROR_TIMEOUT, 10) \
    X(NVML_ERROR_IRQ_ISSUE, 11) \
    X(NVML_ERROR_LIBRARY_NOT_FOUND, 12) \
    X(NVML_ERROR_FUNCTION_NOT_FOUND, 13) \
    X(NVML_ERROR_CORRUPTED_INFOROM, 14) \
    X(NVML_ERROR_GPU_IS_LOST, 15) \
    X(NVML_ERROR_RESET_REQUIRED, 16) \
    X(NVML_ERROR_OPERATING_SYSTEM, 17) \
    X(NVML_ERROR_LIB_RM_VERSION_MISMATCH, 18) \
    X(NVML_ERROR_IN_USE, 19) \
    X(NVML_ERROR_MEMORY, 20) \
    X(NVML_ERROR_NO_DATA, 21) \
    X(NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, 22) \
    X(NVML_ERROR_INSUFFICIENT_RESOURCES, 23) \
    X(NVML_ERROR_FREQ_NOT_SUPPORTED, 24) \
    X(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 25) \
    X(NVML_ERROR_DEPRECATED, 26) \
    X(NVML_ERROR_NOT_READY, 27) \
    X(NVML_ERROR_GPU_NOT_FOUND, 28) \
    X(NVML_ERROR_INVALID_STATE, 29) \
    X(NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, 30) \
    X(NVML_ERROR_UNKNOWN, 999)

typedef enum {
#define ALQ_NVML_ENUM_ROW(name, value) name = value,
    ALQ_NVML_ERRORS(ALQ_NVML_ENUM_ROW)
#undef ALQ_NVML_ENUM_ROW
} nvmlReturn_t;

typedef enum {
    NVML_FEATURE_DISABLED = 0,
    NVML_FEATURE_ENABLED = 1,
} nvmlEnableState_t;

typedef enum {
    NVML_BRAND_UNKNOWN = 0,
    NVML_BRAND_QUADRO = 1,
    NVML_BRAND_TESLA = 2,
    NVML_BRAND_NVS = 3,
    NVML_BRAND_GRID = 4,
    NVML_BRAND_GEFORCE = 5,
    NVML_BRAND_TITAN = 6,
    NVML_BRAND_NVIDIA_VAPPS = 7,
    NVML_BRAND_NVIDIA_VPC = 8,
    NVML_BRAND_NVIDIA_VCS = 9,
    NVML_BRAND_NVIDIA_VWS = 10,
    NVML_BRAND_NVIDIA_CLOUD_GAMING = 11,
    NVML_BRAND_QUADRO_RTX = 12,
    NVML_BRAND_NVIDIA_RTX = 13,
    NVML_BRAND_NVIDIA = 14,
    NVML_BRAND_GEFORCE_RTX = 15,
    NVML_BRAND_TITAN_RTX = 16,
} nvmlBrandType_t;

typedef enum {
    NVML_TEMPERATURE_GPU = 0,
} nvmlTemperatureSensors_t;

typedef enum {
    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0,
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
    NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2,
    NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
    NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN = 4,
    NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR = 5,
    NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX = 6,
    NVML_TEMPERATURE_THRESHOLD_GPS_CURR = 7,
} nvmlTemperatureThresholds_t;

typedef enum {
    NVML_COMPUTEMODE_DEFAULT = 0,
    NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
} nvmlComputeMode_t;

typedef enum {
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
} nvmlMemoryErrorType_t;

typedef enum {
    NVML_VOLATILE_ECC = 0,
    NVML_AGGREGATE_ECC = 1,
} nvmlEccCounterType_t;

typedef enum {
    NVML_MEMORY_LOCATION_L1_CACHE = 0,
    NVML_MEMORY_LOCATION_L2_CACHE = 1,
    NVML_MEMORY_LOCATION_DRAM = 2,
    NVML_MEMORY_LOCATION_REGISTER_FILE = 3,
    NVML_MEMORY_LOCATION_TEXTURE_MEMORY = 4,
    NVML_MEMORY_LOCATION_TEXTURE_SHM = 5,
    NVML_MEMORY_LOCATION_CBU = 6,
    NVML_MEMORY_LOCATION_SRAM = 7,
} nvmlMemoryLocation_t;

typedef enum {
    NVML_CLOCK_GRAPHICS = 0,
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEM = 2,
    NVML_CLOCK_VIDEO = 3,
} nvmlClockType_t;

typedef enum {
    NVML_CLOCK_ID_CURRENT = 0,
    NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
    NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
    NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3,
} nvmlClockId_t;

typedef enum {
    NVML_PSTATE_0 = 0,
    NVML_PSTATE_1 = 1,
    NVML_PSTATE_2 = 2,
    NVML_PSTATE_3 = 3,
    NVML_PSTATE_4 = 4,
    NVML_PSTATE_5 = 5,
    NVML_PSTATE_6 = 6,
    NVML_PSTATE_7 = 7,
    NVML_PSTATE_8 = 8,
    NVML_PSTATE_9 = 9,
    NVML_PSTATE_10 = 10,
    NVML_PSTATE_11 = 11,
    NVML_PSTATE_12 = 12,
    NVML_PSTATE_13 = 13,
    NVML_PSTATE_14 = 14,
    NVML_PSTATE_15 = 15,
    NVML_PSTATE_UNKNOWN = 32,
} nvmlPstates_t;

typedef enum {
    NVML_TOTAL_POWER_SAMPLES = 0,
    NVML_GPU_UTILIZATION_SAMPLES = 1,
    NVML_MEMORY_UTILIZATION_SAMPLES = 2,
    NVML_ENC_UTILIZATION_SAMPLES = 3,
    NVML_DEC_UTILIZATION_SAMPLES = 4,
    NVML_PROCESSOR_CLK_SAMPLES = 5,
    NVML_MEMORY_CLK_SAMPLES = 6,
    NVML_MODULE_POWER_SAMPLES = 7,
    NVML_JPG_UTILIZATION_SAMPLES = 8,
    NVML_OFA_UTILIZATION_SAMPLES = 9,
} nvmlSamplingType_t;

typedef enum {
    NVML_VALUE_TYPE_DOUBLE = 0,
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_VALUE_TYPE_UNSIGNED_LONG = 2,
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
    NVML_VALUE_TYPE_SIGNED_INT = 5,
    NVML_VALUE_TYPE_UNSIGNED_SHORT = 6,
} nvmlValueType_t;

typedef enum {
    NVML_GPU_VIRTUALIZATION_MODE_NONE = 0,
    NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH = 1,
    NVML_GPU_VIRTUALIZATION_MODE_VGPU = 2,
    NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU = 3,
    NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA = 4,
} nvmlGpuVirtualizationMode_t;

typedef enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50,
} nvmlGpuTopologyLevel_t;

typedef enum {
    NVML_P2P_STATUS_OK = 0,
    NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED = 1,
    NVML_P2P_STATUS_GPU_NOT_SUPPORTED = 2,
    NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED = 3,
    NVML_P2P_STATUS_DISABLED_BY_REGKEY = 4,
    NVML_P2P_STATUS_NOT_SUPPORTED = 5,
    NVML_P2P_STATUS_UNKNOWN = 6,
} nvmlGpuP2PStatus_t;

typedef enum {
    NVML_P2P_CAPS_INDEX_READ = 0,
    NVML_P2P_CAPS_INDEX_WRITE = 1,
    NVML_P2P_CAPS_INDEX_NVLINK = 2,
    NVML_P2P_CAPS_INDEX_ATOMICS = 3,
    NVML_P2P_CAPS_INDEX_PCI = 4,
    NVML_P2P_CAPS_INDEX_UNKNOWN = 5,
} nvmlGpuP2PCapsIndex_t;

typedef enum {
    NVML_PCIE_UTIL_TX_BYTES = 0,
    NVML_PCIE_UTIL_RX_BYTES = 1,
} nvmlPcieUtilCounter_t;

typedef enum {
    NVML_INFOROM_OEM = 0,
    NVML_INFOROM_ECC = 1,
    NVML_INFOROM_POWER = 2,
    NVML_INFOROM_DEN = 3,
} nvmlInforomObject_t;
/* clang-format on */

#define NVML_INIT_FLAG_NO_GPUS 1
#define NVML_INIT_FLAG_NO_ATTACH 2

#define NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE 32
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE 16
#define NVML_DEVICE_UUID_BUFFER_SIZE 80
#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96
#define NVML_DEVICE_NAME_BUFFER_SIZE 64
#define NVML_DEVICE_NAME_V2_BUFFER_SIZE 96
#define NVML_DEVICE_SERIAL_BUFFER_SIZE 30
#define NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80
#define NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE 80

typedef unsigned int nvmlAffinityScope_t;
#define NVML_AFFINITY_SCOPE_NODE 0
#define NVML_AFFINITY_SCOPE_SOCKET 1

#define NVML_FI_DEV_ECC_CURRENT 1
#define NVML_FI_DEV_ECC_PENDING 2
#define NVML_FI_DEV_ECC_SBE_VOL_TOTAL 3
#define NVML_FI_DEV_ECC_DBE_VOL_TOTAL 4
#define NVML_FI_DEV_ECC_SBE_AGG_TOTAL 5
#define NVML_FI_DEV_ECC_DBE_AGG_TOTAL 6
#define NVML_FI_DEV_POWER_AVERAGE 185
#define NVML_FI_DEV_POWER_INSTANT 186
#define NVML_FI_DEV_GET_GPU_RECOVERY_ACTION 230

#define NVML_DEVICE_MIG_DISABLE 0
#define NVML_DEVICE_MIG_ENABLE 1

typedef unsigned int nvmlDeviceArchitecture_t;
#define NVML_DEVICE_ARCH_KEPLER 2
#define NVML_DEVICE_ARCH_MAXWELL 3
#define NVML_DEVICE_ARCH_PASCAL 4
#define NVML_DEVICE_ARCH_VOLTA 5
#define NVML_DEVICE_ARCH_TURING 6
#define NVML_DEVICE_ARCH_AMPERE 7
#define NVML_DEVICE_ARCH_ADA 8
#define NVML_DEVICE_ARCH_HOPPER 9
#define NVML_DEVICE_ARCH_BLACKWELL 10
#define NVML_DEVICE_ARCH_UNKNOWN 0xffffffffu

typedef unsigned int nvmlBusType_t;
#define NVML_BUS_TYPE_PCIE 2

#define nvmlEventTypeNone 0x0ll
#define nvmlEventTypeSingleBitEccError 0x1ll
#define nvmlEventTypeDoubleBitEccError 0x2ll
#define nvmlEventTypePState 0x4ll
#define nvmlEventTypeXidCriticalError 0x8ll
#define nvmlEventTypeClock 0x10ll

/* "Not available" in usedGpuMemory, and "no such instance" in the instance ids of a card without
 * MIG. */
#define NVML_VALUE_NOT_AVAILABLE (-1)
#define NVML_NO_INSTANCE_ID 0xffffffffu

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlUnit_st *nvmlUnit_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;

/* Version word of a versioned structure: its size, with the number in the top byte. */
#define ALQ_NVML_VERSION(type, number)                                                             \
    ((unsigned int)(sizeof(type) | ((unsigned int)(number) << 24u)))

/* nvmlDeviceGetPciInfo_v3 */
typedef struct nvmlPciInfo_st {
    char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfo_t;

/* nvmlDeviceGetPciInfo_v2, no longer in NVIDIA's header */
typedef struct {
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    unsigned int reserved[4];
} nvmlPciInfo_v2_t;

/* nvmlDeviceGetPciInfo, no longer in NVIDIA's header */
typedef struct {
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId;
} nvmlPciInfo_v1_t;

typedef struct {
    unsigned int version;
    unsigned int domain, bus, device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    unsigned int baseClass, subClass;
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfoExt_v1_t;

typedef struct nvmlMemory_st {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used; /* includes what the driver reserves */
} nvmlMemory_t;

typedef struct nvmlMemory_v2_st {
    unsigned int version; /* nvmlMemory_v2, in */
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used; /* without the reserved bytes */
} nvmlMemory_v2_t;

#define nvmlMemory_v2 ALQ_NVML_VERSION(nvmlMemory_v2_t, 2)

typedef struct nvmlBAR1Memory_st {
    unsigned long long bar1Total;
    unsigned long long bar1Free;
    unsigned long long bar1Used;
} nvmlBAR1Memory_t;

typedef struct nvmlConfComputeMemSizeInfo_st {
    unsigned long long protectedMemSizeKib;
    unsigned long long unprotectedMemSizeKib;
} nvmlConfComputeMemSizeInfo_t;

typedef struct nvmlUtilization_st {
    unsigned int gpu;
    unsigned int memory;
} nvmlUtilization_t;

#define NVML_MAX_GPU_UTILIZATIONS 8
#define NVML_GPU_UTILIZATION_DOMAIN_GPU 0
#define NVML_GPU_UTILIZATION_DOMAIN_FB 1

typedef struct nvmlGpuDynamicPstatesInfo_st {
    unsigned int flags;
    struct {
        unsigned int bIsPresent;
        unsigned int percentage; /* of the last second */
        unsigned int incThreshold;
        unsigned int decThreshold;
    } utilization[NVML_MAX_GPU_UTILIZATIONS];
} nvmlGpuDynamicPstatesInfo_t;

/* By the node's PIDs, of processes that ended too */
typedef struct nvmlAccountingStats_st {
    unsigned int gpuUtilization;
    unsigned int memoryUtilization;
    unsigned long long maxMemoryUsage;
    unsigned long long time; /* ms, 0 while it runs */
    unsigned long long startTime;
    unsigned int isRunning;
    unsigned int reserved[5];
} nvmlAccountingStats_t;

typedef struct nvmlAccountingStats_v2_st {
    unsigned int pid;
    unsigned int isRunning;
    unsigned int gpuUtilization;
    unsigned int memoryUtilization;
    unsigned long long maxMemoryUsage;
    unsigned int sampleCount;
    unsigned long long sumGpuUtil;
    unsigned long long sumFbUtil;
    unsigned long long time;
    unsigned long long startTime;
} nvmlAccountingStats_v2_t;

/* nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses */
typedef struct nvmlProcessInfo_v1_st {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

/* Their _v2 and _v3 forms alike */
typedef struct nvmlProcessInfo_v2_st {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_v2_t;

typedef nvmlProcessInfo_v2_t nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned int version; /* nvmlProcessDetailList_v1, in */
    unsigned int mode;    /* 0 compute, 1 graphics, 2 MPS */
    unsigned int numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef nvmlProcessDetailList_v1_t nvmlProcessDetailList_t;
#define nvmlProcessDetailList_v1 ALQ_NVML_VERSION(nvmlProcessDetailList_v1_t, 1)

typedef struct nvmlProcessUtilizationSample_st {
    unsigned int pid;
    unsigned long long timeStamp; /* us of CLOCK_REALTIME */
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned long long timeStamp;
    unsigned int pid;
    unsigned int smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned int version; /* nvmlProcessesUtilizationInfo_v1, in */
    unsigned int processSamplesCount;
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

typedef nvmlProcessesUtilizationInfo_v1_t nvmlProcessesUtilizationInfo_t;
#define nvmlProcessesUtilizationInfo_v1 ALQ_NVML_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1)

typedef union nvmlValue_st {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
} nvmlValue_t;

typedef struct nvmlSample_st {
    unsigned long long timeStamp;
    nvmlValue_t sampleValue;
} nvmlSample_t;

typedef struct nvmlFieldValue_st {
    unsigned int fieldId;
    unsigned int scopeId;
    long long timestamp;
    long long latencyUsec;
    nvmlValueType_t valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct nvmlEccErrorCounts_st {
    unsigned long long l1Cache;
    unsigned long long l2Cache;
    unsigned long long deviceMemory;
    unsigned long long registerFile;
} nvmlEccErrorCounts_t;

/* nvmlEventSetWait (v1) fills all but the last two */
typedef struct nvmlEventData_st {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData; /* the XID */
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlEventData_t;

static_assert(sizeof(nvmlPciInfo_t) == 68 && sizeof(nvmlPciInfo_v2_t) == 52, "PCI info");
static_assert(sizeof(nvmlMemory_t) == 24 && nvmlMemory_v2 == 0x02000028u, "memory info");
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24,
              "process lists");
static_assert(nvmlProcessDetailList_v1 == 0x01000018u, "process detail list");
static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "process utilisation");
static_assert(nvmlProcessesUtilizationInfo_v1 == 0x01000018u, "process utilisation info");

/*
 * Types of the exported functions whose arguments are declared above: `__typeof__(nvmlInit_v2) *`
 * is the pointer type to keep. nvmlDeviceGetPciInfo, _v2 and the v1 and v2 process lists take the
 * older structures above.
 */
/* clang-format off */
const char *nvmlErrorString(nvmlReturn_t);
nvmlReturn_t nvmlInternalGetExportTable(const void **, const void *);
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *);
nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t);
nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t);
nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t, nvmlEccCounterType_t);
nvmlReturn_t nvmlDeviceClearFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *);
nvmlReturn_t nvmlDeviceDiscoverGpus(nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceFreezeNvLinkUtilizationCounter(nvmlDevice_t, unsigned int, unsigned int,
    nvmlEnableState_t);
nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t, unsigned int, nvmlAccountingStats_t *);
nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t, nvmlAccountingStats_v2_t *);
nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t, nvmlConfComputeMemSizeInfo_t *);
nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t, nvmlGpuDynamicPstatesInfo_t *);
nvmlReturn_t nvmlDeviceGetAdaptiveClockInfoStatus(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t, nvmlDeviceArchitecture_t *);
nvmlReturn_t nvmlDeviceGetAutoBoostedClocksEnabled(nvmlDevice_t, nvmlEnableState_t *,
    nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t, nvmlBAR1Memory_t *);
nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t, nvmlBrandType_t *);
nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t, nvmlBusType_t *);
nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t, nvmlClockType_t, nvmlClockId_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t, nvmlComputeMode_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v1_t
    *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlDeviceGetCount(unsigned int *);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *);
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t, unsigned int, unsigned long *);
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t, unsigned int, unsigned long *,
    nvmlAffinityScope_t);
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t, int *, int *);
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t, nvmlMemoryErrorType_t,
    nvmlEccCounterType_t, nvmlEccErrorCounts_t *);
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t, nvmlEnableState_t *, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t, unsigned int *, unsigned int *, unsigned int
    *);
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *);
nvmlReturn_t nvmlDeviceGetGpcClkMinMaxVfOffset(nvmlDevice_t, int *, int *);
nvmlReturn_t nvmlDeviceGetGpcClkVfOffset(nvmlDevice_t, int *);
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t, char *);
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t, nvmlInforomObject_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetLastBBXFlushTime(nvmlDevice_t, unsigned long long *, unsigned long *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned int *,
    nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMemClkMinMaxVfOffset(nvmlDevice_t, int *, int *);
nvmlReturn_t nvmlDeviceGetMemClkVfOffset(nvmlDevice_t, int *);
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t, unsigned int, unsigned long *,
    nvmlAffinityScope_t);
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t, nvmlMemoryErrorType_t,
    nvmlEccCounterType_t, nvmlMemoryLocation_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t *);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t, nvmlClockType_t, nvmlPstates_t, unsigned
    int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t, unsigned int, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t, unsigned int, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned int, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetNvLinkUtilizationCounter(nvmlDevice_t, unsigned int, unsigned int,
    unsigned long long *, unsigned long long *);
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t,
    nvmlGpuP2PStatus_t *);
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t, nvmlPciInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t, nvmlPciInfoExt_v1_t *);
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t, nvmlPciInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t, nvmlPcieUtilCounter_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t, nvmlPstates_t *);
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetPgpuMetadataString(nvmlDevice_t, char *, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t, unsigned int *, unsigned int
    *);
nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t, nvmlPstates_t *);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t, nvmlProcessUtilizationSample_t *,
    unsigned int *, unsigned long long);
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t, nvmlProcessesUtilizationInfo_t *);
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t, unsigned int *, unsigned int *, unsigned int *,
    unsigned int *);
nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t, nvmlProcessDetailList_t *);
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t, nvmlSamplingType_t, unsigned long long,
    nvmlValueType_t *, unsigned int *, nvmlSample_t *);
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t, unsigned int, unsigned int *,
    unsigned int *);
nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t, nvmlPstates_t *, unsigned int);
nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t, nvmlTemperatureThresholds_t, unsigned
    int *);
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t
    *);
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t, nvmlGpuTopologyLevel_t, unsigned int *,
    nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
    unsigned long long *);
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t *);
nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t, nvmlGpuVirtualizationMode_t *);
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceModifyDrainState(nvmlPciInfo_t *, nvmlEnableState_t);
nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t, nvmlDevice_t, int *);
nvmlReturn_t nvmlDeviceQueryDrainState(nvmlPciInfo_t *, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long, nvmlEventSet_t);
nvmlReturn_t nvmlDeviceRemoveGpu(nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t);
nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t);
nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t);
nvmlReturn_t nvmlDeviceResetNvLinkErrorCounters(nvmlDevice_t, unsigned int);
nvmlReturn_t nvmlDeviceResetNvLinkUtilizationCounter(nvmlDevice_t, unsigned int, unsigned int);
nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t, nvmlEnableState_t);
nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t, unsigned int, unsigned int);
nvmlReturn_t nvmlDeviceSetAutoBoostedClocksEnabled(nvmlDevice_t, nvmlEnableState_t);
nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t, nvmlComputeMode_t);
nvmlReturn_t nvmlDeviceSetConfComputeUnprotectedMemSize(nvmlDevice_t, unsigned long long);
nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t);
nvmlReturn_t nvmlDeviceSetDefaultAutoBoostedClocksEnabled(nvmlDevice_t, nvmlEnableState_t, unsigned
    int);
nvmlReturn_t nvmlDeviceSetDefaultFanSpeed_v2(nvmlDevice_t, unsigned int);
nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t, nvmlEnableState_t);
nvmlReturn_t nvmlDeviceSetFanSpeed_v2(nvmlDevice_t, unsigned int, unsigned int);
nvmlReturn_t nvmlDeviceSetGpcClkVfOffset(nvmlDevice_t, int);
nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t, unsigned int, unsigned int);
nvmlReturn_t nvmlDeviceSetMemClkVfOffset(nvmlDevice_t, int);
nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t, unsigned int, unsigned int);
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t, unsigned int, nvmlReturn_t *);
nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t, nvmlEnableState_t);
nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t, unsigned int);
nvmlReturn_t nvmlDeviceSetTemperatureThreshold(nvmlDevice_t, nvmlTemperatureThresholds_t, int *);
nvmlReturn_t nvmlDeviceSetVirtualizationMode(nvmlDevice_t, nvmlGpuVirtualizationMode_t);
nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t);
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *);
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t);
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t, nvmlEventData_t *, unsigned int);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t *, unsigned int);
nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *);
nvmlReturn_t nvmlGpmQueryIfStreamingEnabled(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlGpmSetStreamingEnabled(nvmlDevice_t, unsigned int);
nvmlReturn_t nvmlInit(void);
nvmlReturn_t nvmlInitWithFlags(unsigned int);
nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned int *);
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *);
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *);
nvmlReturn_t nvmlSystemGetDriverVersion(char *, unsigned int);
nvmlReturn_t nvmlSystemGetNVMLVersion(char *, unsigned int);
nvmlReturn_t nvmlSystemGetNvlinkBwMode(unsigned int *);
nvmlReturn_t nvmlSystemGetProcessName(unsigned int, char *, unsigned int);
nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int, unsigned int *, nvmlDevice_t *);
nvmlReturn_t nvmlSystemSetConfComputeGpusReadyState(unsigned int);
nvmlReturn_t nvmlSystemSetNvlinkBwMode(unsigned int);
nvmlReturn_t nvmlUnitGetCount(unsigned int *);
nvmlReturn_t nvmlUnitGetDevices(nvmlUnit_t, unsigned int *, nvmlDevice_t *);
nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int, nvmlUnit_t *);
nvmlReturn_t nvmlUnitGetTemperature(nvmlUnit_t, unsigned int, unsigned int *);
/* clang-format on */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/core.h"

#include "vgpu/config.h"
#include "vgpu/context.h"
#include "vgpu/doors/doors.h"
#include "vgpu/driver.h"
#include "vgpu/envindex.h"
#include "vgpu/log.h"
#include "vgpu/memory/piece.h"
#include "vgpu/memory/pool.h"
#include "vgpu/memory/table.h"
#include "vgpu/process.h"

#define ORDINALS 64u
#define EUSERS_ 87

_Atomic uint32_t alq_core_mode_word;

static struct alq_config config;

/* Devices; written under lock_core, read once devices_known is set (acquire). */
static struct alq_dev devices[ALQ_DEVICES_MAX];
static uint32_t device_count;
static uint8_t of_ordinal[ORDINALS]; /* index + 1 into devices, 0: no share */
static uint32_t driver_count;        /* devices the driver shows */
static _Atomic uint32_t devices_known;

static _Atomic uint32_t attached; /* 1: this process has its slots */
static _Atomic uint32_t said_full;

uint32_t alq_core_find(void)
{
    uint32_t mode;

    alq_lock_take(&alq_process_page()->lock_core);
    mode = atomic_load_explicit(&alq_core_mode_word, memory_order_acquire);
    if (mode == ALQ_MODE_UNKNOWN) {
        mode = alq_config_find(&config);
        atomic_store_explicit(&alq_core_mode_word, mode, memory_order_release);
    }
    alq_lock_drop(&alq_process_page()->lock_core);
    return mode != ALQ_MODE_UNKNOWN ? mode : ALQ_MODE_BROKEN;
}

bool alq_core_look_again(void)
{
    uint32_t mode = alq_core_mode();

    if (mode != ALQ_MODE_NONE)
        return true;

    alq_lock_take(&alq_process_page()->lock_core);
    mode = atomic_load_explicit(&alq_core_mode_word, memory_order_acquire);
    if (mode == ALQ_MODE_NONE && (mode = alq_config_find(&config)) != ALQ_MODE_NONE)
        atomic_store_explicit(&alq_core_mode_word, mode, memory_order_release);
    alq_lock_drop(&alq_process_page()->lock_core);
    return mode != ALQ_MODE_NONE;
}

/* ---- slots ----------------------------------------------------------------------------------- */

void alq_core_renew(void)
{
    if (!alq_process_is_new())
        return;
    for (uint32_t i = 0; i < config.file_count; i++)
        atomic_store_explicit(&config.files[i].slot, ALQ_NO_SLOT, memory_order_relaxed);
    atomic_store_explicit(&attached, 0, memory_order_relaxed);
    alq_table_forget();
    alq_context_forget();
    alq_pool_forget();
    alq_export_forget();
    alq_piece_forget();
}

uint32_t alq_fork_generation(void)
{
    alq_core_renew();
    return alq_process_generation();
}

static void say_full(const struct alq_file *file)
{
    struct alq_line line;
    alq_log_begin(&line, ALQ_LOG_ERROR);
    alq_text_add(&line.text, file->path);
    alq_text_add(&line.text, ": all 1024 process slots of the share are taken; GPU use is refused");
    alq_log_end_always(&line, &said_full);
}

/*
 * Where the file cannot be had any more, or not locked, the limit holds for this process. Not for
 * an error that may pass: a process could bring it about (no descriptors left) to have the whole
 * limit for itself.
 */
static int attach_file(struct alq_file *file)
{
    int rc = alq_usage_attach(file);
    if (rc == -EUSERS_)
        say_full(file);
    else if (alq_usage_may_pass(rc))
        alq_config_say_again(file->path, rc);
    if (rc == 0 || rc == -EUSERS_ || alq_usage_may_pass(rc))
        return rc;
    rc = alq_config_go_private(&config, file, file->path, rc);
    return rc ? rc : alq_usage_attach(file);
}

static int attach_all(void)
{
    int rc = 0;
    for (uint32_t i = 0; i < config.file_count && rc == 0; i++) {
        struct alq_file *file = &config.files[i];
        if (atomic_load_explicit(&file->slot, memory_order_relaxed) != ALQ_NO_SLOT)
            continue;
        rc = attach_file(file);
        if (rc)
            break;
        for (uint32_t s = 0; s < config.share_count; s++)
            if (config.shares[s].file == file)
                alq_config_find_sections(&config, &config.shares[s]);
    }
    return rc;
}

int alq_core_attach(void)
{
    int rc;

    alq_core_renew();
    if (__builtin_expect(atomic_load_explicit(&attached, memory_order_acquire) == 1, 1))
        return 0;
    alq_lock_take(&alq_process_page()->lock_core);
    rc = atomic_load_explicit(&attached, memory_order_relaxed) ? 0 : attach_all();
    if (rc == 0)
        atomic_store_explicit(&attached, 1, memory_order_release);
    alq_lock_drop(&alq_process_page()->lock_core);
    return rc;
}

CUresult alq_core_admit(void)
{
    if (!alq_core_look_again())
        return CUDA_SUCCESS;
    if (alq_core_mode() == ALQ_MODE_BROKEN || alq_core_attach() != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    for (uint32_t i = 0; i < config.file_count; i++)
        alq_usage_reap(&config.files[i]);
    return CUDA_SUCCESS;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void uuid_text(const CUuuid *uuid, char out[ALQ_UUID_BYTES])
{
    struct alq_text text = alq_text_on(out, ALQ_UUID_BYTES);
    alq_text_add(&text, "GPU-");
    for (unsigned i = 0; i < sizeof(uuid->bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            alq_text_add(&text, "-");
        alq_text_add_hex2(&text, (unsigned char)uuid->bytes[i]);
    }
}

static uint32_t collect(const char *uuid, uint32_t env_index, struct alq_share **out)
{
    uint32_t count = 0;
    if (config.is_env) {
        struct alq_share *share = alq_config_env_share(&config, uuid, env_index);
        if (share)
            out[count++] = share;
        if (config.is_refused) /* what cannot be limited is not let through */
            atomic_store_explicit(&alq_core_mode_word, ALQ_MODE_BROKEN, memory_order_release);
        return count;
    }
    for (uint32_t i = 0; i < config.share_count; i++)
        if (alq_text_is_uuid(config.shares[i].uuid, uuid))
            out[count++] = &config.shares[i];
    return count;
}

/* What the driver says of one device. */
struct met {
    CUdevice ordinal;
    uint32_t env_index;
    char uuid[ALQ_UUID_BYTES];
};

/* No lock is held: the driver may take its time. */
static CUresult meet_devices(struct met met[ORDINALS], uint32_t *met_count, int *driver_has)
{
    int count = 0;

    if (!ALQ_HAS(cuDeviceGetCount) || !ALQ_HAS(cuDeviceGet))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult counted = ALQ_CALL(cuDeviceGetCount, &count);
    if (counted != CUDA_SUCCESS)
        return counted;
    for (int i = 0; i < count && *met_count < ORDINALS; i++) {
        struct met *at = &met[*met_count];
        CUuuid uuid;
        CUresult result = ALQ_CALL(cuDeviceGet, &at->ordinal, i);
        if (result == CUDA_SUCCESS)
            result = ALQ_HAS(cuDeviceGetUuid_v2) ? ALQ_CALL(cuDeviceGetUuid_v2, &uuid, at->ordinal)
                     : ALQ_HAS(cuDeviceGetUuid)  ? ALQ_CALL(cuDeviceGetUuid, &uuid, at->ordinal)
                                                 : CUDA_ERROR_NOT_FOUND;
        /* A device that does not tell its UUID might be the one with the share. */
        if (result != CUDA_SUCCESS)
            return result;
        if (at->ordinal < 0 || at->ordinal >= (int)ORDINALS)
            continue;
        uuid_text(&uuid, at->uuid);
        at->env_index = config.is_env ? alq_env_index(&config.env, at->uuid, (uint32_t)count) : 0;
        (*met_count)++;
    }
    *driver_has = count;
    return CUDA_SUCCESS;
}

/*
 * Caller holds lock_core. False: an error that may pass kept a share from being known. A share is
 * one of ALQ_SHARES_MAX and of one GPU, so no more devices than that are kept.
 */
static bool keep_devices(const struct met *met, uint32_t met_count)
{
    config.again = 0;
    device_count = 0;
    for (uint32_t i = 0; i < met_count && config.again == 0; i++) {
        struct alq_share *share[ALQ_SHARES_MAX];
        uint32_t count = collect(met[i].uuid, met[i].env_index, share);
        of_ordinal[met[i].ordinal] = 0;
        if (count == 0)
            continue;
        if (device_count == ALQ_DEVICES_MAX)
            return false;
        struct alq_dev *dev = &devices[device_count];
        __builtin_memcpy(dev->share, share, sizeof(share));
        __builtin_memcpy(dev->uuid, met[i].uuid, sizeof(dev->uuid));
        dev->share_count = count;
        dev->ordinal = met[i].ordinal;
        dev->index = device_count++;
        of_ordinal[met[i].ordinal] = (uint8_t)(dev->index + 1);
    }
    return config.again == 0;
}

/* CUDA_ERROR_NOT_INITIALIZED: there is nothing to know (yet), the driver refuses by itself. */
static CUresult know_devices(void)
{
    struct met met[ORDINALS];
    uint32_t met_count = 0;
    int count = 0;

    if (__builtin_expect(atomic_load_explicit(&devices_known, memory_order_acquire) == 1, 1))
        return CUDA_SUCCESS;
    if (alq_core_mode() != ALQ_MODE_LIMITED)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = meet_devices(met, &met_count, &count);
    if (result != CUDA_SUCCESS)
        return result;
    alq_lock_take(&alq_process_page()->lock_core);
    if (atomic_load_explicit(&devices_known, memory_order_relaxed) != 1) {
        if (keep_devices(met, met_count)) {
            driver_count = (uint32_t)count;
            atomic_store_explicit(&devices_known, 1, memory_order_release);
        } else {
            result = CUDA_ERROR_NOT_PERMITTED;
        }
    }
    alq_lock_drop(&alq_process_page()->lock_core);
    return result;
}

CUresult alq_dev_find(CUdevice ordinal, struct alq_dev **dev)
{
    *dev = NULL;
    CUresult result = know_devices();
    if (result == CUDA_SUCCESS && ordinal >= 0 && ordinal < (int)ORDINALS && of_ordinal[ordinal])
        *dev = &devices[of_ordinal[ordinal] - 1];
    return result == CUDA_ERROR_NOT_INITIALIZED ? CUDA_SUCCESS : result;
}

bool alq_dev_is_only(void)
{
    return atomic_load_explicit(&devices_known, memory_order_acquire) == 1 && driver_count == 1;
}

CUresult alq_dev_find_current(struct alq_dev **dev)
{
    CUdevice ordinal = 0;

    *dev = NULL;
    CUresult result = know_devices();
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_NOT_INITIALIZED ? CUDA_SUCCESS : result;
    if (driver_count == 1) {
        *dev = device_count ? &devices[0] : NULL;
        return CUDA_SUCCESS;
    }
    if (!ALQ_HAS(cuCtxGetDevice))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = ALQ_CALL(cuCtxGetDevice, &ordinal);
    if (result == CUDA_ERROR_INVALID_CONTEXT) /* none is current: the driver refuses by itself */
        return CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? alq_dev_find(ordinal, dev) : result;
}

struct alq_dev *alq_dev_of(CUdevice ordinal)
{
    struct alq_dev *dev;
    return alq_dev_find(ordinal, &dev) == CUDA_SUCCESS ? dev : NULL;
}

struct alq_dev *alq_dev_current(void)
{
    struct alq_dev *dev;
    return alq_dev_find_current(&dev) == CUDA_SUCCESS ? dev : NULL;
}

struct alq_dev *alq_dev_at(uint32_t index)
{
    return atomic_load_explicit(&devices_known, memory_order_acquire) == 1 && index < device_count
               ? &devices[index]
               : NULL;
}

bool alq_core_is_env(void)
{
    return config.is_env;
}

uint32_t alq_shares_of_uuid(const char *uuid, uint32_t env_index, struct alq_share **out)
{
    uint32_t count;
    if (!config.is_env)
        return collect(uuid, 0, out);
    alq_lock_take(&alq_process_page()->lock_core);
    count = collect(uuid, env_index, out);
    alq_lock_drop(&alq_process_page()->lock_core);
    return count;
}

/* ---- limits ---------------------------------------------------------------------------------- */

uint64_t alq_dev_limit_bytes(const struct alq_dev *dev)
{
    return alq_shares_limit_bytes(dev->share, dev->share_count);
}

uint64_t alq_shares_limit_bytes(struct alq_share *const *shares, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (__builtin_add_overflow(sum, alq_control_now(shares[i])->memory_limit_bytes, &sum))
            return UINT64_MAX;
    return sum;
}

uint64_t alq_dev_context_bytes(const struct alq_dev *dev)
{
    uint64_t bytes = alq_control_now(dev->share[0])->context_estimate_bytes;
    if (bytes == 0)
        bytes = config.env.context_bytes;
    return bytes ? bytes : ALQ_CONTEXT_BYTES_DEFAULT;
}

CUresult alq_absent(uint32_t index)
{
    return alq_real_is_loaded(index) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

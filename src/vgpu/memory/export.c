/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/export.h"

#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"

/* Smaller pieces share the driver's chunks: its figure says nothing about them. */
#define TOLD_BYTES (2ull << 20)

_Atomic uint32_t alq_export_any;

/* Let go, not gone, and open in a process of the share. */
static _Atomic uint64_t left_bytes[ALQ_DEVICES_MAX];

void alq_export_add(struct alq_dev *dev, uint64_t bytes)
{
    atomic_store_explicit(&alq_export_any, 1, memory_order_relaxed);
    alq_charge_exported(dev, (int64_t)bytes);
}

static void give_back(struct alq_dev *dev, uint64_t exported_bytes)
{
    alq_charge_exported(dev, -(int64_t)exported_bytes);
    alq_uncharge(dev, exported_bytes, 0);
}

bool alq_export_settle(struct alq_dev *dev)
{
    uint64_t bytes = 0;

    if (atomic_load_explicit(&left_bytes[dev->index], memory_order_relaxed) &&
        !alq_charge_has_imports(dev))
        bytes = atomic_exchange_explicit(&left_bytes[dev->index], 0, memory_order_relaxed);
    if (bytes)
        give_back(dev, bytes);
    return bytes != 0;
}

uint64_t alq_export_left_bytes(const struct alq_dev *dev)
{
    return atomic_load_explicit(&left_bytes[dev->index], memory_order_relaxed);
}

static void change_on(struct alq_dev *dev, int change)
{
    alq_charge_imports(dev, change);
    if (change < 0)
        alq_export_settle(dev);
}

void alq_export_opened(struct alq_dev *dev, int change)
{
    for (uint32_t i = 0; alq_dev_at(i); i++)
        if (!dev || dev == alq_dev_at(i))
            change_on(alq_dev_at(i), change);
}

void alq_part_begin(struct alq_parting *part)
{
    size_t total;

    *part = (struct alq_parting){.dev = NULL};
    if (alq_export_is_any() && ALQ_HAS(cuMemGetInfo_v2) &&
        ALQ_CALL(cuMemGetInfo_v2, &part->free_before, &total) == CUDA_SUCCESS)
        part->dev = alq_dev_current();
}

enum fate { GONE, KEPT, UNKNOWN };

/* Other processes move the figure too: half of the bytes is enough to tell. */
static enum fate fate_of(const struct alq_parting *part, uint32_t device)
{
    uint64_t exported = part->exported_bytes[device], plain = part->plain_bytes[device];
    size_t after, total;

    if (part->dev != alq_dev_at(device) || exported < TOLD_BYTES ||
        ALQ_CALL(cuMemGetInfo_v2, &after, &total) != CUDA_SUCCESS)
        return UNKNOWN;
    return after > part->free_before && after - part->free_before >= plain + exported / 2 ? GONE
                                                                                          : KEPT;
}

static void part_from_exported(const struct alq_parting *part, struct alq_dev *dev)
{
    uint64_t bytes = part->exported_bytes[dev->index];
    enum fate fate = fate_of(part, dev->index);

    if (fate != GONE && alq_charge_has_imports(dev))
        atomic_fetch_add_explicit(&left_bytes[dev->index], bytes, memory_order_relaxed);
    else if (fate != KEPT)
        give_back(dev, bytes);
    /* Else somebody out of sight has it, or a descriptor: it stays charged to this process. */
}

void alq_part_end(struct alq_parting *part)
{
    struct alq_dev *dev;

    for (uint32_t i = 0; (dev = alq_dev_at(i)); i++) {
        if (part->exported_bytes[i])
            part_from_exported(part, dev);
        alq_uncharge(dev, part->plain_bytes[i], 0);
    }
}

void alq_export_forget(void)
{
    atomic_store_explicit(&alq_export_any, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++)
        atomic_store_explicit(&left_bytes[i], 0, memory_order_relaxed);
    alq_charge_forget();
}

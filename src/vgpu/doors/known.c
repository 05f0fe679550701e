/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/doors/known.h"

#include <stdatomic.h>
#include <stddef.h>

#include "vgpu/driver.h"

static _Atomic uint64_t unknown;

static int compare(const char *row, const char *name)
{
    while (*row && *row == *name)
        row++, name++;
    return (unsigned char)*row - (unsigned char)*name;
}

/* What follows base in a row that begins with it; NULL: it does not. */
static const char *after(const char *row, const char *base)
{
    while (*base && *row == *base)
        row++, base++;
    return *base ? NULL : row;
}

static bool is_form_of(const char *row, const char *base)
{
    const char *rest = after(row, base);
    return rest && (!*rest || *rest == '_');
}

static bool is_passed(const char *name)
{
    uint32_t low = 0, high = ALQ_PASS_COUNT;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare(alq_pass_name(middle), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    /* Longer words sort between a name and its forms: cuMemcpy, cuMemcpyAsync, cuMemcpy_ptds. */
    for (; low < ALQ_PASS_COUNT && after(alq_pass_name(low), name); low++)
        if (is_form_of(alq_pass_name(low), name))
            return true;
    return false;
}

bool alq_is_known(const char *name)
{
    if (is_passed(name))
        return true;
    for (uint32_t i = 0; i < ALQ_ENTRY_COUNT; i++)
        if (is_form_of(alq_entry_name(i), name))
            return true;
    return false;
}

void alq_door_passed(const char *name)
{
    if (name && !alq_is_known(name))
        atomic_fetch_add_explicit(&unknown, 1, memory_order_relaxed);
}

uint64_t alq_unknown_take(void)
{
    return atomic_load_explicit(&unknown, memory_order_relaxed)
               ? atomic_exchange_explicit(&unknown, 0, memory_order_relaxed)
               : 0;
}

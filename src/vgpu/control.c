/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a share's control file while the daemon writes it. */
#include "vgpu/atomics.h"
#include "vgpu/core.h"

void alq_control_read(const struct alq_share *share, struct alq_control_values *out)
{
    for (int i = 0; i < 1000; i++) {
        uint32_t before = __atomic_load_n(&share->control->sequence, __ATOMIC_ACQUIRE);
        *out = share->control->values[before & 1];
        atomic_thread_fence(memory_order_acquire);
        if (__atomic_load_n(&share->control->sequence, __ATOMIC_RELAXED) == before)
            return;
        alq_pause();
    }
}

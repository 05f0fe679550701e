/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden offsets of the share contract. A daemon serves containers that were started with the
 * layout of their day: a number here changes only together with ALQ_SHARE_VERSION and
 * docs/share-abi.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aliquot/share.h"

#define AT(type, field, offset) assert_int_equal(offsetof(struct type, field), offset)

static void control_has_golden_offsets(void **state)
{
    (void)state;
    assert_int_equal(ALQ_SHARE_VERSION, 1);
    assert_int_equal(ALQ_CONTROL_MAGIC, 0x314c525443514c41ull);
    assert_int_equal(sizeof(struct alq_control), 4096);
    AT(alq_control, magic, 0);
    AT(alq_control, version, 8);
    AT(alq_control, bytes, 12);
    AT(alq_control, share_id, 16);
    AT(alq_control, gpu_uuid, 80);
    AT(alq_control, sequence, 256);
    AT(alq_control, wake, 260);
    AT(alq_control, loan, 264);
    AT(alq_control, corrected_until_ns, 272);
    AT(alq_control, time_credit_ns, 280);
    AT(alq_control, contended_until_ns, 288);
    AT(alq_control, values, 512);
    assert_int_equal(sizeof(struct alq_control_values), 256);
    AT(alq_control_values, memory_limit_bytes, 0);
    AT(alq_control_values, context_estimate_bytes, 8);
    AT(alq_control_values, overhead_correction_bytes, 16);
    AT(alq_control_values, compute_limit_pct, 24);
    AT(alq_control_values, policy, 28);
    AT(alq_control_values, priority, 32);
    AT(alq_control_values, time_correction_ppm, 36);
    AT(alq_control_values, log_level, 40);
    AT(alq_control_values, memory_wait_s, 44);
    AT(alq_control_values, memory_spill_bytes, 48);
}

static void usage_has_golden_offsets(void **state)
{
    (void)state;
    assert_int_equal(ALQ_USAGE_MAGIC, 0x3147415355514c41ull);
    assert_int_equal(sizeof(struct alq_usage_header), 4096);
    AT(alq_usage_header, magic, 0);
    AT(alq_usage_header, version, 8);
    AT(alq_usage_header, header_bytes, 12);
    AT(alq_usage_header, section_bytes, 16);
    AT(alq_usage_header, section_count, 20);
    AT(alq_usage_header, slot_count, 24);
    AT(alq_usage_header, slot_bytes, 28);
    AT(alq_usage_header, slot_high, 32);
    assert_int_equal(sizeof(struct alq_usage_section), 135168);
    AT(alq_usage_section, gpu_uuid, 0);
    AT(alq_usage_section, memory_limit_bytes, 48);
    AT(alq_usage_section, compute_limit_pct, 56);
    AT(alq_usage_section, total, 64);
    AT(alq_usage_section, gate, 128);
    AT(alq_usage_section, counters, 256);
    AT(alq_usage_section, cover, 384);
    AT(alq_usage_section, refused, 2432);
    AT(alq_usage_section, cover_far, 2560);
    AT(alq_usage_section, slots, 4096);
    assert_int_equal(ALQ_SECTION_DEVICE, 0);
    assert_int_equal(ALQ_SECTION_HOST, 1);
    assert_int_equal(ALQ_FAMILY_LINEAR, 0);
    assert_int_equal(ALQ_FAMILY_MODULE, 7);
    assert_int_equal(ALQ_FAMILY_COUNT, 8);
    assert_int_equal(ALQ_USAGE_BYTES(1), 139264);
    assert_int_equal(ALQ_USAGE_BYTES(2), 274432);
    assert_int_equal(ALQ_USAGE_BYTES(16), 2166784);
}

static void slot_gate_and_counters_have_golden_offsets(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct alq_slot), 128);
    AT(alq_slot, op, 0);
    AT(alq_slot, done, 16);
    AT(alq_slot, counted_bytes, 32);
    AT(alq_slot, overhead_bytes, 40);
    AT(alq_slot, pid_ns_inode, 48);
    AT(alq_slot, pid, 56);
    AT(alq_slot, contexts, 60);
    AT(alq_slot, started_ns, 64);
    AT(alq_slot, busy_turn, 72);
    AT(alq_slot, busy_ns, 80);
    AT(alq_slot, busy_before_ns, 88);
    AT(alq_slot, exported_bytes, 96);
    AT(alq_slot, imports, 104);
    AT(alq_slot, waiting_ns, 112);
    AT(alq_gate, tat_ns, 0);
    AT(alq_gate, boot_id, 8);
    AT(alq_gate, rated_pct, 16);
    AT(alq_gate, time_credit_ns, 24);
    AT(alq_gate, settled_ns, 32);
    AT(alq_counters, refusals, 0);
    AT(alq_counters, allocations, 8);
    AT(alq_counters, launches, 16);
    AT(alq_counters, charged_ns, 24);
    AT(alq_counters, throttled_ns, 32);
    AT(alq_counters, peak_bytes, 40);
    AT(alq_counters, unknown_entries, 48);
    AT(alq_counters, last_activity_ns, 56);
    AT(alq_counters, gate_calls, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_has_golden_offsets),
        cmocka_unit_test(usage_has_golden_offsets),
        cmocka_unit_test(slot_gate_and_counters_have_golden_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

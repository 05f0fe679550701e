/* SPDX-License-Identifier: Apache-2.0 */
/* Reading `control` while it is written, and a writer that dies in the middle. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "vgpu/core.h"

static struct alq_control *control_new(void)
{
    return mmap(NULL, sizeof(struct alq_control), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* As the daemon does it. */
static void publish(struct alq_control *control, uint64_t n)
{
    struct alq_control_values *next = &control->values[(control->sequence + 1) & 1];
    __atomic_thread_fence(__ATOMIC_RELEASE); /* these stores stay behind the last publication */
    next->memory_limit_bytes = n;
    next->context_estimate_bytes = n;
    next->overhead_correction_bytes = (int64_t)n;
    next->compute_limit_pct = (uint32_t)n;
    next->reserved[24] = n;
    __atomic_store_n(&control->sequence, control->sequence + 1, __ATOMIC_RELEASE);
}

static void read_returns_what_was_published_last(void **state)
{
    struct alq_control *control = control_new();
    struct alq_share share = {.control = control};
    struct alq_control_values values;
    (void)state;
    for (uint64_t n = 1; n < 5; n++) {
        publish(control, n);
        alq_control_read(&share, &values);
        assert_int_equal(values.memory_limit_bytes, n);
        assert_int_equal(alq_control_now(&share)->memory_limit_bytes, n);
    }
}

static void read_after_a_half_written_update_has_the_old_values(void **state)
{
    struct alq_control *control = control_new();
    struct alq_share share = {.control = control};
    struct alq_control_values values;
    (void)state;
    publish(control, 7);
    control->values[(control->sequence + 1) & 1].memory_limit_bytes =
        8; /* and the daemon was killed */
    alq_control_read(&share, &values);
    assert_int_equal(values.memory_limit_bytes, 7);
}

static void read_beside_a_writer_is_never_a_mixture(void **state)
{
    struct alq_control *control = control_new();
    struct alq_share share = {.control = control};
    struct alq_control_values v;
    uint64_t seen = 0;
    (void)state;
    publish(control, 1);
    pid_t writer = fork();
    if (writer == 0)
        for (uint64_t n = 2;; n++) {
            publish(control, n);
            if (n % 64 == 0)
                usleep(50);
        }
    for (int i = 0; i < 200000 || seen < 1000; i++) {
        alq_control_read(&share, &v);
        if (v.memory_limit_bytes != v.context_estimate_bytes ||
            v.memory_limit_bytes != v.reserved[24] || v.memory_limit_bytes < seen) {
            kill(writer, SIGKILL);
            fail_msg("a mixture of %llu and %llu", (unsigned long long)v.memory_limit_bytes,
                     (unsigned long long)v.reserved[24]);
        }
        seen = v.memory_limit_bytes;
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_true(seen > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_returns_what_was_published_last),
        cmocka_unit_test(read_after_a_half_written_update_has_the_old_values),
        cmocka_unit_test(read_beside_a_writer_is_never_a_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

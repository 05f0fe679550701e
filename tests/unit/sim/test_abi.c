/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds our CUDA and NVML declarations against NVIDIA's headers, number by number, where those are
 * installed (the build itself never needs them: the table of the other side is then absent and the
 * test says so). Single-threaded.
 */
#include "abi_fact.h"
#include "abi_have.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int differing(const struct abi_fact *ours, const struct abi_fact *theirs)
{
    int count = 0;

    for (size_t i = 0; ours[i].name; i++) {
        assert_string_equal(ours[i].name, theirs[i].name);
        if (ours[i].value != theirs[i].value) {
            print_error("%s: ours %lld, NVIDIA's %lld\n", ours[i].name, ours[i].value,
                        theirs[i].value);
            count++;
        }
    }
    return count;
}

static void cuda_abi_every_number_equals_nvidias(void **state)
{
    (void)state;
#ifdef HAVE_CUDA_H
    assert_int_equal(differing(cuda_ours, cuda_theirs), 0);
#else
    (void)differing;
    print_message("[  REASON  ] no cuda.h on this machine\n");
    skip();
#endif
}

static void nvml_abi_every_number_equals_nvidias(void **state)
{
    (void)state;
#ifdef HAVE_NVML_H
    assert_int_equal(differing(nvml_ours, nvml_theirs), 0);
#else
    (void)differing;
    print_message("[  REASON  ] no nvml.h on this machine\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda_abi_every_number_equals_nvidias),
        cmocka_unit_test(nvml_abi_every_number_equals_nvidias),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

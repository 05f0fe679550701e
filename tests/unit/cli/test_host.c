/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor makes of the versions that programs tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/host.h"

static struct alq_version version_of(const char *text)
{
    struct alq_version v = {0};
    assert_int_equal(alq_version_find(text, &v), 0);
    return v;
}

static void assert_version(const char *text, int major, int minor, int patch)
{
    struct alq_version v = version_of(text);
    assert_int_equal(v.part[0], major);
    assert_int_equal(v.part[1], minor);
    assert_int_equal(v.part[2], patch);
}

static void version_find_reads_what_each_program_prints(void **state)
{
    (void)state;
    assert_version("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1", 1, 6,
                   20);
    assert_version("containerd github.com/containerd/containerd/v2 v2.1.3 c787fb98911740", 2, 1, 3);
    assert_version("Docker version 28.3.0, build 38b7060", 28, 3, 0);
    assert_version("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev", 1, 1, 5);
    assert_version("crun version 1.8.1\ncommit: f8a096be0602", 1, 8, 1);
    assert_version("podman version 4.3.1", 4, 3, 1);
    assert_version("Kubernetes v1.34.1", 1, 34, 1);
    assert_version("crio version 1.30", 1, 30, 0);
    assert_version("6.1.0-18-amd64", 6, 1, 0);
}

static void version_find_without_a_version_fails(void **state)
{
    (void)state;
    struct alq_version v;
    assert_int_equal(alq_version_find("", &v), -1);
    assert_int_equal(alq_version_find("unknown flag: --version 7", &v), -1);
}

static void assert_level(const char *program, const char *text, const char *level)
{
    struct alq_version v = version_of(text);
    const char *remedy;
    assert_string_equal(alq_host_judge(program, &v, &remedy), level);
    assert_int_equal(remedy == NULL, !strcmp(level, "ok"));
}

static void judge_at_and_below_the_bound_differs(void **state)
{
    (void)state;
    assert_level("kubelet", "1.33.9", "error");
    assert_level("kubelet", "1.34.0", "ok");
    assert_level("containerd", "1.6.20", "warning");
    assert_level("containerd", "1.7.0", "warning");
    assert_level("containerd", "2.0.0", "ok");
    assert_level("podman", "4.0.3", "warning");
    assert_level("podman", "4.3.1", "ok");
    assert_level("docker", "24.0.7", "warning");
    assert_level("docker", "28.1.1", "warning");
    assert_level("docker", "28.2.0", "ok");
}

static void judge_tells_why_the_row_of_that_version_counts(void **state)
{
    (void)state;
    const char *remedy;
    struct alq_version none = version_of("1.6.20"), off = version_of("1.7.24");
    alq_host_judge("containerd", &none, &remedy);
    assert_non_null(strstr(remedy, "no CDI reader"));
    alq_host_judge("containerd", &off, &remedy);
    assert_non_null(strstr(remedy, "enable_cdi"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_find_reads_what_each_program_prints),
        cmocka_unit_test(version_find_without_a_version_fails),
        cmocka_unit_test(judge_at_and_below_the_bound_differs),
        cmocka_unit_test(judge_tells_why_the_row_of_that_version_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

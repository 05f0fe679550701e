/* SPDX-License-Identifier: Apache-2.0 */
/* Share directories and the environment's file, with real files. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "vgpu/config.h"

static char root[64];
static struct alq_config *config;

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/alq-config-XXXXXX");
    config = calloc(1, sizeof(*config));
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    unsetenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    unsetenv("ALIQUOT_SHARE_ROOT");
    return config && mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    free(config);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static void write_file(const char *id, const char *name, const void *data, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, id);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/%s/%s", root, id, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
}

static void make_share(const char *id, const char *uuid, uint64_t limit)
{
    struct alq_control *control = calloc(1, sizeof(*control));
    void *usage = calloc(1, ALQ_USAGE_BYTES(1));
    control->magic = ALQ_CONTROL_MAGIC;
    control->version = ALQ_SHARE_VERSION;
    control->bytes = ALQ_CONTROL_BYTES;
    strcpy(control->gpu_uuid, uuid);
    control->values[0].memory_limit_bytes = limit;
    alq_usage_format(usage, 1);
    write_file(id, "control", control, sizeof(*control));
    write_file(id, "usage", usage, ALQ_USAGE_BYTES(1));
    free(control);
    free(usage);
}

static void find_without_anything_is_none(void **state)
{
    (void)state;
    assert_int_equal(alq_config_find(config), ALQ_MODE_NONE);
}

static void find_sorts_shares_by_id(void **state)
{
    (void)state;
    make_share("c-1", "GPU-b", 2);
    make_share("a-0", "GPU-a", 1);
    make_share("c-0", "GPU-c", 3);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_int_equal(config->share_count, 3);
    assert_string_equal(config->shares[0].id, "a-0");
    assert_string_equal(config->shares[1].id, "c-0");
    assert_string_equal(config->shares[2].id, "c-1");
    assert_string_equal(config->shares[2].uuid, "GPU-b");
    assert_int_equal(alq_control_now(&config->shares[1])->memory_limit_bytes, 3);
}

static void find_with_a_share_does_not_look_at_the_environment(void **state)
{
    (void)state;
    make_share("a-0", "GPU-a", 1);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "lots", 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_false(config->is_env);
}

static void find_with_a_damaged_control_is_broken(void **state)
{
    (void)state;
    make_share("a-0", "GPU-a", 1);
    write_file("b-0", "control", "short", 5);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_BROKEN);
}

static void find_with_a_control_of_another_version_is_broken(void **state)
{
    struct alq_control *control = calloc(1, sizeof(*control));
    (void)state;
    control->magic = ALQ_CONTROL_MAGIC;
    control->version = ALQ_SHARE_VERSION + 1;
    control->bytes = ALQ_CONTROL_BYTES;
    strcpy(control->gpu_uuid, "GPU-a");
    write_file("b-0", "control", control, sizeof(*control));
    free(control);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_BROKEN);
}

static void find_with_a_damaged_usage_limits_per_process(void **state)
{
    (void)state;
    make_share("a-0", "GPU-a", 7);
    write_file("a-0", "usage", "short", 5);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_true(config->files[0].is_private);
    assert_int_equal(alq_control_now(&config->shares[0])->memory_limit_bytes, 7);
}

static void find_with_a_bad_quantity_is_broken(void **state)
{
    (void)state;
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "lots", 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_BROKEN);
}

static void environment(const char *limit)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/x.cache", root);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", limit, 1);
}

static void env_share_is_one_per_gpu(void **state)
{
    (void)state;
    environment("4g");
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_true(config->is_env);
    struct alq_share *a = alq_config_env_share(config, "GPU-a", 0),
                     *b = alq_config_env_share(config, "GPU-b", 1);
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(alq_config_env_share(config, "GPU-a", 0), a);
    assert_int_equal(alq_control_now(a)->memory_limit_bytes, 4ull << 30);
    assert_ptr_not_equal(a->section, b->section);
}

static void env_share_without_a_section_left_refuses(void **state)
{
    (void)state;
    environment("4g");
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    for (uint32_t i = 0; i < ALQ_SHARES_MAX; i++) {
        char uuid[16];
        snprintf(uuid, sizeof(uuid), "GPU-%u", i);
        assert_non_null(alq_config_env_share(config, uuid, i));
    }
    assert_false(config->is_refused);
    assert_null(alq_config_env_share(config, "GPU-more", 0));
    assert_true(config->is_refused);
}

static void env_share_of_a_second_process_cannot_be_larger(void **state)
{
    (void)state;
    environment("1g");
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    alq_config_env_share(config, "GPU-a", 0);
    struct alq_config *second = calloc(1, sizeof(*second));
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "80g", 1);
    assert_int_equal(alq_config_find(second), ALQ_MODE_LIMITED);
    assert_int_equal(alq_control_now(alq_config_env_share(second, "GPU-a", 0))->memory_limit_bytes,
                     1ull << 30);
    free(second);
}

static void env_file_of_another_format_is_left_alone(void **state)
{
    char path[128];
    struct stat st;
    (void)state;
    environment("4g");
    snprintf(path, sizeof(path), "%s/x.cache", root);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "HAMi", 4), 4);
    close(fd);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_false(config->files[0].is_private);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 4);
    strcat(path, ".aliquot");
    assert_int_equal(stat(path, &st), 0);
}

static void env_file_that_cannot_be_made_limits_per_process(void **state)
{
    (void)state;
    environment("4g");
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/proc/nonexistent/x.cache", 1);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_true(config->files[0].is_private);
}

static void env_share_beyond_the_last_index_has_the_limit_of_all(void **state)
{
    (void)state;
    environment("4g");
    setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "1g", 1);
    uint32_t mode = alq_config_find(config);
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT_0");
    assert_int_equal(mode, ALQ_MODE_LIMITED);
    const struct alq_share *share = alq_config_env_share(config, "GPU-a", ALQ_ENV_DEVICES);
    assert_int_equal(alq_control_now(share)->memory_limit_bytes, 4ull << 30);
}

/* ---- errors that may pass ---- */

/* As many descriptors as are open may be open: a process in such a state finds nothing and can
 * find everything later. */
static rlim_t allow_descriptors(rlim_t most)
{
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = was;
    now.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return was.rlim_cur;
}

static void find_of_a_share_without_descriptors_is_for_later(void **state)
{
    (void)state;
    make_share("a-0", "GPU-a", 7);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    rlim_t most = allow_descriptors(0);
    uint32_t without = alq_config_find(config);
    allow_descriptors(most);
    assert_int_equal(without, ALQ_MODE_UNKNOWN);
    assert_int_equal(config->again, -EMFILE);
    assert_int_equal(config->share_count, 0);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_false(config->files[0].is_private);
    assert_int_equal(config->file_count, 1);
}

/* The directory is open and takes the last descriptor there may be. */
static void find_with_one_descriptor_for_the_directory_is_for_later(void **state)
{
    (void)state;
    make_share("a-0", "GPU-a", 7);
    make_share("b-0", "GPU-b", 7);
    setenv("ALIQUOT_SHARE_ROOT", root, 1);
    int next = open("/", O_RDONLY);
    close(next);
    rlim_t most = allow_descriptors((rlim_t)next + 1);
    uint32_t without = alq_config_find(config);
    allow_descriptors(most);
    assert_int_equal(without, ALQ_MODE_UNKNOWN);
    assert_int_equal(config->file_count, 0);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_int_equal(config->share_count, 2);
}

static void find_without_shares_and_descriptors_is_none(void **state)
{
    (void)state;
    setenv("ALIQUOT_SHARE_ROOT", "/nonexistent", 1);
    rlim_t most = allow_descriptors(0);
    uint32_t without = alq_config_find(config);
    allow_descriptors(most);
    assert_int_equal(without, ALQ_MODE_NONE);
}

static void env_file_without_descriptors_is_for_later(void **state)
{
    (void)state;
    environment("4g");
    rlim_t most = allow_descriptors(0);
    uint32_t without = alq_config_find(config);
    allow_descriptors(most);
    assert_int_equal(without, ALQ_MODE_UNKNOWN);
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    assert_false(config->files[0].is_private);
}

static void env_share_without_descriptors_is_for_later(void **state)
{
    (void)state;
    environment("4g");
    assert_int_equal(alq_config_find(config), ALQ_MODE_LIMITED);
    rlim_t most = allow_descriptors(0);
    const struct alq_share *share = alq_config_env_share(config, "GPU-a", 0);
    allow_descriptors(most);
    assert_null(share);
    assert_int_equal(config->again, -EMFILE);
    assert_false(config->is_refused);
    assert_non_null(alq_config_env_share(config, "GPU-a", 0));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(find_without_anything_is_none),
        TEST(find_sorts_shares_by_id),
        TEST(find_with_a_share_does_not_look_at_the_environment),
        TEST(find_with_a_damaged_control_is_broken),
        TEST(find_with_a_control_of_another_version_is_broken),
        TEST(find_with_a_damaged_usage_limits_per_process),
        TEST(find_with_a_bad_quantity_is_broken),
        TEST(env_share_is_one_per_gpu),
        TEST(env_share_without_a_section_left_refuses),
        TEST(env_share_of_a_second_process_cannot_be_larger),
        TEST(env_file_of_another_format_is_left_alone),
        TEST(env_file_that_cannot_be_made_limits_per_process),
        TEST(env_share_beyond_the_last_index_has_the_limit_of_all),
        TEST(find_of_a_share_without_descriptors_is_for_later),
        TEST(find_with_one_descriptor_for_the_directory_is_for_later),
        TEST(find_without_shares_and_descriptors_is_none),
        TEST(env_file_without_descriptors_is_for_later),
        TEST(env_share_without_descriptors_is_for_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

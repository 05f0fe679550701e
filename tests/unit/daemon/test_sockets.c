/* SPDX-License-Identifier: Apache-2.0 */
/* Names of sockets, and which of those that lie about are removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "daemon/kubelet/sockets.h"

#define UID "11111111-2222-3333-4444-555555555555"
#define UID_HASH "Zm_2zKpbPAc" /* base64url of 8 bytes of SHA-256(UID) */

static char plugins[] = "/var/lib/kubelet/plugins",
            registry[] = "/var/lib/kubelet/plugins_registry";
static char uid[] = UID;

static void named(char *driver, char *pod_uid, const char *dra, const char *registration)
{
    struct alq_config cfg = {.kubelet_plugins_dir = plugins,
                             .kubelet_registry_dir = registry,
                             .driver_name = driver,
                             .pod_uid = pod_uid};
    struct alq_sockets sockets;
    assert_int_equal(alq_sockets_name(&cfg, &sockets, NULL), 0);
    assert_string_equal(sockets.dra + strlen(plugins) + 1, dra);
    assert_string_equal(sockets.registration + strlen(registry) + 1, registration);
}

static void name_is_as_kubernetes_helper_makes_it(void **state)
{
    (void)state;
    char a[] = "gpu.example.com", b[] = "hami-core-gpu.project-hami.io";
    named(a, NULL, "gpu.example.com/dra.sock", "gpu.example.com-reg.sock");
    named(a, uid, "gpu.example.com/dra-" UID ".sock", "gpu.example.com-" UID "-reg.sock");
    /* 109 bytes with the whole UID */
    named(b, uid, "hami-core-gpu.project-hami.io/dra-" UID ".sock",
          "hami-core-gpu.project-hami.io-" UID_HASH "-reg.sock");
}

static void name_of_the_longest_driver_is_a_hash(void **state)
{
    (void)state;
    char driver[64];
    memset(driver, 'a', 63);
    driver[63] = '\0';
    named(driver, uid,
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/dra-" UID_HASH,
          "dra-9eqL-qWHzLm-BSQmYa9FdA-reg.sock");
}

static void name_changes_at_108_bytes(void **state)
{
    (void)state;
    char dir[128], driver[] = "gpu.example.com";
    struct alq_config cfg = {.kubelet_plugins_dir = dir,
                             .kubelet_registry_dir = registry,
                             .driver_name = driver,
                             .pod_uid = uid};
    struct alq_sockets sockets;
    struct alq_err err = ALQ_ERR_INIT;
    size_t rest = strlen("/gpu.example.com/dra-" UID ".sock");
    memset(dir, 'd', sizeof(dir));
    dir[0] = '/';
    dir[107 - rest] = '\0';
    assert_int_equal(alq_sockets_name(&cfg, &sockets, NULL), 0);
    assert_int_equal(strlen(sockets.dra), 107);
    assert_non_null(strstr(sockets.dra, UID));
    dir[107 - rest] = 'd';
    dir[108 - rest] = '\0';
    assert_int_equal(alq_sockets_name(&cfg, &sockets, NULL), 0);
    assert_non_null(strstr(sockets.dra, "/dra-" UID_HASH ".sock"));
    dir[108 - rest] = 'd';
    dir[100] = '\0';
    assert_int_equal(alq_sockets_name(&cfg, &sockets, &err), ALQ_ERANGE);
    assert_non_null(strstr(err.text, "--kubelet-plugins-dir"));
}

/* ---- sweep ------------------------------------------------------------------------------------
 */

static int put_socket(const char *dir, const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", dir, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static int is_there(const char *dir, const char *name)
{
    struct stat st;
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return !lstat(path, &st);
}

static void sweep_removes_dead_sockets_of_ours_alone(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int is_live, stays;
    } in_registry[] = {{"drv-reg.sock", 0, 0},
                       {"drv-" UID "-reg.sock", 0, 0},
                       {"drv-" UID_HASH "-reg.sock", 0, 0},
                       {".drv-reg.sock", 0, 0},
                       {"drv-00000000-2222-3333-4444-555555555555-reg.sock", 1, 1},
                       {"drv-other-reg.sock", 0, 1},
                       {"drvother-reg.sock", 0, 1},
                       {"other-reg.sock", 0, 1}},
      in_plugins[] = {{"dra.sock", 0, 0},
                      {"dra-" UID ".sock", 0, 0},
                      {"dra-" UID_HASH, 0, 0},
                      {"dra-00000000-2222-3333-4444-555555555555.sock", 1, 1},
                      {"dra-" UID ".sock.x", 0, 1}};
    char root[] = "/tmp/alq-sockets-XXXXXX", driver[] = "drv", plugin_dir[64];
    assert_non_null(mkdtemp(root));
    snprintf(plugin_dir, sizeof(plugin_dir), "%s/drv", root);
    assert_int_equal(mkdir(plugin_dir, 0700), 0);
    struct alq_config cfg = {
        .kubelet_plugins_dir = root, .kubelet_registry_dir = root, .driver_name = driver};
    int live[2] = {-1, -1}, n = 0;
    for (size_t i = 0; i < sizeof(in_registry) / sizeof(in_registry[0]); i++) {
        int fd = put_socket(root, in_registry[i].name);
        if (in_registry[i].is_live)
            live[n++] = fd;
        else
            close(fd);
    }
    for (size_t i = 0; i < sizeof(in_plugins) / sizeof(in_plugins[0]); i++) {
        int fd = put_socket(plugin_dir, in_plugins[i].name);
        if (in_plugins[i].is_live)
            live[n++] = fd;
        else
            close(fd);
    }
    struct alq_sockets own;
    cfg.pod_uid = uid;
    assert_int_equal(alq_sockets_name(&cfg, &own, NULL), 0);
    assert_true(alq_sockets_has_other(&cfg, &own));

    alq_sockets_sweep(&cfg);
    for (size_t i = 0; i < sizeof(in_registry) / sizeof(in_registry[0]); i++)
        if (is_there(root, in_registry[i].name) != in_registry[i].stays)
            fail_msg("%s", in_registry[i].name);
    for (size_t i = 0; i < sizeof(in_plugins) / sizeof(in_plugins[0]); i++)
        if (is_there(plugin_dir, in_plugins[i].name) != in_plugins[i].stays)
            fail_msg("%s", in_plugins[i].name);

    close(live[0]);
    close(live[1]);
    assert_false(alq_sockets_has_other(&cfg, &own));
    assert_int_equal(alq_file_write_atomic(own.dra, "mine", 4, 0600, 0, NULL), 0);
    alq_sockets_sweep(&cfg);
    assert_true(is_there(plugin_dir, "dra-" UID ".sock"));
    assert_int_equal(alq_file_remove_tree(root, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_is_as_kubernetes_helper_makes_it),
        cmocka_unit_test(name_of_the_longest_driver_is_a_hash),
        cmocka_unit_test(name_changes_at_108_bytes),
        cmocka_unit_test(sweep_removes_dead_sockets_of_ours_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: defaults, file, flags, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "daemon/config.h"

static char path[64];

static const char *yaml(const char *text)
{
    static char flag[80];
    if (!*path) {
        snprintf(path, sizeof(path), "/tmp/alq-config-XXXXXX");
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(alq_file_write_atomic(path, text, strlen(text), 0600, 0, NULL), 0);
    snprintf(flag, sizeof(flag), "--config=%s", path);
    return flag;
}

static int load(struct alq_config *cfg, struct alq_err *err, ...)
{
    char *argv[8];
    static char name[] = "aliquotd";
    int argc = 1;
    enum alq_config_action action;
    argv[0] = name;
    va_list ap;
    va_start(ap, err);
    for (char *arg; (arg = va_arg(ap, char *));)
        argv[argc++] = arg;
    va_end(ap);
    int rc = alq_config_load(cfg, argc, argv, &action, err);
    assert_int_equal(action, ALQ_CONFIG_RUN);
    return rc;
}

static void refused(const char *flag, const char *word)
{
    struct alq_config cfg;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_not_equal(load(&cfg, &err, flag, NULL), 0);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s", err.text, word);
    alq_config_free(&cfg);
}

static void load_without_flags_gives_the_documented_defaults(void **state)
{
    (void)state;
    struct alq_config cfg;
    setenv("NODE_NAME", "node-x", 1);
    unsetenv("KUBECONFIG");
    unsetenv("POD_UID");
    assert_int_equal(load(&cfg, NULL, NULL), 0);
    assert_null(cfg.pod_uid);
    assert_string_equal(cfg.node_name, "node-x");
    assert_string_equal(cfg.driver_name, "hami-core-gpu.project-hami.io");
    assert_null(cfg.kubeconfig);
    assert_string_equal(cfg.kubelet_plugins_dir, "/var/lib/kubelet/plugins");
    assert_string_equal(cfg.kubelet_registry_dir, "/var/lib/kubelet/plugins_registry");
    assert_string_equal(cfg.cdi_dir, "/var/run/cdi");
    assert_string_equal(cfg.state_dir, "/var/lib/aliquot");
    assert_string_equal(cfg.run_dir, "/run/aliquot");
    assert_string_equal(cfg.dev_root, "/");
    assert_null(cfg.library);
    assert_int_equal(cfg.context_estimate_bytes, 256 << 20);
    assert_int_equal(cfg.reserve_bytes, 0);
    assert_int_equal(cfg.whole_gpu, ALQ_WHOLE_GPU_LIMIT);
    alq_config_free(&cfg);
}

static void load_prefers_flags_to_the_file_to_defaults(void **state)
{
    (void)state;
    struct alq_config cfg;
    const char *file = yaml("nodeName: from-file\n"
                            "cdiDir: /from/file\n"
                            "reserve: 1Gi\n"
                            "contextEstimate: 1048576\n"
                            "allowNonTmpfs: true\n"
                            "logLevel: debug\n"
                            "wholeGpu: passthrough\n"
                            "extraMounts:\n"
                            "- {hostPath: /a/, containerPath: /b}\n"
                            "- {hostPath: /c, containerPath: /d, options: [ro]}\n"
                            "extraEnv: [A=1, B=]\n"
                            "healthIgnoreXids: [13, '31']\n"
                            "adminGroup: 1000\n");
    assert_int_equal(load(&cfg, NULL, file, "--cdi-dir", "/from/flag/", "--node-name=n", NULL), 0);
    assert_string_equal(cfg.node_name, "n");
    assert_string_equal(cfg.cdi_dir, "/from/flag");
    assert_int_equal(cfg.reserve_bytes, 1 << 30);
    assert_int_equal(cfg.context_estimate_bytes, 1 << 20);
    assert_true(cfg.is_non_tmpfs_allowed);
    assert_int_equal(cfg.log_level, ALQ_LOG_DEBUG);
    assert_int_equal(cfg.whole_gpu, ALQ_WHOLE_GPU_PASSTHROUGH);
    assert_int_equal(cfg.extra_mount_count, 2);
    assert_string_equal(cfg.extra_mounts[0].host_path, "/a");
    assert_string_equal(cfg.extra_mounts[0].options[0], "rw");
    assert_string_equal(cfg.extra_mounts[1].options[0], "ro");
    assert_null(cfg.extra_mounts[1].options[1]);
    assert_int_equal(cfg.extra_env_count, 2);
    assert_string_equal(cfg.extra_env[1], "B=");
    assert_string_equal(cfg.ignored_xids[0], "13");
    assert_string_equal(cfg.ignored_xids[1], "31");
    assert_string_equal(cfg.admin_group, "1000");
    alq_config_free(&cfg);
}

/* A ConfigMap's file is a link through ..data, which is exchanged. */
static void load_takes_a_file_behind_links(void **state)
{
    (void)state;
    char dir[] = "/tmp/alq-config-XXXXXX", data[64], file[64], link[64], flag[80];
    struct alq_config cfg;
    assert_non_null(mkdtemp(dir));
    snprintf(data, sizeof(data), "%s/..data", dir);
    snprintf(file, sizeof(file), "%s/aliquotd.yaml", dir);
    snprintf(flag, sizeof(flag), "--config=%s", file);
    assert_int_equal(symlink("..data/aliquotd.yaml", file), 0);
    for (int i = 0; i < 2; i++) {
        char version[64], target[80], text[32];
        snprintf(version, sizeof(version), "%s/v%d", dir, i);
        snprintf(target, sizeof(target), "%s/aliquotd.yaml", version);
        snprintf(link, sizeof(link), "%s/..data_tmp", dir);
        int len = snprintf(text, sizeof(text), "nodeName: node-%d\n", i);
        assert_int_equal(mkdir(version, 0700), 0);
        assert_int_equal(alq_file_write_atomic(target, text, (size_t)len, 0600, 0, NULL), 0);
        assert_int_equal(symlink(version, link), 0);
        assert_int_equal(rename(link, data), 0);
        assert_int_equal(load(&cfg, NULL, flag, NULL), 0);
        assert_int_equal(cfg.node_name[5], '0' + i);
        alq_config_free(&cfg);
        assert_int_equal(unlink(target), 0);
        assert_int_equal(rmdir(version), 0);
    }
    refused(flag, "No such file");
    unlink(file);
    unlink(data);
    assert_int_equal(rmdir(dir), 0);
}

static void load_refuses_what_it_does_not_understand(void **state)
{
    (void)state;
    refused("--no-such-flag=1", "--no-such-flag");
    refused("positional", "positional");
    refused("--node-name", "--node-name");
    refused("--node-name=Upper", "--node-name");
    refused("--node-name=a..b", "--node-name");
    refused("--driver-name=-x", "--driver-name");
    refused("--driver-name=0123456789012345678901234567890123456789012345678901234567890123",
            "--driver-name");
    refused("--cdi-dir=relative", "--cdi-dir");
    refused("--reserve=much", "--reserve");
    refused("--log-format=xml", "--log-format");
    refused("--whole-gpu=some", "none of limit, passthrough");
    refused("--allow-non-tmpfs=maybe", "--allow-non-tmpfs");
    refused("--config=/nonexistent/x.yaml", "/nonexistent/x.yaml");
    refused(yaml("nodeNmae: x\n"), "did you mean \"nodeName\"?");
    refused(yaml("cdi-dir: /x\n"), "did you mean \"cdiDir\"?");
    refused(yaml("xyz: /x\n"), "unknown key \"xyz\"");
    refused("--cdidir=/x", "did you mean --cdi-dir?");
    static const char *const addresses[] = {
        "9487",       ":",           "1.2.3.4:",       "1.2.3.4:65536",
        "1.2.3.4:-1", "1.2.3.4: 1",  "localhost:9487", "::1:9487",
        "[::1]",      "[1.2.3.4]:1", "1.2.3:1",        "[::1:1",
        "",           "[]:1"};
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        char flag[64];
        snprintf(flag, sizeof(flag), "--metrics-address=%s", addresses[i]);
        refused(flag, "--metrics-address: ");
    }
    refused(yaml("metricsAddress: \"localhost:9487\"\n"), "not a numeric address");
    refused(yaml("nodeName: [x]\n"), "nodeName");
    refused(yaml("startSpread: 5.5\n"), "startSpread: neither a string nor a whole number");
    refused(yaml("nodeName: \"a\\0b\"\n"), "NUL");
    refused(yaml("- x\n"), "not a mapping");
    refused(yaml("extraMounts: {}\n"), "extraMounts");
    refused(yaml("extraMounts: [{hostPath: /a}]\n"), "containerPath");
    refused(yaml("extraMounts: [{hostPath: /a, containerPath: b}]\n"), "containerPath");
    refused(yaml("extraMounts: [{hostPath: /a, containerPath: /b, opts: []}]\n"), "opts");
    refused(yaml("extraEnv: [x]\n"), "extraEnv");
    refused(yaml("extraEnv: [=x]\n"), "extraEnv");
    refused(yaml("nodeName: x\nnodeName: y\n"), "line 2");
}

static void load_sees_help_and_version_first(void **state)
{
    (void)state;
    static char name[] = "aliquotd", help[] = "--help", version[] = "--version";
    char *argv[] = {name, help};
    struct alq_config cfg;
    enum alq_config_action action;
    assert_int_equal(alq_config_load(&cfg, 2, argv, &action, NULL), 0);
    assert_int_equal(action, ALQ_CONFIG_HELP);
    alq_config_free(&cfg);
    argv[1] = version;
    assert_int_equal(alq_config_load(&cfg, 2, argv, &action, NULL), 0);
    assert_int_equal(action, ALQ_CONFIG_VERSION);
    alq_config_free(&cfg);
}

static void load_for_uninstall_has_the_settings_too(void **state)
{
    (void)state;
    static char name[] = "aliquotd", plain[] = "--uninstall", stay[] = "--uninstall=stay",
                other[] = "--uninstall=now", state_dir[] = "--state-dir=/x";
    static const struct {
        char *flag;
        enum alq_config_action action;
    } rows[] = {{plain, ALQ_CONFIG_UNINSTALL}, {stay, ALQ_CONFIG_UNINSTALL_STAY}};
    char *argv[] = {name, plain, state_dir};
    struct alq_config cfg;
    struct alq_err err = ALQ_ERR_INIT;
    enum alq_config_action action;
    for (size_t i = 0; i < 2; i++) {
        argv[1] = rows[i].flag;
        assert_int_equal(alq_config_load(&cfg, 3, argv, &action, NULL), 0);
        assert_int_equal(action, rows[i].action);
        assert_string_equal(cfg.state_dir, "/x");
        alq_config_free(&cfg);
    }
    argv[1] = other;
    assert_int_equal(alq_config_load(&cfg, 3, argv, &action, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, "\"now\""));
    alq_config_free(&cfg);
}

static int teardown(void **state)
{
    (void)state;
    return *path ? unlink(path) : 0;
}

static void pod_uid_comes_from_the_flag_or_the_environment(void **state)
{
    (void)state;
    struct alq_config cfg;
    setenv("POD_UID", "11111111-2222", 1);
    assert_int_equal(load(&cfg, NULL, NULL), 0);
    assert_string_equal(cfg.pod_uid, "11111111-2222");
    alq_config_free(&cfg);
    assert_int_equal(load(&cfg, NULL, "--pod-uid=abc", NULL), 0);
    assert_string_equal(cfg.pod_uid, "abc");
    alq_config_free(&cfg);
    unsetenv("POD_UID");
    refused("--pod-uid=../x", "--pod-uid");
    refused("--pod-uid=A", "--pod-uid");
}

static void load_takes_the_environment_between_file_and_flags(void **state)
{
    (void)state;
    struct alq_config cfg;
    const char *file = yaml("cdiDir: /from/file\nstateDir: /from/file\nrunDir: /from/file\n");
    setenv("ALIQUOT_CDI_DIR", "/from/environment", 1);
    setenv("ALIQUOT_RUN_DIR", "/from/environment", 1);
    setenv("ALIQUOT_SERVICE_HOST", "10.0.0.1", 1);
    assert_int_equal(load(&cfg, NULL, file, "--run-dir=/from/flag", NULL), 0);
    assert_string_equal(cfg.state_dir, "/from/file");
    assert_string_equal(cfg.cdi_dir, "/from/environment");
    assert_string_equal(cfg.run_dir, "/from/flag");
    alq_config_free(&cfg);
    setenv("ALIQUOT_CDI_DIR", "relative", 1);
    refused("--run-dir=/x", "ALIQUOT_CDI_DIR");
    unsetenv("ALIQUOT_CDI_DIR");
    setenv("ALIQUOT_CDIDIR", "/x", 1);
    refused("--run-dir=/x", "did you mean ALIQUOT_CDI_DIR?");
    unsetenv("ALIQUOT_CDIDIR");
    setenv("ALIQUOT_CONFIG", path, 1);
    assert_int_equal(load(&cfg, NULL, NULL), 0);
    assert_string_equal(cfg.cdi_dir, "/from/file");
    alq_config_free(&cfg);
    unsetenv("ALIQUOT_CONFIG");
    unsetenv("ALIQUOT_RUN_DIR");
}

static void take_live_changes_what_may_and_names_what_waits(void **state)
{
    (void)state;
    struct alq_config cfg, fresh;
    struct alq_config_changes changes;
    assert_int_equal(load(&cfg, NULL, yaml("extraEnv: [A=1]\n"), NULL), 0);
    assert_int_equal(
        load(&fresh, NULL, yaml("logLevel: debug\ncdiDir: /x\nextraEnv: [A=2]\n"), NULL), 0);
    alq_config_take_live(&cfg, &fresh, &changes);
    assert_int_equal(cfg.log_level, ALQ_LOG_DEBUG);
    assert_string_equal(cfg.cdi_dir, "/var/run/cdi");
    assert_string_equal(changes.taken, "logLevel");
    assert_string_equal(changes.waiting, "cdiDir, extraEnv");
    alq_config_take_live(&fresh, &fresh, &changes);
    assert_string_equal(changes.taken, "");
    assert_string_equal(changes.waiting, "");
    alq_config_free(&cfg);
    alq_config_free(&fresh);
}

static void load_puts_the_driver_root_below_the_host_root(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"/", "/host"},
                                          {"/run/nvidia/driver", "/host/run/nvidia/driver"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_config cfg;
        assert_int_equal(
            load(&cfg, NULL, yaml("hostRoot: /host/\n"), "--driver-root", rows[i][0], NULL), 0);
        assert_string_equal(cfg.host_root, "/host");
        assert_string_equal(cfg.driver_root, rows[i][1]);
        assert_string_equal(cfg.dev_root, "/");
        alq_config_free(&cfg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pod_uid_comes_from_the_flag_or_the_environment),
        cmocka_unit_test(load_without_flags_gives_the_documented_defaults),
        cmocka_unit_test(load_prefers_flags_to_the_file_to_defaults),
        cmocka_unit_test(load_takes_a_file_behind_links),
        cmocka_unit_test(load_puts_the_driver_root_below_the_host_root),
        cmocka_unit_test(load_refuses_what_it_does_not_understand),
        cmocka_unit_test(load_sees_help_and_version_first),
        cmocka_unit_test(load_for_uninstall_has_the_settings_too),
        cmocka_unit_test(load_takes_the_environment_between_file_and_flags),
        cmocka_unit_test(take_live_changes_what_may_and_names_what_waits),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}

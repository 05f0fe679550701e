/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from their four sources, see config.h: the table (settings.h), the file
 * (config_file.h), environment and flags here. Runs before the loop, and on SIGHUP.
 */
#include "daemon/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/names.h"
#include "daemon/cdi/inject.h"
#include "daemon/config_file.h"
#include "daemon/settings.h"

/* ---- flags ------------------------------------------------------------------------------------
 */

/* Splits "--flag=value" or "--flag" "value". *i is moved past what was used. */
static int next_flag(int argc, char **argv, int *i, char *flag, size_t size, const char **value,
                     struct alq_err *err)
{
    const char *arg = argv[(*i)++];
    if (strncmp(arg, "--", 2) != 0)
        return alq_err_set(err, ALQ_EINVAL, "\"%s\" is not a flag; see --help", arg);
    const char *equals = strchr(arg, '=');
    size_t len = equals ? (size_t)(equals - arg) - 2 : strlen(arg) - 2;
    if (len >= size)
        return alq_err_set(err, ALQ_EINVAL, "unknown flag %s; see --help", arg);
    memcpy(flag, arg + 2, len);
    flag[len] = '\0';
    *value = equals ? equals + 1 : NULL;
    if (!*value && *i < argc && strncmp(argv[*i], "--", 2) != 0)
        *value = argv[(*i)++];
    return 0;
}

static int unknown_flag(const char *name, struct alq_err *err)
{
    const struct alq_setting *s = alq_setting_near(name);
    return alq_err_set(err, ALQ_EINVAL, "unknown flag %s%s%s%s", name, s ? "; did you mean --" : "",
                       s ? s->flag : "", s ? "?" : "; see --help");
}

/* Flags that say what to do instead of serving. 1: it is one of them. */
static int take_action(const char *flag, const char *value, enum alq_config_action *action,
                       struct alq_err *err)
{
    if (!strcmp(flag, "help"))
        *action = ALQ_CONFIG_HELP;
    else if (!strcmp(flag, "version"))
        *action = ALQ_CONFIG_VERSION;
    else if (strcmp(flag, "uninstall") != 0)
        return 0;
    else if (!value || !strcmp(value, "stay"))
        *action = value ? ALQ_CONFIG_UNINSTALL_STAY : ALQ_CONFIG_UNINSTALL;
    else
        return alq_err_set(err, ALQ_EINVAL,
                           "--uninstall: \"%s\" is not stay, the one value it takes", value);
    return 1;
}

/* Pass 1 (cfg NULL) finds --config and actions and checks the names; pass 2 sets. */
static int scan_flags(struct alq_config *cfg, int argc, char **argv, const char **file,
                      enum alq_config_action *action, struct alq_err *err)
{
    for (int i = 1; i < argc;) {
        char flag[64], name[72];
        const char *value = NULL;
        int rc = next_flag(argc, argv, &i, flag, sizeof(flag), &value, err);
        if (rc)
            return rc;
        snprintf(name, sizeof(name), "--%s", flag);
        const struct alq_setting *s = alq_setting_by_flag(flag);
        rc = take_action(flag, value, action, err);
        if (rc < 0)
            return rc;
        if (rc)
            continue;
        if (s && s->kind == ALQ_SETTING_BOOL && !value)
            value = "true";
        if (!s && strcmp(flag, "config") != 0)
            return unknown_flag(name, err);
        if (!value)
            return alq_err_set(err, ALQ_EINVAL, "%s needs a value", name);
        if (!s)
            *file = value;
        else if (cfg && (rc = alq_setting_set(cfg, s, value, name, err)))
            return rc;
    }
    return 0;
}

/* ---- environment ------------------------------------------------------------------------------
 */

static int scan_environment(struct alq_config *cfg, struct alq_err *err)
{
    for (size_t i = 0; i < alq_setting_count; i++) {
        char name[ALQ_SETTING_NAME_BYTES];
        alq_setting_variable(&alq_settings[i], name);
        const char *value = getenv(name);
        int rc = value ? alq_setting_set(cfg, &alq_settings[i], value, name, err) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* Kubernetes puts variables of its own there for a Service named aliquot, so only what nearly is
 * the name of a setting is an error. */
static int check_environment(struct alq_err *err)
{
    for (char **p = environ; p && *p; p++) {
        char name[ALQ_SETTING_NAME_BYTES], known[ALQ_SETTING_NAME_BYTES];
        size_t len = strcspn(*p, "=");
        if (strncmp(*p, "ALIQUOT_", 8) != 0 || len >= sizeof(name))
            continue;
        memcpy(name, *p, len);
        name[len] = '\0';
        const struct alq_setting *s = alq_setting_near(name + 8);
        if (!s)
            continue;
        alq_setting_variable(s, known);
        if (strcmp(name, known) != 0)
            return alq_err_set(err, ALQ_EINVAL, "unknown variable %s; did you mean %s?", name,
                               known);
    }
    return 0;
}

static int set_presets(struct alq_config *cfg, struct alq_err *err)
{
    int rc = 0;
    char host[256] = "";
    const char *node = getenv("NODE_NAME");
    const char *kubeconfig = getenv("KUBECONFIG");
    const char *pod_uid = getenv("POD_UID");
    for (size_t i = 0; i < alq_setting_count && !rc; i++) {
        const struct alq_setting *s = &alq_settings[i];
        if (s->preset)
            rc = alq_setting_set(cfg, s, s->preset, s->flag, err);
    }
    if (!rc && (!node || !*node) && gethostname(host, sizeof(host) - 1) == 0)
        node = host;
    if (!rc && node && *node)
        rc = alq_text_set(&cfg->node_name, node, err);
    if (!rc && pod_uid && *pod_uid)
        rc = alq_text_set(&cfg->pod_uid, pod_uid, err);
    if (!rc && kubeconfig && *kubeconfig)
        rc = alq_path_set(&cfg->kubeconfig, kubeconfig, "$KUBECONFIG", err);
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------
 */

static int is_dns_subdomain(const char *text, size_t max)
{
    size_t len = strlen(text);
    return len <= max && alq_is_dns_name(text, len, 1);
}

static int check_xids(char *const *xids, struct alq_err *err)
{
    for (; xids && *xids; xids++) {
        size_t digits = strspn(*xids, "0123456789");
        if (!digits || digits > 9 || (*xids)[digits] || (**xids == '0' && digits > 1))
            return alq_err_set(err, ALQ_EINVAL, "--health-ignore-xids: \"%.40s\" is no XID number",
                               *xids);
    }
    return 0;
}

/* A root that was not given: the driver's if it has path, else the host's. */
static int set_root(const struct alq_config *cfg, char **root, const char *path,
                    struct alq_err *err)
{
    if (*root)
        return 0;
    alq_auto_free char *there = alq_str_printf("%s/%s", cfg->driver_root, path);
    if (!there)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return alq_text_set(root, access(there, F_OK) == 0 ? cfg->driver_root : "/", err);
}

static int put_below_host_root(const struct alq_config *cfg, char **path, struct alq_err *err)
{
    if (!strcmp(cfg->host_root, "/"))
        return 0;
    alq_auto_free char *below =
        alq_str_printf("%s%s", cfg->host_root, strcmp(*path, "/") ? *path : "");
    return below ? alq_text_set(path, below, err) : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

static int set_beside(char **path, const char *name, const char *in_tree, struct alq_err *err)
{
    alq_auto_free char *beside = *path ? NULL : alq_file_beside(name, in_tree, ALQ_LIBEXEC_DIR);
    return beside ? alq_text_set(path, beside, err) : 0;
}

/* Of its own, so that a kubelet plugin's records are never taken for ours; and programs of the host
 * that have the library preloaded look for shares below the run dir. */
static int set_below(char **dir, struct alq_err *err)
{
    alq_auto_free char *below = alq_str_printf("%s/standalone", strcmp(*dir, "/") ? *dir : "");
    return below ? alq_text_set(dir, below, err) : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

static int set_standalone(struct alq_config *cfg, struct alq_err *err)
{
    int rc = set_below(&cfg->state_dir, err);
    if (!rc)
        rc = set_below(&cfg->run_dir, err);
    /* The name is seen by nobody, so a host's that is no node's does. */
    if (!rc && (!cfg->node_name || !is_dns_subdomain(cfg->node_name, 253)))
        rc = alq_text_set(&cfg->node_name, "localhost", err);
    if (!rc)
        rc = set_beside(&cfg->library, "libvgpu.so", "vgpu", err);
    if (!rc)
        rc = set_beside(&cfg->hook, "aliquot-hook", "hook", err);
    if (!rc && !cfg->library)
        rc = alq_err_set(err, ALQ_EINVAL,
                         "--library: libvgpu.so is not beside this program, and without it no "
                         "limit holds; name the file");
    return rc;
}

static int check(struct alq_config *cfg, struct alq_err *err)
{
    if (check_xids(cfg->ignored_xids, err))
        return err->code;
    free(cfg->admin_socket);
    cfg->admin_socket = alq_str_printf("%s/aliquotd.sock", cfg->run_dir);
    if (!cfg->admin_socket)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (cfg->is_standalone && set_standalone(cfg, err))
        return err->code;
    if (!cfg->node_name || !is_dns_subdomain(cfg->node_name, 253))
        return alq_err_set(err, ALQ_EINVAL,
                           "--node-name: \"%s\" is not the name of a node (lower-case letters, "
                           "digits, '-' and '.')",
                           cfg->node_name ? cfg->node_name : "");
    /* A CDI vendor of one letter makes containerd and podman panic; ours is "k8s.<driver>". */
    if (!is_dns_subdomain(cfg->driver_name, 63))
        return alq_err_set(err, ALQ_EINVAL,
                           "--driver-name: \"%s\" is not a DNS subdomain of at most 63 bytes",
                           cfg->driver_name);
    if (cfg->pod_uid &&
        (strlen(cfg->pod_uid) > 63 ||
         cfg->pod_uid[strspn(cfg->pod_uid, "0123456789abcdefghijklmnopqrstuvwxyz-")]))
        return alq_err_set(err, ALQ_EINVAL,
                           "--pod-uid: \"%s\" is not one (lower-case letters, digits and '-', at "
                           "most 63)",
                           cfg->pod_uid);
    if (alq_inject_parse(cfg->inject, &cfg->inject_sets, err))
        return alq_err_wrap(err, "--inject");
    int rc = put_below_host_root(cfg, &cfg->driver_root, err);
    if (!rc)
        rc = set_root(cfg, &cfg->dev_root, "dev/nvidiactl", err);
    return rc ? rc : set_root(cfg, &cfg->kernel_root, "proc/driver/nvidia/version", err);
}

int alq_config_load(struct alq_config *cfg, int argc, char **argv, enum alq_config_action *action,
                    struct alq_err *err)
{
    const char *file = getenv("ALIQUOT_CONFIG");
    memset(cfg, 0, sizeof(*cfg));
    *action = ALQ_CONFIG_RUN;
    int rc = scan_flags(NULL, argc, argv, &file, action, err);
    if (rc || *action == ALQ_CONFIG_HELP || *action == ALQ_CONFIG_VERSION)
        return rc;
    rc = set_presets(cfg, err);
    if (!rc && file && *file)
        rc = alq_config_file_load(cfg, file, err);
    if (!rc)
        rc = check_environment(err);
    if (!rc)
        rc = scan_environment(cfg, err);
    if (!rc)
        rc = scan_flags(cfg, argc, argv, &file, action, err);
    return rc ? rc : check(cfg, err);
}

static int same_mounts(const struct alq_config *a, const struct alq_config *b)
{
    if (a->extra_mount_count != b->extra_mount_count)
        return 0;
    for (size_t i = 0; i < a->extra_mount_count; i++) {
        const struct alq_extra_mount *x = &a->extra_mounts[i], *y = &b->extra_mounts[i];
        if (strcmp(x->host_path, y->host_path) != 0 ||
            strcmp(x->container_path, y->container_path) != 0 ||
            !alq_texts_same(x->options, y->options))
            return 0;
    }
    return 1;
}

/* Appends ", key". */
static void add_key(char *list, size_t size, const char *key)
{
    size_t n = strlen(list);
    snprintf(list + n, size - n, "%s%s", n ? ", " : "", key);
}

void alq_config_take_live(struct alq_config *cfg, struct alq_config *fresh,
                          struct alq_config_changes *changes)
{
    char key[ALQ_SETTING_NAME_BYTES];
    *changes = (struct alq_config_changes){0};
    for (size_t i = 0; i < alq_setting_count; i++) {
        const struct alq_setting *s = &alq_settings[i];
        if (alq_setting_same(s, cfg, fresh))
            continue;
        alq_setting_key(s, key);
        if (s->is_live)
            alq_setting_swap(s, cfg, fresh);
        add_key(s->is_live ? changes->taken : changes->waiting, sizeof(changes->taken), key);
    }
    if (!same_mounts(cfg, fresh))
        add_key(changes->waiting, sizeof(changes->waiting), "extraMounts");
    if (!alq_texts_same(cfg->extra_env, fresh->extra_env))
        add_key(changes->waiting, sizeof(changes->waiting), "extraEnv");
}

void alq_config_free(struct alq_config *cfg)
{
    for (size_t i = 0; i < alq_setting_count; i++)
        alq_setting_free(&alq_settings[i], cfg);
    for (size_t i = 0; i < cfg->extra_mount_count; i++) {
        free(cfg->extra_mounts[i].host_path);
        free(cfg->extra_mounts[i].container_path);
        alq_texts_free(cfg->extra_mounts[i].options);
    }
    free(cfg->extra_mounts);
    free(cfg->admin_socket);
    alq_texts_free(cfg->extra_env);
    memset(cfg, 0, sizeof(*cfg));
}

void alq_config_help(FILE *out)
{
    fputs("usage: aliquotd [--config FILE.yaml] [flags]\n\n"
          "Shares this node's NVIDIA GPUs between containers: publishes them, prepares the\n"
          "ResourceClaims of pods and injects each share through CDI.\n\n"
          "  --config FILE                the flags below as YAML keys (nodeName: ...), also\n"
          "                               extraMounts and extraEnv\n",
          out);
    for (size_t i = 0; i < alq_setting_count; i++) {
        const struct alq_setting *s = &alq_settings[i];
        fprintf(out, "  --%-26s %s", s->flag, s->help);
        if (s->preset && s->kind != ALQ_SETTING_BOOL)
            fprintf(out, " [%s]", s->preset);
        fputc('\n', out);
    }
    fputs("  --uninstall[=stay]           take away what aliquotd keeps on this host instead of\n"
          "                               serving; stay: and then wait to be ended\n"
          "  --help, --version\n\n"
          "The environment has the same as ALIQUOT_NODE_NAME and so on. A flag goes before the\n"
          "environment, that before the file, the file before the defaults. SIGHUP reads the file\n"
          "again.\n",
          out);
}

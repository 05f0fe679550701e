/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of settings, see settings.h.
 */
#include "daemon/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/quantity.h"
#include "daemon/address.h"

#define NUMBER_BYTES 32
#define NEAR_EDITS 2
#define FOLDED_BYTES 48

static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const formats[] = {"text", "json", NULL};
static const char *const whole_gpus[] = {"limit", "passthrough", NULL};

#define ROW(flag, kind, field, preset, help)                                                       \
    {                                                                                              \
        flag, ALQ_SETTING_##kind, offsetof(struct alq_config, field), preset, help, NULL, 0        \
    }
#define LIVE(flag, kind, field, preset, help)                                                      \
    {                                                                                              \
        flag, ALQ_SETTING_##kind, offsetof(struct alq_config, field), preset, help, NULL, 1        \
    }
#define CHOICE(flag, choices, is_live, field, preset, help)                                        \
    {                                                                                              \
        flag, ALQ_SETTING_CHOICE, offsetof(struct alq_config, field), preset, help, choices,       \
            is_live                                                                                \
    }

const struct alq_setting alq_settings[] = {
    ROW("standalone", BOOL, is_standalone, "false",
        "no kubelet and no API server: shares are given to the users of this machine"),
    ROW("node-name", TEXT, node_name, NULL, "this node (default: $NODE_NAME, else host name)"),
    ROW("driver-name", TEXT, driver_name, ALQ_DRIVER_NAME_DEFAULT,
        "driver, DeviceClass and attribute domain"),
    ROW("kubeconfig", PATH, kubeconfig, NULL,
        "how to reach the API server (default: $KUBECONFIG, else the pod's service account)"),
    ROW("kubelet-plugins-dir", PATH, kubelet_plugins_dir, "/var/lib/kubelet/plugins",
        "our DRA socket is <dir>/<driver>/dra[-<pod uid>].sock"),
    ROW("kubelet-registry-dir", PATH, kubelet_registry_dir, "/var/lib/kubelet/plugins_registry",
        "our registration socket is <dir>/<driver>[-<pod uid>]-reg.sock"),
    ROW("pod-uid", TEXT, pod_uid, NULL,
        "pod of this instance (default: $POD_UID): another one may take its place without a gap"),
    ROW("cdi-dir", PATH, cdi_dir, "/var/run/cdi", "CDI specs for the container runtime"),
    ROW("state-dir", PATH, state_dir, "/var/lib/aliquot", "records of prepared claims"),
    ROW("run-dir", PATH, run_dir, "/run/aliquot", "share directories, on tmpfs"),
    ROW("host-root", PATH, host_root, "/",
        "where the host's / is seen here, in a container: the driver root is looked for below it, "
        "CDI specs have paths without it"),
    ROW("driver-root", PATH, driver_root, "/", "root of NVIDIA's driver installation"),
    ROW("dev-root", PATH, dev_root, NULL,
        "root of its dev/ (default: driver root if dev/nvidiactl is there, else /)"),
    ROW("kernel-root", PATH, kernel_root, NULL,
        "root of proc/ and sys/ (default: driver root if proc/driver/nvidia/version is there, else "
        "/)"),
    ROW("inject", LIST, inject, "default",
        "what else containers get, a list of default, all, NAME and -NAME; see docs/cdi.md"),
    ROW("mknod", BOOL, is_mknod, "true",
        "make NVIDIA's device nodes where they are missing (default: true)"),
    ROW("dev-char", BOOL, is_dev_char, "true",
        "link NVIDIA's device nodes below dev/char, for systemd (default: true)"),
    ROW("library", PATH, library, NULL,
        "libvgpu.so to install and inject (default: none, limits are not enforced)"),
    ROW("hook", PATH, hook, NULL,
        "aliquot-hook to install and have run by container runtimes (default: none)"),
    ROW("host-lib-dir", PATH, host_lib_dir, "/usr/local/lib/aliquot",
        "where library and hook are installed, by content hash"),
    LIVE("devices-include", LIST, devices_include, NULL,
         "GPUs to offer, by UUID, PCI address or product, with * and ? (default: all)"),
    LIVE("devices-exclude", LIST, devices_exclude, NULL, "GPUs not to offer, likewise"),
    LIVE("reserve", BYTES, reserve_bytes, "0", "memory of each GPU that is never promised"),
    LIVE("unified-memory", BYTES, unified_memory_bytes, "0",
         "what is promised of a GPU that has no memory of its own (default: not offered)"),
    LIVE("health-hold", SECONDS, health_hold_s, "60s",
         "how long a GPU must be well before it is offered again after a fault"),
    LIVE("health-ignore-xids", LIST, ignored_xids, NULL, "XID numbers that are no fault here"),
    ROW("context-estimate", BYTES, context_estimate_bytes, "256Mi",
        "memory reserved in a share before a CUDA context is made"),
    CHOICE("whole-gpu", whole_gpus, 0, whole_gpu, "limit",
           "limit or passthrough: a claim of a whole GPU gets no library and no share"),
    ROW("start-spread", SECONDS, start_spread_s, "5s",
        "the API server is first asked at a random moment within so much, and again when its "
        "connection breaks, so that the nodes of a cluster do not come all at once"),
    ROW("metrics-address", ADDRESS, metrics_address, ":9487",
        "where /metrics and /healthz are served, host:port, or none"),
    ROW("hami-metrics", BOOL, is_hami_metrics, "false",
        "also give the figures by the names of HAMi's vGPUmonitor"),
    ROW("pod-resources-socket", PATH, pod_resources_socket,
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "the kubelet's, asked for the pods and containers of shares (labels of metrics)"),
    ROW("admin-group", TEXT, admin_group, "aliquot",
        "group that may read the admin socket <run dir>/aliquotd.sock; a name of /etc/group or a "
        "number"),
    CHOICE("log-level", levels, 1, log_level, "info", "error, warn, info or debug"),
    CHOICE("log-format", formats, 0, log_format, "text", "text or json"),
    ROW("allow-non-tmpfs", BOOL, is_non_tmpfs_allowed, "false",
        "accept a run dir on a disk (tests; it costs the containers page faults)"),
};
const size_t alq_setting_count = sizeof(alq_settings) / sizeof(alq_settings[0]);

static void *field(struct alq_config *cfg, const struct alq_setting *s)
{
    return (char *)cfg + s->offset;
}

static const void *const_field(const struct alq_config *cfg, const struct alq_setting *s)
{
    return (const char *)cfg + s->offset;
}

/* ---- names ------------------------------------------------------------------------------------
 */

void alq_setting_key(const struct alq_setting *s, char key[ALQ_SETTING_NAME_BYTES])
{
    size_t n = 0;
    for (const char *p = s->flag; *p && n + 1 < ALQ_SETTING_NAME_BYTES; p++) {
        if (*p == '-' && p[1])
            key[n++] = (char)toupper((unsigned char)*++p);
        else
            key[n++] = *p;
    }
    key[n] = '\0';
}

void alq_setting_variable(const struct alq_setting *s, char name[ALQ_SETTING_NAME_BYTES])
{
    size_t n = (size_t)snprintf(name, ALQ_SETTING_NAME_BYTES, "ALIQUOT_");
    for (const char *p = s->flag; *p && n + 1 < ALQ_SETTING_NAME_BYTES; p++)
        name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    name[n] = '\0';
}

const struct alq_setting *alq_setting_by_flag(const char *flag)
{
    for (size_t i = 0; i < alq_setting_count; i++)
        if (!strcmp(alq_settings[i].flag, flag))
            return &alq_settings[i];
    return NULL;
}

const struct alq_setting *alq_setting_by_key(const char *key)
{
    char name[ALQ_SETTING_NAME_BYTES];
    for (size_t i = 0; i < alq_setting_count; i++) {
        alq_setting_key(&alq_settings[i], name);
        if (!strcmp(name, key))
            return &alq_settings[i];
    }
    return NULL;
}

/* Without case and separators, so that a flag's spelling in a file is no distance at all. */
static size_t fold(const char *name, char out[FOLDED_BYTES])
{
    size_t n = 0;
    for (; *name && n + 1 < FOLDED_BYTES; name++)
        if (*name != '-' && *name != '_')
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
    return n;
}

/* Insertions, deletions, replacements and neighbours exchanged that lead from a to b. */
static unsigned edits_between(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned rows[3][FOLDED_BYTES + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned *now = rows[i % 3];
        const unsigned *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned least = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < least)
                least = last[j] + 1;
            if (now[j - 1] + 1 < least)
                least = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < least)
                least = before[j - 2] + 1;
            now[j] = least;
        }
    }
    return rows[a_len % 3][b_len];
}

const struct alq_setting *alq_setting_near(const char *name)
{
    char written[FOLDED_BYTES], known[FOLDED_BYTES];
    size_t len = fold(name, written);
    const struct alq_setting *best = NULL;
    unsigned least = NEAR_EDITS + 1;
    for (size_t i = 0; i < alq_setting_count; i++) {
        size_t known_len = fold(alq_settings[i].flag, known);
        unsigned edits = edits_between(written, len, known, known_len);
        if (edits < least && edits < known_len / 2) {
            least = edits;
            best = &alq_settings[i];
        }
    }
    return best;
}

/* ---- values -----------------------------------------------------------------------------------
 */

int alq_text_set(char **dst, const char *text, struct alq_err *err)
{
    char *copy = strdup(text);
    if (!copy)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    free(*dst);
    *dst = copy;
    return 0;
}

int alq_path_set(char **dst, const char *text, const char *name, struct alq_err *err)
{
    if (text[0] != '/')
        return alq_err_set(err, ALQ_EINVAL, "%s: \"%s\" is not an absolute path", name, text);
    int rc = alq_text_set(dst, text, err);
    if (rc)
        return rc;
    for (size_t n = strlen(*dst); n > 1 && (*dst)[n - 1] == '/'; n--)
        (*dst)[n - 1] = '\0';
    return 0;
}

void alq_texts_free(char **texts)
{
    for (char **p = texts; p && *p; p++)
        free(*p);
    free(texts);
}

int alq_texts_same(char *const *a, char *const *b)
{
    static char *const none[] = {NULL};
    a = a ? a : none;
    b = b ? b : none;
    while (*a && *b && !strcmp(*a, *b))
        a++, b++;
    return !*a && !*b;
}

/* As its digits: YAML takes an XID or a group's number for one. */
static const char *whole_number(const json_t *value, char text[NUMBER_BYTES])
{
    snprintf(text, NUMBER_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return text;
}

int alq_texts_set(char ***texts, const json_t *array, const char *name, struct alq_err *err)
{
    if (!json_is_array(array) || json_array_size(array) > ALQ_SETTING_LIST_MAX)
        return alq_err_set(err, ALQ_EINVAL, "%s: not a list of at most %d strings", name,
                           ALQ_SETTING_LIST_MAX);
    char **copy = calloc(json_array_size(array) + 1, sizeof(char *));
    int rc = copy ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
    char number[NUMBER_BYTES];
    for (size_t i = 0; !rc && i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);
        const char *text =
            json_is_integer(value) ? whole_number(value, number) : json_string_value(value);
        if (text)
            rc = alq_text_set(&copy[i], text, err);
        else
            rc = alq_err_set(err, ALQ_EINVAL, "%s[%zu]: not a string", name, i);
    }
    if (rc) {
        alq_texts_free(copy);
        return rc;
    }
    alq_texts_free(*texts);
    *texts = copy;
    return 0;
}

/* "a,b" */
static int set_list(char ***texts, const char *text, const char *name, struct alq_err *err)
{
    json_t *array = json_array();
    int rc = array ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (const char *p = text; !rc && *text; p++) {
        size_t len = strcspn(p, ",");
        if (!len)
            rc = alq_err_set(err, ALQ_EINVAL, "%s: \"%s\" has an empty entry", name, text);
        else if (json_array_append_new(array, json_stringn_nocheck(p, len)))
            rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
        p += len;
        if (!*p)
            break;
    }
    if (!rc)
        rc = alq_texts_set(texts, array, name, err);
    json_decref(array);
    return rc;
}

#define SECONDS_MAX (7 * 24 * 3600)

static int set_seconds(int64_t *seconds, const char *text, const char *name, struct alq_err *err)
{
    char *end;
    long long n = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (n >= 0 && n <= SECONDS_MAX) {
        n *= *end == 'h' ? 3600 : *end == 'm' ? 60 : 1;
        end += *end == 'h' || *end == 'm' || *end == 's';
        if (!*end && n <= SECONDS_MAX) {
            *seconds = n;
            return 0;
        }
    }
    return alq_err_set(err, ALQ_EINVAL,
                       "%s: \"%.40s\" is not a time of at most a week, such as 90s, 5m or 2h", name,
                       text);
}

static int set_choice(int *value, const struct alq_setting *s, const char *text, const char *name,
                      struct alq_err *err)
{
    for (int i = 0; s->choices[i]; i++) {
        if (!strcasecmp(s->choices[i], text)) {
            *value = i;
            return 0;
        }
    }
    char known[128] = "";
    for (size_t i = 0, n = 0; s->choices[i] && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "", s->choices[i]);
    return alq_err_set(err, ALQ_EINVAL, "%s: \"%.40s\" is none of %s", name, text, known);
}

int alq_setting_set(struct alq_config *cfg, const struct alq_setting *s, const char *text,
                    const char *name, struct alq_err *err)
{
    void *to = field(cfg, s);
    struct alq_address address;
    int rc = 0;
    switch (s->kind) {
    case ALQ_SETTING_TEXT:
        if (!*text)
            return alq_err_set(err, ALQ_EINVAL, "%s: empty", name);
        return alq_text_set(to, text, err);
    case ALQ_SETTING_ADDRESS:
        if (strcmp(text, "none") != 0 && alq_address_parse(text, &address, err))
            return alq_err_wrap(err, "%s", name);
        return alq_text_set(to, text, err);
    case ALQ_SETTING_PATH:
        return alq_path_set(to, text, name, err);
    case ALQ_SETTING_LIST:
        return set_list(to, text, name, err);
    case ALQ_SETTING_CHOICE:
        return set_choice(to, s, text, name, err);
    case ALQ_SETTING_BYTES:
        rc = alq_bytes_parse(text, 0, to, err);
        return rc ? alq_err_wrap(err, "%s", name) : 0;
    case ALQ_SETTING_SECONDS:
        return set_seconds(to, text, name, err);
    case ALQ_SETTING_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return alq_err_set(err, ALQ_EINVAL, "%s: \"%s\" is neither true nor false", name, text);
        *(int *)to = *text == 't';
        return 0;
    }
    return alq_err_set(err, ALQ_ENOTSUP, "%s", name);
}

int alq_setting_set_json(struct alq_config *cfg, const struct alq_setting *s, const json_t *value,
                         const char *name, struct alq_err *err)
{
    char number[NUMBER_BYTES];
    if (json_is_string(value))
        return alq_setting_set(cfg, s, json_string_value(value), name, err);
    if (json_is_array(value) && s->kind == ALQ_SETTING_LIST)
        return alq_texts_set(field(cfg, s), value, name, err);
    if (json_is_boolean(value) && s->kind == ALQ_SETTING_BOOL)
        return alq_setting_set(cfg, s, json_is_true(value) ? "true" : "false", name, err);
    if (json_is_integer(value) && (s->kind == ALQ_SETTING_BYTES || s->kind == ALQ_SETTING_SECONDS ||
                                   s->kind == ALQ_SETTING_TEXT))
        return alq_setting_set(cfg, s, whole_number(value, number), name, err);
    return alq_err_set(err, ALQ_EINVAL, "%s: %s", name,
                       s->kind == ALQ_SETTING_BOOL   ? "neither true nor false"
                       : s->kind == ALQ_SETTING_LIST ? "not a list of strings"
                       : s->kind == ALQ_SETTING_BYTES || s->kind == ALQ_SETTING_SECONDS
                           ? "neither a string nor a whole number"
                           : "not a string");
}

/* ---- two configurations -----------------------------------------------------------------------
 */

static int is_text(const struct alq_setting *s)
{
    return s->kind == ALQ_SETTING_TEXT || s->kind == ALQ_SETTING_PATH ||
           s->kind == ALQ_SETTING_ADDRESS;
}

static size_t size_of(const struct alq_setting *s)
{
    switch (s->kind) {
    case ALQ_SETTING_BYTES:
        return sizeof(uint64_t);
    case ALQ_SETTING_SECONDS:
        return sizeof(int64_t);
    case ALQ_SETTING_BOOL:
    case ALQ_SETTING_CHOICE:
        return sizeof(int);
    default:
        return sizeof(char *);
    }
}

int alq_setting_same(const struct alq_setting *s, const struct alq_config *a,
                     const struct alq_config *b)
{
    const void *x = const_field(a, s), *y = const_field(b, s);
    if (s->kind == ALQ_SETTING_LIST)
        return alq_texts_same(*(char *const *const *)x, *(char *const *const *)y);
    if (!is_text(s))
        return !memcmp(x, y, size_of(s));
    const char *text = *(const char *const *)x, *other = *(const char *const *)y;
    return text && other ? !strcmp(text, other) : text == other;
}

void alq_setting_swap(const struct alq_setting *s, struct alq_config *a, struct alq_config *b)
{
    char kept[sizeof(uint64_t)];
    memcpy(kept, field(a, s), size_of(s));
    memcpy(field(a, s), field(b, s), size_of(s));
    memcpy(field(b, s), kept, size_of(s));
}

void alq_setting_free(const struct alq_setting *s, struct alq_config *cfg)
{
    if (s->kind == ALQ_SETTING_LIST)
        alq_texts_free(*(char ***)field(cfg, s));
    else if (is_text(s))
        free(*(char **)field(cfg, s));
}

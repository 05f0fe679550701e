/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials from a kubeconfig or a service account, see credentials.h. Nothing here is ever
 * logged. */
#include "daemon/kube/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/yaml.h"

#define FILE_BYTES_MAX (1u << 20)

static int out_of_memory(struct alq_err *err)
{
    return alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

static void blob_clear(struct alq_blob *blob)
{
    if (blob->data)
        explicit_bzero(blob->data, blob->len);
    free(blob->data);
    *blob = (struct alq_blob){0};
}

static void token_clear(char **token)
{
    if (*token)
        explicit_bzero(*token, strlen(*token));
    free(*token);
    *token = NULL;
}

/* Service account files are links into a directory that is exchanged as a whole, so links are
 * followed. */
static int read_file(const char *path, struct alq_blob *blob, struct alq_err *err)
{
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st))
        return alq_err_errno(err, errno, "read %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX)
        return alq_err_set(err, ALQ_EINVAL, "%s is not a regular file of at most %u bytes", path,
                           FILE_BYTES_MAX);
    size_t size = (size_t)st.st_size, len = 0;
    char *data = malloc(size + 1);
    if (!data)
        return out_of_memory(err);
    while (len < size) {
        ssize_t n = read(fd, data + len, size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int rc = alq_err_errno(err, errno, "read %s", path);
            free(data);
            return rc;
        }
        if (n == 0)
            break;
        len += (size_t)n;
    }
    data[len] = '\0';
    *blob = (struct alq_blob){data, len};
    return 0;
}

/* A token as it goes into a header: no control bytes, no blanks around. */
static int read_token(const char *path, char **token, struct alq_err *err)
{
    struct alq_blob blob = {0};
    int rc = read_file(path, &blob, err);
    if (rc)
        return rc;
    size_t len = blob.len;
    while (len && strchr(" \t\r\n", blob.data[len - 1]))
        len--;
    if (!len) {
        rc = alq_err_set(err, ALQ_EINVAL, "token file %s is empty", path);
    } else {
        for (size_t i = 0; i < len && !rc; i++) {
            if (blob.data[i] <= ' ' || blob.data[i] > '~')
                rc = alq_err_set(err, ALQ_EINVAL, "token file %s holds what is no token", path);
        }
    }
    if (!rc) {
        *token = strndup(blob.data, len);
        rc = *token ? 0 : out_of_memory(err);
    }
    blob_clear(&blob);
    return rc;
}

/* ---- kubeconfig ---------------------------------------------------------------------------------
 */

static int copy_text(const json_t *object, const char *key, const char *what, char **text,
                     struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return alq_err_set(err, ALQ_EINVAL, "%s: %s is not text", what, key);
    free(*text);
    *text = strdup(json_string_value(value));
    return *text ? 0 : out_of_memory(err);
}

static int copy_path(const json_t *object, const char *key, const char *dir, const char *what,
                     char **path, struct alq_err *err)
{
    alq_auto_free char *text = NULL;
    int rc = copy_text(object, key, what, &text, err);
    if (rc || !text || !*text)
        return rc;
    *path = *text == '/' ? alq_steal(&text) : alq_str_printf("%s/%s", dir, text);
    return *path ? 0 : out_of_memory(err);
}

static int decode_base64(const char *text, struct alq_blob *blob)
{
    size_t len = strlen(text);
    /* PEM written by hand may carry line breaks in a block scalar. */
    alq_auto_free char *packed = malloc(len + 1);
    size_t n = 0;
    if (!packed)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (!strchr(" \t\r\n", text[i]))
            packed[n++] = text[i];
    }
    unsigned char *data = n && n % 4 == 0 ? malloc(n / 4 * 3 + 1) : NULL;
    int decoded = data ? EVP_DecodeBlock(data, (unsigned char *)packed, (int)n) : -1;
    if (decoded < 0) {
        free(data);
        return -1;
    }
    size_t size = (size_t)decoded - (packed[n - 1] == '=') - (packed[n - 2] == '=');
    data[size] = '\0';
    *blob = (struct alq_blob){(char *)data, size};
    return 0;
}

/* "<key>-data" in base64 wins over the file "<key>", as in kubectl. */
static int copy_blob(const json_t *object, const char *key, const char *dir, const char *what,
                     struct alq_blob *blob, char **file, struct alq_err *err)
{
    char data_key[64];
    alq_auto_free char *text = NULL;
    snprintf(data_key, sizeof(data_key), "%s-data", key);
    int rc = copy_text(object, data_key, what, &text, err);
    if (rc)
        return rc;
    if (text && *text) {
        rc = decode_base64(text, blob)
                 ? alq_err_set(err, ALQ_EINVAL, "%s: %s is not base64", what, data_key)
                 : 0;
        explicit_bzero(text, strlen(text));
        return rc;
    }
    rc = copy_path(object, key, dir, what, file, err);
    return rc || !*file ? rc : read_file(*file, blob, err);
}

/* The object of list (clusters, users, contexts) that is called name. */
static int find_named(const json_t *root, const char *list, const char *member, const char *name,
                      const char *what, const json_t **found, struct alq_err *err)
{
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(root, list), i, item) {
        const char *its_name = alq_json_str(item, "name");
        if (its_name && !strcmp(its_name, name)) {
            *found = json_object_get(item, member);
            if (json_is_object(*found))
                return 0;
        }
    }
    return alq_err_set(err, ALQ_EINVAL, "%s: %s has no entry \"%s\"", what, list, name);
}

static int parse_cluster(const json_t *cluster, const char *dir, const char *what,
                         struct alq_credentials *c, struct alq_err *err)
{
    int rc = copy_text(cluster, "server", what, &c->server, err);
    if (!rc && !c->server)
        rc = alq_err_set(err, ALQ_EINVAL, "%s: the cluster has no server", what);
    if (!rc && strncmp(c->server, "https://", 8))
        rc = alq_err_set(err, ALQ_EINVAL, "%s: server %.200s is not an https:// address", what,
                         c->server);
    if (rc)
        return rc;
    for (size_t len = strlen(c->server); len > 8 && c->server[len - 1] == '/'; len--)
        c->server[len - 1] = '\0';
    c->is_insecure = json_is_true(json_object_get(cluster, "insecure-skip-tls-verify"));
    rc = copy_text(cluster, "proxy-url", what, &c->proxy, err);
    if (!rc)
        rc = copy_text(cluster, "tls-server-name", what, &c->tls_server_name, err);
    if (!rc)
        rc = copy_blob(cluster, "certificate-authority", dir, what, &c->ca, &c->ca_file, err);
    return rc;
}

static int parse_user(const json_t *user, const char *dir, const char *what,
                      struct alq_credentials *c, struct alq_err *err)
{
    static const char *const unsupported[][2] = {
        {"exec", "exec plugins run programs and are"},
        {"auth-provider", "auth-provider plugins are"},
        {"username", "passwords are"},
        {"as", "impersonation is"},
    };
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
        if (json_object_get(user, unsupported[i][0]))
            return alq_err_set(err, ALQ_ENOTSUP,
                               "%s: the user has \"%s\"; %s not supported, give a token, tokenFile "
                               "or client certificate",
                               what, unsupported[i][0], unsupported[i][1]);
    }
    int rc = copy_blob(user, "client-certificate", dir, what, &c->certificate, &c->certificate_file,
                       err);
    if (!rc)
        rc = copy_blob(user, "client-key", dir, what, &c->key, &c->key_file, err);
    if (!rc && !c->certificate.data != !c->key.data)
        rc =
            alq_err_set(err, ALQ_EINVAL, "%s: client-certificate and client-key go together", what);
    if (!rc)
        rc = copy_path(user, "tokenFile", dir, what, &c->token_file, err);
    if (!rc)
        rc = c->token_file ? read_token(c->token_file, &c->token, err)
                           : copy_text(user, "token", what, &c->token, err);
    if (!rc && c->token && strpbrk(c->token, " \t\r\n"))
        rc = alq_err_set(err, ALQ_EINVAL, "%s: the token holds a blank", what);
    return rc;
}

int alq_credentials_parse(const char *text, size_t len, const char *dir, const char *what,
                          struct alq_credentials *c, struct alq_err *err)
{
    alq_auto_json json_t *root = NULL;
    memset(c, 0, sizeof(*c));
    int rc = alq_yaml_parse(text, len, what, &root, err);
    if (rc)
        return rc;
    const char *current = alq_json_str(root, "current-context");
    if (!current || !*current)
        return alq_err_set(err, ALQ_EINVAL, "%s: current-context is not set", what);
    const json_t *context, *cluster, *user = NULL;
    rc = find_named(root, "contexts", "context", current, what, &context, err);
    if (rc)
        return rc;
    const char *cluster_name = alq_json_str(context, "cluster"),
               *user_name = alq_json_str(context, "user");
    rc = find_named(root, "clusters", "cluster", cluster_name ? cluster_name : "", what, &cluster,
                    err);
    if (!rc && user_name && *user_name)
        rc = find_named(root, "users", "user", user_name, what, &user, err);
    if (!rc)
        rc = parse_cluster(cluster, dir, what, c, err);
    if (!rc && user)
        rc = parse_user(user, dir, what, c, err);
    return rc;
}

static struct alq_file_version version_of(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return (struct alq_file_version){0};
    return (struct alq_file_version){st.st_dev, st.st_ino, (uint64_t)st.st_size,
                                     (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
}

static int load_kubeconfig(const char *path, struct alq_credentials *c, struct alq_err *err)
{
    struct alq_blob blob = {0};
    struct alq_file_version version = version_of(path); /* before it is read: a change is noticed */
    int rc = read_file(path, &blob, err);
    if (rc)
        return err ? alq_err_wrap(err, "kubeconfig") : rc;
    const char *slash = strrchr(path, '/');
    alq_auto_free char *dir =
        slash ? strndup(path, (size_t)(slash - path) + (slash == path)) : strdup(".");
    rc = dir ? alq_credentials_parse(blob.data, blob.len, dir, path, c, err) : out_of_memory(err);
    blob_clear(&blob);
    c->version = version;
    c->kubeconfig = rc ? NULL : strdup(path);
    return rc || c->kubeconfig ? rc : out_of_memory(err);
}

/* ---- service account ----------------------------------------------------------------------------
 */

static int load_service_account(const char *dir, struct alq_credentials *c, struct alq_err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !port || !*host || !*port)
        return alq_err_set(
            err, ALQ_ENOENT,
            "no API server is known: give --kubeconfig, or run in a pod with a service account "
            "(KUBERNETES_SERVICE_HOST is not set)");
    if (strspn(port, "0123456789") != strlen(port) || strlen(port) > 5 ||
        strpbrk(host, " /@?#\r\n"))
        return alq_err_set(err, ALQ_EINVAL,
                           "KUBERNETES_SERVICE_HOST \"%.100s\" and _PORT \"%.20s\" are no address",
                           host, port);
    c->server = strchr(host, ':') ? alq_str_printf("https://[%s]:%s", host, port)
                                  : alq_str_printf("https://%s:%s", host, port);
    c->token_file = alq_str_printf("%s/token", dir);
    c->ca_file = alq_str_printf("%s/ca.crt", dir);
    if (!c->server || !c->token_file || !c->ca_file)
        return out_of_memory(err);
    int rc = read_token(c->token_file, &c->token, err);
    if (!rc)
        rc = read_file(c->ca_file, &c->ca, err);
    return rc && err ? alq_err_wrap(err, "service account") : rc;
}

int alq_credentials_load(const char *kubeconfig, const char *service_account_dir,
                         struct alq_credentials *c, struct alq_err *err)
{
    memset(c, 0, sizeof(*c));
    return kubeconfig ? load_kubeconfig(kubeconfig, c, err)
                      : load_service_account(service_account_dir, c, err);
}

/* ---- rotation -----------------------------------------------------------------------------------
 */

static int refresh_blob(const char *file, struct alq_blob *blob, int *is_changed,
                        struct alq_err *err)
{
    struct alq_blob fresh = {0};
    int rc = file ? read_file(file, &fresh, err) : 0;
    if (rc || !file)
        return rc;
    if (fresh.len != blob->len || memcmp(fresh.data, blob->data, fresh.len)) {
        *is_changed = 1;
        blob_clear(blob);
        *blob = fresh;
    } else {
        blob_clear(&fresh);
    }
    return 0;
}

static int is_same_text(const char *a, const char *b)
{
    return !a || !b ? a == b : !strcmp(a, b);
}

static int is_same_blob(const struct alq_blob *a, const struct alq_blob *b)
{
    return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

/* Takes another kubeconfig's contents over. */
static int reload(struct alq_credentials *c, int *is_changed, struct alq_err *err)
{
    struct alq_credentials fresh = {0};
    int rc = load_kubeconfig(c->kubeconfig, &fresh, err);
    if (rc) {
        alq_credentials_free(&fresh);
        return rc;
    }
    *is_changed = !is_same_text(c->server, fresh.server) || !is_same_text(c->proxy, fresh.proxy) ||
                  !is_same_text(c->tls_server_name, fresh.tls_server_name) ||
                  c->is_insecure != fresh.is_insecure || !is_same_blob(&c->ca, &fresh.ca) ||
                  !is_same_blob(&c->certificate, &fresh.certificate) ||
                  !is_same_blob(&c->key, &fresh.key);
    alq_credentials_free(c);
    *c = fresh;
    return 0;
}

int alq_credentials_refresh(struct alq_credentials *c, int *is_changed, struct alq_err *err)
{
    *is_changed = 0;
    if (c->kubeconfig) {
        struct alq_file_version now = version_of(c->kubeconfig);
        if (memcmp(&now, &c->version, sizeof(now)) != 0)
            return reload(c, is_changed, err);
    }
    char *token = NULL;
    int rc = c->token_file ? read_token(c->token_file, &token, err) : 0;
    if (rc)
        return rc;
    if (token) {
        token_clear(&c->token);
        c->token = token;
    }
    rc = refresh_blob(c->ca_file, &c->ca, is_changed, err);
    if (!rc)
        rc = refresh_blob(c->certificate_file, &c->certificate, is_changed, err);
    if (!rc)
        rc = refresh_blob(c->key_file, &c->key, is_changed, err);
    return rc;
}

void alq_credentials_free(struct alq_credentials *c)
{
    free(c->server);
    free(c->proxy);
    free(c->tls_server_name);
    blob_clear(&c->ca);
    blob_clear(&c->certificate);
    blob_clear(&c->key);
    token_clear(&c->token);
    free(c->token_file);
    free(c->ca_file);
    free(c->certificate_file);
    free(c->key_file);
    free(c->kubeconfig);
    *c = (struct alq_credentials){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Kubeconfig files and service accounts: what is taken, what is refused and how, rotation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/kube/credentials.h"

static char dir[64];

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(alq_file_write_atomic(path, text, strlen(text), 0600, 0, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/alq-cred-XXXXXX");
    assert_non_null(mkdtemp(dir));
    put("ca.crt", "CA");
    put("c.crt", "CERT");
    put("c.key", "KEY");
    put("token", "secret-token\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return alq_file_remove_tree(dir, NULL);
}

#define CONFIG(cluster, user)                                                                      \
    "apiVersion: v1\nkind: Config\ncurrent-context: c\n"                                           \
    "contexts: [{name: c, context: {cluster: k, user: u}}]\n"                                      \
    "clusters: [{name: other, cluster: {server: 'https://no'}}, {name: k, cluster: " cluster       \
    "}]\n"                                                                                         \
    "users: [{name: u, user: " user "}]\n"

static int parse(const char *text, struct alq_credentials *c, struct alq_err *err)
{
    return alq_credentials_parse(text, strlen(text), dir, "kubeconfig", c, err);
}

static void parse_data_wins_over_files(void **state)
{
    (void)state;
    struct alq_credentials c;
    struct alq_err err = ALQ_ERR_INIT;
    if (parse(CONFIG("{server: 'https://127.0.0.1:6443/', certificate-authority: ca.crt, "
                     "certificate-authority-data: aGVsbG8=}",
                     "{token: abc, client-certificate-data: YQ==, client-key-data: YWI=}"),
              &c, &err))
        fail_msg("%s", err.text);
    assert_string_equal(c.server, "https://127.0.0.1:6443");
    assert_string_equal(c.ca.data, "hello");
    assert_int_equal(c.ca.len, 5);
    assert_null(c.ca_file);
    assert_string_equal(c.certificate.data, "a");
    assert_string_equal(c.key.data, "ab");
    assert_string_equal(c.token, "abc");
    assert_false(c.is_insecure);
    alq_credentials_free(&c);
}

static void parse_reads_files_beside_the_kubeconfig(void **state)
{
    (void)state;
    struct alq_credentials c;
    struct alq_err err = ALQ_ERR_INIT;
    if (parse(CONFIG("{server: 'https://h', certificate-authority: ca.crt, "
                     "insecure-skip-tls-verify: true, tls-server-name: n, proxy-url: 'http://p'}",
                     "{tokenFile: token, token: ignored, client-certificate: c.crt, client-key: "
                     "c.key}"),
              &c, &err))
        fail_msg("%s", err.text);
    assert_string_equal(c.ca.data, "CA");
    assert_string_equal(c.certificate.data, "CERT");
    assert_string_equal(c.key.data, "KEY");
    assert_string_equal(c.token, "secret-token");
    assert_string_equal(c.tls_server_name, "n");
    assert_string_equal(c.proxy, "http://p");
    assert_true(c.is_insecure);
    alq_credentials_free(&c);
}

static void parse_refuses_what_it_cannot_do_or_understand(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } rows[] = {
        {"", ALQ_EINVAL, "current-context"},
        {"[1]", ALQ_EINVAL, "current-context"},
        {"a: [", ALQ_EINVAL, "line"},
        {"current-context: c\n", ALQ_EINVAL, "contexts has no entry"},
        {CONFIG("{}", "{}"), ALQ_EINVAL, "no server"},
        {CONFIG("{server: 'http://h'}", "{}"), ALQ_EINVAL, "https"},
        {CONFIG("{server: 5}", "{}"), ALQ_EINVAL, "server"},
        {CONFIG("{server: 'https://h', certificate-authority: gone.crt}", "{}"), ALQ_ENOENT,
         "gone.crt"},
        {CONFIG("{server: 'https://h', certificate-authority-data: '*'}", "{}"), ALQ_EINVAL,
         "base64"},
        {CONFIG("{server: 'https://h', certificate-authority-data: abcde}", "{}"), ALQ_EINVAL,
         "base64"},
        {CONFIG("{server: 'https://h'}", "{exec: {command: aws}}"), ALQ_ENOTSUP, "exec"},
        {CONFIG("{server: 'https://h'}", "{auth-provider: {name: gcp}}"), ALQ_ENOTSUP,
         "auth-provider"},
        {CONFIG("{server: 'https://h'}", "{username: u, password: p}"), ALQ_ENOTSUP, "password"},
        {CONFIG("{server: 'https://h'}", "{as: root}"), ALQ_ENOTSUP, "impersonation"},
        {CONFIG("{server: 'https://h'}", "{client-key: c.key}"), ALQ_EINVAL, "go together"},
        {CONFIG("{server: 'https://h'}", "{tokenFile: gone}"), ALQ_ENOENT, "gone"},
        {CONFIG("{server: 'https://h'}", "{token: 'a b'}"), ALQ_EINVAL, "blank"},
        {"current-context: c\ncontexts: [{name: c, context: {cluster: none}}]\n", ALQ_EINVAL,
         "clusters has no entry \"none\""},
        {"current-context: c\ncontexts: [{name: c, context: {cluster: k, user: x}}]\n"
         "clusters: [{name: k, cluster: {server: 'https://h'}}]\n",
         ALQ_EINVAL, "users has no entry \"x\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_credentials c;
        struct alq_err err = ALQ_ERR_INIT;
        int rc = parse(rows[i].text, &c, &err);
        if (rc != rows[i].code || !strstr(err.text, rows[i].words))
            fail_msg("%s: %d %s", rows[i].text, rc, err.text);
        alq_credentials_free(&c);
    }
}

static void parse_refuses_tokens_that_would_break_a_header(void **state)
{
    static const char *const tokens[] = {"", "\n\n", "a\r\nX: y", "a b", "t\xc3\xa9"};
    (void)state;
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        struct alq_credentials c;
        put("bad", tokens[i]);
        assert_int_equal(parse(CONFIG("{server: 'https://h'}", "{tokenFile: bad}"), &c, NULL),
                         ALQ_EINVAL);
        assert_null(c.token);
        alq_credentials_free(&c);
    }
}

static void load_of_a_service_account_takes_host_port_and_files(void **state)
{
    (void)state;
    struct alq_credentials c;
    struct alq_err err = ALQ_ERR_INIT;
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(alq_credentials_load(NULL, dir, &c, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "--kubeconfig"));
    alq_credentials_free(&c);
    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(alq_credentials_load(NULL, dir, &c, &err), 0);
    assert_string_equal(c.server, "https://10.0.0.1:443");
    assert_string_equal(c.token, "secret-token");
    assert_string_equal(c.ca.data, "CA");
    alq_credentials_free(&c);
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    assert_int_equal(alq_credentials_load(NULL, dir, &c, &err), 0);
    assert_string_equal(c.server, "https://[fd00::1]:443");
    alq_credentials_free(&c);
    setenv("KUBERNETES_SERVICE_HOST", "h/@evil", 1);
    assert_int_equal(alq_credentials_load(NULL, dir, &c, &err), ALQ_EINVAL);
    alq_credentials_free(&c);
    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    assert_int_equal(alq_credentials_load(NULL, "/nonexistent", &c, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/token"));
    alq_credentials_free(&c);
}

static void load_names_a_missing_kubeconfig(void **state)
{
    (void)state;
    struct alq_credentials c;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_credentials_load("/nonexistent/config", dir, &c, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/config"));
    alq_credentials_free(&c);
}

static void put_kubeconfig(const char *server, const char *token)
{
    char text[512];
    snprintf(text, sizeof(text),
             "current-context: c\n"
             "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
             "clusters: [{name: k, cluster: {server: '%s'}}]\n"
             "users: [{name: u, user: {token: %s}}]\n",
             server, token);
    put("kubeconfig", text);
}

static void refresh_reads_a_kubeconfig_that_has_changed(void **state)
{
    char path[256];
    struct alq_credentials c;
    struct alq_err err = ALQ_ERR_INIT;
    int is_changed;
    (void)state;
    snprintf(path, sizeof(path), "%s/kubeconfig", dir);
    put_kubeconfig("https://a:1", "first");
    assert_int_equal(alq_credentials_load(path, NULL, &c, &err), 0);
    put_kubeconfig("https://a:1", "second");
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, &err), 0);
    assert_string_equal(c.token, "second");
    assert_false(is_changed);
    put_kubeconfig("https://b:1", "second");
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, &err), 0);
    assert_string_equal(c.server, "https://b:1");
    assert_true(is_changed);
    put("kubeconfig", "current-context: [");
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, &err), ALQ_EINVAL);
    assert_string_equal(c.server, "https://b:1");
    put_kubeconfig("https://b:1", "third");
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, NULL), 0);
    assert_string_equal(c.token, "third");
    alq_credentials_free(&c);
}

static void refresh_sees_rotation_and_keeps_the_old_on_failure(void **state)
{
    (void)state;
    struct alq_credentials c;
    int is_changed;
    char path[256];
    assert_int_equal(
        parse(CONFIG("{server: 'https://h', certificate-authority: ca.crt}", "{tokenFile: token}"),
              &c, NULL),
        0);
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, NULL), 0);
    assert_false(is_changed);
    put("token", "second");
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, NULL), 0);
    assert_false(is_changed);
    assert_string_equal(c.token, "second");
    put("ca.crt", "CA2");
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, NULL), 0);
    assert_true(is_changed);
    assert_string_equal(c.ca.data, "CA2");
    snprintf(path, sizeof(path), "%s/token", dir);
    unlink(path);
    assert_int_equal(alq_credentials_refresh(&c, &is_changed, NULL), ALQ_ENOENT);
    assert_string_equal(c.token, "second");
    alq_credentials_free(&c);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(parse_data_wins_over_files),
        ROW(parse_reads_files_beside_the_kubeconfig),
        ROW(parse_refuses_what_it_cannot_do_or_understand),
        ROW(parse_refuses_tokens_that_would_break_a_header),
        ROW(load_of_a_service_account_takes_host_port_and_files),
        ROW(load_names_a_missing_kubeconfig),
        ROW(refresh_reads_a_kubeconfig_that_has_changed),
        ROW(refresh_sees_rotation_and_keeps_the_old_on_failure),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}

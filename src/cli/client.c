/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client of the admin socket, see client.h.
 */
#include "cli/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

#define TIMEOUT_S 10
#define ANSWER_MAX_BYTES (16u * 1024 * 1024)

static int refused(const char *path, int errnum, struct alq_err *err)
{
    int rc = alq_err_errno(err, errnum, "aliquotd does not answer at %s", path);
    if (err && (errnum == ECONNREFUSED || errnum == ENOTDIR))
        rc = err->code = ALQ_ENOENT;
    const char *remedy = rc == ALQ_EACCES ? "be root, or in the group that its --admin-group names"
                                          : "start it, or name its socket with --socket";
    if (!err)
        return rc;
    size_t len = strlen(err->text);
    snprintf(err->text + len, sizeof(err->text) - len, "; %s", remedy);
    return rc;
}

static int timed_out(struct alq_err *err)
{
    return alq_err_set(err, ALQ_ETIMEDOUT, "aliquotd does not answer within %d s", TIMEOUT_S);
}

static int dial(const char *path, int *out, struct alq_err *err)
{
    const struct timeval limit = {.tv_sec = TIMEOUT_S};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return alq_err_set(err, ALQ_EINVAL, "%s is too long for the path of a socket", path);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return alq_err_errno(err, errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)))
        return errno == EAGAIN ? timed_out(err) : refused(path, errno, err);
    *out = alq_steal_fd(&fd);
    return 0;
}

static int write_all(int fd, const char *data, size_t len, struct alq_err *err)
{
    for (ssize_t n; len; data += n, len -= (size_t)n) {
        n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EPIPE)
            return 0; /* it has seen enough; it has answered, or not */
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            return alq_err_errno(err, errno, "asking aliquotd");
    }
    return 0;
}

/* Until the daemon closes the connection. */
static int read_all(int fd, char **data, size_t *len, struct alq_err *err)
{
    size_t size = 0;
    alq_auto_free char *buf = NULL;
    for (*len = 0;;) {
        if (*len + 1 >= size) {
            size = size ? size * 2 : 65536;
            char *more = size > ANSWER_MAX_BYTES ? NULL : realloc(buf, size);
            if (!more)
                return alq_err_set(err, ALQ_ERANGE, "the answer is too large");
            buf = more;
        }
        ssize_t n = recv(fd, buf + *len, size - *len - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == ECONNRESET)
            n = 0; /* it closed without having read all */
        if (n < 0)
            return errno == EAGAIN ? timed_out(err)
                                   : alq_err_errno(err, errno, "the answer of aliquotd");
        if (!n)
            break;
        *len += (size_t)n;
    }
    if (!*len)
        return alq_err_set(err, ALQ_EPROTO, "aliquotd closed the connection without an answer");
    buf[*len] = '\0';
    *data = alq_steal(&buf);
    return 0;
}

static int parse(const char *data, size_t len, int *status, json_t **value, struct alq_err *err)
{
    alq_auto_json json_t *body = NULL;
    const char *head_end = strstr(data, "\r\n\r\n");
    if (sscanf(data, "HTTP/1.1 %3d", status) != 1 || !head_end)
        return alq_err_set(err, ALQ_EPROTO, "that is no answer of aliquotd");
    head_end += 4;
    int rc = alq_json_parse(head_end, len - (size_t)(head_end - data), "the answer of aliquotd",
                            &body, err);
    if (rc)
        return rc;
    if (*status < 300) {
        *value = alq_steal(&body);
        return 0;
    }
    const char *text = alq_json_str(body, "error");
    return alq_err_set(err,
                       *status == 403   ? ALQ_EACCES
                       : *status == 404 ? ALQ_ENOENT
                                        : ALQ_EIO,
                       "%s", text ? text : "aliquotd refuses without a reason");
}

int alq_client_send(const char *socket_path, const char *method, const char *path, const char *text,
                    int *status, json_t **value, struct alq_err *err)
{
    alq_auto_close int fd = -1;
    alq_auto_free char *answer = NULL;
    size_t len = 0;
    *status = 0;
    alq_auto_free char *request = alq_str_printf(
        "%s %s HTTP/1.1\r\nHost: aliquotd\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
        method, path, text ? strlen(text) : 0, text ? text : "");
    if (!request)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = dial(socket_path, &fd, err);
    if (!rc)
        rc = write_all(fd, request, strlen(request), err);
    if (!rc)
        rc = read_all(fd, &answer, &len, err);
    return rc ? rc : parse(answer, len, status, value, err);
}

int alq_client_ask(const char *socket_path, const char *method, const char *path,
                   const json_t *body, int *status, json_t **value, struct alq_err *err)
{
    alq_auto_free char *text = body ? alq_json_dump(body) : NULL;
    if (body && !text)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return alq_client_send(socket_path, method, path, text, status, value, err);
}

void alq_client_clean_text(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    alq_utf8_clean(text);
}

static void clean_string(json_t *string)
{
    alq_auto_free char *text = strdup(json_string_value(string));
    if (!text)
        return;
    alq_client_clean_text(text);
    json_string_set(string, text);
}

void alq_client_clean(json_t *value)
{
    const char *key;
    size_t i;
    json_t *item;
    if (json_is_string(value))
        clean_string(value);
    json_object_foreach (value, key, item)
        alq_client_clean(item);
    json_array_foreach (value, i, item)
        alq_client_clean(item);
}

void alq_client_print(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    putchar('\n');
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of request.h over client/client.h.
 */
#include "ctl/request.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/json.h"

static int failed(struct alq_err *err, const char *what, int rc)
{
    if (rc == -ECONNREFUSED || rc == -ENOENT)
        return alq_err_set(err, ALQ_ENOENT, "%s: no simgpud runs there; start one or give --socket",
                           what);
    if (rc == -EPROTO)
        return alq_err_set(err, ALQ_EPROTO, "%s: simgpud is of another version", what);
    return alq_err_errno(err, -rc, "%s", what);
}

int sim_ctl_connect(struct sim_connection *connection, struct alq_err *err)
{
    int rc = sim_connect(connection, SIM_KIND_CONTROL);

    return rc != 0 ? failed(err, "cannot connect", rc) : 0;
}

static int ask(const struct sim_connection *c, const void *request, uint32_t bytes, json_t **answer,
               struct alq_err *err)
{
    json_error_t where;
    alq_auto_close int fd = sim_call_fd(c, request, bytes);

    if (fd < 0)
        return failed(err, "no answer", fd);
    *answer = json_loadfd(fd, 0, &where);
    return *answer ? 0 : alq_err_set(err, ALQ_EPROTO, "no answer: %s", where.text);
}

int sim_ctl_report(const struct sim_connection *c, uint32_t type, json_t **answer,
                   struct alq_err *err)
{
    struct sim_header request = {type, sizeof(request)};

    return ask(c, &request, sizeof(request), answer, err);
}

int sim_ctl_command(const struct sim_connection *c, const json_t *command, json_t **answer,
                    struct alq_err *err)
{
    alq_auto_free char *text = alq_json_dump(command);
    size_t len = text ? strlen(text) : 0, bytes = sizeof(struct sim_header) + len;
    union {
        struct sim_command command;
        char bytes[SIM_COMMAND_BYTES];
    } message;
    struct sim_command *request = &message.command;
    const char *error;
    int rc;

    if (!text)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (bytes > sizeof(message))
        return alq_err_set(err, ALQ_ERANGE, "the command is longer than %u bytes",
                           SIM_COMMAND_BYTES);
    request->header = (struct sim_header){SIM_COMMAND, (uint32_t)bytes};
    memcpy(request->text, text, len);
    if ((rc = ask(c, request, (uint32_t)bytes, answer, err)) != 0)
        return rc;
    error = json_string_value(json_object_get(*answer, "error"));
    if (!error)
        return 0;
    rc = alq_err_set(err, ALQ_EINVAL, "%s", error);
    json_decref(*answer);
    *answer = NULL;
    return rc;
}

int sim_ctl_reset(const struct sim_connection *c, struct alq_err *err)
{
    struct sim_header request = {SIM_RESET, sizeof(request)};
    struct sim_answer answer;
    int rc = sim_call(c, &request, sizeof(request), &answer, sizeof(answer));

    return rc < 0 ? failed(err, "no answer", rc) : 0;
}

int sim_ctl_kill(const struct sim_connection *c, int signal, struct alq_err *err)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.pid <= 0)
        return alq_err_set(err, ALQ_ENOENT, "simgpud runs where its number cannot be seen from");
    return kill(peer.pid, signal) == 0
               ? 0
               : alq_err_errno(err, errno, "cannot signal simgpud, process %d", (int)peer.pid);
}

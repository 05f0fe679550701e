/* SPDX-License-Identifier: Apache-2.0 */
/* Making claims, see make.h. What is checked before the placement is checked again after it. */
#include "daemon/standalone/make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/names.h"
#include "daemon/prepare/prepare.h"
#include "daemon/standalone/want.h"

#define CLAIMS_OF_USER_MAX 64u

struct making {
    struct alq_standalone *of;
    struct alq_claim_id id;
    uid_t owner;
    int is_admin;
    struct alq_process process;
    int process_fd;
    alq_life_cb cb;
    void *arg;
};

const struct alq_gpu_list *alq_make_gpus(void *arg, struct alq_err *err)
{
    const struct alq_standalone *s = arg;
    if (!s->prepare) {
        alq_err_set(err, ALQ_EAGAIN, "aliquotd is starting or ending; try again");
        return NULL;
    }
    const struct alq_gpu_list *gpus = alq_prepare_gpus(s->prepare, err);
    if (err->code)
        return NULL;
    if (!gpus->count)
        alq_err_set(err, ALQ_ENOENT, "no GPU is offered on this machine; see aliquot doctor");
    return gpus->count ? gpus : NULL;
}

static int check(const struct making *m, struct alq_err *err)
{
    const struct alq_locals *locals = &m->of->locals;
    if (alq_locals_by_name(locals, m->id.namespace_, m->id.name))
        return alq_err_set(err, ALQ_EEXIST, "a claim %.80s is there already", m->id.name);
    if (!m->is_admin && alq_locals_count_of(locals, m->owner) >= CLAIMS_OF_USER_MAX)
        return alq_err_set(err, ALQ_EBUSY,
                           "a user may have %u claims; delete some (aliquot claim list)",
                           CLAIMS_OF_USER_MAX);
    return 0;
}

static void making_fail(struct making *m, const struct alq_err *err)
{
    m->cb(m->arg, NULL, NULL, err);
    if (m->process_fd >= 0)
        close(m->process_fd);
    free(m);
}

static void on_placed(void *arg, json_t *object, const struct alq_err *err)
{
    struct making *m = arg;
    struct alq_err why = ALQ_ERR_INIT;
    struct alq_local *local = NULL;
    if (err) {
        making_fail(m, err);
        return;
    }
    if (!m->of->prepare)
        alq_err_set(&why, ALQ_ECANCELED, "aliquotd is ending");
    else if (!check(m, &why) &&
             !(local = alq_locals_add(&m->of->locals, &m->id, m->owner, json_incref(object))))
        alq_err_set(&why, ALQ_ENOMEM, "out of memory");
    if (!local) {
        making_fail(m, &why);
        return;
    }
    local->process = m->process;
    alq_life_begin(m->of, local, m->process_fd, m->cb, m->arg);
    free(m);
}

void alq_make(struct alq_standalone *s, const struct alq_make *what, alq_life_cb cb, void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *object = NULL;
    struct making *m = calloc(1, sizeof(*m));
    if (!m) {
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
        cb(arg, NULL, NULL, &err);
        if (what->process_fd >= 0)
            close(what->process_fd);
        return;
    }
    *m = (struct making){.of = s,
                         .owner = what->owner,
                         .is_admin = what->is_admin,
                         .process = what->process,
                         .process_fd = what->process_fd,
                         .cb = cb,
                         .arg = arg};
    alq_local_namespace(what->owner, m->id.namespace_, sizeof(m->id.namespace_));
    snprintf(m->id.name, sizeof(m->id.name), "%s", what->name);
    if (!what->is_admin && alq_want_is_admin(what->document))
        alq_err_set(&err, ALQ_EACCES, "adminAccess is for root: it has no limits");
    else if (check(m, &err))
        ;
    else if (alq_uuid_random(m->id.uid))
        alq_err_set(&err, ALQ_EIO, "no random bytes for a uid");
    else if (!(object = alq_want_object(what->document, &m->id)))
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
    if (err.code)
        making_fail(m, &err);
    else
        alq_place(&s->placer, object, what->classes, on_placed, m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of object.h. Holders are watched in an epoll set of their own, which the server's
 * loop watches: a whole batch is dealt with at once, so no event outlives its holder.
 */
#include "daemon/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/reply.h"

#define EVENTS_MAX 64

int sim_objects_open(struct sim_server *s)
{
    s->holds = epoll_create1(EPOLL_CLOEXEC);
    return s->holds < 0 ? -errno : 0;
}

static struct sim_object *find(const struct sim_server *s, uint64_t id)
{
    struct sim_object *o;

    for (o = s->objects; o && o->id != id; o = o->next)
        ;
    return o;
}

static struct sim_object *find_by_token(const struct sim_server *s, int fd)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode))
        return NULL;
    for (struct sim_object *o = s->objects; o; o = o->next) {
        for (struct sim_hold *h = o->holds; h; h = h->next) {
            if (h->inode == st.st_ino)
                return o;
        }
    }
    return NULL;
}

/* A new holder's end of the object, to be closed after sending; -1 without descriptors or memory.
 */
static int hold_new(struct sim_server *s, struct sim_object *o, bool is_owner)
{
    struct sim_hold *h = calloc(1, sizeof(*h));
    int pair[2];
    struct stat st;

    if (!h || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        free(h);
        return -1;
    }
    if (fstat(pair[1], &st) != 0 ||
        epoll_ctl(s->holds, EPOLL_CTL_ADD, pair[0],
                  &(struct epoll_event){.events = EPOLLHUP, .data.ptr = h}) != 0) {
        close(pair[0]);
        close(pair[1]);
        free(h);
        return -1;
    }
    *h = (struct sim_hold){o->holds, o, pair[0], st.st_ino, is_owner};
    o->holds = h;
    return pair[1];
}

static void hold_free(struct sim_hold *h)
{
    struct sim_hold **at = &h->object->holds;

    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    close(h->fd);
    free(h);
}

static void object_free(struct sim_server *s, struct sim_object *o)
{
    struct sim_object **at = &s->objects;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    while (o->holds)
        hold_free(o->holds);
    sim_release(
        &(struct sim_ledger){
            .device = &s->node->device[o->device],
            .group = &o->group->map->device[o->device],
            .device_ack = &s->node->device_ack[o->device],
            .group_ack = &s->node->group_ack[o->device],
        },
        o->bytes, &s->sequence);
    o->group->objects--;
    close(o->file);
    free(o);
}

void sim_objects_reap(struct sim_server *s)
{
    struct epoll_event events[EVENTS_MAX];
    int n;

    while ((n = epoll_wait(s->holds, events, EVENTS_MAX, 0)) > 0) {
        for (int i = 0; i < n; i++) {
            struct sim_hold *h = events[i].data.ptr;
            struct sim_object *o = h->object;
            char byte;

            /* Whatever a holder may have written is of no interest; only that it is gone. */
            if (!(events[i].events & EPOLLHUP)) {
                (void)!read(h->fd, &byte, 1);
                continue;
            }
            hold_free(h);
            if (!o->holds)
                object_free(s, o);
        }
    }
}

void sim_objects_leave(struct sim_server *s, const struct sim_client_entry *client)
{
    for (struct sim_object *o = s->objects; o; o = o->next) {
        if (o->owner == client)
            o->owner = NULL;
    }
}

uint64_t sim_objects_bytes(const struct sim_server *s, const struct sim_client_entry *client,
                           const struct sim_group_entry *group, uint32_t device)
{
    uint64_t bytes = 0;

    for (const struct sim_object *o = s->objects; o; o = o->next) {
        if (o->device == device && (!client || o->owner == client) && (!group || o->group == group))
            bytes += o->bytes;
    }
    return bytes;
}

void sim_objects_close(struct sim_server *s)
{
    while (s->objects)
        object_free(s, s->objects);
    close(s->holds);
}

/* Moves bytes between the account of a client, which waits for the answer, and an object. */
static bool move(struct sim_client_entry *c, struct sim_object *o, int64_t bytes)
{
    struct sim_account *a = &c->map->device[o->device].account;
    uint64_t held = atomic_load(&a->held_bytes), amount = (uint64_t)(bytes < 0 ? -bytes : bytes);

    if (atomic_load(&a->intent) || amount % SIM_UNIT_BYTES ||
        amount > (bytes < 0 ? o->bytes : held))
        return false;
    atomic_store(&a->held_bytes, held - (uint64_t)bytes);
    o->bytes += (uint64_t)bytes;
    return true;
}

static uint32_t share(struct sim_server *s, struct sim_client_entry *c,
                      const struct sim_ask_object *ask, struct sim_object **out)
{
    struct sim_object *o;

    if (ask->device >= s->machine.device_count || !ask->file_bytes)
        return SIM_BAD_REQUEST;
    o = calloc(1, sizeof(*o));
    if (!o)
        return SIM_NO_MEMORY;
    o->device = ask->device;
    o->kind = ask->kind;
    o->file_bytes = ask->file_bytes;
    memcpy(o->meta, ask->meta, sizeof(o->meta));
    o->file = sim_shared_memory("simgpu-memory", o->file_bytes, NULL);
    if (o->file < 0 || getrandom(&o->id, sizeof(o->id), 0) != sizeof(o->id)) {
        if (o->file >= 0)
            close(o->file);
        free(o);
        return SIM_NO_MEMORY;
    }
    o->owner = c;
    o->group = c->group;
    o->group->objects++;
    o->next = s->objects;
    s->objects = o;
    *out = o;
    return SIM_OK;
}

static bool has_owner(const struct sim_object *o)
{
    for (const struct sim_hold *h = o->holds; h; h = h->next) {
        if (h->is_owner)
            return true;
    }
    return false;
}

int sim_object_message(struct sim_server *s, struct sim_client_entry *c,
                       const struct sim_ask_object *ask, int fd)
{
    struct sim_object_answer answer = {
        .answer = {{ask->header.type, sizeof(answer)}, SIM_NO_OBJECT, 0}};
    struct sim_object *o = NULL;
    int fds[2] = {-1, -1}, count = 0, rc;
    bool is_new = false;

    if (!c->map)
        return -1;
    sim_objects_reap(s); /* what the sender has just let go must not count any more */
    switch (ask->header.type) {
    case SIM_SHARE:
        answer.answer.status = share(s, c, ask, &o);
        is_new = true;
        break;
    case SIM_IMPORT:
        o = find_by_token(s, fd);
        break;
    case SIM_OPEN:
        o = find(s, ask->id);
        if (o && !has_owner(o))
            o = NULL;
        break;
    default:
        o = find(s, ask->id);
    }
    if (o) {
        answer.answer.status = SIM_OK;
        if (ask->header.type == SIM_MOVE) {
            if (o->owner != c || !move(c, o, ask->bytes))
                answer.answer.status = SIM_BAD_REQUEST;
        } else if (ask->header.type != SIM_RELEASE) {
            fds[count++] = hold_new(s, o, is_new);
            if (ask->header.type != SIM_TOKEN)
                fds[count++] = o->file;
            if (fds[0] < 0) {
                answer.answer.status = SIM_NO_MEMORY;
                count = 0;
            }
        }
        answer.id = o->id;
        answer.device = o->device;
        answer.kind = o->kind;
        answer.bytes = o->bytes;
        answer.file_bytes = o->file_bytes;
        memcpy(answer.meta, o->meta, sizeof(answer.meta));
    } else if (ask->header.type == SIM_RELEASE) {
        answer.answer.status = SIM_OK;
    }
    if (is_new && o && count == 0) /* nobody can hold it */
        object_free(s, o);
    rc = sim_reply(c->fd, &answer, sizeof(answer), fds, count);
    if (fds[0] >= 0)
        close(fds[0]);
    return rc;
}

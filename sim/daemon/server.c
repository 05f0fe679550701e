/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets, client lifetimes and messages of server.h. Memory that clients can write is only ever
 * read through bounds; the memfds are sealed against resizing, so that reading cannot fault.
 */
#include "daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/command.h"
#include "daemon/device.h"
#include "daemon/fault.h"
#include "daemon/object.h"
#include "daemon/reply.h"
#include "daemon/schedule.h"

#define ALQ_LOG_MODULE "simgpud"
#define EVENTS_MAX 64
#define GROUPS_MAX 1024 /* beyond them the oldest one without clients is forgotten */

uint64_t sim_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int sim_shared_memory(const char *name, size_t bytes, void **map)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        (map &&
         (*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)) {
        int saved = errno;

        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static struct sim_ledger ledger_of(const struct sim_server *s, const struct sim_client_entry *c,
                                   uint32_t device)
{
    return (struct sim_ledger){
        .account = &c->map->device[device].account,
        .device = &s->node->device[device],
        .group = &c->group->map->device[device],
        .device_ack = &s->node->device_ack[device],
        .group_ack = &s->node->group_ack[device],
        .slot = c->slot,
    };
}

/* Groups */

static void group_free(struct sim_group_entry *g)
{
    munmap(g->map, sizeof(*g->map));
    close(g->fd);
    free(g);
}

/* The oldest group without clients; false when there is none. */
static bool group_evict(struct sim_server *s)
{
    struct sim_group_entry **oldest = NULL, *g;

    for (struct sim_group_entry **at = &s->groups; *at; at = &(*at)->next) {
        if (!(*at)->clients)
            oldest = at;
    }
    if (!oldest)
        return false;
    g = *oldest;
    *oldest = g->next;
    group_free(g);
    return true;
}

static struct sim_group_entry *group_get(struct sim_server *s, const char *name)
{
    struct sim_group_entry *g;
    uint32_t count = 0;

    for (g = s->groups; g; g = g->next, count++) {
        if (strcmp(g->name, name) == 0)
            return g;
    }
    if (count >= GROUPS_MAX)
        (void)group_evict(s);
    g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    do
        g->fd = sim_shared_memory("simgpu-group", sizeof(*g->map), (void **)&g->map);
    while (g->fd < 0 && errno == EMFILE && group_evict(s));
    if (g->fd < 0) {
        int saved = errno;

        free(g);
        errno = saved;
        return NULL;
    }
    snprintf(g->name, sizeof(g->name), "%s", name);
    g->next = s->groups;
    s->groups = g;
    return g;
}

static void reset(struct sim_server *s)
{
    struct sim_group_entry **at = &s->groups;

    while (*at) {
        struct sim_group_entry *g = *at;

        if (!g->clients && !g->objects) {
            *at = g->next;
            group_free(g);
            continue;
        }
        for (uint32_t d = 0; d < s->machine.device_count; d++) {
            g->past[d].busy_ns = g->past[d].launches = 0;
            for (struct sim_client_entry *c = s->clients; c; c = c->next) {
                if (c->group != g)
                    continue;
                g->past[d].busy_ns -= sim_schedule_busy_ns(c, d);
                g->past[d].launches -= sim_schedule_launches(c, d);
            }
            atomic_store(&g->map->device[d].peak_bytes, sim_word_bytes(g->map->device[d].used));
        }
        at = &g->next;
    }
    memset(s->unsupported, 0, sizeof(s->unsupported));
    memset(s->control->nvml_unsupported, 0, sizeof(s->control->nvml_unsupported));
}

uint64_t sim_server_device_busy(const struct sim_server *s, uint32_t device)
{
    uint64_t busy = 0;

    for (const struct sim_group_entry *g = s->groups; g; g = g->next)
        busy += g->past[device].busy_ns;
    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->model)
            busy += sim_schedule_busy_ns(c, device);
    }
    return busy;
}

/* Clients */

static int slot_take(struct sim_server *s, uint32_t *slot)
{
    for (uint32_t i = 1; i < SIM_MAX_SLOTS; i++) {
        if (!(s->slots[i / 64] & 1ull << i % 64)) {
            s->slots[i / 64] |= 1ull << i % 64;
            *slot = i;
            return 0;
        }
    }
    return -1;
}

static void settle_device(struct sim_server *s, struct sim_client_entry *c, uint32_t d)
{
    struct sim_client_device *cd = &c->map->device[d];
    struct sim_ledger ledger = ledger_of(s, c, d);

    sim_settle_dead(&ledger, &s->sequence);
    if (cd->account.sequence > s->slot_sequence[c->slot])
        s->slot_sequence[c->slot] = cd->account.sequence;
}

/* With nobody there, whatever a hostile client wrote is put right: when the last one goes, and, for
 * one that was cut off may go on writing, before the next one looks. */
static void settle_idle(struct sim_server *s)
{
    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->map)
            return;
    }
    for (uint32_t d = 0; d < s->machine.device_count; d++) {
        uint64_t used = sim_word_bytes(atomic_load(&s->node->device[d].used));
        uint64_t shared = sim_objects_bytes(s, NULL, NULL, d), left = used - shared;

        if (left)
            alq_warn(NULL, "device %u: %llu bytes held by nobody are set free", d,
                     (unsigned long long)left);
        atomic_store(&s->node->device[d].used, sim_word_of(shared));
        sim_device_publish(s, d);
        for (struct sim_group_entry *g = s->groups; g; g = g->next)
            atomic_store(&g->map->device[d].used, sim_word_of(sim_objects_bytes(s, NULL, g, d)));
    }
    sim_fault_arm(s);
}

static void client_close(struct sim_server *s, struct sim_client_entry *c)
{
    struct sim_client_entry **at = &s->clients;

    while (*at != c)
        at = &(*at)->next;
    if (c->map) {
        sim_schedule_detach(s, c);
        for (uint32_t d = 0; d < s->machine.device_count; d++)
            settle_device(s, c, d);
        for (uint32_t i = 0; i < SIM_MAX_ENTRIES; i++)
            s->unsupported[i] += c->map->unsupported[i];
        munmap(c->map, SIM_CLIENT_BYTES);
        c->group->clients--;
        s->slots[c->slot / 64] &= ~(1ull << c->slot % 64);
    }
    *at = c->next;
    close(c->fd);
    sim_objects_leave(s, c);
    if (c->map)
        settle_idle(s);
    free(c);
}

/* Why shared memory could not be made, from errno. */
static uint32_t lack_of_memory(void)
{
    return errno == EMFILE || errno == ENFILE ? SIM_NO_SLOT : SIM_NO_MEMORY;
}

/* Maps and registers a CUDA client; the descriptor of its memory, to be closed after sending. */
static int client_attach(struct sim_server *s, struct sim_client_entry *c, const char *group,
                         uint32_t *status)
{
    struct sim_client *map = NULL;
    int fd;

    *status = SIM_NO_MEMORY;
    settle_idle(s);
    c->group = group_get(s, group);
    if (!c->group) {
        *status = lack_of_memory();
        return -1;
    }
    if (slot_take(s, &c->slot) != 0) {
        *status = SIM_NO_SLOT;
        return -1;
    }
    fd = sim_shared_memory("simgpu-client", SIM_CLIENT_BYTES, (void **)&map);
    if (fd < 0) {
        *status = lack_of_memory();
        s->slots[c->slot / 64] &= ~(1ull << c->slot % 64);
        return -1;
    }
    if (!sim_schedule_attach(s, c)) {
        munmap(map, SIM_CLIENT_BYTES);
        close(fd);
        s->slots[c->slot / 64] &= ~(1ull << c->slot % 64);
        return -1;
    }
    map->version = SIM_LAYOUT_VERSION;
    map->slot = c->slot;
    for (uint32_t d = 0; d < s->machine.device_count; d++)
        map->device[d].account.sequence = s->slot_sequence[c->slot];
    s->slot_sequence[c->slot] = 0;
    c->map = map;
    c->group->clients++;
    *status = SIM_OK;
    return fd;
}

/* Only what is printable in JSON without escapes. */
static void clean_label(char *label)
{
    label[SIM_GROUP_BYTES - 1] = '\0';
    for (; *label; label++) {
        if (*label < ' ' || *label > '~')
            *label = '?';
    }
}

static int on_hello(struct sim_server *s, struct sim_client_entry *c, struct sim_hello *hello)
{
    uint32_t count = s->machine.device_count;
    size_t bytes = sizeof(struct sim_welcome) + count * sizeof(struct sim_device_info);
    alq_auto_free struct sim_welcome *w = calloc(1, bytes);
    int fds[4], fd_count = 0;
    alq_auto_close int client_fd = -1;

    if (c->kind || hello->header.bytes != sizeof(*hello) || hello->kind < SIM_KIND_CUDA ||
        hello->kind > SIM_KIND_CONTROL || !w)
        return -1;
    w->answer.header = (struct sim_header){SIM_HELLO, (uint32_t)bytes};
    w->version = SIM_WIRE_VERSION;
    w->pid = (uint32_t)c->pid;
    memcpy(w->rule, s->machine.rule, sizeof(w->rule));
    if (hello->version != SIM_WIRE_VERSION) {
        w->answer.status = SIM_BAD_VERSION;
        return sim_reply(c->fd, w, sizeof(*w), NULL, 0);
    }
    if (hello->kind == SIM_KIND_CUDA) {
        clean_label(hello->group);
        client_fd = client_attach(s, c, hello->group, &w->answer.status);
        if (client_fd < 0)
            return sim_reply(c->fd, w, sizeof(*w), NULL, 0);
        fds[1] = s->node_fd;
        fds[2] = c->group->fd;
        fds[3] = client_fd;
        fd_count = 4;
        w->slot = c->slot;
    }
    if (hello->kind != SIM_KIND_CONTROL) {
        fds[0] = s->control_fd;
        fd_count = fd_count ? fd_count : 1;
    }
    c->kind = hello->kind;
    for (uint32_t d = 0; d < s->machine.device_count; d++) {
        if (!sim_device_is_present(s, d))
            continue;
        c->devices |= 1u << d;
        w->device[w->device_count++] = s->machine.device[d];
    }
    return sim_reply(c->fd, w, bytes, fds, fd_count);
}

/* Queries */

uint64_t sim_server_client_bytes(const struct sim_server *s, const struct sim_client_entry *c,
                                 uint32_t device)
{
    return atomic_load(&c->map->device[device].account.held_bytes) +
           sim_objects_bytes(s, c, NULL, device);
}

static int on_device(struct sim_server *s, struct sim_client_entry *c, uint32_t d)
{
    struct sim_device_state state = {
        .answer = {{SIM_DEVICE, sizeof(state)}, SIM_OK, 0},
        .used_bytes = sim_word_bytes(atomic_load(&s->node->device[d].used)),
        .withheld_bytes = s->health[d].withheld_bytes,
        .ecc_corrected = s->health[d].ecc_corrected,
        .ecc_uncorrected = s->health[d].ecc_uncorrected,
        .recovery_action = s->health[d].recovery_action,
    };

    for (const struct sim_client_entry *o = s->clients; o; o = o->next) {
        if (o->map && atomic_load(&o->map->device[d].account.context_count))
            state.process_count++;
    }
    state.busy_ns = sim_server_device_busy(s, d);
    state.utilization_pct =
        s->health[d].is_frozen ? s->health[d].frozen_pct : sim_schedule_device_pct(s, d);
    return sim_reply(c->fd, &state, sizeof(state), NULL, 0);
}

static int on_processes(struct sim_server *s, struct sim_client_entry *c, uint32_t d)
{
    alq_auto_free struct sim_process_list *list = calloc(1, SIM_MESSAGE_BYTES);

    if (!list)
        return -1;
    for (const struct sim_client_entry *o = s->clients; o; o = o->next) {
        pid_t pid = o->map && atomic_load(&o->map->device[d].account.context_count)
                        ? sim_pidns_translate(&o->pidns, &c->pidns)
                        : 0;

        if (pid > 0)
            list->process[list->count++] = (struct sim_process){
                .pid = (uint32_t)pid, .used_bytes = sim_server_client_bytes(s, o, d)};
    }
    size_t bytes = sizeof(*list) + list->count * sizeof(list->process[0]);
    list->answer.header = (struct sim_header){SIM_PROCESSES, (uint32_t)bytes};
    return sim_reply(c->fd, list, bytes, NULL, 0);
}

static int on_samples(struct sim_server *s, struct sim_client_entry *c, uint32_t d,
                      uint64_t since_us)
{
    alq_auto_free struct sim_sample_list *list = calloc(1, SIM_MESSAGE_BYTES);
    struct timespec real;
    uint64_t now = sim_now_ns(), sample_us;

    if (!list)
        return -1;
    clock_gettime(CLOCK_REALTIME, &real);
    sample_us = (uint64_t)real.tv_sec * 1000000u + (uint64_t)real.tv_nsec / 1000u -
                now % SIM_PERIOD_NS / 1000u;
    /* The two clocks are not read at the same time: a sample's time is so exact. */
    for (const struct sim_client_entry *o = s->clients; o && sample_us > since_us + 1000;
         o = o->next) {
        pid_t pid = o->map && atomic_load(&o->map->device[d].account.context_count)
                        ? sim_pidns_translate(&o->pidns, &c->pidns)
                        : 0;
        uint32_t pct = pid <= 0                 ? 0
                       : s->health[d].is_frozen ? o->frozen_pct[d]
                                                : sim_schedule_client_pct(o, d);

        if (pct)
            list->sample[list->count++] =
                (struct sim_sample){.pid = (uint32_t)pid, .sm_pct = pct, .time_us = sample_us};
    }
    size_t bytes = sizeof(*list) + list->count * sizeof(list->sample[0]);
    list->answer.header = (struct sim_header){SIM_SAMPLES, (uint32_t)bytes};
    return sim_reply(c->fd, list, bytes, NULL, 0);
}

static int on_report(const struct sim_client_entry *c, uint32_t type, json_t *report)
{
    struct sim_answer answer = {{type, sizeof(answer)}, SIM_OK, 0};
    alq_auto_close int fd = memfd_create("simgpu-report", MFD_CLOEXEC);

    if (!report || fd < 0 || json_dumpfd(report, fd, JSON_INDENT(2)) != 0 ||
        lseek(fd, 0, SEEK_SET) != 0)
        answer.status = SIM_NO_MEMORY;
    json_decref(report);
    return sim_reply(c->fd, &answer, sizeof(answer), &fd, answer.status == SIM_OK ? 1 : 0);
}

/* Anybody may ask, also before a hello: an entry point called before cuInit obeys faults too. */
static int on_control(struct sim_server *s, const struct sim_client_entry *c)
{
    struct sim_control_answer answer = {.answer = {{SIM_CONTROL, sizeof(answer)}, SIM_OK, 0},
                                        .pid = (uint32_t)c->pid};

    settle_idle(s);
    return sim_reply(c->fd, &answer, sizeof(answer), &s->control_fd, 1);
}

static int on_watch(const struct sim_server *s, struct sim_client_entry *c,
                    const struct sim_watch *watch)
{
    struct sim_answer answer = {{SIM_WATCH, sizeof(answer)}, SIM_OK, 0};

    if (watch->index < s->machine.device_count)
        c->watched[watch->index] |= watch->types;
    else
        answer.status = SIM_NO_DEVICE;
    return sim_reply(c->fd, &answer, sizeof(answer), NULL, 0);
}

static int on_message(struct sim_server *s, struct sim_client_entry *c, void *message, size_t len,
                      int fd)
{
    struct sim_header *h = message;
    struct sim_ask_device *ask = message;

    if (len < sizeof(*h) || h->bytes != len)
        return -1;
    if (h->type == SIM_HELLO)
        return on_hello(s, c, message);
    if (h->type == SIM_ASK) {
        if (c->kind != SIM_KIND_CUDA || len != sizeof(*h))
            return -1;
        sim_schedule_ask(s, c);
        return 0;
    }
    sim_schedule_pass(s);
    if (h->type == SIM_CONTROL)
        return len == sizeof(*h) ? on_control(s, c) : -1;
    if (h->type == SIM_WATCH)
        return c->kind == SIM_KIND_NVML && len == sizeof(struct sim_watch) ? on_watch(s, c, message)
                                                                           : -1;
    if (h->type == SIM_DEVICE || h->type == SIM_PROCESSES || h->type == SIM_SAMPLES) {
        if (!c->kind || len != sizeof(*ask) || ask->index >= s->machine.device_count)
            return -1;
        if (h->type == SIM_DEVICE)
            return on_device(s, c, ask->index);
        if (h->type == SIM_PROCESSES)
            return on_processes(s, c, ask->index);
        return on_samples(s, c, ask->index, ask->since_us);
    }
    if (h->type >= SIM_SHARE && h->type <= SIM_RELEASE)
        return len == sizeof(struct sim_ask_object) ? sim_object_message(s, c, message, fd) : -1;
    if (c->kind != SIM_KIND_CONTROL)
        return -1;
    if (h->type == SIM_COMMAND)
        return on_report(c, h->type, sim_command_run(s, (char *)(h + 1), len - sizeof(*h)));
    if (len != sizeof(*h))
        return -1;
    if (h->type == SIM_ORACLE)
        return on_report(c, h->type, sim_report_oracle(s));
    if (h->type == SIM_LIST)
        return on_report(c, h->type, sim_report_list(s));
    if (h->type == SIM_RESET) {
        struct sim_answer answer = {{SIM_RESET, sizeof(answer)}, SIM_OK, 0};

        reset(s);
        return sim_reply(c->fd, &answer, sizeof(answer), NULL, 0);
    }
    return -1;
}

/* The first that came; what alignment leaves room for beyond it is closed, and the kernel drops the
 * rest. */
static int first_descriptor(const struct cmsghdr *h)
{
    int fds[2];
    size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    static_assert(CMSG_SPACE(sizeof(int)) - CMSG_LEN(0) <= sizeof(fds), "room");
    memcpy(fds, CMSG_DATA(h), count * sizeof(int));
    while (count > 1)
        close(fds[--count]);
    return count ? fds[0] : -1;
}

static void on_readable(struct sim_server *s, struct sim_client_entry *c)
{
    union {
        struct sim_hello hello;
        struct sim_ask_device ask;
        char command[SIM_COMMAND_BYTES];
        struct sim_ask_object object;
    } message;
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr m = {
        .msg_iov = &(struct iovec){&message, sizeof(message)},
        .msg_iovlen = 1,
        .msg_control = control.space,
        .msg_controllen = sizeof(control.space),
    };
    ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    alq_auto_close int fd = -1;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
        fd = first_descriptor(h);
    if (n <= 0 || (m.msg_flags & MSG_TRUNC) || on_message(s, c, &message, (size_t)n, fd) != 0)
        client_close(s, c);
}

static void on_connect(struct sim_server *s)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    struct sim_client_entry *c;
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && s->spare_fd >= 0) {
        /* Refuse the newcomer rather than spin on a connection that cannot be taken. */
        close(s->spare_fd);
        fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return;
    }
    if (fd < 0)
        return;
    c = calloc(1, sizeof(*c));
    if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd,
                  &(struct epoll_event){.events = EPOLLIN, .data.ptr = c}) != 0) {
        close(fd);
        free(c);
        return;
    }
    c->fd = fd;
    c->pid = peer.pid;
    sim_pidns_read(peer.pid, &c->pidns);
    c->next = s->clients;
    s->clients = c;
}

/* Life of the server */

static int open_listener(struct sim_server *s, const char *run_dir, struct alq_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", run_dir, SIM_SOCKET_NAME);

    if (n < 0 || (size_t)n >= sizeof(address.sun_path))
        return alq_err_set(err, ALQ_ERANGE,
                           "run directory %s is too long for a unix socket; give a shorter one",
                           run_dir);
    alq_auto_close int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof(address)) == 0)
        return alq_err_set(err, ALQ_EBUSY, "another simgpud serves %s; stop it first",
                           address.sun_path);
    if (unlink(address.sun_path) != 0 && errno != ENOENT)
        return alq_err_errno(err, errno, "cannot remove the stale socket %s", address.sun_path);
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0)
        return alq_err_errno(err, errno, "cannot make a socket");
    if (bind(s->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        chmod(address.sun_path, 0666) != 0 || listen(s->listener, 1024) != 0)
        return alq_err_errno(err, errno, "cannot listen on %s", address.sun_path);
    return 0;
}

int sim_server_open(struct sim_server *s, const char *run_dir, struct alq_err *err)
{
    int rc;

    s->node_fd = sim_shared_memory("simgpu-node", sizeof(*s->node), (void **)&s->node);
    if (s->node_fd < 0)
        return alq_err_errno(err, errno, "cannot make the shared node memory");
    s->control_fd = sim_shared_memory("simgpu-control", sizeof(*s->control), (void **)&s->control);
    if (s->control_fd < 0)
        return alq_err_errno(err, errno, "cannot make the shared control page");
    s->node->version = s->control->version = SIM_LAYOUT_VERSION;
    s->control->identity = sim_now_ns() ^ (uint64_t)getpid() << 40;
    sim_devices_open(s);
    if ((rc = sim_schedule_open(s, err)) != 0)
        return rc;
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return alq_err_errno(err, errno, "cannot make an epoll descriptor");
    if ((rc = sim_objects_open(s)) != 0)
        return alq_err_errno(err, -rc, "cannot make an epoll descriptor");
    if ((rc = open_listener(s, run_dir, err)) != 0)
        return rc;
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->holds,
                  &(struct epoll_event){.events = EPOLLIN, .data.ptr = &s->holds}) != 0)
        return alq_err_errno(err, errno, "cannot watch shared memory");
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener,
                  &(struct epoll_event){.events = EPOLLIN, .data.ptr = &s->listener}) != 0)
        return alq_err_errno(err, errno, "cannot watch the socket");
    return 0;
}

int sim_server_run(struct sim_server *s, int signal_fd, struct alq_err *err)
{
    struct epoll_event events[EVENTS_MAX];

    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, signal_fd,
                  &(struct epoll_event){.events = EPOLLIN, .data.ptr = NULL}) != 0)
        return alq_err_errno(err, errno, "cannot watch for signals");
    for (;;) {
        int n = epoll_wait(s->epoll, events, EVENTS_MAX, sim_schedule_timeout_ms(s));

        if (n < 0 && errno != EINTR)
            return alq_err_errno(err, errno, "waiting for clients");
        for (int i = 0; i < n; i++) {
            if (!events[i].data.ptr)
                return 0;
            if (events[i].data.ptr == &s->listener)
                on_connect(s);
            else if (events[i].data.ptr == &s->holds)
                sim_objects_reap(s);
            else
                on_readable(s, events[i].data.ptr);
        }
        if (s->is_asked || n == 0)
            sim_schedule_pass(s);
    }
}

void sim_server_close(struct sim_server *s, const char *run_dir)
{
    alq_auto_free char *path = NULL;

    if (asprintf(&path, "%s/%s", run_dir, SIM_SOCKET_NAME) > 0)
        unlink(path);
    while (s->clients)
        client_close(s, s->clients);
    sim_schedule_close(s);
    sim_objects_close(s);
    while (s->groups) {
        struct sim_group_entry *g = s->groups;

        s->groups = g->next;
        group_free(g);
    }
    close(s->listener);
    close(s->epoll);
    close(s->spare_fd);
    munmap(s->node, sizeof(*s->node));
    close(s->node_fd);
    munmap(s->control, sizeof(*s->control));
    close(s->control_fd);
}

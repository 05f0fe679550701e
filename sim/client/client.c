/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets and mappings of client.h. Uses libc only: it is linked into the stand-in libraries.
 */
#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS 4    /* of a welcome: the control page, and the shared ones of a CUDA client */
#define SHARED 3 /* node, group, client */

static int open_socket(void)
{
    const char *path = getenv("SIMGPU_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, rc = 0;

    if (!path || !*path)
        path = SIM_SOCKET_DEFAULT;
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    do {
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        rc = -errno;
    } while (rc == -EINTR);
    close(fd);
    return rc;
}

/* Receives one message and up to FDS descriptors; unused places of fds are -1. */
static int receive(int fd, void *answer, size_t max, int fds[FDS])
{
    union {
        char space[CMSG_SPACE(sizeof(int) * FDS)];
        struct cmsghdr align;
    } control;
    struct msghdr m = {
        .msg_iov = &(struct iovec){answer, max},
        .msg_iovlen = 1,
        .msg_control = control.space,
        .msg_controllen = sizeof(control.space),
    };
    ssize_t n;

    for (int i = 0; i < FDS; i++)
        fds[i] = -1;
    do
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    }
    if (n == 0)
        return -ECONNRESET;
    return (int)n;
}

static int send_with(int fd, const void *request, uint32_t bytes, int send_fd)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr m = {
        .msg_iov = &(struct iovec){(void *)(uintptr_t)request, bytes},
        .msg_iovlen = 1,
    };
    ssize_t n;

    if (send_fd >= 0) {
        m.msg_control = control.space;
        m.msg_controllen = sizeof(control.space);
        control.align = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.align), &send_fd, sizeof(send_fd));
    }
    do
        n = sendmsg(fd, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return n == (ssize_t)bytes ? 0 : -EIO;
}

static int send_request(int fd, const void *request, uint32_t bytes)
{
    return send_with(fd, request, bytes, -1);
}

static void close_all(const int *fds)
{
    for (int i = 0; i < FDS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

int sim_call(const struct sim_connection *c, const void *request, uint32_t bytes, void *answer,
             uint32_t max)
{
    const struct sim_answer *a = answer;
    int fds[FDS], rc = send_request(c->fd, request, bytes);

    if (rc != 0 || (rc = receive(c->fd, answer, max, fds)) < 0)
        return rc;
    close_all(fds);
    return rc >= (int)sizeof(*a) && a->header.bytes == (uint32_t)rc && a->status == SIM_OK
               ? rc
               : -EPROTO;
}

int sim_call_fd(const struct sim_connection *c, const void *request, uint32_t bytes)
{
    struct sim_answer answer;
    int fds[FDS], rc = send_request(c->fd, request, bytes);

    if (rc != 0 || (rc = receive(c->fd, &answer, sizeof(answer), fds)) < 0)
        return rc;
    return fds[0] >= 0 ? fds[0] : -EIO;
}

int sim_call_object(const struct sim_connection *c, const struct sim_ask_object *ask, int send_fd,
                    struct sim_object_answer *answer, int *hold, int *file)
{
    int fds[FDS], rc = send_with(c->fd, ask, sizeof(*ask), send_fd);

    *hold = *file = -1;
    if (rc != 0 || (rc = receive(c->fd, answer, sizeof(*answer), fds)) < 0)
        return rc;
    if (rc != (int)sizeof(*answer))
        rc = -EPROTO;
    else
        rc = answer->answer.status == SIM_OK          ? 0
             : answer->answer.status == SIM_NO_OBJECT ? -ENOENT
             : answer->answer.status == SIM_NO_MEMORY ? -ENOMEM
                                                      : -EPROTO;
    if (rc != 0) {
        close_all(fds);
        return rc;
    }
    *hold = fds[0];
    *file = fds[1];
    return 0;
}

int sim_connection_lost(const struct sim_connection *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static int is_null_device(const char *path)
{
    struct statx st; /* stat() would bind the library to glibc 2.33 */

    return statx(AT_FDCWD, path, 0, STATX_TYPE, &st) == 0 && S_ISCHR(st.stx_mode) &&
           st.stx_rdev_major == 1 && st.stx_rdev_minor == 3;
}

static void keep_visible(struct sim_connection *c, const struct sim_welcome *w)
{
    const char *dir = getenv("SIMGPU_DEV_DIR");
    char path[4096];
    int is_filtered;

    if (!dir || !*dir)
        dir = "/dev";
    snprintf(path, sizeof(path), "%s/nvidiactl", dir);
    is_filtered = is_null_device(path);
    c->device_count = 0;
    for (uint32_t i = 0; i < w->device_count && i < SIM_MAX_DEVICES; i++) {
        snprintf(path, sizeof(path), "%s/nvidia%u", dir, w->device[i].minor);
        if (!is_filtered || is_null_device(path))
            c->device[c->device_count++] = w->device[i];
    }
}

static int map_shared(struct sim_connection *c, const int *fds)
{
    const size_t bytes[SHARED] = {sizeof(*c->node), sizeof(*c->group), SIM_CLIENT_BYTES};
    void *map[SHARED];

    for (int i = 0; i < SHARED; i++) {
        map[i] = fds[i] < 0 ? MAP_FAILED
                            : mmap(NULL, bytes[i], PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        if (map[i] == MAP_FAILED) {
            while (i-- > 0)
                munmap(map[i], bytes[i]);
            return -ENOMEM;
        }
    }
    c->node = map[0];
    c->group = map[1];
    c->client = map[2];
    return 0;
}

static int map_control(int fd, struct sim_control **control)
{
    void *map = fd < 0 ? MAP_FAILED
                       : mmap(NULL, sizeof(**control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        return -ENOMEM;
    *control = map;
    return 0;
}

static int say_hello(struct sim_connection *c, enum sim_client_kind kind, struct sim_welcome *w)
{
    struct sim_hello hello = {
        .header = {SIM_HELLO, sizeof(hello)}, .version = SIM_WIRE_VERSION, .kind = kind};
    const char *group = getenv("SIMGPU_GROUP");
    int fds[FDS], rc;

    snprintf(hello.group, sizeof(hello.group), "%s", group ? group : "");
    if ((rc = send_request(c->fd, &hello, sizeof(hello))) != 0 ||
        (rc = receive(c->fd, w, SIM_MESSAGE_BYTES, fds)) < 0)
        return rc == -EPIPE || rc == -ECONNRESET ? -EBUSY : rc; /* taken, and dropped at once */
    if (rc < (int)sizeof(*w) || w->version != SIM_WIRE_VERSION)
        rc = -EPROTO;
    else if (w->answer.status == SIM_NO_SLOT)
        rc = -EBUSY;
    else if (w->answer.status != SIM_OK)
        rc = w->answer.status == SIM_NO_MEMORY ? -ENOMEM : -EPROTO;
    else if (kind == SIM_KIND_CONTROL)
        rc = 0;
    else if ((rc = map_control(fds[0], &c->control)) == 0 && kind == SIM_KIND_CUDA)
        rc = map_shared(c, fds + 1);
    close_all(fds);
    return rc;
}

int sim_control_fetch(struct sim_control **control, uint32_t *pid)
{
    struct sim_header request = {SIM_CONTROL, sizeof(request)};
    struct sim_control_answer a;
    int fds[FDS], fd = open_socket(), rc;

    if (fd < 0)
        return fd;
    if ((rc = send_request(fd, &request, sizeof(request))) == 0 &&
        (rc = receive(fd, &a, sizeof(a), fds)) >= 0) {
        rc = rc == (int)sizeof(a) ? map_control(fds[0], control) : -EPROTO;
        *pid = a.pid;
        close_all(fds);
    }
    close(fd);
    return rc;
}

int sim_connect(struct sim_connection *c, enum sim_client_kind kind)
{
    struct sim_welcome *w;
    int rc;

    memset(c, 0, sizeof(*c));
    c->fd = open_socket();
    if (c->fd < 0)
        return c->fd;
    w = malloc(SIM_MESSAGE_BYTES);
    rc = w ? say_hello(c, kind, w) : -ENOMEM;
    if (rc == 0) {
        c->slot = w->slot;
        c->pid = w->pid;
        memcpy(c->rule, w->rule, sizeof(c->rule));
        keep_visible(c, w);
    } else {
        close(c->fd);
        c->fd = -1;
    }
    free(w);
    return rc;
}

void sim_disconnect(struct sim_connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

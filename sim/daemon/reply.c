/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sendmsg with SCM_RIGHTS for reply.h. A client has one request under way, so its socket buffer is
 * empty when an answer is sent; one that does not fit is enlarged once.
 */
#include "daemon/reply.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define FDS_MAX 4

static ssize_t send_once(int fd, const void *answer, size_t bytes, const int *fds, int fd_count)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
        struct cmsghdr align;
    } control;
    struct msghdr m = {
        .msg_iov = &(struct iovec){(void *)answer, bytes},
        .msg_iovlen = 1,
    };

    if (fd_count > 0) {
        struct cmsghdr *c;

        memset(&control, 0, sizeof(control));
        m.msg_control = control.space;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)fd_count);
    }
    return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int sim_reply(int fd, const void *answer, size_t bytes, const int *fds, int fd_count)
{
    int size = (int)bytes * 2;

    if (send_once(fd, answer, bytes, fds, fd_count) == (ssize_t)bytes)
        return 0;
    if (errno != EMSGSIZE || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) != 0)
        return -1;
    return send_once(fd, answer, bytes, fds, fd_count) == (ssize_t)bytes ? 0 : -1;
}

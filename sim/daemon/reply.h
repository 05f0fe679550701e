/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends one answer, with descriptors, without ever waiting for the receiver.
 */
#ifndef SIM_DAEMON_REPLY_H
#define SIM_DAEMON_REPLY_H

#include <stddef.h>

/* 0, or -1 when it could not be sent whole (the peer is gone, or does not read): drop the client.
 */
int sim_reply(int fd, const void *answer, size_t bytes, const int *fds, int fd_count);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SELinux labels, without libselinux: on a host that labels files, a container may use a mounted
 * file only if its type is one for containers. Elsewhere these do nothing. Any thread, blocking.
 */
#ifndef ALQ_DAEMON_CDI_LABEL_H
#define ALQ_DAEMON_CDI_LABEL_H

/* Gives the file the type container_file_t at level s0, so that every container may use it. A
 * policy that has no such type (no container support installed) leaves it as it is, with one log
 * line. */
void alq_label_for_containers(const char *path);
void alq_label_fd_for_containers(int fd, const char *path);

#endif

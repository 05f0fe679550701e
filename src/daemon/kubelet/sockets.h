/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of an instance's two sockets, named as Kubernetes' own plugin helper names them, and
 * the removal of sockets that dead instances have left: the kubelet goes on dialling those.
 * Blocking file calls on tmpfs or the kubelet's disk; before the loop runs.
 *
 *   without a pod UID   dra.sock         <driver>-reg.sock
 *   with one            dra-<uid>.sock   <driver>-<uid>-reg.sock
 *
 * A path has at most 107 bytes (unix(7)). Where it would be longer, <uid> becomes the first 8 bytes
 * of its SHA-256 in base64url, and if that does not do either, the DRA socket loses its suffix and
 * the registration socket is dra-<16 bytes of SHA-256(driver NUL uid) in base64url>-reg.sock
 * (kubernetes#139623, kubernetes#142003).
 */
#ifndef ALQ_DAEMON_KUBELET_SOCKETS_H
#define ALQ_DAEMON_KUBELET_SOCKETS_H

#include "base/err.h"
#include "daemon/config.h"

#define ALQ_SOCKET_PATH_BYTES 108 /* of sockaddr_un, with the NUL */

struct alq_sockets {
    char dra[ALQ_SOCKET_PATH_BYTES];
    char registration[ALQ_SOCKET_PATH_BYTES];
};

/* ALQ_ERANGE: a directory is too long for any name, told with its setting. */
int alq_sockets_name(const struct alq_config *cfg, struct alq_sockets *sockets,
                     struct alq_err *err);

/* Removes sockets of this driver, of any pod UID, that nobody listens at. A live one, a name that
 * may be another driver's and a file of another kind stay. */
void alq_sockets_sweep(const struct alq_config *cfg);

/* Whether another instance of this driver is alive: some DRA socket but our own is listened at. */
int alq_sockets_has_other(const struct alq_config *cfg, const struct alq_sockets *own);

#endif

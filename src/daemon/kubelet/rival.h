/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether another plugin serves our driver name on this node. Two of them would each undo what the
 * other does: the kubelet calls the one that registered last, and the slices go back and forth.
 * Blocking calls on local sockets; before the loop runs.
 */
#ifndef ALQ_DAEMON_KUBELET_RIVAL_H
#define ALQ_DAEMON_KUBELET_RIVAL_H

#include "base/err.h"
#include "daemon/config.h"

/*
 * ALQ_EBUSY names the socket, who listens at it and the way out, when one of this driver's sockets
 * is a plugin's that is not aliquotd. Whose it is tells the listener's executable; where that
 * cannot be seen (another PID namespace), a name without a pod UID, which another aliquotd would
 * have been kept from by the lock (succession.h), so call it as the lock's holder or its heir.
 */
int alq_rival_check(const struct alq_config *cfg, struct alq_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors the process may have. Before the loop runs. */
#ifndef ALQ_DAEMON_DESCRIPTORS_H
#define ALQ_DAEMON_DESCRIPTORS_H

/* Takes all that it may have, within reason; warns where that is too few for many claims. */
void alq_descriptors_raise(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands before every entry point of a stand-in library: a few instructions (entry-*.inc) that
 * look at the entry's byte of the control page and jump on to the implementation, or come here when
 * a fault rule marks the entry. The return address stays the caller's. Any thread, also before
 * cuInit: the first call of a process fetches the page over a connection of its own.
 *
 * A call is an object's own when the object made it for itself rather than to forward the
 * application's: its frames on the stack (from the caller outwards, as long as they lie in the
 * object) begin in a function that the object does not export under the called entry's name. A
 * preloaded wrapper that tail-jumps leaves no frame, and its call is then the application's.
 */
#ifndef SIM_CLIENT_FAULT_H
#define SIM_CLIENT_FAULT_H

#include <stdint.h>

#include "common/control.h"

struct sim_verdict {
    uint64_t result;
    uint64_t is_final; /* the call is not made */
};

/* Of the library this is linked into; profile.c. */
extern const enum sim_library sim_library;

/* By entry index: non-zero leads to sim_entry_check. */
extern const _Atomic uint8_t *sim_entries_armed;

/* From entry-*.inc only. Keeps errno. */
struct sim_verdict sim_entry_check(uint32_t index, const void *caller);

/* Takes over the page of a connection just made; pid is this process as simgpud sees it. Returns
 * the page to use, which stays mapped for good, since another thread may be reading it: the one
 * there was, if it is simgpud's still. */
struct sim_control *sim_control_adopt(struct sim_control *control, uint32_t pid);

/* NULL while there is none. */
struct sim_control *sim_control_page(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of one section of a usage file: how many bytes each process slot holds, and their sum,
 * kept so that a process may be killed between any two instructions without a byte lost or admitted
 * twice. Plain functions of a region; no driver, no system call, no lock.
 *
 * The protocol. total = {sum of what all slots hold, tag}; the tag names the last operation, slot
 * << 48 | seq, which is in the sum but perhaps not yet in its slot. An operation of a slot:
 *   1. write slot.op = {delta, seq}, seq = slot.done.seq + 1, the seq first;
 *   2. read total; bring the operation that its tag names into that slot's done = {held, seq} (by
 * CAS, once, whoever comes first); 16-byte CAS of total to {sum + delta, own tag}; again until it
 * goes through;
 *   3. bring the own operation into slot.done.
 * Killed before the CAS of 2: nothing happened. Killed after it: the tag stays in total, and nobody
 * can replace it without step 2's settling. The next operation of a slot starts only when its last
 * one is settled, so slot.op is stable while a tag names it. seq outlives the slot's owner, so a
 * tag never comes again.
 *
 * A dead owner's slot is emptied by one operation that gives back all it holds: {-held, done.seq +
 * 1}, or by two where it had exported some of it, which goes last and on its own: first all but
 * that, then that. Which of them is next follows from what is held, so it is the same words whoever
 * makes it, so any number of reapers may be at it at once, stop in it or
 * die in it, and none waits for another. A reaper changes slot.op by CAS from what it was before
 * done was seen to be at seq - 1, and an owner writes an op's seq before its delta: a reaper that
 * fell asleep and wakes beside the slot's next owner finds every word moved on, and does nothing.
 *
 * Who may call what for a slot: take and give its owner, which holds the slot's lock (usage.h), one
 * thread at a time (the caller's private lock); bury anybody who has seen the owner dead; forget
 * who holds the slot's lock.
 */
#ifndef ALQ_VGPU_MEMORY_LEDGER_H
#define ALQ_VGPU_MEMORY_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot/share.h"

/*
 * Adds to the slot as many bytes as fit, at most max_bytes, at least min_bytes (1 or more), so that
 * the sum of the section stays at or below ceiling_bytes. Returns how many, 0 when fewer than
 * min_bytes fit; then nothing has changed.
 */
uint64_t alq_ledger_take(struct alq_usage_section *section, uint32_t slot, uint64_t min_bytes,
                         uint64_t max_bytes, uint64_t ceiling_bytes);

/* Gives back bytes that the slot holds; more than it holds is cut to what it holds. */
void alq_ledger_give(struct alq_usage_section *section, uint32_t slot, uint64_t bytes);

/* What a slot holds and the number of its last operation, an unfinished one settled. */
struct alq_pair alq_ledger_look(struct alq_usage_section *section, uint32_t slot);

/*
 * Gives back what a dead owner left in the slot: everything, or where keeps_exported all but what
 * it had exported. `seen` is of a look before its owner was seen dead: then a next owner, which
 * comes after that, has moved the number on. Harmless beside other reapers and beside that owner.
 * Returns the bytes that it gave back, 0 when there were none or another was faster.
 */
uint64_t alq_ledger_bury(struct alq_usage_section *section, uint32_t slot, struct alq_pair seen,
                         bool keeps_exported);

/* Clears the figures beside the ledger; what a dead owner had exported and is still held stays. */
void alq_ledger_forget(struct alq_usage_section *section, uint32_t slot);

/* What the slot holds. Exact for its owner; for others a moment's value that may lack an unfinished
 * operation. */
uint64_t alq_ledger_held(const struct alq_usage_section *section, uint32_t slot);

/* The sum over all slots. */
uint64_t alq_ledger_total(const struct alq_usage_section *section);

#endif

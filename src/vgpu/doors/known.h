/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the driver's names the tables of entry/ know. A program that is handed an entry point of
 * a newer driver gets it untouched, but that is counted, so that `aliquot doctor` can say that this
 * driver is newer than this library. Any thread; no lock, no driver call.
 */
#ifndef ALQ_VGPU_KNOWN_H
#define ALQ_VGPU_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

/* An exported name, or one as cuGetProcAddress takes it, without the suffix of its version. */
bool alq_is_known(const char *name);

/* An entry point that is not hooked has been handed out under this name. */
void alq_door_passed(const char *name);

/* The number of unknown ones since the last call. */
uint64_t alq_unknown_take(void);

#endif

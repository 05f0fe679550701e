/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doors by which a program comes to the driver: dlsym, dlvsym, dlopen and dlmopen (here),
 * cuGetProcAddress (procaddr.c) and the exported names themselves. The loader's functions look at
 * their return address to know the caller (RTLD_NEXT, RUNPATH, the namespace), so our versions are
 * a few instructions per architecture (x86_64.S, aarch64.S) that leave the stack as it was and jump
 * to the real one, unless the name is of the driver's kind (cu[A-Z], nvml[A-Z]).
 */
#ifndef ALQ_VGPU_DOORS_H
#define ALQ_VGPU_DOORS_H

#include <stdbool.h>

enum alq_door {
    ALQ_DOOR_DLSYM,
    ALQ_DOOR_DLVSYM,
    ALQ_DOOR_DLOPEN,
    ALQ_DOOR_DLMOPEN,
    ALQ_DOOR_COUNT
};

/* The next definition of each door after ours in load order; 0 until alq_door_next has looked. Read
 * by the assembler. */
extern void *alq_door_next_at[ALQ_DOOR_COUNT] __attribute__((visibility("hidden")));

/* Finds it; never NULL: a function that answers NULL where there is none. */
void *alq_door_next(unsigned door);

/*
 * A lookup of a driver-like name. False: the caller jumps to the real function. True: *out is the
 * answer. caller: an address in the object that asks. version: NULL for dlsym.
 */
bool alq_door_lookup(void *handle, const char *name, const char *version, const void *caller,
                     void **out);

/* The mode to open this file with: RTLD_DEEPBIND taken off where a limit is in force and the object
 * could come to the driver. */
int alq_door_open_mode(const char *file, int mode);

/* What to hand out for an address that the driver gave: our wrapper of that very entry point, or
 * the address itself. */
void *alq_door_wrap(void *address);

/* Does this file, opened with RTLD_DEEPBIND, escape the doors? By its own dynamic section; "yes"
 * when it cannot be read. */
bool alq_deepbind_matters(const char *file);

#endif

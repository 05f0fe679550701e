/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the generated tables of a stand-in library need from it: the answer of an entry point that
 * has no implementation, and the rows of cuGetProcAddress.
 */
#ifndef SIM_CLIENT_ENTRIES_H
#define SIM_CLIENT_ENTRIES_H

/* Counts the call of entry `index` of the profile's list; the library's "not supported" code. */
int sim_unsupported(unsigned int index);

/* A name, the CUDA version it appeared in under this symbol, and the symbol's two forms. Sorted by
 * name, then version. */
struct sim_proc {
    const char *name;
    int version;
    int (*legacy)(void);
    int (*per_thread)(void);
};

extern const struct sim_proc sim_procs[];
extern const unsigned int sim_proc_count;

/* Names by entry index. */
extern const char *const sim_entry_names[];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files of NVIDIA's driver are for containers, by name: data, and the one function that
 * judges a library's name. Facts: reference/dra.md 5.3 and the file lists in
 * tests/conformance/cdi/layouts. Constant; any thread.
 */
#ifndef ALQ_DAEMON_CDI_WANTED_H
#define ALQ_DAEMON_CDI_WANTED_H

#include <stdint.h>

/* The sets (enum alq_inject) of a library by its file name, for a driver of that version; 0: not
 * for containers, or of another version. A library that we have never heard of and that has the
 * driver's version counts as compute: a newer libcuda may load it. */
uint32_t alq_wanted_library(const char *name, const char *version);

/* Whether it belongs into the subdirectory vdpau/, where libvdpau looks. */
int alq_wanted_is_vdpau(const char *name);

/* One file of a fixed name. */
struct alq_wanted_file {
    const char *name; /* of a program: looked for in each of alq_wanted_bin_dirs, else a path */
    uint32_t set;
};

/* The lists end with a row whose name is NULL. Paths are relative to the driver root; a program is
 * mounted in /usr/bin, everything else at its path. */
extern const struct alq_wanted_file alq_wanted_programs[];
extern const char *const alq_wanted_bin_dirs[];
extern const struct alq_wanted_file alq_wanted_data[];
extern const struct alq_wanted_file alq_wanted_sockets[];

/* A link that programs count on besides the SONAMEs: both in the directory of the library that has
 * the SONAME; the link's name may lead with a subdirectory. */
struct alq_wanted_link {
    const char *soname; /* of a library that is mounted */
    const char *link;
    const char *target; /* relative to the link's directory */
    uint32_t set;
};
extern const struct alq_wanted_link alq_wanted_links[];

#endif

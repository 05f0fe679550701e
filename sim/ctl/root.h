/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lays a driver root: the stand-in libraries and device nodes where NVIDIA's driver has its own.
 */
#ifndef SIM_CTL_ROOT_H
#define SIM_CTL_ROOT_H

#include "common/devfile.h"

/* Below dir (made if missing): usr/lib/x86_64-linux-gnu with the libraries of machine's profile
 * from lib_dir, dev with links to /dev/null, proc/driver/nvidia/version. Existing files are
 * replaced. */
int sim_root_install(const struct sim_machine *machine, const char *lib_dir, const char *dir,
                     struct alq_err *err);

/* The directory that holds the built libraries: beside this program, or ../lib/aliquot-sim.
 * malloc'ed. ALQ_ENOENT when there are none. */
int sim_root_find_libraries(char **lib_dir, struct alq_err *err);

#endif

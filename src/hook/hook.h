/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of aliquot-hook, one function each, and what they share: the one line on stderr. All
 * return 0 or -errno and have reported an error by then. One thread; no allocation but static
 * buffers; the environment is never looked at.
 */
#ifndef ALQ_HOOK_HOOK_H
#define ALQ_HOOK_HOOK_H

#define ALQ_PATH_BYTES 4096

struct alq_container;

int alq_hook_main(int argc, char **argv);

/* args[i] is a directory in the container, absolute; there is one at least. */
int alq_update_ldcache(const struct alq_container *container, char **args, int count);

/* args[i] is "TARGET::PATH": in the container PATH becomes a symbolic link to TARGET. */
int alq_create_symlinks(const struct alq_container *container, char **args, int count);

/* count is 0. */
int alq_disable_device_node_modification(const struct alq_container *container, char **args,
                                         int count);

/* Writes "aliquot-hook: <thing>: <what>: <errno's text>" and a newline in one write; the last part
 * is left out for rc 0, and so is an empty what. Control characters come out as '?'. Returns rc. */
int alq_report(const char *thing, const char *what, int rc);

#endif

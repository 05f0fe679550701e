/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ownership by scope. A variable declared with one of these attributes releases what it holds when
 * it goes out of scope; alq_steal() hands the value over to somebody else and leaves the empty
 * value behind. Daemon and tool only.
 */
#ifndef ALQ_BASE_CLEANUP_H
#define ALQ_BASE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void alq_cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void alq_cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void alq_cleanup_fclose(FILE **f)
{
    if (*f)
        fclose(*f);
}

static inline void alq_cleanup_closedir(DIR **d)
{
    if (*d)
        closedir(*d);
}

#define alq_auto_free __attribute__((cleanup(alq_cleanup_free)))
#define alq_auto_close __attribute__((cleanup(alq_cleanup_close)))
#define alq_auto_fclose __attribute__((cleanup(alq_cleanup_fclose)))
#define alq_auto_closedir __attribute__((cleanup(alq_cleanup_closedir)))

/* Takes the pointer out of *p and leaves NULL. */
#define alq_steal(p)                                                                               \
    __extension__({                                                                                \
        __typeof__(*(p)) alq_stolen_ = *(p);                                                       \
        *(p) = NULL;                                                                               \
        alq_stolen_;                                                                               \
    })

/* Takes the descriptor out of *fd and leaves -1. */
static inline int alq_steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif

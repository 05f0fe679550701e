/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Usage files: mapping one, taking a process slot in it, and giving back what dead processes left.
 *
 * A slot is an OFD write lock on its byte of the file. The description that has it is mapped and
 * closed at once, so the lock lives as long as the mapping: through closefrom, in a fork child that
 * has not exec'd (which keeps the driver's descriptors just so), and not a moment after the last
 * such address space. Nobody looks at a PID.
 */
#ifndef ALQ_VGPU_USAGE_H
#define ALQ_VGPU_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot/share.h"

#define ALQ_PATH_BYTES 512
#define ALQ_NO_SLOT UINT32_MAX

struct alq_file {
    char path[ALQ_PATH_BYTES];
    uint8_t *base; /* mapped, or NULL */
    uint64_t bytes;
    _Atomic uint32_t slot; /* ALQ_NO_SLOT until taken by this process */
    bool is_private;       /* nothing shared was to be had: the limit holds per process */
};

static inline struct alq_usage_header *alq_file_header(const struct alq_file *file)
{
    return (struct alq_usage_header *)(void *)file->base;
}

static inline struct alq_usage_section *alq_file_section(const struct alq_file *file,
                                                         uint32_t index)
{
    return (struct alq_usage_section *)(void *)(file->base + ALQ_USAGE_HEADER_BYTES +
                                                index * sizeof(struct alq_usage_section));
}

/* Writes an empty header with its magic into zeroed memory of ALQ_USAGE_BYTES(sections). */
void alq_usage_format(void *base, uint32_t sections);

/* True of what may be over a moment later, such as a lack of descriptors or of memory: no reason to
 * do without the file for good. */
bool alq_usage_may_pass(int rc);

/*
 * Maps the file, without a slot. 0; -ENOENT and other errors of open; -EINVAL for a file that is
 * too short, of another format or of another version; -ENOSPC where a hole in it cannot be filled;
 * -ENODEV where it cannot be mapped.
 * Never creates or changes it.
 */
int alq_usage_map(struct alq_file *file, const char *path);

/* As alq_usage_map, making the file with `sections` sections where there is none (complete from its
 * first moment). */
int alq_usage_map_or_make(struct alq_file *file, const char *path, uint32_t sections);

/* Memory of this process alone instead of a file, or of the mapping that there was: its sections
 * stay those of their GPUs. 0 or -ENOMEM. */
int alq_usage_make_private(struct alq_file *file, uint32_t sections);

/*
 * Takes a free slot, empties it in every section, and maps the file anew so that the lock stays.
 * Pointers into the old mapping stay good. 0; -EUSERS when all slots are taken; an error of open,
 * fcntl or mmap, -EINVAL or -ENOSPC as of alq_usage_map.
 */
int alq_usage_attach(struct alq_file *file);

/* Empties the slots of dead processes, but for what they had exported while a living one has any
 * such thing open, and waits for nobody. Returns how many there were. Any thread, with or without a
 * slot of its own. */
uint32_t alq_usage_reap(struct alq_file *file);

/* True where a living process, this one too, says in the section that it has something open which
 * was exported. */
bool alq_usage_has_imports(const struct alq_file *file, uint32_t section);

/* True where a slot other than ours holds bytes: what a reap would look at. */
bool alq_usage_has_others(const struct alq_file *file);

/* Inode of this process's PID namespace; 0 when /proc does not say. */
uint64_t alq_usage_pid_namespace(void);

/*
 * The section of this GPU in a file that starts without any (the environment's): the one that has
 * its UUID, else the first free one, marked with it. -ENOSPC when all are other GPUs'.
 */
int alq_usage_claim_section(struct alq_file *file, const char *uuid);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes into a container: the files of NVIDIA's driver found below the driver root, our
 * library, and the CDI spec made of them. alq_cdi_spec_build is pure; the other two do blocking
 * file I/O and run on a worker or before the loop. No state, any thread.
 */
#ifndef ALQ_DAEMON_CDI_CDI_H
#define ALQ_DAEMON_CDI_CDI_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"

#define ALQ_CDI_ID_BYTES 256 /* "k8s.<driver>/claim=<share id>" */

/* Driver files and common device nodes (scan.c has the struct). */
struct alq_driver_files;

/* Looks below cfg->driver_root, cfg->dev_root and cfg->kernel_root, and makes device nodes that are
 * missing. ALQ_ENOENT naming what is missing and where it was looked for (libcuda.so.<version>,
 * dev/nvidiactl, dev/nvidia-uvm): retryable, a spec is never written without them. ALQ_EAGAIN: the
 * libraries are not of the loaded kernel module's version, or change while they are looked at.
 * Result is the caller's. */
int alq_driver_scan(const struct alq_config *cfg, struct alq_driver_files **files,
                    struct alq_err *err);
void alq_driver_files_free(struct alq_driver_files *files);

/* Whether all that the scan looked at is still as it was, by a stat each and without reading a
 * directory; cheap. */
int alq_driver_files_is_current(const struct alq_config *cfg, const struct alq_driver_files *files);

/* Our files on the host that containers mount, under their content's hash. Empty strings: no
 * library is configured. */
struct alq_library {
    char library_path[4096]; /* <host lib dir>/libvgpu-<hash>.so */
    char preload_path[4096]; /* <host lib dir>/ld.so.preload-<hash>: the library's container path
                                and a newline */
    char hook_path[4096];    /* <host lib dir>/aliquot-hook-<hash>, which the runtime runs */
};

/* Installs cfg->library with its ld.so.preload, and cfg->hook, never over an existing file: one
 * whose bytes are not what its name says is replaced by rename. What is NULL in cfg gives empty
 * strings. ALQ_ENOENT, ALQ_EPROTO: no such library or program; ALQ_ENOTSUP: it is not for this
 * machine, or the directory is mounted noexec; ALQ_EIO (read-only, full), ALQ_EAGAIN (out of
 * descriptors): may be tried again. */
int alq_library_install(const struct alq_config *cfg, struct alq_library *library,
                        struct alq_err *err);

/* Whether the files that are configured are there; cheap. */
int alq_library_is_there(const struct alq_config *cfg, const struct alq_library *library);

/* Puts into *library the files that a spec of an earlier version mounts, if they are installed
 * still: a share keeps the library that it was made with. Whether that is so; *library is untouched
 * if not. */
int alq_library_of_spec(const struct alq_config *cfg, const char *spec_text,
                        struct alq_library *library);

/* Removes installed files that are neither `current` nor named by any spec in the CDI directory,
 * and with is_checking those whose bytes are not what their name says, whoever names them. Returns
 * how many files that are not `current` stay, or a code; then nothing needed was removed. No spec
 * may be written meanwhile. */
int alq_library_sweep(const struct alq_config *cfg, const struct alq_library *current,
                      int is_checking, struct alq_err *err);

/* Spec of one claim: kind "k8s.<driver>/claim", one device per share named by its share id,
 * spec-level edits for what all share. Mounts <run dir>/shares/<share
 * id>/{control,usage,hami.cache} at ALQ_SHARE_ROOT/<share id>/ (the caller makes all three files),
 * mounts our library and sets HAMi-core's variables (CUDA_DEVICE_MEMORY_SHARED_CACHE is
 * hami.cache), all three only with shares that are enforced; extraMounts and extraEnv for all. The
 * GPU's node comes from share->gpu_minor; ALQ_ENOENT when dev root lacks it and it cannot be made,
 * or lacks a capability node of its MIG instances. The lowest cdiVersion that is valid. *spec is
 * the caller's. */
int alq_cdi_spec_build(const struct alq_config *cfg, const struct alq_driver_files *files,
                       const struct alq_library *library, const struct alq_claim_spec *claim,
                       json_t **spec, struct alq_err *err);

/* "k8s.<driver>/claim=<share id>". */
void alq_cdi_id(const struct alq_config *cfg, const char *share_id, char id[ALQ_CDI_ID_BYTES]);

/* File name in the CDI directory: "k8s.<driver>-claim_<claim uid>.json"; malloc'ed path, NULL when
 * out of memory. */
char *alq_cdi_path(const struct alq_config *cfg, const char *claim_uid);

#endif

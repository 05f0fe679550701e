/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One string out of a JSON text, as the hook needs of the OCI state and of config.json. The whole
 * text is held against RFC 8259, nesting bounded. Pure: no system call, no state.
 */
#ifndef ALQ_HOOK_OCI_H
#define ALQ_HOOK_OCI_H

#include <stddef.h>

#define ALQ_OCI_DEPTH_MAX 64

/*
 * The string at names[0].names[1]... (NULL-terminated) of the object `text`, in UTF-8, into out.
 * 0; -EBADMSG: not JSON, or nested deeper than ALQ_OCI_DEPTH_MAX; -ENOENT: no such member; -EINVAL:
 * there twice, not a string, or with a NUL in it; -ENAMETOOLONG: does not fit. out is "" then.
 */
int alq_oci_string(const char *text, size_t len, const char *const *names, char *out,
                   size_t out_bytes);

#endif

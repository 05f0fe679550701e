/* SPDX-License-Identifier: Apache-2.0 */
/* What the runtime shows of a hook that failed: one line, see hook.h. */
#include "hook/hook.h"
#include "hook/sys.h"
#include "vgpu/text.h"

static const struct {
    int code;
    const char *text;
} reasons[] = {
    {EACCES, "permission denied"},
    {EBUSY, "busy"},
    {EEXIST, "exists"},
    {EFBIG, "too large"},
    {EINVAL, "invalid"},
    {EIO, "input/output error"},
    {EISDIR, "is a directory"},
    {ELOOP, "too many symbolic links"},
    {EMFILE, "too many open files"},
    {ENAMETOOLONG, "name too long"},
    {ENODEV, "no such device"},
    {ENOENT, "no such file or directory"},
    {ENOEXEC, "not a program that runs by itself"},
    {ENOMEM, "out of memory"},
    {ENOSPC, "no space left on device"},
    {ENOSYS, "not known to this kernel"},
    {ENOTDIR, "not a directory"},
    {EPERM, "not permitted"},
    {EROFS, "read-only file system"},
    {ETIMEDOUT, "not finished in time"},
    {EXDEV, "leads out of the container"},
};

static void add_reason(struct alq_text *line, int code)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].code == code) {
            alq_text_add(line, reasons[i].text);
            return;
        }
    }
    alq_text_add(line, "errno ");
    alq_text_add_u64(line, (uint64_t)code);
}

int alq_report(const char *thing, const char *what, int rc)
{
    char buffer[ALQ_PATH_BYTES + 512];
    struct alq_text line = alq_text_on(buffer, sizeof(buffer) - 1);
    alq_text_add(&line, "aliquot-hook: ");
    alq_text_add(&line, thing);
    if (what[0]) {
        alq_text_add(&line, ": ");
        alq_text_add(&line, what);
    }
    if (rc < 0) {
        alq_text_add(&line, ": ");
        add_reason(&line, -rc);
    }
    for (size_t i = 0; i < line.len; i++) {
        if ((unsigned char)buffer[i] < ' ' || buffer[i] == 127)
            buffer[i] = '?';
    }
    buffer[line.len++] = '\n';
    alq_sys_write(2, buffer, line.len);
    return rc;
}

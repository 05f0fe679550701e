/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts: formatting, wrapping and cutting to one line of bounded length. No allocation, so
 * that an error can be reported when memory is gone; no global state, any thread.
 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Puts text into err on one line. A cut never splits a UTF-8 sequence and always ends in "...". */
static void set_text(struct alq_err *err, const char *text, int is_cut)
{
    size_t len = strlen(text);
    if (len >= sizeof(err->text)) {
        len = sizeof(err->text) - 1;
        is_cut = 1;
    }
    if (is_cut) {
        size_t keep = len < sizeof(err->text) - 4 ? len : sizeof(err->text) - 4;
        while (keep > 0 && ((unsigned char)text[keep] & 0xc0) == 0x80)
            keep--;
        memcpy(err->text, text, keep);
        memcpy(err->text + keep, "...", 4);
    } else {
        memcpy(err->text, text, len + 1);
    }
    for (char *p = err->text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    }
    alq_utf8_clean(err->text); /* a "%.80s" may have cut within a character */
}

/* Formats into a buffer of the caller first: the arguments may point into err->text itself. */
__attribute__((format(printf, 3, 0))) static int format(char *buf, size_t size, const char *fmt,
                                                        va_list ap)
{
    int n = vsnprintf(buf, size, fmt, ap);
    if (n < 0) {
        buf[0] = '\0';
        return 0;
    }
    return (size_t)n >= size;
}

int alq_err_set(struct alq_err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    char buf[ALQ_ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int is_cut = format(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    err->code = code;
    set_text(err, buf, is_cut);
    return code;
}

static int code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return ALQ_ENOENT;
    case EEXIST:
        return ALQ_EEXIST;
    case EACCES:
    case EPERM:
        return ALQ_EACCES;
    case ENOMEM:
        return ALQ_ENOMEM;
    case EMFILE:
    case ENFILE:
        return ALQ_EAGAIN;
    default:
        return ALQ_EIO;
    }
}

int alq_err_errno(struct alq_err *err, int errnum, const char *fmt, ...)
{
    int code = code_of_errno(errnum);
    if (!err)
        return code;
    char buf[ALQ_ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    format(buf, sizeof(buf), fmt, ap);
    va_end(ap);

    /* The errno text is the cause: when space is short, the front part gives way. */
    char reason_buf[128];
    const char *reason = strerror_r(errnum, reason_buf, sizeof(reason_buf));
    char whole[ALQ_ERR_TEXT_BYTES + 160];
    size_t room = ALQ_ERR_TEXT_BYTES - 1 - strlen(": ") - strlen(reason);
    if (strlen(buf) > room) {
        size_t keep = room - 3;
        while (keep > 0 && ((unsigned char)buf[keep] & 0xc0) == 0x80)
            keep--;
        memcpy(buf + keep, "...", 4);
    }
    snprintf(whole, sizeof(whole), "%s: %s", buf, reason);
    err->code = code;
    set_text(err, whole, 0);
    return code;
}

int alq_err_wrap(struct alq_err *err, const char *fmt, ...)
{
    if (!err)
        return ALQ_EIO;
    char buf[ALQ_ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    format(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    char whole[2 * ALQ_ERR_TEXT_BYTES + 2];
    snprintf(whole, sizeof(whole), "%s: %s", buf, err->text);
    set_text(err, whole, 0);
    return err->code;
}

const char *alq_err_name(int code)
{
    switch (code) {
    case ALQ_OK:
        return "ok";
    case ALQ_EINVAL:
        return "invalid";
    case ALQ_ENOENT:
        return "not-found";
    case ALQ_EEXIST:
        return "exists";
    case ALQ_ERANGE:
        return "out-of-range";
    case ALQ_EIO:
        return "io";
    case ALQ_ENOMEM:
        return "no-memory";
    case ALQ_EAGAIN:
        return "try-again";
    case ALQ_ETIMEDOUT:
        return "timed-out";
    case ALQ_ECANCELED:
        return "cancelled";
    case ALQ_EACCES:
        return "denied";
    case ALQ_EPROTO:
        return "malformed";
    case ALQ_EBUSY:
        return "busy";
    case ALQ_ENOTSUP:
        return "unsupported";
    default:
        return "unknown";
    }
}

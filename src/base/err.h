/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of the daemon and the tools: a code a program can branch on and a sentence a person can
 * act on. The struct lives on the caller's stack, is passed as the last argument and is untouched
 * on success. A function that can fail returns 0 or a negative ALQ_E*, and has set the error before
 * it returns the latter. Whoever decides what an error means logs it, once. Any thread may use its
 * own struct.
 */
#ifndef ALQ_BASE_ERR_H
#define ALQ_BASE_ERR_H

#include <stdarg.h>

#define ALQ_ERR_TEXT_BYTES 512

enum alq_err_code {
    ALQ_OK = 0,
    ALQ_EINVAL = -1,    /* the input is wrong and will stay so */
    ALQ_ENOENT = -2,    /* the thing named does not exist */
    ALQ_EEXIST = -3,    /* it exists already, or another owner has it */
    ALQ_ERANGE = -4,    /* a number does not fit */
    ALQ_EIO = -5,       /* the system refused; errno text in the message */
    ALQ_ENOMEM = -6,    /* out of memory */
    ALQ_EAGAIN = -7,    /* not now; the same call may succeed later */
    ALQ_ETIMEDOUT = -8, /* no answer within the deadline */
    ALQ_ECANCELED = -9, /* given up by the caller */
    ALQ_EACCES = -10,   /* not allowed */
    ALQ_EPROTO = -11,   /* a peer or a file broke its format */
    ALQ_EBUSY = -12,    /* somebody else holds what is needed */
    ALQ_ENOTSUP = -13,  /* understood, but not supported here */
};

struct alq_err {
    int code;                      /* enum alq_err_code; 0 while nothing went wrong */
    char text[ALQ_ERR_TEXT_BYTES]; /* one line of UTF-8, lower case, no full stop; cut with "..."
                                      when too long */
};

#define ALQ_ERR_INIT                                                                               \
    {                                                                                              \
        0                                                                                          \
    }

/* Sets code and text; err may be NULL. Returns code, so that `return alq_err_set(...)` reads well.
 */
int alq_err_set(struct alq_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As alq_err_set with ": <strerror(errnum)>" appended; the code is ALQ_ENOENT, ALQ_EEXIST,
 * ALQ_EACCES, ALQ_ENOMEM or ALQ_EIO as errnum says. */
int alq_err_errno(struct alq_err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<fmt>: " before the text that is there; keeps the code. Returns it
 * (ALQ_EIO when err is NULL: the caller still learns that something failed). */
int alq_err_wrap(struct alq_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A short constant name of a code, such as "not-found", for metrics and JSON. Never NULL. */
const char *alq_err_name(int code);

#endif

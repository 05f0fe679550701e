/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line per event on stderr, as text or as JSON: time (RFC 3339, UTC, milliseconds), level,
 * module, message, then key=value pairs. A line is written by one write(2), so that threads and
 * processes do not mix. Values are quoted when they hold anything but printable ASCII without
 * blanks, quotes and '='.
 */
#ifndef ALQ_BASE_LOG_H
#define ALQ_BASE_LOG_H

#include "base/err.h"

enum alq_log_level { ALQ_LOG_ERROR, ALQ_LOG_WARN, ALQ_LOG_INFO, ALQ_LOG_DEBUG };
enum alq_log_format { ALQ_LOG_TEXT, ALQ_LOG_JSON };

struct alq_log_kv {
    const char *key;
    const char *value; /* NULL: the pair is left out */
};

/* Defaults: ALQ_LOG_INFO, ALQ_LOG_TEXT, descriptor 2. Call before threads start. From then on no
 * line waits for its reader: it is dropped, and a later line tells how many were. */
void alq_log_init(enum alq_log_level level, enum alq_log_format format, int fd);

/* Any thread, from now on. */
void alq_log_set_level(enum alq_log_level level);

int alq_log_enabled(enum alq_log_level level);

/* kv ends with a pair whose key is NULL; kv itself may be NULL. */
void alq_log_write(enum alq_log_level level, const char *module, const struct alq_log_kv *kv,
                   const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The file that uses these defines ALQ_LOG_MODULE first. */
#define ALQ_LOG_KV(...) ((const struct alq_log_kv[]){__VA_ARGS__, {0, 0}})
#define alq_log(level, kv, ...)                                                                    \
    do {                                                                                           \
        if (alq_log_enabled(level))                                                                \
            alq_log_write(level, ALQ_LOG_MODULE, kv, __VA_ARGS__);                                 \
    } while (0)
#define alq_error(kv, ...) alq_log(ALQ_LOG_ERROR, kv, __VA_ARGS__)
#define alq_warn(kv, ...) alq_log(ALQ_LOG_WARN, kv, __VA_ARGS__)
#define alq_info(kv, ...) alq_log(ALQ_LOG_INFO, kv, __VA_ARGS__)
#define alq_debug(kv, ...) alq_log(ALQ_LOG_DEBUG, kv, __VA_ARGS__)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of aliquotd's settings and what is done with a row of it, for config.c and
 * config_file.c; others read struct alq_config. A new setting is a field there, a row here and a
 * line in docs/configuration.md. Pure but for memory; before the loop runs, or on it.
 */
#ifndef ALQ_DAEMON_SETTINGS_H
#define ALQ_DAEMON_SETTINGS_H

#include <jansson.h>

#include "daemon/config.h"

#define ALQ_SETTING_NAME_BYTES 64
#define ALQ_SETTING_LIST_MAX 64

enum alq_setting_kind {
    ALQ_SETTING_TEXT,    /* char * */
    ALQ_SETTING_PATH,    /* char *, absolute */
    ALQ_SETTING_LIST,    /* char **, NULL-terminated or NULL; "a,b" in a flag */
    ALQ_SETTING_BYTES,   /* uint64_t */
    ALQ_SETTING_SECONDS, /* int64_t, whole; "90", "90s", "5m", "2h" */
    ALQ_SETTING_BOOL,    /* int */
    ALQ_SETTING_CHOICE,  /* an enum that counts the choices */
    ALQ_SETTING_ADDRESS, /* char *, host:port, or "none" */
};

struct alq_setting {
    const char *flag; /* without "--"; the YAML key and the environment variable follow from it */
    enum alq_setting_kind kind;
    size_t offset;      /* in struct alq_config */
    const char *preset; /* as if it had been given; NULL: none */
    const char *help;
    const char *const *choices; /* ALQ_SETTING_CHOICE; NULL-terminated */
    int is_live;                /* may change while the daemon runs (SIGHUP) */
};

extern const struct alq_setting alq_settings[];
extern const size_t alq_setting_count;

/* "kubelet-plugins-dir" -> "kubeletPluginsDir", "ALIQUOT_KUBELET_PLUGINS_DIR" */
void alq_setting_key(const struct alq_setting *s, char key[ALQ_SETTING_NAME_BYTES]);
void alq_setting_variable(const struct alq_setting *s, char name[ALQ_SETTING_NAME_BYTES]);

/* The flag's name without "--", or the YAML key. NULL: none. */
const struct alq_setting *alq_setting_by_flag(const char *flag);
const struct alq_setting *alq_setting_by_key(const char *key);

/* The row that somebody who wrote name, in whichever spelling, may have meant; NULL: none is near.
 */
const struct alq_setting *alq_setting_near(const char *name);

/* Sets the field; name is the flag, key or variable as it was written, for the error. */
int alq_setting_set(struct alq_config *cfg, const struct alq_setting *s, const char *text,
                    const char *name, struct alq_err *err);
int alq_setting_set_json(struct alq_config *cfg, const struct alq_setting *s, const json_t *value,
                         const char *name, struct alq_err *err);
/* Whether both have the same. */
int alq_setting_same(const struct alq_setting *s, const struct alq_config *a,
                     const struct alq_config *b);
/* Exchanges the values. */
void alq_setting_swap(const struct alq_setting *s, struct alq_config *a, struct alq_config *b);
void alq_setting_free(const struct alq_setting *s, struct alq_config *cfg);

/* Replaces *dst. ALQ_ENOMEM; a path is ALQ_EINVAL when it is not absolute. */
int alq_text_set(char **dst, const char *text, struct alq_err *err);
int alq_path_set(char **dst, const char *text, const char *name, struct alq_err *err);
/* NULL-terminated copy of a list of strings. */
int alq_texts_set(char ***texts, const json_t *array, const char *name, struct alq_err *err);
void alq_texts_free(char **texts);
int alq_texts_same(char *const *a, char *const *b);

#endif

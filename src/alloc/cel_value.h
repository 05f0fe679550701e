/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a CEL evaluation, and the device they come from. Values are passed by copy and borrow
 * their text from the program, the device or the evaluation's arena. Internal to the CEL modules.
 */
#ifndef ALQ_ALLOC_CEL_VALUE_H
#define ALQ_ALLOC_CEL_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/semver.h"
#include "base/quantity.h"

/* Types of values. The checker also uses ALQ_CEL_DYN (known only at evaluation). */
enum alq_cel_type {
    ALQ_CEL_DYN,
    ALQ_CEL_NULL,
    ALQ_CEL_BOOL,
    ALQ_CEL_INT,
    ALQ_CEL_STRING,
    ALQ_CEL_LIST,
    ALQ_CEL_QUANTITY,
    ALQ_CEL_SEMVER,
    ALQ_CEL_DEVICE,        /* the variable itself */
    ALQ_CEL_ATTRIBUTES,    /* map of domain to ALQ_CEL_ATTRIBUTE_MAP */
    ALQ_CEL_ATTRIBUTE_MAP, /* map of name to bool, int, string or semver */
    ALQ_CEL_CAPACITIES,
    ALQ_CEL_CAPACITY_MAP, /* map of name to quantity */
};

struct alq_cel_value;

struct alq_cel_text {
    const char *p;
    size_t len;
};

struct alq_cel_list {
    size_t count;
    struct alq_cel_value *items;
};

struct alq_cel_value {
    enum alq_cel_type type; /* never ALQ_CEL_DYN */
    union {
        bool boolean;
        int64_t integer;
        struct alq_cel_text text;
        struct alq_cel_list list;
        struct alq_quantity quantity;
        struct alq_semver semver;
        struct alq_cel_text
            domain; /* ALQ_CEL_ATTRIBUTE_MAP, ALQ_CEL_CAPACITY_MAP: the part of the device */
    };
};

/* One attribute or capacity. */
struct alq_cel_entry {
    struct alq_cel_text domain, name;
    struct alq_cel_value value;
};

struct alq_cel_entries {
    size_t count;
    struct alq_cel_entry *items;
};

struct alq_cel_device {
    char *driver;
    void *json; /* json_t: keeps the texts alive */
    bool is_multi_alloc;
    struct alq_cel_entries attributes, capacity;
};

static inline struct alq_cel_value alq_cel_bool(bool b)
{
    return (struct alq_cel_value){.type = ALQ_CEL_BOOL, .boolean = b};
}

static inline struct alq_cel_value alq_cel_int(int64_t i)
{
    return (struct alq_cel_value){.type = ALQ_CEL_INT, .integer = i};
}

static inline struct alq_cel_value alq_cel_string(const char *p, size_t len)
{
    return (struct alq_cel_value){.type = ALQ_CEL_STRING, .text = {p, len}};
}

static inline bool alq_cel_text_eq(struct alq_cel_text a, struct alq_cel_text b)
{
    return a.len == b.len && (a.len == 0 || !__builtin_memcmp(a.p, b.p, a.len));
}

/* The name of a type as Kubernetes writes it in messages. */
const char *alq_cel_type_name(enum alq_cel_type type);

#endif

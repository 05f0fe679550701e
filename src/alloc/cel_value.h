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

/* Types of values. The checker also uses CEL_DYN (known only at evaluation). */
enum cel_type {
    CEL_DYN,
    CEL_NULL,
    CEL_BOOL,
    CEL_INT,
    CEL_STRING,
    CEL_LIST,
    CEL_QUANTITY,
    CEL_SEMVER,
    CEL_DEVICE,        /* the variable itself */
    CEL_ATTRIBUTES,    /* map of domain to CEL_ATTRIBUTE_MAP */
    CEL_ATTRIBUTE_MAP, /* map of name to bool, int, string or semver */
    CEL_CAPACITIES,
    CEL_CAPACITY_MAP, /* map of name to quantity */
};

struct cel_value;

struct cel_text {
    const char *p;
    size_t len;
};

struct cel_list {
    size_t count;
    struct cel_value *items;
};

struct cel_value {
    enum cel_type type; /* never CEL_DYN */
    union {
        bool boolean;
        int64_t integer;
        struct cel_text text;
        struct cel_list list;
        struct alq_quantity quantity;
        struct alq_semver semver;
        struct cel_text domain; /* CEL_ATTRIBUTE_MAP, CEL_CAPACITY_MAP: the part of the device */
    };
};

/* One attribute or capacity. */
struct cel_entry {
    struct cel_text domain, name;
    struct cel_value value;
};

struct cel_entries {
    size_t count;
    struct cel_entry *items;
};

struct alq_cel_device {
    char *driver;
    void *json; /* json_t: keeps the texts alive */
    bool is_multi_alloc;
    struct cel_entries attributes, capacity;
};

static inline struct cel_value cel_bool(bool b)
{
    return (struct cel_value){.type = CEL_BOOL, .boolean = b};
}

static inline struct cel_value cel_int(int64_t i)
{
    return (struct cel_value){.type = CEL_INT, .integer = i};
}

static inline struct cel_value cel_string(const char *p, size_t len)
{
    return (struct cel_value){.type = CEL_STRING, .text = {p, len}};
}

static inline bool cel_text_eq(struct cel_text a, struct cel_text b)
{
    return a.len == b.len && (a.len == 0 || !__builtin_memcmp(a.p, b.p, a.len));
}

/* The name of a type as Kubernetes writes it in messages. */
const char *cel_type_name(enum cel_type type);

#endif

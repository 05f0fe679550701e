/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings, quantities and versions, as CEL's standard library and Kubernetes' quantity and semver
 * libraries have them. Pure but for the arena; any thread.
 */
#include "alloc/cel_func.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IMPL(name)                                                                                 \
    static int name(const struct alq_cel_value *a, size_t count, struct alq_arena *arena,          \
                    struct alq_cel_value *out, struct alq_err *err)
#define UNUSED (void)count, (void)arena, (void)err

static size_t runes(struct alq_cel_text t)
{
    size_t n = 0;

    for (size_t i = 0; i < t.len; i++)
        n += ((unsigned char)t.p[i] & 0xc0) != 0x80;
    return n;
}

IMPL(size_string)
{
    UNUSED;
    *out = alq_cel_int((int64_t)runes(a[0].text));
    return 0;
}

IMPL(size_list)
{
    UNUSED;
    *out = alq_cel_int((int64_t)a[0].list.count);
    return 0;
}

IMPL(starts_with)
{
    UNUSED;
    struct alq_cel_text s = a[0].text, t = a[1].text;
    *out = alq_cel_bool(s.len >= t.len && !memcmp(s.p, t.p, t.len));
    return 0;
}

IMPL(ends_with)
{
    UNUSED;
    struct alq_cel_text s = a[0].text, t = a[1].text;
    *out = alq_cel_bool(s.len >= t.len && !memcmp(s.p + s.len - t.len, t.p, t.len));
    return 0;
}

IMPL(contains)
{
    UNUSED;
    struct alq_cel_text s = a[0].text, t = a[1].text;
    *out = alq_cel_bool(t.len == 0 || memmem(s.p, s.len, t.p, t.len) != NULL);
    return 0;
}

static int change_case(struct alq_cel_text s, char from, int delta, struct alq_arena *arena,
                       struct alq_cel_value *out, struct alq_err *err)
{
    char *p = alq_arena_strndup(arena, s.p, s.len);

    if (!p)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < s.len; i++)
        if (p[i] >= from && p[i] < from + 26)
            p[i] = (char)(p[i] + delta);
    *out = alq_cel_string(p, s.len);
    return 0;
}

IMPL(lower_ascii)
{
    (void)count;
    return change_case(a[0].text, 'A', 'a' - 'A', arena, out, err);
}

IMPL(upper_ascii)
{
    (void)count;
    return change_case(a[0].text, 'a', 'A' - 'a', arena, out, err);
}

IMPL(trim)
{
    UNUSED;
    struct alq_cel_text s = a[0].text;
    while (s.len && strchr(" \t\n\v\f\r", s.p[0])) {
        s.p++;
        s.len--;
    }
    while (s.len && strchr(" \t\n\v\f\r", s.p[s.len - 1]))
        s.len--;
    *out = alq_cel_string(s.p, s.len);
    return 0;
}

IMPL(same)
{
    UNUSED;
    *out = a[0];
    return 0;
}

IMPL(int_of_string)
{
    UNUSED;
    struct alq_cel_text s = a[0].text;
    int64_t n = 0;
    size_t i = s.len && (s.p[0] == '-' || s.p[0] == '+');
    int is_negative = i && s.p[0] == '-';

    if (i == s.len)
        return alq_err_set(err, ALQ_EINVAL, "type conversion error from string to int");
    for (; i < s.len; i++) {
        int d = s.p[i] - '0';
        if (d < 0 || d > 9 || __builtin_mul_overflow(n, (int64_t)10, &n) ||
            __builtin_add_overflow(n, (int64_t)(is_negative ? -d : d), &n))
            return alq_err_set(err, ALQ_EINVAL, "type conversion error from string to int");
    }
    *out = alq_cel_int(n);
    return 0;
}

static int text_result(const char *text, struct alq_arena *arena, struct alq_cel_value *out,
                       struct alq_err *err)
{
    char *p = alq_arena_strndup(arena, text, strlen(text));

    if (!p)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    *out = alq_cel_string(p, strlen(p));
    return 0;
}

IMPL(string_of_int)
{
    (void)count;
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, a[0].integer);
    return text_result(text, arena, out, err);
}

IMPL(string_of_bool)
{
    (void)count;
    return text_result(a[0].boolean ? "true" : "false", arena, out, err);
}

IMPL(make_quantity)
{
    (void)count, (void)arena;
    *out = (struct alq_cel_value){.type = ALQ_CEL_QUANTITY};
    return alq_quantity_parse(a[0].text.p, a[0].text.len, &out->quantity, err);
}

IMPL(is_quantity)
{
    UNUSED;
    struct alq_quantity q;
    *out = alq_cel_bool(alq_quantity_parse(a[0].text.p, a[0].text.len, &q, NULL) == 0);
    return 0;
}

IMPL(quantity_sign)
{
    UNUSED;
    __int128 n = a[0].quantity.nano;
    *out = alq_cel_int((n > 0) - (n < 0));
    return 0;
}

#define NANO ((__int128)1000000000)

static bool is_whole(struct alq_quantity q)
{
    return q.nano % NANO == 0 && q.nano / NANO >= INT64_MIN && q.nano / NANO <= INT64_MAX;
}

IMPL(quantity_is_integer)
{
    UNUSED;
    *out = alq_cel_bool(is_whole(a[0].quantity));
    return 0;
}

IMPL(quantity_as_integer)
{
    (void)count, (void)arena;
    if (!is_whole(a[0].quantity))
        return alq_err_set(err, ALQ_EINVAL, "cannot convert value to integer");
    *out = alq_cel_int((int64_t)(a[0].quantity.nano / NANO));
    return 0;
}

static int sum(struct alq_quantity a, __int128 b, struct alq_cel_value *out, struct alq_err *err)
{
    struct alq_cel_value v = {.type = ALQ_CEL_QUANTITY};

    if (__builtin_add_overflow(a.nano, b, &v.quantity.nano))
        return alq_err_set(err, ALQ_ERANGE, "quantity overflow");
    *out = v;
    return 0;
}

IMPL(quantity_add)
{
    (void)count, (void)arena;
    return sum(a[0].quantity, a[1].quantity.nano, out, err);
}

IMPL(quantity_add_int)
{
    (void)count, (void)arena;
    return sum(a[0].quantity, a[1].integer * NANO, out, err);
}

IMPL(quantity_sub)
{
    (void)count, (void)arena;
    return sum(a[0].quantity, -a[1].quantity.nano, out, err);
}

IMPL(quantity_sub_int)
{
    (void)count, (void)arena;
    return sum(a[0].quantity, -(a[1].integer * NANO), out, err);
}

IMPL(quantity_compare)
{
    UNUSED;
    *out = alq_cel_int(alq_quantity_cmp(a[0].quantity, a[1].quantity));
    return 0;
}

IMPL(quantity_is_less)
{
    UNUSED;
    *out = alq_cel_bool(alq_quantity_cmp(a[0].quantity, a[1].quantity) < 0);
    return 0;
}

IMPL(quantity_is_greater)
{
    UNUSED;
    *out = alq_cel_bool(alq_quantity_cmp(a[0].quantity, a[1].quantity) > 0);
    return 0;
}

static int parse_semver(const struct alq_cel_value *a, size_t count, struct alq_semver *v,
                        struct alq_err *err)
{
    int is_lenient = count > 1 && a[1].boolean;

    return (is_lenient ? alq_semver_parse_lenient : alq_semver_parse)(a[0].text.p, a[0].text.len, v,
                                                                      err);
}

IMPL(make_semver)
{
    (void)arena;
    *out = (struct alq_cel_value){.type = ALQ_CEL_SEMVER};
    return parse_semver(a, count, &out->semver, err);
}

IMPL(is_semver)
{
    (void)arena, (void)err;
    struct alq_semver v;
    *out = alq_cel_bool(parse_semver(a, count, &v, NULL) == 0);
    return 0;
}

static int version_part(uint64_t n, struct alq_cel_value *out, struct alq_err *err)
{
    if (n > INT64_MAX)
        return alq_err_set(err, ALQ_ERANGE, "version number does not fit an int");
    *out = alq_cel_int((int64_t)n);
    return 0;
}

IMPL(semver_major)
{
    (void)count, (void)arena;
    return version_part(a[0].semver.major, out, err);
}

IMPL(semver_minor)
{
    (void)count, (void)arena;
    return version_part(a[0].semver.minor, out, err);
}

IMPL(semver_patch)
{
    (void)count, (void)arena;
    return version_part(a[0].semver.patch, out, err);
}

IMPL(semver_compare)
{
    UNUSED;
    *out = alq_cel_int(alq_semver_cmp(&a[0].semver, &a[1].semver));
    return 0;
}

IMPL(semver_is_less)
{
    UNUSED;
    *out = alq_cel_bool(alq_semver_cmp(&a[0].semver, &a[1].semver) < 0);
    return 0;
}

IMPL(semver_is_greater)
{
    UNUSED;
    *out = alq_cel_bool(alq_semver_cmp(&a[0].semver, &a[1].semver) > 0);
    return 0;
}

#define S ALQ_CEL_STRING
#define Q ALQ_CEL_QUANTITY
#define V ALQ_CEL_SEMVER
#define I ALQ_CEL_INT
#define B ALQ_CEL_BOOL

static const struct alq_cel_func functions[] = {
    {"size", false, 1, {S}, I, size_string},
    {"size", false, 1, {ALQ_CEL_LIST}, I, size_list},
    {"size", true, 1, {S}, I, size_string},
    {"size", true, 1, {ALQ_CEL_LIST}, I, size_list},
    {"size", false, 1, {ALQ_CEL_ATTRIBUTES}, I, NULL},
    {"size", false, 1, {ALQ_CEL_ATTRIBUTE_MAP}, I, NULL},
    {"size", false, 1, {ALQ_CEL_CAPACITIES}, I, NULL},
    {"size", false, 1, {ALQ_CEL_CAPACITY_MAP}, I, NULL},
    {"size", true, 1, {ALQ_CEL_ATTRIBUTES}, I, NULL},
    {"size", true, 1, {ALQ_CEL_ATTRIBUTE_MAP}, I, NULL},
    {"size", true, 1, {ALQ_CEL_CAPACITIES}, I, NULL},
    {"size", true, 1, {ALQ_CEL_CAPACITY_MAP}, I, NULL},
    {"startsWith", true, 2, {S, S}, B, starts_with},
    {"endsWith", true, 2, {S, S}, B, ends_with},
    {"contains", true, 2, {S, S}, B, contains},
    {"matches", true, 2, {S, S}, B, NULL},
    {"matches", false, 2, {S, S}, B, NULL},
    {"lowerAscii", true, 1, {S}, S, lower_ascii},
    {"upperAscii", true, 1, {S}, S, upper_ascii},
    {"trim", true, 1, {S}, S, trim},
    {"int", false, 1, {I}, I, same},
    {"int", false, 1, {S}, I, int_of_string},
    {"string", false, 1, {S}, S, same},
    {"string", false, 1, {I}, S, string_of_int},
    {"string", false, 1, {B}, S, string_of_bool},
    {"quantity", false, 1, {S}, Q, make_quantity},
    {"isQuantity", false, 1, {S}, B, is_quantity},
    {"sign", true, 1, {Q}, I, quantity_sign},
    {"isInteger", true, 1, {Q}, B, quantity_is_integer},
    {"asInteger", true, 1, {Q}, I, quantity_as_integer},
    {"add", true, 2, {Q, Q}, Q, quantity_add},
    {"add", true, 2, {Q, I}, Q, quantity_add_int},
    {"sub", true, 2, {Q, Q}, Q, quantity_sub},
    {"sub", true, 2, {Q, I}, Q, quantity_sub_int},
    {"compareTo", true, 2, {Q, Q}, I, quantity_compare},
    {"isLessThan", true, 2, {Q, Q}, B, quantity_is_less},
    {"isGreaterThan", true, 2, {Q, Q}, B, quantity_is_greater},
    {"semver", false, 1, {S}, V, make_semver},
    {"semver", false, 2, {S, B}, V, make_semver},
    {"isSemver", false, 1, {S}, B, is_semver},
    {"isSemver", false, 2, {S, B}, B, is_semver},
    {"major", true, 1, {V}, I, semver_major},
    {"minor", true, 1, {V}, I, semver_minor},
    {"patch", true, 1, {V}, I, semver_patch},
    {"compareTo", true, 2, {V, V}, I, semver_compare},
    {"isLessThan", true, 2, {V, V}, B, semver_is_less},
    {"isGreaterThan", true, 2, {V, V}, B, semver_is_greater},
};

#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static bool name_is(struct alq_cel_text t, const char *s)
{
    return t.len == strlen(s) && !memcmp(t.p, s, t.len);
}

const struct alq_cel_func *alq_cel_func_next(const struct alq_cel_func *row,
                                             struct alq_cel_text name, bool is_method)
{
    for (row = row ? row + 1 : functions; row < functions + FUNCTIONS; row++)
        if (row->is_method == is_method && name_is(name, row->name))
            return row;
    return NULL;
}

bool alq_cel_func_fits(const struct alq_cel_func *row, const enum alq_cel_type *types, size_t count)
{
    if (row->count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (types[i] != ALQ_CEL_DYN && types[i] != row->args[i])
            return false;
    return true;
}

bool alq_cel_func_is_foreign(struct alq_cel_text name)
{
    static const char *const names[] = {
        "all",      "exists",     "exists_one",   "map",      "filter",    "bind",
        "optMap",   "optFlatMap", "orValue",      "or",       "hasValue",  "value",
        "charAt",   "indexOf",    "lastIndexOf",  "replace",  "split",     "substring",
        "join",     "format",     "reverse",      "find",     "findAll",   "double",
        "uint",     "bytes",      "bool",         "duration", "timestamp", "dyn",
        "type",     "url",        "isURL",        "ip",       "isIP",      "cidr",
        "isCIDR",   "sum",        "min",          "max",      "isSorted",  "asApproximateFloat",
        "includes", "sets",       "getDayOfWeek", "getHours", "isSubset",  "contains",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (name_is(name, names[i]))
            return true;
    return false;
}

const char *alq_cel_type_name(enum alq_cel_type type)
{
    switch (type) {
    case ALQ_CEL_NULL:
        return "null_type";
    case ALQ_CEL_BOOL:
        return "bool";
    case ALQ_CEL_INT:
        return "int";
    case ALQ_CEL_STRING:
        return "string";
    case ALQ_CEL_LIST:
        return "list";
    case ALQ_CEL_QUANTITY:
        return "kubernetes.Quantity";
    case ALQ_CEL_SEMVER:
        return "kubernetes.Semver";
    case ALQ_CEL_DEVICE:
        return "kubernetes.DRADevice";
    case ALQ_CEL_ATTRIBUTES:
        return "map(string, map(string, any))";
    case ALQ_CEL_ATTRIBUTE_MAP:
        return "map(string, any)";
    case ALQ_CEL_CAPACITIES:
        return "map(string, map(string, kubernetes.Quantity))";
    case ALQ_CEL_CAPACITY_MAP:
        return "map(string, kubernetes.Quantity)";
    case ALQ_CEL_DYN:
        break;
    }
    return "any";
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Our own validation of slices against what two real API servers said of 60 bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "conformance.h"
#include "daemon/kube/slice_check.h"

/* The next name of a recorded path; those of attributes may hold dots and end before their kind. */
static const char *step(const char *path, int is_attribute, char *name, size_t size)
{
    size_t len = strcspn(path, ".[]");
    if (is_attribute && strchr(path, '/'))
        len = strlen(path);
    snprintf(name, size, "%.*s", (int)len, path);
    path += len;
    return path + strspn(path, ".[]");
}

static void change(json_t *slice, const char *path, json_t *value)
{
    char name[128];
    json_t *at = slice;
    int is_attribute = 0;
    for (;;) {
        path = step(path, is_attribute, name, sizeof(name));
        is_attribute = !strcmp(name, "attributes");
        if (!*path)
            break;
        if (json_is_object(at) && !json_object_get(at, name))
            json_object_set_new(at, name, json_object());
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
        assert_non_null(at);
    }
    if (json_is_string(value) && !strcmp(json_string_value(value), "(removed)"))
        json_object_del(at, name);
    else
        json_object_set(at, name, value);
}

static void check_whatever_a_server_refuses_is_refused(void **state)
{
    static const struct {
        const char *dir;
        int minor;
    } servers[] = {{"1.34", 34}, {"1.36", 36}};
    (void)state;
    for (size_t v = 0; v < 2; v++) {
        char path[64];
        const char *name;
        json_t *one, *item;
        size_t i;
        unsigned refused = 0;
        snprintf(path, sizeof(path), "sandbox/%s/slice.json", servers[v].dir);
        alq_auto_json json_t *good = conformance_json(path);
        snprintf(path, sizeof(path), "sandbox/%s/bad-slices.json", servers[v].dir);
        alq_auto_json json_t *cases = conformance_json(path);
        struct alq_err err = ALQ_ERR_INIT;
        json_t *devices = alq_json_at(good, "sent.spec.devices");
        if (json_array_size(devices) == 1) { /* the bad ones were made of two GPUs */
            json_array_append_new(devices, json_deep_copy(json_array_get(devices, 0)));
            json_object_set_new(json_array_get(devices, 1), "name", json_string("hami-gpu-1"));
        }
        alq_slice_check(alq_json_at(good, "sent.spec"), servers[v].minor, &err);
        assert_string_equal(err.text, "");
        json_object_foreach (cases, name, one) {
            alq_auto_json json_t *slice = json_deep_copy(json_object_get(good, "sent"));
            json_array_foreach (json_object_get(one, "change"), i, item) {
                change(slice, json_string_value(json_array_get(item, 0)), json_array_get(item, 1));
            }
            int is_taken = json_integer_value(json_object_get(one, "status")) == 201;
            if (is_taken || !strncmp(name, "object-", 7))
                continue; /* the server makes our objects' names */
            if (!alq_slice_check(json_object_get(slice, "spec"), servers[v].minor, NULL))
                fail_msg("%s: %s is not found out", servers[v].dir, name);
            refused++;
        }
        assert_in_range(refused, 40, 60);
    }
}

static void check_names_the_field(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *good = conformance_json("sandbox/1.36/slice.json");
    json_t *spec = alq_json_at(good, "sent.spec");
    json_t *device = json_array_get(json_object_get(spec, "devices"), 0);
    json_object_set_new(alq_json_at(device, "capacity.memory.requestPolicy"), "default",
                        json_string("200Gi"));
    assert_int_equal(alq_slice_check(spec, 36, &err), ALQ_EINVAL);
    assert_string_equal(err.text, "spec.devices[0]: capacity[memory]: default does not lie within "
                                  "min and max");
}

static void keep_valid_takes_out_the_bad_device_and_no_other(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *layout =
        json_pack("[[{s:s}, {s:s}, {s:s}], [{s:s}]]", "name", "hami-gpu-0", "name", "Bad", "name",
                  "hami-gpu-2", "name", "");
    assert_int_equal(alq_slice_keep_valid(layout, 36, &err), 2);
    assert_int_equal(json_array_size(layout), 1);
    assert_int_equal(json_array_size(json_array_get(layout, 0)), 2);
    assert_non_null(strstr(err.text, "left out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_whatever_a_server_refuses_is_refused),
        cmocka_unit_test(check_names_the_field),
        cmocka_unit_test(keep_valid_takes_out_the_bad_device_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

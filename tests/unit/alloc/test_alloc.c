/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocation rules. JSON is written with single quotes here. What a real scheduler made of
 * whole claims is compared in tests/integration/test_alloc.py; these are the single rules and the
 * cases that no recording has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc/alloc.h"
#include "base/json.h"

static json_t *json(const char *text)
{
    char *copy = strdup(text);
    json_error_t why;

    assert_non_null(copy);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    json_t *j = json_loads(copy, JSON_DECODE_ANY, &why);
    if (!j)
        fail_msg("%s: %s", why.text, copy);
    free(copy);
    return j;
}

/* What one test feeds in; everything is JSON text. */
struct world {
    const char *claims, *classes, *slices, *allocated, *node;
    unsigned server_minor;
    /* out */
    json_t *allocations;
    char *reason;
    struct alq_err err;
    int rc;
};

static const char one_class[] = "[{'metadata': {'name': 'gpu'}, 'spec': {}}]";

#define POLICY                                                                                     \
    "'cores': {'value': '100', 'requestPolicy': {'default': '100', 'validRange': {'min': '0', "    \
    "'max': '100', 'step': '1'}}},"                                                                \
    "'memory': {'value': '16Gi', 'requestPolicy': {'default': '16Gi', 'validRange': {'min': "      \
    "'1Mi', 'max': '16Gi', 'step': '1Mi'}}}"
#define GPU(name, extra)                                                                           \
    "{'name': '" name                                                                              \
    "', 'allowMultipleAllocations': true, 'attributes': {'uuid': {'string': 'U-" name "'},"        \
    " 'model': {'string': 'H200'}}, 'capacity': {" POLICY "}" extra "}"
#define WHOLE(name, extra)                                                                         \
    "{'name': '" name "', 'attributes': {'uuid': {'string': 'U-" name                              \
    "'}}, 'capacity': {'memory': {'value': '16Gi'}}" extra "}"
#define SLICE(name, where, generation, count, devices)                                             \
    "{'metadata': {'name': '" name "'}, 'spec': {'driver': 'd', " where                            \
    ", 'pool': {'name': 'p', 'generation': " #generation ", 'resourceSliceCount': " #count         \
    "}, 'devices': [" devices "]}}"
#define ON_A "'nodeName': 'a'"
#define CLAIM(name, requests, more)                                                                \
    "{'metadata': {'name': '" name "', 'namespace': 'ns', 'uid': 'u-" name                         \
    "'}, 'spec': {'devices': {'requests': [" requests "]" more "}}}"
#define REQUEST(name, more) "{'name': '" name "', 'exactly': {'deviceClassName': 'gpu'" more "}}"
#define CAPACITY(cores, memory)                                                                    \
    ", 'capacity': {'requests': {'cores': '" cores "', 'memory': '" memory "'}}"
#define HELD(name, device, share, capacity)                                                        \
    "{'metadata': {'name': '" name "', 'uid': 'u-" name                                            \
    "'}, 'status': {'allocation': {'devices': {'results': [{'request': 'r',"                       \
    " 'driver': 'd', 'pool': 'p', 'device': '" device "'" share ", 'consumedCapacity': {" capacity \
    "}}]}}}}"

static const char two_gpus[] = "[" SLICE("s0", ON_A, 1, 1, GPU("g0", "") ", " GPU("g1", "")) "]";

static void run(struct world *w)
{
    json_t *claims = json(w->claims), *classes = json(w->classes ? w->classes : one_class),
           *slices = json(w->slices ? w->slices : two_gpus),
           *allocated = json(w->allocated ? w->allocated : "[]"),
           *node =
               json(w->node ? w->node
                            : "{'metadata': {'name': 'a', 'labels': {'zone': 'z1', 'gpus': '2'}}}");
    struct alq_alloc_input in = {.claims = claims,
                                 .classes = classes,
                                 .slices = slices,
                                 .allocated = allocated,
                                 .node = node,
                                 .server_minor = w->server_minor};

    w->err = (struct alq_err)ALQ_ERR_INIT;
    w->rc = alq_alloc(&in, &w->allocations, &w->reason, &w->err);
    json_decref(claims);
    json_decref(classes);
    json_decref(slices);
    json_decref(allocated);
    json_decref(node);
}

static void done(struct world *w)
{
    json_decref(w->allocations);
    free(w->reason);
}

/* The results of a claim as "request=device[,cores/memory] ..." */
static void results(const struct world *w, const char *uid, char *text, size_t size)
{
    json_t *list = alq_json_at(json_object_get(w->allocations, uid), "devices.results"), *r;
    size_t i, used = 0;

    text[0] = 0;
    json_array_foreach (list, i, r) {
        const char *cores = alq_json_str(r, "consumedCapacity.cores"),
                   *memory = alq_json_str(r, "consumedCapacity.memory");
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", i ? " " : "",
                                 alq_json_str(r, "request"), alq_json_str(r, "device"));
        if (cores || memory)
            used += (size_t)snprintf(text + used, size - used, ",%s/%s", cores ? cores : "-",
                                     memory ? memory : "-");
    }
}

static void expect(struct world *w, const char *want)
{
    char text[2000];

    run(w);
    if (w->rc || w->reason)
        fail_msg("%s", w->rc ? w->err.text : w->reason);
    results(w, "u-c", text, sizeof(text));
    assert_string_equal(text, want);
    done(w);
}

static void expect_unschedulable(struct world *w, const char *want)
{
    char text[2000];

    run(w);
    if (w->rc)
        fail_msg("error: %s", w->err.text);
    if (!w->reason) {
        results(w, "u-c", text, sizeof(text));
        fail_msg("allocated: %s", text);
    }
    if (!strstr(w->reason, want))
        fail_msg("\"%s\" does not say \"%s\"", w->reason, want);
    assert_null(w->allocations);
    done(w);
}

static void expect_error(struct world *w, int code, const char *want)
{
    run(w);
    assert_null(w->allocations);
    assert_null(w->reason);
    if (!strstr(w->err.text, want))
        fail_msg("\"%s\" does not say \"%s\"", w->err.text, want);
    assert_int_equal(w->rc, code);
    assert_int_equal(w->err.code, code);
    done(w);
}

/* consumable capacity */

static void alloc_no_amounts_default(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", ""), "") "]"}, "r=g0,100/16Gi");
}

static void alloc_below_min_min(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("0", "1")), "") "]"},
           "r=g0,0/1Mi");
}

static void alloc_between_steps_rounded_up(void **state)
{
    (void)state;
    expect(&(struct world){.claims =
                               "[" CLAIM("c", REQUEST("r", CAPACITY("1500m", "1025Mi")), "") "]"},
           "r=g0,2/1025Mi");
    expect(&(struct world){.claims =
                               "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1073741825")), "") "]"},
           "r=g0,1/1025Mi");
    expect(
        &(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1048577Ki")), "") "]"},
        "r=g0,1/1025Mi");
}

static void alloc_above_max_unschedulable(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("101", "1Gi")), "") "]"},
        "of cores");
    expect_unschedulable(
        &(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "17Gi")), "") "]"},
        "of memory");
}

static void alloc_unknown_capacity_name_unschedulable(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){
            .claims =
                "[" CLAIM("c", REQUEST("r", ", 'capacity': {'requests': {'vram': '1'}}"), "") "]"},
        "of vram");
    /* the domain is part of the key */
    expect_unschedulable(
        &(struct world){
            .claims = "[" CLAIM(
                "c", REQUEST("r", ", 'capacity': {'requests': {'d/memory': '1Gi'}}"), "") "]"},
        "of d/memory");
}

static void alloc_valid_values_next_one_up(void **state)
{
    static const char slices[] = "[" SLICE(
        "s", ON_A, 1, 1,
        "{'name': 'g0', 'allowMultipleAllocations': true, 'capacity': {'cores': {'value': '100',"
        " 'requestPolicy': {'default': '10', 'validValues': ['10', '25', '50']}}}}") "]";
    (void)state;
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM(
                               "c", REQUEST("r", ", 'capacity': {'requests': {'cores': '11'}}"),
                               "") "]"},
           "r=g0,25/-");
    expect(&(struct world){.slices = slices, .claims = "[" CLAIM("c", REQUEST("r", ""), "") "]"},
           "r=g0,10/-");
    expect_unschedulable(
        &(struct world){
            .slices = slices,
            .claims = "[" CLAIM("c", REQUEST("r", ", 'capacity': {'requests': {'cores': '51'}}"),
                                "") "]"},
        "of cores");
}

static void alloc_no_policy_as_asked_or_everything(void **state)
{
    static const char slices[] =
        "[" SLICE("s", ON_A, 1, 1,
                  "{'name': 'g0', 'allowMultipleAllocations': true,"
                  " 'capacity': {'cores': {'value': '100'}, 'memory': {'value': '16Gi'}}}") "]";
    (void)state;
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM(
                               "c", REQUEST("r", ", 'capacity': {'requests': {'cores': '33'}}"),
                               "") "]"},
           "r=g0,33/16Gi");
}

static void alloc_several_requests_share_a_device(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM("c",
                                               REQUEST("r1", CAPACITY("30", "4Gi")) ", " REQUEST(
                                                   "r2", CAPACITY("60", "8Gi")),
                                               "") "]"},
           "r1=g0,30/4Gi r2=g0,60/8Gi");
    expect(&(struct world){.claims = "[" CLAIM("c",
                                               REQUEST("r1", CAPACITY("50", "4Gi")) ", " REQUEST(
                                                   "r2", CAPACITY("51", "8Gi")),
                                               "") "]"},
           "r1=g0,50/4Gi r2=g1,51/8Gi");
}

static void alloc_room_used_by_other_claims_next_device(void **state)
{
    static const char claims[] = "[" CLAIM("c", REQUEST("r", CAPACITY("40", "1Gi")), "") "]";
    (void)state;
    expect(&(struct world){.claims = claims,
                           .allocated = "[" HELD("h", "g0", ", 'shareID': 's'",
                                                 "'cores': '60', 'memory': '1Gi'") "]"},
           "r=g0,40/1Gi");
    expect(&(struct world){.claims = claims,
                           .allocated = "[" HELD("h", "g0", ", 'shareID': 's'",
                                                 "'cores': '61', 'memory': '1Gi'") "]"},
           "r=g1,40/1Gi");
    expect(&(struct world){.claims = claims,
                           .allocated = "[" HELD("h", "g0", ", 'shareID': 's'",
                                                 "'cores': '1', 'memory': '15361Mi'") "]"},
           "r=g1,40/1Gi");
    expect_unschedulable(
        &(struct world){.claims = claims,
                        .allocated =
                            "[" HELD("h", "g0", ", 'shareID': 's'", "'cores': '61'") ", " HELD(
                                "i", "g1", ", 'shareID': 's'", "'memory': '16Gi'") "]"},
        "claim ns/c, request r: none of 2 devices on node a fits (2 without room for");
}

static void alloc_device_held_without_share_id_in_use(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]",
                           .allocated = "[" HELD("h", "g0", "", "") "]"},
           "r=g1,1/1Gi");
}

static void alloc_exclusive_device_one_claim(void **state)
{
    static const char slices[] =
        "[" SLICE("s", ON_A, 1, 1, WHOLE("g0", "") ", " WHOLE("g1", "")) "]";
    (void)state;
    expect(
        &(struct world){.slices = slices,
                        .claims = "[" CLAIM("c", REQUEST("r1", "") ", " REQUEST("r2", ""), "") "]"},
        "r1=g0 r2=g1");
    expect_unschedulable(
        &(struct world){
            .slices = slices,
            .claims = "[" CLAIM(
                "c", REQUEST("r1", "") ", " REQUEST("r2", "") ", " REQUEST("r3", ""), "") "]"},
        "request r3: none of 2 devices on node a fits (2 in use)");
    /* its capacity only selects */
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM(
                               "c", REQUEST("r", ", 'capacity': {'requests': {'memory': '3Gi'}}"),
                               "") "]"},
           "r=g0");
    expect_unschedulable(
        &(struct world){
            .slices = slices,
            .claims = "[" CLAIM("c", REQUEST("r", ", 'capacity': {'requests': {'memory': '17Gi'}}"),
                                "") "]"},
        "of memory");
}

/* counts, modes, alternatives */

static void alloc_count_distinct_devices(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM(
                               "c", REQUEST("r", ", 'count': 2" CAPACITY("10", "1Gi")), "") "]"},
           "r=g0,10/1Gi r=g1,10/1Gi");
    expect_unschedulable(
        &(struct world){
            .claims = "[" CLAIM("c", REQUEST("r", ", 'count': 3" CAPACITY("10", "1Gi")), "") "]"},
        "request r");
}

static void alloc_count_above_limit_error(void **state)
{
    (void)state;
    expect_error(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", ", 'count': 33"), "") "]"},
                 ALQ_ERANGE,
                 "claim ns/c: number of requested devices 33 exceeds the claim limit of 32");
}

static void alloc_all_takes_what_is_selected(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM(
                               "c", REQUEST("r", ", 'allocationMode': 'All'" CAPACITY("5", "1Gi")),
                               "") "]"},
           "r=g0,5/1Gi r=g1,5/1Gi");
    expect(
        &(struct world){
            .claims = "[" CLAIM(
                "c",
                REQUEST("r",
                        ", 'allocationMode': 'All', 'selectors': [{'cel': {'expression':"
                        " 'device.attributes[\\'d\\'].uuid == \\'U-g1\\''}}]" CAPACITY("5", "1Gi")),
                "") "]"},
        "r=g1,5/1Gi");
}

static void alloc_all_with_one_device_full_unschedulable(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){
            .claims = "[" CLAIM("c", REQUEST("r", ", 'allocationMode': 'All'" CAPACITY("5", "1Gi")),
                                "") "]",
            .allocated = "[" HELD("h", "g1", ", 'shareID': 's'", "'cores': '96'") "]"},
        "request r: not all");
}

static void alloc_all_of_nothing_unschedulable(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){
            .claims = "[" CLAIM(
                "c",
                REQUEST("r", ", 'allocationMode': 'All', 'selectors': [{'cel': {'expression':"
                             " 'false'}}]"),
                "") "]"},
        "2 not selected");
}

#define SUB(name, more) "{'name': '" name "', 'deviceClassName': 'gpu'" more "}"

static void alloc_first_available_first_that_fits(void **state)
{
    (void)state;
    expect(
        &(struct world){
            .claims = "[" CLAIM(
                "c",
                "{'name': 'r', 'firstAvailable': [" SUB("big", CAPACITY("1", "17Gi")) ", " SUB(
                    "mid", CAPACITY("1", "8Gi")) ", " SUB("small", CAPACITY("1", "1Gi")) "]}",
                "") "]"},
        "r/mid=g0,1/8Gi");
}

static void alloc_first_available_backtracks_over_later_request(void **state)
{
    static const char one_gpu[] = "[" SLICE("s0", ON_A, 1, 1, GPU("g0", "")) "]";
    (void)state;
    expect(
        &(struct world){
            .slices = one_gpu,
            .claims = "[" CLAIM(
                "c",
                "{'name': 'r', 'firstAvailable': [" SUB("big", CAPACITY("1", "16Gi")) ", " SUB(
                    "small", CAPACITY("1", "1Gi")) "]}, " REQUEST("s", CAPACITY("1", "15Gi")),
                "") "]"},
        "r/small=g0,1/1Gi s=g0,1/15Gi");
}

static void alloc_first_available_smaller_count_after_too_many(void **state)
{
    (void)state;
    expect(
        &(struct world){
            .claims = "[" CLAIM(
                "c",
                "{'name': 'r', 'firstAvailable': [" SUB("many", ", 'count': 32") ", " SUB(
                    "one", CAPACITY("1", "1Gi")) "]}, " REQUEST("s", CAPACITY("1", "1Gi")),
                "") "]"},
        "r/one=g0,1/1Gi s=g0,1/1Gi");
}

static void alloc_claims_together_or_none(void **state)
{
    struct world w = {.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("60", "1Gi")), "") ", " CLAIM(
                          "e", REQUEST("r", CAPACITY("60", "1Gi")), "") "]"};
    char text[200];

    (void)state;
    run(&w);
    assert_int_equal(w.rc, 0);
    assert_int_equal(json_object_size(w.allocations), 2);
    results(&w, "u-e", text, sizeof(text));
    assert_string_equal(text, "r=g1,60/1Gi");
    done(&w);
    expect_unschedulable(
        &(struct world){
            .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("60", "1Gi")),
                                "") ", " CLAIM("e", REQUEST("r", CAPACITY("101", "1Gi")), "") "]"},
        "claim ns/e, request r");
}

static void alloc_backtracks_for_later_claim(void **state)
{
    /* the first claim could have either GPU, the second only g0 */
    static const char slices[] =
        "[" SLICE("s", ON_A, 1, 1, WHOLE("g0", ", 'taints': []") ", " WHOLE("g1", "")) "]";
    (void)state;
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM("c", REQUEST("r", ""), "") ", " CLAIM(
                               "e",
                               REQUEST("r", ", 'selectors': [{'cel': {'expression': "
                                            "'device.attributes[\\'d\\'].uuid == \\'U-g0\\''}}]"),
                               "") "]"},
           "r=g1");
}

static void alloc_endless_search_gives_up(void **state)
{
    static char slices[20000], claims[4000];
    size_t used = 0;
    struct world w = {.slices = slices, .claims = claims};

    (void)state;
    used += (size_t)sprintf(slices, "[{'metadata': {'name': 's'}, 'spec': {'driver': 'd', "
                                    "'nodeName': 'a', 'pool': {'name': 'p',"
                                    " 'generation': 1, 'resourceSliceCount': 1}, 'devices': [");
    for (int i = 0; i < 24; i++)
        used +=
            (size_t)sprintf(slices + used, "%s{'name': 'g%d', 'attributes': {'uuid': {'int': %d}}}",
                            i ? ", " : "", i, i);
    sprintf(slices + used, "]}}]");
    /* 12 of 24 and then one that is never there: 2.7 million sets */
    sprintf(claims, "[%s]",
            CLAIM("c",
                  REQUEST("r", ", 'count': 12") ", " REQUEST(
                      "s", ", 'selectors': [{'cel': {'expression': 'false'}}]"),
                  ""));
    expect_error(&w, ALQ_ERANGE, "steps");
}

/* selectors */

static void alloc_class_and_request_selectors_both(void **state)
{
    static const char classes[] =
        "[{'metadata': {'name': 'gpu'}, 'spec': {'selectors': [{'cel': {'expression': "
        "'device.attributes[\\'d\\'].uuid != \\'U-g0\\''}}]}}]";
    (void)state;
    expect(&(struct world){.classes = classes,
                           .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
           "r=g1,1/1Gi");
    expect_unschedulable(
        &(struct world){
            .classes = classes,
            .claims = "[" CLAIM("c",
                                REQUEST("r", ", 'selectors': [{'cel': {'expression': "
                                             "'device.attributes[\\'d\\'].uuid == \\'U-g0\\''}}]"),
                                "") "]"},
        "2 not selected");
}

static void alloc_selector_error_is_an_error(void **state)
{
    (void)state;
    expect_error(&(struct world){.claims = "[" CLAIM(
                                     "c",
                                     REQUEST("r", ", 'selectors': [{'cel': {'expression': "
                                                  "'device.attributes[\\'d\\'].absent == 1'}}]"),
                                     "") "]"},
                 ALQ_EINVAL, "claim ns/c: selector #0: CEL runtime error: no such key: absent");
    expect_error(&(struct world){.claims = "[" CLAIM(
                                     "c",
                                     REQUEST("r", ", 'selectors': [{'cel': {'expression': "
                                                  "'true'}}, {'cel': {'expression': 'device.'}}]"),
                                     "") "]"},
                 ALQ_EINVAL, "selector #1: CEL compile error");
    expect_error(
        &(struct world){.claims = "[" CLAIM("c", REQUEST("r", ", 'selectors': [{}]"), "") "]"},
        ALQ_EPROTO, "unsupported selector type");
    expect_error(
        &(struct world){.classes = "[{'metadata': {'name': 'gpu'}, 'spec': {'selectors': [{'cel': "
                                   "{'expression': 'device.attributes[\\'x\\'].y'}}]}}]",
                        .claims = "[" CLAIM("c", REQUEST("r", ""), "") "]"},
        ALQ_EINVAL, "class gpu: selector #0: CEL runtime error: no such key: y");
}

static void alloc_unknown_class_unschedulable(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){.classes = "[]", .claims = "[" CLAIM("c", REQUEST("r", ""), "") "]"},
        "request r: device class gpu does not exist");
}

/* constraints */

#define DISTINCT(more) ", 'constraints': [{'distinctAttribute': 'd/uuid'" more "}]"
#define MATCH(attribute, more) ", 'constraints': [{'matchAttribute': '" attribute "'" more "}]"
#define TWO REQUEST("r1", CAPACITY("30", "4Gi")) ", " REQUEST("r2", CAPACITY("60", "8Gi"))

static void alloc_distinct_attribute_two_devices(void **state)
{
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM("c", TWO, DISTINCT("")) "]"},
           "r1=g0,30/4Gi r2=g1,60/8Gi");
    expect(
        &(struct world){.claims = "[" CLAIM("c", TWO, DISTINCT(", 'requests': ['r1', 'r2']")) "]"},
        "r1=g0,30/4Gi r2=g1,60/8Gi");
    expect(&(struct world){.claims = "[" CLAIM("c", TWO, DISTINCT(", 'requests': ['r1']")) "]"},
           "r1=g0,30/4Gi r2=g0,60/8Gi");
    expect_unschedulable(
        &(struct world){.claims = "[" CLAIM("c", TWO ", " REQUEST("r3", CAPACITY("1", "1Gi")),
                                            DISTINCT("")) "]"},
        "request r3: none of 2 devices on node a fits (2 against a constraint)");
}

static void alloc_distinct_attribute_holds_within_a_request(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){
            .claims = "[" CLAIM("c",
                                REQUEST("r1", ", 'count': 2" CAPACITY("1", "1Gi")) ", " REQUEST(
                                    "r2", CAPACITY("1", "1Gi")),
                                DISTINCT("")) "]"},
        "request r2");
}

static void alloc_match_attribute_same_value(void **state)
{
    static const char slices[] =
        "[" SLICE("s", ON_A, 1, 1,
                  "{'name': 'g0', 'attributes': {'numa': {'int': 0}}}, {'name': 'g1', "
                  "'attributes': {'numa': {'int': 1}}},"
                  "{'name': 'g2', 'attributes': {'numa': {'int': 1}}}, {'name': 'g3'}, {'name': "
                  "'g4', 'attributes': {'numa': {'string': '0'}}}") "]";
    (void)state;
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM("c", REQUEST("r1", "") ", " REQUEST("r2", ""),
                                               MATCH("d/numa", "")) "]"},
           "r1=g1 r2=g2");
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM("c", REQUEST("r", ", 'count': 2"),
                                               MATCH("d/numa", "")) "]"},
           "r=g1 r=g2");
    /* an attribute that no device has, or a bare name */
    expect_unschedulable(
        &(struct world){.slices = slices,
                        .claims = "[" CLAIM("c", REQUEST("r", ""), MATCH("d/absent", "")) "]"},
        "5 against a constraint");
    expect_unschedulable(
        &(struct world){.slices = slices,
                        .claims = "[" CLAIM("c", REQUEST("r", ""), MATCH("other/numa", "")) "]"},
        "5 against a constraint");
}

static void alloc_constraint_on_subrequest_only_when_chosen(void **state)
{
    (void)state;
    expect(
        &(struct world){
            .claims = "[" CLAIM(
                "c",
                "{'name': 'r', 'firstAvailable': [" SUB("a", CAPACITY("1", "17Gi")) ", " SUB(
                    "b", CAPACITY("1", "1Gi")) "]}, " REQUEST("s", CAPACITY("1", "1Gi")),
                DISTINCT(", 'requests': ['r/b', 's']")) "]"},
        "r/b=g0,1/1Gi s=g1,1/1Gi");
    expect(
        &(struct world){
            .claims = "[" CLAIM(
                "c",
                "{'name': 'r', 'firstAvailable': [" SUB("a", CAPACITY("1", "17Gi")) ", " SUB(
                    "b", CAPACITY("1", "1Gi")) "]}, " REQUEST("s", CAPACITY("1", "1Gi")),
                DISTINCT(", 'requests': ['r/a', 's']")) "]"},
        "r/b=g0,1/1Gi s=g0,1/1Gi");
}

static void alloc_constraint_against_all_error(void **state)
{
    (void)state;
    expect_error(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", ", 'allocationMode': 'All'"),
                                                     MATCH("d/uuid", "")) "]"},
                 ALQ_EINVAL,
                 "cannot add device d/p/g1 because a claim constraint would not be satisfied");
    expect_error(
        &(struct world){.claims = "[" CLAIM("c", REQUEST("r", ""), ", 'constraints': [{}]") "]"},
        ALQ_EINVAL, "empty constraint");
}

/* taints and admin access */

static void alloc_tainted_device_needs_toleration(void **state)
{
    static const char slices[] = "[" SLICE(
        "s", ON_A, 1, 1,
        GPU("g0", ", 'taints': [{'key': 'k', 'value': 'v', 'effect': 'NoSchedule'}]")) "]";
    static const char *const tolerated[] = {
        "{'operator': 'Exists'}", "{'key': 'k', 'operator': 'Exists'}",
        "{'key': 'k', 'value': 'v'}",
        "{'key': 'k', 'operator': 'Equal', 'value': 'v', 'effect': 'NoSchedule'}"};
    static const char *const not_tolerated[] = {
        "{'key': 'x', 'operator': 'Exists'}", "{'key': 'k', 'value': 'w'}", "{'key': 'k'}",
        "{'key': 'k', 'operator': 'Exists', 'effect': 'NoExecute'}",
        "{'key': 'k', 'operator': 'Else', 'value': 'v'}"};
    char claims[1000];

    (void)state;
    for (size_t i = 0; i < sizeof(tolerated) / sizeof(tolerated[0]); i++) {
        struct world w = {.slices = slices, .claims = claims};
        snprintf(claims, sizeof(claims),
                 "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi") ", 'tolerations': [%s]"), "") "]",
                 tolerated[i]);
        run(&w);
        assert_int_equal(w.rc, 0);
        json_t *r = json_array_get(
            alq_json_at(json_object_get(w.allocations, "u-c"), "devices.results"), 0);
        assert_int_equal(json_array_size(json_object_get(r, "tolerations")), 1);
        done(&w);
    }
    for (size_t i = 0; i < sizeof(not_tolerated) / sizeof(not_tolerated[0]); i++) {
        snprintf(claims, sizeof(claims),
                 "[" CLAIM("c", REQUEST("r", ", 'tolerations': [%s]"), "") "]", not_tolerated[i]);
        expect_unschedulable(&(struct world){.slices = slices, .claims = claims}, "1 tainted");
    }
}

static void alloc_taint_without_effect_on_placing_ignored(void **state)
{
    (void)state;
    expect(&(struct world){.slices = "[" SLICE(
                               "s", ON_A, 1, 1,
                               GPU("g0", ", 'taints': [{'key': 'k', 'effect': 'None'}]")) "]",
                           .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
           "r=g0,1/1Gi");
}

static void alloc_admin_access_takes_no_room(void **state)
{
    static const char held[] =
        "[" HELD("h", "g0", ", 'shareID': 's'", "'cores': '100', 'memory': '16Gi'") "]";
    (void)state;
    expect(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", ", 'adminAccess': true"), "") "]",
                           .allocated = held},
           "r=g0,100/16Gi");
    expect(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("100", "16Gi")), "") "]",
                           .allocated = "[" HELD("h", "g0", ", 'adminAccess': true, 'shareID': 's'",
                                                 "'cores': '100', 'memory': '16Gi'") "]"},
           "r=g0,100/16Gi");
    expect(&(struct world){.claims = "[" CLAIM("c",
                                               REQUEST("m", ", 'adminAccess': true") ", " REQUEST(
                                                   "r", CAPACITY("100", "16Gi")),
                                               "") "]"},
           "m=g0,100/16Gi r=g0,100/16Gi");
}

static void alloc_admin_access_exclusive_device_in_use(void **state)
{
    static const char slices[] = "[" SLICE("s", ON_A, 1, 1, WHOLE("g0", "")) "]";
    (void)state;
    expect(&(struct world){.slices = slices,
                           .claims = "[" CLAIM("c", REQUEST("r", ", 'adminAccess': true"), "") "]",
                           .allocated = "[" HELD("h", "g0", "", "") "]"},
           "r=g0");
    expect_unschedulable(
        &(struct world){.slices = slices,
                        .claims = "[" CLAIM("c",
                                            REQUEST("r", ", 'adminAccess': true") ", " REQUEST(
                                                "s", ", 'adminAccess': true"),
                                            "") "]"},
        "request s: none of 1 device on node a fits (1 in use)");
}

/* pools and nodes */

static void alloc_old_generation_ignored(void **state)
{
    (void)state;
    expect(&(struct world){.slices = "[" SLICE("s0", ON_A, 1, 1, GPU("old", "")) ", " SLICE(
                               "s1", ON_A, 2, 1, GPU("new", "")) "]",
                           .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
           "r=new,1/1Gi");
    /* also when the newer one is for another node */
    expect_unschedulable(
        &(struct world){.slices = "[" SLICE("s0", ON_A, 1, 1, GPU("old", "")) ", " SLICE(
                            "s1", "'nodeName': 'b'", 2, 1, GPU("new", "")) "]",
                        .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
        "no device on node a");
}

static void alloc_incomplete_pool_unschedulable(void **state)
{
    static const char slices[] = "[" SLICE("s0", ON_A, 1, 2, GPU("g0", "")) "]";
    (void)state;
    expect_unschedulable(
        &(struct world){.slices = slices, .claims = "[" CLAIM("c", REQUEST("r", ""), "") "]"},
        "pool p of d is incomplete: 1 of 2 slices");
    expect_unschedulable(
        &(struct world){.slices = slices,
                        .claims =
                            "[" CLAIM("c", REQUEST("r", ", 'allocationMode': 'All'"), "") "]"},
        "asks for all devices, but resource pool d/p is currently being updated");
    expect(&(struct world){.slices = "[" SLICE("s0", ON_A, 1, 2, GPU("g0", "")) ", " SLICE(
                               "s1", "'nodeName': 'b'", 1, 2, GPU("g1", "")) "]",
                           .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
           "r=g0,1/1Gi");
}

static void alloc_duplicate_device_name_pool_invalid(void **state)
{
    (void)state;
    expect_unschedulable(
        &(struct world){.slices = "[" SLICE("s0", ON_A, 1, 2, GPU("g0", "")) ", " SLICE(
                            "s1", ON_A, 1, 2, GPU("g0", "")) "]",
                        .claims = "[" CLAIM("c", REQUEST("r", ""), "") "]"},
        "pool p of d is invalid: a device name occurs twice");
}

static void alloc_slices_taken_in_order_of_names(void **state)
{
    static const char slices[] =
        "[" SLICE("s1", ON_A, 1, 2, GPU("g1", "")) ", " SLICE("s0", ON_A, 1, 2, GPU("g0", "")) "]";
    static const char claims[] = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]";
    (void)state;
    expect(&(struct world){.slices = slices, .claims = claims}, "r=g0,1/1Gi");
    expect(&(struct world){.slices = slices, .claims = claims, .server_minor = 34}, "r=g1,1/1Gi");
}

static void alloc_node_selector_decides(void **state)
{
    static const char *const yes[] = {
        "'allNodes': true",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'zone', 'operator': "
        "'In', 'values': ['z0', 'z1']}]}]}",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'x', 'operator': "
        "'DoesNotExist'}, {'key': 'gpus', 'operator': 'Gt', 'values': ['1']}]}]}",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchFields': [{'key': 'metadata.name', "
        "'operator': 'In', 'values': ['a']}]}]}",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'x', 'operator': "
        "'NotIn', 'values': ['1']}]}]}"};
    static const char *const no[] = {
        "'nodeName': 'b'", "'nodeSelector': {'nodeSelectorTerms': [{}]}",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'zone', 'operator': "
        "'NotIn', 'values': ['z1']}]}]}",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'zone', 'operator': "
        "'Exists'}, {'key': 'gpus', 'operator': 'Lt', 'values': ['2']}]}]}",
        "'nodeSelector': {'nodeSelectorTerms': [{'matchFields': [{'key': 'metadata.name', "
        "'operator': 'In', 'values': ['b']}]}]}"};
    static const char claims[] = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]";
    char slices[2000];

    (void)state;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        snprintf(slices, sizeof(slices), "[" SLICE("s0", "%s", 1, 1, GPU("g0", "")) "]", yes[i]);
        expect(&(struct world){.slices = slices, .claims = claims}, "r=g0,1/1Gi");
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        snprintf(slices, sizeof(slices), "[" SLICE("s0", "%s", 1, 1, GPU("g0", "")) "]", no[i]);
        expect_unschedulable(&(struct world){.slices = slices, .claims = claims},
                             "no device on node a");
    }
}

static json_t *node_selector(struct world *w)
{
    run(w);
    assert_int_equal(w->rc, 0);
    return json_object_get(json_object_get(w->allocations, "u-c"), "nodeSelector");
}

static void alloc_result_names_the_node_when_local(void **state)
{
    static const char claims[] = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]";
    struct world local = {.claims = claims},
                 everywhere = {.claims = claims,
                               .slices =
                                   "[" SLICE("s0", "'allNodes': true", 1, 1, GPU("g0", "")) "]"},
                 zone = {.claims = claims,
                         .slices = "[" SLICE(
                             "s0",
                             "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': [{'key': "
                             "'zone', 'operator': 'In', 'values': ['z1']}]}]}",
                             1, 1, GPU("g0", "")) "]"};
    json_t *want = json("{'nodeSelectorTerms': [{'matchFields': [{'key': 'metadata.name', "
                        "'operator': 'In', 'values': ['a']}]}]}");

    (void)state;
    assert_true(json_equal(node_selector(&local), want));
    json_decref(want);
    assert_null(node_selector(&everywhere));
    want = json("{'nodeSelectorTerms': [{'matchExpressions': [{'key': 'zone', 'operator': 'In', "
                "'values': ['z1']}]}]}");
    assert_true(json_equal(node_selector(&zone), want));
    json_decref(want);
    done(&local);
    done(&everywhere);
    done(&zone);
}

static void alloc_per_device_node_selection_only_own_devices(void **state)
{
    (void)state;
    expect(&(struct world){.slices = "[" SLICE("s0", "'perDeviceNodeSelection': true", 1, 1,
                                               GPU("g0", ", 'nodeName': 'b'") ", " GPU(
                                                   "g1", ", 'nodeName': 'a'")) "]",
                           .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
           "r=g1,1/1Gi");
}

static void alloc_device_with_counters_never_taken(void **state)
{
    (void)state;
    expect(&(struct world){.slices = "[" SLICE(
                               "s0", ON_A, 1, 1,
                               GPU("g0", ", 'consumesCounters': [{'counterSet': 'x'}]") ", " GPU(
                                   "g1", "")) "]",
                           .claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "1Gi")), "") "]"},
           "r=g1,1/1Gi");
}

static void alloc_allocated_claim_of_pod_checked_against_node(void **state)
{
#define PLACED(node)                                                                               \
    "{'metadata': {'name': 'h', 'uid': 'u-h'}, 'spec': {}, 'status': {'allocation': {'devices': "  \
    "{'results': [{'request': 'r', 'driver': 'd', 'pool': 'p',"                                    \
    " 'device': 'g0', 'shareID': 's', 'consumedCapacity': {'cores': '60'}}]}, 'nodeSelector': "    \
    "{'nodeSelectorTerms': [{'matchFields': ["                                                     \
    "{'key': 'metadata.name', 'operator': 'In', 'values': ['" node "']}]}]}}}}"
    (void)state;
    expect_unschedulable(&(struct world){.claims = "[" PLACED("b") "]"},
                         "claim h is allocated on another node");
    /* counted once, whether it is listed once or twice */
    expect(&(struct world){.claims = "[" PLACED("a") ", " CLAIM(
                               "c", REQUEST("r", CAPACITY("40", "1Gi")), "") "]"},
           "r=g0,40/1Gi");
    expect(&(struct world){.claims = "[" PLACED("a") ", " CLAIM(
                               "c", REQUEST("r", CAPACITY("40", "1Gi")), "") "]",
                           .allocated = "[" PLACED("a") "]"},
           "r=g0,40/1Gi");
    expect(&(struct world){.claims = "[" PLACED("a") ", " CLAIM(
                               "c", REQUEST("r", CAPACITY("41", "1Gi")), "") "]"},
           "r=g1,41/1Gi");
}

/* what 1.34 does differently */

static void alloc_134_early_device_full_later_one_refused(void **state)
{
    struct world w = {.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("40", "1Gi")), "") "]",
                      .allocated = "[" HELD("h", "g0", ", 'shareID': 's'", "'cores': '61'") "]",
                      .server_minor = 34};
    struct world apart = w;
    (void)state;
    expect_unschedulable(&w, "without room");
    apart.slices =
        "[" SLICE("s0", ON_A, 1, 2, GPU("g0", "")) ", " SLICE("s1", ON_A, 1, 2, GPU("g1", "")) "]";
    expect(&apart, "r=g1,40/1Gi");
}

static void alloc_134_count_above_devices_of_slice_not_supported(void **state)
{
    (void)state;
    expect_error(
        &(struct world){
            .claims = "[" CLAIM("c", REQUEST("r", ", 'count': 2" CAPACITY("1", "1Gi")), "") "]",
            .slices = "[" SLICE("s0", ON_A, 1, 2, GPU("g0", "")) ", " SLICE("s1", ON_A, 1, 2,
                                                                            GPU("g1", "")) "]",
            .server_minor = 34},
        ALQ_ENOTSUP, "Kubernetes 1.34's scheduler crashes here");
}

/* configuration */

static void alloc_config_from_class_and_claim_in_order(void **state)
{
    struct world w = {
        .classes = "[{'metadata': {'name': 'gpu'}, 'spec': {'config': [{'opaque': {'driver': 'd', "
                   "'parameters': {'n': 1}}}]}},"
                   " {'metadata': {'name': 'other'}, 'spec': {'config': [{'opaque': {'driver': "
                   "'d', 'parameters': {'n': 2}}}]}}]",
        .claims = "[" CLAIM(
            "c",
            REQUEST("r1", CAPACITY("1", "1Gi")) ", {'name': 'r2', 'firstAvailable': [{'name': "
                                                "'big', 'deviceClassName': 'gpu'" CAPACITY(
                                                    "1",
                                                    "17Gi") "},"
                                                            "{'name': 'small', 'deviceClassName': "
                                                            "'other'" CAPACITY("1", "1Gi") "}]}",
            ", 'config': [{'requests': ['r1'], 'opaque': {'driver': 'd', 'parameters': {'n': 3}}},"
            " {'requests': ['r2/big'], 'opaque': {'driver': 'd', 'parameters': {'n': 4}}},"
            " {'requests': ['r2/small'], 'opaque': {'driver': 'd', 'parameters': {'n': 5}}},"
            " {'opaque': {'driver': 'd', 'parameters': {'n': 6}}}]") "]"};
    json_t *want =
        json("[{'source': 'FromClass', 'requests': ['r1'], 'opaque': {'driver': 'd', 'parameters': "
             "{'n': 1}}},"
             " {'source': 'FromClass', 'requests': ['r2/small'], 'opaque': {'driver': 'd', "
             "'parameters': {'n': 2}}},"
             " {'source': 'FromClaim', 'requests': ['r1'], 'opaque': {'driver': 'd', 'parameters': "
             "{'n': 3}}},"
             " {'source': 'FromClaim', 'requests': ['r2/small'], 'opaque': {'driver': 'd', "
             "'parameters': {'n': 5}}},"
             " {'source': 'FromClaim', 'opaque': {'driver': 'd', 'parameters': {'n': 6}}}]");

    (void)state;
    run(&w);
    assert_int_equal(w.rc, 0);
    assert_true(
        json_equal(alq_json_at(json_object_get(w.allocations, "u-c"), "devices.config"), want));
    json_decref(want);
    done(&w);
}

/* bad input */

static void alloc_malformed_object_error_names_it(void **state)
{
    static const char claims[] = "[" CLAIM("c", REQUEST("r", ""), "") "]";
    (void)state;
    expect_error(&(struct world){.claims = "[{'metadata': {'name': 'c'}}]"}, ALQ_EPROTO,
                 "no name or uid");
    expect_error(&(struct world){.claims = "[" CLAIM("c", "{'name': 'r'}", "") "]"}, ALQ_EPROTO,
                 "claim ns/c: request r: neither exactly nor firstAvailable");
    expect_error(&(struct world){.claims = "[" CLAIM("c", "{'name': 'r', 'exactly': {}}", "") "]"},
                 ALQ_EPROTO, "missing device class name");
    expect_error(&(struct world){.claims = "[" CLAIM(
                                     "c", REQUEST("r", ", 'allocationMode': 'Some'"), "") "]"},
                 ALQ_EINVAL, "unsupported count mode Some");
    expect_error(&(struct world){.claims = "[" CLAIM("c", REQUEST("r", ", 'count': -1"), "") "]"},
                 ALQ_EPROTO, "count");
    expect_error(
        &(struct world){.claims = "[" CLAIM("c", REQUEST("r", CAPACITY("1", "4GiB")), "") "]"},
        ALQ_EPROTO, "memory: \"4GiB\" is not a quantity");
    expect_error(
        &(struct world){.claims = claims,
                        .slices = "[{'metadata': {'name': 's'}, 'spec': {'nodeName': 'a'}}]"},
        ALQ_EPROTO, "resource slice s");
    expect_error(&(struct world){.claims = claims,
                                 .slices = "[" SLICE(
                                     "s", ON_A, 1, 1,
                                     "{'name': 'g0', 'capacity': {'m': {'value': 'x'}}}") "]"},
                 ALQ_EPROTO, "resource slice s: device g0: capacity m: value");
    expect_error(
        &(struct world){.claims = claims,
                        .allocated = "[" HELD("h", "g0", ", 'shareID': 's'", "'cores': 'x'") "]"},
        ALQ_EPROTO, "claim h: consumedCapacity of device g0");
    expect_error(&(struct world){.claims = claims, .node = "{}"}, ALQ_EPROTO,
                 "the node has no name");
    expect_error(&(struct world){.claims = claims,
                                 .slices = "[" SLICE(
                                     "s",
                                     "'nodeSelector': {'nodeSelectorTerms': [{'matchExpressions': "
                                     "[{'key': 'x', 'operator': 'Like'}]}]}",
                                     1, 1, "") "]"},
                 ALQ_EPROTO, "unknown operator Like");
}

static void alloc_wrong_json_types_no_crash(void **state)
{
    static const char *const odd[] = {
        "[[]]",
        "[1]",
        "['x']",
        "[null]",
        "[{'spec': 1, 'metadata': []}]",
        "[{'metadata': {'name': 'x', 'uid': 'y'}, 'spec': {'devices': {'requests': {'a': 1}}}}]",
        "[{'metadata': {'name': 'gpu', 'uid': 'y'}, 'spec': {'selectors': 3, 'config': 'x', "
        "'devices': {'requests': [3, 'x'],"
        " 'constraints': 'x'}, 'driver': 'd', 'pool': {'name': 'p', 'generation': 'x', "
        "'resourceSliceCount': -4}}}]"};
    (void)state;
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct world worlds[] = {
            {.claims = odd[i]},
            {.claims = "[" CLAIM("c", REQUEST("r", ""), "") "]", .classes = odd[i]},
            {.claims = "[" CLAIM("c", REQUEST("r", ""), "") "]", .slices = odd[i]},
            {.claims = "[" CLAIM("c", REQUEST("r", ""), "") "]", .allocated = odd[i]}};
        for (size_t k = 0; k < sizeof(worlds) / sizeof(worlds[0]); k++) {
            run(&worlds[k]);
            assert_int_equal((worlds[k].rc != 0) + (worlds[k].reason != NULL) +
                                 (worlds[k].allocations != NULL),
                             1);
            done(&worlds[k]);
        }
    }
}

static void server_minor_forms_number(void **state)
{
    struct alq_err err = ALQ_ERR_INIT;
    unsigned minor = 7;

    (void)state;
    assert_int_equal(alq_alloc_server_minor("1.34", &minor, &err), 0);
    assert_int_equal(minor, 34);
    assert_int_equal(alq_alloc_server_minor("v1.36.2", &minor, &err), 0);
    assert_int_equal(minor, 36);
    assert_int_equal(alq_alloc_server_minor(NULL, &minor, &err), 0);
    assert_int_equal(minor, 0);
    assert_int_equal(alq_alloc_server_minor("2.0", &minor, &err), ALQ_EINVAL);
    assert_int_equal(alq_alloc_server_minor("1.-3", &minor, &err), ALQ_EINVAL);
    assert_int_equal(alq_alloc_server_minor("1.34x", &minor, &err), ALQ_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_no_amounts_default),
        cmocka_unit_test(alloc_below_min_min),
        cmocka_unit_test(alloc_between_steps_rounded_up),
        cmocka_unit_test(alloc_above_max_unschedulable),
        cmocka_unit_test(alloc_unknown_capacity_name_unschedulable),
        cmocka_unit_test(alloc_valid_values_next_one_up),
        cmocka_unit_test(alloc_no_policy_as_asked_or_everything),
        cmocka_unit_test(alloc_several_requests_share_a_device),
        cmocka_unit_test(alloc_room_used_by_other_claims_next_device),
        cmocka_unit_test(alloc_device_held_without_share_id_in_use),
        cmocka_unit_test(alloc_exclusive_device_one_claim),
        cmocka_unit_test(alloc_count_distinct_devices),
        cmocka_unit_test(alloc_count_above_limit_error),
        cmocka_unit_test(alloc_all_takes_what_is_selected),
        cmocka_unit_test(alloc_all_with_one_device_full_unschedulable),
        cmocka_unit_test(alloc_all_of_nothing_unschedulable),
        cmocka_unit_test(alloc_first_available_first_that_fits),
        cmocka_unit_test(alloc_first_available_backtracks_over_later_request),
        cmocka_unit_test(alloc_first_available_smaller_count_after_too_many),
        cmocka_unit_test(alloc_claims_together_or_none),
        cmocka_unit_test(alloc_backtracks_for_later_claim),
        cmocka_unit_test(alloc_endless_search_gives_up),
        cmocka_unit_test(alloc_class_and_request_selectors_both),
        cmocka_unit_test(alloc_selector_error_is_an_error),
        cmocka_unit_test(alloc_unknown_class_unschedulable),
        cmocka_unit_test(alloc_distinct_attribute_two_devices),
        cmocka_unit_test(alloc_distinct_attribute_holds_within_a_request),
        cmocka_unit_test(alloc_match_attribute_same_value),
        cmocka_unit_test(alloc_constraint_on_subrequest_only_when_chosen),
        cmocka_unit_test(alloc_constraint_against_all_error),
        cmocka_unit_test(alloc_tainted_device_needs_toleration),
        cmocka_unit_test(alloc_taint_without_effect_on_placing_ignored),
        cmocka_unit_test(alloc_admin_access_takes_no_room),
        cmocka_unit_test(alloc_admin_access_exclusive_device_in_use),
        cmocka_unit_test(alloc_old_generation_ignored),
        cmocka_unit_test(alloc_incomplete_pool_unschedulable),
        cmocka_unit_test(alloc_duplicate_device_name_pool_invalid),
        cmocka_unit_test(alloc_slices_taken_in_order_of_names),
        cmocka_unit_test(alloc_node_selector_decides),
        cmocka_unit_test(alloc_result_names_the_node_when_local),
        cmocka_unit_test(alloc_per_device_node_selection_only_own_devices),
        cmocka_unit_test(alloc_device_with_counters_never_taken),
        cmocka_unit_test(alloc_allocated_claim_of_pod_checked_against_node),
        cmocka_unit_test(alloc_134_early_device_full_later_one_refused),
        cmocka_unit_test(alloc_134_count_above_devices_of_slice_not_supported),
        cmocka_unit_test(alloc_config_from_class_and_claim_in_order),
        cmocka_unit_test(alloc_malformed_object_error_names_it),
        cmocka_unit_test(alloc_wrong_json_types_no_crash),
        cmocka_unit_test(server_minor_forms_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

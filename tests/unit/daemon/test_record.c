/* SPDX-License-Identifier: Apache-2.0 */
/* Records as bytes and as files: what comes back, and what happens to files that are no records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "daemon/state/claim_spec.h"
#include "daemon/state/names.h"
#include "daemon/state/store.h"

#define UID "01619ab3-04ed-4e13-9a73-0c09ac68ebb1"

static struct alq_record example(struct alq_share_spec shares[2])
{
    static char name[] = "name with \"quotes\" and \xc3\xa9", pool[] = "node-a";
    struct alq_record r = {.state = ALQ_RECORD_COMPLETED, .boot_id = "boot"};
    memset(shares, 0, 2 * sizeof(*shares));
    for (uint32_t i = 0; i < 2; i++) {
        struct alq_share_spec *s = &shares[i];
        s->index = i;
        alq_share_id_format(UID, i, s->share_id);
        snprintf(s->gpu_uuid, sizeof(s->gpu_uuid), "GPU-%u", i);
        s->gpu_minor = 3 + i;
        s->gpu_memory_bytes = 80ull << 30;
        s->memory_bytes = (4ull << 30) + i;
        s->cores_pct = 30;
        s->is_admin = (int)i;
        s->tuning = (struct alq_share_tuning){ALQ_POLICY_BURST, 1, 4, 9, 5ull << 30};
        snprintf(s->request, sizeof(s->request), "gpu-%u", i);
        snprintf(s->device, sizeof(s->device), "hami-gpu-%u", i);
        snprintf(s->share_uuid, sizeof(s->share_uuid), "%s", i ? "" : "36188c79");
    }
    snprintf(r.claim.uid, sizeof(r.claim.uid), UID);
    snprintf(r.claim.namespace_, sizeof(r.claim.namespace_), "default");
    r.claim.name = name;
    r.claim.pool = pool;
    r.claim.share_count = 2;
    r.claim.shares = shares;
    return r;
}

static char *encode(const struct alq_record *r, size_t *len)
{
    char *data = NULL;
    assert_int_equal(alq_record_encode(r, &data, len, NULL), 0);
    return data;
}

static void decode_gives_what_was_encoded(void **state)
{
    (void)state;
    struct alq_share_spec shares[2];
    struct alq_record r = example(shares), back;
    size_t len;
    char *data = encode(&r, &len);
    assert_int_equal(alq_record_decode(data, len, &back, NULL), 0);
    assert_int_equal(back.state, r.state);
    assert_string_equal(back.boot_id, r.boot_id);
    assert_string_equal(back.claim.name, r.claim.name);
    assert_string_equal(back.claim.namespace_, r.claim.namespace_);
    assert_true(alq_claim_spec_equal(&back.claim, &r.claim));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(back.claim.shares[i].gpu_minor, shares[i].gpu_minor);
        assert_int_equal(back.claim.shares[i].gpu_memory_bytes, shares[i].gpu_memory_bytes);
    }
    alq_record_fini(&back);
    free(data);
}

static void decode_of_every_prefix_is_an_error(void **state)
{
    (void)state;
    struct alq_share_spec shares[2];
    struct alq_record r = example(shares), back;
    size_t len;
    char *data = encode(&r, &len);
    for (size_t n = 0; n < len; n++) {
        struct alq_err err = ALQ_ERR_INIT;
        assert_int_equal(alq_record_decode(data, n, &back, &err), ALQ_EPROTO);
        assert_int_equal(err.code, ALQ_EPROTO);
    }
    free(data);
}

static void decode_of_every_flipped_bit_is_an_error(void **state)
{
    (void)state;
    struct alq_share_spec shares[2];
    struct alq_record r = example(shares), back;
    size_t len;
    char *data = encode(&r, &len);
    for (size_t i = 0; i < 8 * len; i++) {
        data[i / 8] ^= (char)(1 << i % 8);
        if (!alq_record_decode(data, len, &back, NULL))
            fail_msg("bit %zu of byte %zu is not noticed", i % 8, i / 8);
        data[i / 8] ^= (char)(1 << i % 8);
    }
    free(data);
}

static void decode_of_a_later_version_says_so(void **state)
{
    (void)state;
    static const char text[] = "aliquot-record 2 00000000 2\n{}\n";
    struct alq_record back;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_record_decode(text, sizeof(text) - 1, &back, &err), ALQ_ENOTSUP);
    assert_non_null(strstr(err.text, "version 2"));
}

static void uid_is_valid_only_as_a_plain_name(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "a/b",
                                      "../x",
                                      "-a",
                                      "a-",
                                      "a b",
                                      "a.b",
                                      "a\n",
                                      "0123456789012345678901234567890123456789012345678",
                                      NULL};
    assert_true(alq_claim_uid_is_valid(UID));
    assert_true(alq_claim_uid_is_valid("012345678901234567890123456789012345678901234567"));
    for (const char *const *p = bad; *p; p++)
        if (alq_claim_uid_is_valid(*p))
            fail_msg("\"%s\" passes", *p);
}

/* ---- files ------------------------------------------------------------------------------------
 */

struct dir {
    char path[64];
    unsigned loaded;
};

static int make_dir(void **state)
{
    static struct dir dir;
    memset(&dir, 0, sizeof(dir));
    snprintf(dir.path, sizeof(dir.path), "/tmp/alq-record-XXXXXX");
    *state = &dir;
    return mkdtemp(dir.path) ? 0 : -1;
}

static int remove_dir(void **state)
{
    return alq_file_remove_tree(((struct dir *)*state)->path, NULL);
}

static void count_record(void *arg, struct alq_record *record)
{
    assert_string_equal(record->claim.uid, UID);
    ((struct dir *)arg)->loaded++;
}

static void put_file(const struct dir *dir, const char *name, const char *text, size_t len)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/claims/%s", dir->path, name);
    assert_int_equal(alq_file_write_atomic(path, text, len, 0600, 0, NULL), 0);
}

static int exists(const struct dir *dir, const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof(path), "%s/claims/%s", dir->path, name);
    return lstat(path, &st) == 0;
}

static void store_sets_bad_records_aside_and_loads_the_rest(void **state)
{
    struct dir *dir = *state;
    struct alq_store *store = NULL;
    struct alq_share_spec shares[2];
    struct alq_record r = example(shares);
    size_t len;
    char *data = encode(&r, &len), path[256];
    assert_int_equal(alq_store_open(dir->path, &store, NULL), 0);
    assert_int_equal(alq_store_put(store, &r, NULL), 0);
    put_file(dir, "torn.record", data, len / 2);
    put_file(dir, "empty.record", "", 0);
    put_file(dir, "other.record", data, len); /* another claim's */
    put_file(dir, "torn.record.bad", "older", 5);
    put_file(dir, "future.record", "aliquot-record 9 0 0\n\n", 22);
    put_file(dir, "notes.txt", "x", 1);
    snprintf(path, sizeof(path), "%s/claims/dir.record", dir->path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/claims/link.record", dir->path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(alq_store_load(store, count_record, dir, NULL), 6);
    assert_int_equal(dir->loaded, 1);
    assert_true(exists(dir, UID ".record"));
    assert_true(exists(dir, "torn.record.bad.1"));
    assert_true(exists(dir, "empty.record.bad"));
    assert_true(exists(dir, "other.record.bad"));
    assert_true(exists(dir, "future.record.bad"));
    assert_true(exists(dir, "dir.record.bad"));
    assert_true(exists(dir, "link.record.bad"));
    assert_true(exists(dir, "notes.txt"));
    dir->loaded = 0;
    assert_int_equal(alq_store_load(store, count_record, dir, NULL), 0);
    assert_int_equal(dir->loaded, 1);
    assert_true(alq_store_is_set_aside(store, "torn"));
    assert_false(alq_store_is_set_aside(store, UID));
    alq_store_forget_aside(store, "torn");
    alq_store_forget_aside(store, "dir");
    alq_store_forget_aside(store, "nobody");
    assert_false(exists(dir, "torn.record.bad"));
    assert_false(exists(dir, "torn.record.bad.1"));
    assert_false(exists(dir, "dir.record.bad"));
    assert_false(alq_store_is_set_aside(store, "torn"));
    assert_true(alq_store_is_set_aside(store, "future"));
    assert_int_equal(alq_store_remove(store, UID, NULL), 0);
    assert_int_equal(alq_store_remove(store, UID, NULL), 0);
    assert_false(exists(dir, UID ".record"));
    alq_store_close(store);
    free(data);
}

static void store_has_one_owner(void **state)
{
    struct dir *dir = *state;
    struct alq_store *first = NULL, *second = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    char pid[32];
    assert_int_equal(alq_store_open(dir->path, &first, NULL), 0);
    assert_int_equal(alq_store_open(dir->path, &second, &err), ALQ_EBUSY);
    snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    alq_store_close(first);
    assert_int_equal(alq_store_open(dir->path, &second, NULL), 0);
    alq_store_close(second);
}

static struct alq_gpu gpu(const char *uuid, uint32_t minor)
{
    struct alq_gpu g = {.minor = minor};
    snprintf(g.uuid, sizeof(g.uuid), "%s", uuid);
    return g;
}

static void assign(const struct dir *dir, struct alq_gpu *gpus, size_t count)
{
    struct alq_names *names = NULL;
    struct alq_gpu_list list = {gpus, count};
    assert_int_equal(alq_names_open(dir->path, &names, NULL), 0);
    assert_int_equal(alq_names_assign(names, &list, NULL), 0);
    alq_names_close(names);
}

/* Whether a descriptor is left is not a record's fault. */
static void store_without_descriptors_keeps_every_record(void **state)
{
    struct dir *dir = *state;
    struct alq_store *store = NULL;
    struct alq_share_spec shares[2];
    struct alq_record r = example(shares);
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_names *names = NULL;
    struct alq_gpu gpus[] = {gpu("GPU-a", 0)};
    struct rlimit old, low;
    char path[128];
    struct stat st;
    assign(dir, gpus, 1);
    assert_int_equal(alq_store_open(dir->path, &store, NULL), 0);
    assert_int_equal(alq_store_put(store, &r, NULL), 0);
    int free_fd = dup(0);
    assert_true(free_fd >= 0);
    close(free_fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){(rlim_t)free_fd + 1, old.rlim_max}; /* the directory's, none for a file */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int load_rc = alq_store_load(store, count_record, dir, &err);
    low.rlim_cur = (rlim_t)free_fd;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int names_rc = alq_names_open(dir->path, &names, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(load_rc, ALQ_EAGAIN);
    assert_int_equal(names_rc, ALQ_EAGAIN);
    assert_true(exists(dir, UID ".record"));
    snprintf(path, sizeof(path), "%s/devices.json", dir->path);
    assert_int_equal(stat(path, &st), 0);
    alq_store_close(store);
}

static void names_stick_when_minors_move(void **state)
{
    struct dir *dir = *state;
    struct alq_gpu before[] = {gpu("GPU-a", 0), gpu("GPU-b", 1)};
    assign(dir, before, 2);
    assert_string_equal(before[0].name, "hami-gpu-0");
    assert_string_equal(before[1].name, "hami-gpu-1");
    /* A new card came first on the bus. */
    struct alq_gpu after[] = {gpu("GPU-new", 0), gpu("GPU-a", 1), gpu("GPU-b", 2)};
    assign(dir, after, 3);
    assert_string_equal(after[0].name, "hami-gpu-2");
    assert_string_equal(after[1].name, "hami-gpu-0");
    assert_string_equal(after[2].name, "hami-gpu-1");
}

static void names_of_new_gpus_do_not_depend_on_order(void **state)
{
    struct dir *dir = *state;
    struct alq_gpu known[] = {gpu("GPU-a", 0)};
    assign(dir, known, 1);
    /* 0 is taken: its new owner must not take 1 away from the one whose minor is 1. */
    struct alq_gpu later[] = {gpu("GPU-x", 0), gpu("GPU-y", 1)};
    assign(dir, later, 2);
    assert_string_equal(later[0].name, "hami-gpu-2");
    assert_string_equal(later[1].name, "hami-gpu-1");
}

static void names_survive_a_damaged_file(void **state)
{
    struct dir *dir = *state;
    char path[128];
    struct alq_gpu gpus[] = {gpu("GPU-a", 0)};
    snprintf(path, sizeof(path), "%s/devices.json", dir->path);
    assert_int_equal(alq_file_write_atomic(path, "{\"GPU-a\": 1}", 12, 0600, 0, NULL), 0);
    assign(dir, gpus, 1);
    assert_string_equal(gpus[0].name, "hami-gpu-0");
}

#define D(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_gives_what_was_encoded),
        cmocka_unit_test(decode_of_every_prefix_is_an_error),
        cmocka_unit_test(decode_of_every_flipped_bit_is_an_error),
        cmocka_unit_test(decode_of_a_later_version_says_so),
        cmocka_unit_test(uid_is_valid_only_as_a_plain_name),
        D(store_sets_bad_records_aside_and_loads_the_rest),
        D(store_without_descriptors_keeps_every_record),
        D(store_has_one_owner),
        D(names_stick_when_minors_move),
        D(names_of_new_gpus_do_not_depend_on_order),
        D(names_survive_a_damaged_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

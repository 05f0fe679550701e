/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of prepared claims, see files.h. The scan of the driver's files is shared by all workers
 * and made anew when the driver on disk has changed; a mutex guards the pointer, a count the scan.
 */
#include "daemon/prepare/files.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/cdi/root.h"
#include "daemon/cdi/scan.h"
#include "daemon/monitor/metrics.h"
#include "daemon/prepare/share_dir.h"
#include "daemon/state/claim_spec.h"

#define ALQ_LOG_MODULE "prepare"
#define SPEC_MAX_BYTES (4u * 1024 * 1024)
#define LOCK_TRIES 50
#define LOCK_WAIT_MS 20
#define UID_BYTES sizeof(((struct alq_claim_spec *)0)->uid)

struct driver {
    unsigned refs; /* under files->lock */
    struct alq_driver_files *found;
};

struct alq_files {
    const struct alq_config *cfg;
    struct alq_store *store;
    int run_lock;
    char boot_id[ALQ_BOOT_ID_BYTES];
    pthread_mutex_t lock;
    struct driver *driver;  /* under lock; NULL until first needed */
    int has_scanned;        /* under lock, as is what follows */
    struct alq_err scanned; /* what the last scan ended with */
    /* Held for reading while a spec is written, for writing while libraries are removed: what a
     * spec names is never taken away. */
    pthread_rwlock_t library_lock;
    struct alq_library library; /* under library_lock, as is what follows */
    int has_old_libraries;
    /* UIDs that the sweep found without a record, and whose containers may run; constant after it.
     */
    char (*found)[UID_BYTES];
    size_t found_count;
};

/* ---- the driver's files -----------------------------------------------------------------------
 */

static void driver_put(struct alq_files *files, struct driver *driver)
{
    pthread_mutex_lock(&files->lock);
    unsigned left = driver ? --driver->refs : 1;
    pthread_mutex_unlock(&files->lock);
    if (left)
        return;
    alq_driver_files_free(driver->found);
    free(driver);
}

/* The current scan, with a reference for the caller. Two workers may both scan; one result stays.
 */
static int driver_get(struct alq_files *files, struct driver **out, struct alq_err *err)
{
    pthread_mutex_lock(&files->lock);
    struct driver *driver = files->driver;
    if (driver)
        driver->refs++;
    pthread_mutex_unlock(&files->lock);
    if (driver && alq_driver_files_is_current(files->cfg, driver->found)) {
        pthread_mutex_lock(&files->lock);
        files->scanned = (struct alq_err)ALQ_ERR_INIT; /* it may have been away meanwhile */
        pthread_mutex_unlock(&files->lock);
        *out = driver;
        return 0;
    }
    driver_put(files, driver);

    struct driver *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_driver_scan(files->cfg, &fresh->found, &why);
    fresh->refs = 2; /* ours to keep, and the caller's */
    pthread_mutex_lock(&files->lock);
    struct driver *old = files->driver;
    files->has_scanned = 1;
    files->scanned = why;
    if (!rc)
        files->driver = fresh;
    pthread_mutex_unlock(&files->lock);
    if (rc) {
        free(fresh);
        if (err)
            *err = why;
        return rc;
    }
    driver_put(files, old);
    *out = fresh;
    return 0;
}

/* Those without which no container has CUDA. */
static void tell_nodes(const struct alq_config *cfg, struct alq_findings *findings)
{
    static const char *const nodes[] = {"dev/nvidiactl", "dev/nvidia-uvm"};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        alq_auto_free char *path = alq_root_join(cfg->dev_root, nodes[i]);
        if (path && access(path, F_OK)) {
            alq_findings_add(findings, "cdi.device-nodes", ALQ_FINDING_WARNING,
                             "load the module (nvidia-modprobe -u -c 0); the next Prepare makes "
                             "the node if it can",
                             "%s is not there", path);
            return;
        }
    }
    alq_findings_add(findings, "cdi.device-nodes", ALQ_FINDING_OK, NULL,
                     "nvidiactl and nvidia-uvm are there");
}

static void tell_library(struct alq_files *files, struct alq_findings *findings)
{
    if (pthread_rwlock_tryrdlock(&files->library_lock))
        return; /* old ones are being removed */
    const struct alq_library *l = &files->library;
    if (!files->cfg->library)
        alq_findings_add(findings, "cdi.library", ALQ_FINDING_WARNING, "set --library",
                         "no library is configured: containers get GPUs, and no limit holds");
    else if (!l->library_path[0] || !alq_library_is_there(files->cfg, l))
        alq_findings_add(findings, "cdi.library", ALQ_FINDING_ERROR,
                         "see the log for the cause; each Prepare tries again",
                         "libvgpu.so and its ld.so.preload are not installed below %s: claims are "
                         "refused",
                         files->cfg->host_lib_dir);
    else
        alq_findings_add(findings, "cdi.library", ALQ_FINDING_OK, NULL,
                         "containers mount %s, by %s", l->library_path, l->preload_path);
    pthread_rwlock_unlock(&files->library_lock);
}

void alq_files_tell(void *arg, struct alq_findings *findings)
{
    struct alq_files *files = arg;
    pthread_mutex_lock(&files->lock);
    if (!files->has_scanned)
        alq_findings_add(findings, "cdi.driver", ALQ_FINDING_OK, NULL,
                         "the driver's files have not been looked for: no claim has needed them "
                         "since the start");
    else if (files->scanned.code)
        alq_findings_add(findings, "cdi.driver", ALQ_FINDING_ERROR,
                         "claims wait until the text's cause is gone; each Prepare looks again",
                         "the driver's files when they were last looked for: %s",
                         files->scanned.text);
    else
        alq_findings_add(findings, "cdi.driver", ALQ_FINDING_OK, NULL,
                         "driver %s below %s: %zu files and %zu control nodes for each container",
                         files->driver->found->version, files->cfg->driver_root,
                         files->driver->found->mount_count, files->driver->found->nodes.count);
    pthread_mutex_unlock(&files->lock);
    tell_nodes(files->cfg, findings);
    tell_library(files, findings);
}

/* ---- open -------------------------------------------------------------------------------------
 */

/* A directory that is read-only for now does not stop a start: what is prepared is served, and a
 * claim that needs a write says why it cannot have it. */
static int check_writable(const char *dir, struct alq_err *err)
{
    if (!access(dir, W_OK | X_OK))
        return 0;
    if (errno != EROFS)
        return alq_err_errno(err, errno, "directory %s cannot be written to", dir);
    alq_error(ALQ_LOG_KV({"dir", dir}), "is on a read-only file system: no claim can be prepared "
                                        "or unprepared until it is mounted for writing");
    return 0;
}

static int open_cdi_dir(const struct alq_config *cfg, struct alq_err *err)
{
    int rc = alq_file_mkdirs(cfg->cdi_dir, 0755, err);
    if (!rc)
        rc = check_writable(cfg->cdi_dir, err);
    return rc ? alq_err_wrap(err, "--cdi-dir") : 0;
}

/* A child of the instance before that has not called exec yet may have the lock for a moment. */
static int open_run_dir(const struct alq_config *cfg, int *lock, struct alq_err *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_WAIT_MS * 1000000};
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_share_root_prepare(cfg, err);
    if (!rc)
        rc = check_writable(cfg->run_dir, err);
    if (rc)
        return alq_err_wrap(err, "--run-dir");
    for (int i = 0; (rc = alq_share_root_lock(cfg, lock, &why)) == ALQ_EBUSY && i < LOCK_TRIES; i++)
        nanosleep(&pause, NULL);
    if (rc) {
        *err = why;
        alq_err_wrap(err, "--run-dir");
    }
    return rc;
}

/* Its hash, out of ".../libvgpu-<hash>.so". */
static void show_library(const struct alq_library *library)
{
    const char *name = strrchr(library->library_path, '-');
    char version[80] = "";
    if (name)
        snprintf(version, sizeof(version), "%.*s", (int)strcspn(name + 1, "."), name + 1);
    alq_metric_clear(ALQ_METRIC_LIBRARY);
    if (*version)
        alq_metric_set(ALQ_METRIC_LIBRARY, 1, version, NULL);
}

/* A full or read-only disk is tried again by each Prepare; other reasons stay. */
static int open_library(struct alq_files *files, struct alq_err *err)
{
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_library_install(files->cfg, &files->library, &why);
    if (rc == ALQ_EIO || rc == ALQ_EAGAIN) {
        alq_error(NULL, "the library is not installed, so that claims are refused until it is: %s",
                  why.text);
        return 0;
    }
    if (rc)
        *err = why;
    else
        show_library(&files->library);
    return rc;
}

int alq_files_open(const struct alq_config *cfg, struct alq_store *store, const char *boot_id,
                   struct alq_files **files, struct alq_err *err)
{
    struct alq_files *f = calloc(1, sizeof(*f));
    if (!f)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    f->cfg = cfg;
    f->store = store;
    f->run_lock = -1;
    snprintf(f->boot_id, sizeof(f->boot_id), "%s", boot_id);
    pthread_mutex_init(&f->lock, NULL);
    pthread_rwlock_init(&f->library_lock, NULL);
    int rc = open_cdi_dir(cfg, err);
    if (!rc)
        rc = open_run_dir(cfg, &f->run_lock, err);
    if (!rc)
        rc = open_library(f, err);
    if (rc) {
        alq_files_close(f);
        return rc;
    }
    *files = f;
    return 0;
}

void alq_files_close(struct alq_files *files)
{
    if (!files)
        return;
    driver_put(files, files->driver);
    pthread_mutex_destroy(&files->lock);
    pthread_rwlock_destroy(&files->library_lock);
    free(files->found);
    if (files->run_lock >= 0)
        close(files->run_lock);
    free(files);
}

/* ---- the library ------------------------------------------------------------------------------
 */

/* Installs it again when it has been lost, or could not be installed before. */
static int library_ensure(struct alq_files *files, struct alq_err *err)
{
    pthread_rwlock_rdlock(&files->library_lock);
    int is_there = alq_library_is_there(files->cfg, &files->library);
    pthread_rwlock_unlock(&files->library_lock);
    if (is_there)
        return 0;
    struct alq_library fresh;
    pthread_rwlock_wrlock(&files->library_lock);
    int rc = alq_library_install(files->cfg, &fresh, err);
    if (!rc) {
        files->has_old_libraries |= strcmp(fresh.library_path, files->library.library_path) != 0 ||
                                    strcmp(fresh.hook_path, files->library.hook_path) != 0;
        files->library = fresh;
        show_library(&fresh);
    }
    pthread_rwlock_unlock(&files->library_lock);
    return rc;
}

/* Takes away what no share uses any more; cheap while there is nothing but the current one. */
static void library_sweep(struct alq_files *files, int is_start)
{
    struct alq_err err = ALQ_ERR_INIT;
    pthread_rwlock_wrlock(&files->library_lock);
    /* One that could not be installed may be there all the same. */
    int is_known = (!files->cfg->library || files->library.library_path[0]) &&
                   (!files->cfg->hook || files->library.hook_path[0]);
    if (is_known && (is_start || files->has_old_libraries)) {
        int left = alq_library_sweep(files->cfg, &files->library, is_start, &err);
        files->has_old_libraries = left != 0;
        if (left < 0)
            alq_warn(NULL, "old libraries stay for now: %s", err.text);
    }
    pthread_rwlock_unlock(&files->library_lock);
}

/* ---- one claim --------------------------------------------------------------------------------
 */

/* Builds the spec and writes it unless it is there. A spec of this boot keeps the library that it
 * names: processes of the share use it, and its share has the layout it knows. */
static int write_spec_locked(struct alq_files *files, const struct alq_driver_files *found,
                             const struct alq_claim_spec *claim, const char *path,
                             struct alq_err *err)
{
    struct alq_library library = files->library;
    alq_auto_json json_t *spec = NULL;
    alq_auto_free char *have = NULL;
    size_t have_len = 0;
    int has_spec = !alq_file_read(path, SPEC_MAX_BYTES, &have, &have_len, NULL);
    if (has_spec)
        alq_library_of_spec(files->cfg, have, &library);
    int rc = alq_cdi_spec_build(files->cfg, found, &library, claim, &spec, err);
    if (rc)
        return rc;
    alq_auto_free char *text = alq_json_dump(spec);
    if (!text)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    size_t len = strlen(text);
    if (has_spec && have_len == len && !memcmp(have, text, len))
        return 0;
    rc = alq_file_mkdirs(files->cfg->cdi_dir, 0755, err);
    return rc ? rc : alq_file_write_atomic(path, text, len, 0644, 1, err);
}

static int write_spec(struct alq_files *files, const struct alq_claim_spec *claim,
                      struct alq_err *err)
{
    struct driver *driver = NULL;
    alq_auto_free char *path = alq_cdi_path(files->cfg, claim->uid);
    if (!path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = library_ensure(files, err);
    if (!rc)
        rc = driver_get(files, &driver, err);
    if (rc)
        return rc;
    pthread_rwlock_rdlock(&files->library_lock);
    rc = write_spec_locked(files, driver->found, claim, path, err);
    pthread_rwlock_unlock(&files->library_lock);
    driver_put(files, driver);
    return rc;
}

/* Everything but the record. */
static int remove_files(struct alq_files *files, const char *uid, struct alq_err *err)
{
    alq_auto_free char *path = alq_cdi_path(files->cfg, uid);
    if (!path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    /* Whatever lies there: a directory would keep its pod from ever ending. */
    int rc = alq_file_remove_tree(path, err);
    for (uint32_t i = 0; i < ALQ_CLAIM_RESULTS_MAX && !rc; i++) {
        char id[ALQ_SHARE_ID_BYTES];
        alq_share_id_format(uid, i, id);
        rc = alq_share_dir_remove(files->cfg, id, err);
    }
    return rc;
}

static int put_record(struct alq_files *files, const struct alq_claim_spec *claim,
                      enum alq_record_state state, struct alq_err *err)
{
    struct alq_record record = {.state = state, .claim = *claim};
    memcpy(record.boot_id, files->boot_id, sizeof(record.boot_id));
    return alq_store_put(files->store, &record, err);
}

static int make_files(struct alq_files *files, const struct alq_claim_spec *claim,
                      struct alq_err *err)
{
    for (uint32_t i = 0; i < claim->share_count; i++) {
        if (!alq_share_is_enforced(files->cfg, &claim->shares[i]))
            continue;
        int rc = alq_share_dir_ensure(files->cfg, &claim->shares[i], NULL, err);
        if (rc)
            return rc;
    }
    return write_spec(files, claim, err);
}

int alq_files_is_found(const struct alq_files *files, const char *uid)
{
    for (size_t i = 0; i < files->found_count; i++)
        if (!strcmp(files->found[i], uid))
            return 1;
    return 0;
}

/* Removes the share directories that are not the claim's: of other indices and other GPUs. */
static int remove_other_shares(struct alq_files *files, const struct alq_claim_spec *claim,
                               struct alq_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < ALQ_CLAIM_RESULTS_MAX && !rc; i++) {
        struct alq_share_spec have;
        char id[ALQ_SHARE_ID_BYTES];
        alq_share_id_format(claim->uid, i, id);
        const struct alq_share_spec *share = i < claim->share_count ? &claim->shares[i] : NULL;
        if (!share || share->is_admin || alq_share_dir_read(files->cfg, id, &have) ||
            strcmp(have.gpu_uuid, share->gpu_uuid) != 0)
            rc = alq_share_dir_remove(files->cfg, id, err);
    }
    return rc;
}

static int repair(struct alq_files *files, const struct alq_claim_spec *claim, struct alq_err *err)
{
    int rc = make_files(files, claim, err);
    if (!rc && !alq_store_has(files->store, claim->uid))
        rc = put_record(files, claim, ALQ_RECORD_COMPLETED, err);
    return rc;
}

/* As repair, but nothing is known of what lies there. A failure leaves it as it was. */
static int take_over(struct alq_files *files, const struct alq_claim_spec *claim,
                     struct alq_err *err)
{
    int rc = remove_other_shares(files, claim, err);
    if (!rc)
        rc = make_files(files, claim, err);
    if (!rc)
        rc = put_record(files, claim, ALQ_RECORD_COMPLETED, err);
    if (!rc)
        alq_store_forget_aside(files->store, claim->uid);
    return rc;
}

int alq_files_prepare(struct alq_files *files, const struct alq_claim_spec *claim, int has_record,
                      struct alq_err *err)
{
    if (has_record)
        return repair(files, claim, err);
    if (alq_files_is_found(files, claim->uid))
        return take_over(files, claim, err);
    /* What lies there is of another life of the claim. */
    int rc = remove_files(files, claim->uid, err);
    if (!rc)
        rc = put_record(files, claim, ALQ_RECORD_STARTED, err);
    if (!rc)
        rc = make_files(files, claim, err);
    if (!rc)
        rc = put_record(files, claim, ALQ_RECORD_COMPLETED, err);
    if (!rc) {
        alq_store_forget_aside(files->store, claim->uid);
        return 0;
    }
    struct alq_err why = ALQ_ERR_INIT;
    if (alq_files_unprepare(files, claim->uid, &why))
        alq_warn(ALQ_LOG_KV({"claim", claim->uid}), "rolling back: %s", why.text);
    return rc;
}

static int put_limits(struct alq_files *files, const struct alq_claim_spec *claim,
                      struct alq_err *err)
{
    int rc = put_record(files, claim, ALQ_RECORD_COMPLETED, err);
    for (uint32_t i = 0; !rc && i < claim->share_count; i++)
        if (alq_share_is_enforced(files->cfg, &claim->shares[i]))
            rc = alq_share_dir_ensure(files->cfg, &claim->shares[i], NULL, err);
    return rc;
}

int alq_files_limit(struct alq_files *files, const struct alq_claim_spec *claim,
                    const struct alq_claim_spec *before, struct alq_err *err)
{
    int rc = put_limits(files, claim, err);
    if (rc)
        put_limits(files, before, NULL);
    return rc;
}

int alq_files_unprepare(struct alq_files *files, const char *uid, struct alq_err *err)
{
    int rc = remove_files(files, uid, err);
    if (!rc)
        rc = alq_store_remove(files->store, uid, err);
    if (rc)
        return rc;
    alq_store_forget_aside(files->store, uid);
    library_sweep(files, 0);
    return 0;
}

/* ---- sweep ------------------------------------------------------------------------------------
 */

/* The claim's UID of a share directory "<uid>-<index>". */
static int uid_of_share(const char *name, char *uid, size_t size)
{
    const char *dash = strrchr(name, '-');
    size_t n = dash ? (size_t)(dash - name) : 0;
    if (!n || n >= size || !dash[1] || dash[1 + strspn(dash + 1, "0123456789")])
        return -1;
    memcpy(uid, name, n);
    uid[n] = '\0';
    return alq_claim_uid_is_valid(uid) ? 0 : -1;
}

/* The claim's UID of a spec "k8s.<driver>-claim_<uid>.json"; is_ours also for its temporaries. */
static int uid_of_spec(const char *name, const char *prefix, char *uid, size_t size,
                       int *is_temporary)
{
    size_t n = strlen(prefix);
    *is_temporary = name[0] == '.' && !strncmp(name + 1, prefix, n);
    if (*is_temporary)
        return 0;
    const char *dot = strrchr(name, '.');
    if (strncmp(name, prefix, n) != 0 || !dot || strcmp(dot, ".json") != 0 || dot < name + n ||
        (size_t)(dot - name) - n >= size)
        return -1;
    memcpy(uid, name + n, (size_t)(dot - name) - n);
    uid[(size_t)(dot - name) - n] = '\0';
    return 0;
}

/* Whether containers of a claim without a record may run, or be started by the runtime. */
static int may_run(const struct alq_files *files, const char *uid)
{
    char id[ALQ_SHARE_ID_BYTES];
    if (alq_files_is_found(files, uid) || alq_store_is_set_aside(files->store, uid))
        return 1;
    for (uint32_t i = 0; i < ALQ_CLAIM_RESULTS_MAX; i++) {
        alq_share_id_format(uid, i, id);
        if (alq_share_dir_is_in_use(files->cfg, id))
            return 1;
    }
    return 0;
}

/* Keeps in mind that the claim's files are not to be removed, and tells its promise, out of its
 * control files. */
static void keep(struct alq_files *files, const struct alq_files_sweeper *sweeper, const char *uid)
{
    struct alq_share_spec shares[ALQ_CLAIM_RESULTS_MAX];
    char unknown[] = "";
    struct alq_claim_spec claim = {.name = unknown, .pool = unknown, .shares = shares};
    char(*more)[UID_BYTES];
    if (alq_files_is_found(files, uid))
        return;
    snprintf(claim.uid, sizeof(claim.uid), "%s", uid);
    for (uint32_t i = 0; i < ALQ_CLAIM_RESULTS_MAX; i++) {
        char id[ALQ_SHARE_ID_BYTES];
        alq_share_id_format(uid, i, id);
        if (alq_share_dir_read(files->cfg, id, &shares[claim.share_count]))
            continue;
        shares[claim.share_count++].index = i;
    }
    alq_warn(ALQ_LOG_KV({"uid", uid}),
             "claim without a record may be in use: its files stay, and what they promise counts");
    if (claim.share_count)
        sweeper->on_found(sweeper->arg, &claim);
    more = realloc(files->found, (files->found_count + 1) * sizeof(*more));
    if (!more)
        return; /* the next Prepare makes its files anew */
    files->found = more;
    snprintf(more[files->found_count++], sizeof(*more), "%s", uid);
}

/* Whether the claim's files stay. */
static int is_accounted_for(struct alq_files *files, const struct alq_files_sweeper *sweeper,
                            const char *uid)
{
    if (sweeper->is_kept(sweeper->arg, uid))
        return 1;
    if (!may_run(files, uid))
        return 0;
    keep(files, sweeper, uid);
    return 1;
}

static void sweep_shares(struct alq_files *files, const struct alq_files_sweeper *sweeper)
{
    alq_auto_free char *root = alq_share_root(files->cfg);
    alq_auto_closedir DIR *dir = root ? opendir(root) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char uid[64];
        struct alq_err err = ALQ_ERR_INIT;
        if (uid_of_share(entry->d_name, uid, sizeof(uid)) || is_accounted_for(files, sweeper, uid))
            continue;
        if (alq_share_dir_remove(files->cfg, entry->d_name, &err))
            alq_warn(ALQ_LOG_KV({"share", entry->d_name}), "orphan stays: %s", err.text);
        else
            alq_info(ALQ_LOG_KV({"share", entry->d_name}), "orphan share directory removed");
    }
}

static void sweep_specs(struct alq_files *files, const struct alq_files_sweeper *sweeper)
{
    alq_auto_free char *prefix = alq_str_printf("k8s.%s-claim_", files->cfg->driver_name);
    alq_auto_closedir DIR *dir = opendir(files->cfg->cdi_dir);
    for (struct dirent *entry; dir && prefix && (entry = readdir(dir));) {
        char uid[64];
        int is_temporary;
        if (uid_of_spec(entry->d_name, prefix, uid, sizeof(uid), &is_temporary) ||
            (!is_temporary && is_accounted_for(files, sweeper, uid)))
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) && errno != ENOENT)
            alq_warn(ALQ_LOG_KV({"file", entry->d_name}), "orphan stays: %s", strerror(errno));
        else
            alq_info(ALQ_LOG_KV({"file", entry->d_name}), "orphan CDI spec removed");
    }
}

static void sweep_temporaries(const char *dir)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_sweep_temporaries(dir, &err) < 0 && err.code != ALQ_ENOENT)
        alq_warn(NULL, "%s", err.text);
}

void alq_files_sweep(struct alq_files *files, const struct alq_files_sweeper *sweeper)
{
    sweep_shares(files, sweeper);
    sweep_specs(files, sweeper);
    sweep_temporaries(files->cfg->host_lib_dir);
    library_sweep(files, 1);
}

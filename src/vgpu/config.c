/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/config.h"

#include "vgpu/arith.h"
#include "vgpu/log.h"
#include "vgpu/sys.h"
#include "vgpu/text.h"

/* Weak: absent in a process without libc's. */
extern char **environ __attribute__((weak));

#define ENOMEM_ 12
#define ENOTDIR_ 20
#define EINVAL_ 22
#define EBADMSG_ 74

static _Atomic uint32_t said_broken, said_private, said_again;

static void say_broken(const char *what, const char *which, const char *why)
{
    struct alq_line line;
    alq_log_begin(&line, ALQ_LOG_ERROR);
    alq_text_add(&line.text, what);
    alq_text_add(&line.text, which);
    alq_text_add(&line.text, why);
    alq_text_add(&line.text, "; GPU use is refused");
    alq_log_end_always(&line, &said_broken);
}

static const char *why_of(int rc)
{
    return rc == -1     ? "operation not permitted"
           : rc == -2   ? "no such file"
           : rc == -4   ? "interrupted by signals again and again"
           : rc == -11  ? "another process does not let go of it"
           : rc == -12  ? "out of memory"
           : rc == -13  ? "permission denied"
           : rc == -19  ? "cannot be mapped"
           : rc == -20  ? "not a directory"
           : rc == -22  ? "not a usage file of this version, or damaged"
           : rc == -23  ? "too many open files in the system"
           : rc == -24  ? "too many open files"
           : rc == -28  ? "no space left for it"
           : rc == -30  ? "read-only file system"
           : rc == -122 ? "disk quota exceeded"
                        : NULL;
}

static void say_why(unsigned level, const char *path, int rc, const char *then,
                    _Atomic uint32_t *said)
{
    const char *why = why_of(rc);
    struct alq_line line;

    alq_log_begin(&line, level);
    alq_text_add(&line.text, path);
    alq_text_add(&line.text, why ? ": " : ": errno ");
    if (why)
        alq_text_add(&line.text, why);
    else
        alq_text_add_u64(&line.text, (uint64_t)-rc);
    alq_text_add(&line.text, then);
    alq_log_end_always(&line, said);
}

void alq_config_say_again(const char *path, int rc)
{
    say_why(ALQ_LOG_ERROR, path, rc, "; GPU use is refused as long as this lasts", &said_again);
}

int alq_config_go_private(const struct alq_config *config, struct alq_file *file, const char *path,
                          int rc)
{
    say_why(ALQ_LOG_WARN, path, rc,
            "; the limit holds for each process by itself, not for all together", &said_private);
    return alq_usage_make_private(file, config->is_env ? ALQ_SECTIONS_MAX : ALQ_SECTION_HOST + 1);
}

void alq_config_find_sections(const struct alq_config *config, struct alq_share *share)
{
    share->section = alq_file_section(share->file, share->section_index);
    share->host_section =
        !config->is_env && alq_file_header(share->file)->section_count > ALQ_SECTION_HOST
            ? alq_file_section(share->file, ALQ_SECTION_HOST)
            : NULL;
}

/* ---- share directories ----------------------------------------------------------------------- */

static int map_control(struct alq_share *share, const char *path)
{
    int fd = alq_sys_open(path, O_RDONLY, 0);
    if (fd < 0)
        return fd;
    void *at = NULL;
    int rc = -EBADMSG_;
    if (alq_sys_size(fd) >= (int64_t)ALQ_CONTROL_BYTES)
        rc = alq_sys_map(ALQ_CONTROL_BYTES, ALQ_PROT_READ, ALQ_MAP_SHARED, fd, &at);
    alq_sys_close(fd);
    if (rc)
        return rc;
    const struct alq_control *control = at;
    if (__atomic_load_n(&control->magic, __ATOMIC_ACQUIRE) != ALQ_CONTROL_MAGIC ||
        control->version != ALQ_SHARE_VERSION || control->bytes != ALQ_CONTROL_BYTES ||
        control->gpu_uuid[ALQ_UUID_BYTES - 1] != '\0' || control->gpu_uuid[0] == '\0')
        return -EBADMSG_;
    share->control = control;
    struct alq_text uuid = alq_text_on(share->uuid, sizeof(share->uuid));
    alq_text_add(&uuid, control->gpu_uuid);
    return 0;
}

int alq_config_open_share(struct alq_config *config, const char *root, const char *id)
{
    char path[ALQ_PATH_BYTES];
    struct alq_text text = alq_text_on(path, sizeof(path));
    uint32_t count = atomic_load_explicit(&config->share_count, memory_order_relaxed), at = count;
    struct alq_share share = {.section_index = 0};
    struct alq_text name = alq_text_on(share.id, sizeof(share.id));

    if (count == ALQ_SHARES_MAX)
        return -EINVAL_;
    alq_text_add(&name, id);
    alq_text_add(&text, root);
    alq_text_add(&text, "/");
    alq_text_add(&text, id);
    size_t directory = text.len;
    alq_text_add(&text, "/control");
    if (text.is_cut || name.is_cut)
        return -EINVAL_;
    int rc = map_control(&share, path);
    if (rc)
        return rc;
    text.len = directory;
    alq_text_add(&text, "/usage");
    share.file = &config->files[config->file_count++];
    rc = alq_usage_map(share.file, path);
    if (alq_usage_may_pass(rc)) {
        alq_sys_munmap((void *)(uintptr_t)share.control, ALQ_CONTROL_BYTES);
        config->file_count--;
        return rc;
    }
    if (rc) {
        rc = alq_config_go_private(config, share.file, path, rc);
        if (rc)
            return rc;
    }
    alq_config_find_sections(config, &share);

    /* Ascending by id: every process charges the shares of a device in the same order. */
    for (; at > 0; at--) {
        const char *a = config->shares[at - 1].id, *b = share.id;
        while (*a && *a == *b)
            a++, b++;
        if ((unsigned char)*a <= (unsigned char)*b)
            break;
        config->shares[at] = config->shares[at - 1];
    }
    config->shares[at] = share;
    atomic_store_explicit(&config->share_count, count + 1, memory_order_relaxed);
    return 0;
}

struct dirent64 {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

/* Asked without a descriptor, which may be what is lacking. */
static bool is_missing(const char *path)
{
    char text[1];
    long rc = alq_sys_readlink(path, text, sizeof(text));
    return rc == -ALQ_ENOENT || rc == -ENOTDIR_;
}

/* True when the root held a share, good or bad; bad is told by *broken or config->again. */
static bool find_shares(struct alq_config *config, const char *root, bool *broken)
{
    uint64_t buffer[512];
    long n;
    bool any = false;
    int fd = alq_sys_open(root, O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0) {
        if (fd == -ALQ_ENOENT || fd == -ENOTDIR_ || is_missing(root))
            return false;
        if (alq_usage_may_pass(fd)) {
            config->again = fd;
            alq_config_say_again(root, fd);
            return true;
        }
        say_broken("", root, " cannot be read");
        *broken = true;
        return true;
    }
    while ((n = alq_sys_getdents(fd, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; at < n;) {
            const struct dirent64 *entry =
                (const struct dirent64 *)(const void *)((const char *)buffer + at);
            at += entry->bytes;
            if (entry->name[0] == '.')
                continue;
            any = true;
            int rc = alq_config_open_share(config, root, entry->name);
            if (alq_usage_may_pass(rc)) {
                config->again = rc;
                alq_config_say_again(root, rc);
            } else if (rc) {
                say_broken("share ", entry->name,
                           ": its control file is missing, damaged or of another version");
                *broken = true;
            }
        }
    }
    alq_sys_close(fd);
    return any;
}

/* ---- environment ----------------------------------------------------------------------------- */

/* The shared file, the same beside a foreign one, or memory of our own. */
static int open_env_file(struct alq_config *config)
{
    char path[ALQ_PATH_BYTES];
    struct alq_text text = alq_text_on(path, sizeof(path));
    struct alq_file *file = &config->files[0];

    config->file_count = 1;
    int rc = alq_usage_map_or_make(file, config->env.usage_path, ALQ_SECTIONS_MAX);
    if (rc == 0)
        return 0;
    if (alq_usage_may_pass(rc)) {
        config->again = rc;
        alq_config_say_again(config->env.usage_path, rc);
        return rc;
    }
    if (rc == -EINVAL_) {
        alq_text_add(&text, config->env.usage_path);
        alq_text_add(&text, ".aliquot");
        if (!text.is_cut)
            rc = alq_usage_map_or_make(file, path, ALQ_SECTIONS_MAX);
        if (rc == 0)
            return 0;
    }
    return alq_config_go_private(config, file, config->env.usage_path, rc);
}

/* The file remembers the first limit that a process brought: a later, larger one does not count. */
static uint64_t remembered(uint64_t *word, uint64_t limit)
{
    uint64_t have = 0;
    if (__atomic_compare_exchange_n(word, &have, limit, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return limit;
    return alq_min(have, limit);
}

struct alq_share *alq_config_env_share(struct alq_config *config, const char *uuid, uint32_t index)
{
    uint32_t count = atomic_load_explicit(&config->share_count, memory_order_relaxed);
    uint32_t place = index < ALQ_ENV_DEVICES ? index : ALQ_ENV_DEVICES;
    uint64_t memory = config->env.memory_bytes[place];
    uint32_t compute = config->env.compute_pct[place];

    for (uint32_t i = 0; i < count; i++)
        if (alq_text_is_uuid(config->shares[i].uuid, uuid))
            return &config->shares[i];
    if (memory == 0 && (compute == 0 || config->env.policy == ALQ_POLICY_NONE))
        return NULL;
    struct alq_control *control = count < ALQ_SHARES_MAX ? alq_sys_anon(ALQ_CONTROL_BYTES) : NULL;
    int section = control                  ? alq_usage_claim_section(&config->files[0], uuid)
                  : count < ALQ_SHARES_MAX ? -ENOMEM_
                                           : -EINVAL_;
    if (control && section < 0)
        alq_sys_munmap(control, ALQ_CONTROL_BYTES);
    if (alq_usage_may_pass(section)) {
        config->again = section;
        alq_config_say_again(config->files[0].path, section);
        return NULL;
    }
    if (section < 0) {
        say_broken("device ", uuid, ": no section of the usage file is left for its limit");
        config->is_refused = true;
        return NULL;
    }
    struct alq_share *share = &config->shares[count];
    *share = (struct alq_share){
        .control = control, .file = &config->files[0], .section_index = (uint32_t)section};
    alq_config_find_sections(config, share);
    struct alq_text id = alq_text_on(share->id, sizeof(share->id));
    alq_text_add(&id, "env");
    struct alq_text text = alq_text_on(share->uuid, sizeof(share->uuid));
    alq_text_add(&text, uuid);

    struct alq_control_values *values = &control->values[0];
    values->memory_limit_bytes =
        remembered(&share->section->memory_limit_bytes, memory ? memory : UINT64_MAX);
    values->context_estimate_bytes = config->env.context_bytes;
    values->compute_limit_pct = compute ? compute : 100;
    values->policy = compute ? config->env.policy : ALQ_POLICY_NONE;
    values->priority = config->env.priority;
    values->time_correction_ppm = ALQ_TIME_CORRECTION_ONE;
    values->log_level = config->env.log_level;
    control->version = ALQ_SHARE_VERSION;
    control->bytes = ALQ_CONTROL_BYTES;
    control->magic = ALQ_CONTROL_MAGIC;
    __atomic_store_n(&share->section->compute_limit_pct, values->compute_limit_pct,
                     __ATOMIC_RELAXED);
    atomic_store_explicit(&config->share_count, count + 1, memory_order_release);
    return share;
}

/* As it was before anything was found. */
static void forget(struct alq_config *config)
{
    uint32_t count = atomic_load_explicit(&config->share_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++)
        alq_sys_munmap((void *)(uintptr_t)config->shares[i].control, ALQ_CONTROL_BYTES);
    for (uint32_t i = 0; i < config->file_count; i++)
        if (config->files[i].base)
            alq_sys_munmap(config->files[i].base, config->files[i].bytes);
    __builtin_memset(config->files, 0, sizeof(config->files));
    atomic_store_explicit(&config->share_count, 0, memory_order_relaxed);
    config->file_count = 0;
}

static uint32_t find(struct alq_config *config)
{
    bool broken = false;

    /* A program with more rights than its caller does not do the caller's bidding. */
    alq_env_read(&environ && !alq_sys_is_privileged() ? environ : NULL, &config->env);
    alq_log_level = config->env.log_level;
    if (find_shares(config, ALQ_SHARE_ROOT, &broken) ||
        (config->env.share_root && find_shares(config, config->env.share_root, &broken))) {
        if (!broken && config->share_count && alq_control_now(&config->shares[0])->log_level)
            alq_log_level = alq_control_now(&config->shares[0])->log_level;
        return broken ? ALQ_MODE_BROKEN : ALQ_MODE_LIMITED;
    }
    if (config->env.bad_name) {
        struct alq_line line;
        alq_log_begin(&line, ALQ_LOG_ERROR);
        alq_text_add_n(&line.text, config->env.bad_name, config->env.bad_name_len);
        alq_text_add(&line.text, "=");
        alq_text_add_n(
            &line.text, config->env.bad_value,
            64 < alq_text_len(config->env.bad_value) ? 64 : alq_text_len(config->env.bad_value));
        alq_text_add(&line.text,
                     config->env.bad_index
                         ? ": devices are numbered 0 to 15; GPU use is refused"
                         : " cannot be read as an amount (like 4Gi, 4096m, 1.5G or bytes; 30 for "
                           "percent); GPU use is refused");
        alq_log_end_always(&line, &said_broken);
        return ALQ_MODE_BROKEN;
    }
    if (!config->env.has_limits)
        return ALQ_MODE_NONE;
    config->is_env = true;
    return open_env_file(config) ? ALQ_MODE_BROKEN : ALQ_MODE_LIMITED;
}

uint32_t alq_config_find(struct alq_config *config)
{
    config->again = 0;
    uint32_t mode = find(config);
    if (config->again == 0)
        return mode;
    forget(config);
    return ALQ_MODE_UNKNOWN;
}

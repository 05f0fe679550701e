/* SPDX-License-Identifier: Apache-2.0 */
/* Reads usage files, see usage.h. */
#include "daemon/monitor/usage.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PATH_BYTES 4352
#define FILE_BYTES_MAX ((off_t)ALQ_USAGE_BYTES(ALQ_SECTION_HOST + 1))
#define BYTES_MAX (1ull << 50)     /* no slot and no share holds more than a pebibyte */
#define COUNT_MAX (1ull << 62)     /* of counters, and of nanoseconds */
#define BUDGET_NS 5000000          /* for the locks of one file */
#define CACHE_BYTES_MAX (4u << 20) /* of hami.cache; HAMi-core's own is 2 MB */

static const char truncated[] = "truncated";
static const char defaced[] = "header defaced";
static const char implausible[] = "number out of range";
static const char unreadable[] = "not readable";
static const char flooded[] = "too many locks";

/* ---- judging ----------------------------------------------------------------------------------
 */

const char *alq_usage_judge(const void *head, struct alq_usage *usage)
{
    struct alq_counters *counters = &usage->counters;
    struct alq_usage_header header;
    const char *section = (const char *)head + ALQ_USAGE_HEADER_BYTES;
    memcpy(&header, head, sizeof(header));
    memcpy(counters, section + offsetof(struct alq_usage_section, counters), sizeof(*counters));
    memcpy(usage->refused, section + offsetof(struct alq_usage_section, refused),
           sizeof(usage->refused));
    if (header.magic != ALQ_USAGE_MAGIC || header.version != ALQ_SHARE_VERSION ||
        header.header_bytes != ALQ_USAGE_HEADER_BYTES ||
        header.section_bytes != sizeof(struct alq_usage_section) || header.section_count == 0 ||
        header.section_count > ALQ_SECTION_HOST + 1 || header.slot_count != ALQ_SLOTS ||
        header.slot_bytes != sizeof(struct alq_slot) || header.slot_high > ALQ_SLOTS)
        return defaced;
    if (counters->refusals > COUNT_MAX || counters->allocations > COUNT_MAX ||
        counters->launches > COUNT_MAX || counters->charged_ns > COUNT_MAX ||
        counters->throttled_ns > COUNT_MAX || counters->unknown_entries > COUNT_MAX ||
        counters->last_activity_ns > COUNT_MAX || counters->peak_bytes > BYTES_MAX)
        return implausible;
    for (unsigned i = 0; i < ALQ_FAMILY_COUNT; i++)
        if (usage->refused[i] > COUNT_MAX)
            return implausible;
    return NULL;
}

const char *alq_usage_add_slot(const struct alq_slot *slot, const struct alq_slot *host,
                               struct alq_usage *usage)
{
    uint64_t spilled = host ? host->counted_bytes : 0;

    if (slot->counted_bytes > BYTES_MAX || slot->overhead_bytes > BYTES_MAX ||
        usage->counted_bytes + slot->counted_bytes > BYTES_MAX ||
        usage->overhead_bytes + slot->overhead_bytes > BYTES_MAX || spilled > BYTES_MAX ||
        usage->spilled_bytes + spilled > BYTES_MAX)
        return implausible;
    usage->processes++;
    usage->counted_bytes += slot->counted_bytes;
    usage->overhead_bytes += slot->overhead_bytes;
    usage->spilled_bytes += spilled;
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

/* What this thread has cost: the kernel walks the locks of a file on our account. */
static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static const char *read_slot(int fd, uint32_t sections, uint32_t number, struct alq_usage *usage)
{
    struct alq_slot slot[ALQ_SECTION_HOST + 1];
    for (uint32_t i = 0; i < sections; i++) {
        const off_t at = (off_t)ALQ_USAGE_HEAD_BYTES +
                         (off_t)i * (off_t)sizeof(struct alq_usage_section) +
                         (off_t)number * (off_t)sizeof(slot[i]);
        if (pread(fd, &slot[i], sizeof(slot[i]), at) != (ssize_t)sizeof(slot[i]))
            return truncated;
    }
    return alq_usage_add_slot(&slot[ALQ_SECTION_DEVICE],
                              sections > ALQ_SECTION_HOST ? &slot[ALQ_SECTION_HOST] : NULL, usage);
}

/* The kernel names any lock in a range, in no order: its slots are alive, and what is left of the
 * range is asked about again. */
static const char *read_living(int fd, uint32_t sections, uint32_t high, struct alq_usage *usage)
{
    uint8_t is_alive[ALQ_SLOTS] = {0};
    const int64_t limit_ns = cpu_ns() + BUDGET_NS;
    for (uint32_t begin = 0; begin < high;) {
        uint32_t end = begin;
        while (end < high && !is_alive[end])
            end++;
        if (end == begin) {
            begin++;
            continue;
        }
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET,
                             .l_start = begin,
                             .l_len = (off_t)(end - begin)};
        if (fcntl(fd, F_OFD_GETLK, &lock))
            return unreadable;
        if (cpu_ns() > limit_ns)
            return flooded;
        if (lock.l_type == F_UNLCK) {
            begin = end;
            continue;
        }
        const off_t behind = lock.l_len ? lock.l_start + lock.l_len : (off_t)end;
        for (off_t i = lock.l_start > (off_t)begin ? lock.l_start : (off_t)begin;
             i < behind && i < (off_t)end; i++) {
            const char *flaw = read_slot(fd, sections, (uint32_t)i, usage);
            if (flaw)
                return flaw;
            is_alive[i] = 1;
        }
    }
    return NULL;
}

int alq_usage_open(const char *run_dir, const char *share_id, const char *name, int flags)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/shares/%s/%s", run_dir, share_id, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return -1;
    return open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static int open_regular(int dir, const char *name, int access, struct stat *st)
{
    alq_auto_close int fd = openat(dir, name, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) || !S_ISREG(st->st_mode))
        return -1;
    return alq_steal_fd(&fd);
}

static const char *read_file(int dir, struct alq_usage *usage)
{
    char head[ALQ_USAGE_HEAD_BYTES];
    struct alq_usage_header header;
    struct stat st;
    alq_auto_close int fd = open_regular(dir, "usage", O_RDONLY, &st);
    if (fd < 0)
        return unreadable;
    usage->is_oversize =
        st.st_size > FILE_BYTES_MAX ||
        (!fstatat(dir, "hami.cache", &st, AT_SYMLINK_NOFOLLOW) && st.st_size > CACHE_BYTES_MAX);
    if (pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head))
        return truncated;
    const char *flaw = alq_usage_judge(head, usage);
    if (flaw)
        return flaw;
    memcpy(&header, head, sizeof(header));
    return read_living(fd, header.section_count, header.slot_high, usage);
}

void alq_usage_read(int dir, struct alq_usage *usage)
{
    memset(usage, 0, sizeof(*usage));
    const char *flaw = read_file(dir, usage);
    if (flaw)
        *usage = (struct alq_usage){
            .flaw = flaw, .is_slow = flaw == flooded, .is_oversize = usage->is_oversize};
}

static uint64_t cut(int dir, const char *name, off_t most)
{
    struct stat st;
    alq_auto_close int fd = open_regular(dir, name, O_RDWR, &st);
    if (fd < 0 || st.st_size <= most || ftruncate(fd, most))
        return 0;
    return (uint64_t)(st.st_size - most);
}

uint64_t alq_usage_trim(int dir)
{
    return cut(dir, "usage", FILE_BYTES_MAX) + cut(dir, "hami.cache", CACHE_BYTES_MAX);
}

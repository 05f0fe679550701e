/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/usage.h"

#include "vgpu/atomics.h"
#include "vgpu/clock.h"
#include "vgpu/memory/ledger.h"
#include "vgpu/sys.h"
#include "vgpu/text.h"

#define ENOMEM_ 12
#define ENODEV_ 19
#define EINVAL_ 22
#define EEXIST_ 17
#define ENFILE_ 23
#define EMFILE_ 24
#define ENOSPC_ 28
#define EUSERS_ 87
#define EDQUOT_ 122

#define EMPTY_TRIES 100 /* two will do where nobody scribbles */

/* A byte of the file beyond the slots', locked while a section is claimed. */
#define LOCK_BYTE_CLAIM (ALQ_SLOTS + 1)

void alq_usage_format(void *base, uint32_t sections)
{
    struct alq_usage_header *header = base;
    header->version = ALQ_SHARE_VERSION;
    header->header_bytes = ALQ_USAGE_HEADER_BYTES;
    header->section_bytes = sizeof(struct alq_usage_section);
    header->section_count = sections;
    header->slot_count = ALQ_SLOTS;
    header->slot_bytes = sizeof(struct alq_slot);
    __atomic_store_n(&header->magic, ALQ_USAGE_MAGIC, __ATOMIC_RELEASE);
}

bool alq_usage_may_pass(int rc)
{
    return rc == -ALQ_EINTR || rc == -ALQ_EAGAIN || rc == -ENOMEM_ || rc == -ENFILE_ ||
           rc == -EMFILE_;
}

/* 0, -ENOMEM, or -ENODEV: it is not to be had. */
static int map_shared(int fd, uint64_t bytes, void **out)
{
    int rc = alq_sys_map(bytes, ALQ_PROT_READ | ALQ_PROT_WRITE, ALQ_MAP_SHARED, fd, out);
    return rc == 0 || rc == -ENOMEM_ ? rc : -ENODEV_;
}

/* Maps an open file that passes every check; leaves the descriptor open. */
static int map_open(int fd, uint8_t **base, uint64_t *bytes)
{
    struct alq_usage_header header;
    int64_t size = alq_sys_size(fd);

    if (size < (int64_t)ALQ_USAGE_BYTES(1) ||
        alq_sys_pread(fd, &header, sizeof(header), 0) != sizeof(header))
        return -EINVAL_;
    if (header.magic != ALQ_USAGE_MAGIC || header.version != ALQ_SHARE_VERSION ||
        header.header_bytes != ALQ_USAGE_HEADER_BYTES ||
        header.section_bytes != sizeof(struct alq_usage_section) ||
        header.slot_count != ALQ_SLOTS || header.slot_bytes != sizeof(struct alq_slot) ||
        header.section_count == 0 || header.section_count > ALQ_SECTIONS_MAX ||
        (uint64_t)size < ALQ_USAGE_BYTES(header.section_count))
        return -EINVAL_;
    /* A hole that a full file system cannot fill would be a SIGBUS at the first store. */
    uint64_t made_bytes = ALQ_USAGE_BYTES(header.section_count); /* the file may be longer */
    int rc = alq_sys_fallocate(fd, made_bytes);
    if (rc == -ENOSPC_ || rc == -EDQUOT_ || alq_usage_may_pass(rc))
        return rc;
    void *at = NULL;
    rc = map_shared(fd, made_bytes, &at);
    if (rc)
        return rc;
    *base = at;
    *bytes = made_bytes;
    return 0;
}

int alq_usage_map(struct alq_file *file, const char *path)
{
    struct alq_text text = alq_text_on(file->path, sizeof(file->path));
    int fd = alq_sys_open(path, O_RDWR, 0);

    if (fd < 0)
        return fd;
    alq_text_add(&text, path);
    atomic_store_explicit(&file->slot, ALQ_NO_SLOT, memory_order_relaxed);
    file->is_private = false;
    int rc = text.is_cut ? -EINVAL_ : map_open(fd, &file->base, &file->bytes);
    alq_sys_close(fd);
    return rc;
}

/* A complete file under a name of its own beside `path`, then linked to it: nobody sees half a
 * file, and the first one wins. */
static int make(const char *path, uint32_t sections)
{
    char name[ALQ_PATH_BYTES];
    struct alq_text text = alq_text_on(name, sizeof(name));
    uint64_t bytes = ALQ_USAGE_BYTES(sections);
    int rc = 0;

    alq_text_add(&text, path);
    alq_text_add(&text, ".");
    alq_text_add_u64(&text, alq_sys_getpid());
    alq_text_add(&text, ".");
    alq_text_add_u64(&text, alq_clock_ns());
    if (text.is_cut)
        return -EINVAL_;
    int fd = alq_sys_open(name, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return fd;
    alq_sys_fchmod(fd, 0666); /* processes of other users share it, whatever the umask */
    rc = alq_sys_fallocate(fd, bytes);
    if (rc == 0) {
        void *base = NULL;
        rc = map_shared(fd, bytes, &base);
        if (rc == 0) {
            alq_usage_format(base, sections);
            alq_sys_munmap(base, bytes);
            rc = alq_sys_link(name, path);
            if (rc == -EEXIST_)
                rc = 0;
        }
    }
    alq_sys_close(fd);
    alq_sys_unlink(name);
    return rc;
}

int alq_usage_map_or_make(struct alq_file *file, const char *path, uint32_t sections)
{
    int rc = alq_usage_map(file, path);
    if (rc != -ALQ_ENOENT)
        return rc;
    rc = make(path, sections);
    return rc ? rc : alq_usage_map(file, path);
}

/* The header is in the tenant's hands: never more than the mapping holds. */
static uint32_t section_count(const struct alq_file *file)
{
    uint32_t count = alq_file_header(file)->section_count;
    uint64_t fit = (file->bytes - ALQ_USAGE_HEADER_BYTES) / sizeof(struct alq_usage_section);
    if (fit > ALQ_SECTIONS_MAX)
        fit = ALQ_SECTIONS_MAX;
    return count < fit ? count : (uint32_t)fit;
}

int alq_usage_make_private(struct alq_file *file, uint32_t sections)
{
    uint64_t bytes = ALQ_USAGE_BYTES(sections);
    struct alq_file was = {.base = file->base, .bytes = file->bytes};
    void *base = alq_sys_anon(bytes);
    if (!base)
        return -ENOMEM_;
    alq_usage_format(base, sections);
    file->base = base;
    for (uint32_t i = 0; was.base && i < sections && i < section_count(&was); i++)
        __builtin_memcpy(alq_file_section(file, i), alq_file_section(&was, i),
                         offsetof(struct alq_usage_section, total)); /* whose it is, its limits */
    file->bytes = bytes;
    file->is_private = true;
    atomic_store_explicit(&file->slot, ALQ_NO_SLOT, memory_order_relaxed);
    return 0;
}

/* Raises the mark below which used slots lie. */
static void raise_high(struct alq_usage_header *header, uint32_t slot)
{
    uint32_t high = __atomic_load_n(&header->slot_high, __ATOMIC_RELAXED);
    while (high < slot + 1 &&
           !__atomic_compare_exchange_n(&header->slot_high, &high, slot + 1, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}

static uint32_t high_of(const struct alq_file *file)
{
    uint32_t high = __atomic_load_n(&alq_file_header(file)->slot_high, __ATOMIC_RELAXED);
    return high < ALQ_SLOTS ? high : ALQ_SLOTS;
}

uint64_t alq_usage_pid_namespace(void)
{
    char text[64];
    const char *at = text;
    uint64_t inode = 0;
    long n = alq_sys_readlink("/proc/self/ns/pid", text, sizeof(text) - 1); /* "pid:[4026531836]" */
    if (n <= 0)
        return 0;
    text[n] = '\0';
    while (*at && *at != '[')
        at++;
    if (*at == '[')
        at++;
    return alq_text_read_u64(&at, &inode) ? inode : 0;
}

/* Of who has the slot's lock; beside reapers, which may each make one of its operations. */
static void empty(struct alq_usage_section *section, uint32_t slot)
{
    struct alq_pair seen = alq_ledger_look(section, slot);
    for (int i = 0; seen.value && i < EMPTY_TRIES; i++) {
        alq_ledger_bury(section, slot, seen, false);
        seen = alq_ledger_look(section, slot);
    }
}

static void introduce(struct alq_file *file, uint32_t slot)
{
    uint64_t inode = alq_usage_pid_namespace(), now = alq_clock_boottime_ns();
    for (uint32_t i = 0, n = section_count(file); i < n; i++) {
        struct alq_slot *s = &alq_file_section(file, i)->slots[slot];
        empty(alq_file_section(file, i), slot);
        alq_ledger_forget(alq_file_section(file, i), slot);
        __atomic_store_n(&s->pid_ns_inode, inode, __ATOMIC_RELAXED);
        __atomic_store_n(&s->started_ns, now, __ATOMIC_RELAXED);
        __atomic_store_n(&s->busy_turn, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&s->pid, alq_sys_getpid(), __ATOMIC_RELAXED);
    }
}

/* Whether a living process has something open; fd: a description that locks nothing but our own
 * slot. */
static bool has_imports(const struct alq_file *file, uint32_t section, int fd)
{
    const struct alq_slot *slots = alq_file_section(file, section)->slots;
    uint32_t own = atomic_load_explicit(&file->slot, memory_order_relaxed);

    for (uint32_t slot = 0, high = high_of(file); slot < high; slot++)
        if (__atomic_load_n(&slots[slot].imports, __ATOMIC_RELAXED) &&
            (slot == own || !alq_sys_ofd_is_free(fd, slot)))
            return true;
    return false;
}

bool alq_usage_has_imports(const struct alq_file *file, uint32_t section)
{
    bool found = true; /* where the file cannot be asked, memory stays charged */

    if (file->is_private)
        return alq_file_section(file, section)->slots[0].imports != 0;
    int fd = alq_sys_open(file->path, O_RDWR, 0);
    if (fd >= 0) {
        found = has_imports(file, section, fd);
        alq_sys_close(fd);
    }
    return found;
}

/* A dead process's slot that holds memory which others have open. */
static bool is_kept(const struct alq_file *file, uint32_t slot, int fd)
{
    for (uint32_t i = 0, n = section_count(file); i < n; i++) {
        const struct alq_usage_section *section = alq_file_section(file, i);
        if (__atomic_load_n(&section->slots[slot].exported_bytes, __ATOMIC_RELAXED) &&
            alq_ledger_held(section, slot) && has_imports(file, i, fd))
            return true;
    }
    return false;
}

int alq_usage_attach(struct alq_file *file)
{
    uint8_t *base;
    uint64_t bytes;

    if (file->is_private) { /* a fork child's copy is its own: what its parent holds is taken out */
        raise_high(alq_file_header(file), 0);
        introduce(file, 0);
        atomic_store_explicit(&file->slot, 0, memory_order_release);
        return 0;
    }
    int fd = alq_sys_open(file->path, O_RDWR, 0), rc = -EUSERS_;
    if (fd < 0)
        return fd;
    for (uint32_t slot = 0; slot < ALQ_SLOTS; slot++) {
        rc = alq_sys_ofd_lock(fd, slot);
        if (rc == -ALQ_EAGAIN || (rc == 0 && is_kept(file, slot, fd))) {
            if (rc == 0)
                alq_sys_ofd_unlock(fd, slot);
            rc = -EUSERS_;
            continue;
        }
        if (rc == 0 && (rc = map_open(fd, &base, &bytes)) == 0) {
            file->base = base;
            file->bytes = bytes;
            raise_high(alq_file_header(file), slot);
            introduce(file, slot);
            atomic_store_explicit(&file->slot, slot, memory_order_release);
        }
        break;
    }
    alq_sys_close(fd); /* the mapping keeps the lock */
    return rc;
}

/* Bytes that a slot holds, or may hold by an operation that is in the sum alone. */
static bool is_occupied(const struct alq_file *file, uint32_t slot)
{
    for (uint32_t i = 0, n = section_count(file); i < n; i++) {
        const struct alq_usage_section *section = alq_file_section(file, i);
        uint64_t tag = __atomic_load_n(&section->total.tag, __ATOMIC_RELAXED);
        const struct alq_pair *done = &section->slots[slot].done;
        if (__atomic_load_n(&done->value, __ATOMIC_RELAXED) ||
            (tag && tag >> 48 == slot &&
             __atomic_load_n(&done->tag, __ATOMIC_RELAXED) != (tag & ((1ull << 48) - 1))))
            return true;
    }
    return false;
}

bool alq_usage_has_others(const struct alq_file *file)
{
    uint32_t own = atomic_load_explicit(&file->slot, memory_order_relaxed);
    if (file->is_private)
        return false;
    for (uint32_t slot = 0, high = high_of(file); slot < high; slot++)
        if (slot != own && is_occupied(file, slot))
            return true;
    return false;
}

/*
 * The owner is dead when nobody has the slot's lock. No lock is needed to give its bytes back, so a
 * reaper that is stopped keeps nobody from them; for the figures the slot is gripped for a moment.
 */
static bool bury(struct alq_file *file, int fd, uint32_t slot)
{
    uint64_t held = 0;
    uint32_t sections = section_count(file);
    struct alq_pair seen[ALQ_SECTIONS_MAX];

    for (uint32_t i = 0; i < sections; i++)
        seen[i] = alq_ledger_look(alq_file_section(file, i), slot);
    if (!alq_sys_ofd_is_free(fd, slot))
        return false;
    for (uint32_t i = 0; i < sections; i++) {
        struct alq_usage_section *section = alq_file_section(file, i);
        bool keeps = section->slots[slot].exported_bytes && has_imports(file, i, fd);
        held += alq_ledger_bury(section, slot, seen[i], keeps);
    }
    if (alq_sys_ofd_lock(fd, slot) == 0) {
        for (uint32_t i = 0; i < sections; i++)
            alq_ledger_forget(alq_file_section(file, i), slot);
        alq_sys_ofd_unlock(fd, slot);
    }
    return held != 0;
}

uint32_t alq_usage_reap(struct alq_file *file)
{
    uint32_t own = atomic_load_explicit(&file->slot, memory_order_relaxed), found = 0;

    if (!alq_usage_has_others(file))
        return 0;
    int fd = alq_sys_open(file->path, O_RDWR,
                          0); /* a description of its own: OFD locks exclude only others */
    if (fd < 0)
        return 0;
    for (uint32_t slot = 0, high = high_of(file); slot < high; slot++)
        found += slot != own && is_occupied(file, slot) && bury(file, fd, slot);
    alq_sys_close(fd);
    return found;
}

/* Waits its turn for up to a second: a stopped process may have the lock; a dead one's is gone. */
static bool take_turn(int fd, uint64_t byte)
{
    for (int i = 0; i < 1000; i++) {
        if (alq_sys_ofd_lock(fd, byte) == 0)
            return true;
        alq_sys_sleep_ns(1000000);
    }
    return false;
}

/* The start of a UUID, by one who died writing it, or nothing: free. */
static bool is_unclaimed(const char have[ALQ_UUID_BYTES], const char *uuid)
{
    size_t n = 0;
    while (n < ALQ_UUID_BYTES && have[n] && have[n] == uuid[n])
        n++;
    return n < ALQ_UUID_BYTES && have[n] == '\0' && uuid[n] != '\0';
}

int alq_usage_claim_section(struct alq_file *file, const char *uuid)
{
    int found = -ENOSPC_, fd = -1;

    if (!file->is_private) {
        fd = alq_sys_open(file->path, O_RDWR, 0);
        if (fd < 0)
            return fd;
        if (!take_turn(fd, LOCK_BYTE_CLAIM)) {
            alq_sys_close(fd);
            return -ALQ_EAGAIN;
        }
    }
    for (uint32_t i = 0, n = section_count(file); i < n && found < 0; i++) {
        struct alq_usage_section *section = alq_file_section(file, i);
        if (is_unclaimed(section->gpu_uuid, uuid)) {
            struct alq_text text = alq_text_on(section->gpu_uuid, sizeof(section->gpu_uuid));
            alq_text_add(&text, uuid);
        }
        char have[ALQ_UUID_BYTES];
        for (size_t c = 0; c < sizeof(have); c++)
            have[c] = section->gpu_uuid[c];
        have[sizeof(have) - 1] = '\0';
        if (alq_text_is_uuid(have, uuid))
            found = (int)i;
    }
    if (fd >= 0)
        alq_sys_close(fd);
    return found;
}

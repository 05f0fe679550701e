/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault rules of fault.h as a client applies them. The page is fetched once per process, and again
 * by a fork child, whose number is another.
 */
#include "client/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "client/entries.h"

#define FRAMES_MAX 64

/* Not the newest: the library has to load where glibc is old. */
#if defined(__x86_64__)
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
#else
__asm__(".symver dladdr, dladdr@GLIBC_2.17");
#endif

#define ALL_ONES_16 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
#define ALL_ONES_128                                                                               \
    ALL_ONES_16, ALL_ONES_16, ALL_ONES_16, ALL_ONES_16, ALL_ONES_16, ALL_ONES_16, ALL_ONES_16,     \
        ALL_ONES_16

static_assert(SIM_MAX_ENTRIES == 6 * 128, "unopened covers every entry");

/* Before the page is there every entry comes here; without a simgpud none does. */
static const _Atomic uint8_t unopened[SIM_MAX_ENTRIES] = {ALL_ONES_128, ALL_ONES_128, ALL_ONES_128,
                                                          ALL_ONES_128, ALL_ONES_128, ALL_ONES_128};
static const _Atomic uint8_t nothing[SIM_MAX_ENTRIES];

const _Atomic uint8_t *sim_entries_armed = unopened;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_control *_Atomic page;
static _Atomic uint32_t page_pid; /* this process, as simgpud sees it */
static pid_t page_owner;          /* who asked */

static void lead_to(const _Atomic uint8_t *armed)
{
    __atomic_store_n(&sim_entries_armed, armed, __ATOMIC_RELEASE);
}

struct sim_control *sim_control_page(void)
{
    return atomic_load_explicit(&page, memory_order_acquire);
}

struct sim_control *sim_control_adopt(struct sim_control *control, uint32_t pid)
{
    struct sim_control *old = sim_control_page();

    if (old && old != control && old->identity == control->identity) {
        munmap(control, sizeof(*control));
        control = old;
    }
    atomic_store(&page_pid, pid);
    atomic_store_explicit(&page, control, memory_order_release);
    lead_to(control->armed[sim_library]);
    return control;
}

static struct sim_control *fetch(void)
{
    struct sim_control *control;
    uint32_t pid;

    pthread_mutex_lock(&lock);
    if (page_owner != getpid()) {
        page_owner = getpid();
        if (sim_control_fetch(&control, &pid) == 0)
            sim_control_adopt(control, pid);
        else if (!sim_control_page())
            lead_to(nothing);
    }
    pthread_mutex_unlock(&lock);
    return sim_control_page();
}

static bool object_matches(const void *address, const char *part)
{
    Dl_info info;

    return dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, part);
}

static bool is_own_call(const char *object, const void *caller, uint32_t index)
{
    void *frames[FRAMES_MAX], *outermost = (void *)(uintptr_t)caller;
    int count = backtrace(frames, FRAMES_MAX), i = 0;
    Dl_info info;

    if (!object_matches(caller, object))
        return false;
    while (i < count && frames[i] != caller)
        i++;
    for (; i < count && object_matches((char *)frames[i] - 1, object); i++)
        outermost = frames[i];
    return !dladdr((char *)outermost - 1, &info) || !info.dli_sname ||
           strcmp(info.dli_sname, sim_entry_names[index]) != 0;
}

static bool rule_matches(const struct sim_fault_rule *r, uint32_t index, const void *caller)
{
    const char *group = getenv("SIMGPU_GROUP");

    return r->entries[sim_library][index / 64] & 1ull << index % 64 &&
           (!r->pid || r->pid == atomic_load(&page_pid)) &&
           (!r->has_group || strncmp(r->group, group ? group : "", sizeof(r->group)) == 0) &&
           (!*r->caller || object_matches(caller, r->caller)) &&
           (!*r->own || is_own_call(r->own, caller, index));
}

static void wait_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

struct sim_verdict sim_entry_check(uint32_t index, const void *caller)
{
    struct sim_verdict verdict = {0};
    struct sim_control *c;
    int saved = errno;

    c = fetch();
    for (uint32_t i = 0; c && i < SIM_FAULT_RULES && !verdict.is_final; i++) {
        struct sim_fault_rule *r = &c->rule[i];
        uint64_t n;

        if (!atomic_load_explicit(&c->armed[sim_library][index], memory_order_acquire))
            break;
        if (!rule_matches(r, index, caller))
            continue;
        n = atomic_fetch_add(&r->calls, 1) + 1;
        if (n < r->first || (r->times && n - r->first >= r->times))
            continue;
        atomic_fetch_add(&r->fired, 1);
        wait_ns(r->delay_ns);
        if (r->has_result)
            verdict = (struct sim_verdict){.result = (uint32_t)r->result, .is_final = 1};
    }
    errno = saved;
    return verdict;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind the assembler doors: the real loader functions and the answer to a lookup of a
 * driver's name. */
#include "vgpu/doors/doors.h"

#include <stddef.h>

#include "vgpu/doors/known.h"
#include "vgpu/driver.h"
#include "vgpu/elf.h"
#include "vgpu/text.h"

#define RTLD_NEXT_HANDLE ((void *)-1l)
#define RTLD_DEFAULT_HANDLE ((void *)0)

void *alq_door_next_at[ALQ_DOOR_COUNT];

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlvsym_fn(void *handle, const char *name, const char *version);

/* Stands for a door that no object of this process has (glibc before 2.34 without libdl; dlvsym
 * under musl). */
static void *absent(void)
{
    return NULL;
}

struct after_us {
    const char *name;
    bool has_passed;
};

/* Load order is the order of the global scope: what comes after us is what we hide. */
static bool defines_after_us(const struct alq_elf *elf, void *data)
{
    struct after_us *search = data;
    if (alq_is_ours((const void *)elf->begin)) {
        search->has_passed = true;
        return false;
    }
    return search->has_passed && alq_elf_symbol(elf, search->name);
}

void *alq_door_next(unsigned door)
{
    /* A string of strings: an array of pointers would be relocated at load. */
    static const char names[] = "dlsym\0\0\0dlvsym\0\0dlopen\0\0dlmopen\0";
    struct after_us search = {.name = names + 8 * (size_t)door};
    struct alq_elf elf;

    if (!alq_elf_find(defines_after_us, &search, &elf))
        return (void *)absent; /* not kept: libdl may be loaded later */
    void *address = alq_elf_symbol(&elf, search.name);
    __atomic_store_n(&alq_door_next_at[door], address, __ATOMIC_RELEASE);
    return address;
}

static void *real_lookup(void *handle, const char *name, const char *version)
{
    unsigned door = version ? ALQ_DOOR_DLVSYM : ALQ_DOOR_DLSYM;
    void *real = __atomic_load_n(&alq_door_next_at[door], __ATOMIC_ACQUIRE);
    if (!real)
        real = alq_door_next(door);
    return version ? ((dlvsym_fn *)real)(handle, name, version) : ((dlsym_fn *)real)(handle, name);
}

void *alq_door_wrap(void *address)
{
    int index = alq_real_entry_at(address);
    void *wrapper = index < 0 ? NULL : alq_entry_wrapper((uint32_t)index);
    return wrapper ? wrapper : address;
}

/* The driver's own function for a name that our exports answered, or NULL when it has none. */
static void *driver_has(const char *name, void *wrapper)
{
    int index = alq_real_entry_named(name);
    if (index < 0)
        return wrapper;
    return alq_real((uint32_t)index);
}

struct after_caller {
    const char *name;
    uintptr_t caller;
    bool has_passed;
};

static bool defines_after_caller(const struct alq_elf *elf, void *data)
{
    struct after_caller *search = data;
    if (!search->has_passed) {
        search->has_passed = search->caller >= elf->begin && search->caller < elf->end;
        return false;
    }
    return !alq_is_ours((const void *)elf->begin) && alq_elf_symbol(elf, search->name);
}

bool alq_door_lookup(void *handle, const char *name, const char *version, const void *caller,
                     void **out)
{
    /* What we do not hook is looked up by the loader, which knows the caller's scope best. */
    if (handle == RTLD_NEXT_HANDLE && alq_real_entry_named(name) < 0)
        return false;
    bool is_on = alq_core_is_on() || (alq_text_is(name, "cuInit") && alq_core_look_again());
    void *address;

    if (handle == RTLD_NEXT_HANDLE) {
        /* Who asks for what comes after itself gets the first definition other than our export; if
         * that is the driver's, it is the wrapper, so that a library which wraps the driver cannot
         * lead past the limit. */
        struct after_caller search = {.name = name, .caller = (uintptr_t)caller};
        struct alq_elf elf;
        if (!alq_elf_find(defines_after_caller, &search, &elf)) {
            *out = real_lookup(RTLD_NEXT_HANDLE, name,
                               version); /* from here: leaves the right dlerror */
            return true;
        }
        address = alq_elf_symbol(&elf, name);
    } else {
        address = real_lookup(handle, name, version);
        if (address && alq_is_ours(address)) {
            void *real = driver_has(name, address);
            if (!real) {
                *out = real_lookup(RTLD_NEXT_HANDLE, name, version);
                return true;
            }
            *out = is_on ? address : real;
            return true;
        }
    }
    if (!address || !is_on) {
        *out = address;
        return true;
    }
    if (alq_real_entry_at(address) < 0 && alq_real_entry_named(name) >= 0)
        alq_real_rescan();
    *out = alq_door_wrap(address);
    if (*out == address && alq_real_holds(address))
        alq_door_passed(name);
    return true;
}

int alq_door_open_mode(const char *file, int mode)
{
    const int deepbind = 8;
    if (!file || !alq_core_is_on() || !alq_deepbind_matters(file))
        return mode;
    return mode & ~deepbind;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The installation and the sweep of what containers and runtimes use of ours, on the made-up host
 * of cdi_world.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "cdi_world.h"
#include "daemon/cdi/cdi.h"
#include "private_mounts.h"

/* ---- library -------------------------------------------------------------------------------- */

static void install_names_by_content_and_never_writes_over(void **state)
{
    struct world *w = *state;
    struct alq_library first, again, second;
    struct stat before, after;
    put_library(w, "build", "libvgpu.so", "libvgpu.so");
    w->cfg.library = at(w, "build/libvgpu.so");
    assert_int_equal(alq_library_install(&w->cfg, &first, NULL), 0);
    assert_int_equal(stat(first.library_path, &before), 0);
    assert_int_equal(alq_library_install(&w->cfg, &again, NULL), 0);
    assert_int_equal(stat(again.library_path, &after), 0);
    assert_string_equal(first.library_path, again.library_path);
    assert_true(before.st_ino == after.st_ino);
    assert_int_equal(after.st_mode & 0777, 0644);

    alq_auto_free char *preload = NULL;
    size_t len;
    assert_int_equal(alq_file_read(first.preload_path, 100, &preload, &len, NULL), 0);
    assert_string_equal(preload, "/usr/local/vgpu/libvgpu.so\n");

    put_library(w, "build", "libvgpu.so", "libvgpu.so.2");
    w->cfg.library = at(w, "build/libvgpu.so");
    assert_int_equal(alq_library_install(&w->cfg, &second, NULL), 0);
    assert_string_not_equal(first.library_path, second.library_path);
    assert_int_equal(access(first.library_path, R_OK), 0);
    assert_string_equal(first.preload_path, second.preload_path);
    w->cfg.library = NULL;
}

static void put_program(const struct world *w, const char *name, uint32_t interpreter)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr segment;
    } file = {0};
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    file.header.e_ident[EI_DATA] = ELFDATA2LSB;
    file.header.e_type = ET_EXEC;
    file.header.e_machine = MACHINE;
    file.header.e_phoff = sizeof(file.header);
    file.header.e_phentsize = sizeof(Elf64_Phdr);
    file.header.e_phnum = 1;
    file.segment.p_type = interpreter ? PT_INTERP : PT_LOAD;
    assert_int_equal(alq_file_write_atomic(at(w, name), &file, sizeof(file), 0755, 0, NULL), 0);
}

static void install_of_a_hook_is_executable_and_goes_when_replaced(void **state)
{
    struct world *w = *state;
    struct alq_library library, of_spec;
    struct alq_err err = ALQ_ERR_INIT;
    struct stat st;
    char path[128], first[4096];
    snprintf(path, sizeof(path), "%s", at(w, "hook"));
    w->cfg.hook = path;
    put_program(w, "hook", 0);
    assert_int_equal(alq_library_install(&w->cfg, &library, NULL), 0);
    assert_string_equal(library.library_path, "");
    assert_non_null(strstr(library.hook_path, "/aliquot-hook-"));
    assert_int_equal(stat(library.hook_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    assert_true(alq_library_is_there(&w->cfg, &library));
    /* A spec of before keeps its library, and gets the hook of now. */
    of_spec = library;
    assert_false(alq_library_of_spec(&w->cfg, "{}", &of_spec));
    assert_string_equal(of_spec.hook_path, library.hook_path);
    snprintf(first, sizeof(first), "%s", library.hook_path);
    put_library(w, ".", "hook", "another"); /* a shared object without an interpreter: static-pie */
    assert_int_equal(alq_library_install(&w->cfg, &library, NULL), 0);
    assert_string_not_equal(first, library.hook_path);
    free(w->cfg.cdi_dir);
    w->cfg.cdi_dir = strdup(at(w, "cdi"));
    assert_int_equal(alq_library_sweep(&w->cfg, &library, 0, NULL), 0);
    assert_int_equal(access(first, F_OK), -1);
    assert_int_equal(access(library.hook_path, X_OK), 0);
    put_program(w, "hook", 1);
    assert_int_equal(alq_library_install(&w->cfg, &library, &err), ALQ_ENOTSUP);
    assert_non_null(strstr(err.text, "--hook"));
    assert_non_null(strstr(err.text, "static"));
    put_text(w, ".", "hook", "#!/bin/sh\n");
    assert_int_equal(alq_library_install(&w->cfg, &library, &err), ALQ_EPROTO);
    w->cfg.hook = NULL;
}

static void install_without_a_library_is_empty(void **state)
{
    struct world *w = *state;
    struct alq_library library;
    w->cfg.library = NULL;
    assert_int_equal(alq_library_install(&w->cfg, &library, NULL), 0);
    assert_string_equal(library.library_path, "");
    assert_string_equal(library.preload_path, "");
}

static void install_of_what_is_no_library_names_it(void **state)
{
    struct world *w = *state;
    struct alq_library library;
    struct alq_err err = ALQ_ERR_INIT;
    char path[256];
    snprintf(path, sizeof(path), "%s", at(w, "missing.so"));
    w->cfg.library = path;
    assert_int_equal(alq_library_install(&w->cfg, &library, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "missing.so"));
    assert_int_equal(alq_file_write_atomic(path, "text", 4, 0644, 0, NULL), 0);
    assert_int_equal(alq_library_install(&w->cfg, &library, &err), ALQ_EPROTO);
    assert_string_equal(library.library_path, "");
    w->cfg.library = NULL;
}

/* In a mount namespace of its own, so that the machine's mounts stay as they are. Exit status: 0
 * good, 77 cannot be had. */
static int try_noexec(struct world *w)
{
    struct alq_library library;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_file_mkdirs(w->cfg.host_lib_dir, 0755, NULL) || private_mounts() ||
        mount("tmpfs", w->cfg.host_lib_dir, "tmpfs", MS_NOEXEC, NULL))
        return 77;
    return alq_library_install(&w->cfg, &library, &err) == ALQ_ENOTSUP &&
                   strstr(err.text, "noexec") && strstr(err.text, w->cfg.host_lib_dir)
               ? 0
               : 1;
}

static void install_on_a_noexec_mount_names_the_flag(void **state)
{
    struct world *w = *state;
    int status;
    put_library(w, "build", "libvgpu.so", "libvgpu.so");
    w->cfg.library = at(w, "build/libvgpu.so");
    pid_t pid = fork();
    if (pid == 0)
        _exit(try_noexec(w));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    w->cfg.library = NULL;
    if (WEXITSTATUS(status) == 77) {
        print_message("[  REASON  ] no mount namespace can be had here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void install_where_nothing_can_be_written_says_so(void **state)
{
    struct world *w = *state;
    struct alq_library library;
    struct alq_err err = ALQ_ERR_INIT;
    put_library(w, "build", "libvgpu.so", "libvgpu.so");
    w->cfg.library = at(w, "build/libvgpu.so");
    free(w->cfg.host_lib_dir);
    w->cfg.host_lib_dir = strdup("/proc/self/fdinfo");
    assert_true(alq_library_install(&w->cfg, &library, &err) < 0);
    assert_non_null(strstr(err.text, "/proc/self/fdinfo"));
    assert_string_equal(library.library_path, "");
    w->cfg.library = NULL;
}

static int is_installed(const struct world *w, const char *name)
{
    alq_auto_free char *path = alq_str_printf("%s/%s", w->cfg.host_lib_dir, name);
    return !access(path, F_OK);
}

#define OLD "libvgpu-0123456789abcdef0123456789abcdef.so"
#define OTHER "ld.so.preload-fedcba9876543210fedcba9876543210"
#define NOT_OURS "libvgpu-0123.so"

static void sweep_removes_what_no_spec_names(void **state)
{
    struct world *w = *state;
    struct alq_library library;
    put_library(w, "build", "libvgpu.so", "libvgpu.so");
    w->cfg.library = at(w, "build/libvgpu.so");
    assert_int_equal(alq_library_install(&w->cfg, &library, NULL), 0);
    put_text(w, "host-lib", OLD, "old");
    put_text(w, "host-lib", OTHER, "old");
    put_text(w, "host-lib", NOT_OURS, "old");
    free(w->cfg.cdi_dir);
    w->cfg.cdi_dir = strdup(at(w, "cdi"));
    put_text(w, "cdi", "another-vendor.json", "{\"hostPath\":\"/x/" OLD "\"}");
    assert_int_equal(alq_library_sweep(&w->cfg, &library, 0, NULL), 1);
    assert_true(is_installed(w, OLD));
    assert_false(is_installed(w, OTHER));
    assert_true(is_installed(w, NOT_OURS));
    assert_int_equal(access(library.library_path, F_OK), 0);
    assert_int_equal(access(library.preload_path, F_OK), 0);
    /* Its bytes are not what its name says: nobody can be served with it. */
    assert_int_equal(alq_library_sweep(&w->cfg, &library, 1, NULL), 0);
    assert_false(is_installed(w, OLD));
    w->cfg.library = NULL;
}

static void sweep_that_cannot_read_the_specs_removes_nothing(void **state)
{
    struct world *w = *state;
    const struct alq_library library = {0};
    struct alq_err err = ALQ_ERR_INIT;
    put_text(w, "host-lib", OLD, "old");
    free(w->cfg.cdi_dir);
    w->cfg.cdi_dir = strdup(at(w, "host-lib/" OLD)); /* no directory */
    assert_true(alq_library_sweep(&w->cfg, &library, 0, &err) < 0);
    assert_true(is_installed(w, OLD));
}

static void library_of_spec_is_the_one_it_names_if_installed(void **state)
{
    struct world *w = *state;
    struct alq_library library = {.library_path = "untouched"};
    char spec[1024];
    snprintf(spec, sizeof(spec), "{\"a\":\"%s/" OLD "\",\"b\":\"%s/" OTHER "\"}",
             w->cfg.host_lib_dir, w->cfg.host_lib_dir);
    put_text(w, "host-lib", OLD, "old");
    assert_false(alq_library_of_spec(&w->cfg, spec, &library));
    assert_string_equal(library.library_path, "untouched");
    put_text(w, "host-lib", OTHER, "old");
    assert_true(alq_library_of_spec(&w->cfg, spec, &library));
    assert_non_null(strstr(library.library_path, "/" OLD));
    assert_non_null(strstr(library.preload_path, "/" OTHER));
    assert_false(alq_library_of_spec(&w->cfg, "{}", &library));
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(install_names_by_content_and_never_writes_over),
        ROW(install_of_a_hook_is_executable_and_goes_when_replaced),
        ROW(install_without_a_library_is_empty),
        ROW(sweep_removes_what_no_spec_names),
        ROW(sweep_that_cannot_read_the_specs_removes_nothing),
        ROW(library_of_spec_is_the_one_it_names_if_installed),
        ROW(install_of_what_is_no_library_names_it),
        ROW(install_on_a_noexec_mount_names_the_flag),
        ROW(install_where_nothing_can_be_written_says_so),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}

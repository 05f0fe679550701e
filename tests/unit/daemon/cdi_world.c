/* SPDX-License-Identifier: Apache-2.0 */
/* The host of cdi_world.h. */
#include "cdi_world.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/inject.h"

char *at(const struct world *w, const char *path)
{
    static char text[4][512];
    static unsigned turn;
    char *buffer = text[turn++ % 4];
    snprintf(buffer, sizeof(text[0]), "%s/%s", w->root, path);
    return buffer;
}

void put_library_of(const struct world *w, const char *dir, const char *name, const char *soname,
                    unsigned machine)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr load, dynamic;
        Elf64_Dyn entries[3];
        char names[128];
    } file = {0};
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    file.header.e_ident[EI_DATA] = ELFDATA2LSB;
    file.header.e_type = ET_DYN;
    file.header.e_machine = (Elf64_Half)machine;
    file.header.e_phoff = sizeof(file.header);
    file.header.e_phentsize = sizeof(Elf64_Phdr);
    file.header.e_phnum = 2;
    file.load = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_filesz = sizeof(file)};
    file.dynamic = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                .p_offset = (uint64_t)((char *)file.entries - (char *)&file),
                                .p_filesz = sizeof(file.entries)};
    file.entries[0].d_tag = DT_STRTAB;
    file.entries[0].d_un.d_ptr = 0x1000 + (uint64_t)(file.names - (char *)&file);
    file.entries[1].d_tag = DT_SONAME;
    file.entries[1].d_un.d_val = 1;
    snprintf(file.names + 1, sizeof(file.names) - 1, "%s", soname);
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", at(w, dir), name);
    assert_int_equal(alq_file_mkdirs(at(w, dir), 0755, NULL), 0);
    assert_int_equal(alq_file_write_atomic(path, &file, sizeof(file), 0644, 0, NULL), 0);
}

void put_library(const struct world *w, const char *dir, const char *name, const char *soname)
{
    put_library_of(w, dir, name, soname, MACHINE);
}

void put_driver(const struct world *w, const char *dir, const char *version)
{
    static const char *const libraries[][2] = {
        {"libcuda.so.%s", "libcuda.so.1"},
        {"libnvidia-ml.so.%s", "libnvidia-ml.so.1"},
        {"libnvidia-ptxjitcompiler.so.%s", "libnvidia-ptxjitcompiler.so.1"},
        {"libnvidia-nvvm.so.%s", "libnvidia-nvvm.so.4"},
        {"libGLX_nvidia.so.%s", "libGLX_nvidia.so.0"},
    };
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        char name[64];
        const char *percent = strstr(libraries[i][0], "%s");
        snprintf(name, sizeof(name), "%.*s%s", (int)(percent - libraries[i][0]), libraries[i][0],
                 version);
        put_library(w, dir, name, libraries[i][1]);
    }
}

void put_nodes(const struct world *w)
{
    static const char *const names[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0",
                                        "nvidia3"};
    assert_int_equal(alq_file_mkdirs(at(w, "dev"), 0755, NULL), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", at(w, "dev"), names[i]);
        assert_int_equal(symlink("/dev/null", path), 0);
    }
}

int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    snprintf(w->root, sizeof(w->root), "/tmp/alq-cdi-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    w->cfg.driver_name = strdup("hami-core-gpu.project-hami.io");
    w->cfg.driver_root = strdup(w->root);
    w->cfg.dev_root = strdup(w->root);
    w->cfg.kernel_root = strdup(w->root);
    w->cfg.inject = calloc(2, sizeof(char *));
    w->cfg.inject[0] = strdup("default");
    assert_int_equal(alq_inject_parse(w->cfg.inject, &w->cfg.inject_sets, NULL), 0);
    w->cfg.run_dir = strdup("/run/aliquot");
    w->cfg.cdi_dir = strdup("/var/run/cdi");
    w->cfg.host_lib_dir = strdup(at(w, "host-lib"));
    *state = w;
    return 0;
}

int teardown(void **state)
{
    struct world *w = *state;
    assert_int_equal(alq_file_remove_tree(w->root, NULL), 0);
    alq_config_free(&w->cfg);
    free(w);
    return 0;
}

/* A file in a directory of the world. */
void put_text(const struct world *w, const char *dir, const char *name, const char *text)
{
    alq_auto_free char *parent = strdup(at(w, dir));
    alq_auto_free char *path = alq_str_printf("%s/%s", parent, name);
    assert_int_equal(alq_file_mkdirs(parent, 0755, NULL), 0);
    assert_int_equal(alq_file_write_atomic(path, text, strlen(text), 0644, 0, NULL), 0);
}

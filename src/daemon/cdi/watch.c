/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scan keeps in mind, see scan.h: paths with what stat said of them, links, nodes, GPUs; and
 * the later look, which costs a stat for each and no directory walk. Blocking; no state.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/root.h"
#include "daemon/cdi/scan.h"

static struct alq_file_stamp stamp_of(const struct stat *st, enum alq_watch_how how)
{
    if (how == ALQ_WATCH_NODE)
        return (struct alq_file_stamp){1, st->st_rdev, st->st_mode, st->st_gid};
    if (how == ALQ_WATCH_IDENTITY)
        return (struct alq_file_stamp){st->st_dev, st->st_ino, st->st_nlink, st->st_mode};
    return (struct alq_file_stamp){st->st_dev, st->st_ino, (uint64_t)st->st_size,
                                   (uint64_t)st->st_ctim.tv_sec * 1000000000 +
                                       (uint64_t)st->st_ctim.tv_nsec};
}

/* All zero: not there. */
static struct alq_file_stamp look(const char *path, enum alq_watch_how how)
{
    struct stat st;
    return stat(path, &st) ? (struct alq_file_stamp){0} : stamp_of(&st, how);
}

static int is_same(struct alq_file_stamp x, struct alq_file_stamp y)
{
    return x.a == y.a && x.b == y.b && x.c == y.c && x.d == y.d;
}

static int out_of_memory(struct alq_err *err)
{
    return alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

int alq_scan_add_watch(struct alq_driver_files *files, const char *path, enum alq_watch_how how,
                       const struct stat *st, struct alq_err *err)
{
    struct alq_watch *grown = reallocarray(files->watches, files->watch_count + 1, sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    files->watches = grown;
    struct alq_watch *w = &grown[files->watch_count];
    *w = (struct alq_watch){
        .path = strdup(path), .how = how, .stamp = st ? stamp_of(st, how) : look(path, how)};
    if (!w->path)
        return out_of_memory(err);
    files->watch_count++;
    return 0;
}

int alq_scan_add_link(struct alq_driver_link **links, size_t *count, const char *path,
                      const char *target, struct alq_err *err)
{
    struct alq_driver_link *grown = reallocarray(*links, *count + 1, sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    *links = grown;
    struct alq_driver_link *link = &grown[*count];
    *link = (struct alq_driver_link){.path = strdup(path), .target = strdup(target)};
    if (!link->path || !link->target) {
        free(link->path);
        free(link->target);
        return out_of_memory(err);
    }
    (*count)++;
    return 0;
}

int alq_scan_keep_node(const struct alq_config *cfg, struct alq_driver_files *files,
                       struct alq_driver_nodes *nodes, struct alq_driver_node *node,
                       struct alq_err *err)
{
    alq_auto_free char *below = alq_root_join(cfg->dev_root, node->path);
    struct alq_driver_node *grown = reallocarray(nodes->items, nodes->count + 1, sizeof(*grown));
    if (grown)
        nodes->items = grown;
    if (!grown || !below) {
        alq_driver_node_clear(node);
        return out_of_memory(err);
    }
    grown[nodes->count++] = *node;
    return alq_scan_add_watch(files, below, ALQ_WATCH_NODE, NULL, err);
}

int alq_driver_files_is_current(const struct alq_config *cfg, const struct alq_driver_files *files)
{
    char loaded[ALQ_DRIVER_VERSION_BYTES];
    alq_kernel_version(cfg, loaded);
    if (strcmp(loaded, files->kernel_version) != 0)
        return 0;
    for (size_t i = 0; i < files->watch_count; i++) {
        const struct alq_watch *w = &files->watches[i];
        if (!is_same(look(w->path, w->how), w->stamp))
            return 0;
    }
    return 1;
}

const struct alq_driver_gpu *alq_driver_gpu_of(const struct alq_driver_files *files, uint32_t minor)
{
    for (size_t i = 0; i < files->gpu_count; i++) {
        if (files->gpus[i].minor == minor)
            return &files->gpus[i];
    }
    return NULL;
}

static void free_nodes(struct alq_driver_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        alq_driver_node_clear(&nodes->items[i]);
    free(nodes->items);
}

static void free_links(struct alq_driver_link *links, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(links[i].path);
        free(links[i].target);
    }
    free(links);
}

void alq_driver_files_free(struct alq_driver_files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < files->mount_count; i++) {
        free(files->mounts[i].host_path);
        free(files->mounts[i].container_path);
    }
    free(files->mounts);
    for (size_t i = 0; i < files->gpu_count; i++) {
        free_nodes(&files->gpus[i].nodes);
        free_links(files->gpus[i].links, files->gpus[i].link_count);
    }
    free(files->gpus);
    for (size_t i = 0; i < files->watch_count; i++)
        free(files->watches[i].path);
    free(files->watches);
    free_nodes(&files->nodes);
    free_links(files->links, files->link_count);
    free(files->folders);
    free(files->library_host_path);
    free(files);
}

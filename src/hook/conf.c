/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See conf.h. Lines are taken apart as glibc's ldconfig does it. A pattern is not matched but
 * compared before its first and behind its last special character: what that lets through is looked
 * at in vain at worst.
 */
#include "hook/conf.h"

#include "hook/hook.h"
#include "hook/rootfs.h"
#include "hook/sys.h"
#include "vgpu/text.h"

#define DEPTH_MAX 4
#define FILES_MAX 512
#define FILE_BYTES 65536

struct search {
    const struct alq_rootfs *rootfs;
    int files;
};

static int check_file(struct search *search, const char *path, int depth);

static int refuse(const char *path, const char *why)
{
    alq_report(path, why, 0);
    return -EINVAL;
}

/* ---- what a pattern names ---- */

struct listing {
    struct search *search;
    const char *dir, *prefix, *suffix;
    size_t prefix_len;
    int depth, rc;
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t len = alq_text_len(name), end = alq_text_len(suffix);
    return len >= end && alq_text_is(name + len - end, suffix);
}

static bool on_name(void *arg, int dir, const char *name)
{
    char path[ALQ_PATH_BYTES];
    struct listing *listing = arg;
    (void)dir;
    for (size_t i = 0; i < listing->prefix_len; i++) {
        if (name[i] != listing->prefix[i])
            return true;
    }
    if (alq_text_is(name, ".") || alq_text_is(name, "..") || !ends_with(name, listing->suffix))
        return true;
    struct alq_text text = alq_text_on(path, sizeof(path));
    alq_text_add(&text, listing->dir);
    alq_text_add(&text, name);
    listing->rc = text.is_cut ? alq_report(listing->dir, "links by SONAME instead", -ENAMETOOLONG)
                              : check_file(listing->search, path, listing->depth);
    return !listing->rc;
}

static bool is_special(char c)
{
    return c == '*' || c == '?' || c == '[' || c == ']' || c == '\\';
}

static int check_pattern(struct search *search, const char *pattern, int depth)
{
    char dir[ALQ_PATH_BYTES];
    size_t len = alq_text_len(pattern), name = 0, first = len, last = 0;
    for (size_t i = 0; i < len; i++) {
        if (pattern[i] == '/')
            name = i + 1;
        if (is_special(pattern[i])) {
            first = first < i ? first : i;
            last = i;
        }
    }
    if (first == len)
        return check_file(search, pattern, depth);
    if (first < name)
        return refuse(pattern, "include of a pattern of directories; links by SONAME instead");
    struct alq_text text = alq_text_on(dir, sizeof(dir));
    alq_text_add_n(&text, pattern, name);
    struct listing listing = {.search = search,
                              .dir = dir,
                              .prefix = pattern + name,
                              .prefix_len = first - name,
                              .suffix = pattern + last + 1,
                              .depth = depth};
    int rc = alq_rootfs_list(search->rootfs, dir, on_name, &listing);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    return rc ? alq_report(dir, "links by SONAME instead", rc) : listing.rc;
}

/* ---- a file ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int check_include(struct search *search, const char *file, const char *word, int depth)
{
    char pattern[ALQ_PATH_BYTES];
    struct alq_text text = alq_text_on(pattern, sizeof(pattern));
    size_t slash = 0;
    for (size_t i = 0; file[i]; i++)
        slash = file[i] == '/' ? i : slash;
    if (word[0] != '/')
        alq_text_add_n(&text, file, slash + 1);
    alq_text_add(&text, word);
    return text.is_cut ? alq_report(file, "links by SONAME instead", -ENAMETOOLONG)
                       : check_pattern(search, pattern, depth);
}

/* "include PATTERN..."; other lines are directories. */
static int check_line(struct search *search, const char *file, char *line, int depth)
{
    int rc = 0;
    while (is_blank(*line) || (*line >= '\v' && *line <= '\r'))
        line++;
    if (!alq_text_starts(line, "include") || !is_blank(line[7]))
        return 0;
    for (line += 8; !rc && *line && *line != '#';) {
        char *word = line;
        while (*line && *line != '#' && !is_blank(*line))
            line++;
        char end = *line;
        *line = '\0';
        rc = *word ? check_include(search, file, word, depth) : 0;
        *line = end;
        line += is_blank(end);
    }
    return rc;
}

static int check_text(struct search *search, const char *file, char *text, size_t len, int depth)
{
    int rc = 0;
    for (size_t at = 0, end; at < len && !rc; at = end + 1) {
        for (end = at; end < len && text[end] && text[end] != '\n';)
            end++;
        text[end] = '\0';
        rc = check_line(search, file, text + at, depth);
    }
    return rc;
}

static int check_file(struct search *search, const char *path, int depth)
{
    static char texts[DEPTH_MAX][FILE_BYTES];
    alq_auto_fd fd = alq_rootfs_open(search->rootfs, path);
    if (fd < 0 && fd != -ENOENT && fd != -ENOTDIR && fd != -ELOOP)
        return alq_report(path, "links by SONAME instead", fd);
    if (fd < 0 || alq_is_directory(fd))
        return 0;
    if (!alq_is_regular(fd))
        return refuse(path, "neither file nor directory; links by SONAME instead");
    if (depth == DEPTH_MAX || ++search->files > FILES_MAX)
        return refuse(path, "included too deep, or one of too many; links by SONAME instead");
    long len = alq_rootfs_read(search->rootfs, fd, texts[depth], FILE_BYTES);
    return len < 0 ? alq_report(path, "links by SONAME instead", (int)len)
                   : check_text(search, path, texts[depth], (size_t)len, depth + 1);
}

int alq_conf_check(const struct alq_rootfs *rootfs, const char *path)
{
    struct search search = {.rootfs = rootfs};
    return check_file(&search, path, 0);
}

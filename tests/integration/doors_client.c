/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doors_client WAY PLUGIN...: loads plugins and tries the driver through them, for test_doors.py.
 *   local, global, lazy, deepbind: opened so; "lazy" opens libcuda globally and lazily before, as
 *   cgo's go-nvml does. tool: cuInit and a range as NVTX's header makes one, where the environment
 *   may name tools. views: RTLD_NEXT and RTLD_DEFAULT of two
 *   libraries ("": loaded already) from eight threads. names: lookups that are not the driver's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int try_fn(void);
typedef const char *name_fn(void);
typedef name_fn *find_fn(int is_next);

static void *open_or_die(const char *file, int mode)
{
    void *handle = dlopen(file, mode);
    if (!handle)
        fprintf(stderr, "%s\n", dlerror());
    return handle;
}

static find_fn *finders[2];

static const char *seen(int who, int is_next)
{
    name_fn *name = finders[who](is_next);
    return name ? name() : "none";
}

static void *look(void *data)
{
    const char *const *first_look = data;
    for (int i = 0; i < 2000; i++)
        for (int n = 0; n < 4; n++)
            if (strcmp(seen(n / 2, n % 2), first_look[n]))
                return data;
    return NULL;
}

/* What each of two libraries sees by default and after itself, at first and ever after. */
static int views(char **files)
{
    const char *first_look[4];
    pthread_t threads[8];
    int odd = 0;
    void *bad;
    for (int i = 0; i < 2; i++) {
        void *handle = *files[i] ? open_or_die(files[i], RTLD_NOW | RTLD_GLOBAL) : RTLD_DEFAULT;
        finders[i] = (find_fn *)dlsym(handle, i ? "find_second" : "find_first");
        if (!finders[i])
            return 3;
    }
    for (int n = 0; n < 4; n++)
        printf("%s ", first_look[n] = seen(n / 2, n % 2));
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, look, (void *)first_look);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &bad);
        odd += bad != NULL;
    }
    printf("%d\n", odd);
    return 0;
}

static int names(const char *file)
{
    static const char *const all[] = {"curl_easy", "cufft", "cu", "c", "cu_thing", "nvm", "nvmlx"};
    void *handle = open_or_die(file, RTLD_NOW | RTLD_LOCAL);
    int found = 0;
    if (!handle)
        return 3;
    for (int round = 0; round < 1000; round++)
        for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++) {
            name_fn *name = (name_fn *)dlsym(handle, all[i]);
            found += name && !strcmp(name(), all[i]);
        }
    printf("names %d %d\n", found, dlsym(handle, "curl_none") == NULL);
    return 0;
}

/* What nvToolsExt.h does at the first range: the tool fills the table of functions. */
typedef int push_fn(const char *);

static push_fn *push;

static push_fn **table(unsigned id)
{
    return id == 1 ? &push : NULL;
}

static void begin_range(const char *name)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *tool = path ? open_or_die(path, RTLD_LAZY) : NULL;
    int (*start)(push_fn * *(*)(unsigned)) = NULL;
    if (tool)
        start = (int (*)(push_fn * *(*)(unsigned))) dlsym(tool, "InitializeInjectionNvtx2");
    if (start && start(table) == 1 && push)
        push(name);
}

static int with_tools(void)
{
    void *driver = open_or_die("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!init)
        return 3;
    begin_range("range");
    printf("init %d\n", init(0));
    printf("again %d\n", init(0));
    return 0;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    int mode = RTLD_NOW | RTLD_LOCAL;
    if (!strcmp(way, "tool"))
        return with_tools();
    if (argc < 3)
        return 3;
    if (!strcmp(way, "views"))
        return views(argv + 2);
    if (!strcmp(way, "names"))
        return names(argv[2]);
    if (!strcmp(way, "lazy")) {
        mode = RTLD_LAZY | RTLD_GLOBAL;
        if (!open_or_die("libcuda.so.1", mode))
            return 3;
    } else if (!strcmp(way, "global")) {
        mode = RTLD_NOW | RTLD_GLOBAL;
    } else if (!strcmp(way, "deepbind")) {
        mode |= RTLD_DEEPBIND;
    }
    for (int i = 2; i < argc; i++) {
        void *handle = open_or_die(argv[i], mode);
        try_fn *try_it = handle ? (try_fn *)dlsym(handle, "try_it") : NULL;
        if (!try_it)
            return 3;
        printf("%d\n", try_it());
        fflush(stdout);
    }
    return 0;
}

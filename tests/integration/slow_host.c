/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host whose disk or name server is slow, for test_kubelet.py: preloaded into aliquotd, it makes
 * each fsync take $ALQ_TEST_FSYNC_MS longer and each look-up of a host name $ALQ_TEST_DNS_MS. Any
 * thread.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void wait_for(const char *name)
{
    const char *text = getenv(name);
    long ms = text ? atol(text) : 0;
    const struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (ms)
        nanosleep(&wait, NULL);
}

/* dlsym gives an object pointer; POSIX says that it holds a function's. */
static void next(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof(found));
}

int fsync(int fd)
{
    int (*real)(int fd);
    next("fsync", &real);
    wait_for("ALQ_TEST_FSYNC_MS");
    return real(fd);
}

int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict result)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    next("getaddrinfo", &real);
    if (!hints || !(hints->ai_flags & AI_NUMERICHOST)) /* which asks no name server */
        wait_for("ALQ_TEST_DNS_MS");
    return real(node, service, hints, result);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that writes into the memory which it shares with simgpud what no driver would, for the
 * simulator's tests. It has a context and memory, so that there is something to spoil.
 *
 *   lie KIND FLAGS STREAM   gives simgpud one operation like that; prints what it makes of it
 *   words SEED SECONDS      writes random words all over it, asking for passes, and ends
 */
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "common/control.h"
#include "common/wire.h"

static struct area {
    char name[16];
    uint64_t *words;
    size_t count;
} areas[] = {{.name = "simgpu-client"},
             {.name = "simgpu-node"},
             {.name = "simgpu-group"},
             {.name = "simgpu-control"}};

#define AREAS (sizeof(areas) / sizeof(areas[0]))

static void find_areas(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];

    while (maps && fgets(line, sizeof(line), maps)) {
        char *end;
        uintptr_t from = strtoull(line, &end, 16), to = strtoull(end + 1, NULL, 16);

        for (size_t i = 0; i < AREAS; i++) {
            if (strstr(line, areas[i].name)) {
                areas[i].words = (uint64_t *)from;
                areas[i].count = (to - from) / sizeof(uint64_t);
            }
        }
    }
    for (size_t i = 0; i < AREAS; i++)
        TRUE(areas[i].count);
}

/* The driver's connection: the only socket of its type here. */
static int connection(void)
{
    int type = 0, fd = 3;
    socklen_t len = sizeof(type);

    while (fd < 256 &&
           (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_SEQPACKET))
        fd++;
    TRUE(fd < 256);
    return fd;
}

static void lie(uint8_t kind, uint8_t flags, uint32_t stream)
{
    struct sim_queue *q = &((struct sim_client *)(void *)areas[0].words)->queue;
    const struct sim_header ask = {SIM_ASK, sizeof(ask)};
    uint64_t tail = atomic_load(&q->tail);
    int fd = connection();
    struct pollfd gone = {.fd = fd};

    q->op[tail % SIM_RING] = (struct sim_op){.kind = kind, .flags = flags, .stream = stream};
    atomic_store(&q->tail, tail + 1);
    (void)!send(fd, &ask, sizeof(ask), MSG_NOSIGNAL);
    (void)poll(&gone, 1, 10000);
    puts(gone.revents & POLLHUP ? "cut off" : "let go on");
}

static uint64_t a_word(uint64_t was)
{
    switch (random() % 5) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return (uint64_t)random();
    case 3:
        return (uint64_t)random() << 33 ^ (uint64_t)random();
    default:
        return was + (uint64_t)(random() % 3) - 1;
    }
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Half of them where an area begins, which is where most of it is used. */
static void words(double seconds)
{
    const struct sim_header ask = {SIM_ASK, sizeof(ask)};
    double end = now_s() + seconds;
    int fd = connection();

    for (unsigned long i = 0; now_s() < end; i++) {
        struct area *a = &areas[(size_t)random() % AREAS];
        size_t span = i % 2 && a->count > 1024 ? 1024 : a->count, at = (size_t)random() % span;

        a->words[at] = a_word(a->words[at]);
        if (i % 64 == 0)
            (void)!send(fd, &ask, sizeof(ask), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr p;

    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuMemAlloc_v2, &p, 1 << 20);
    OK(cuMemsetD8Async, p, 1, 1 << 20, NULL);
    find_areas();
    if (argc == 5 && strcmp(argv[1], "lie") == 0) {
        lie((uint8_t)atoi(argv[2]), (uint8_t)atoi(argv[3]), (uint32_t)strtoul(argv[4], NULL, 10));
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "words") == 0) {
        srandom((unsigned int)atoi(argv[2]));
        words(strtod(argv[3], NULL));
        _exit(0); /* what the driver would do at exit works on what is spoilt */
    }
    fprintf(stderr, "usage: sim-scribble lie KIND FLAGS STREAM | words SEED SECONDS\n");
    return 2;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of several processes that share device memory, told what to do in lines on stdin; answers
 * "RESULT VALUE" on stdout, where RESULT is the CUresult. Descriptors come and go over descriptor
 * 3, a unix socket. Numbers of pieces of memory are places in a table.
 *
 *   alloc BYTES, free N, write N TEXT, read N, range N, info
 *   ipc-get N, ipc-open HEX, ipc-close N
 *   create BYTES, map N, unmap N, release N, export N, import, external BYTES
 *   event, event-get N, event-open HEX, event-destroy N, query N, sync N
 *   record N (behind a kernel), go (that ends), wait N (the stream does), drained, drain (it is)
 *   pool, pool-alloc N BYTES, pool-export N, pool-import, pool-pointer N, pool-open N HEX,
 *   free-async N, destroy-pool N
 */
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define PIECES_MAX 256
#define MIB ((size_t)1 << 20)
#define CALL(function, ...) ((int)DRIVER(function)(__VA_ARGS__))

static struct {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUevent event;
} pieces[PIECES_MAX];
static int piece_count, wire;

static int send_fd(int fd)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr m = {.msg_iov = &(struct iovec){&(char){0}, 1},
                       .msg_iovlen = 1,
                       .msg_control = control.space,
                       .msg_controllen = sizeof(control.space)};

    control.align = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
    if (sendmsg(wire, &m, 0) != 1)
        return -1;
    return close(fd);
}

static int receive_fd(void)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte;
    struct msghdr m = {.msg_iov = &(struct iovec){&byte, 1},
                       .msg_iovlen = 1,
                       .msg_control = control.space,
                       .msg_controllen = sizeof(control.space)};
    int fd = -1;

    if (recvmsg(wire, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

static void print_hex(int rc, const void *data, size_t n)
{
    printf("%d ", rc);
    for (size_t i = 0; i < n; i++)
        printf("%02x", ((const unsigned char *)data)[i]);
    putchar('\n');
}

static void parse_hex(const char *text, void *data, size_t n)
{
    unsigned int byte;

    for (size_t i = 0; i < n && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
        ((unsigned char *)data)[i] = (unsigned char)byte;
}

static CUmemAllocationProp prop(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

static int map(int n, size_t bytes)
{
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int rc = CALL(cuMemAddressReserve, &pieces[n].address, bytes, 0, 0, 0);

    if (!rc)
        rc = CALL(cuMemMap, pieces[n].address, bytes, 0, pieces[n].handle, 0);
    return rc ? rc : CALL(cuMemSetAccess, pieces[n].address, bytes, &desc, 1);
}

/* Commands that make a piece; its number is the answer. */
static int make(const char *verb, const char *first, const char *second)
{
    CUdeviceptr *p = &pieces[piece_count].address;
    size_t *bytes = &pieces[piece_count].bytes;
    int rc = -1, fd;

    *bytes = strtoull(first, NULL, 10);
    if (!strcmp(verb, "alloc")) {
        rc = CALL(cuMemAlloc_v2, p, *bytes);
    } else if (!strcmp(verb, "ipc-open")) {
        CUipcMemHandle handle;

        parse_hex(first, &handle, sizeof(handle));
        rc = CALL(cuIpcOpenMemHandle_v2, p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    } else if (!strcmp(verb, "event")) {
        rc = CALL(cuEventCreate, &pieces[piece_count].event,
                  CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    } else if (!strcmp(verb, "event-open")) {
        CUipcEventHandle handle;

        parse_hex(first, &handle, sizeof(handle));
        rc = CALL(cuIpcOpenEventHandle, &pieces[piece_count].event, handle);
    } else if (!strcmp(verb, "create")) {
        CUmemAllocationProp of = prop();

        rc = CALL(cuMemCreate, &pieces[piece_count].handle, *bytes, &of, 0);
    } else if (!strcmp(verb, "import")) {
        *bytes = strtoull(first, NULL, 10);
        fd = receive_fd();
        rc = CALL(cuMemImportFromShareableHandle, &pieces[piece_count].handle, (void *)(intptr_t)fd,
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fd);
    } else if (!strcmp(verb, "external")) {
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                                 .size = *bytes};
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.size = *bytes};
        CUexternalMemory memory;

        desc.handle.fd = receive_fd();
        rc = CALL(cuImportExternalMemory, &memory, &desc);
        rc = rc ? rc : CALL(cuExternalMemoryGetMappedBuffer, p, memory, &buffer);
        rc = rc ? rc : CALL(cuDestroyExternalMemory, memory);
    } else if (!strcmp(verb, "pool")) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

        rc = CALL(cuMemPoolCreate, &pieces[piece_count].pool, &props);
    } else if (!strcmp(verb, "pool-import")) {
        fd = receive_fd();
        rc = CALL(cuMemPoolImportFromShareableHandle, &pieces[piece_count].pool,
                  (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        close(fd);
    } else if (!strcmp(verb, "pool-alloc")) {
        *bytes = strtoull(second, NULL, 10);
        rc = CALL(cuMemAllocFromPoolAsync, p, *bytes, pieces[atoi(first)].pool, NULL);
    } else if (!strcmp(verb, "pool-open")) {
        CUmemPoolPtrExportData data;

        parse_hex(second, &data, sizeof(data));
        rc = CALL(cuMemPoolImportPointer, p, pieces[atoi(first)].pool, &data);
    } else {
        return 0;
    }
    printf("%d %d\n", rc, piece_count++);
    return 1;
}

/* Behind a kernel that runs until the command "go". */
static unsigned int *flag;

static int record(int n)
{
    static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry spin_until(.param .u64 flag) { ret; }\n";
    void *params[] = {&flag};
    CUfunction spin;
    CUmodule module;
    int rc = CALL(cuModuleLoadData, &module, text);

    rc = rc ? rc : CALL(cuModuleGetFunction, &spin, module, "spin_until");
    rc = rc || flag ? rc : CALL(cuMemHostAlloc, (void **)&flag, sizeof(*flag), 0);
    if (rc)
        return rc;
    *flag = 0;
    rc = CALL(cuLaunchKernel, spin, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    return rc ? rc : CALL(cuEventRecord, pieces[n].event, NULL);
}

static int go(void)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    return 0;
}

static void use(const char *verb, int n, const char *text)
{
    char back[64] = "";
    size_t free_bytes = 0, total = 0;
    CUipcMemHandle handle;
    CUmemPoolPtrExportData data;
    int rc = -1, fd;

    if (!strcmp(verb, "free"))
        rc = CALL(cuMemFree_v2, pieces[n].address);
    else if (!strcmp(verb, "free-async"))
        rc = CALL(cuMemFreeAsync, pieces[n].address, NULL);
    else if (!strcmp(verb, "write"))
        rc = CALL(cuMemcpyHtoD_v2, pieces[n].address, text, strlen(text) + 1);
    else if (!strcmp(verb, "map"))
        rc = map(n, pieces[n].bytes);
    else if (!strcmp(verb, "unmap"))
        rc = CALL(cuMemUnmap, pieces[n].address, pieces[n].bytes);
    else if (!strcmp(verb, "release"))
        rc = CALL(cuMemRelease, pieces[n].handle);
    else if (!strcmp(verb, "ipc-close"))
        rc = CALL(cuIpcCloseMemHandle, pieces[n].address);
    else if (!strcmp(verb, "destroy-pool"))
        rc = CALL(cuMemPoolDestroy, pieces[n].pool);
    else if (!strcmp(verb, "export"))
        rc = CALL(cuMemExportToShareableHandle, &fd, pieces[n].handle,
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    else if (!strcmp(verb, "pool-export"))
        rc = CALL(cuMemPoolExportToShareableHandle, &fd, pieces[n].pool,
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if ((!strcmp(verb, "export") || !strcmp(verb, "pool-export")) && !rc)
        rc = send_fd(fd);
    if (!strcmp(verb, "record"))
        rc = record(n);
    else if (!strcmp(verb, "go"))
        rc = go();
    else if (!strcmp(verb, "query"))
        rc = CALL(cuEventQuery, pieces[n].event);
    else if (!strcmp(verb, "sync"))
        rc = CALL(cuEventSynchronize, pieces[n].event);
    else if (!strcmp(verb, "wait"))
        rc = CALL(cuStreamWaitEvent, NULL, pieces[n].event, 0);
    else if (!strcmp(verb, "drained"))
        rc = CALL(cuStreamQuery, NULL);
    else if (!strcmp(verb, "drain"))
        rc = CALL(cuStreamSynchronize, NULL);
    else if (!strcmp(verb, "event-destroy"))
        rc = CALL(cuEventDestroy_v2, pieces[n].event);
    if (!strcmp(verb, "event-get")) {
        CUipcEventHandle event_handle;

        rc = CALL(cuIpcGetEventHandle, &event_handle, pieces[n].event);
        print_hex(rc, &event_handle, sizeof(event_handle));
    } else if (!strcmp(verb, "ipc-get")) {
        rc = CALL(cuIpcGetMemHandle, &handle, pieces[n].address);
        print_hex(rc, &handle, sizeof(handle));
    } else if (!strcmp(verb, "pool-pointer")) {
        rc = CALL(cuMemPoolExportPointer, &data, pieces[n].address);
        print_hex(rc, &data, sizeof(data));
    } else if (!strcmp(verb, "read")) {
        rc = CALL(cuMemcpyDtoH_v2, back, pieces[n].address, sizeof(back) - 1);
        printf("%d %s\n", rc, back);
    } else if (!strcmp(verb, "range")) {
        CUdeviceptr base = 0;

        rc = CALL(cuMemGetAddressRange_v2, &base, &total, pieces[n].address);
        printf("%d %llu %zu\n", rc, pieces[n].address - base, total);
    } else if (!strcmp(verb, "info")) {
        rc = CALL(cuMemGetInfo_v2, &free_bytes, &total);
        printf("%d %zu\n", rc, free_bytes);
    } else {
        printf("%d 0\n", rc);
    }
}

int main(int argc, char **argv)
{
    char line[512], verb[32], first[256], second[256];
    CUcontext context;

    if (argc != 2)
        return 2;
    wire = atoi(argv[1]);
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        *first = *second = '\0';
        if (sscanf(line, "%31s %255s %255s", verb, first, second) < 1 || piece_count == PIECES_MAX)
            return 2;
        if (!make(verb, first, second))
            use(verb, atoi(first), second);
        fflush(stdout);
    }
    return 0;
}

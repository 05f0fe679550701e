/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: what cuModuleLoad* and cuLibraryLoad* are given, in whichever form. A binary image comes
 * as a pointer without a size, so its header says how much there is; it is copied in a way that
 * fails, rather than crashes, when that is more than can be read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/fatbin.h"
#include "cuda/module.h"

#define FILE_MAX_BYTES (1ull << 30)
#define ELF_MAGIC "\177ELF"

static const uint32_t newest_ptx[SIM_PROFILES] = {82, 84, 90}; /* by profile: major * 10 + minor */

struct wrapper {
    uint32_t magic, version;
    const void *data;
    void *unused;
};

/* Copies memory of this process that may not be there. */
static bool copy_readable(void *to, const void *from, size_t bytes)
{
    const struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

    if (n < 0 && errno != EFAULT) { /* a sandbox that forbids the call */
        memcpy(to, from, bytes);
        return true;
    }
    return n == (ssize_t)bytes;
}

/* A wrapper's container; other images are themselves. */
static const void *unwrapped(const void *bytes)
{
    struct wrapper w = {0};

    if (copy_readable(&w, bytes, sizeof(w)) && w.magic == SIM_FATBIN_WRAPPER_MAGIC)
        return w.data;
    return bytes;
}

static bool is_binary(const void *bytes)
{
    uint32_t magic;

    memcpy(&magic, bytes, sizeof(magic));
    return memcmp(bytes, ELF_MAGIC, 4) == 0 || magic == SIM_FATBIN_MAGIC;
}

bool image_is_binary(const void *bytes, size_t size)
{
    return size >= sizeof(uint32_t) && is_binary(bytes);
}

size_t image_bytes(const void *bytes)
{
    unsigned char header[SIM_CUBIN_HEADER_BYTES];
    uint64_t size;

    if (!copy_readable(header, bytes, SIM_FATBIN_HEADER_BYTES)) /* a text of a few bytes */
        return strlen(bytes);
    if (!is_binary(header))
        return strlen(bytes);
    size = sim_fatbin_bytes(header, SIM_FATBIN_HEADER_BYTES);
    if (!size && copy_readable(header, bytes, sizeof(header)))
        size = sim_cubin_bytes(header, sizeof(header));
    return size <= FILE_MAX_BYTES ? size : 0;
}

static CUresult from_rc(int rc, CUresult invalid)
{
    return rc == 0 ? CUDA_SUCCESS : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : invalid;
}

static CUresult read_ptx(const char *text, uint32_t cc, struct jit_log *log, struct image *i)
{
    uint32_t line = 0;
    int rc = -EINVAL;

    if (!sim_ptx_is(text)) {
        jit_say(
            log->error, log->error_bytes,
            "ptxas application ptx input, line 1; fatal   : Missing .version directive at start "
            "of file\n");
        return CUDA_ERROR_INVALID_PTX;
    }
    rc = sim_ptx_read(text, &i->code, &line);
    if (rc == -EINVAL)
        jit_say(log->error, log->error_bytes,
                "ptxas application ptx input, line %u; fatal   : Parsing error: syntax error\n",
                line);
    TRY(from_rc(rc, CUDA_ERROR_INVALID_PTX));
    if (i->code.ptx_version > newest_ptx[driver_profile]) {
        jit_say(
            log->error, log->error_bytes,
            "ptxas application ptx input, line 1; fatal   : Unsupported .version %u.%u; current "
            "version is '%u.%u'\n",
            i->code.ptx_version / 10, i->code.ptx_version % 10, newest_ptx[driver_profile] / 10,
            newest_ptx[driver_profile] % 10);
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    if (i->code.cc > cc) {
        jit_say(log->error, log->error_bytes,
                "ptxas fatal   : SM version specified by .target is higher than default SM version "
                "assumed\n");
        return CUDA_ERROR_INVALID_PTX;
    }
    return CUDA_SUCCESS;
}

static CUresult read_cubin(const void *bytes, size_t size, uint32_t cc, struct image *i)
{
    TRY(from_rc(sim_cubin_read(bytes, size, &i->code), CUDA_ERROR_INVALID_IMAGE));
    return i->code.cc / 10 == cc / 10 && i->code.cc <= cc ? CUDA_SUCCESS
                                                          : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult read_fatbin(const char *bytes, size_t size, uint32_t cc, struct jit_log *log,
                            struct image *i)
{
    struct sim_fatbin_entry e;
    int rc = sim_fatbin_choose(bytes, size, cc, &e);
    char *text;
    CUresult result;

    NEED(rc == 0, rc == -ENOENT ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE);
    if (e.is_compressed) {
        i->is_opaque = true;
        return CUDA_SUCCESS;
    }
    if (e.kind == SIM_FATBIN_CUBIN)
        return read_cubin(bytes + e.offset, e.bytes, cc, i);
    text = strndup(bytes + e.offset, e.bytes);
    NEED(text, CUDA_ERROR_OUT_OF_MEMORY);
    result = read_ptx(text, cc, log, i);
    free(text);
    return result;
}

/* known: the bytes there are, or 0 when that is not known. */
static CUresult read_any(const void *bytes, size_t known, uint32_t cc, struct jit_log *log,
                         struct image *i)
{
    size_t size = image_bytes(bytes);
    char *copy;
    CUresult rc = CUDA_ERROR_INVALID_IMAGE;

    NEED(size >= sizeof(uint32_t) && (!known || size <= known), CUDA_ERROR_INVALID_IMAGE);
    if (!is_binary(bytes))
        return read_ptx(bytes, cc, log, i);
    copy = malloc(size);
    NEED(copy, CUDA_ERROR_OUT_OF_MEMORY);
    if (copy_readable(copy, bytes, size))
        rc = memcmp(copy, ELF_MAGIC, 4) == 0 ? read_cubin(copy, size, cc, i)
                                             : read_fatbin(copy, size, cc, log, i);
    free(copy);
    return rc;
}

CUresult image_new(const void *bytes, size_t known, const struct device *device,
                   struct jit_log *log, struct image **image)
{
    struct image *i = calloc(1, sizeof(*i));
    CUresult rc;

    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    i->references = 1;
    rc = read_any(unwrapped(bytes), known, device->info.cc_major * 10 + device->info.cc_minor, log,
                  i);
    if (rc != CUDA_SUCCESS) {
        image_put(i);
        return rc;
    }
    *image = i;
    return CUDA_SUCCESS;
}

void image_put(struct image *i)
{
    if (--i->references == 0) {
        sim_image_free(&i->code);
        free(i);
    }
}

bool image_has(const struct image *image, const char *name)
{
    return *name && (image->is_opaque || sim_image_kernel(&image->code, name));
}

char *file_read(const char *path, size_t *bytes, CUresult *rc)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct statx st; /* fstat() would bind the library to glibc 2.33 */
    char *content = NULL;

    *rc = CUDA_ERROR_FILE_NOT_FOUND;
    *bytes = 0;
    if (fd < 0)
        return NULL;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &st) == 0 && S_ISREG(st.stx_mode) &&
        st.stx_size < FILE_MAX_BYTES) {
        *rc = CUDA_ERROR_OUT_OF_MEMORY;
        content = calloc(1, (size_t)st.stx_size + SIM_CUBIN_HEADER_BYTES);
        while (content && *bytes < st.stx_size) {
            ssize_t n = read(fd, content + *bytes, (size_t)st.stx_size - *bytes);

            if (n <= 0)
                break;
            *bytes += (size_t)n;
        }
    }
    close(fd);
    return content;
}

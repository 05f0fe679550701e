/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared objects of a driver root under any bytes. What must hold: names end within their buffers,
 * and a file that is refused is refused with a reason.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cdi/elf.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static struct alq_elf elf;
    struct alq_err err = ALQ_ERR_INIT;
    if (fd < 0)
        fd = memfd_create("elf", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    int rc = alq_elf_read(fd, "fuzz", &elf, &err);
    REQUIRE(rc ? err.code == rc && err.text[0] : 1);
    REQUIRE(memchr(elf.soname, '\0', sizeof(elf.soname)));
    REQUIRE(elf.needed_count <= ALQ_ELF_NEEDED_MAX);
    for (size_t i = 0; !rc && i < elf.needed_count; i++)
        REQUIRE(memchr(elf.needed[i], '\0', sizeof(elf.needed[i])));
    return 0;
}

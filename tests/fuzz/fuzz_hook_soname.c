/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook's ELF reader under any bytes. What must hold: a SONAME is a plain file name that ends
 * within its buffer, and a file that is refused has none.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hook/soname.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct alq_elf_facts facts;
    memset(&facts, 0x55, sizeof(facts));
    if (fd < 0)
        fd = memfd_create("elf", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    int rc = alq_elf_facts(fd, &facts);
    REQUIRE(rc == 0 || rc == -ENOEXEC);
    REQUIRE(memchr(facts.soname, '\0', sizeof(facts.soname)));
    REQUIRE(!rc || !facts.soname[0]);
    REQUIRE(!strchr(facts.soname, '/') && strcmp(facts.soname, ".") && strcmp(facts.soname, ".."));
    return 0;
}

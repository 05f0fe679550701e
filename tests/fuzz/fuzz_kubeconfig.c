/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubeconfig files (and with them the YAML reader) under any bytes. What must hold: a file that is
 * taken names an https server and holds a certificate and its key together; one that is refused
 * says why.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/kube/credentials.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alq_credentials c;
    struct alq_err err = ALQ_ERR_INIT;
    int rc = alq_credentials_parse((const char *)data, size, "/nonexistent", "fuzz", &c, &err);
    if (rc) {
        REQUIRE(err.code == rc && err.text[0]);
    } else {
        REQUIRE(!strncmp(c.server, "https://", 8));
        REQUIRE(!c.certificate.data == !c.key.data);
        REQUIRE(!c.token || !strpbrk(c.token, "\r\n"));
    }
    alq_credentials_free(&c);
    return 0;
}

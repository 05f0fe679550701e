/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of descriptors, see descriptors.h. */
#include "daemon/descriptors.h"

#include <stdio.h>
#include <sys/resource.h>

#include "base/log.h"

#define ALQ_LOG_MODULE "main"

#define DESCRIPTORS_MIN 512
#define DESCRIPTORS_MAX 65536

/* All descriptors that we may have: 110 claims at once take about 200. */
void alq_descriptors_raise(void)
{
    struct rlimit limit;
    char number[24];
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    rlim_t most = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
    if (limit.rlim_cur < most) {
        limit.rlim_cur = most;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    snprintf(number, sizeof(number), "%llu", (unsigned long long)most);
    if (most < DESCRIPTORS_MIN)
        alq_warn(ALQ_LOG_KV({"descriptors", number}),
                 "so few descriptors may not do for many claims at once; raise the limit "
                 "(LimitNOFILE) to %d",
                 DESCRIPTORS_MIN);
}

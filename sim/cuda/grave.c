/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where objects go that a program destroyed: they keep their memory for a while, so that a stale
 * handle is an error, as with a driver's, and the oldest of many is freed when one more dies, so
 * that a program which makes and destroys for days does not grow. Under a lock of its own.
 */
#include <stdlib.h>

#include "cuda/driver.h"

#define GRAVES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *graves[GRAVES]; /* a ring */
static size_t buried;

void bury(void *object)
{
    void *oldest;

    pthread_mutex_lock(&lock);
    oldest = graves[buried % GRAVES];
    graves[buried++ % GRAVES] = object;
    pthread_mutex_unlock(&lock);
    free(oldest);
}

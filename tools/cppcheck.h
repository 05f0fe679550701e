/* SPDX-License-Identifier: Apache-2.0 */
/* For cppcheck alone, which does not look into the system's headers: the shape of what sys/queue.h
 * declares. */
/* clang-format off */
#define LIST_HEAD(name, type) struct name { struct type *first; }
#define LIST_ENTRY(type) struct { struct type *next; }
#define SLIST_HEAD(name, type) struct name { struct type *first; }
#define SLIST_ENTRY(type) struct { struct type *next; }
#define STAILQ_HEAD(name, type) struct name { struct type *first; }
#define STAILQ_ENTRY(type) struct { struct type *next; }
#define TAILQ_HEAD(name, type) struct name { struct type *first; }
#define TAILQ_ENTRY(type) struct { struct type *next; }

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between simgpud and its clients over a SOCK_SEQPACKET unix socket: one request, one
 * answer, at most SIM_MESSAGE_BYTES each. The connection is a client's open device file: what it
 * holds lives until the last copy of the descriptor is closed. A peer of another version is
 * refused. Fixed-width structures, native byte order (both ends share a kernel).
 */
#ifndef SIM_COMMON_WIRE_H
#define SIM_COMMON_WIRE_H

#include <assert.h>
#include <stdint.h>

#include "common/control.h"
#include "common/layout.h"

#define SIM_WIRE_VERSION 4u
#define SIM_MESSAGE_BYTES (160u * 1024u)
#define SIM_COMMAND_BYTES (16u * 1024u)

#define SIM_SOCKET_NAME "simgpud.sock"
#define SIM_SOCKET_DEFAULT "/run/simgpu/" SIM_SOCKET_NAME

enum sim_message_type {
    SIM_HELLO = 1, /* first, once */
    SIM_DEVICE,    /* struct sim_ask_device -> struct sim_device_state */
    SIM_PROCESSES, /* struct sim_ask_device -> struct sim_process_list */
    SIM_SAMPLES,   /* struct sim_ask_device -> struct sim_sample_list */
    SIM_ORACLE,    /* struct sim_header -> struct sim_answer and a memfd with JSON */
    SIM_LIST,      /* likewise: devices, clients, counts of unsupported calls */
    SIM_RESET,     /* struct sim_header -> struct sim_answer */
    SIM_CONTROL,   /* struct sim_header -> struct sim_control_answer and the page; before a hello */
    SIM_COMMAND,   /* struct sim_command -> struct sim_answer and a memfd with JSON */
    SIM_WATCH,     /* struct sim_watch -> struct sim_answer; from then on struct sim_event comes */
    SIM_EVENT,
    SIM_ASK, /* struct sim_header, of a CUDA client; answered in its memory (layout.h) */
    /* Shared memory (daemon/object.h): struct sim_ask_object -> struct sim_object_answer. Those
     * marked bring a holder's descriptor and then the memory. */
    SIM_SHARE,   /* make one; both */
    SIM_TOKEN,   /* a descriptor to hand to somebody else; the holder's only */
    SIM_OPEN,    /* by number, while its maker holds it; both */
    SIM_IMPORT,  /* by a descriptor that comes along; both */
    SIM_MOVE,    /* bytes of the maker's account into it, or back when negative */
    SIM_RELEASE, /* answered once a holder's closed end has taken effect */
};

enum sim_client_kind { SIM_KIND_CUDA = 1, SIM_KIND_NVML, SIM_KIND_CONTROL };

enum sim_status {
    SIM_OK = 0,
    SIM_BAD_REQUEST,
    SIM_BAD_VERSION,
    SIM_NO_SLOT,   /* as many clients are connected as there can be */
    SIM_NO_MEMORY, /* the machine, not the device */
    SIM_NO_DEVICE,
    SIM_NO_OBJECT, /* no such object, or its maker has let go of it */
};

struct sim_header {
    uint32_t type;
    uint32_t bytes; /* of the whole message */
};

struct sim_answer {
    struct sim_header header;
    uint32_t status;
    uint32_t reserved;
};

struct sim_hello {
    struct sim_header header;
    uint32_t version;
    uint32_t kind;
    char group[SIM_GROUP_BYTES]; /* NUL-terminated label for the oracle */
};

/* What a device file says of one device, defaults filled in. */
struct sim_device_info {
    char name[96];
    char uuid[48]; /* "GPU-" and 36 characters */
    unsigned char uuid_bytes[16];
    char serial[32];
    uint64_t total_bytes;    /* physical, as NVML shows it */
    uint64_t reserved_bytes; /* the driver's own; CUDA's total is less by this */
    uint64_t context_bytes;  /* cost of one context */
    uint64_t module_bytes;   /* cost of one module besides its globals */
    uint32_t index;
    uint32_t minor;
    uint32_t sms;
    uint32_t profile; /* enum sim_profile */
    uint32_t cc_major, cc_minor;
    uint32_t pci_domain, pci_bus, pci_device;
    uint32_t numa_node;
    uint32_t mig; /* MIG mode is on: no context can be made */
    uint32_t copy_engines;
};

enum sim_profile { SIM_PROFILE_535, SIM_PROFILE_550, SIM_PROFILE_13_0, SIM_PROFILES };

/* How long kernels of such names take, where their arguments do not say. */
struct sim_kernel_rule {
    char name[64]; /* a pattern as of fnmatch(3) */
    uint64_t duration_ns;
    uint32_t is_wave; /* for each wave of blocks that the device holds at once */
    uint32_t reserved;
};

#define SIM_KERNEL_RULES 32u

/* With descriptors: the control page, and for SIM_KIND_CUDA node, group, client. */
struct sim_welcome {
    struct sim_answer answer;
    uint32_t version;
    uint32_t slot;
    uint32_t device_count;
    uint32_t pid;                                  /* of the client, as simgpud sees it */
    struct sim_kernel_rule rule[SIM_KERNEL_RULES]; /* the first that fits; up to an empty name */
    struct sim_device_info device[];
};

struct sim_control_answer {
    struct sim_answer answer;
    uint32_t pid; /* of the client, as simgpud sees it */
    uint32_t reserved;
};

/* JSON text of the rest of the message; daemon/command.h lists the commands. */
struct sim_command {
    struct sim_header header;
    char text[];
};

struct sim_watch {
    struct sim_header header;
    uint32_t index;
    uint32_t reserved;
    uint64_t types; /* nvmlEventType* bits, added to those watched */
};

struct sim_event {
    struct sim_header header;
    uint32_t index;
    uint32_t reserved;
    uint64_t type;
    uint64_t data; /* the XID */
};

struct sim_ask_device {
    struct sim_header header;
    uint32_t index;
    uint32_t reserved;
    uint64_t since_us; /* SIM_SAMPLES: only newer ones */
};

struct sim_device_state {
    struct sim_answer answer;
    uint64_t used_bytes; /* all clients, without the driver's reserve */
    uint64_t withheld_bytes;
    uint64_t busy_ns;
    uint64_t ecc_corrected, ecc_uncorrected; /* since simgpud started */
    uint32_t utilization_pct;
    uint32_t process_count;
    uint32_t recovery_action; /* as NVML numbers it: 0 none, 1 reset, 2 reboot */
    uint32_t reserved;
};

struct sim_process {
    uint32_t pid; /* in the asking process's PID namespace */
    uint32_t reserved;
    uint64_t used_bytes;
};

struct sim_process_list {
    struct sim_answer answer;
    uint32_t count;
    uint32_t reserved;
    struct sim_process process[];
};

struct sim_sample {
    uint32_t pid;
    uint32_t sm_pct;
    uint64_t time_us; /* CLOCK_REALTIME */
};

struct sim_sample_list {
    struct sim_answer answer;
    uint32_t count;
    uint32_t reserved;
    struct sim_sample sample[];
};

#define SIM_META_BYTES 64u

struct sim_ask_object {
    struct sim_header header;
    uint32_t device; /* SIM_SHARE: which node device pays */
    uint32_t kind;   /* SIM_SHARE: the clients' business */
    uint64_t id;
    int64_t bytes;       /* SIM_MOVE: what is moved */
    uint64_t file_bytes; /* SIM_SHARE: size of the memory */
    unsigned char meta[SIM_META_BYTES];
};

struct sim_object_answer {
    struct sim_answer answer;
    uint64_t id;
    uint32_t device;
    uint32_t kind;
    uint64_t bytes;
    uint64_t file_bytes;
    unsigned char meta[SIM_META_BYTES];
};

static_assert(sizeof(struct sim_welcome) + SIM_MAX_DEVICES * sizeof(struct sim_device_info) <=
                  SIM_MESSAGE_BYTES,
              "all devices fit a message");
static_assert(sizeof(struct sim_process_list) + SIM_MAX_SLOTS * sizeof(struct sim_process) <=
                  SIM_MESSAGE_BYTES,
              "all processes fit a message");

#endif

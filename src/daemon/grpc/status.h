/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's status codes, numbered by the protocol; only those that this server gives. */
#ifndef ALQ_DAEMON_GRPC_STATUS_H
#define ALQ_DAEMON_GRPC_STATUS_H

enum alq_grpc_status {
    ALQ_GRPC_OK = 0,
    ALQ_GRPC_CANCELLED = 1,
    ALQ_GRPC_INVALID_ARGUMENT = 3,
    ALQ_GRPC_DEADLINE_EXCEEDED = 4,
    ALQ_GRPC_RESOURCE_EXHAUSTED = 8,
    ALQ_GRPC_UNIMPLEMENTED = 12,
    ALQ_GRPC_INTERNAL = 13,
    ALQ_GRPC_UNAVAILABLE = 14,
};

#endif

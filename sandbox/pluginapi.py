# SPDX-License-Identifier: Apache-2.0
"""The kubelet's gRPC messages and methods (reference/dra.md 3.1), as protobuf classes made at import.

Only field numbers and types matter on the wire, so v1 and v1beta1 share one set of messages. No state.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_T = descriptor_pb2.FieldDescriptorProto
_KINDS = {"string": _T.TYPE_STRING, "bool": _T.TYPE_BOOL, "int64": _T.TYPE_INT64, "int32": _T.TYPE_INT32}
_MESSAGES = {
    "InfoRequest": [],
    "PluginInfo": [(1, "type", "string"), (2, "name", "string"), (3, "endpoint", "string"),
                   (4, "supported_versions", "string*")],
    "RegistrationStatus": [(1, "plugin_registered", "bool"), (2, "error", "string")],
    "RegistrationStatusResponse": [],
    "Claim": [(1, "namespace", "string"), (2, "uid", "string"), (3, "name", "string")],
    "ClaimsRequest": [(1, "claims", "Claim*")],
    "Device": [(1, "request_names", "string*"), (2, "pool_name", "string"), (3, "device_name", "string"),
               (4, "cdi_device_ids", "string*"), (5, "share_id", "string")],
    "PrepareResult": [(1, "devices", "Device*"), (2, "error", "string")],
    # A map is a repeated entry of key and value.
    "PrepareEntry": [(1, "key", "string"), (2, "value", "PrepareResult")],
    "PrepareResponse": [(1, "claims", "PrepareEntry*")],
    "UnprepareResult": [(1, "error", "string")],
    "UnprepareEntry": [(1, "key", "string"), (2, "value", "UnprepareResult")],
    "UnprepareResponse": [(1, "claims", "UnprepareEntry*")],
    "WatchRequest": [],
    "DeviceIdentifier": [(1, "pool_name", "string"), (2, "device_name", "string")],
    "DeviceHealth": [(1, "device", "DeviceIdentifier"), (2, "health", "int32"), (3, "last_updated_time", "int64"),
                     (4, "health_check_timeout_seconds", "int64"), (5, "message", "string")],
    "WatchResponse": [(1, "devices", "DeviceHealth*")],
}


def _build():
    file = descriptor_pb2.FileDescriptorProto(name="aliquot/sandbox/kubelet.proto", package="aliquot.sandbox",
                                              syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            entry = message.field.add(name=field, number=number,
                                      label=_T.LABEL_REPEATED if repeated else _T.LABEL_OPTIONAL)
            if kind in _KINDS:
                entry.type = _KINDS[kind]
            else:
                entry.type, entry.type_name = _T.TYPE_MESSAGE, f".aliquot.sandbox.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    out = {}
    for name in _MESSAGES:
        descriptor = pool.FindMessageTypeByName(f"aliquot.sandbox.{name}")
        if hasattr(message_factory, "GetMessageClass"):
            out[name] = message_factory.GetMessageClass(descriptor)
        else:
            out[name] = message_factory.MessageFactory(pool).GetPrototype(descriptor)
    return out


messages = _build()
REGISTRATION = "/pluginregistration.Registration/"
# The name that a plugin advertises -> the service's path on the wire.
SERVICES = {"v1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/",
            "v1beta1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"}
HEALTH = "/v1alpha1.DRAResourceHealth/NodeWatchResources"


def unary(channel, path, request, answer, timeout):
    """Calls a method and returns the answer. Raises grpc.RpcError."""
    call = channel.unary_unary(path, request_serializer=lambda m: m.SerializeToString(),
                               response_deserializer=messages[answer].FromString)
    return call(request, timeout=timeout)

# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of its plugin APIs on grpcio: messages built from descriptors here, field by field as
reference/dra.md has them, so that the daemon's own .proto files are not their own judge."""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

F = descriptor_pb2.FieldDescriptorProto
V1 = "k8s.io.kubelet.pkg.apis.dra.v1"
V1BETA1 = "k8s.io.kubelet.pkg.apis.dra.v1beta1"


def _message(file, name, *fields, within=None):
    message = (within.nested_type if within is not None else file.message_type).add()
    message.name = name
    for number, field, kind, *rest in fields:
        f = message.field.add()
        f.name, f.number, f.label = field, number, F.LABEL_OPTIONAL
        if "repeated" in rest:
            f.label = F.LABEL_REPEATED
        if isinstance(kind, str):
            f.type, f.type_name = F.TYPE_MESSAGE, kind
        else:
            f.type = kind
    return message


def _map(file, message, number, field, value):
    entry = _message(file, field.capitalize() + "Entry", (1, "key", F.TYPE_STRING), (2, "value", value), within=message)
    entry.options.map_entry = True
    f = message.field.add()
    f.name, f.number, f.label, f.type = field, number, F.LABEL_REPEATED, F.TYPE_MESSAGE
    f.type_name = f".{file.package}.{message.name}.{entry.name}"


def _dra(package):
    file = descriptor_pb2.FileDescriptorProto(name=package + ".proto", package=package, syntax="proto3")
    text = F.TYPE_STRING
    _message(file, "Claim", (1, "namespace", text), (2, "uid", text), (3, "name", text))
    _message(file, "NodePrepareResourcesRequest", (1, "claims", f".{package}.Claim", "repeated"))
    _message(file, "NodeUnprepareResourcesRequest", (1, "claims", f".{package}.Claim", "repeated"))
    device = [(1, "request_names", text, "repeated"), (2, "pool_name", text), (3, "device_name", text),
              (4, "cdi_device_ids", text, "repeated")]
    _message(file, "Device", *device, *([(5, "share_id", text)] if package == V1 else []))
    _message(file, "NodePrepareResourceResponse", (1, "devices", f".{package}.Device", "repeated"), (2, "error", text))
    _message(file, "NodeUnprepareResourceResponse", (1, "error", text))
    _map(file, _message(file, "NodePrepareResourcesResponse"), 1, "claims", f".{package}.NodePrepareResourceResponse")
    _map(file, _message(file, "NodeUnprepareResourcesResponse"), 1, "claims",
         f".{package}.NodeUnprepareResourceResponse")
    return file


def _health(package):
    file = descriptor_pb2.FileDescriptorProto(name=package + ".health.proto", package=package, syntax="proto3")
    text = F.TYPE_STRING
    _message(file, "NodeWatchResourcesRequest")
    _message(file, "DeviceIdentifier", (1, "pool_name", text), (2, "device_name", text))
    # An enum is a varint: UNKNOWN 0, HEALTHY 1, UNHEALTHY 2.
    _message(file, "DeviceHealth", (1, "device", f".{package}.DeviceIdentifier"), (2, "health", F.TYPE_INT32),
             (3, "last_updated_time", F.TYPE_INT64), (4, "health_check_timeout_seconds", F.TYPE_INT64),
             (5, "message", text))
    _message(file, "NodeWatchResourcesResponse", (1, "devices", f".{package}.DeviceHealth", "repeated"))
    return file


def _registration():
    file = descriptor_pb2.FileDescriptorProto(name="reg.proto", package="pluginregistration", syntax="proto3")
    text = F.TYPE_STRING
    _message(file, "InfoRequest")
    _message(file, "PluginInfo", (1, "type", text), (2, "name", text), (3, "endpoint", text),
             (4, "supported_versions", text, "repeated"))
    _message(file, "RegistrationStatus", (1, "plugin_registered", F.TYPE_BOOL), (2, "error", text))
    _message(file, "RegistrationStatusResponse")
    return file


POOL = descriptor_pool.DescriptorPool()
for _file in (_dra(V1), _dra(V1BETA1), _health("v1"), _health("v1alpha1"), _registration()):
    POOL.Add(_file)
_FACTORY = message_factory.MessageFactory(POOL)


def message(name):
    return _FACTORY.GetPrototype(POOL.FindMessageTypeByName(name))


class Peer:
    """One connection to a socket of the daemon."""

    def __init__(self, path):
        # A channel of its own: grpcio shares connections between channels of equal arguments.
        self.channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1),
                                                                      ("grpc.default_authority", "localhost")])

    def close(self):
        self.channel.close()

    def method(self, path, reply):
        return self.channel.unary_unary(path, request_serializer=lambda m: m if isinstance(m, bytes)
                                        else m.SerializeToString(), response_deserializer=reply.FromString)

    def get_info(self, timeout=1):
        return self.method("/pluginregistration.Registration/GetInfo", message("pluginregistration.PluginInfo"))(
            message("pluginregistration.InfoRequest")(), timeout=timeout)

    def notify(self, registered=True, error=""):
        return self.method("/pluginregistration.Registration/NotifyRegistrationStatus",
                           message("pluginregistration.RegistrationStatusResponse"))(
            message("pluginregistration.RegistrationStatus")(plugin_registered=registered, error=error), timeout=5)

    def watch_health(self, package="v1", timeout=None):
        """The stream of NodeWatchResourcesResponse; cancel() ends it."""
        call = self.channel.unary_stream(f"/{package}.DRAResourceHealth/NodeWatchResources",
                                         request_serializer=lambda m: m.SerializeToString(),
                                         response_deserializer=message(f"{package}.NodeWatchResourcesResponse").FromString)
        return call(message(f"{package}.NodeWatchResourcesRequest")(), timeout=timeout)

    def _call(self, verb, claims, package):
        request = message(f"{package}.Node{verb}ResourcesRequest")()
        for namespace, name, uid in claims:
            request.claims.add(namespace=namespace, name=name, uid=uid)
        return (self.method(f"/{package}.DRAPlugin/Node{verb}Resources",
                            message(f"{package}.Node{verb}ResourcesResponse")), request)

    def prepare(self, *claims, package=V1, timeout=45):
        call, request = self._call("Prepare", claims, package)
        return call(request, timeout=timeout).claims

    def prepare_later(self, *claims, package=V1, timeout=45):
        call, request = self._call("Prepare", claims, package)
        return call.future(request, timeout=timeout)

    def unprepare(self, *claims, package=V1, timeout=45):
        call, request = self._call("Unprepare", claims, package)
        return call(request, timeout=timeout).claims

    def unprepare_later(self, *claims, package=V1, timeout=45):
        call, request = self._call("Unprepare", claims, package)
        return call.future(request, timeout=timeout)

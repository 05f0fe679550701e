# SPDX-License-Identifier: Apache-2.0
"""The shapes of the resource.k8s.io/v1 objects, and the decoder that holds a JSON object against them.

Owns field names, order and types (reference/dra.md 4.1). decode() does what the API server's JSON layer does: it
drops unknown fields and names them, refuses wrong types, rewrites quantities, sorts maps, leaves empty values out
and puts the fields in the server's order. go_dump() prints a value as Go prints it in "Invalid value" messages.
Kinds without a shape here (pods, nodes, ...) are stored as they come. Pure functions, safe from any thread.
"""

import json
import re

import quantity

# One struct a paragraph; a field a line: name, type, then "!" always written, "?" written as null when absent,
# "*" a pointer in Go, "@1.36" only known from that version on.
_TEXT = """
ObjectMeta
 name str
 generateName str
 namespace str
 selfLink str
 uid str
 resourceVersion str
 generation int64
 creationTimestamp time*
 deletionTimestamp time*
 deletionGracePeriodSeconds int64*
 labels map[str]
 annotations map[str]
 ownerReferences []OwnerReference
 finalizers []str
 managedFields []raw

OwnerReference
 apiVersion str!
 kind str!
 name str!
 uid str!
 controller bool*
 blockOwnerDeletion bool*

NodeSelector
 nodeSelectorTerms []NodeSelectorTerm!

NodeSelectorTerm
 matchExpressions []NodeSelectorRequirement
 matchFields []NodeSelectorRequirement

NodeSelectorRequirement
 key str!
 operator str!
 values []str

ResourceSlice
 kind str
 apiVersion str
 metadata ObjectMeta!
 spec ResourceSliceSpec!

ResourceSliceSpec
 driver str!
 pool ResourcePool!
 nodeName str*
 nodeSelector NodeSelector*
 allNodes bool*
 devices []Device
 perDeviceNodeSelection bool*
 sharedCounters []CounterSet

ResourcePool
 name str!
 generation int64!
 resourceSliceCount int64!

CounterSet
 name str!
 counters map[Counter]

Counter
 value qty!

Device
 name str!
 attributes map[DeviceAttribute]
 capacity map[DeviceCapacity]
 consumesCounters []DeviceCounterConsumption
 nodeName str*
 nodeSelector NodeSelector*
 allNodes bool*
 taints []DeviceTaint
 bindsToNode bool*
 bindingConditions []str
 bindingFailureConditions []str
 allowMultipleAllocations bool*

DeviceCounterConsumption
 counterSet str!
 counters map[Counter]

DeviceAttribute
 int int64*
 bool bool*
 string str*
 version str*
 ints []int64@1.36
 bools []bool@1.36
 strings []str@1.36
 versions []str@1.36

DeviceCapacity
 value qty!
 requestPolicy CapacityRequestPolicy*

CapacityRequestPolicy
 default qty?
 validValues []qty
 validRange CapacityRequestPolicyRange*

CapacityRequestPolicyRange
 min qty?
 max qty*
 step qty*

DeviceTaint
 key str!
 value str
 effect str!
 timeAdded time*

DeviceClass
 kind str
 apiVersion str
 metadata ObjectMeta!
 spec DeviceClassSpec!

DeviceClassSpec
 selectors []DeviceSelector
 config []DeviceClassConfiguration
 extendedResourceName str*

DeviceClassConfiguration
 opaque OpaqueDeviceConfiguration*

DeviceSelector
 cel CELDeviceSelector*

CELDeviceSelector
 expression str!

OpaqueDeviceConfiguration
 driver str!
 parameters raw!

ResourceClaim
 kind str
 apiVersion str
 metadata ObjectMeta!
 spec ResourceClaimSpec!
 status ResourceClaimStatus!

ResourceClaimSpec
 devices DeviceClaim!

DeviceClaim
 requests []DeviceRequest
 constraints []DeviceConstraint
 config []DeviceClaimConfiguration

DeviceRequest
 name str!
 exactly ExactDeviceRequest*
 firstAvailable []DeviceSubRequest

ExactDeviceRequest
 deviceClassName str!
 selectors []DeviceSelector
 allocationMode str
 count int64
 adminAccess bool*
 tolerations []DeviceToleration
 capacity CapacityRequirements*

DeviceSubRequest
 name str!
 deviceClassName str!
 selectors []DeviceSelector
 allocationMode str
 count int64
 tolerations []DeviceToleration
 capacity CapacityRequirements*

CapacityRequirements
 requests map[qty]

DeviceToleration
 key str
 operator str
 value str
 effect str
 tolerationSeconds int64*

DeviceConstraint
 requests []str
 matchAttribute str*
 distinctAttribute str*

DeviceClaimConfiguration
 requests []str
 opaque OpaqueDeviceConfiguration*

ResourceClaimStatus
 allocation AllocationResult*
 reservedFor []ResourceClaimConsumerReference
 devices []AllocatedDeviceStatus

AllocationResult
 devices DeviceAllocationResult
 nodeSelector NodeSelector*
 allocationTimestamp time*

DeviceAllocationResult
 results []DeviceRequestAllocationResult
 config []DeviceAllocationConfiguration

DeviceRequestAllocationResult
 request str!
 driver str!
 pool str!
 device str!
 adminAccess bool*
 tolerations []DeviceToleration
 bindingConditions []str
 bindingFailureConditions []str
 shareID str*
 consumedCapacity map[qty]

DeviceAllocationConfiguration
 source str!
 requests []str
 opaque OpaqueDeviceConfiguration*

ResourceClaimConsumerReference
 apiGroup str
 resource str!
 name str!
 uid str!

AllocatedDeviceStatus
 driver str!
 pool str!
 device str!
 shareID str*
 conditions []Condition
 data raw
 networkData NetworkDeviceData*

NetworkDeviceData
 interfaceName str
 ips []str
 hardwareAddress str

Condition
 type str!
 status str!
 observedGeneration int64
 lastTransitionTime time?
 reason str!
 message str!

ResourceClaimTemplate
 kind str
 apiVersion str
 metadata ObjectMeta!
 spec ResourceClaimTemplateSpec!

ResourceClaimTemplateSpec
 metadata ObjectMeta!
 spec ResourceClaimSpec!
"""


class Field:
    """One field of a struct: its JSON name, its type text and how Go treats it."""

    __slots__ = ("name", "type", "always", "null", "pointer", "since")

    def __init__(self, name, text):
        text, _, self.since = text.partition("@")
        self.always, self.null, self.pointer = text.endswith("!"), text.endswith("?"), text.endswith("*")
        self.name, self.type = name, text.rstrip("!?*")


def _read(text):
    structs = {}
    for paragraph in text.strip().split("\n\n"):
        head, *lines = paragraph.split("\n")
        structs[head.strip()] = {f.name: f for f in (Field(*line.split()) for line in lines)}
    return structs


STRUCTS = _read(_TEXT)
_GO_TYPES = {"str": "string", "int64": "int64", "bool": "bool"}
_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class DecodeError(ValueError):
    """The object cannot be read as its kind; str() is the API server's wording."""


class _Decoder:
    def __init__(self, version):
        self.version = version
        self.unknown = []

    def value(self, typ, value, owner, path, plain):
        if typ.startswith("[]"):
            if not isinstance(value, list):
                self.mismatch(value, owner, plain, typ)
            return [self.value(typ[2:], v, owner, f"{path}[{i}]", plain) for i, v in enumerate(value)]
        if typ.startswith("map["):
            if not isinstance(value, dict):
                self.mismatch(value, owner, plain, typ)
            inner = typ[4:-1]
            return {k: self.value(inner, value[k], owner, f"{path}.{k}", plain) for k in sorted(value)
                    if value[k] is not None or inner == "str"}
        if typ == "raw":
            return value
        if typ == "qty":
            try:
                return str(quantity.parse(value))
            except quantity.QuantityError as error:
                raise DecodeError(str(error)) from None
        if typ in ("str", "time"):
            if value is None and typ == "str":
                return ""
            if not isinstance(value, str):
                self.mismatch(value, owner, plain, "str")
            if typ == "time" and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value):
                raise DecodeError(f'parsing time {json.dumps(json.dumps(value))} as "2006-01-02T15:04:05Z07:00": '
                                  f'cannot parse {json.dumps(value)} as "2006"')
            return re.sub(r"\.\d+Z$", "Z", value) if typ == "time" else value
        if typ == "bool":
            if not isinstance(value, bool):
                self.mismatch(value, owner, plain, typ)
            return value
        if typ == "int64":
            if isinstance(value, bool) or not isinstance(value, int):
                self.mismatch(value, owner, plain, typ)
            return value
        return self.struct(typ, value, path, plain, owner)

    def struct(self, name, value, path, plain, owner=""):
        if not isinstance(value, dict):
            self.mismatch(value, owner or name, plain, name)
        fields = STRUCTS[name]
        for key in value:
            field = fields.get(key)
            if field is None or (field.since and self.version < field.since):
                self.unknown.append(f"{path}.{key}" if path else key)
        out = {}
        for field in fields.values():
            raw = value.get(field.name)
            if field.since and self.version < field.since:
                continue
            here = f"{path}.{field.name}" if path else field.name
            flat = f"{plain}.{field.name}" if plain else field.name
            if raw is None:
                if field.null:
                    out[field.name] = None
                elif field.always:
                    out[field.name] = zero(field.type)
                continue
            got = self.value(field.type, raw, name, here, flat)
            empty = got in ("", [], {}) or (got == 0 and not field.pointer and got is not False)
            if got is False and not field.pointer:
                empty = True
            if field.pointer and got in ("", 0, False):
                empty = False
            if field.pointer and got == {}:
                empty = False
            if empty and not field.always and field.type != "raw" and not (
                    field.type in STRUCTS and not field.pointer and field.name == "spec"):
                continue
            out[field.name] = got
        return out

    @staticmethod
    def mismatch(value, owner, plain, typ):
        raise DecodeError(f"json: cannot unmarshal {_JSON_NAMES.get(type(value), 'null')} into Go struct field "
                          f"{owner}.{plain} of type {_go_type(typ)}")


def _go_type(typ):
    if typ.startswith("[]"):
        return "[]" + _go_type(typ[2:])
    if typ.startswith("map["):
        return "map[string]" + _go_type(typ[4:-1])
    return _GO_TYPES.get(typ, "v1." + typ)


def zero(typ):
    """The value Go writes for an absent field that is always written."""
    if typ in STRUCTS:
        return {f.name: zero(f.type) for f in STRUCTS[typ].values() if f.always}
    return {"str": "", "bool": False, "int64": 0, "qty": "0"}.get(typ, [] if typ.startswith("[]") else {})


def decode(kind, obj, version):
    """Returns (object, unknown field paths). Raises DecodeError. version: "1.34" or "1.36"."""
    decoder = _Decoder(version)
    out = decoder.struct(kind, obj, "", "")
    return out, decoder.unknown


def _go_name(name):
    return {"cel": "CEL", "uid": "UID", "ips": "IPs"}.get(name, name[0].upper() + name[1:])


def go_dump(typ, value):
    """JSON of the internal Go struct (Go names, nulls for unset), as in "Invalid value: {...}" messages."""
    return json.dumps(_dump(typ, value), separators=(",", ":"))


def _dump(typ, value):
    if typ.startswith("[]"):
        return [_dump(typ[2:], v) for v in value] if value else None
    if typ.startswith("map["):
        return {k: _dump(typ[4:-1], v) for k, v in value.items()} if value else None
    if typ in STRUCTS:
        value = value or {}
        out = {}
        for field in STRUCTS[typ].values():
            got = value.get(field.name)
            if got is None and (field.pointer or field.null or field.type.startswith(("[]", "map["))):
                out[_go_name(field.name)] = None
            elif got is None and field.type not in STRUCTS:
                out[_go_name(field.name)] = zero(field.type)
            else:
                out[_go_name(field.name)] = _dump(field.type, got)
        return out
    return value

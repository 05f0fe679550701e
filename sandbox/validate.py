# SPDX-License-Identifier: Apache-2.0
"""Validation of ResourceSlices, DeviceClasses and ResourceClaims as the API server of 1.34 and 1.36 does it.

Owns the rules of reference/dra.md 4.2 with the server's field paths, reasons and wording, and the dropping of fields
of feature gates that are off. Takes decoded objects (schema.py); returns lists of Problem; touches nothing else.
"""

import json
import re

import quantity
import schema

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
                     r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
                     r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?")
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')")
_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')")
_C_IDENTIFIER_MESSAGE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')")
_NAME_PART_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")
_NODE_FIELDS = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


class Problem:
    """One cause of a 422: field path, FieldValue... reason and message."""

    __slots__ = ("field", "reason", "message")

    def __init__(self, field, reason, message):
        self.field, self.reason, self.message = field, reason, message


class StepZero(Exception):
    """The real API server panics here: the connection ends without an answer."""


def _show(value):
    return value if isinstance(value, _Raw) else json.dumps(value, ensure_ascii=False)


class _Raw(str):
    """A value that is printed as it is (Go structs)."""


def invalid(field, value, why):
    return Problem(field, "FieldValueInvalid", f"Invalid value: {_show(value)}: {why}")


def required(field, why=""):
    return Problem(field, "FieldValueRequired", "Required value" + (f": {why}" if why else ""))


def forbidden(field, why):
    return Problem(field, "FieldValueForbidden", f"Forbidden: {why}")


def too_long(field, limit):
    return Problem(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field, count, limit):
    return Problem(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def duplicate(field, value):
    return Problem(field, "FieldValueDuplicate", f"Duplicate value: {_show(value)}")


def unsupported(field, value, choices):
    names = ", ".join(json.dumps(c) for c in sorted(choices))
    return Problem(field, "FieldValueNotSupported", f"Unsupported value: {_show(value)}: supported values: {names}")


def check_subdomain(field, value, lower=False):
    text = value.lower() if lower else value
    out = []
    if len(text) > 253:
        out.append(invalid(field, value, "must be no more than 253 characters"))
    if not _SUBDOMAIN.fullmatch(text):
        out.append(invalid(field, value, _SUBDOMAIN_MESSAGE))
    return out


def check_label(field, value):
    out = []
    if len(value) > 63:
        out.append(invalid(field, value, "must be no more than 63 characters"))
    if not _LABEL.fullmatch(value):
        out.append(invalid(field, value, "must not contain dots" if _SUBDOMAIN.fullmatch(value) else _LABEL_MESSAGE))
    return out


def _driver_name(field, value):
    if not value:
        return [required(field)]
    out = [too_long(field, 63)] if len(value) > 63 else []
    return out + check_subdomain(field, value, lower=True)


def _c_identifier(field, value):
    if not value:
        return [required(field)]
    if len(value) > 32:
        return [too_long(field, 32)]
    return [] if _C_IDENTIFIER.fullmatch(value) else [invalid(field, value, _C_IDENTIFIER_MESSAGE)]


def _qualified_name(field, value, full=False):
    """name or domain/name of attributes and capacities; full: the domain is needed (constraints)."""
    if not value:
        return [required(field)]
    parts = value.split("/")
    if len(parts) == 1:
        if full:
            return [invalid(field, value, "must include a domain")]
        return _c_identifier(field, value)
    if len(parts) > 2:
        return [invalid(field, value, "must consist of an optional domain and a name, separated by one slash")]
    out = _driver_name(field, parts[0]) if parts[0] else [required(field, "the domain must not be empty")]
    return out + (_c_identifier(field, parts[1]) if parts[1] else [required(field, "the name must not be empty")])


def label_key(field, value):
    prefix, slash, name = value.rpartition("/")
    out = []
    if slash and not prefix:
        out.append(invalid(field, value, "prefix part must be non-empty"))
    elif slash:
        out += [Problem(field, p.reason, p.message.replace(_show(prefix), _show(value), 1).replace(
            ": a lower", ": prefix part a lower", 1)) for p in check_subdomain(field, prefix)]
    if not name:
        out.append(invalid(field, value, "name part must be non-empty"))
    elif len(name) > 63:
        out.append(invalid(field, value, "name part must be no more than 63 characters"))
    if not _NAME_PART.fullmatch(name):
        out.append(invalid(field, value, _NAME_PART_MESSAGE))
    return out


def object_name(meta, namespaced_name=check_subdomain):
    """metadata.name of a created object (names of these kinds are DNS subdomains)."""
    name = meta.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    return namespaced_name("metadata.name", name)


# ---------------------------------------------------------------------------------------------- slices

def slice_(obj, version):
    """Problems of a ResourceSlice's spec."""
    spec, out = obj["spec"], []
    out += _driver_name("spec.driver", spec["driver"])
    if not spec["driver"] and version < "1.35":
        out += check_subdomain("spec.driver", "")
    out += _pool(spec["pool"])
    chosen = []
    if "nodeName" in spec:
        chosen.append("`nodeName`")
        if spec["nodeName"] == "":
            out.append(invalid("spec.nodeName", "", "must be either unset or set to a non-empty string"))
        else:
            out += check_subdomain("spec.nodeName", spec["nodeName"])
    if "nodeSelector" in spec:
        chosen.append("`nodeSelector`")
        if len(spec["nodeSelector"].get("nodeSelectorTerms", [])) != 1:
            out.append(invalid("spec.nodeSelector.nodeSelectorTerms",
                               _Raw(schema.go_dump("[]NodeSelectorTerm",
                                                   spec["nodeSelector"].get("nodeSelectorTerms"))),
                               "must have exactly one node selector term"))
    for name in ("allNodes", "perDeviceNodeSelection"):
        if name in spec:
            chosen.append(f"`{name}`")
            if not spec[name]:
                out.append(invalid(f"spec.{name}", spec[name], "must be either unset or set to true"))
    if not chosen:
        out.append(required("spec", _NODE_FIELDS))
    elif len(chosen) > 1:
        out.append(invalid("spec", "{%s}" % ", ".join(chosen), _NODE_FIELDS + ", but multiple fields are set"))
    devices = spec.get("devices", [])
    limited = version >= "1.35" and any(d.get("taints") or d.get("consumesCounters") for d in devices)
    limit = 64 if limited else 128
    if version >= "1.35" and spec.get("sharedCounters") and devices:
        out.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    if len(devices) > limit:
        return out + [too_many("spec.devices", len(devices), limit)]
    seen = set()
    for i, device in enumerate(devices):
        field = f"spec.devices[{i}]"
        out += _device(field, device, spec, version)
        if device["name"] in seen:
            out.append(duplicate(field if version >= "1.35" else field + ".name", device["name"]))
        seen.add(device["name"])
    counters = spec.get("sharedCounters", [])
    if len(counters) > 8:
        out.append(too_many("spec.sharedCounters", len(counters), 8))
    names = set()
    for i, entry in enumerate(counters):
        field = f"spec.sharedCounters[{i}]"
        out += check_label(field + ".name", entry["name"]) if entry["name"] else [required(field + ".name")]
        if not entry.get("counters"):
            out.append(required(field + ".counters"))
        elif len(entry["counters"]) > 32:
            out.append(too_many(field + ".counters", len(entry["counters"]), 32))
        if entry["name"] in names:
            out.append(duplicate(field, entry["name"]))
        names.add(entry["name"])
    return out


def _pool(pool):
    out = []
    if not pool["name"]:
        out.append(required("spec.pool.name"))
    else:
        if len(pool["name"]) > 253:
            out.append(too_long("spec.pool.name", 253))
        for part in pool["name"].split("/"):
            out += check_subdomain("spec.pool.name", part)
    if pool["resourceSliceCount"] <= 0:
        out.append(invalid("spec.pool.resourceSliceCount", pool["resourceSliceCount"], "must be greater than zero"))
    if pool["generation"] < 0:
        out.append(invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero"))
    return out


def _device(field, device, spec, version):
    out = check_label(field + ".name", device["name"])
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    total = len(attributes) + len(capacity)
    if total > 32:
        out.append(invalid(field, total, "the total number of attributes and capacities must not exceed 32"))
    for key, value in attributes.items():
        here = f"{field}.attributes[{key}]"
        out += _qualified_name(f"{field}.attributes" if version >= "1.35" else here, key)
        out += _attribute(here, value, version)
    for key, value in capacity.items():
        here = f"{field}.capacity[{key}]"
        out += _qualified_name(f"{field}.capacity" if version >= "1.35" else here, key)
        if device.get("allowMultipleAllocations"):
            out += _policy(here + ".requestPolicy", value, version)
        elif "requestPolicy" in value:
            out.append(forbidden(here + ".requestPolicy", "allowMultipleAllocations must be true"))
    taints, limit = device.get("taints", []), 16 if version >= "1.35" else 4
    if len(taints) > limit:
        out.append(too_many(field + ".taints", len(taints), limit))
    else:
        for i, taint in enumerate(taints):
            out += _taint(f"{field}.taints[{i}]", taint, version)
    if len(device.get("consumesCounters", [])) > 2:
        out.append(too_many(field + ".consumesCounters", len(device["consumesCounters"]), 2))
    if not spec.get("perDeviceNodeSelection"):
        for name in ("nodeName", "nodeSelector", "allNodes"):
            if name in device:
                out.append(forbidden(f"{field}.{name}",
                                     "may only be set when `perDeviceNodeSelection` is true in the ResourceSlice spec"))
    return out


def _attribute(field, value, version):
    if len(value) != 1:
        if not value:
            why = "exactly one value must be specified"
            return [invalid(field, "", why) if version >= "1.35" else required(field, why)]
        names = [("IntValue", "int"), ("BoolValue", "bool"), ("StringValue", "string"), ("VersionValue", "version")]
        if version >= "1.35":
            names += [("IntValues", "ints"), ("BoolValues", "bools"), ("StringValues", "strings"),
                      ("VersionValues", "versions")]
        dump = json.dumps({go: value.get(name) for go, name in names}, separators=(",", ":"))
        return [invalid(field, _Raw(dump), "exactly one value must be specified")]
    (kind, content), = value.items()
    out = []
    if kind in ("string", "version"):
        here = f"{field}.{kind}"
        if len(content.encode()) > 64:
            out.append(too_long(here, 64))
        elif kind == "version" and not _SEMVER.fullmatch(content):
            out.append(invalid(here, content, "must be a string compatible with semver.org spec 2.0.0"))
    return out


def _policy(field, capacity, version):
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    values, range_, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and range_ is not None:
        return [forbidden(field, 'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
                                 'at the same time')]
    if values:
        if default is None:
            return [required(field + ".default", "required when validValues is defined")]
        return _policy_values(field + ".validValues", capacity, policy, version)
    if range_ is None:
        return []
    if default is None:
        return [required(field + ".default", "required when validRange is defined")]
    return _policy_range(field + ".validRange", capacity, range_, default)


def _policy_values(field, capacity, policy, version):
    values, default = policy["validValues"], quantity.parse(policy["default"])
    top, out, found, last = quantity.parse(capacity["value"]), [], False, None
    if len(values) > 10:
        out.append(too_many(field, len(values), 10))
        if version < "1.35":
            return out
        values = []
    for i, text in enumerate(values):
        here, value = f"{field}[{i}]", quantity.parse(text)
        if top < value:
            out.append(invalid(here, text, f"option is larger than capacity value: {capacity['value']}"))
        if last is not None and value == last:
            out.append(duplicate(here, text))
        elif last is not None and value < last:
            out.append(invalid(here, text, "values must be sorted in ascending order"))
        found = found or value == default
        last = value
    if not found:
        out.append(invalid(field, policy["default"], "default value is not valid according to the requestPolicy"))
    return out


def _policy_range(field, capacity, range_, default_text):
    out = []
    if range_.get("min") is None:
        return [required(field + ".min", "required when validRange is defined")]
    top, default, low = (quantity.parse(v) for v in (capacity["value"], default_text, range_["min"]))
    high = quantity.parse(range_["max"]) if "max" in range_ else None
    if top < low:
        out.append(invalid(field + ".min", str(low), f"min is larger than capacity value: {top}"))
    if default < low:
        out.append(invalid(field + ".min", str(default), f"default is less than min: {low}"))
    if high is not None:
        if high < low:
            out.append(invalid(field + ".max", str(low), f"min is larger than max: {high}"))
        if top < high:
            out.append(invalid(field + ".max", str(high), f"max is larger than capacity value: {top}"))
        if high < default:
            out.append(invalid(field + ".max", str(default), f"default is more than max: {high}"))
    if "step" in range_:
        step = quantity.parse(range_["step"])
        if step.nano == 0:
            raise StepZero()
        if top < low + step:
            out.append(invalid(field + ".step", str(step),
                               f"one step {low + step} is larger than capacity value: {top}"))
        for value in (default, high):
            if value is not None and (value.nano - low.nano) % step.nano:
                out.append(invalid(field + ".step", str(value),
                                   f"value is not a multiple of a given step ({step}) from ({low})"))
    return out


def _taint(field, taint, version):
    out = label_key(field + ".key", taint["key"])
    value = taint.get("value", "")
    if value and (len(value) > 63 or not _NAME_PART.fullmatch(value)):
        out.append(invalid(field + ".value", value, "a valid label must be an empty string or consist of alphanumeric "
                           "characters, '-', '_' or '.', and must start and end with an alphanumeric character"))
    effects = ["NoExecute", "NoSchedule"] + (["None"] if version >= "1.35" else [])
    if not taint["effect"]:
        out.append(required(field + ".effect"))
    elif taint["effect"] not in effects:
        out.append(unsupported(field + ".effect", taint["effect"], effects))
    return out


def slice_update(obj, old):
    """Immutable fields of a ResourceSlice."""
    out = []
    for path in (("pool", "name"), ("driver",), ("nodeName",)):
        new_value, old_value = obj["spec"], old["spec"]
        for part in path:
            new_value = new_value.get(part) if new_value else None
            old_value = old_value.get(part) if old_value else None
        if new_value != old_value:
            out.append(invalid("spec." + ".".join(path), new_value, "field is immutable"))
    return out


# ---------------------------------------------------------------------------------------------- claims

def claim_spec(spec, version, field="spec", admin_allowed=True):
    """Problems of a ResourceClaimSpec."""
    devices, out = spec["devices"], []
    field += ".devices"
    requests = devices.get("requests", [])
    if len(requests) > 32:
        out.append(too_many(field + ".requests", len(requests), 32))
    names, seen = set(), set()
    for i, request in enumerate(requests):
        here = f"{field}.requests[{i}]"
        out += _request(here, request, version, admin_allowed)
        if request["name"] in seen:
            out.append(duplicate(here if version >= "1.35" else here + ".name", request["name"]))
        seen.add(request["name"])
        names.add(request["name"])
        names |= {f"{request['name']}/{sub['name']}" for sub in request.get("firstAvailable", [])}
    constraints = devices.get("constraints", [])
    if len(constraints) > 32:
        out.append(too_many(field + ".constraints", len(constraints), 32))
    for i, constraint in enumerate(constraints):
        out += _constraint(f"{field}.constraints[{i}]", constraint, names)
    configs = devices.get("config", [])
    if len(configs) > 32:
        out.append(too_many(field + ".config", len(configs), 32))
    for i, config in enumerate(configs):
        here = f"{field}.config[{i}]"
        out += _request_names(here, config.get("requests", []), names)
        out += _opaque(here, config)
    return out


def _request_names(field, requests, names):
    out, seen = [], set()
    if len(requests) > 32:
        out.append(too_many(field + ".requests", len(requests), 32))
    for i, name in enumerate(requests):
        here = f"{field}.requests[{i}]"
        if name not in names:
            out.append(invalid(here, name, "must be the name of a request in the claim or the name of a request and a "
                                           "subrequest separated by '/'"))
        if name in seen:
            out.append(duplicate(here, name))
        seen.add(name)
    return out


def _constraint(field, constraint, names):
    out = _request_names(field, constraint.get("requests", []), names)
    kinds = [k for k in ("matchAttribute", "distinctAttribute") if k in constraint]
    if "matchAttribute" in kinds or not kinds:
        value = constraint.get("matchAttribute")
        out += [required(field + ".matchAttribute")] if not value else \
            _qualified_name(field + ".matchAttribute", value, full=True)
    if "distinctAttribute" in kinds:
        out += _qualified_name(field + ".distinctAttribute", constraint["distinctAttribute"], full=True)
    if len(kinds) == 2:
        out.append(invalid(field, "", "exactly one of `matchAttribute` or `distinctAttribute` is allowed"))
    return out


def _opaque(field, config):
    opaque = config.get("opaque")
    if opaque is None:
        return [required(field, "exactly one of the configuration fields is required")]
    out = _driver_name(field + ".opaque.driver", opaque["driver"])
    parameters = opaque.get("parameters")
    here = field + ".opaque.parameters"
    if parameters in (None, {}):
        out.append(required(here))
    elif not isinstance(parameters, dict):
        out.append(invalid(here, "<value omitted>", "must be a valid JSON object"))
    elif len(json.dumps(parameters, separators=(",", ":"))) > 10 * 1024:
        out.append(too_long(here, 10240))
    return out


def _request(field, request, version, admin_allowed):
    out = check_label(field + ".name", request["name"]) if request["name"] else [required(field + ".name")]
    exactly, first = request.get("exactly"), request.get("firstAvailable", [])
    if exactly is None and not first:
        return out + [required(field, "exactly one of `exactly` or `firstAvailable` is required")]
    if exactly is not None and first:
        out.append(invalid(field, "", "exactly one of `exactly` or `firstAvailable` is required, "
                                      "but multiple fields are set"))
    if exactly is not None:
        out += _exact(field + ".exactly", exactly)
        if exactly.get("adminAccess") and not admin_allowed:
            # The real server names the path without "exactly" (recorded).
            out.append(forbidden(field + ".adminAccess", "admin access to devices requires the "
                                 "`resource.kubernetes.io/admin-access: true` label on the containing namespace"))
    if len(first) > 8:
        out.append(too_many(field + ".firstAvailable", len(first), 8))
    seen = set()
    for i, sub in enumerate(first):
        here = f"{field}.firstAvailable[{i}]"
        out += check_label(here + ".name", sub["name"]) if sub["name"] else [required(here + ".name")]
        out += _exact(here, sub)
        if sub["name"] in seen:
            out.append(duplicate(here if version >= "1.35" else here + ".name", sub["name"]))
        seen.add(sub["name"])
    return out


def _exact(field, request):
    name = request["deviceClassName"]
    out = check_subdomain(field + ".deviceClassName", name) if name else [required(field + ".deviceClassName")]
    out += _selectors(field + ".selectors", request.get("selectors", []))
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            out.append(invalid(field + ".count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount":
        if count <= 0:
            out.append(invalid(field + ".count", count, "must be greater than zero"))
    else:
        out.append(unsupported(field + ".allocationMode", mode, ["All", "ExactCount"]))
    tolerations = request.get("tolerations", [])
    if len(tolerations) > 16:
        out.append(too_many(field + ".tolerations", len(tolerations), 16))
    for i, toleration in enumerate(tolerations):
        here = f"{field}.tolerations[{i}]"
        operator = toleration.get("operator", "")
        if operator not in ("Equal", "Exists"):
            out.append(unsupported(here + ".operator", operator, ["Equal", "Exists"]))
        elif operator == "Exists" and toleration.get("value"):
            out.append(invalid(here + ".value", toleration["value"], "must be empty for operator `Exists`"))
        elif not toleration.get("key") and operator == "Equal":
            out.append(required(here + ".key"))
    for key in (request.get("capacity") or {}).get("requests", {}):
        out += _qualified_name(f"{field}.capacity.requests[{key}]", key)
    return out


def _selectors(field, selectors):
    out = []
    if len(selectors) > 32:
        out.append(too_many(field, len(selectors), 32))
    for i, selector in enumerate(selectors):
        here = f"{field}[{i}].cel"
        if "cel" not in selector:
            out.append(required(here))
            continue
        text = selector["cel"]["expression"]
        if not text:
            out.append(required(here + ".expression"))
        elif len(text.encode()) > 10 * 1024:
            out.append(too_long(here + ".expression", 10240))
        else:
            why = cel_syntax(text)
            if why:
                out.append(invalid(here + ".expression", text, "compilation failed: " + why))
    return out


_CEL_TOKEN = re.compile(r"""\s+|//[^\n]*|(?:[rR]|[bB]){0,2}(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")
    |(?P<num>0x[0-9a-fA-F]+u?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+[uU]?)|(?P<id>[A-Za-z_]\w*)
    |(?P<op>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])""", re.X | re.S)


def cel_syntax(text):
    """None, or the compiler's message for brackets that do not match, characters that no token has and early ends.

    Types and unknown functions are left to the allocator, which names them in the pod's events.
    """
    position, stack, last = 0, [], ""
    while position < len(text):
        match = _CEL_TOKEN.match(text, position)
        if not match:
            return _cel_error(text, position, f"token recognition error at: '{text[position]}'")
        token = match.group(0)
        if token.strip() and not token.startswith("//"):
            if token in ("(", "[", "{"):
                stack.append(token)
            elif token in (")", "]", "}"):
                if not stack or {"(": ")", "[": "]", "{": "}"}[stack.pop()] != token:
                    return _cel_error(text, position, f"mismatched input '{token}' expecting <EOF>")
            last = token
        position = match.end()
    operand = "{'[', '{', '(', '.', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, " \
              "BYTES, IDENTIFIER}"
    if last == "[":
        return _cel_error(text, len(text), f"mismatched input '<EOF>' expecting {operand}")
    if last in ("&&", "||", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "!", "?", ":", ",", "("):
        operand = operand.replace("'!', '?', ", "'!', ")
        return _cel_error(text, len(text), f"mismatched input '<EOF>' expecting {operand}")
    if stack:
        closing = {"(": ")", "[": "]", "{": "}"}[stack[-1]]
        return _cel_error(text, len(text), f"mismatched input '<EOF>' expecting '{closing}'")
    return None


def _cel_error(text, position, why):
    line = text.count("\n", 0, position) + 1
    start = text.rfind("\n", 0, position) + 1
    column = position - start
    source = text[start:].split("\n", 1)[0]
    return f"ERROR: <input>:{line}:{column + 1}: Syntax error: {why}\n | {source}\n | {'.' * column}^"


def claim_update(obj, old):
    """The spec of a claim is immutable."""
    if obj["spec"] == old["spec"]:
        return []
    return [invalid("spec", _Raw(schema.go_dump("ResourceClaimSpec", obj["spec"])), "field is immutable")]


def claim_status(obj, old, version):
    """Problems of a claim's status: allocation immutable once set, reservedFor, devices."""
    status, before, out = obj.get("status", {}), old.get("status", {}), []
    allocation = status.get("allocation")
    requests = obj["spec"]["devices"].get("requests", [])
    names = {r["name"] for r in requests} | {f"{r['name']}/{s['name']}" for r in requests
                                             for s in r.get("firstAvailable", [])}
    if allocation is not None and before.get("allocation") is None:
        results = allocation.get("devices", {}).get("results", [])
        if len(results) > 32:
            out.append(too_many("status.allocation.devices.results", len(results), 32))
        for i, result in enumerate(results):
            here = f"status.allocation.devices.results[{i}]"
            if result["request"] not in names:
                out.append(invalid(here + ".request", result["request"], "must be the name of a request in the claim "
                                   "or the name of a request and a subrequest separated by '/'"))
            out += _driver_name(here + ".driver", result["driver"])
            out += check_label(here + ".device", result["device"])
            for key in result.get("consumedCapacity", {}):
                out += _qualified_name(f"{here}.consumedCapacity[{key}]", key)
    elif allocation is not None and allocation != before["allocation"]:
        out.append(invalid("status.allocation", _Raw(schema.go_dump("AllocationResult", allocation)),
                           "field is immutable"))
    reserved = status.get("reservedFor", [])
    if len(reserved) > 256:
        out.append(too_many("status.reservedFor", len(reserved), 256))
    if reserved and allocation is None:
        out.append(forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    seen = set()
    for i, entry in enumerate(reserved):
        for name in ("resource", "name", "uid"):
            if not entry[name]:
                out.append(required(f"status.reservedFor[{i}].{name}"))
        if entry["uid"] in seen:
            out.append(duplicate(f"status.reservedFor[{i}].uid" if version < "1.35" else f"status.reservedFor[{i}]",
                                 entry["uid"]))
        seen.add(entry["uid"])
    if "deletionTimestamp" in obj["metadata"] and len(reserved) > len(before.get("reservedFor", [])):
        out.append(forbidden("status.reservedFor", "new entries may not be added while `deallocationRequested` or "
                                                   "`deletionTimestamp` are set"))
    if status.get("devices", []) != before.get("devices", []):
        out += _status_devices(status.get("devices", []), allocation, version)
    return out


def _status_devices(devices, allocation, version):
    out, seen = [], set()
    results = (allocation or {}).get("devices", {}).get("results", [])
    allowed = {(r["driver"], r["pool"], r["device"], r.get("shareID", "")) for r in results}
    for i, device in enumerate(devices):
        field = f"status.devices[{i}]"
        key = (device["driver"], device["pool"], device["device"], device.get("shareID", ""))
        names = ("Driver", "Pool", "Device", "ShareID")
        dump = _Raw(json.dumps(dict(zip(names, key if version >= "1.35" else ({},) * 4)), separators=(",", ":")))
        if key not in allowed:
            out.append(invalid(field, dump, "must be an allocated device in the claim"))
        if key in seen:
            out.append(duplicate(field if version >= "1.35" else field + ".deviceID", dump))
        seen.add(key)
        conditions = device.get("conditions", [])
        if len(conditions) > 8:
            out.append(too_many(field + ".conditions", len(conditions), 8))
        types = set()
        for j, condition in enumerate(conditions):
            here = f"{field}.conditions[{j}]"
            if not condition["type"]:
                out.append(required(here + ".type"))
            elif condition["type"] in types:
                out.append(duplicate(here + ".type", condition["type"]))
            types.add(condition["type"])
            if condition["status"] not in ("True", "False", "Unknown"):
                out.append(unsupported(here + ".status", condition["status"], ["False", "True", "Unknown"]))
            if not condition.get("lastTransitionTime"):
                out.append(required(here + ".lastTransitionTime"))
            if not condition["reason"]:
                out.append(required(here + ".reason"))
        data = device.get("data")
        if data is not None:
            if not isinstance(data, dict):
                out.append(invalid(field + ".data", "<value omitted>", "must be a valid JSON object"))
            elif len(json.dumps(data, separators=(",", ":"))) > 10 * 1024:
                out.append(too_long(field + ".data", 10240))
    return out


# ---------------------------------------------------------------------------------------------- classes, gates

def device_class(obj):
    """Problems of a DeviceClass's spec."""
    spec = obj["spec"]
    out = _selectors("spec.selectors", spec.get("selectors", []))
    for i, config in enumerate(spec.get("config", [])):
        out += _opaque(f"spec.config[{i}]", config)
    return out


def drop_disabled(kind, obj, version):
    """Takes out what a server with DRAConsumableCapacity and DRADeviceTaints off drops. True if it took something."""
    took = False
    if kind == "ResourceSlice":
        for device in obj["spec"].get("devices", []):
            took |= device.pop("allowMultipleAllocations", None) is not None
            took |= device.pop("taints", None) is not None
            for capacity in device.get("capacity", {}).values():
                took |= capacity.pop("requestPolicy", None) is not None
    elif kind in ("ResourceClaim", "ResourceClaimTemplate"):
        spec = obj["spec"] if kind == "ResourceClaim" else obj["spec"]["spec"]
        for request in spec["devices"].get("requests", []):
            for part in [request.get("exactly")] + request.get("firstAvailable", []):
                if part:
                    took |= part.pop("capacity", None) is not None
                    took |= part.pop("tolerations", None) is not None
        if version >= "1.35":
            for constraint in spec["devices"].get("constraints", []):
                took |= constraint.pop("distinctAttribute", None) is not None
    return took


def default_claim_spec(spec):
    """Fills in the defaults of requests: ExactCount, count 1, operator Equal."""
    for request in spec["devices"].get("requests", []):
        for part in [request.get("exactly")] + request.get("firstAvailable", []):
            if part is None:
                continue
            mode = part.pop("allocationMode", "") or "ExactCount"
            count = part.pop("count", 0)
            if mode == "ExactCount" and not count:
                count = 1
            for toleration in part.get("tolerations", []):
                toleration.setdefault("operator", "Equal")
            rest = {k: part.pop(k) for k in ("adminAccess", "tolerations", "capacity") if k in part}
            part["allocationMode"] = mode
            if count:
                part["count"] = count
            part.update(rest)

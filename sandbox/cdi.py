# SPDX-License-Identifier: Apache-2.0
"""Container Device Interface: a strict reader of spec files and their application to an OCI runtime configuration.

Follows the rules of the real library (reference/dra.md 5.1): a file with an unknown field, a wrong or too old
cdiVersion, a bad or one-character vendor or class, a device twice or empty edits is refused whole; a name in two
files of one directory is no device at all. Reads the directories anew at every call; keeps no state.
"""

import json
import os
import re
import stat

import yaml

VERSIONS = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]
HOOKS = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
# Field name -> type: a Python type, [element], or a dict of fields. "!" marks what must be there.
_NODE = {"path!": str, "hostPath": str, "type": str, "major": int, "minor": int, "fileMode": int, "permissions": str,
         "uid": int, "gid": int}
_MOUNT = {"hostPath!": str, "containerPath!": str, "options": [str], "type": str}
_HOOK = {"hookName!": str, "path!": str, "args": [str], "env": [str], "timeout": int}
_RDT = {"closID": str, "l3CacheSchema": str, "memBwSchema": str, "enableCMT": bool, "enableMBM": bool,
        "schemata": [str], "enableMonitoring": bool}
_NET = {"hostInterfaceName!": str, "name!": str}
_EDITS = {"env": [str], "deviceNodes": [_NODE], "netDevices": [_NET], "hooks": [_HOOK], "mounts": [_MOUNT],
          "intelRdt": _RDT, "additionalGids": [int]}
_SPEC = {"cdiVersion!": str, "kind!": str, "annotations": {"*": str}, "containerEdits": _EDITS,
         "devices!": [{"name!": str, "annotations": {"*": str}, "containerEdits!": _EDITS}]}


class CdiError(ValueError):
    """A spec file or a device name is not usable; str() says which and why."""


def _check(value, shape, where):
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise CdiError(f"{where}: must be a list")
        for i, item in enumerate(value):
            _check(item, shape[0], f"{where}[{i}]")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            raise CdiError(f"{where}: must be an object")
        if "*" in shape:
            for name, item in value.items():
                _check(item, shape["*"], f"{where}.{name}")
            return
        known = {n.rstrip("!"): n for n in shape}
        for name, item in value.items():
            if name not in known:
                raise CdiError(f'{where}: unknown field "{name}"')
            _check(item, shape[known[name]], f"{where}.{name}")
        for name in known.values():
            if name.endswith("!") and name[:-1] not in value:
                raise CdiError(f'{where}: field "{name[:-1]}" is missing')
    elif not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        raise CdiError(f"{where}: must be of type {shape.__name__}")


def _check_kind(kind):
    vendor, slash, class_ = kind.partition("/")
    if not slash:
        raise CdiError(f'kind "{kind}" is not vendor/class')
    for what, name in (("vendor", vendor), ("class", class_)):
        if len(name) < 2:
            # Accepted by the grammar; the library of containerd 2.1, 1.7 and podman 4.3 panics on it.
            raise CdiError(f'{what} "{name}" of kind "{kind}" has a single character or none: runtimes panic on it')
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]", name):
            raise CdiError(f'{what} "{name}" of kind "{kind}" must start with a letter and consist of letters, digits, '
                           f"'_', '-' and '.'")


def _check_edits(edits, where):
    if not any(edits.get(k) for k in _EDITS):
        raise CdiError(f"{where}: the edits are empty")
    for entry in edits.get("env", []):
        if "=" not in entry or entry.startswith("="):
            raise CdiError(f'{where}.env: "{entry}" is not NAME=VALUE')
    for i, node in enumerate(edits.get("deviceNodes", [])):
        if not node["path"].startswith("/"):
            raise CdiError(f'{where}.deviceNodes[{i}]: path "{node["path"]}" is not absolute')
        if node.get("type", "c") not in ("b", "c", "u", "p", ""):
            raise CdiError(f'{where}.deviceNodes[{i}]: type "{node["type"]}" is unknown')
        if not re.fullmatch(r"[rwm]*", node.get("permissions", "")):
            raise CdiError(f'{where}.deviceNodes[{i}]: permissions "{node["permissions"]}" are not of r, w, m')
    for i, mount in enumerate(edits.get("mounts", [])):
        if not mount["hostPath"] or not mount["containerPath"]:
            raise CdiError(f"{where}.mounts[{i}]: hostPath and containerPath must not be empty")
    for i, hook in enumerate(edits.get("hooks", [])):
        if hook["hookName"] not in HOOKS:
            raise CdiError(f'{where}.hooks[{i}]: hookName "{hook["hookName"]}" is unknown')
        if not hook["path"].startswith("/"):
            raise CdiError(f'{where}.hooks[{i}]: path "{hook["path"]}" is not absolute')
        if any("=" not in entry for entry in hook.get("env", [])):
            raise CdiError(f"{where}.hooks[{i}]: env holds an entry that is not NAME=VALUE")


def minimum_version(spec):
    """The lowest cdiVersion that may hold what the spec uses."""
    lowest = "0.3.0"

    def need(version):
        nonlocal lowest
        if VERSIONS.index(version) > VERSIONS.index(lowest):
            lowest = version
    parts = [spec.get("containerEdits", {})] + [d["containerEdits"] for d in spec["devices"]]
    if spec.get("annotations") or "." in spec["kind"].split("/")[1]:
        need("0.6.0")
    for device in spec["devices"]:
        if device.get("annotations"):
            need("0.6.0")
        if device["name"][:1].isdigit():
            need("0.5.0")
    for edits in parts:
        if any(m.get("type") for m in edits.get("mounts", [])):
            need("0.4.0")
        if any(n.get("hostPath") for n in edits.get("deviceNodes", [])):
            need("0.5.0")
        if edits.get("intelRdt") or edits.get("additionalGids"):
            need("0.7.0")
        if edits.get("netDevices") or (edits.get("intelRdt") or {}).get("schemata"):
            need("1.1.0")
    return lowest


def check(spec, where="spec"):
    """Holds a spec against the schema and the rules. Raises CdiError."""
    _check(spec, _SPEC, where)
    if spec["cdiVersion"] not in VERSIONS:
        raise CdiError(f'{where}: unknown cdiVersion "{spec["cdiVersion"]}"')
    _check_kind(spec["kind"])
    if not spec["devices"]:
        raise CdiError(f"{where}: no devices")
    names = set()
    for i, device in enumerate(spec["devices"]):
        here = f"{where}.devices[{i}]"
        name = device["name"]
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name):
            raise CdiError(f'{here}: device name "{name}" must consist of letters, digits, \'_\', \'-\', \'.\' and '
                           f"':', and start and end with a letter or digit")
        if name in names:
            raise CdiError(f'{here}: device name "{name}" is there twice')
        names.add(name)
        _check_edits(device["containerEdits"], f"{here}.containerEdits")
    if "containerEdits" in spec and spec["containerEdits"]:
        _check_edits(spec["containerEdits"], f"{where}.containerEdits")
    lowest = minimum_version(spec)
    if VERSIONS.index(spec["cdiVersion"]) < VERSIONS.index(lowest):
        raise CdiError(f'{where}: cdiVersion "{spec["cdiVersion"]}" is too old for what the spec uses: at least '
                       f"{lowest} is needed")


def _no_duplicates(pairs):
    out = {}
    for name, value in pairs:
        if name in out:
            raise CdiError(f'key "{name}" is there twice')
        out[name] = value
    return out


def read(path):
    """Reads and checks one file. Raises CdiError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        spec = json.loads(text, object_pairs_hook=_no_duplicates) if path.endswith(".json") else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CdiError(f"{path}: {error}") from None
    try:
        check(spec)
    except CdiError as error:
        raise CdiError(f"{path}: {error}") from None
    return spec


class Registry:
    """The devices of all specs of the directories, the last directory first."""

    def __init__(self, directories):
        self.devices, self.errors = {}, []
        for directory in directories:
            here, twice = {}, set()
            for name in sorted(os.listdir(directory) if os.path.isdir(directory) else []):
                if not name.endswith((".json", ".yaml")):
                    continue
                path = os.path.join(directory, name)
                try:
                    spec = read(path)
                except CdiError as error:
                    self.errors.append(str(error))
                    continue
                for device in spec["devices"]:
                    full = f"{spec['kind']}={device['name']}"
                    if full in here:
                        self.errors.append(f"{path}: {full} is in another file of {directory} too")
                        twice.add(full)
                    here[full] = (path, spec, device)
            self.devices.update({k: v for k, v in here.items() if k not in twice})

    def inject(self, config, ids):
        """Applies devices to an OCI configuration in place, in the order of ids. Raises CdiError."""
        missing = [i for i in ids if i not in self.devices]
        if missing:
            reasons = f" ({'; '.join(self.errors)})" if self.errors else ""
            raise CdiError(f"unresolvable CDI devices {', '.join(missing)}{reasons}")
        seen = set()
        for name in ids:
            path, spec, device = self.devices[name]
            if path not in seen:
                seen.add(path)
                apply_edits(config, spec.get("containerEdits", {}))
            apply_edits(config, device["containerEdits"])


def _fill_node(node):
    """type, major and minor of a node, from the host where the spec leaves them out."""
    out = dict(node)
    host = node.get("hostPath") or node["path"]
    if "type" in out and ("major" in out or out["type"] == "p"):
        return out
    try:
        info = os.lstat(host)
    except OSError as error:
        raise CdiError(f"device node {host}: {error.strerror}") from None
    kind = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}.get(stat.S_IFMT(info.st_mode))
    if kind is None:
        raise CdiError(f"device node {host}: not a device")
    if out.get("type", kind) != kind:
        raise CdiError(f'device node {host}: type "{out["type"]}" in the spec, "{kind}" on the host')
    out["type"] = kind
    if kind != "p" and not out.get("major"):
        out["major"], out["minor"] = os.major(info.st_rdev), os.minor(info.st_rdev)
    return out


def apply_edits(config, edits):
    """Applies one containerEdits: later env, nodes of one path and mounts of one place replace earlier ones."""
    env = config["process"].setdefault("env", [])
    for entry in edits.get("env", []):
        key = entry.split("=", 1)[0] + "="
        if any(e.startswith(key) for e in env):
            env[:] = [entry if e.startswith(key) else e for e in env]
        else:
            env.append(entry)
    linux = config.setdefault("linux", {})
    for node in edits.get("deviceNodes", []):
        node = _fill_node(node)
        device = {"path": node["path"], "type": node["type"]}
        for name in ("major", "minor", "fileMode", "uid", "gid"):
            if name in node:
                device[name] = node[name]
        devices = linux.setdefault("devices", [])
        devices[:] = [d for d in devices if d["path"] != node["path"]] + [device]
        if node["type"] in ("b", "c"):
            rule = {"allow": True, "type": node["type"], "major": node["major"], "minor": node.get("minor", 0),
                    "access": node.get("permissions") or "rwm"}
            linux.setdefault("resources", {}).setdefault("devices", []).append(rule)
    mounts = config.setdefault("mounts", [])
    for mount in edits.get("mounts", []):
        entry = {"destination": mount["containerPath"], "source": mount["hostPath"],
                 "options": mount.get("options", [])}
        if mount.get("type"):
            entry["type"] = mount["type"]
        mounts[:] = [m for m in mounts if m["destination"] != mount["containerPath"]] + [entry]
    if edits.get("mounts"):
        mounts.sort(key=lambda m: len([p for p in m["destination"].split("/") if p]))
    for hook in edits.get("hooks", []):
        entry = {k: v for k, v in hook.items() if k != "hookName"}
        config.setdefault("hooks", {}).setdefault(hook["hookName"], []).append(entry)
    for gid in edits.get("additionalGids", []):
        gids = config["process"].setdefault("user", {}).setdefault("additionalGids", [])
        if gid and gid not in gids:
            gids.append(gid)
    if edits.get("intelRdt"):
        linux["intelRdt"] = edits["intelRdt"]

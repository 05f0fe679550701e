# SPDX-License-Identifier: Apache-2.0
"""The four kinds of PATCH: JSON patch, JSON merge patch, strategic merge patch and server-side apply.

Pure functions from (object, patch) to a new object. Lists that Kubernetes merges by key are named in LIST_KEYS by
the path of field names that ends in them; every other list is replaced. Server-side apply keeps no managedFields:
the caller passes what the same manager applied last, and what it no longer names is taken away.
"""

import json

from store import clone

LIST_KEYS = {
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "containerStatuses": ("name",),
    "initContainerStatuses": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort",),
    "imagePullSecrets": ("name",),
    "addresses": ("type",),
    "podIPs": ("ip",),
    "resourceClaims": ("name",),
    "resourceClaimStatuses": ("name",),
    "secrets": ("name",),
    "reservedFor": ("uid",),
    "status.devices": ("driver", "device", "pool", "shareID"),
    "resources.claims": ("name",),
}
_SETS = {"finalizers"}


class PatchError(ValueError):
    """The patch cannot be applied; str() says why."""


def _keys(path):
    return LIST_KEYS.get(".".join(path[-2:])) or (LIST_KEYS.get(path[-1]) if path else None)


def _key(item, keys):
    return tuple(item.get(k, "") for k in keys) if isinstance(item, dict) else item


def merge(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return clone(patch)
    out = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merge(out.get(name), value)
    return out


def json_patch(target, operations):
    """RFC 6902. Raises PatchError."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    out = clone(target)
    for step in operations:
        try:
            out = _json_step(out, step["op"], step["path"], step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            if isinstance(error, PatchError):
                raise
            raise PatchError(f"the operation {json.dumps(step)} cannot be applied: {error!r}") from None
    return out


def _pointer(path):
    if path == "":
        return []
    if not path.startswith("/"):
        raise PatchError(f"{path!r} is not a JSON pointer")
    return [p.replace("~1", "/").replace("~0", "~") for p in path[1:].split("/")]


def _find(doc, parts):
    for part in parts:
        doc = doc[int(part)] if isinstance(doc, list) else doc[part]
    return doc


def _json_step(doc, op, path, step):
    parts = _pointer(path)
    if op == "test":
        if _find(doc, parts) != step["value"]:
            raise PatchError(f"testing value {path} failed")
        return doc
    if op in ("move", "copy"):
        source = _pointer(step["from"])
        value = clone(_find(doc, source))
        if op == "move":
            doc = _json_step(doc, "remove", step["from"], step)
        return _json_step(doc, "add", path, {"value": value})
    if not parts:
        return clone(step["value"]) if op in ("add", "replace") else None
    parent, last = _find(doc, parts[:-1]), parts[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if op == "add":
            parent.insert(index, clone(step["value"]))
        elif op == "replace":
            parent[index] = clone(step["value"])
        elif op == "remove":
            del parent[index]
        else:
            raise PatchError(f"unexpected kind: {op}")
    elif op == "add" or (op == "replace" and last in parent):
        parent[last] = clone(step["value"])
    elif op == "remove":
        del parent[last]
    else:
        raise PatchError(f"replace operation does not apply: doc is missing key: {path}: missing value")
    return doc


def strategic(target, patch, path=()):
    """Strategic merge patch with $patch, $setElementOrder, $deleteFromPrimitiveList and $retainKeys."""
    if not isinstance(patch, dict):
        return clone(patch)
    if patch.get("$patch") == "replace":
        return {k: clone(v) for k, v in patch.items() if not k.startswith("$")}
    if patch.get("$patch") == "delete":
        return {}
    out = dict(target) if isinstance(target, dict) else {}
    retain = patch.get("$retainKeys")
    if retain is not None:
        out = {k: v for k, v in out.items() if k in retain}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.split("/", 1)[1]
            out[field] = [v for v in out.get(field, []) if v not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            out.pop(name, None)
        elif isinstance(value, list):
            out[name] = _strategic_list(out.get(name) or [], value, path + (name,),
                                        patch.get(f"$setElementOrder/{name}"))
        else:
            out[name] = strategic(out.get(name), value, path + (name,))
    return out


def _strategic_list(old, patch, path, order):
    keys = _keys(path)
    if keys is None:
        if path[-1] in _SETS:
            return list(old) + [v for v in patch if v not in old]
        return clone(patch)
    if any(isinstance(v, dict) and v.get("$patch") == "replace" for v in patch):
        return [clone(v) for v in patch if not (isinstance(v, dict) and "$patch" in v)]
    out = {_key(v, keys): v for v in old}
    for item in patch:
        key = _key(item, keys)
        if item.get("$patch") == "delete":
            out.pop(key, None)
        else:
            out[key] = strategic(out.get(key), item, path)
    if order:
        wanted = [_key(v, keys) for v in order]
        return [out[k] for k in wanted if k in out] + [v for k, v in out.items() if k not in wanted]
    return list(out.values())


def apply(target, patch, last, path=()):
    """Server-side apply with force: patch wins, what `last` (this manager's former patch) had and patch lacks goes."""
    if isinstance(patch, dict):
        out = dict(target) if isinstance(target, dict) else {}
        last = last if isinstance(last, dict) else {}
        for name in last:
            if name not in patch and name in out:
                rest = _without(out[name], last[name], path + (name,))
                if rest in (None, {}, []):
                    out.pop(name)
                else:
                    out[name] = rest
        for name, value in patch.items():
            out[name] = apply(out.get(name), value, last.get(name), path + (name,))
        return out
    keys = _keys(path) if isinstance(patch, list) else None
    if keys:
        out = {_key(v, keys): v for v in target or []}
        old = {_key(v, keys): v for v in last or []}
        new = {_key(v, keys): v for v in patch}
        for key in old:
            if key not in new:
                out.pop(key, None)
        for key, value in new.items():
            out[key] = apply(out.get(key), value, old.get(key), path)
        return list(out.values())
    if isinstance(patch, list) and path and path[-1] in _SETS:
        kept = [v for v in target or [] if v not in (last or []) or v in patch]
        return kept + [v for v in patch if v not in kept]
    return clone(patch)


def _without(target, owned, path):
    if isinstance(owned, dict) and isinstance(target, dict):
        out = dict(target)
        for name, value in owned.items():
            if name in out:
                rest = _without(out[name], value, path + (name,))
                if rest in (None, {}, []):
                    out.pop(name)
                else:
                    out[name] = rest
        return out
    keys = _keys(path) if isinstance(owned, list) else None
    if keys and isinstance(target, list):
        gone = {_key(v, keys) for v in owned}
        return [v for v in target if _key(v, keys) not in gone]
    return None

# SPDX-License-Identifier: Apache-2.0
"""The API server without HTTP: create, update, patch, delete, list and watch objects with the real server's rules.

Owns defaults, validation, preconditions, graceful deletion and authorisation; the objects lie in store.Store. The
scheduler, the controllers and the kubelet stand-in call the same methods as httpd.py does. Any thread may call;
returned objects belong to the store and must not be changed (store.clone first).
"""

import base64
import datetime
import json
import random
import re
import time
import uuid

import admission
import events
import patches
import resources
import schema
import store as storage
import validate

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def now():
    """The time as metav1.Time writes it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class ApiError(Exception):
    """An answer that is not a success: a metav1.Status."""

    def __init__(self, code, reason, message, details=None, headers=None, meta=None):
        super().__init__(message)
        self.code, self.headers = code, headers or {}
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": meta or {}, "status": "Failure",
                       "message": message}
        if reason:
            self.status["reason"] = reason
        if details is not None:
            self.status["details"] = details
        self.status["code"] = code


def bad_request(message):
    return ApiError(400, "BadRequest", message)


def _details(res, name=None, kind=None):
    out = {"name": name} if name else {}
    if res.group:
        out["group"] = res.group
    out["kind"] = kind or res.plural
    return out


def not_found(res, name):
    return ApiError(404, "NotFound", f'{res.qualified} "{name}" not found', _details(res, name))


def invalid(res, name, problems):
    """422 with one cause for each problem."""
    texts = [f"{p.field}: {p.message}" for p in problems]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = {"name": name} if name else {}
    if res.group and res.plural != "events":
        details["group"] = res.group
    details["kind"] = res.kind
    details["causes"] = [{"reason": p.reason, "message": p.message, "field": p.field} for p in problems]
    qualified = res.kind if res.plural == "events" else res.qualified_kind
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


class User:
    """Who asks. rules: list of (group, resource, verbs, names or None); None: everything."""

    def __init__(self, name, groups=(), rules=None, node=None):
        self.name, self.groups, self.rules, self.node = name, tuple(groups), rules, node

    def may(self, verb, group, resource, name=""):
        if self.rules is None:
            return True
        return any(group == g and resource == r and verb in verbs and (names is None or name in names)
                   for g, r, verbs, names in self.rules)


class Account(User):
    """A service account with a token; its rights are those that ClusterRoleBindings give it now."""

    def __init__(self, store, namespace, name, node=None):
        super().__init__(f"system:serviceaccount:{namespace}:{name}",
                         ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"], [], node)
        self.store, self.subject = store, ("ServiceAccount", namespace, name)

    def may(self, verb, group, resource, name=""):
        for binding in self.store.all("clusterrolebindings"):
            if not any((s.get("kind"), s.get("namespace"), s.get("name")) == self.subject for s in binding.get("subjects") or []):
                continue
            role = self.store.get("clusterroles", "", binding["roleRef"]["name"]) or {}
            if any(group in r.get("apiGroups", []) and resource in r.get("resources", []) and verb in r.get("verbs", []) and
                   (not r.get("resourceNames") or name in r["resourceNames"]) for r in role.get("rules") or []):
                return True
        return False


SYSTEM = User("system:admin", ["system:masters"])


class Options:
    """Query options of one request."""

    def __init__(self, query=None):
        query = query or {}
        self.dry_run = "All" in query.get("dryRun", "")
        self.validation = query.get("fieldValidation", "") or "Warn"
        self.manager = query.get("fieldManager", "")
        self.force = query.get("force", "") == "true"
        self.verb = ""
        self.warnings = []


class Selector:
    """A field or label selector: comma-separated terms."""

    def __init__(self, text, labels=False):
        self.terms = []
        for part in re.split(r",(?![^(]*\))", text) if text else []:
            part = part.strip()
            match = re.fullmatch(r"([^=!\s]+)\s*(==|=|!=)\s*(.*)", part)
            if match:
                self.terms.append((match[1], "!=" if match[2] == "!=" else "=", match[3]))
                continue
            match = re.fullmatch(r"(\S+)\s+(in|notin)\s+\((.*)\)", part) if labels else None
            if match:
                self.terms.append((match[1], match[2], {v.strip() for v in match[3].split(",")}))
            elif labels and re.fullmatch(r"!?[\w./-]+", part):
                self.terms.append((part.lstrip("!"), "absent" if part.startswith("!") else "exists", None))
            else:
                raise bad_request(f'unable to parse requirement: invalid selector: "{part}"')

    def matches(self, get):
        for name, op, wanted in self.terms:
            value = get(name)
            ok = {"=": lambda v, w: (v or "") == w and (v is not None or w == ""),
                  "!=": lambda v, w: (v or "") != w,
                  "in": lambda v, w: v in w, "notin": lambda v, w: v not in w,
                  "exists": lambda v, w: v is not None, "absent": lambda v, w: v is None}[op](value, wanted)
            if not ok:
                return False
        return True


def _field(obj, path):
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    if isinstance(obj, dict):
        return obj.get("component", "")
    return "" if obj is None else str(obj)


class Filter:
    """Namespace, field selector and label selector of a list or watch."""

    def __init__(self, res, namespace, query):
        self.res, self.namespace = res, namespace
        self.fields = Selector(query.get("fieldSelector", ""))
        self.labels = Selector(query.get("labelSelector", ""), labels=True)
        for name, _, _ in self.fields.terms:
            if name not in res.fields and name not in ("metadata.name", "metadata.namespace"):
                raise bad_request(f"field label not supported for {res.api_version}, Kind={res.kind}: {name}"
                                  if res.shaped else f"field label not supported: {name}")

    def matches(self, obj):
        if obj is None:
            return False
        if self.namespace and obj["metadata"].get("namespace") != self.namespace:
            return False
        labels = obj["metadata"].get("labels") or {}
        return self.fields.matches(lambda n: _field(obj, n)) and self.labels.matches(labels.get)


class Api:
    def __init__(self, version, gate_off=False):
        self.version, self.gate_off = version, gate_off
        self.store = storage.Store()
        self._applied = {}
        for name in ("default", "kube-system"):
            self.create(SYSTEM, resources.resource("namespaces"), "", {"metadata": {"name": name}})

    # ------------------------------------------------------------------ views

    @staticmethod
    def view(res, obj):
        """The stored object as this resource shows it (events have two forms)."""
        if res.group == "events.k8s.io":
            return events.to_new(obj)
        return obj

    @staticmethod
    def _unview(res, obj):
        return events.to_core(obj) if res.group == "events.k8s.io" else obj

    # ------------------------------------------------------------------ reading

    def get(self, res, namespace, name):
        obj = self.store.get(res.internal, namespace, name)
        if obj is None:
            raise not_found(res, name)
        return self.view(res, obj)

    def list(self, res, namespace, query):
        """Returns (objects, list metadata)."""
        filter_ = Filter(res, namespace, query)
        wanted, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        token = query.get("continue", "")
        limit = int(query.get("limit") or 0)
        start = None
        with self.store.lock:
            version = self.store.version
            if token:
                version, start = _read_token(token)
            elif wanted not in ("", "0"):
                if not wanted.isdigit():
                    raise ApiError(400, "BadRequest", f'resourceVersion: Invalid value: "{wanted}": '
                                                      f'strconv.ParseUint: parsing "{wanted}": invalid syntax')
                if int(wanted) > self.store.version:
                    raise ApiError(504, "Timeout", f"Timeout: Too large resource version: {wanted}, current: "
                                                   f"{self.store.version}",
                                   {"causes": [{"reason": "ResourceVersionTooLarge",
                                                "message": "Too large resource version"}],
                                    "retryAfterSeconds": 1}, {"Retry-After": "1"})
                if match == "Exact":
                    version = int(wanted)
            try:
                objects = self.store.snapshot(res.internal, version)
            except storage.Expired:
                if token:
                    fresh = _make_token(self.store.version, start)
                    raise ApiError(410, "Expired",
                                   "The provided continue parameter is too old to display a consistent list result. "
                                   "You can start a new list without the continue parameter, or use the continue "
                                   "token in this response to retrieve the remainder of the results. Continuing with "
                                   "the provided token results in an inconsistent list - objects that were created, "
                                   "modified, or deleted between the time the first chunk was returned and now may "
                                   "show up in the list.", meta={"continue": fresh}) from None
                raise ApiError(410, "Expired", "The resourceVersion for the provided list is too old.") from None
        keys = [k for k in sorted(objects) if start is None or list(k) > start]
        views = [(k, self.view(res, objects[k])) for k in keys]
        views = [(k, o) for k, o in views if filter_.matches(o)]
        meta = {"resourceVersion": str(version)}
        if limit and len(views) > limit:
            meta["continue"] = _make_token(version, list(views[limit - 1][0]))
            if not (filter_.fields.terms or filter_.labels.terms):
                meta["remainingItemCount"] = len(views) - limit
            views = views[:limit]
        return [o for _, o in views], meta

    def watch(self, res, namespace, query, timeout):
        """Yields (type, object) pairs; ("", None) about once a second while nothing happens."""
        filter_ = Filter(res, namespace, query)
        wanted = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents", "")
        bookmarks = query.get("allowWatchBookmarks", "") in ("true", "1")
        if wanted and not wanted.isdigit():
            raise ApiError(500, "", f'resourceVersion: Invalid value: "{wanted}": strconv.ParseUint: parsing '
                                    f'"{wanted}": invalid syntax')
        if initial == "true" and query.get("resourceVersionMatch") != "NotOlderThan":
            raise ApiError(422, "Invalid", 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                           "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                           {"group": "meta.k8s.io", "kind": "ListOptions",
                            "causes": [{"reason": "FieldValueForbidden",
                                        "message": "Forbidden: sendInitialEvents requires setting "
                                                   "resourceVersionMatch to NotOlderThan",
                                        "field": "resourceVersionMatch"}]})
        return self._watch(res, filter_, wanted, initial, bookmarks, timeout)

    def _watch(self, res, filter_, wanted, initial, bookmarks, timeout):
        end = _monotonic() + timeout
        first = []
        with self.store.lock:
            if initial == "true" or (wanted in ("", "0") and initial != "false"):
                version = self.store.version
                first = [self.view(res, o) for o in self.store.all(res.internal)]
            else:
                version = int(wanted or self.store.version)
        for obj in first:
            if filter_.matches(obj):
                yield "ADDED", obj
        if initial == "true" and bookmarks:
            yield "BOOKMARK", self._bookmark(res, version, {"k8s.io/initial-events-end": "true"})
        marked = _monotonic()
        while True:
            try:
                with self.store.lock:
                    changes, current = self.store.since(res.internal, version), self.store.version
            except storage.Expired as expired:
                yield "ERROR", ApiError(410, "Expired", f"too old resource version: {version} "
                                                        f"({expired.oldest})").status
                return
            for change in changes:
                new = self.view(res, change.object)
                old = self.view(res, change.before) if change.before else None
                was = filter_.matches(old)
                fits = filter_.matches(new) and change.type != "DELETED"
                if fits:
                    yield ("MODIFIED" if was else "ADDED"), new
                elif was:
                    yield "DELETED", new
            version = max(version, current)
            left = end - _monotonic()
            if bookmarks and (_monotonic() - marked > 60 or left <= 0) and version == current:
                marked = _monotonic()
                yield "BOOKMARK", self._bookmark(res, version, None)
            if left <= 0 or not self.store.wait(current, min(left, 1.0)):
                return
            yield "", None

    def _bookmark(self, res, version, annotations):
        out = {"kind": res.kind, "apiVersion": res.api_version, "metadata": {"resourceVersion": str(version)}}
        if annotations:
            out["metadata"]["annotations"] = annotations
        if res.shaped:
            for field in schema.STRUCTS[res.kind].values():
                if field.always and field.name != "metadata":
                    out[field.name] = schema.zero(field.type)
        return out

    # ------------------------------------------------------------------ writing

    def _decode(self, res, obj, options):
        """Checks kind, shape and unknown fields; returns a fresh object in the server's form."""
        if not isinstance(obj, dict):
            raise bad_request(f"the object provided is unrecognized (must be of type {res.kind})")
        kind, version = obj.get("kind", res.kind), obj.get("apiVersion", res.api_version)
        short = version.rpartition("/")[2]
        if kind != res.kind:
            raise bad_request(f'{kind} in version "{short}" cannot be handled as a {res.kind}: no kind "{kind}" is '
                              f'registered for version "{version}" in scheme "pkg/api/legacyscheme/scheme.go:30"')
        if version != res.api_version:
            raise bad_request(f"the API version in the data ({version}) does not match the expected API version "
                              f"({res.api_version})")
        body = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
        try:
            if res.shaped:
                body, unknown = schema.decode(res.kind, body, self.version)
            else:
                body = storage.clone(body)
                if not isinstance(body.get("metadata") or {}, dict):
                    raise schema.DecodeError("json: cannot unmarshal into Go struct field .metadata of type "
                                             "v1.ObjectMeta")
                meta, unknown = schema.decode("ObjectMeta", body.get("metadata") or {}, self.version)
                unknown = [f"metadata.{name}" for name in unknown]
                body["metadata"] = meta
        except schema.DecodeError as error:
            raise bad_request(f'{kind} in version "{short}" cannot be handled as a {res.kind}: {error}') from None
        if unknown and options.validation == "Strict":
            text = ", ".join(f'unknown field "{name}"' for name in unknown)
            raise bad_request(f'{kind} in version "{short}" cannot be handled as a {res.kind}: strict decoding '
                              f'error: {text}')
        if options.validation == "Warn":
            options.warnings += [f'unknown field "{name}"' for name in unknown]
        body["metadata"].pop("managedFields", None)
        body["metadata"].pop("selfLink", None)
        rest = {k: v for k, v in body.items() if k != "metadata"}
        return {"kind": res.kind, "apiVersion": res.api_version, "metadata": body["metadata"], **rest}

    def create(self, user, res, namespace, obj, options=None):
        options = options or Options()
        obj = self._unview(res, self._decode(res, obj, options))
        meta = obj["metadata"]
        if res.namespaced:
            if meta.get("namespace", namespace) != namespace:
                raise bad_request("the namespace of the provided object does not match the namespace sent on the "
                                  "request")
            meta["namespace"] = namespace
        elif meta.get("namespace"):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "uid"):
            meta.pop(name, None)
        generated = not meta.get("name") and meta.get("generateName")
        with self.store.lock:
            if res.namespaced and self.store.get("namespaces", "", namespace) is None:
                raise not_found(resources.resource("namespaces"), namespace)
            if generated:
                base = meta["generateName"][:58]
                meta["name"] = base + "".join(random.choices(_SUFFIX, k=5))
            meta["uid"] = str(uuid.uuid4())
            if res.generation:
                meta["generation"] = 1
            meta["creationTimestamp"] = now()
            self._prepare(res, obj, None, options)
            problems = validate.object_name(meta) + self._validate(res, obj, None, namespace)
            if problems:
                raise invalid(res, meta.get("name", ""), problems)
            obj["metadata"] = _ordered_meta(meta)
            self._admit(user, res, "CREATE", namespace, meta["name"], obj, None)
            if self.store.get(res.internal, namespace if res.namespaced else "", meta["name"]):
                if generated:
                    raise ApiError(409, "AlreadyExists", f'{res.qualified} "{meta["name"]}" already exists, the server '
                                   "was not able to generate a unique name for the object", _details(res, meta["name"]))
                raise ApiError(409, "AlreadyExists", f'{res.qualified} "{meta["name"]}" already exists',
                               _details(res, meta["name"]))
            if options.dry_run:
                return self.view(res, obj)
            return self.view(res, self.store.put(res.internal, meta.get("namespace", ""), meta["name"], obj))

    def update(self, user, res, namespace, name, obj, sub="", options=None):
        options = options or Options()
        obj = self._unview(res, self._decode(res, obj, options))
        meta = obj["metadata"]
        if meta.get("name", "") != name:
            raise bad_request(f"the name of the object ({meta.get('name', '')}) does not match the name on the URL "
                              f"({name})")
        if res.namespaced and meta.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        with self.store.lock:
            old = self.store.get(res.internal, namespace, name)
            if old is None:
                raise not_found(res, name)
            return self.view(res, self._replace(user, res, namespace, name, old, obj, sub, options))

    def _replace(self, user, res, namespace, name, old, obj, sub, options):
        meta, before = obj["metadata"], old["metadata"]
        uid, version = meta.get("uid"), meta.get("resourceVersion")
        if uid and uid != before["uid"]:
            where = f"/registry/{res.plural}/" + (f"{namespace}/" if res.namespaced else "") + name
            raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {res.qualified} "{name}": StorageError'
                           f": invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
                           f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}",
                           _details(res, name))
        if version and version != before["resourceVersion"]:
            raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {res.qualified} "{name}": the object has '
                           "been modified; please apply your changes to the latest version and try again",
                           _details(res, name))
        if sub == "status":
            status = obj.get("status")
            obj = storage.clone(old)
            if status is None:
                obj.pop("status", None)
            else:
                obj["status"] = status
            meta = obj["metadata"]
        else:
            for key in ("uid", "creationTimestamp", "generateName", "deletionTimestamp",
                        "deletionGracePeriodSeconds", "generation"):
                meta.pop(key, None)
                if key in before:
                    meta[key] = before[key]
            if "status" in res.subresources:
                obj.pop("status", None)
                if "status" in old:
                    obj["status"] = old["status"]
        meta["resourceVersion"] = before["resourceVersion"]
        took = self._prepare(res, obj, old, options)
        problems = self._validate(res, obj, old, namespace)
        if problems:
            raise invalid(res, name, problems)
        if sub == "status" and res.plural == "resourceclaims":
            self._authorize_devices(user, res, name, obj, old, options)
        obj["metadata"] = meta = _ordered_meta(meta)
        self._admit(user, res, "UPDATE", namespace, name, obj, old, sub)
        if res.generation and sub != "status" and (obj.get("spec") != old.get("spec") or took):
            meta["generation"] = before.get("generation", 0) + 1
        if obj == old:
            return old
        if options.dry_run:
            return obj
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not (
                res.plural == "pods" and meta.get("deletionGracePeriodSeconds")):
            self.store.put(res.internal, meta.get("namespace", ""), name, obj)
            return self.store.delete(res.internal, meta.get("namespace", ""), name)
        return self.store.put(res.internal, meta.get("namespace", ""), name, obj)

    def patch(self, user, res, namespace, name, patch, kind, sub="", options=None):
        """kind: json, merge, strategic or apply. Returns (object, created)."""
        options = options or Options()
        with self.store.lock:
            old = self.store.get(res.internal, namespace, name)
            if old is None and kind != "apply":
                raise not_found(res, name)
            applied_key = (res.internal, namespace, name, options.manager, sub)
            if kind == "apply":
                if not options.manager:
                    raise ApiError(422, "Invalid", 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required '
                                   "value: is required for apply patch",
                                   {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [
                                       {"reason": "FieldValueRequired", "message": "Required value: is required for "
                                        "apply patch", "field": "fieldManager"}]})
                if not isinstance(patch, dict):
                    raise bad_request("error decoding YAML: the apply patch is not an object")
                if old is None:
                    if sub:
                        raise not_found(res, name)
                    patch.setdefault("metadata", {}).setdefault("name", name)
                    made = self.create(user, res, namespace, patch, options)
                    if not options.dry_run:
                        self._applied[applied_key] = (made["metadata"]["uid"], storage.clone(patch))
                    return made, True
            current = self.view(res, old)
            try:
                if kind == "json":
                    new = patches.json_patch(current, patch)
                elif kind == "merge":
                    new = patches.merge(current, patch)
                elif kind == "strategic":
                    new = patches.strategic(current, patch)
                else:
                    # What is written is compared in the server's form, or every apply would be a change.
                    shaped = self._decode(res, patch, Options({"fieldValidation": options.validation}))
                    content = {k: v for k, v in shaped.items() if k in patch}
                    content["metadata"] = {k: v for k, v in (patch.get("metadata") or {}).items()}
                    uid, last = self._applied.get(applied_key, ("", {}))
                    last = last if uid == old["metadata"]["uid"] else {}
                    content = _only_named(content, patch)
                    new = patches.apply(current, content, last)
                    if not options.dry_run:
                        self._applied[applied_key] = (uid or old["metadata"]["uid"], storage.clone(content))
            except patches.PatchError as error:
                raise ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: "
                                               f"{error}", {}) from None
            obj = self._unview(res, self._decode(res, new, options))
            meta = obj["metadata"]
            if "resourceVersion" not in (patch.get("metadata") or {} if isinstance(patch, dict) else {}):
                meta.pop("resourceVersion", None)
            if meta.get("name") != name:
                raise bad_request(f"the name of the object ({meta.get('name', '')}) does not match the name on the "
                                  f"URL ({name})")
            return self.view(res, self._replace(user, res, namespace, name, old, obj, sub, options)), False

    def delete(self, user, res, namespace, name, body=None, options=None):
        """Returns the body of the answer."""
        options, body = options or Options(), body or {}
        with self.store.lock:
            old = self.store.get(res.internal, namespace, name)
            if old is None:
                raise not_found(res, name)
            meta = old["metadata"]
            conditions = body.get("preconditions") or {}
            for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                if conditions.get(key) and conditions[key] != meta[key]:
                    raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {res.qualified_kind} "{name}": '
                                   f"the {label} in the precondition ({conditions[key]}) does not match the {label} "
                                   f"in record ({meta[key]}). The object might have been deleted and then recreated",
                                   _details(res, name, res.kind))
            self._admit(user, res, "DELETE", namespace, name, None, old)
            if options.dry_run:
                return self.view(res, old)
            if res.plural == "namespaces":
                self._empty_namespace(name)
            grace = self._grace(res, old, body)
            if grace or meta.get("finalizers"):
                last = self._mark_deleted(res, old, grace)
            else:
                last = self.store.delete(res.internal, meta.get("namespace", ""), name)
            if res.deleted_body:
                return self.view(res, last)
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {**_details(res, name), "uid": meta["uid"]}}

    @staticmethod
    def _grace(res, old, body):
        if res.plural != "pods":
            return 0
        status = old.get("status", {}).get("phase")
        if not old["spec"].get("nodeName") or status in ("Succeeded", "Failed"):
            return 0
        grace = body.get("gracePeriodSeconds")
        if grace is None:
            grace = old["spec"].get("terminationGracePeriodSeconds", 30)
        return max(int(grace), 0)

    def _mark_deleted(self, res, old, grace):
        meta = old["metadata"]
        if meta.get("deletionTimestamp") and grace >= meta.get("deletionGracePeriodSeconds", 0):
            return old
        obj = storage.clone(old)
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=grace)
        obj["metadata"]["deletionTimestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
        obj["metadata"]["deletionGracePeriodSeconds"] = grace
        if "generation" in obj["metadata"] and not meta.get("deletionTimestamp"):
            obj["metadata"]["generation"] += 1
        obj["metadata"] = _ordered_meta(obj["metadata"])
        return self.store.put(res.internal, meta.get("namespace", ""), meta["name"], obj)

    def _empty_namespace(self, namespace):
        for res in resources.RESOURCES:
            if res.namespaced and res.internal == res.plural and res.group != "events.k8s.io":
                for obj in self.store.all(res.internal, namespace):
                    self.delete(SYSTEM, res, namespace, obj["metadata"]["name"], {"gracePeriodSeconds": 0})

    def delete_collection(self, user, res, namespace, query, body=None, options=None):
        objects, meta = self.list(res, namespace, {k: v for k, v in query.items() if k.endswith("Selector")})
        gone = []
        for obj in objects:
            try:
                self.delete(user, res, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], body, options)
                gone.append(obj)
            except ApiError as error:
                if error.code != 404:
                    raise
        return gone, meta

    # ------------------------------------------------------------------ per kind

    def _prepare(self, res, obj, old, options):
        """Defaults and what the gates drop. Returns True if a gate dropped something from an update."""
        kind = res.kind
        took = False
        if self.gate_off and res.shaped:
            took = validate.drop_disabled(kind, obj, self.version) and old is not None
        if kind == "ResourceSlice":
            for device in obj["spec"].get("devices", []):
                for taint in device.get("taints", []):
                    taint.setdefault("timeAdded", now())
        elif kind == "ResourceClaim":
            validate.default_claim_spec(obj["spec"])
            if old is None:
                obj["status"] = {}
            obj.setdefault("status", {})
        elif kind == "ResourceClaimTemplate":
            validate.default_claim_spec(obj["spec"]["spec"])
            if not obj["spec"].get("metadata"):
                obj["spec"]["metadata"] = {}
        elif kind == "Pod":
            _default_pod(obj, old)
        elif kind == "Namespace" and old is None:
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
            obj["spec"] = {"finalizers": []}
            obj["status"] = {"phase": "Active"}
        elif kind == "Event" and old is None:
            obj.setdefault("source", {})
            obj.setdefault("eventTime", None)
            obj.setdefault("reportingComponent", obj["source"].get("component", ""))
            obj.setdefault("reportingInstance", obj["source"].get("host", ""))
        return took

    def _validate(self, res, obj, old, namespace):
        kind = res.kind
        if kind == "ResourceSlice":
            problems = validate.slice_(obj, self.version)
            return problems + (validate.slice_update(obj, old) if old else [])
        if kind == "ResourceClaim":
            if old is None:
                return validate.claim_spec(obj["spec"], self.version, "spec", self._admin_allowed(namespace))
            problems = validate.claim_update(obj, old)
            return problems + (validate.claim_status(obj, old, self.version)
                               if obj.get("status") != old.get("status") else [])
        if kind == "ResourceClaimTemplate":
            if old is None:
                return validate.claim_spec(obj["spec"]["spec"], self.version, "spec.spec",
                                           self._admin_allowed(namespace))
            return [] if obj["spec"] == old["spec"] else [
                validate.invalid("spec", "<value omitted>", "field is immutable")]
        if kind == "DeviceClass":
            return validate.device_class(obj)
        if kind == "Pod":
            return _validate_pod(obj, old)
        if kind == "ValidatingAdmissionPolicy":
            return [validate.invalid(field, "<value omitted>", text) for field, text in admission.check(obj)]
        if kind == "Event":
            return events.validate_update(obj, old, namespace, res) if old else events.validate(obj, namespace, res)
        return []

    def _admin_allowed(self, namespace):
        labels = (self.store.get("namespaces", "", namespace) or {"metadata": {}})["metadata"].get("labels") or {}
        return labels.get("resource.kubernetes.io/admin-access") == "true"

    def _authorize_devices(self, user, res, name, obj, old, options):
        """From 1.36: changing status.devices needs a right on resourceclaims/driver, the rest one on resourceclaims/binding."""
        if self.version < "1.36" or user.rules is None:
            return
        old_devices = {json.dumps(d, sort_keys=True) for d in old.get("status", {}).get("devices", [])}
        new_devices = {json.dumps(d, sort_keys=True) for d in obj.get("status", {}).get("devices", [])}
        drivers = sorted({json.loads(d)["driver"] for d in old_devices ^ new_devices})
        verb = options.verb or "update"
        before, after = old.get("status", {}), obj.get("status", {})
        if any(before.get(f) != after.get(f) for f in ("allocation", "reservedFor")) and \
                not user.may(verb, "resource.k8s.io", "resourceclaims/binding"):
            why = ('changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
                   f'verb="{verb}" permission: resourceclaims.resource.k8s.io is forbidden: User "{user.name}" cannot {verb} resource '
                   '"resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope')
            raise invalid(res, name, [validate.forbidden("status.allocation", why)])
        terms = (obj.get("status", {}).get("allocation") or {}).get("nodeSelector", {}).get("nodeSelectorTerms", [])
        nodes = [v for t in terms for f in t.get("matchFields", []) for v in f.get("values", [])]
        for driver in drivers:
            verbs = ([f"associated-node:{verb}"] if user.node and user.node in nodes else []) + \
                [f"arbitrary-node:{verb}"]
            if any(user.may(v, "resource.k8s.io", "resourceclaims/driver", driver) for v in verbs):
                continue
            namespace = obj["metadata"]["namespace"]
            why = (f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" '
                   f'permission: resourceclaims.resource.k8s.io "{driver}" is forbidden: User "{user.name}" cannot '
                   f'{verbs[-1]} resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace '
                   f'"{namespace}"')
            raise invalid(res, name, [validate.forbidden("status.devices", why)])

    def _admit(self, user, res, operation, namespace, name, new, old, sub=""):
        try:
            admission.admit(self.store, user, res, sub, operation, namespace if res.namespaced else "", new, old)
        except admission.Refused as error:
            raise ApiError(422, "Invalid", f'{res.qualified} "{name}" is forbidden: {error}',
                           {**_details(res, name), "causes": [{"message": str(error)}]}) from None

    # ------------------------------------------------------------------ helpers of the other parts

    def event(self, obj, reason, message, kind="Warning", component="kubelet", host="", action="", new=False):
        """Writes (or counts up) an event about an object, as client-go's recorders do."""
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        res = resources.resource("events", "")
        involved = {"kind": obj["kind"], "namespace": meta.get("namespace", ""), "name": meta["name"],
                    "uid": meta["uid"], "apiVersion": obj["apiVersion"],
                    "resourceVersion": meta.get("resourceVersion", "")}
        if not meta.get("namespace"):
            involved.pop("namespace")
        with self.store.lock:
            for event in self.store.all("events", namespace):
                if (event.get("reason"), event.get("message"), event.get("involvedObject", {}).get("uid")) == (
                        reason, message, meta["uid"]) and not new:
                    again = storage.clone(event)
                    again["count"] = again.get("count", 1) + 1
                    again["lastTimestamp"] = now()
                    return self.store.put("events", namespace, event["metadata"]["name"], again)
            body = {"metadata": {"name": f"{meta['name']}.{random.getrandbits(63):016x}"},
                    "involvedObject": involved, "reason": reason, "message": message,
                    "source": {"component": component, **({"host": host} if host else {})},
                    "firstTimestamp": now(), "lastTimestamp": now(), "count": 1, "type": kind, "eventTime": None}
            if action:
                body["action"] = action
            try:
                return self.create(SYSTEM, res, namespace, body)
            except ApiError:
                return None


def _monotonic():
    return time.monotonic()


def _make_token(version, start):
    return base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "rv": version,
                                                "start": start}).encode()).decode()


def _read_token(text):
    try:
        token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(token["rv"]), list(token["start"])
    except (ValueError, KeyError, TypeError):
        raise bad_request("invalid continue token: continue key is not valid: invalid character 'i' looking for "
                          "beginning of value") from None


def _ordered_meta(meta):
    return {f: meta[f] for f in schema.STRUCTS["ObjectMeta"] if meta.get(f) not in (None, "", {}, [])
            or f == "deletionGracePeriodSeconds" and f in meta}


def _only_named(content, patch):
    """Takes out of decoded content what decoding filled in and the patch does not name."""
    if isinstance(content, dict) and isinstance(patch, dict):
        return {k: _only_named(v, patch[k]) for k, v in content.items() if k in patch}
    if isinstance(content, list) and isinstance(patch, list) and len(content) == len(patch):
        return [_only_named(c, p) for c, p in zip(content, patch)]
    return content


def _default_pod(pod, old):
    spec = pod.setdefault("spec", {}) or {}
    pod["spec"] = spec
    for name, value in (("restartPolicy", "Always"), ("terminationGracePeriodSeconds", 30),
                        ("dnsPolicy", "ClusterFirst"), ("schedulerName", "default-scheduler"),
                        ("securityContext", {}), ("enableServiceLinks", True)):
        if spec.get(name) is None:
            spec[name] = value
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or []:
            if not isinstance(container, dict):
                continue
            for name, value in (("resources", {}), ("terminationMessagePath", "/dev/termination-log"),
                                ("terminationMessagePolicy", "File"), ("imagePullPolicy", "IfNotPresent")):
                if container.get(name) is None:
                    container[name] = value
    if old is None:
        pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    pod.setdefault("status", {})


def _validate_pod(pod, old):
    spec, out = pod["spec"], []
    containers = spec.get("containers") or []
    if not containers:
        return [validate.required("spec.containers")]
    claims = {}
    for i, claim in enumerate(spec.get("resourceClaims") or []):
        here = f"spec.resourceClaims[{i}]"
        if not claim.get("name"):
            out.append(validate.required(here + ".name"))
        elif claim["name"] in claims:
            out.append(validate.duplicate(here + ".name", claim["name"]))
        claims[claim.get("name")] = claim
        chosen = [k for k in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(k)]
        if len(chosen) != 1:
            out.append(validate.invalid(here, "", "must specify one of: "
                                        "`resourceClaimName`, `resourceClaimTemplateName`"))
    names = set()
    for key in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(key) or []):
            here = f"spec.{key}[{i}]"
            if not container.get("name"):
                out.append(validate.required(here + ".name"))
            else:
                out += validate.check_label(here + ".name", container["name"])
                if container["name"] in names:
                    out.append(validate.duplicate(here + ".name", container["name"]))
                names.add(container["name"])
            if not container.get("image"):
                out.append(validate.required(here + ".image"))
            for j, claim in enumerate((container.get("resources") or {}).get("claims") or []):
                if claim.get("name") not in claims:
                    out.append(validate.Problem(f"{here}.resources.claims[{j}].name", "FieldValueNotFound",
                                                f"Not found: {json.dumps(claim.get('name', ''))}"))
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        out.append(validate.unsupported("spec.restartPolicy", spec.get("restartPolicy"),
                                        ["Always", "OnFailure", "Never"]))
    if old is not None and not out:
        def frozen(one):
            one = storage.clone(one)
            for name in ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName"):
                one.pop(name, None)
            for part in (one.get("containers") or []) + (one.get("initContainers") or []):
                part.pop("image", None)
            return one
        if frozen(spec) != frozen(old["spec"]):
            out.append(validate.forbidden("spec", "pod updates may not change fields other than "
                                          "`spec.containers[*].image`,`spec.initContainers[*].image`,"
                                          "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
                                          "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 "
                                          "if it was previously negative)"))
    return out

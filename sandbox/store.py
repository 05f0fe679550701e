# SPDX-License-Identifier: Apache-2.0
"""The objects and their history: one resourceVersion counter, one lock, one log of changes per resource.

Owns the objects; what is stored is never changed in place, so readers may keep it without a copy. Every method may
be called from any thread; `lock` is public so that a caller can read, decide and write in one step. Knows nothing
of HTTP, validation or users.
"""

import collections
import threading


def clone(value):
    """A deep copy of JSON data."""
    if isinstance(value, dict):
        return {k: clone(v) for k, v in value.items()}
    if isinstance(value, list):
        return [clone(v) for v in value]
    return value


class Change:
    """One entry of a resource's log. before: the object it replaced or deleted."""

    __slots__ = ("version", "type", "object", "before")

    def __init__(self, version, type_, obj, before):
        self.version, self.type, self.object, self.before = version, type_, obj, before


class Expired(Exception):
    """The asked resourceVersion has been compacted away; .oldest is the oldest one kept."""

    def __init__(self, oldest):
        super().__init__(oldest)
        self.oldest = oldest


class Store:
    HISTORY = 20000

    def __init__(self):
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 1
        self.closed = False
        self._objects = collections.defaultdict(dict)
        self._logs = collections.defaultdict(collections.deque)
        self._compacted = collections.defaultdict(int)

    def get(self, resource, namespace, name):
        """The object or None."""
        with self.lock:
            return self._objects[resource].get((namespace, name))

    def all(self, resource, namespace=None):
        """All objects of a resource, ordered by namespace and name."""
        with self.lock:
            objects = self._objects[resource]
            return [objects[k] for k in sorted(objects) if namespace is None or k[0] == namespace]

    def resources(self):
        with self.lock:
            return list(self._objects)

    def put(self, resource, namespace, name, obj):
        """Stores an object under a new resourceVersion (set in the object, which the store then owns)."""
        with self.lock:
            key = (namespace, name)
            before = self._objects[resource].get(key)
            self.version += 1
            obj["metadata"]["resourceVersion"] = str(self.version)
            self._objects[resource][key] = obj
            self._note(resource, "MODIFIED" if before else "ADDED", obj, before)
            return obj

    def delete(self, resource, namespace, name):
        """Removes an object; returns its last state with the resourceVersion of the deletion."""
        with self.lock:
            before = self._objects[resource].pop((namespace, name))
            self.version += 1
            last = clone(before)
            last["metadata"]["resourceVersion"] = str(self.version)
            self._note(resource, "DELETED", last, before)
            return last

    def _note(self, resource, type_, obj, before):
        log = self._logs[resource]
        log.append(Change(self.version, type_, obj, before))
        while len(log) > self.HISTORY:
            self._compacted[resource] = log.popleft().version
        self.changed.notify_all()

    def snapshot(self, resource, version):
        """The objects as they were at a resourceVersion. Raises Expired."""
        with self.lock:
            if version < self._compacted[resource]:
                raise Expired(self._compacted[resource])
            objects = dict(self._objects[resource])
            for change in reversed(self._logs[resource]):
                if change.version <= version:
                    break
                meta = change.object["metadata"]
                key = (meta.get("namespace", ""), meta["name"])
                if change.type == "ADDED":
                    objects.pop(key, None)
                else:
                    objects[key] = change.before
            return objects

    def since(self, resource, version):
        """The changes after a resourceVersion, in order. Raises Expired."""
        with self.lock:
            if version < self._compacted[resource]:
                raise Expired(self._compacted[resource])
            out = []
            for change in reversed(self._logs[resource]):
                if change.version <= version:
                    break
                out.append(change)
            out.reverse()
            return out

    def wait(self, version, timeout):
        """Waits until something is newer than version, the store closes or the time is over. True unless closed."""
        with self.lock:
            if self.version <= version and not self.closed:
                self.changed.wait(timeout)
            return not self.closed

    def compact(self):
        """Forgets the history of everything: older watches and lists get 410."""
        with self.lock:
            for resource in set(self._logs) | set(self._objects):
                self._logs[resource].clear()
                self._compacted[resource] = self.version

    def close(self):
        with self.lock:
            self.closed = True
            self.changed.notify_all()

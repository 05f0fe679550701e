# SPDX-License-Identifier: Apache-2.0
"""The kubelet's claims: which pods use them, whether they are prepared, and the devices that plugins gave for them.

Owns the checkpoint (dra_manager_state), which outlives a kubelet process; `prepared` does not. prepare() and unprepare()
block while a plugin works and may be called from any thread; of one claim one call is out at a time. Rules:
reference/dra.md 3.4.
"""

import json
import os
import threading

import extended
import plugins


class Restarted(plugins.PluginError):
    """The kubelet process died while the call was out: there is nobody who could tell of it."""


class Record:
    """What the kubelet knows of a claim in use on the node."""

    def __init__(self, namespace, name, uid):
        self.namespace, self.name, self.uid = namespace, name, uid
        self.pods, self.drivers, self.devices = set(), [], []
        self.prepared = self.busy = False

    def dump(self):
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid, "pods": sorted(self.pods),
                "drivers": self.drivers, "devices": self.devices}

    @classmethod
    def load(cls, data):
        out = cls(data["namespace"], data["name"], data["uid"])
        out.pods, out.drivers, out.devices = set(data["pods"]), data["drivers"], data["devices"]
        return out

    def key(self):
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}


def claim_names(pod):
    """(name in the pod, claim name) pairs; claim name None: the template's claim is not made yet."""
    made = {s["name"]: s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses", [])}
    own = (pod.get("status", {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    return [(c["name"], c.get("resourceClaimName") or made.get(c["name"]))
            for c in pod["spec"].get("resourceClaims") or []] + ([(own, own)] if own else [])


def claim_uses(pod, container):
    """A container's resources.claims, and what it has by extended resources."""
    return ((container.get("resources") or {}).get("claims") or []) + extended.uses(pod, container)


class Claims:
    def __init__(self, api, checkpoint, deadline_s):
        self.api, self.checkpoint, self.deadline_s = api, checkpoint, deadline_s
        self.records, self.epoch, self.is_over, self.manager = {}, 0, True, None
        self.lock = threading.RLock()
        self.idle = threading.Condition(self.lock)

    def begin(self, manager):
        """A new kubelet process reads what the last one had written."""
        with self.lock:
            self.manager, self.records, self.is_over = manager, {}, False
            if os.path.exists(self.checkpoint):
                with open(self.checkpoint, encoding="utf-8") as file:
                    for data in json.load(file):
                        record = Record.load(data)
                        self.records[record.uid] = record

    def end(self):
        """The process dies: whoever waits for a plugin's answer gets Restarted."""
        with self.lock:
            self.epoch, self.is_over = self.epoch + 1, True
            self.idle.notify_all()

    def dump(self):
        with self.lock:
            return [{**r.dump(), "prepared": r.prepared} for r in self.records.values()]

    def _check(self, epoch):
        if epoch != self.epoch or self.is_over:
            raise Restarted("the kubelet was restarted")

    def _save(self):
        temporary = self.checkpoint + ".tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump([r.dump() for r in self.records.values()], file, indent=1)
        os.rename(temporary, self.checkpoint)

    def _take(self, epoch, choose):
        """Waits until none of the records that choose() names is busy, and marks them. Lock held."""
        while True:
            self._check(epoch)
            records = choose()
            if not any(r.busy for r in records):
                for record in records:
                    record.busy = True
                return records
            self.idle.wait(1)

    def _release(self, records):
        with self.lock:
            for record in records:
                record.busy = False
            self.idle.notify_all()

    def _call(self, manager, method, answer, records):
        """Asks each record's drivers, one call a driver; yields (driver, record, its result)."""
        batches = {}
        for record in records:
            for driver in record.drivers:
                batches.setdefault(driver, []).append(record)
        for driver, batch in batches.items():
            results = manager.get(driver).call(method, [r.key() for r in batch], answer, self.deadline_s)
            for record in batch:
                if results[record.uid].error:
                    raise plugins.PluginError(f"{method} failed for ResourceClaim {record.name}: "
                                              f"{results[record.uid].error}")
                yield driver, record, results[record.uid]

    def _wanted(self, pod):
        """The pod's claim objects, judged as the kubelet judges them before it asks anybody."""
        meta, wanted = pod["metadata"], []
        for short, name in claim_names(pod):
            claim = self.api.store.get("resourceclaims", meta["namespace"], name) if name else None
            if claim is None:
                raise plugins.PluginError(f'failed to fetch ResourceClaim {name or short} referenced by pod '
                                          f'{meta["name"]}: resourceclaims.resource.k8s.io "{name}" not found')
            template = next((c for c in pod["spec"].get("resourceClaims") or [] if c["name"] == short), {})
            if template.get("resourceClaimTemplateName") and not any(
                    o["uid"] == meta["uid"] for o in claim["metadata"].get("ownerReferences", [])):
                raise plugins.PluginError(f"ResourceClaim {name} was not created for pod {meta['name']}")
            if not any(r["uid"] == meta["uid"] for r in claim["status"].get("reservedFor", [])):
                raise plugins.PluginError(f"pod {meta['name']} ({meta['uid']}) is not allowed to use ResourceClaim "
                                          f"{name} ({claim['metadata']['uid']})")
            if "allocation" not in claim["status"]:
                raise plugins.PluginError(f"ResourceClaim {name} is not allocated")
            wanted.append(claim)
        return wanted

    def _enter(self, pod, wanted):
        """Enters the pod into the records of its claims; returns those that are not prepared. Lock held."""
        todo = []
        for claim in wanted:
            uid, name, namespace = (claim["metadata"][k] for k in ("uid", "name", "namespace"))
            for other in self.records.values():
                if (other.namespace, other.name) == (namespace, name) and other.uid != uid:
                    raise plugins.PluginError(f"old ResourceClaim with same name {name} and different UID "
                                              f"{other.uid} still exists")
            drivers = sorted({r["driver"] for r in claim["status"]["allocation"]["devices"].get("results", [])})
            for driver in drivers:
                self.manager.get(driver)
            record = self.records.setdefault(uid, Record(namespace, name, uid))
            record.drivers = drivers
            record.pods.add(pod["metadata"]["uid"])
            if record.busy or not record.prepared:
                todo.append(record)
        self._save()
        return todo

    def prepare(self, pod):
        """Prepares all claims of a pod. Raises plugins.PluginError, whose text is the event's."""
        epoch, manager, wanted, todo = self.epoch, self.manager, self._wanted(pod), []
        try:
            with self.lock:
                todo = self._take(epoch, lambda: self._enter(pod, wanted))
                for record in todo:
                    record.devices = []
            for driver, record, result in self._call(manager, "NodePrepareResources", "PrepareResponse", todo):
                with self.lock:
                    record.devices += [{"requests": list(d.request_names), "pool": d.pool_name,
                                        "device": d.device_name, "cdi": list(d.cdi_device_ids),
                                        "driver": driver, "shareID": d.share_id} for d in result.devices]
            with self.lock:
                self._check(epoch)
                for record in todo:
                    record.prepared = True
                self._save()
        except plugins.PluginError:
            self._check(epoch)
            raise
        finally:
            self._release(todo)

    def unprepare(self, pod_uid):
        """Takes the pod off its claims and unprepares those that no pod uses any more. Raises PluginError."""
        epoch, manager, last = self.epoch, self.manager, []
        try:
            with self.lock:
                last = self._take(epoch, lambda: [r for r in self.records.values()
                                                  if pod_uid in r.pods and (r.busy or r.pods == {pod_uid})])
                for record in self.records.values():
                    if record not in last:
                        record.pods.discard(pod_uid)
                for record in last:
                    record.prepared = False
                self._save()
            for _ in self._call(manager, "NodeUnprepareResources", "UnprepareResponse", last):
                pass
            with self.lock:
                self._check(epoch)
                for record in last:
                    self.records.pop(record.uid, None)
                self._save()
        except plugins.PluginError:
            self._check(epoch)
            raise
        finally:
            self._release(last)

    def devices(self, pod, use):
        """The devices of one entry of a container's resources.claims."""
        name = dict(claim_names(pod)).get(use["name"])
        with self.lock:
            record = next((r for r in self.records.values() if (r.namespace, r.name) == (
                pod["metadata"]["namespace"], name)), None)
            return [d for d in (record.devices if record else [])
                    if not use.get("request") or not d["requests"] or use["request"] in d["requests"]]

    def cdi_ids(self, pod, container):
        """The CDI ids of one container, each once."""
        out = []
        for use in claim_uses(pod, container):
            for device in self.devices(pod, use):
                out += [i for i in device["cdi"] if i not in out]
        return out

    def health(self, pod, container):
        """allocatedResourcesStatus of one container: what the plugins say of its devices' health."""
        out = []
        for use in (container.get("resources") or {}).get("claims") or []:
            name = f"claim:{use['name']}" + (f"/{use['request']}" if use.get("request") else "")
            resources = []
            for device in self.devices(pod, use):
                state, message = self.manager.health(device["driver"], device["pool"], device["device"])
                resources.append({"resourceID": device["cdi"][0] if device["cdi"] else device["device"],
                                  "health": state, **({"message": message} if message else {})})
            if resources:
                out.append({"name": name, "resources": resources})
        return out

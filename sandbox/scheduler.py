# SPDX-License-Identifier: Apache-2.0
"""The scheduler stand-in for one node: it asks alq-alloc for devices, writes allocations and binds pods.

Owns one thread and one alq-alloc child (a line of JSON each way, restarted when it dies). Writes in the real order:
finalizer, then allocation and reservedFor, then the binding. Pods that do not fit are tried again after any change.
"""

import json
import subprocess
import threading
import time

import api as logic
import extended
import httpd
import resources
from store import clone

PODS, CLAIMS = resources.resource("pods"), resources.resource("resourceclaims")
FINALIZER = "resource.kubernetes.io/delete-protection"
OWN = "of-extended-resources"  # uid of a claim that the scheduler has not made yet
_HELP = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


class Allocator:
    """The alq-alloc child. ask() may be called from one thread."""

    def __init__(self, program):
        self.program, self.child = program, None

    def ask(self, request):
        """Returns the reply, or {"error": why} when the program cannot be run or dies twice."""
        if not self.program:
            return {"error": "no allocator: start the sandbox with --alq-alloc"}
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        why = ""
        for _ in range(2):
            try:
                if self.child is None or self.child.poll() is not None:
                    self.child = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self.child.stdin.write(line)
                self.child.stdin.flush()
                reply = self.child.stdout.readline()
                if reply:
                    return json.loads(reply)
                why = f"{self.program} ended with {self.child.wait()}"
            except (OSError, ValueError) as error:
                why = f"{self.program}: {error}"
            self.close()
        return {"error": why}

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child.stdin.close()
            self.child.stdout.close()
            self.child = None


class Scheduler:
    RELEVANT = ("pods", "resourceclaims", "resourceslices", "deviceclasses", "nodes")

    def __init__(self, api, node, program, log):
        self.api, self.node, self.log = api, node, log
        self.allocator = Allocator(program)
        self.stopped = threading.Event()
        self.waiting = {}
        self.thread = threading.Thread(target=self._loop, name="scheduler", daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join(10)
        self.allocator.close()

    def _signature(self):
        """What a decision depends on: everything relevant but what a failed attempt writes itself."""
        store = self.api.store
        pods = tuple((p["metadata"]["uid"], json.dumps(p.get("status", {}).get("resourceClaimStatuses"), sort_keys=True))
                     for p in store.all("pods"))
        claims = tuple((c["metadata"]["uid"], json.dumps(c["status"].get("allocation"), sort_keys=True))
                       for c in store.all("resourceclaims"))
        rest = tuple(o["metadata"]["resourceVersion"] for r in ("resourceslices", "deviceclasses")
                     for o in store.all(r))
        node = store.get("nodes", "", self.node)
        return hash((pods, claims, rest, json.dumps((node or {}).get("spec"), sort_keys=True)))

    def _loop(self):
        while not self.stopped.is_set():
            with self.api.store.lock:
                version, signature = self.api.store.version, self._signature()
                pods = [p for p in self.api.store.all("pods") if not p["spec"].get("nodeName")
                        and not p["metadata"].get("deletionTimestamp")
                        and not p["spec"].get("schedulingGates")
                        and p["spec"].get("schedulerName") == "default-scheduler"]
            pods.sort(key=lambda p: int(p["metadata"]["resourceVersion"]) if p["metadata"]["uid"] not in self.waiting
                      else 0)
            live = {p["metadata"]["uid"] for p in pods}
            self.waiting = {u: w for u, w in self.waiting.items() if u in live}
            for pod in pods:
                uid = pod["metadata"]["uid"]
                known = self.waiting.get(uid)
                if known and known[0] == signature and time.monotonic() < known[1]:
                    continue
                due = self._try(pod)
                if due is None:
                    self.waiting.pop(uid, None)
                else:
                    self.waiting[uid] = (signature, time.monotonic() + due)  # what the attempt saw, not what is new since
            pause = 5.0
            if self.waiting:
                pause = max(0.05, min(w[1] for w in self.waiting.values()) - time.monotonic())
            if not self.api.store.wait(version, min(pause, 5.0)):
                return

    def _try(self, pod):
        """Schedules one pod. Returns None when done, else the seconds after which to try again at the latest."""
        meta = pod["metadata"]
        node = self.api.store.get("nodes", "", self.node)
        if node is None:
            return 1.0
        if node["spec"].get("unschedulable"):
            return self._fail(pod, "Unschedulable", "0/1 nodes are available: 1 node(s) were unschedulable. " + _HELP)
        selector = pod["spec"].get("nodeSelector") or {}
        if any(node["metadata"]["labels"].get(k) != v for k, v in selector.items()):
            return self._fail(pod, "Unschedulable", "0/1 nodes are available: 1 node(s) didn't match Pod's node "
                                                    "affinity/selector. " + _HELP)
        made = {s["name"]: s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses", [])}
        claims = []
        for entry in pod["spec"].get("resourceClaims") or []:
            name = entry.get("resourceClaimName") or made.get(entry["name"])
            claim = self.api.store.get("resourceclaims", meta["namespace"], name) if name else None
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                # The real scheduler says nothing either (recorded).
                return 30.0
            claims.append(claim)
        wanted, own = self._extended(pod)
        if own is not None:
            claims.append(own)
        fresh = [c for c in claims if "allocation" not in c["status"]]
        for claim in claims:
            if claim not in fresh and not self._fits_node(claim):
                return self._fail(pod, "Unschedulable", "0/1 nodes are available: 1 resourceclaim not available on the "
                                                        "node. " + _HELP)
        allocations = {}
        if fresh:
            reply = self.allocator.ask(self._request(fresh, node))
            if "allocations" not in reply:
                return self._explain(pod, reply)
            allocations = reply["allocations"]
        try:
            if own is not None and own["metadata"]["uid"] == OWN:
                claims[-1], pod = self._make_own(pod, wanted)
                allocations[claims[-1]["metadata"]["uid"]] = allocations.pop(OWN)
            for claim in claims:
                self._reserve(pod, claim, allocations.get(claim["metadata"]["uid"]))
            httpd.bind_pod(self.api, meta["namespace"], meta["name"], self.node)
        except logic.ApiError as error:
            self.log(f"scheduler: pod {meta['name']}: {error}")
            return self._fail(pod, "SchedulerError", f'running PreBind plugin "DynamicResources": {error}', 1.0)
        self.api.event(pod, "Scheduled", f"Successfully assigned {meta['namespace']}/{meta['name']} to {self.node}",
                       "Normal", "default-scheduler", action="Binding")
        return None

    def _extended(self, pod):
        """What the pod asks for of extended resources that classes name, and its claim: made already, or to be made (uid OWN)."""
        wanted = extended.mappings(pod, self.api.store.all("deviceclasses")) if self.api.version >= "1.36" and not self.api.gate_off else []
        if not wanted:
            return [], None
        made = (pod.get("status", {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        known = self.api.store.get("resourceclaims", pod["metadata"]["namespace"], made) if made else None
        if known is not None:
            return wanted, known
        claim = extended.claim(pod, wanted)
        claim["metadata"].update(name=pod["metadata"]["name"], uid=OWN)
        return wanted, {**claim, "status": {}}

    def _make_own(self, pod, wanted):
        """Creates the claim of a pod's extended resources and notes it in the pod; both as they are then."""
        meta = pod["metadata"]
        made = self.api.create(logic.SYSTEM, CLAIMS, meta["namespace"], extended.claim(pod, wanted))
        with self.api.store.lock:
            new = clone(self.api.get(PODS, meta["namespace"], meta["name"]))
            new["status"]["extendedResourceClaimStatus"] = extended.status(made["metadata"]["name"], wanted)
            return made, self.api.store.put("pods", meta["namespace"], meta["name"], new)

    def _request(self, claims, node):
        store = self.api.store
        with store.lock:
            return {"claims": claims, "classes": store.all("deviceclasses"), "slices": store.all("resourceslices"),
                    "allocated": [c for c in store.all("resourceclaims") if "allocation" in c["status"]],
                    "node": node, "serverVersion": self.api.version}

    def _fits_node(self, claim):
        terms = claim["status"]["allocation"].get("nodeSelector", {}).get("nodeSelectorTerms")
        if not terms:
            return True
        return any(all(self.node in f.get("values", []) for f in t.get("matchFields", [])) for t in terms)

    def _explain(self, pod, reply):
        if "error" in reply:
            return self._fail(pod, "SchedulerError", f'running "DynamicResources" filter plugin: {reply["error"]}', 2.0)
        reason = reply.get("unschedulable", "")
        if "device class" in reason and "does not exist" in reason:
            text = f"0/1 nodes are available: {reason}. no new claims to deallocate, {_HELP}"
        else:
            why = f" ({reason})" if reason and reason != "cannot allocate all claims" else ""
            text = f"0/1 nodes are available: 1 cannot allocate all claims{why}. still not schedulable, {_HELP}"
        return self._fail(pod, "Unschedulable", text)

    def _reserve(self, pod, claim, allocation):
        meta = claim["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        if allocation is not None and FINALIZER not in meta.get("finalizers", []):
            new = clone(claim)
            new["metadata"]["finalizers"] = meta.get("finalizers", []) + [FINALIZER]
            claim = self.api.update(logic.SYSTEM, CLAIMS, namespace, name, new)
        new = clone(claim)
        status = new["status"]
        if allocation is not None:
            status["allocation"] = dict(allocation)
            status["allocation"].setdefault("allocationTimestamp", logic.now())
        entry = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        if any(r["uid"] == entry["uid"] for r in status.get("reservedFor", [])):
            return
        status["reservedFor"] = status.get("reservedFor", []) + [entry]
        self.api.update(logic.SYSTEM, CLAIMS, namespace, name, new, "status")

    def _fail(self, pod, reason, message, again=30.0):
        meta, store = pod["metadata"], self.api.store
        with store.lock:
            now = store.get("pods", meta["namespace"], meta["name"])
            if now is None or now["metadata"]["uid"] != meta["uid"]:
                return 1.0
            new = clone(now)
            status = new.setdefault("status", {})
            old = next((c for c in status.get("conditions", []) if c["type"] == "PodScheduled"), None)
            if old is None or (old["reason"], old["message"]) != (reason, message):
                rest = [c for c in status.get("conditions", []) if c["type"] != "PodScheduled"]
                status["conditions"] = rest + [{
                    "type": "PodScheduled", "observedGeneration": 1, "status": "False", "lastProbeTime": None,
                    "lastTransitionTime": logic.now(), "reason": reason, "message": message}]
                store.put("pods", meta["namespace"], meta["name"], new)
        self.api.event(pod, "FailedScheduling", message, "Warning", "default-scheduler", action="Scheduling")
        return again

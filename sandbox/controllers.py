# SPDX-License-Identifier: Apache-2.0
"""The resource claim controller and the garbage collector.

One thread looks at everything after each change: it makes claims from templates, takes finished and vanished pods off
their claims, deallocates what no pod uses (status first, then the finalizer), deletes the claims made for finished
pods, and deletes objects whose owners are gone. The API server is reached through api.Api.
"""

import threading

import api as logic
import resources
from store import clone

PODS, CLAIMS = resources.resource("pods"), resources.resource("resourceclaims")
FINALIZER = "resource.kubernetes.io/delete-protection"


def _finished(pod):
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or (
        pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"))


class Controllers:
    def __init__(self, api, log):
        self.api, self.log = api, log
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="controllers", daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join(10)

    def _loop(self):
        while not self.stopped.is_set():
            version = self.api.store.version
            for step in (self._templates, self._claims, self._owners):
                try:
                    step()
                except logic.ApiError as error:
                    self.log(f"controllers: {error}")
            if not self.api.store.wait(version, 5.0):
                return

    def _templates(self):
        store = self.api.store
        for pod in store.all("pods"):
            meta = pod["metadata"]
            made = {s["name"] for s in pod.get("status", {}).get("resourceClaimStatuses", [])}
            wanted = [c for c in pod["spec"].get("resourceClaims") or []
                      if c.get("resourceClaimTemplateName") and c["name"] not in made]
            if not wanted or _finished(pod) or meta.get("deletionTimestamp"):
                continue
            statuses = []
            for entry in wanted:
                template = store.get("resourceclaimtemplates", meta["namespace"], entry["resourceClaimTemplateName"])
                if template is None:
                    text = f'PodResourceClaim {entry["name"]}: resource claim template ' \
                           f'"{entry["resourceClaimTemplateName"]}": not found'
                    events = [e for e in store.all("events", meta["namespace"]) if e.get("message") == text
                              and e["involvedObject"].get("uid") == meta["uid"]]
                    if not events:
                        self.api.event(pod, "FailedResourceClaimCreation", text, "Warning", "resource_claim")
                    continue
                extra = template["spec"].get("metadata") or {}
                claim = self.api.create(logic.SYSTEM, CLAIMS, meta["namespace"], {
                    "metadata": {
                        "generateName": f"{meta['name']}-{entry['name']}-", "labels": extra.get("labels") or {},
                        "annotations": {**(extra.get("annotations") or {}),
                                        "resource.kubernetes.io/pod-claim-name": entry["name"]},
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": meta["name"],
                                             "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}]},
                    "spec": clone(template["spec"]["spec"])})
                statuses.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
            if statuses:
                with store.lock:
                    now = store.get("pods", meta["namespace"], meta["name"])
                    if now is not None and now["metadata"]["uid"] == meta["uid"]:
                        new = clone(now)
                        new["status"]["resourceClaimStatuses"] = now["status"].get("resourceClaimStatuses",
                                                                                   []) + statuses
                        store.put("pods", meta["namespace"], meta["name"], new)

    def _claims(self):
        store = self.api.store
        pods = {p["metadata"]["uid"]: p for p in store.all("pods")}
        for claim in store.all("resourceclaims"):
            meta, status = claim["metadata"], claim["status"]
            reserved = status.get("reservedFor", [])
            kept = [r for r in reserved if r["resource"] != "pods" or (r["uid"] in pods
                                                                       and not _finished(pods[r["uid"]]))]
            if kept != reserved or ("allocation" in status and not kept and meta.get("deletionTimestamp")):
                new = clone(claim)
                if kept:
                    new["status"]["reservedFor"] = kept
                else:
                    new["status"] = {}
                claim = self.api.update(logic.SYSTEM, CLAIMS, meta["namespace"], meta["name"], new, "status")
            if FINALIZER in claim["metadata"].get("finalizers", []) and "allocation" not in claim["status"]:
                # Not between the scheduler's finalizer and its allocation: only after a deallocation or a deletion.
                if kept != reserved or meta.get("deletionTimestamp"):
                    new = clone(claim)
                    new["metadata"]["finalizers"] = [f for f in claim["metadata"]["finalizers"] if f != FINALIZER]
                    self.api.update(logic.SYSTEM, CLAIMS, meta["namespace"], meta["name"], new)
            owner = next((o for o in meta.get("ownerReferences", []) if o.get("controller")), None)
            if owner and owner["kind"] == "Pod" and owner["uid"] in pods and _finished(pods[owner["uid"]]) \
                    and not meta.get("deletionTimestamp"):
                self.api.delete(logic.SYSTEM, CLAIMS, meta["namespace"], meta["name"],
                                {"preconditions": {"uid": meta["uid"]}})

    def _owners(self):
        store = self.api.store
        with store.lock:
            uids = {o["metadata"]["uid"] for r in store.resources() for o in store.all(r)}
            orphans = []
            for res in resources.RESOURCES:
                if res.group in ("events.k8s.io", "authorization.k8s.io"):
                    continue
                for obj in store.all(res.internal):
                    owners = obj["metadata"].get("ownerReferences", [])
                    if owners and not any(o["uid"] in uids for o in owners) and \
                            not obj["metadata"].get("deletionTimestamp"):
                        orphans.append((res, obj["metadata"]))
        for res, meta in orphans:
            try:
                self.api.delete(logic.SYSTEM, res, meta.get("namespace", ""), meta["name"],
                                {"preconditions": {"uid": meta["uid"]}})
            except logic.ApiError as error:
                if error.code != 404:
                    raise

# SPDX-License-Identifier: Apache-2.0
"""The kubelet stand-in of the one node: it runs the pods bound to it and prepares their claims through DRA plugins.

Owns the node object, the claims' records (dra_manager_state, as the real kubelet's checkpoint), one worker thread a
pod and the logs. Rules: reference/dra.md 3.4. Writes pod status through api.Api as the other parts do; talks to plugins
through plugins.py and to containers through runtime.py.
"""

import json
import os
import queue
import shutil
import signal
import threading
import time

import api as logic
import plugins
import resources
import runtime as containers
from store import clone

PODS, CLAIMS = resources.resource("pods"), resources.resource("resourceclaims")
SLICES, NODES = resources.resource("resourceslices"), resources.resource("nodes")


class Logs:
    """Where a container's output lies. One file a start of the container."""

    def __init__(self, directory, kubelet):
        self.directory, self.kubelet = directory, kubelet

    def folder(self, pod, container):
        meta = pod["metadata"]
        return os.path.join(self.directory, f"{meta['namespace']}_{meta['name']}_{meta['uid']}", container)

    def path(self, pod, container, previous=False):
        folder = self.folder(pod, container)
        runs = sorted((int(n.split(".")[0]) for n in os.listdir(folder)), reverse=True) if os.path.isdir(folder) else []
        runs = runs[1:] if previous else runs
        return os.path.join(folder, f"{runs[0]}.log") if runs else None

    def finished(self, pod, container):
        worker = self.kubelet.workers.get(pod["metadata"]["uid"])
        return worker is None or worker.over(container)


class ClaimRecord:
    """What the kubelet knows of a claim in use on the node."""

    def __init__(self, namespace, name, uid):
        self.namespace, self.name, self.uid = namespace, name, uid
        self.pods, self.drivers, self.devices = set(), [], []
        self.prepared = False

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


class Kubelet:
    def __init__(self, api, node, directory, log_directory, runtime, options, log):
        self.api, self.node, self.directory, self.runtime, self.log = api, node, directory, runtime, log
        self.options = options
        self.workers, self.claims = {}, {}
        self.lock = threading.RLock()
        self.stopped = threading.Event()
        self.logs = Logs(log_directory, self)
        self.checkpoint = os.path.join(directory, "dra_manager_state")
        self.manager = None
        self.thread = threading.Thread(target=self._loop, name="kubelet", daemon=True)

    # ------------------------------------------------------------------ life

    def start(self):
        self._make_node()
        self._begin()
        self.thread.start()

    def _begin(self):
        """What a kubelet process does when it starts: it forgets, wipes the node's slices and looks for plugins."""
        with self.lock:
            self.claims = {}
            if os.path.exists(self.checkpoint):
                with open(self.checkpoint, encoding="utf-8") as file:
                    for data in json.load(file):
                        record = ClaimRecord.load(data)
                        self.claims[record.uid] = record
        self._wipe_slices({"fieldSelector": f"spec.nodeName={self.node}"})
        self.manager = plugins.Manager(os.path.join(self.directory, "plugins_registry"), self.log, self._plugin_gone,
                                       self.options.health)
        self.manager.start()

    def restart(self):
        """A new kubelet process: containers go on, everything in memory is lost, plugins register again."""
        self.log("kubelet restarts")
        self.manager.stop()
        self._begin()

    def stop(self):
        """Kills all containers and ends all threads."""
        self.stopped.set()
        workers = list(self.workers.values())
        for worker in workers:
            worker.abort()
        for worker in workers:
            worker.thread.join(15)
        if self.manager:
            self.manager.stop()

    def _make_node(self):
        version = "v" + {"1.34": "1.34.9", "1.36": "1.36.2"}[self.api.version]
        name = self.runtime.program if self.runtime else "none"
        stamp = logic.now()
        node = {"metadata": {"name": self.node, "labels": {"kubernetes.io/hostname": self.node,
                                                           "kubernetes.io/os": "linux",
                                                           "kubernetes.io/arch": "amd64"}}, "spec": {}}
        if self.api.store.get("nodes", "", self.node) is None:
            node = clone(self.api.create(logic.SYSTEM, NODES, "", node))
            node["status"] = {
                "capacity": {"cpu": str(os.cpu_count()), "pods": "110"},
                "allocatable": {"cpu": str(os.cpu_count()), "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                                "message": "kubelet is posting ready status", "lastHeartbeatTime": stamp,
                                "lastTransitionTime": stamp}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"},
                              {"type": "Hostname", "address": self.node}],
                "nodeInfo": {"kubeletVersion": version, "containerRuntimeVersion": f"{name}://sandbox",
                             "kernelVersion": os.uname().release, "osImage": "Aliquot sandbox",
                             "operatingSystem": "linux", "architecture": "amd64"}}
            self.api.update(logic.SYSTEM, NODES, "", self.node, node, "status")

    def _wipe_slices(self, query):
        gone, _ = self.api.delete_collection(logic.SYSTEM, SLICES, "", query)
        if gone:
            self.log(f"deleted {len(gone)} resource slices of {query['fieldSelector']}")

    def _plugin_gone(self, driver):
        """The driver's slices go if no instance is back in time."""
        manager = self.manager

        def later():
            if manager.stopped.wait(self.options.wipe_seconds):
                return
            try:
                manager.get(driver)
            except plugins.PluginError:
                self._wipe_slices({"fieldSelector": f"spec.nodeName={self.node},spec.driver={driver}"})
        threading.Thread(target=later, name="slice-wiper", daemon=True).start()

    # ------------------------------------------------------------------ pods

    def _loop(self):
        version = 0
        while not self.stopped.is_set():
            with self.api.store.lock:
                version = self.api.store.version
                pods = {p["metadata"]["uid"]: p for p in self.api.store.all("pods")
                        if p["spec"].get("nodeName") == self.node}
            for uid, pod in pods.items():
                if uid not in self.workers and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                    self.workers[uid] = PodWorker(self, pod)
                elif uid not in self.workers and pod["metadata"].get("deletionTimestamp"):
                    self._final_delete(pod)
            for uid, worker in list(self.workers.items()):
                if worker.done.is_set():
                    pod = pods.get(uid)
                    if pod is None:
                        self.workers.pop(uid)
                    elif pod["metadata"].get("deletionTimestamp"):
                        self._final_delete(pod)
                else:
                    worker.notice(pods.get(uid))
            if not self.api.store.wait(version, 1.0):
                return

    def _final_delete(self, pod):
        meta = pod["metadata"]
        try:
            self.api.delete(logic.SYSTEM, PODS, meta["namespace"], meta["name"],
                            {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        except logic.ApiError:
            pass

    # ------------------------------------------------------------------ claims

    def _save(self):
        temporary = self.checkpoint + ".tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump([r.dump() for r in self.claims.values()], file, indent=1)
        os.rename(temporary, self.checkpoint)

    def claim_names(self, pod):
        """(name in the pod, claim name) pairs; claim name None: the template's claim is not made yet."""
        made = {s["name"]: s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses", [])}
        return [(c["name"], c.get("resourceClaimName") or made.get(c["name"]))
                for c in pod["spec"].get("resourceClaims") or []]

    def prepare(self, pod):
        """Prepares all claims of a pod. Raises plugins.PluginError, whose text is the event's."""
        meta, wanted = pod["metadata"], []
        for short, name in self.claim_names(pod):
            claim = self.api.store.get("resourceclaims", meta["namespace"], name) if name else None
            if claim is None:
                raise plugins.PluginError(f'failed to fetch ResourceClaim {name or short} referenced by pod '
                                          f'{meta["name"]}: resourceclaims.resource.k8s.io "{name}" not found')
            template = next(c for c in pod["spec"]["resourceClaims"] if c["name"] == short)
            if template.get("resourceClaimTemplateName") and not any(
                    o["uid"] == meta["uid"] for o in claim["metadata"].get("ownerReferences", [])):
                raise plugins.PluginError(f"ResourceClaim {name} was not created for pod {meta['name']}")
            reserved = claim["status"].get("reservedFor", [])
            if not any(r["uid"] == meta["uid"] for r in reserved):
                raise plugins.PluginError(f"pod {meta['name']} ({meta['uid']}) is not allowed to use ResourceClaim "
                                          f"{name} ({claim['metadata']['uid']})")
            if "allocation" not in claim["status"]:
                raise plugins.PluginError(f"ResourceClaim {name} is not allocated")
            wanted.append(claim)
        batches = {}
        with self.lock:
            for claim in wanted:
                uid, name = claim["metadata"]["uid"], claim["metadata"]["name"]
                for other in self.claims.values():
                    if (other.namespace, other.name) == (meta["namespace"], name) and other.uid != uid:
                        raise plugins.PluginError(f"old ResourceClaim with same name {name} and different UID "
                                                  f"{other.uid} still exists")
                results = claim["status"]["allocation"]["devices"].get("results", [])
                drivers = sorted({r["driver"] for r in results})
                for driver in drivers:
                    self.manager.get(driver)
                record = self.claims.get(uid) or ClaimRecord(meta["namespace"], name, uid)
                record.drivers = drivers
                record.pods.add(meta["uid"])
                self.claims[uid] = record
                if not record.prepared:
                    record.devices = []
                    for driver in drivers:
                        batches.setdefault(driver, []).append(record)
            self._save()
        for driver, records in batches.items():
            answer = self.manager.get(driver).call("NodePrepareResources", [r.key() for r in records],
                                                   "PrepareResponse", self.options.prepare_seconds)
            with self.lock:
                for record in records:
                    result = answer[record.uid]
                    if result.error:
                        raise plugins.PluginError(f"NodePrepareResources failed for ResourceClaim {record.name}: "
                                                  f"{result.error}")
                    record.devices += [{"requests": list(d.request_names), "pool": d.pool_name,
                                        "device": d.device_name, "cdi": list(d.cdi_device_ids),
                                        "driver": driver, "shareID": d.share_id} for d in result.devices]
        with self.lock:
            for claim in wanted:
                self.claims[claim["metadata"]["uid"]].prepared = True
            self._save()

    def unprepare(self, pod_uid):
        """Takes the pod off its claims and unprepares those that no pod uses any more. Raises PluginError."""
        with self.lock:
            mine = [r for r in self.claims.values() if pod_uid in r.pods]
            last = [r for r in mine if r.pods == {pod_uid}]
            for record in mine:
                if record not in last:
                    record.pods.discard(pod_uid)
            self._save()
        batches = {}
        for record in last:
            for driver in record.drivers:
                batches.setdefault(driver, []).append(record)
        for driver, records in batches.items():
            answer = self.manager.get(driver).call("NodeUnprepareResources", [r.key() for r in records],
                                                   "UnprepareResponse", self.options.prepare_seconds)
            for record in records:
                if answer[record.uid].error:
                    raise plugins.PluginError(f"NodeUnprepareResources failed for ResourceClaim {record.name}: "
                                              f"{answer[record.uid].error}")
        with self.lock:
            for record in last:
                record.pods.discard(pod_uid)
                if not record.pods:
                    self.claims.pop(record.uid, None)
            self._save()

    def cdi_ids(self, pod, container):
        """The CDI ids of one container: its claims, narrowed by its request names, each id once."""
        names, out = dict(self.claim_names(pod)), []
        with self.lock:
            for use in (container.get("resources") or {}).get("claims") or []:
                record = next((r for r in self.claims.values() if (r.namespace, r.name) == (
                    pod["metadata"]["namespace"], names.get(use["name"]))), None)
                for device in record.devices if record else []:
                    if not use.get("request") or not device["requests"] or use["request"] in device["requests"]:
                        out += [i for i in device["cdi"] if i not in out]
        return out


class PodWorker:
    """Runs one pod to its end in a thread of its own."""

    def __init__(self, kubelet, pod):
        self.kubelet, self.pod = kubelet, pod
        self.uid = pod["metadata"]["uid"]
        self.inbox = queue.Queue()
        self.done = threading.Event()
        self.stop_at = None
        self.killed = False
        self.started = None
        self.volumes = os.path.join(kubelet.directory, "pods", self.uid)
        names = [c["name"] for c in (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]]
        self.states = {n: {"waiting": {"reason": "ContainerCreating"}} for n in names}
        self.restarts = dict.fromkeys(names, 0)
        self.last = {n: {} for n in names}
        self.running = {}
        self.thread = threading.Thread(target=self._run, name=f"pod-{pod['metadata']['name']}", daemon=True)
        self.thread.start()

    # ------------------------------------------------------------------ called by others

    def notice(self, pod):
        """The pod's object changed; None: it is gone from the API."""
        if pod is None:
            self._order_stop(0)
        elif pod["metadata"].get("deletionTimestamp"):
            self._order_stop(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        if pod is not None:
            self.pod = pod

    def abort(self):
        self._order_stop(0)
        self.inbox.put("stop")

    def over(self, container):
        """The container will write no more."""
        return self.done.is_set() or ("terminated" in self.states[container] and container not in self.running
                                      and not self._restarts(container))

    def _order_stop(self, grace):
        when = time.monotonic() + grace
        if self.stop_at is None or when < self.stop_at - 0.5:
            self.stop_at = when
            self.inbox.put("stop")

    # ------------------------------------------------------------------ the thread

    def _run(self):
        try:
            self._life()
        except Exception as error:  # pylint: disable=broad-except
            self.kubelet.log(f"pod {self.pod['metadata']['name']}: {error!r}")
            raise
        finally:
            shutil.rmtree(self.volumes, ignore_errors=True)
            self.done.set()
            with self.kubelet.api.store.lock:
                self.kubelet.api.store.changed.notify_all()

    def _life(self):
        self.started = logic.now()
        self._write_status("Pending")
        if self._prepare():
            for container in self.pod["spec"].get("initContainers") or []:
                if not self._run_init(container):
                    break
            else:
                self._run_main()
        self._stop_containers()
        self._unprepare()
        self._write_status(self._final_phase())

    def _event(self, reason, message, kind="Normal"):
        self.kubelet.api.event(self.pod, reason, message, kind, "kubelet", self.kubelet.node)

    def _pause(self, seconds):
        """Waits; False if the pod must stop."""
        end = time.monotonic() + seconds
        while self.stop_at is None:
            left = end - time.monotonic()
            if left <= 0:
                return True
            try:
                self.inbox.get(timeout=left)
            except queue.Empty:
                return self.stop_at is None
        return False

    def _prepare(self):
        if not self.pod["spec"].get("resourceClaims"):
            return self.stop_at is None
        pause = self.kubelet.options.retry_seconds
        while self.stop_at is None:
            try:
                self.kubelet.prepare(self.pod)
                return self.stop_at is None
            except plugins.PluginError as error:
                self.kubelet.log(f"pod {self.pod['metadata']['name']}: prepare: {error}")
                self._event("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic "
                                                             f"resources: {error}", "Warning")
            if not self._pause(pause):
                return False
            pause = min(pause * 2, 90)
        return False

    def _unprepare(self):
        pause = self.kubelet.options.retry_seconds
        while True:
            try:
                return self.kubelet.unprepare(self.uid)
            except plugins.PluginError as error:
                self.kubelet.log(f"pod {self.pod['metadata']['name']}: unprepare: {error}")
                self._event("FailedUnprepareDynamicResources", f"Failed to unprepare dynamic resources: {error}",
                            "Warning")
            if self.kubelet.stopped.wait(pause):
                return None
            pause = min(pause * 2, 60)

    def _restarts(self, name):
        policy = self.pod["spec"]["restartPolicy"]
        ended = self.states[name].get("terminated")
        if ended is None or self.stop_at is not None:
            return False
        return policy == "Always" or (policy == "OnFailure" and ended["exitCode"] != 0)

    def _run_init(self, container):
        while True:
            if self._start(container):
                self._write_status("Pending")
                self._wait_for(container["name"])
            ended = self.states[container["name"]].get("terminated")
            self._write_status("Pending")
            if self.stop_at is not None:
                return False
            if ended and ended["exitCode"] == 0:
                return True
            if self.pod["spec"]["restartPolicy"] == "Never" or not self._pause(self._back_off(container["name"])):
                return False

    def _back_off(self, name):
        return min(1 * 2 ** self.restarts[name], 30)

    def _run_main(self):
        due = {c["name"]: 0.0 for c in self.pod["spec"]["containers"]}
        by_name = {c["name"]: c for c in self.pod["spec"]["containers"]}
        while self.stop_at is None:
            changed = False
            for name in [n for n, when in due.items() if when <= time.monotonic()]:
                if self.stop_at is None:
                    due.pop(name)
                    self._start(by_name[name])
                    changed = True
            for name in list(self.running):
                if self._reap(name):
                    changed = True
            for name, state in self.states.items():
                if name in by_name and "terminated" in state and name not in due and self._restarts(name):
                    due[name] = time.monotonic() + self._back_off(name)
                    changed = True
            if changed:
                self._write_status("Running")
            if not self.running and not due:
                return
            self._pause(0.03)

    def _start(self, container):
        """Starts a container. False (and a terminated state) if the runtime refused."""
        kubelet, name = self.kubelet, container["name"]
        again = "terminated" in self.states[name]
        if again:
            self.last[name] = self.states[name]
            self.restarts[name] += 1
        meta = self.pod["metadata"]
        folder = kubelet.logs.folder(self.pod, name)
        os.makedirs(folder, exist_ok=True)
        log = os.path.join(folder, f"{self.restarts[name]}.log")
        open(log, "ab").close()
        spec = {"log": log, "hostname": meta["name"], "host_network": bool(self.pod["spec"].get("hostNetwork"))}
        try:
            if kubelet.runtime is None:
                raise containers.RuntimeFailure(kubelet.options.no_runtime)
            spec.update(self._spec(container))
            identity = f"alq-{self.uid[:8]}-{name[:20]}-{self.restarts[name]}-{os.getpid()}"
            self.running[name] = kubelet.runtime.start(identity, spec)
        except (containers.RuntimeFailure, containers.cdi.CdiError, OSError, KeyError) as error:
            text = str(error)
            self._event("Failed", f"Error: {text}", "Warning")
            stamp = logic.now()
            self.states[name] = {"terminated": {"exitCode": 128, "reason": "StartError", "message": text,
                                                "startedAt": stamp, "finishedAt": stamp}}
            return False
        self._event("Created", "Container created" if kubelet.api.version >= "1.36" else f"Created container: {name}")
        self._event("Started", "Container started" if kubelet.api.version >= "1.36" else f"Started container {name}")
        self.states[name] = {"running": {"startedAt": logic.now()}}
        return True

    def _spec(self, container):
        env, values = [], {}
        meta = self.pod["metadata"]
        fields = {"metadata.name": meta["name"], "metadata.namespace": meta["namespace"], "metadata.uid": self.uid,
                  "spec.nodeName": self.kubelet.node}
        for entry in container.get("env") or []:
            value = entry.get("value", "")
            source = (entry.get("valueFrom") or {}).get("fieldRef")
            if source:
                value = fields.get(source["fieldPath"], "")
            for known, text in values.items():
                value = value.replace(f"$({known})", text)
            values[entry["name"]] = value
            env.append(f"{entry['name']}={value}")
        args = list(container.get("command") or []) + list(container.get("args") or [])
        for known, text in values.items():
            args = [a.replace(f"$({known})", text) for a in args]
        if not args:
            raise containers.RuntimeFailure(f"container {container['name']} has no command, and images are not used")
        context = container.get("securityContext") or {}
        return {"env": env, "args": args, "cwd": container.get("workingDir"), "binds": self._binds(container),
                "uid": context.get("runAsUser", 0), "gid": context.get("runAsGroup", 0),
                "privileged": bool(context.get("privileged")),
                "read_only": bool(context.get("readOnlyRootFilesystem")),
                "cdi": self.kubelet.cdi_ids(self.pod, container)}

    def _binds(self, container):
        volumes = {v["name"]: v for v in self.pod["spec"].get("volumes") or []}
        out = []
        for mount in container.get("volumeMounts") or []:
            volume = volumes.get(mount["name"])
            if volume is None:
                raise containers.RuntimeFailure(f"volume {mount['name']} is not in the pod")
            if "hostPath" in volume:
                source = volume["hostPath"]["path"]
                if volume["hostPath"].get("type") == "DirectoryOrCreate":
                    os.makedirs(source, exist_ok=True)
            elif "emptyDir" in volume:
                source = os.path.join(self.volumes, mount["name"])
                os.makedirs(source, exist_ok=True)
                os.chmod(source, 0o777)
            else:
                raise containers.RuntimeFailure(f"volume {mount['name']}: only hostPath and emptyDir are supported")
            if mount.get("subPath"):
                source = os.path.join(source, mount["subPath"])
            if not os.path.exists(source):
                raise containers.RuntimeFailure(f"volume {mount['name']}: {source}: no such file or directory")
            out.append((source, mount["mountPath"], ["ro" if mount.get("readOnly") else "rw"]))
        return out

    def _reap(self, name):
        container = self.running[name]
        code = container.poll()
        if code is None:
            return False
        started = self.states[name].get("running", {}).get("startedAt", logic.now())
        container.remove()
        self.states[name] = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error",
                                            "startedAt": started, "finishedAt": logic.now()}}
        self.running.pop(name)
        return True

    def _wait_for(self, name):
        while name in self.running and self.stop_at is None:
            self._reap(name) or self._pause(0.03)
        if name in self.running:
            self._stop_containers()

    def _stop_containers(self):
        if not self.running:
            return
        for name, container in self.running.items():
            self._event("Killing", f"Stopping container {name}")
            container.kill(signal.SIGTERM)
        asked = False
        while self.running:
            for name in list(self.running):
                self._reap(name)
            if self.running and (self.stop_at is None or time.monotonic() >= self.stop_at) and not asked:
                asked = True
                for container in self.running.values():
                    container.kill(signal.SIGKILL)
            time.sleep(0.02)

    # ------------------------------------------------------------------ status

    def _final_phase(self):
        codes = [self.states[c["name"]].get("terminated", {}).get("exitCode")
                 for c in self.pod["spec"]["containers"]]
        return "Succeeded" if codes and all(c == 0 for c in codes) else "Failed"

    def _statuses(self, key):
        out = []
        for container in self.pod["spec"].get(key) or []:
            name = container["name"]
            state = self.states[name]
            if key == "containers" and self.done_phase and "waiting" in state:
                state = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown",
                                        "startedAt": self.started, "finishedAt": logic.now()}}
            ready = "running" in state if key == "containers" else state.get("terminated", {}).get("exitCode") == 0
            entry = {"name": name, "state": state, "lastState": self.last[name], "ready": ready,
                     "restartCount": self.restarts[name], "image": container.get("image", ""), "imageID": "",
                     "started": "running" in state}
            if name in self.running:
                entry["containerID"] = f"{self.kubelet.runtime.program}://{self.running[name].name}"
            out.append(entry)
        return out

    done_phase = False

    def _write_status(self, phase):
        self.done_phase = phase in ("Succeeded", "Failed")
        statuses, inits = self._statuses("containers"), self._statuses("initContainers")
        ready = bool(statuses) and all(s["ready"] for s in statuses)
        unready = [s["name"] for s in statuses if not s["ready"]]
        initialized = all(s["ready"] for s in inits)
        store, meta = self.kubelet.api.store, self.pod["metadata"]
        with store.lock:
            pod = store.get("pods", meta["namespace"], meta["name"])
            if pod is None or pod["metadata"]["uid"] != self.uid:
                return
            new = clone(pod)
            status = new.setdefault("status", {})
            old = {c["type"]: c for c in status.get("conditions", [])}

            def condition(kind, good, reason="", message=""):
                value = "True" if good else "False"
                before = old.get(kind)
                stamp = before["lastTransitionTime"] if before and before["status"] == value else logic.now()
                out = {"type": kind, "observedGeneration": pod["metadata"].get("generation", 1), "status": value,
                       "lastProbeTime": None, "lastTransitionTime": stamp}
                if reason:
                    out.update(reason=reason, message=message)
                return out
            reason, message = "", ""
            if phase == "Succeeded":
                reason = "PodCompleted"
            elif not ready:
                reason = "PodFailed" if phase == "Failed" else "ContainersNotReady"
                message = f"containers with unready status: [{' '.join(unready)}]" if phase != "Failed" else ""
            begun = any("running" in s["state"] or "terminated" in s["state"] for s in statuses + inits)
            status["conditions"] = [
                condition("PodReadyToStartContainers", begun and not self.done_phase),
                condition("Initialized", initialized, *([] if initialized else ["ContainersNotInitialized", ""])),
                condition("Ready", ready, reason, message),
                condition("ContainersReady", ready, reason, message),
            ] + [c for c in old.values() if c["type"] not in ("PodReadyToStartContainers", "Initialized", "Ready",
                                                              "ContainersReady")]
            status["phase"] = phase
            status.update(hostIP="127.0.0.1", hostIPs=[{"ip": "127.0.0.1"}], startTime=self.started,
                          containerStatuses=statuses)
            if begun:
                status.update(podIP="127.0.0.1", podIPs=[{"ip": "127.0.0.1"}])
            if inits:
                status["initContainerStatuses"] = inits
            status["qosClass"] = "BestEffort"
            if new != pod:
                store.put("pods", meta["namespace"], meta["name"], new)

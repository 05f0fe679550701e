# SPDX-License-Identifier: Apache-2.0
"""One pod on the node: a thread that prepares its claims, runs its containers by their restart policy, and writes its
status. Made by kubelet.Kubelet; notice(), abort() and over() may be called from any thread. While the kubelet is down
it does nothing; the containers go on.
"""

import os
import queue
import shutil
import signal
import threading
import time

import api as logic
import claims
import plugins
import runtime as containers
from store import clone


class PodWorker:
    """Runs one pod to its end in a thread of its own."""

    def __init__(self, kubelet, pod):
        self.kubelet, self.pod = kubelet, pod
        self.uid = pod["metadata"]["uid"]
        self.inbox = queue.Queue()
        self.done = threading.Event()
        self.stop_at = None
        self.started = None
        self.boot = kubelet.boot
        self.shown_health = None
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

    def kill_containers(self):
        """The machine under them goes down."""
        for container in list(self.running.values()):
            container.kill(signal.SIGKILL)

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
        if not self.kubelet.is_up():
            return
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
        if not claims.claim_names(self.pod):
            return self.stop_at is None
        pause = self.kubelet.options.retry_seconds
        while self.stop_at is None and self.kubelet.is_up():
            try:
                self.kubelet.claims.prepare(self.pod)
                return self.stop_at is None
            except claims.Restarted:
                continue
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
        while self.kubelet.is_up():
            try:
                return self.kubelet.claims.unprepare(self.uid)
            except claims.Restarted:
                continue
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
        while self.stop_at is None and self.kubelet.is_up():
            changed = self._is_health_news()
            if not self._has_sandbox():
                return
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

    def _has_sandbox(self):
        """After a boot a pod gets a new sandbox, for which its claims are prepared again. False: it must stop."""
        if self.boot == self.kubelet.boot:
            return True
        while self.running:
            for name in list(self.running):
                self._reap(name)
            time.sleep(0.02)
        self.boot = self.kubelet.boot
        if not any(self._restarts(name) or "waiting" in state for name, state in self.states.items()):
            return True
        return self._prepare()

    def _is_health_news(self):
        """The plugins say another thing of the devices than the pod's status does."""
        if not self.kubelet.options.health or not self.pod["spec"].get("resourceClaims"):
            return False
        health = [self.kubelet.claims.health(self.pod, c) for c in self.pod["spec"]["containers"]]
        is_news, self.shown_health = health != self.shown_health, health
        return is_news

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
                "cdi": self.kubelet.claims.cdi_ids(self.pod, container)}

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
            health = self.kubelet.claims.health(self.pod, container) if self.kubelet.options.health else None
            if health:
                entry["allocatedResourcesStatus"] = health
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

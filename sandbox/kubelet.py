# SPDX-License-Identifier: Apache-2.0
"""The kubelet stand-in of the one node: its life, its node object, the pods bound to it and their logs.

The process can die and come back (down, up), and the machine under it (power_off, power_on): what is then lost and what
stays is the real one's. A pod is pods.PodWorker's, claims are claims.Claims', plugins are plugins.Manager's.
"""

import os
import threading

import api as logic
import claims
import plugins
import pods
import resources
from store import clone

PODS, SLICES, NODES = (resources.resource(n) for n in ("pods", "resourceslices", "nodes"))


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


class Kubelet:
    def __init__(self, api, node, directory, log_directory, runtime, options, log):
        self.api, self.node, self.directory, self.runtime, self.log = api, node, directory, runtime, log
        self.options = options
        self.workers = {}
        self.claims = claims.Claims(api, os.path.join(directory, "dra_manager_state"), options.prepare_seconds)
        self.lives = threading.RLock()  # one change of life at a time
        self.stopped, self.up = threading.Event(), threading.Event()
        self.boot = 0  # counts power_off()
        self.logs = Logs(log_directory, self)
        self.manager = None
        self.thread = threading.Thread(target=self._loop, name="kubelet", daemon=True)

    # ------------------------------------------------------------------ life

    def start(self):
        self._make_node()
        self.bring_up()
        self.thread.start()

    def take_down(self):
        """The process is killed: containers go on, all in memory is lost, calls to plugins break off."""
        with self.lives:
            if self.up.is_set():
                self.log("kubelet is killed")
                self.up.clear()
                self.claims.end()
                self.manager.stop()

    def bring_up(self):
        """A new process: it reads its checkpoint, wipes the node's slices and looks for plugins."""
        with self.lives:
            if self.up.is_set() or self.stopped.is_set():
                return
            self.manager = plugins.Manager(os.path.join(self.directory, "plugins_registry"), self.log,
                                           self._plugin_gone, self.options.health, self.api.version >= "1.36")
            self.claims.begin(self.manager)
            self._wipe_slices({"fieldSelector": f"spec.nodeName={self.node}"})
            self.manager.start()
            self.up.set()

    def restart(self, seconds=0):
        """Killed now, back after so long."""
        self.take_down()
        if not seconds:
            return self.bring_up()
        timer = threading.Timer(seconds, self.bring_up)
        timer.daemon = True
        return timer.start()

    def power_off(self):
        """The machine goes down: kubelet and containers die at once; what lies on disk stays."""
        with self.lives:
            self.take_down()
            self.boot += 1
            for worker in list(self.workers.values()):
                worker.kill_containers()

    def is_up(self):
        """Waits until there is a kubelet; False when there will be none any more."""
        while not self.up.wait(0.2):
            if self.stopped.is_set():
                return False
        return True

    def stop(self):
        """Kills all containers and ends all threads."""
        self.stopped.set()
        self.up.set()
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
        """The driver's slices go if no instance is connected in time."""
        manager = self.manager

        def later():
            if manager.stopped.wait(self.options.wipe_seconds):
                return
            if not manager.is_connected(driver):
                self._wipe_slices({"fieldSelector": f"spec.nodeName={self.node},spec.driver={driver}"})
        threading.Thread(target=later, name="slice-wiper", daemon=True).start()

    # ------------------------------------------------------------------ pods

    def _loop(self):
        version = 0
        while not self.stopped.is_set() and self.is_up():
            with self.api.store.lock:
                version = self.api.store.version
                mine = {p["metadata"]["uid"]: p for p in self.api.store.all("pods")
                        if p["spec"].get("nodeName") == self.node}
            for uid, pod in mine.items():
                if uid not in self.workers and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                    self.workers[uid] = pods.PodWorker(self, pod)
                elif uid not in self.workers and pod["metadata"].get("deletionTimestamp"):
                    self._final_delete(pod)
            for uid, worker in list(self.workers.items()):
                if worker.done.is_set():
                    pod = mine.get(uid)
                    if pod is None:
                        self.workers.pop(uid)
                    elif pod["metadata"].get("deletionTimestamp"):
                        self._final_delete(pod)
                else:
                    worker.notice(mine.get(uid))
            if not self.api.store.wait(version, 1.0):
                return

    def _final_delete(self, pod):
        meta = pod["metadata"]
        try:
            self.api.delete(logic.SYSTEM, PODS, meta["namespace"], meta["name"],
                            {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        except logic.ApiError:
            pass

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make e2e: Aliquot on a real cluster, run on its node as root. A line per check, then what was skipped and why. Exit status 0 when
every check held, 1 when one did not or something stayed behind, 77 when there is no cluster that it can run on."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image  # noqa: E402
from node import BUILD, DRIVER, NAMESPACE, PROGRAMS, REPO, Failure, Node, Unusable, setting  # noqa: E402
from cluster import Share, parse_quantity  # noqa: E402

GiB = 1 << 30
HOLD = "alq-demo-report && alq-demo-bisect --hold-seconds 600"


class Skip(Exception):
    """The check cannot be made here; the text says what it would need."""


def parse(line):
    kind, _, rest = line.partition(" ")
    return kind, {k: v.strip('"') for k, v in re.findall(r'(\w+)=("[^"]*"|\S+)', rest)}


class Checks:
    def __init__(self, node):
        self.node = node
        self.daemon = None  # pod UID of the instance that should have the state
        self.before = None  # what was on the host

    # ---- pods

    def apply(self, text):
        """Applies manifests into the namespace of the tests, with the image that the node has."""
        if self.node.image != "none":
            text = re.sub(r"image: aliquot-demo\b", f"image: {self.node.image}\n    imagePullPolicy: Never", text)
        self.node.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=text)

    def apply_objects(self, *objects):
        for obj in objects:
            for container in obj.get("spec", {}).get("containers", []):
                if self.node.image != "none":
                    container.update(image=self.node.image, imagePullPolicy="Never")
        self.node.kubectl("apply", "-n", NAMESPACE, "-f", "-",
                          stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    @staticmethod
    def claim(name, cores, memory):
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                    "deviceClassName": DRIVER, "capacity": {"requests": {"cores": cores, "memory": memory}}}}]}}}

    @staticmethod
    def pod(name, claim, command):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                         "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
                         "containers": [{"name": "main", "image": "aliquot-demo", "command": ["sh", "-c", command],
                                         "env": [{"name": "SIMGPU_GROUP", "value": claim}], "resources": {"claims": [{"name": "gpu"}]}}]}}

    def phase(self, name):
        return self.node.kubectl("get", "pod", name, "-n", NAMESPACE, "-o", "jsonpath={.status.phase}", check=False).strip()

    def wait_for_phase(self, name, *phases, timeout=180):
        try:
            self.node.wait_for(f"pod {name} to be {' or '.join(phases)}", lambda: self.phase(name) in phases, timeout)
        except Failure as e:
            events = self.node.kubectl("get", "events", "-n", NAMESPACE, "--field-selector", f"involvedObject.name={name}", "-o",
                                       "custom-columns=R:.reason,M:.message", "--no-headers", check=False)
            raise Failure(f"{e}; it is {self.phase(name) or 'gone'}; its events:\n{events}") from e

    def totals(self, name, container="main"):
        """GPU memory as CUDA and NVML show it in a container, all equal, by the last report of each GPU."""
        log = self.node.kubectl("logs", name, "-c", container, "-n", NAMESPACE)
        seen = {f["uuid"]: {int(f[k]) for k in ("cuda_device_total_bytes", "cuda_total_bytes", "nvml_total_bytes")}
                for kind, f in map(parse, log.splitlines()) if kind == "report"}
        if not seen or any(len(s) != 1 for s in seen.values()):
            raise Failure(f"pod {name} does not report one figure per GPU: {log}")
        return sorted(s.pop() for s in seen.values())

    def runs(self, name, memory):
        self.wait_for_phase(name, "Running")
        self.node.wait_for(f"the report of {name}", lambda: "report" in self.node.kubectl("logs", name, "-n", NAMESPACE, check=False))
        totals = self.totals(name)
        if totals != [memory]:
            raise Failure(f"pod {name} sees {totals} bytes, not {memory}")

    def remove(self, *names):
        for kind in ("pods", "resourceclaims", "resourceclaimtemplates"):
            self.node.kubectl("delete", kind, "-n", NAMESPACE, "--ignore-not-found", "--timeout=90s", *(names or ("--all",)))
        if not names:
            self.node.wait_for("nothing to be left of the claims", lambda: not self.node.leftovers())

    def published(self):
        return [d["name"] for s in self.node.objects("resourceslices") if s["spec"]["driver"] == DRIVER for d in s["spec"].get("devices", [])]

    # ---- checks, in this order

    def gpus_are_published(self):
        self.before = self.node.listing()
        self.daemon = self.node.start_daemon()
        self.node.wait_for("two GPUs in ResourceSlices", lambda: len(self.published()) == 2)
        self.node.kubectl("apply", "-f", REPO / "demo/manifests/00-deviceclass.yaml")
        self.node.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        # The controller makes it a moment later, and pods are refused until then.
        self.node.wait_for("the namespace's service account", lambda: setting("IMAGE") == "none" or self.node.kubectl(
            "get", "serviceaccount", "default", "-n", NAMESPACE, "--ignore-not-found"))

    def demo_manifests_hold_their_shares(self):
        for name in ("10-claims.yaml", "20-pods.yaml"):
            self.apply((REPO / "demo/manifests" / name).read_text())
        pods = [p["metadata"]["name"] for p in self.node.objects("pods", "-n", NAMESPACE)]
        for name in pods:
            self.wait_for_phase(name, "Succeeded", "Failed", timeout=300)
            if self.phase(name) == "Failed":
                raise Failure(f"pod {name} failed: {self.node.kubectl('logs', name, '-n', NAMESPACE)}")
        if self.totals("pod-0") != [4 * GiB]:
            raise Failure(f"pod-0 sees {self.totals('pod-0')} bytes")
        if self.totals("pod-1") != [4 * GiB, 8 * GiB]:
            raise Failure(f"pod-1 sees {self.totals('pod-1')} bytes")
        self.remove()
        return f"{len(pods)} pods"

    def hami_forms_work_unchanged(self):
        self.apply((pathlib.Path(__file__).resolve().parent / "hami.yaml").read_text())
        self.wait_for_phase("hami-pod", "Succeeded")
        for container in ("ctr0", "ctr1"):
            if self.totals("hami-pod", container) != [3 * GiB]:
                raise Failure(f"{container} sees {self.totals('hami-pod', container)} bytes")
        self.remove()

    def extended_resource_gives_a_whole_gpu(self):
        version = json.loads(self.node.kubectl("version", "-o", "json"))["serverVersion"]["minor"]
        if int("".join(filter(str.isdigit, version))) < 36:
            raise Skip("the gate DRAExtendedResource is on from Kubernetes 1.36")
        self.apply((REPO / "demo/extended-resource.yaml").read_text())
        self.wait_for_phase("pod-whole-0", "Succeeded")
        seen = self.totals("pod-whole-0")
        whole = [parse_quantity(d["capacity"]["memory"]["value"]) for s in self.node.objects("resourceslices")
                 if s["spec"]["driver"] == DRIVER for d in s["spec"]["devices"]]
        if len(seen) != 1 or seen[0] not in whole:
            raise Failure(f"the pod sees {seen} bytes, the GPUs have {whole}")
        self.remove()

    def limit_is_held(self):
        """A pod that takes all it can get has its share to the last bytes, by the node's own figures."""
        self.apply_objects(self.claim("held", "30", "4Gi"), self.pod("held", "held", HOLD))
        self.runs("held", 4 * GiB)
        uid = self.node.kubectl("get", "resourceclaim", "held", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
        usage = self.node.run_dir / "shares" / f"{uid}-0" / "usage"
        self.node.wait_for("the share to be full", lambda: 4 * GiB - 512 < Share(usage.read_bytes()).total <= 4 * GiB)

    def pods_outlive_a_killed_daemon(self):
        self.daemon = self.node.killed(self.daemon)
        self.apply_objects(self.claim("after-kill", "10", "1Gi"), self.pod("after-kill", "after-kill", HOLD))
        self.runs("after-kill", GiB)
        if self.phase("held") != "Running":
            raise Failure("the pod that ran has not outlived the daemon")
        self.remove("after-kill")

    def rolling_update_has_no_gap(self):
        self.daemon = self.node.updated(self.daemon, lambda: self.apply_objects(
            self.claim("rolling", "10", "1Gi"), self.pod("rolling", "rolling", HOLD)))
        self.runs("rolling", GiB)
        if self.phase("held") != "Running":
            raise Failure("the pod that ran has not outlived the update")
        self.remove("rolling")

    def kubelet_restart_is_survived(self):
        command = setting("RESTART_KUBELET", "systemctl restart kubelet" if os.path.exists("/run/systemd/system") else None)
        if not command:
            raise Skip("no systemd here; set E2E_RESTART_KUBELET to a command that restarts the kubelet")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            raise Skip(f"{command}: {done.stderr.strip() or done.stdout.strip()}")
        self.node.wait_for("the slices again", lambda: len(self.published()) == 2)
        self.apply_objects(self.claim("after-kubelet", "10", "1Gi"), self.pod("after-kubelet", "after-kubelet", HOLD))
        self.runs("after-kubelet", GiB)
        if self.phase("held") != "Running":
            raise Failure("the pod that ran has not outlived the kubelet")
        self.remove()

    def delete_and_apply_again_at_once(self):
        for turn in range(3):
            self.apply_objects(self.claim("again", "50", "60Gi"), self.pod("again", "again", HOLD))
            self.runs("again", 60 * GiB)
            self.node.kubectl("delete", "pod", "again", "-n", NAMESPACE, "--timeout=60s")
            if turn == 1:
                self.node.kubectl("delete", "resourceclaim", "again", "-n", NAMESPACE, "--timeout=60s")
        self.remove()

    def grace_period_zero_gives_the_room_back(self):
        for turn in range(2):
            name = f"forced-{turn}"
            self.apply_objects(*(self.claim(f"{name}-{i}", "60", "70Gi") for i in range(2)),
                               *(self.pod(f"{name}-{i}", f"{name}-{i}", HOLD) for i in range(2)))
            for i in range(2):
                self.wait_for_phase(f"{name}-{i}", "Running")
            self.node.kubectl("delete", "pods", f"{name}-0", f"{name}-1", "-n", NAMESPACE, "--force", "--grace-period=0")
            self.node.kubectl("delete", "resourceclaims", f"{name}-0", f"{name}-1", "-n", NAMESPACE, "--timeout=60s")
        self.remove()

    def limits_change_while_pods_run(self):
        self.apply_objects(self.claim("changed", "30", "4Gi"), self.pod("changed", "changed", "while :; do alq-demo-report; sleep 1; done"))
        self.runs("changed", 4 * GiB)
        uid = self.node.kubectl("get", "resourceclaim", "changed", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
        tool = [BUILD / "src/cli/aliquot", "--socket", self.node.run_dir / "aliquotd.sock"]
        subprocess.run([*tool, "set", f"{uid}-0", "--memory", "6Gi"], check=True, stdout=subprocess.DEVNULL)
        self.node.wait_for("the new limit in the pod", lambda: self.totals("changed") == [6 * GiB])
        self.remove()

    def gate_off(self):
        off, on = setting("GATE_OFF"), setting("GATE_ON")
        if not off or not on:
            raise Skip("set E2E_GATE_OFF and E2E_GATE_ON to commands that switch DRAConsumableCapacity and return when the API server is back")
        subprocess.run(off, shell=True, check=True, timeout=300)
        try:
            self.daemon = self.node.restarted(self.daemon)
            self.node.wait_for("two GPUs", lambda: len(self.published()) == 2)
            whole = self.claim("whole", None, None)
            del whole["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
            self.apply_objects(whole, self.pod("whole", "whole", "alq-demo-report"))
            self.wait_for_phase("whole", "Succeeded")
            self.remove()
        finally:
            subprocess.run(on, shell=True, check=True, timeout=300)

    def uninstall_leaves_nothing(self):
        self.remove()
        if self.node.listing() == self.before:
            raise Failure("nothing was on the host before it was uninstalled")
        self.node.uninstall()
        left = self.node.listing() - self.before
        if left:
            raise Failure(f"on the host there is still: {', '.join(sorted(left))}")


CHECKS = ["gpus_are_published", "demo_manifests_hold_their_shares", "hami_forms_work_unchanged",
          "extended_resource_gives_a_whole_gpu", "limit_is_held", "pods_outlive_a_killed_daemon", "rolling_update_has_no_gap",
          "kubelet_restart_is_survived", "delete_and_apply_again_at_once", "grace_period_zero_gives_the_room_back",
          "limits_change_while_pods_run", "gate_off", "uninstall_leaves_nothing"]
NEEDED = {"gpus_are_published"}  # without it nothing else makes sense


def load_image(node):
    if node.image == "none" or setting("IMAGE"):
        return
    archive = node.dir / "image.tar"
    image.make(archive, PROGRAMS)
    command = setting("IMAGE_IMPORT", "ctr -n k8s.io images import -")
    wrong = image.load(command, archive)
    archive.unlink()
    if wrong:
        raise Unusable(f"the image of the tests cannot be loaded by `{command}` (E2E_IMAGE_IMPORT): {wrong}")


def run(checks):
    results = []
    for name in CHECKS:
        start, text = time.monotonic(), name.replace("_", " ")
        try:
            more = getattr(checks, name)()
            results.append("passed")
            print(f"ok      {text} ({time.monotonic() - start:.0f} s){': ' + more if more else ''}", flush=True)
        except Skip as e:
            results.append("skipped")
            print(f"skipped {text}: {e}", flush=True)
        except (Failure, OSError, subprocess.SubprocessError) as e:
            results.append("failed")
            print(f"FAILED  {text}: {e}", flush=True)
            if name in NEEDED:
                break
            try:
                checks.remove()
            except Failure as e2:
                print(f"        and could not be cleared: {e2}", flush=True)
    return results


def main():
    kind = setting("INSTALL", "process")
    if kind not in ("process", "chart"):
        print(f"e2e: E2E_INSTALL: {kind} is neither process nor chart")
        return 1
    if kind == "chart":
        from chart import ChartNode  # its needs are its own
        node = ChartNode()
    else:
        node = Node()
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(1))
    try:
        print(f"e2e: Kubernetes {node.check()}, node {node.name}, Aliquot as {'image and chart' if kind == 'chart' else 'a process'}", flush=True)
        node.start()
        load_image(node)
    except Unusable as e:
        print(f"e2e: skipped: {e}")
        node.clean()
        return 77
    try:
        results = run(Checks(node))
    finally:
        wrong = node.clean()
        for text in wrong:
            print(f"FAILED  cleaning up: {text}", flush=True)
    counts = {kind: results.count(kind) for kind in ("passed", "failed", "skipped")}
    counts["failed"] += len(wrong)
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

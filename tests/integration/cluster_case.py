# SPDX-License-Identifier: Apache-2.0
"""For tests of the whole path: one simulated node per class, with real containers, and the objects a user applies."""

import json
import os
import pathlib
import sys
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "demo"))
from cluster import Cluster, DRIVER  # noqa: E402
from demo import parse_line  # noqa: E402

GiB = 1 << 30


def exactly(name, cores, memory, **more):
    """One request of a claim; cores and memory None: left out."""
    requests = {k: v for k, v in (("cores", cores), ("memory", memory)) if v is not None}
    spec = {"deviceClassName": DRIVER, **more, **({"capacity": {"requests": requests}} if requests else {})}
    return {"name": name, "exactly": spec}


def claim(name, requests, constraints=None, config=None, namespace="default"):
    """requests: (name, cores, memory) or a whole request."""
    devices = {"requests": [r if isinstance(r, dict) else exactly(*r) for r in requests]}
    if constraints:
        devices["constraints"] = constraints
    if config:
        devices["config"] = config
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"devices": devices}}


def pod(name, claim_names, command, containers=None, init=None, namespace="default"):
    """claim_names: one claim, "gpu" in the pod, or several by their own names. containers, init: (name, command,
    references to claims)."""
    claims = {"gpu": claim_names} if isinstance(claim_names, str) else {c: c for c in claim_names}
    containers = containers or [("main", command, [{"name": c} for c in claims])]

    def spec(name, command, refs):
        return {"name": name, "image": "aliquot-demo", "command": ["sh", "-c", command],
                "env": [{"name": "SIMGPU_GROUP", "value": next(iter(claims.values()))}],
                "resources": {"claims": refs}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"restartPolicy": "Never",
                     "resourceClaims": [{"name": k, "resourceClaimName": v} for k, v in claims.items()],
                     **({"initContainers": [spec(*c) for c in init]} if init else {}),
                     "containers": [spec(*c) for c in containers]}}


def reports(log):
    return [fields for kind, fields in map(parse_line, log.splitlines()) if kind == "report"]


def totals(log):
    """GPU UUID -> total memory in bytes as CUDA shows it, of a container that ran alq-demo-report."""
    return {fields["uuid"]: int(fields["cuda_total_bytes"]) for fields in reports(log)}


@unittest.skipIf(os.geteuid() != 0, "containers of the sandbox need root")
class ClusterCase(unittest.TestCase):
    server_version = "1.36"
    daemon_args = ()
    sandbox_args = ()

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(REPO / "demo/gpus.json", cls.server_version, daemon_args=cls.daemon_args,
                              sandbox_args=cls.sandbox_args)
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()
        cls.cluster.wait_for("two GPUs", lambda: len(cls.cluster.gpus_by_device()) == 2)
        cls.cluster.kubectl("apply", "-f", REPO / "demo/manifests/00-deviceclass.yaml")

    def apply(self, *objects):
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def phase(self, name, namespace="default"):
        return self.cluster.kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.phase}").strip()

    def wait_for_phase(self, name, *phases, timeout=60, namespace="default"):
        self.cluster.wait_for(f"pod {name}: {phases}", lambda: self.phase(name, namespace) in phases, timeout)

    def finish(self, name, timeout=60, namespace="default", containers=("main",)):
        """(phase, the logs of its containers one after the other)"""
        self.wait_for_phase(name, "Succeeded", "Failed", timeout=timeout, namespace=namespace)
        logs = [self.cluster.kubectl("logs", name, "-n", namespace, "-c", c) for c in containers]
        return self.phase(name, namespace), "".join(logs)

    def report(self, name, namespace="default"):
        """The log of a pod that runs, once alq-demo-report has written to it."""
        self.wait_for_phase(name, "Running", "Succeeded", "Failed", namespace=namespace)

        def log():
            text = self.cluster.kubectl("logs", name, "-n", namespace)
            if not totals(text) and self.phase(name, namespace) != "Running":
                raise AssertionError(f"pod {name} has ended: {text}")
            return text if totals(text) else None
        return self.cluster.wait_for(f"the report of {name}", log)

    def allocation(self, name, namespace="default"):
        """The results of a claim's allocation, once it has one."""
        def results():
            item = json.loads(self.cluster.kubectl("get", "resourceclaim", name, "-n", namespace, "-o", "json"))
            return item.get("status", {}).get("allocation", {}).get("devices", {}).get("results")
        return self.cluster.wait_for(f"an allocation of {name}", results)

    def describe(self, name, *words, timeout=60):
        """kubectl describe pod, once it has all the words."""
        return self.cluster.wait_for(f"{words} in kubectl describe", lambda: (
            lambda text: text if all(w in text for w in words) else None)(self.cluster.kubectl("describe", "pod", name)), timeout)

    def remove(self, pods, claims, namespace="default"):
        self.cluster.kubectl("delete", "pod", "-n", namespace, *pods)
        self.cluster.kubectl("delete", "resourceclaim", "-n", namespace, *claims)

    def remove_all(self, pods, claims):
        """And nothing is left on the node."""
        self.remove(pods, claims)
        self.cluster.wait_for("nothing to be left", lambda: not self.cluster.leftovers(), timeout=40)

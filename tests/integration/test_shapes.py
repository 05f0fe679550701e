# SPDX-License-Identifier: Apache-2.0
"""Claims of every shape in real containers: several claims, requests, subrequests and containers; adminAccess; whole GPUs;
servers without consumable capacity; and what a user is told when a GPU has no room."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cluster_case  # noqa: E402
from cluster_case import DRIVER, GiB, claim, exactly, pod, totals  # noqa: E402
from kubelet_peer import Peer  # noqa: E402

H100, H200 = "GPU-5d1f0c5e-8a0b-4f0e-9b7a-6a1d3c2e4f50", "GPU-c20b6d1e-37f4-4a59-8d6e-0f9b5a7c1e22"
BARE = ("test ! -e /etc/ld.so.preload && test ! -e /usr/local/vgpu && test ! -e /run/aliquot/shares && "
        "! env | grep -q '^CUDA_' && ls /dev/nvidia[0-9]* && alq-demo-report")
ON_H100 = {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == '{H100}'"}}]}


def share_config(requests=None, **fields):
    parameters = {"apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", **fields}
    return {"opaque": {"driver": DRIVER, "parameters": parameters}, **({"requests": requests} if requests else {})}


class Shapes(cluster_case.ClusterCase):
    def tearDown(self):
        self.cluster.kubectl("delete", "pods", "--all", "-A", "--grace-period=1")
        self.cluster.kubectl("delete", "resourceclaims", "--all", "-A")
        self.cluster.wait_for("nothing to be left", lambda: not self.cluster.leftovers(), timeout=40)

    def uuids(self, claim_name):
        """request -> UUID of its GPU"""
        gpus = self.cluster.gpus_by_device()
        return {r["request"]: gpus[r["device"]][0] for r in self.allocation(claim_name)}

    def test_several_claims_in_one_container(self):
        self.apply(claim("one", [exactly("gpu", "10", "1Gi", **ON_H100)]), claim("two", [exactly("gpu", "20", "2Gi", **ON_H100)]),
                   pod("p", ["one", "two"], "alq-demo-report"))
        phase, log = self.finish("p")
        self.assertEqual(phase, "Succeeded", log)
        self.assertEqual(totals(log)[H100], 3 * GiB, log)

    def test_requests_of_a_claim_in_different_containers(self):
        """One container has the first request, another the second, one all, an init container the first, one none."""
        self.apply(claim("c", [exactly("a", "10", "1Gi", **ON_H100), exactly("b", "20", "2Gi", **ON_H100)]), pod("p", "c", "", [
            ("first", "alq-demo-report", [{"name": "gpu", "request": "a"}]),
            ("second", "alq-demo-report", [{"name": "gpu", "request": "b"}]),
            ("all", "alq-demo-report", [{"name": "gpu"}]),
            ("none", "ls /dev/nvidia* && exit 1; exit 0", [])], init=[("init", "alq-demo-report", [{"name": "gpu", "request": "a"}])]))
        phase, log = self.finish("p", containers=("none",))
        self.assertEqual(phase, "Succeeded", log)
        for container, want in (("init", 1), ("first", 1), ("second", 2), ("all", 3)):
            log = self.cluster.kubectl("logs", "p", "-c", container)
            self.assertEqual(totals(log)[H100], want * GiB, f"{container}: {log}")

    def test_first_available_is_served_by_its_base_name(self):
        request = {"name": "gpu", "firstAvailable": [
            {"name": "large", "deviceClassName": DRIVER, "capacity": {"requests": {"cores": "10", "memory": "500Gi"}}},
            {"name": "small", "deviceClassName": DRIVER, "capacity": {"requests": {"cores": "10", "memory": "2Gi"}}}]}
        config = [share_config(["gpu/large"], compute={"policy": "None"}), share_config(["gpu/small"], compute={"policy": "Burst"})]
        self.apply(claim("c", [request], config=config), pod("p", "c", "", [
            ("main", "env | grep GPU_CORE; alq-demo-report; sleep 60", [{"name": "gpu", "request": "gpu"}])]))
        log = self.report("p")
        uuids = self.uuids("c")
        self.assertEqual(list(uuids), ["gpu/small"])
        self.assertEqual(totals(log)[uuids["gpu/small"]], 2 * GiB, log)
        self.assertIn("GPU_CORE_UTILIZATION_POLICY=default", log)  # Burst in HAMi-core's words

    def test_one_claim_for_many_containers_and_pods(self):
        hold = "alq-demo-report && alq-demo-bisect --hold-seconds 1"
        refs = [{"name": "gpu"}]
        self.apply(claim("c", [("gpu", "20", "3Gi")]),
                   *[pod(f"p{i}", "c", "", [(n, hold, refs) for n in ("x", "y")]) for i in (0, 1)])
        for i in (0, 1):
            phase, log = self.finish(f"p{i}", containers=("x", "y"))
            self.assertEqual(phase, "Succeeded", log)
            self.assertIn(3 * GiB, totals(log).values())
        peaks = [g["peak_bytes"] for d in self.cluster.oracle()["devices"] for g in d["groups"] if g["group"] == "c"]
        self.assertLessEqual(max(peaks), 3 * GiB)

    def test_admin_access_beside_a_full_gpu(self):
        """Sees the whole GPU, has no library and no share, takes nothing from the one that holds it all."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "watchers", "labels": {"resource.kubernetes.io/admin-access": "true"}}})
        self.apply(claim("full", [exactly("gpu", "100", "40Gi", **ON_H100)]), pod("worker", "full", "alq-demo-report; sleep 60"))
        self.report("worker")
        self.apply(claim("admin", [exactly("mon", None, None, adminAccess=True, **ON_H100)], namespace="watchers"),
                   pod("monitor", "admin", BARE + " && sleep 60", namespace="watchers"))
        log = self.report("monitor", "watchers")
        self.assertTrue(self.allocation("admin", "watchers")[0]["adminAccess"])
        self.assertGreater(totals(log)[H100], 70 * GiB, log)
        self.assertEqual(totals(self.cluster.kubectl("logs", "worker"))[H100], 40 * GiB)

    def test_removal_by_force_gives_the_share_on_without_an_error(self):
        """The API forgets the pod at once and the scheduler gives its share away; its container takes a while to end."""
        stubborn = "trap '' TERM; alq-demo-report; for i in $(seq 600); do sleep 0.1; done"
        self.apply(claim("old", [exactly("gpu", "100", "40Gi", **ON_H100)]), pod("old", "old", stubborn))
        self.report("old")
        self.apply(claim("new", [exactly("gpu", "100", "40Gi", **ON_H100)]), pod("new", "new", "alq-demo-report"))
        self.cluster.kubectl("delete", "pod", "old", "--grace-period=0", "--force")
        phase, log = self.finish("new")
        self.assertEqual((phase, totals(log)[H100]), ("Succeeded", 40 * GiB), log)
        self.assertNotIn("FailedPrepareDynamicResources", self.cluster.kubectl("describe", "pod", "new"))

    def test_configuration_of_class_and_claim(self):
        tuned = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "tuned"}, "spec": {
            "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
            "config": [{"opaque": share_config(compute={"policy": "None", "priority": 1})["opaque"]}]}}
        requests = [exactly(n, "10", "1Gi", deviceClassName="tuned") for n in ("a", "b")]
        self.apply(tuned, claim("c", requests, config=[share_config(["b"], compute={"policy": "Burst"})]), pod("p", "c", "", [
            (n, "env", [{"name": "gpu", "request": n}]) for n in ("a", "b")]))
        self.finish("p", containers=("a",))
        for container, policy in (("a", "disable"), ("b", "default")):
            env = self.cluster.kubectl("logs", "p", "-c", container).splitlines()
            self.assertIn(f"GPU_CORE_UTILIZATION_POLICY={policy}", env)
            self.assertIn("CUDA_TASK_PRIORITY=1", env)


class WholeGpu(cluster_case.ClusterCase):
    daemon_args = ("--whole-gpu", "passthrough")
    sandbox_args = ("--prepare-seconds", "6", "--retry-seconds", "1")

    def peer(self):
        peer = Peer(self.cluster.dir / "kubelet/plugins" / DRIVER / "dra.sock")
        self.addCleanup(peer.close)
        return peer

    def test_a_whole_gpu_is_passed_through(self):
        self.apply(claim("whole", [exactly("gpu", "100", None, **ON_H100)]), pod("bare", "whole", BARE + " && sleep 60"))
        log = self.report("bare")
        self.assertGreater(totals(log)[H100], 79 * GiB, log)
        self.assertIn("/dev/nvidia0", log)
        self.assertFalse(list((self.cluster.run_dir / "shares").glob("*")))
        # It is counted all the same: a claim that the scheduler would never have put there finds no room.
        self.apply(claim("late", [exactly("gpu", "1", "1Gi")]))
        uid = self.allocate("late", "hami-gpu-0")
        error = self.peer().prepare(("default", "late", uid), timeout=3)[uid].error
        self.assertIn("no room on hami-gpu-0", error)
        self.assertIn("held by default/whole", error)
        self.peer().unprepare(("default", "late", uid))
        self.deallocate("late")
        self.cluster.kubectl("delete", "pod", "bare", "--grace-period=0", "--force")
        self.remove_claims("whole", "late")

    def test_a_whole_gpu_and_a_part_of_another_in_one_container(self):
        elsewhere = {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == '{H200}'"}}]}
        self.apply(claim("mix", [exactly("whole", "100", None, **ON_H100), exactly("part", "10", "2Gi", **elsewhere)]),
                   pod("mix", "mix", "", [("both", "alq-demo-report", [{"name": "gpu"}]),
                                          ("bare", BARE, [{"name": "gpu", "request": "whole"}])]))
        phase, log = self.finish("mix", containers=("both",))
        bare = self.cluster.kubectl("logs", "mix", "-c", "bare")
        self.assertEqual(phase, "Succeeded", log + bare)
        self.assertEqual(totals(log)[H200], 2 * GiB)
        self.assertGreater(totals(log)[H100], 79 * GiB)
        self.assertGreater(totals(bare)[H100], 79 * GiB)
        self.remove_all(["mix"], ["mix"])

    def test_no_room_is_told_where_the_user_looks(self):
        """A claim that the API server took its allocation from while it is still prepared here, as after a forced removal."""
        self.apply(claim("ghost", [exactly("gpu", "60", "1Gi", **ON_H100)]))
        uid = self.allocate("ghost", "hami-gpu-0", cores="60", memory="1Gi")
        peer = self.peer()
        self.assertEqual(peer.prepare(("default", "ghost", uid))[uid].error, "")
        self.deallocate("ghost")
        self.apply(claim("heir", [exactly("gpu", "50", "1Gi", **ON_H100)]), pod("heir", "heir", "alq-demo-report"))
        described = self.describe("heir", "FailedPrepareDynamicResources", "no room on hami-gpu-0")
        message = next(line for line in described.splitlines() if "no room" in line)
        self.assertIn("claim default/heir: no room on hami-gpu-0: asked are 1Gi and 50 cores, left are", message)
        self.assertIn("and 40 cores; held by default/ghost (no longer allocated); tried again until they are unprepared", message)
        peer.unprepare(("default", "ghost", uid))
        phase, log = self.finish("heir")
        self.assertEqual((phase, totals(log)[H100]), ("Succeeded", GiB), log)
        self.remove_all(["heir"], ["heir", "ghost"])

    def patch_status(self, name, status):
        """Debian's kubectl knows no --subresource."""
        path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"
        claim = json.loads(self.cluster.kubectl("get", "--raw", path))
        claim["status"] = {**claim.get("status", {}), **status}
        self.cluster.kubectl("replace", "--raw", path + "/status", "-f", "-", stdin=json.dumps(claim))

    def allocate(self, name, device, cores="1", memory="1Gi"):
        """As a scheduler would that did not look; returns the UID."""
        result = {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": device, "consumedCapacity":
                  {"cores": cores, "memory": memory}, "shareID": "0f8fad5b-d9cb-469f-a165-70867728950e"}
        self.cluster.kubectl("patch", "resourceclaim", name, "--type=merge", "-p", json.dumps(
            {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}))
        self.patch_status(name, {"allocation": {"devices": {"results": [result]}}})
        return json.loads(self.cluster.kubectl("get", "resourceclaim", name, "-o", "json"))["metadata"]["uid"]

    def deallocate(self, name):
        self.patch_status(name, {"allocation": None})
        self.cluster.kubectl("patch", "resourceclaim", name, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))

    def remove_claims(self, *names):
        self.cluster.kubectl("delete", "resourceclaim", *names)
        self.cluster.wait_for("nothing to be left", lambda: not self.cluster.leftovers(), timeout=40)


class GateOff(cluster_case.ClusterCase):
    """An API server without DRAConsumableCapacity: what is asked for is dropped, each claim gets a whole GPU."""

    sandbox_args = ("--gate-off",)

    def test_each_claim_gets_a_whole_gpu_and_the_third_waits(self):
        names = ["a", "b", "c"]
        self.apply(*[claim(n, [("gpu", "10", "1Gi")]) for n in names], *[pod(n, n, "alq-demo-report; sleep 60") for n in names[:2]])
        seen = set()
        for name in names[:2]:
            log = self.report(name)
            result, = self.allocation(name)
            self.assertNotIn("consumedCapacity", result)
            uuid = self.cluster.gpus_by_device()[result["device"]][0]
            self.assertGreater(totals(log)[uuid], 70 * GiB)
            seen.add(uuid)
        self.assertEqual(seen, {H100, H200})
        self.apply(pod("c", "c", "alq-demo-report"))
        self.cluster.wait_for("a FailedScheduling event", lambda: "FailedScheduling" in self.cluster.kubectl("get", "events"))
        self.cluster.kubectl("delete", "pod", "a", "b", "--grace-period=0", "--force")
        phase, log = self.finish("c")
        self.assertEqual(phase, "Succeeded", log)
        self.remove_all(["c"], names)


if __name__ == "__main__":
    unittest.main()

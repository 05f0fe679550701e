# SPDX-License-Identifier: Apache-2.0
"""The whole path with assertions: claims are allocated, prepared and enforced in real containers, on both layouts of
slices; what is deleted leaves nothing; what is wiped comes back."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cluster_case  # noqa: E402
from cluster_case import DRIVER, GiB, claim, parse_line, pod, reports  # noqa: E402


class Path(cluster_case.ClusterCase):
    def test_slices_follow_the_layout_of_the_server(self):
        slices = self.cluster.objects("resourceslices")
        self.assertEqual(len(slices), 2 if self.server_version == "1.34" else 1)
        self.assertEqual(sum(len(s["spec"]["devices"]) for s in slices), 2)
        self.assertEqual({s["spec"]["pool"]["resourceSliceCount"] for s in slices}, {len(slices)})

    def test_a_container_sees_its_share_to_the_byte_and_cannot_pass_it(self):
        self.apply(claim("one", [("gpu", "30", "4Gi")]), pod("one", "one", "alq-demo-report && alq-demo-bisect"))
        phase, log = self.finish("one")
        self.assertEqual(phase, "Succeeded", log)
        (report,) = reports(log)
        for key in ("cuda_device_total_bytes", "cuda_total_bytes", "nvml_total_bytes"):
            self.assertEqual(int(report[key]), 4 * GiB, key)
        (bisect,) = [f for k, f in map(parse_line, log.splitlines()) if k == "bisect"]
        self.assertGreater(int(bisect["sum_bytes"]), 3 * GiB)
        self.assertLess(int(bisect["sum_bytes"]), 4 * GiB)
        peaks = [g["peak_bytes"] for d in self.cluster.oracle()["devices"] for g in d["groups"] if g["group"] == "one"]
        self.assertLessEqual(max(peaks), 4 * GiB)
        self.remove_all(["one"], ["one"])

    def test_hami_double_gpu_without_constraint_may_land_on_one_gpu_and_works(self):
        self.apply(claim("double", [("a", "30", "4Gi"), ("b", "60", "8Gi")]), pod("double", "double", "alq-demo-report && alq-demo-bisect --hold-seconds 1"))

        def allocated():
            (item,) = [c for c in self.cluster.objects("resourceclaims") if c["metadata"]["name"] == "double"]
            return item if item.get("status", {}).get("allocation") else None

        item = self.cluster.wait_for("an allocation", allocated)
        phase, log = self.finish("double")
        self.assertEqual(phase, "Succeeded", log)
        by_uuid = {f["uuid"]: int(f["cuda_total_bytes"]) for f in reports(log)}
        gpus = self.cluster.gpus_by_device()
        expected = {}
        for result in item["status"]["allocation"]["devices"]["results"]:
            uuid = gpus[result["device"]][0]
            expected[uuid] = expected.get(uuid, 0) + (4 if result["request"] == "a" else 8) * GiB
        for uuid, total in expected.items():
            self.assertEqual(by_uuid.get(uuid), total, f"{by_uuid} against {expected}")
        self.remove_all(["double"], ["double"])

    def test_two_pods_share_one_claim(self):
        self.apply(claim("both", [("gpu", "20", "3Gi")]), *[pod(f"both-{i}", "both", "alq-demo-report && alq-demo-bisect --hold-seconds 2") for i in (0, 1)])
        sums = []
        for i in (0, 1):
            phase, log = self.finish(f"both-{i}")
            self.assertEqual(phase, "Succeeded", log)
            self.assertEqual(int(reports(log)[0]["cuda_total_bytes"]), 3 * GiB)
            sums += [int(f["sum_bytes"]) for k, f in map(parse_line, log.splitlines()) if k == "bisect"]
        peaks = [g["peak_bytes"] for d in self.cluster.oracle()["devices"] for g in d["groups"] if g["group"] == "both"]
        self.assertLessEqual(max(peaks), 3 * GiB, f"sums {sums}")
        self.assertGreater(max(sums), 0)
        self.remove_all(["both-0", "both-1"], ["both"])

    def test_containers_that_name_one_request_see_that_share_only(self):
        refs = [("first", "alq-demo-report", [{"name": "gpu", "request": "a"}]),
                ("second", "alq-demo-report", [{"name": "gpu", "request": "b"}])]
        self.apply(claim("split", [("a", "10", "1Gi"), ("b", "10", "2Gi")]), pod("split", "split", "", refs))
        self.cluster.wait_for("pod split to end", lambda: self.phase("split") in ("Succeeded", "Failed"), 60)
        for container, want in (("first", 1), ("second", 2)):
            log = self.cluster.kubectl("logs", "split", "-c", container)
            self.assertEqual([int(f["cuda_total_bytes"]) for f in reports(log) if int(f["cuda_total_bytes"]) < 64 * GiB],
                             [want * GiB], log)
        self.remove_all(["split"], ["split"])

    def test_root_in_a_container_cannot_raise_the_limit_by_files_mounts_or_environment(self):
        attempts = ["echo wrong >$c", "rm -f $c", "mv $c $c.away", "chmod 777 $c", "mount -o remount,rw $c", "umount $c",
                    "umount /etc/ld.so.preload", "echo >/etc/ld.so.preload", "rm -f /usr/local/vgpu/libvgpu.so"]
        command = "\n".join(["d=$(echo /run/aliquot/shares/*) c=$d/control", *(f"if ({a}) 2>/dev/null; then echo 'done: {a}'; fi" for a in attempts),
                             "alq-demo-report", "env -i PATH=$PATH alq-demo-report",
                             "LD_PRELOAD= CUDA_DEVICE_MEMORY_LIMIT=64Gi CUDA_DEVICE_MEMORY_LIMIT_0=64Gi CUDA_DISABLE_CONTROL=1 alq-demo-report"])
        self.apply(claim("raise", [("gpu", "10", "1Gi")]), pod("raise", "raise", command))
        phase, log = self.finish("raise")
        self.assertEqual(phase, "Succeeded", log)
        self.assertNotIn("done:", log)
        self.assertEqual([int(f["cuda_total_bytes"]) for f in reports(log)], [GiB] * 3, log)
        self.remove_all(["raise"], ["raise"])

    def test_wiped_slices_come_back(self):
        before = {s["metadata"]["uid"] for s in self.cluster.objects("resourceslices")}
        self.cluster.kubectl("delete", "resourceslices", "--all")
        self.cluster.wait_for("the slices to come back", lambda: len(self.cluster.gpus_by_device()) == 2, timeout=30)
        self.assertFalse(before & {s["metadata"]["uid"] for s in self.cluster.objects("resourceslices")})

    def test_a_killed_daemon_comes_back_to_a_running_pod(self):
        self.apply(claim("kept", [("gpu", "10", "1Gi")]), pod("kept", "kept", "alq-demo-bisect --hold-seconds 6 && alq-demo-report"))
        self.cluster.wait_for("pod kept to run", lambda: self.phase("kept") == "Running")
        before = self.cluster.leftovers()
        self.cluster.stop_process("aliquotd", sig=9)
        for path in self.cluster.cdi_dir.glob("*.json"):
            path.unlink()
        self.cluster.start_daemon()
        self.cluster.wait_for("the CDI file to be rebuilt", lambda: sorted(self.cluster.leftovers()) == sorted(before))
        phase, log = self.finish("kept")
        self.assertEqual(phase, "Succeeded", log)
        self.assertEqual(int(reports(log)[0]["cuda_total_bytes"]), GiB)
        self.remove_all(["kept"], ["kept"])

    def test_what_does_not_fit_stays_pending_with_a_reason(self):
        self.apply(claim("huge", [("gpu", "10", "200Gi")]), pod("huge", "huge", "true"))
        self.cluster.wait_for("a FailedScheduling event", lambda: "FailedScheduling" in self.cluster.kubectl("get", "events"))
        self.assertEqual(self.phase("huge"), "Pending")
        self.remove_all(["huge"], ["huge"])

    def test_bad_parameters_are_refused_where_the_user_looks(self):
        bad = claim("bad", [("gpu", "10", "1Gi")])
        bad["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {
            "apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", "compute": {"policy": "Sometimes"}}}}]
        self.apply(bad, pod("bad", "bad", "true"))
        described = self.cluster.wait_for("the error in kubectl describe", lambda: (
            lambda text: text if "FailedPrepareDynamicResources" in text else None)(self.cluster.kubectl("describe", "pod", "bad")))
        self.assertIn("Sometimes", described)
        self.assertEqual(list(self.cluster.cdi_dir.glob("*.json")), [])
        self.remove_all(["bad"], ["bad"])


class PathOn134(Path):
    server_version = "1.34"


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The monitor of aliquotd: whose a process is, what NVML says against what the library counts, corrections, /metrics. Programs run
in mount namespaces of their own with the mounts that a container gets."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "demo"))
import cluster  # noqa: E402
from daemon_world import UUIDS, World, need_daemon, result, wait_for  # noqa: E402
from monitor_world import PodResources, Program, compile_client, figures, findings, parse, scrape, settled, value  # noqa: E402

TIMEOUT_S = 200
MIB, GIB = 1 << 20, 1 << 30
ESTIMATE = 256 * MIB
CONTEXT = 295 * MIB  # what the simulator's H100 takes (sim/README.md)


def setUpModule():
    need_daemon()
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise unittest.SkipTest("mount namespaces need root")


def correction(world, share):
    with open(world.path("run/shares", share, "control"), "rb") as file:
        return cluster.correction(file.read())


class Monitor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        compile_client(cls.world.root)
        cls.pods = PodResources(cls.world.path("pods.sock"))
        cls.addClassCleanup(cls.pods.close)
        cls.world.start(pod_resources_socket=cls.world.path("pods.sock"), hami_metrics="true")

    def setUp(self):
        self.peer = self.world.peer()
        self.addCleanup(self.peer.close)

    def prepare(self, name, *results, **more):
        claim = self.world.claim(name, list(results), **more)
        self.assertEqual(self.peer.prepare(claim)[claim[2]].error, "")
        self.addCleanup(self.peer.unprepare, claim)
        return claim

    def test_share_has_series_from_prepare_to_unprepare(self):
        claim = self.world.claim("series", [result(memory="3Gi", cores="40")])
        self.assertEqual(figures(self.world, claim), {})
        self.peer.prepare(claim)
        now = figures(self.world, claim)
        self.assertEqual((now["memory_limit_bytes"], now["compute_limit_percent"], now["usage_valid"]), (3 * GIB, 40, 1))
        self.assertEqual({v for k, v in now.items() if not k.endswith(("limit_bytes", "limit_percent", "valid"))}, {0})
        self.assertEqual(value(self.world, "aliquot_gpu_memory_promised_bytes", uuid=UUIDS[0]), 3 * GIB)
        self.assertEqual(value(self.world, "aliquot_prepared_claims"), 1)
        self.peer.unprepare(claim)
        self.assertEqual(figures(self.world, claim), {})
        self.assertEqual(value(self.world, "aliquot_gpu_memory_promised_bytes", uuid=UUIDS[0]), 0)

    def test_context_larger_than_estimate_is_corrected_and_goes_with_its_process(self):
        claim = self.prepare("context", result(memory="8Gi"))
        share = f"{claim[2]}-0"
        program = Program(self, self.world, [share]).start()
        program.ok(f"alloc {GIB}")
        now = settled(self.world, claim, "counted + overhead to be physical", lambda f: f["memory_physical_bytes"] >= GIB and
                      f["memory_counted_bytes"] + f["memory_overhead_bytes"] == f["memory_physical_bytes"])
        self.assertEqual((now["memory_counted_bytes"], now["memory_overhead_bytes"], now["processes"]), (GIB, CONTEXT, 1))
        self.assertEqual(correction(self.world, share)[1], CONTEXT - ESTIMATE)
        # The library has it in force: free is what is left of the limit after all of it.
        free, total = program.ok("info")
        self.assertEqual((total, free), (8 * GIB, 8 * GIB - GIB - CONTEXT))
        sequence = correction(self.world, share)[0]
        program.close()
        now = settled(self.world, claim, "the dead process's memory to go", lambda f: not f["memory_physical_bytes"] and not f["processes"])
        self.assertEqual((now["memory_counted_bytes"], now["memory_overhead_bytes"]), (0, 0))
        wait_for("its correction to go", lambda: correction(self.world, share)[1] == 0)
        self.assertEqual(correction(self.world, share)[0], sequence + 1)  # nothing was written in between

    def test_refusals_are_told_by_family_of_entry_points(self):
        claim = self.prepare("refused", result(memory="1Gi"))
        program = Program(self, self.world, [f"{claim[2]}-0"]).start()
        program.ok("module")
        calls = {"linear": (f"alloc {GIB}", f"pitch {GIB} 2"), "managed": (f"managed {GIB}",), "array": ("array 65536 16384",),
                 "physical": (f"vmm {GIB} 0",), "pool": (f"async {GIB}",)}
        for lines in calls.values():
            for line in lines:
                self.assertEqual(program.call(line)[0], "2", line)
        room = program.ok("info")[0]
        program.ok(f"alloc {room // MIB * MIB}")
        for line in ("module", "ctx 0", "ctx 0"):
            self.assertEqual(program.call(line)[0], "2", line)
        want = {**{name: len(lines) for name, lines in calls.items()}, "module": 1, "context": 2, "graph": 0}

        def told():
            return {labels["entry"]: v for name, labels, v in parse(scrape(self.world)[0])
                    if name == "aliquot_share_refusals_total" and labels["claim"] == claim[1]}
        wait_for("all refusals to be told", lambda: told() == want)

    def test_memory_outside_shares_is_told_apart(self):
        claim = self.prepare("apart", result(device="hami-gpu-1", memory="8Gi"))
        inside = Program(self, self.world, [f"{claim[2]}-0"]).start(1)
        inside.ok(f"alloc {GIB}")
        outside = Program(self, self.world, [], preload=False).start(1)
        outside.ok(f"alloc {2 * GIB}")
        wait_for("both to be seen", lambda: value(self.world, "aliquot_gpu_memory_used_bytes", uuid=UUIDS[1]) == 3 * GIB + 2 * CONTEXT)
        self.assertEqual(value(self.world, "aliquot_gpu_memory_outside_shares_bytes", uuid=UUIDS[1]), 2 * GIB + CONTEXT)
        self.assertEqual(figures(self.world, claim)["memory_physical_bytes"], GIB + CONTEXT)
        self.assertEqual(value(self.world, "aliquot_gpu_memory_used_bytes", uuid=UUIDS[0]), 0)

    def test_mount_at_another_shares_path_is_still_ones_own(self):
        mine, other = self.prepare("mine", result(memory="4Gi")), self.prepare("other", result(memory="4Gi"))
        program = Program(self, self.world, [f"{mine[2]}-0"], preload=False)
        # As a container with CAP_SYS_ADMIN could: its own files at the other's place.
        pid = str(program.process.pid)
        subprocess.run(["nsenter", "-m", "-t", pid, "sh", "-c", f"mkdir /run/aliquot/shares/{other[2]}-0; "
                        f"mount --bind /run/aliquot/shares/{mine[2]}-0 /run/aliquot/shares/{other[2]}-0"], check=True)
        program.start()
        settled(self.world, mine, "the process", lambda f: f["memory_physical_bytes"] == CONTEXT)
        self.assertEqual(figures(self.world, other)["memory_physical_bytes"], 0)

    def test_hostile_usage_file_costs_its_own_figures(self):
        good, bad = self.prepare("good", result(memory="4Gi")), self.prepare("bad", result("r", "hami-gpu-1", memory="4Gi"))
        program = Program(self, self.world, [f"{good[2]}-0"]).start()
        program.ok(f"alloc {GIB}")
        usage = self.world.path("run/shares", f"{bad[2]}-0", "usage")
        size = os.stat(usage).st_size

        def deface(how):
            with open(usage, "r+b") as file:
                whole = file.read()
                file.seek(0)
                how(file)
            settled(self.world, bad, "the flaw to be seen", lambda f: not f["usage_valid"])
            now = figures(self.world, good)
            self.assertEqual((now["usage_valid"], now["memory_counted_bytes"]), (1, GIB))
            self.assertIn("monitor.usage-damaged", findings(self.world))
            with open(usage, "r+b") as file:
                file.write(whole)
            settled(self.world, bad, "the figures to be back", lambda f: f["usage_valid"])
            self.assertNotIn("monitor.usage-damaged", findings(self.world))

        deface(lambda file: file.write(b"\xff" * 4096))  # what else can be wrong: tests/unit/daemon/test_monitor.c
        with open(usage, "ab") as file:
            file.write(b"x" * (32 * MIB))
        wait_for("the excess to be cut", lambda: os.stat(usage).st_size < 2 * size)  # room for the section of spilled memory
        settled(self.world, bad, "the cut to be told", lambda f: f["trimmed_bytes_total"] > 31 * MIB and f["usage_valid"])

    def labels(self, claim, name="aliquot_share_memory_limit_bytes"):
        found = [labels for n, labels, _ in parse(scrape(self.world)[0]) if n == name and labels.get("claim", claim[1]) == claim[1]]
        return [(one["pod"], one["container"]) for one in found]

    def test_pod_and_container_are_the_kubelets(self):
        one, two, many = (self.world.claim(name, [result(memory="1Gi")]) for name in ("one", "two", "many"))
        self.pods.users = [("default", "pod-1", "main", "one", f"{one[2]}-0"), ("default", "pod-2", "a", "two", f"{two[2]}-0"),
                           ("default", "pod-2", "b", "two", f"{two[2]}-0"), ("default", "pod-3", "main", "many", f"{many[2]}-0"),
                           ("default", "pod-4", "main", "many", f"{many[2]}-0")]
        for claim in (one, two, many):
            self.peer.prepare(claim)
            self.addCleanup(self.peer.unprepare, claim)
        wait_for("the labels", lambda: self.labels(one) == [("pod-1", "main")])
        self.assertEqual((self.labels(two), self.labels(many)), ([("pod-2", "")], [("", "")]))
        self.assertIn(("pod-1", "main"), self.labels(one, "hami_vgpu_memory_limit_bytes"))

    def test_page_is_what_its_parsers_take(self):
        self.prepare("quote", result(memory="1Gi"), namespace="team-a")
        text, kind = scrape(self.world)
        self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
        open_text, open_kind = scrape(self.world, "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5")
        self.assertTrue(open_kind.startswith("application/openmetrics-text"))
        self.assertTrue(open_text.endswith("# EOF\n"))
        self.assertIn({"namespace": "team-a", "claim": "quote", "request": "gpu", "uuid": UUIDS[0], "device": "hami-gpu-0", "pod": "",
                       "container": ""}, [labels for _, labels, _ in parse(text)])
        from prometheus_client.openmetrics import parser as open_parser
        from prometheus_client.parser import text_string_to_metric_families as families
        names = {f.name for f in families(text)}
        self.assertEqual(names, {f.name for f in open_parser.text_string_to_metric_families(open_text)})


if __name__ == "__main__":
    unittest.main()

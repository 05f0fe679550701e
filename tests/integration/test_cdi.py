# SPDX-License-Identifier: Apache-2.0
"""CDI specs of a running daemon as container runtimes read them: merged as several claims of one container are, run by
podman's own reader, and what docs/cdi.md says of them."""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import daemon_world
import podman_case
from daemon_world import BUILD, DRIVER, REPO, SharedDaemon, World, result

import cdi  # of the sandbox

HOOK = BUILD / "src/hook/aliquot-hook"
LIBRARY = BUILD / "src/vgpu/libvgpu.so"
KIND = f"k8s.{DRIVER}/claim"
CONFIG = {"process": {"env": ["PATH=/bin"], "user": {}}, "mounts": [{"destination": "/proc", "source": "proc"}], "linux": {}}

READERS = ("env; ls /dev /run/aliquot/shares; readlink -f /usr/lib/*/libcuda.so; "
           "cat /etc/ld.so.preload /usr/local/vgpu/libvgpu.so >/dev/null && echo preload")


def setUpModule():
    daemon_world.need_daemon()


class Specs(SharedDaemon):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.start(hook=HOOK, library=LIBRARY, allow_non_tmpfs="true")
        cls.peer = cls.world.peer()
        cls.addClassCleanup(cls.peer.close)

    def prepared(self, name, results):
        claim = self.world.claim(name, results)
        answer = self.peer.prepare(claim)[claim[2]]
        self.assertEqual(answer.error, "")
        self.addCleanup(self.peer.unprepare, claim)
        return [i for device in answer.devices for i in device.cdi_device_ids]

    def merged(self, ids):
        """The container's configuration, once it is clear that nothing in it stands twice."""
        registry = cdi.Registry([self.world.path("cdi")])
        self.assertEqual(registry.errors, [])
        config = copy.deepcopy(CONFIG)
        registry.inject(config, ids)
        for what, names in (("mount", [m["destination"] for m in config["mounts"]]),
                            ("variable", [e.split("=")[0] for e in config["process"]["env"]]),
                            ("node", [d["path"] for d in config["linux"]["devices"]])):
            self.assertEqual(len(names), len(set(names)), f"a {what} stands twice: {sorted(names)}")
        return config

    def shares(self, config):
        return {m["destination"].split("/")[4] for m in config["mounts"] if m["destination"].startswith("/run/aliquot/shares/")}

    def test_two_claims_of_one_container_merge_without_conflict(self):
        ids = self.prepared("first", [result()]) + self.prepared("second", [result(device="hami-gpu-1", memory="8Gi")])
        config = self.merged(ids)
        self.assertEqual(self.shares(config), {i.split("=")[1] for i in ids})
        nodes = {d["path"] for d in config["linux"]["devices"]}
        self.assertLessEqual({"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1"}, nodes)
        self.assertIn("NVIDIA_VISIBLE_DEVICES=void", config["process"]["env"])

    def test_one_gpu_twice_gives_both_shares_and_one_node(self):
        ids = self.prepared("one", [result(), result("more", cores="20", memory="2Gi")]) + self.prepared("other", [result(cores="10")])
        config = self.merged(ids)
        self.assertEqual(len(self.shares(config)), 3)
        self.assertEqual([d["path"] for d in config["linux"]["devices"]].count("/dev/nvidia0"), 1)
        preload = [m for m in config["mounts"] if m["destination"] == "/etc/ld.so.preload"]
        self.assertEqual(len(preload), 1)

    def test_a_request_that_is_not_used_leaves_nothing(self):
        ids = self.prepared("some", [result("a"), result("b", device="hami-gpu-1", cores="50", memory="16Gi")])
        config = self.merged(ids[1:])
        self.assertEqual(self.shares(config), {ids[1].split("=")[1]})
        self.assertNotIn("/dev/nvidia0", [d["path"] for d in config["linux"]["devices"]])
        limits = [e for e in config["process"]["env"] if e.startswith("CUDA_DEVICE_MEMORY_LIMIT")]
        self.assertEqual(limits, ["CUDA_DEVICE_MEMORY_LIMIT_1=16384m"])

    def test_hooks_name_the_installed_program(self):
        self.prepared("hooks", [result()])
        spec = next(json.loads(p.read_text()) for p in pathlib.Path(self.world.path("cdi")).glob("*.json"))
        hooks = spec["containerEdits"]["hooks"]
        self.assertEqual([h["args"][1] for h in hooks], ["create-symlinks", "update-ldcache"])
        for hook in hooks:
            self.assertEqual(hook["hookName"], "createContainer")
            self.assertRegex(hook["path"], rf"^{re.escape(self.world.path('lib'))}/aliquot-hook-[0-9a-f]{{32}}$")
            self.assertTrue(os.access(hook["path"], os.X_OK))
            out = subprocess.run([hook["path"], "--version"], capture_output=True, text=True, check=False)
            self.assertEqual(out.returncode, 0, out.stderr)

    def test_podman_reads_and_runs_them(self):
        ids = self.prepared("pod", [result(), result("more", cores="20", memory="2Gi")])
        out = podman_case.output(self, self.world.path("cdi"), ids, ["/bin/sh", "-c", READERS])
        for word in ("NVIDIA_VISIBLE_DEVICES=void", "CUDA_DEVICE_SM_LIMIT_0=20", "nvidia0", "nvidiactl", "preload", "libcuda.so.1",
                     *(i.split("=")[1] for i in ids)):
            self.assertIn(word, out)


class Doctor(unittest.TestCase):
    def finding(self, level):
        """The one about the driver, once it has that level: the answer to kubelet may be out before it."""
        def look():
            done = subprocess.run([BUILD / "src/cli/aliquot", "doctor", "--output=json", "--socket", self.world.path("run", "aliquotd.sock")],
                                  capture_output=True, text=True, check=False)
            finding = next(f for f in json.loads(done.stdout)["findings"] if f["id"] == "cdi.driver")
            return finding if finding["level"] == level else None
        return daemon_world.wait_for(f"a finding of level {level}", look)["text"]

    def test_it_says_how_the_last_scan_ended(self):
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.start(allow_non_tmpfs="true")
        peer = self.world.peer()
        self.addCleanup(peer.close)
        self.assertIn("no claim has needed them", self.finding("ok"))
        claims = [self.world.claim(name, [result(cores="10")]) for name in ("a", "b")]
        self.assertEqual(peer.prepare(claims[0])[claims[0][2]].error, "")
        self.assertRegex(self.finding("ok"), rf"^driver 550\S* below {self.world.driver_root}: \d+ files and \d+ control nodes")
        os.rename(self.world.driver_root, self.world.path("away"))
        error = peer.prepare(claims[1])[claims[1][2]].error
        self.assertIn(self.world.driver_root, error)
        self.assertIn(self.world.driver_root, self.finding("error"))
        self.assertEqual(len(os.listdir(self.world.path("cdi"))), 1, "a spec of half a driver")
        os.rename(self.world.path("away"), self.world.driver_root)
        self.assertEqual(peer.prepare(claims[1])[claims[1][2]].error, "")
        self.finding("ok")


class Page(unittest.TestCase):
    def test_the_table_is_that_of_the_code(self):
        rows = re.findall(r'^    \{"([a-z-]+)", ALQ_INJECT_\w+, ([01])\},$', (REPO / "src/daemon/cdi/inject.c").read_text(), re.M)
        page = re.findall(r"^\| `([a-z-]+)` \| (yes|no)", (REPO / "docs/cdi.md").read_text(), re.M)
        self.assertGreater(len(rows), 10)
        self.assertEqual([(name, "yes" if is_default == "1" else "no") for name, is_default in rows], page)

    def test_a_wrong_word_is_refused_with_the_right_ones(self):
        page = re.findall(r"^\| `([a-z-]+)` \| (?:yes|no)", (REPO / "docs/cdi.md").read_text(), re.M)
        said = subprocess.run([BUILD / "src/daemon/aliquotd", "--node-name", "node-a", "--inject=grafics"], capture_output=True,
                              text=True, check=False)
        self.assertNotEqual(said.returncode, 0)
        for word in ("--inject", "grafics", *page):
            self.assertIn(word, said.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())

# SPDX-License-Identifier: Apache-2.0
"""A node with one GPU, claims on it, and programs in them that take the compute they are let: for tests of what the daemon does to
compute gates."""

import json
import struct
import subprocess
import time
import unittest

from daemon_world import BUILD, REPO, World, need_daemon, result
from monitor_world import Program, driver_folder

SECONDS = 60


def need_namespaces():
    need_daemon()
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise unittest.SkipTest("mount namespaces need root")


def config(policy, priority=1):
    parameters = {"apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", "compute": {"policy": policy, "priority": priority}}
    return [{"requests": [], "source": "FromClaim", "opaque": {"driver": "hami-core-gpu.project-hami.io", "parameters": parameters}}]


class ComputeCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(gpus=1)
        cls.addClassCleanup(cls.world.close)
        subprocess.run(["cc", "-O1", "-I", REPO / "include", "-o", cls.world.path("busy"), REPO / "tests/integration/gate_client.c", "-L",
                        driver_folder(cls.world), "-l:libcuda.so.1"], check=True)
        cls.world.start()

    def setUp(self):
        self.peer = self.world.peer()
        self.addCleanup(self.peer.close)

    def prepare(self, name, cores, *terms):
        claim = self.world.claim(name, [result(cores=str(cores), memory="2Gi")], config=config(*terms))
        self.assertEqual(self.peer.prepare(claim)[claim[2]].error, "")
        self.addCleanup(self.peer.unprepare, claim)
        return claim

    def work(self, claim, microseconds=5000):
        """A program that takes what it is let, until it is closed; claim None: outside all shares."""
        share = f"{claim[2]}-0" if claim else ""
        command = ("busy", str(SECONDS), str(microseconds), "eager", "1", "16")
        program = Program(self, self.world, [share] if claim else [], command=command, SIMGPU_GROUP=share or "outside")
        program.process.stdin.write("go\n")
        program.process.stdin.flush()
        return program

    def word(self, claim, offset, form="<Q"):
        """Of the share's control file."""
        with open(self.world.path("run/shares", f"{claim[2]}-0", "control"), "rb") as file:
            return struct.unpack_from(form, file.read(), offset)[0]

    def busy_pct(self, claim, seconds):
        def now():
            out = subprocess.run([BUILD / "sim/simctl", "--socket", self.world.path("sim/simgpud.sock"), "oracle"], check=True,
                                 capture_output=True)
            oracle = json.loads(out.stdout)
            groups = {g["group"]: g["busy_ns"] for g in oracle["devices"][0]["groups"]}
            return oracle["time_ns"], groups.get(f"{claim[2]}-0", 0)
        from_ns, before = now()
        time.sleep(seconds)
        to_ns, after = now()
        return 100.0 * (after - before) / (to_ns - from_ns)

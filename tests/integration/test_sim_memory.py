# SPDX-License-Identifier: Apache-2.0
"""Every kind of memory of the simulated driver, in one process and between processes: calls and errors as documented, bytes that
arrive, and device memory that is free again when the last holder is gone, however it went."""

import subprocess
import unittest

from test_sim import H100, MIB, SIM, SMALL, SimTest, until


class Groups(SimTest):
    """The checks of sim/tests/memory.c, each group in a process of its own."""

    def run_group(self, name, devices=None):
        out = subprocess.run([SIM / "sim-memory", name], env=self.machine.env(SIMGPU_GROUP=name), capture_output=True, text=True, timeout=60)
        self.assertRegex(out.stdout, r"\Aok [1-9]\d*\n\Z", out.stderr)
        self.assertEqual(out.returncode, 0)
        until(lambda: self.machine.group(name)["bytes"] == 0, "memory outlives its process")
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)

    def test_linear(self):
        self.run_group("linear")

    def test_managed(self):
        self.run_group("managed")

    def test_host(self):
        self.run_group("host")

    def test_arrays(self):
        self.run_group("arrays")

    def test_mipmaps(self):
        self.run_group("mipmaps")

    def test_peers(self):
        self.run_group("peers")

    def test_vmm(self):
        self.run_group("vmm")

    def test_export(self):
        self.run_group("export")

    def test_pools(self):
        self.run_group("pools")

    def test_granules(self):
        self.run_group("granules")

    def test_attributes(self):
        self.run_group("attributes")


class Hopper(Groups):
    """What needs a card of compute capability 9, or a big one."""

    devices = [H100, H100]

    def test_multicast(self):
        self.run_group("multicast")

    def test_big(self):
        self.run_group("big")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run.sh, kept runnable between the days on which a GPU is at hand: its build and its checks of memory run on
the simulated driver here. Its checks of compute time run real seconds and are left to the real card."""

import pathlib
import subprocess
import sys
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "tests/integration"))
from test_sim import H100, Machine  # noqa: E402


class GpuScript(unittest.TestCase):
    def test_builds_by_itself_and_its_memory_checks_hold(self):
        machine = Machine([H100])
        self.addCleanup(machine.close)
        out = machine.dir / "out"
        run = subprocess.run([REPO / "tests/gpu/run.sh"], capture_output=True, text=True, timeout=120,
                             env=machine.env(OUT=str(out), COMPUTE_LIMITS="", ALIQUOT_CONTEXT_BYTES="320Mi"))
        self.assertEqual(run.returncode, 0, run.stdout[-3000:])
        table = (out / "table.txt").read_text().splitlines()
        self.assertEqual([line.split()[0] for line in table], ["ok"] * 7 + ["shown"] * 2)

    def test_without_a_gpu_it_says_so_and_fails(self):
        machine = Machine([H100])
        self.addCleanup(machine.close)
        machine.stop()
        run = subprocess.run([REPO / "tests/gpu/run.sh"], capture_output=True, text=True, timeout=120,
                             env=machine.env(OUT=str(machine.dir / "out"), COMPUTE_LIMITS=""))
        self.assertEqual(run.returncode, 1)
        self.assertIn("no usable GPU", run.stdout)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""libvgpu.so killed in mid-operation, on the real library and a driver of a few instructions: ledger_steps.c walks a
process through its first use, its first context, an allocation, a free and the emptying of a dead slot, and kills it at an instruction;
nothing is lost, and another process has the room at its first try. A sample of the instructions by default, all of them
with ALIQUOT_STRESS_S set."""

import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
import unittest

import places
from test_vgpu import LIBRARY, MIB, REPO, SOURCES, UUIDS, control, usage

ALL = "ALIQUOT_STRESS_S" in os.environ
TIMEOUT_S = 1800 if ALL else 300


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
@unittest.skipUnless(platform.machine() == "x86_64", "walks by PTRACE_SINGLESTEP of x86-64")
class Steps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-s-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        include = ["-I", REPO / "include"]
        subprocess.run(["cc", "-O1", *include, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", cls.dir / "libcuda.so.1",
                        SOURCES / "ledger_driver.c"], check=True)
        subprocess.run(["cc", "-O1", *include, "-o", cls.dir / "steps", SOURCES / "ledger_steps.c", "-ldl"], check=True)
        places.copy(LIBRARY, cls.dir)

    def walk(self, scenario, stride):
        share = self.dir / scenario / "claim-0"
        share.mkdir(parents=True)
        (share / "control").write_bytes(control("claim-0", UUIDS[0], 1000 * MIB, context=MIB))
        (share / "usage").write_bytes(usage(UUIDS[0]))
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(self.dir / "libvgpu.so"), "LD_LIBRARY_PATH": str(self.dir),
               "ALIQUOT_SHARE_ROOT": str(share.parent)}
        done = subprocess.run([self.dir / "steps", scenario, str(1 if ALL else stride), share / "usage"], env=env,
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""), scenario)
        points, instructions, longest_ns = (int(word) for word in done.stdout.split()[1:])
        if ALL:
            print(f"{scenario}: {points} points, {instructions} instructions, longest wait {longest_ns / 1e6:.1f} ms")
        self.assertGreater(points, 20)
        self.assertGreaterEqual(instructions, 200)
        self.assertLess(longest_ns, 1_000_000_000)

    def test_killed_in_reserve(self):
        self.walk("reserve", 17)

    def test_killed_in_release(self):
        self.walk("release", 17)

    def test_killed_in_first_use(self):
        self.walk("attach", 211)

    def test_killed_in_the_first_context(self):
        self.walk("context", 97)

    def test_killed_in_reaping(self):
        self.walk("reap", 41)

    def test_stopped_in_reaping_keeps_nobody_from_the_room(self):
        self.walk("overtaken", 41)


if __name__ == "__main__":
    unittest.main()

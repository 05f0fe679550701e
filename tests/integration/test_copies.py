# SPDX-License-Identifier: Apache-2.0
"""Fills, copies within a device and decompression pass the gate, in every form that a driver exports; copies to and from the host
and between devices do not. The share's own count of what passed says so."""

import json
import os
import pathlib
import re
import subprocess
import unittest

import test_gate
from test_entries import TABLES
from test_gate import STATE, UUID, Share

TIMEOUT_S = 120
OTHER = "GPU-11111111-2222-3333-4444-666666666666"
CLIENT = pathlib.Path(__file__).resolve().parent / "copies_client.py"
FORMS = sorted(name for name, (_, what) in TABLES["cu"][0].items() if what == "SUBMITS" and name.startswith("cuMem"))
BY_ADDRESS = [name for name in FORMS if re.match(r"cuMemcpy(Async|Batch|3DBatch|_ptds|$)", name)]
BY_SHAPE = [name for name in FORMS if re.match(r"cuMemcpy[23]D(Unaligned|Async)?_v2", name)]
PEER = [name for name in FORMS if "Peer" in name]


def setUpModule():
    test_gate.set_up("13_0", {"uuid": UUID, "profile": "13.0"}, {"uuid": OTHER, "profile": "13.0"})


tearDownModule = test_gate.tearDownModule


class CopiesTest(unittest.TestCase):
    def run_forms(self, where, names, pct=50):
        """What the driver answered to each, and how many passed the gate."""
        directory = STATE["dir"]
        share = Share(self, f"{where}{pct}", pct)
        done = subprocess.run(
            ["/usr/bin/python3", CLIENT, where, *names], text=True, capture_output=True, timeout=60, check=False,
            env={"PATH": os.environ["PATH"], "SIMGPU_SOCKET": str(directory / "simgpud.sock"), "LD_LIBRARY_PATH": str(directory / "lib"),
                 "LD_PRELOAD": str(directory / "lib/libvgpu.so"), "ALIQUOT_SHARE_ROOT": str(share.root)})
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = json.loads(done.stdout)
        self.assertEqual(answers.keys(), set(names))
        return answers, share.counters()

    def test_every_form_within_the_device_passes_the_gate(self):
        self.assertGreater(len(FORMS), 80)
        answers, counters = self.run_forms("device", FORMS)
        self.assertEqual(counters["launches"], len(FORMS))
        worked = [name for name, rc in answers.items() if rc == 0]
        self.assertGreater(len(worked), 40, answers)
        self.assertGreater(counters["charged_ns"], 1000 * len(worked))

    def test_unified_addresses_of_the_device_pass_the_gate(self):
        answers, counters = self.run_forms("unified", BY_ADDRESS + BY_SHAPE)
        self.assertEqual(counters["launches"], len(answers))

    def test_host_copies_pass_by(self):
        for where in ("from-host", "to-host"):
            with self.subTest(where):
                _, counters = self.run_forms(where, BY_ADDRESS + BY_SHAPE)
                self.assertEqual((counters["launches"], counters["charged_ns"]), (0, 0))

    def test_copies_between_devices_pass_by(self):
        names = PEER + [name for name in BY_ADDRESS + FORMS if re.match(r"cuMemcpy(Async|DtoD_v2|DtoDAsync_v2)", name)]
        _, counters = self.run_forms("peer", sorted(set(names)))
        self.assertEqual((counters["launches"], counters["charged_ns"]), (0, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)

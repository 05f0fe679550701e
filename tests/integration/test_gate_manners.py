# SPDX-License-Identifier: Apache-2.0
"""The compute gate's manners in real processes: every form of a launch passes it and gets the driver's own answer, captures and events
are the program's, waits let signals through and end with the process, work that waits for later work ends, a fork child is left alone."""

import json
import os
import signal
import subprocess
import time
import unittest

import test_gate
from test_gate import SIMCTL, STATE, UUID, Share

TIMEOUT_S = 180
ALONE = True
OTHER = "GPU-11111111-2222-3333-4444-666666666666"
FORMS = 12
ROUNDS = 10
PATIENCE_S = 60


def setUpModule():
    test_gate.set_up("550", {"uuid": UUID}, {"uuid": OTHER}, client="manners")


tearDownModule = test_gate.tearDownModule


def simctl(*words):
    done = subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", *words], check=True, capture_output=True, text=True)
    return done.stdout


class Manners(unittest.TestCase):
    def start(self, *words, share=None):
        directory = STATE["dir"]
        env = {"PATH": os.environ["PATH"], "SIMGPU_SOCKET": str(directory / "simgpud.sock"), "LD_LIBRARY_PATH": str(directory / "lib")}
        if share:
            env |= {"LD_PRELOAD": str(directory / "lib/libvgpu.so"), "ALIQUOT_SHARE_ROOT": str(share.root)}
        process = subprocess.Popen([directory / "manners", *words], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def answers(self, process):
        """What it printed: name -> number."""
        out = dict(line.split() for line in process.communicate(timeout=PATIENCE_S)[0].splitlines() if line != "ready")
        self.assertEqual(process.returncode, 0)
        return {name: int(value) for name, value in out.items()}

    def test_every_form_of_a_launch_passes_the_gate_and_gets_the_drivers_answer(self):
        share = Share(self, "first", 80)
        other = Share(self, "other", 80, uuid=OTHER, root=share.root)
        bare, ours = self.answers(self.start("forms")), self.answers(self.start("forms", share=share))
        for of in (bare, ours):
            # A kernel behind another one on a busy stream: what its events say is the device's time alone.
            self.assertAlmostEqual(of.pop("elapsed_us"), 5000, delta=50)
        self.assertEqual(ours, bare)
        self.assertEqual(ours["nodes"], 4)
        forms = {name: rc for name, rc in ours.items() if name.startswith("cu")}
        self.assertEqual(len(forms), FORMS)
        self.assertEqual(set(forms.values()), {0}, forms)
        self.assertEqual(set(ours[name] for name in ("no-grid", "no-function", "no-graph")) & {0}, set())
        # Besides: 4 captured, 3 refused, 2 for the events, or more on a busy machine. On the other device its part of the one launch that
        # has one.
        self.assertEqual((share.counters()["launches"] - FORMS - 4 - 3) % 2, 0)
        self.assertGreaterEqual(share.counters()["launches"], FORMS + 4 + 3 + 2)
        self.assertEqual(other.counters()["launches"], 1)
        # 11 forms of 1 ms and two graphs of 4, 300 and 5 ms.
        self.assertGreater(share.counters()["charged_ns"], 300e6)
        self.assertLess(other.counters()["charged_ns"], 10e6)

    def test_kernel_that_spins_for_a_later_launch_ends_round_after_round(self):
        # Were each round to take a multiple of the one before, the last ones would take 20 seconds each.
        self.assertEqual(self.answers(self.start("spin", str(ROUNDS), share=Share(self, "spin", 30))), {"rounds": ROUNDS})

    def test_signals_are_handled_in_mid_wait_and_exit_ends_it(self):
        share = Share(self, "signals", 1)  # 100 ms of work: ten seconds
        process = self.start("wait", "1.0", share=share)
        words = process.communicate(timeout=PATIENCE_S)[0].split()
        self.assertEqual((process.returncode, words[1], words[3]), (0, "handled", "returned"))
        self.assertGreater(int(words[2]), 5)
        self.assertLess(int(words[4]), 4)  # no signal made a wait shorter
        process = self.start("wait", "60", share=share)
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=5), -signal.SIGTERM)

    def test_fork_child_gets_the_drivers_answers_and_no_call_of_ours(self):
        def fork(share=None, in_between=lambda: None):
            process = self.start("fork", share=share)
            process.stdout.readline()
            in_between()
            process.stdin.write("go\n")
            process.stdin.flush()
            return self.answers(process)

        def watch():
            simctl("fault", "cuEvent*", "cuStreamIsCapturing", "--return", "999", "--own", "libvgpu.so")
            self.addCleanup(simctl, "clear")

        def fired():
            return [rule["fired"] for rule in json.loads(simctl("faults"))["faults"]]

        share = Share(self, "fork", 50)
        self.assertEqual(fork(share, watch), fork())
        self.assertEqual(fired(), [0])
        fork(share)  # the parent's own launches are seen
        self.assertGreater(fired()[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

# SPDX-License-Identifier: Apache-2.0
"""aliquotd killed between any two system calls of Prepare, Unprepare and start: crash.py at a sample of the points, at
every one with ALIQUOT_FAULTS=full in the environment (some minutes)."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults_world import FAULTCALL  # noqa: E402 (and where daemon_world is)
from daemon_world import need_daemon  # noqa: E402

TIMEOUT_S = 1800
HERE = pathlib.Path(__file__).resolve().parent
IS_FULL = os.environ.get("ALIQUOT_FAULTS") == "full"
SHARDS = 2


def setUpModule():
    need_daemon()
    reader, writer = os.pipe()  # kept open: its end would be the program's
    try:
        done = subprocess.run([FAULTCALL, "--", "/bin/true"], stdin=reader, capture_output=True, text=True, timeout=20,
                              check=False)
    except FileNotFoundError:
        raise unittest.SkipTest("alq-faultcall is not built") from None
    finally:
        os.close(reader)
        os.close(writer)
    if "exit 0" not in done.stdout:
        raise unittest.SkipTest(f"no seccomp listener here: {done.stderr.strip()}")


class Runs(unittest.TestCase):
    def sweep(self, program, scenario, every, offset, least):
        """Shards of a program in parallel; their failures are this test's."""
        every, offset = (1, 0) if IS_FULL else (every, offset)
        command = ["/usr/bin/python3", str(HERE / program), scenario, "--every", str(every), "--offset", str(offset)]
        running = [subprocess.Popen([*command, "--shard", f"{i}/{SHARDS}"], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True) for i in range(SHARDS)]
        points = 0
        failures = []
        for process in running:
            with process:
                text = process.communicate()[0]
            lines = text.splitlines()
            points += sum(line.startswith(("ok ", "FAILED ")) for line in lines)
            failures += [line for line in lines if line.startswith("FAILED ")]
            if process.returncode and not any(line.startswith("FAILED ") for line in lines):
                failures.append(text[-600:])
        print(f"{program} {scenario}: {points} points, {len(failures)} failed", flush=True)
        self.assertEqual(failures, [])
        self.assertGreaterEqual(points, least * every // 2 if IS_FULL else least)


class Crash(Runs):
    """`least`: fewer points than this, and the counting must be broken."""

    def test_kill_at_any_call_of_prepare(self):
        self.sweep("crash.py", "prepare", 4, 1, 20)

    def test_kill_at_any_call_of_unprepare(self):
        self.sweep("crash.py", "unprepare", 3, 0, 10)

    def test_kill_at_any_call_of_a_first_start(self):
        self.sweep("crash.py", "start-fresh", 6, 2, 10)

    def test_kill_at_any_call_of_a_start_in_the_same_boot(self):
        self.sweep("crash.py", "start-same-boot", 9, 4, 12)

    def test_kill_at_any_call_of_a_start_after_a_reboot(self):
        self.sweep("crash.py", "start-after-reboot", 6, 3, 10)

    def test_kill_at_any_call_of_a_start_with_leftovers(self):
        self.sweep("crash.py", "start-with-leftovers", 13, 5, 12)


if __name__ == "__main__":
    unittest.main()

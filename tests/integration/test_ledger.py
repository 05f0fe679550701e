# SPDX-License-Identifier: Apache-2.0
"""The ledger of libvgpu.so with many real processes on the simulated driver: racing at the limit, coming and going,
and living in all the ways that processes live. The short form does a fixed amount of work in a few seconds;
ALIQUOT_STRESS_S=60 races for that long and lets 1,000 processes come and go."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import unittest

import test_vgpu as world
from test_vgpu import CONTEXT, GIB, MIB, NOT_PERMITTED, OUT_OF_MEMORY, STATE, Case, Client

STRESS_S = float(os.environ.get("ALIQUOT_STRESS_S", "0"))
TIMEOUT_S = 300 + STRESS_S * 4
SIM_CONTEXT = 320 * MIB  # reserved for a context: above what the simulated card takes for one
RACERS = 8


def setUpModule():
    world.setUpModule()
    subprocess.run(["cc", "-O1", "-I", world.REPO / "include", "-o", STATE["dir"] / "ledger_client",
                    world.SOURCES / "ledger_client.c", "-ldl", "-pthread"], check=True)


tearDownModule = world.tearDownModule


def is_living(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Oracle(threading.Thread):
    """Looks at the device's own books as often as it can: the most that living processes of the group held at once."""

    def __init__(self, group):
        super().__init__()
        self.group, self.most, self.looks, self.done = group, 0, 0, threading.Event()

    def report(self):
        out = subprocess.run([world.SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", "oracle"], check=True,
                             stdout=subprocess.PIPE).stdout
        return json.loads(out)["devices"][0]

    def run(self):
        while not self.done.wait(0.02):
            processes = [p for p in self.report()["processes"] if p["group"] == self.group]
            self.most = max(self.most, sum(p["bytes"] for p in processes if is_living(p["pid"])))
            self.looks += 1

    def peak(self):
        return max((g["peak_bytes"] for g in self.report()["groups"] if g["group"] == self.group), default=0)

    def now(self):
        return sum(g["bytes"] for g in self.report()["groups"] if g["group"] == self.group)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()


class World(Case):
    def start(self, *args, prefix=(), stdin=subprocess.DEVNULL, **env):
        directory = STATE["dir"]
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"),
               "LD_LIBRARY_PATH": str(directory / "lib"), "SIMGPU_GROUP": self.shares.name,
               "ALIQUOT_SHARE_ROOT": str(self.shares), "LD_PRELOAD": str(directory / "lib/libvgpu.so"), **env}
        process = subprocess.Popen([*prefix, str(directory / "ledger_client"), *(str(a) for a in args)], text=True, env=env,
                                   stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def close():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.addCleanup(close)
        return process

    def answer(self, *args, **env):
        out, errors = self.start(*args, **env).communicate(timeout=TIMEOUT_S)
        self.assertTrue(out, errors)
        return [int(word) for word in out.split()[1:]], errors

    def held_by_the_living(self):
        """What a newcomer leaves in the books when it has looked for the dead."""
        newcomer = Client(self)
        newcomer.ok("init")
        held = self.held()
        newcomer.kill()
        return held


class Stress(World):
    def test_processes_racing_at_the_limit_hold_it_and_waste_none_of_it(self):
        room = 3 * 512 * MIB
        limit = room + RACERS * SIM_CONTEXT
        self.share(limit, context=SIM_CONTEXT)
        with Oracle(self.shares.name) as oracle:
            for _ in range(20):  # until it has looked twice, on a machine that leaves it little time
                (failed, allocations, refusals), errors = self.answer("race", RACERS, room, 12, STRESS_S)
                self.assertEqual(failed, 0, errors)
                self.assertGreater(min(allocations, refusals), 1000)
                if oracle.looks > 1:
                    break
        self.assertGreater(oracle.looks, 1)
        self.assertLessEqual(oracle.most, limit)
        self.assertLessEqual(oracle.peak(), limit)  # between any two looks, too
        self.assertGreater(oracle.peak(), limit - RACERS * SIM_CONTEXT)
        self.assertEqual(self.held_by_the_living(), 0)
        self.assertTrue(until(lambda: oracle.now() == 0))

    def test_processes_racing_under_two_shares_hold_both(self):
        room = 3 * 512 * MIB
        limit = room + RACERS * SIM_CONTEXT
        self.share(limit // 3, name="a-0", context=SIM_CONTEXT)
        self.share(limit - limit // 3, name="b-0", context=SIM_CONTEXT)
        (failed, _, refusals), errors = self.answer("race", RACERS, room, 8, STRESS_S / 4)
        self.assertEqual(failed, 0, errors)
        self.assertGreater(refusals, 500)
        self.assertLessEqual(Oracle(self.shares.name).peak(), limit)

    def test_processes_coming_and_going_find_the_room_of_those_that_went(self):
        """There is always room for as many as live at once, however the others ended: nobody is ever refused."""
        at_once, piece, total = 6, 640 * MIB, 1000 if STRESS_S else 150
        limit = at_once * (SIM_CONTEXT + piece)
        self.share(limit, context=SIM_CONTEXT)
        with Oracle(self.shares.name) as oracle:
            (refused, killed), errors = self.answer("come", total, at_once, piece)
        self.assertEqual(refused, 0, errors)
        self.assertEqual(killed, (total + 2) // 3)
        self.assertLessEqual(oracle.most, limit)
        self.assertEqual(self.held_by_the_living(), 0)
        self.assertTrue(until(lambda: oracle.now() == 0))


class Lives(World):
    PIECE = 512 * MIB

    def setUp(self):
        super().setUp()
        self.share(2 * GIB)

    def check_goes_on(self, how):
        bare = self.start("live", how, self.PIECE, stdin=subprocess.PIPE, LD_PRELOAD="")
        want = bare.stdout.readline().split()
        process = self.start("live", how, self.PIECE, stdin=subprocess.PIPE)
        got = process.stdout.readline().split()
        self.assertEqual(got[:3], want[:3], how)
        self.assertEqual(got[1], "0", how)
        self.assertEqual(int(got[3]), 2 * GIB - CONTEXT - self.PIECE)
        self.assertEqual(self.held(), CONTEXT + self.PIECE)
        out, errors = process.communicate("\n", timeout=60)
        bare.communicate("\n", timeout=60)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertEqual(self.held_by_the_living(), 0)

    def test_fork(self):
        self.check_goes_on("fork")

    def test_vfork(self):
        self.check_goes_on("vfork")

    def test_clone_without_handlers(self):
        self.check_goes_on("clone")

    def test_clone_that_shares_memory(self):
        self.check_goes_on("clone-vm")

    def test_posix_spawn(self):
        self.check_goes_on("spawn")

    def test_fork_while_other_threads_allocate(self):
        self.check_goes_on("fork-threads")

    def check_is_held_until_the_end_of(self, how):
        process = self.start("live", how, self.PIECE)
        pid = int(process.stdout.readline().split()[1])
        self.addCleanup(lambda: is_living(pid) and os.kill(pid, signal.SIGKILL))
        if how.startswith("daemon"):
            process.wait(60)
        self.assertEqual(self.held_by_the_living(), CONTEXT + self.PIECE, "the bytes of one that lives")
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(until(lambda: not is_living(pid)))
        self.assertEqual(self.held_by_the_living(), 0)

    def test_daemon_keeps_what_its_parent_held(self):
        """It has the driver's descriptors, so the driver keeps the memory as long."""
        self.check_is_held_until_the_end_of("daemon")

    def test_daemon_with_all_descriptors_closed(self):
        self.check_is_held_until_the_end_of("daemon-closed")

    def test_process_with_all_descriptors_closed(self):
        self.check_is_held_until_the_end_of("closed")

    def test_exec_gives_back_under_the_same_pid(self):
        process = self.start("live", "exec", self.PIECE, "sh", "-c", "echo on; read x", stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "on\n")
        self.assertTrue(is_living(process.pid))
        self.assertEqual(self.held_by_the_living(), 0)

    def test_processes_in_namespaces_of_their_own_share_the_limit(self):
        prefix = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
        probe = subprocess.run([*prefix, "true"], capture_output=True, text=True)
        if probe.returncode:
            self.skipTest(f"no user and PID namespaces here: {probe.stderr.strip()}")
        one = self.start("live", "spawn", self.PIECE, prefix=prefix, stdin=subprocess.PIPE)
        self.assertEqual(one.stdout.readline().split()[:3], ["life", "0", "0"])
        two = self.start("live", "spawn", self.PIECE, prefix=prefix, stdin=subprocess.PIPE)
        answer = two.stdout.readline().split()  # of PID 1, as the first
        self.assertEqual(int(answer[3]), 2 * GIB - 2 * (CONTEXT + self.PIECE))
        outside = Client(self).start()
        self.assertEqual(outside.call(f"alloc {self.PIECE}")[0], OUT_OF_MEMORY)
        one.kill()
        self.assertTrue(until(lambda: outside.call(f"alloc {self.PIECE}")[0] == 0))
        self.assertEqual(self.held(), 2 * (CONTEXT + self.PIECE))

    def test_last_free_slot_is_had_and_the_next_process_refused(self):
        import fcntl
        import struct
        with open(self.shares / "claim-0/usage", "r+b") as f:
            fcntl.fcntl(f, 37, struct.pack("hhlli", fcntl.F_WRLCK, 0, 0, 1023, 0))  # F_OFD_SETLK
            last = Client(self).start()
            late = Client(self)
            self.assertEqual(late.call("init")[0], NOT_PERMITTED)
            self.assertEqual(late.call("init")[0], NOT_PERMITTED)
            self.assertEqual(late.stderr().count("slots"), 1)
            last.kill()
            late.start()


if __name__ == "__main__":
    unittest.main()

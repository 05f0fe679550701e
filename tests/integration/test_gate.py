# SPDX-License-Identifier: Apache-2.0
"""The compute gate in real processes on the simulated driver: the oracle's busy time of a share is its limit.

Bounds are those of the demo (5 points): real clocks on a shared machine. Accuracy proper is tested in virtual time,
tests/unit/vgpu/test_compute.c."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

import places

TIMEOUT_S = 180
ALONE = True
REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
LIBRARY = BUILD / "src/vgpu/libvgpu.so"
SIMGPUD = BUILD / "sim/simgpud"
SIMCTL = BUILD / "sim/simctl"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
SECONDS = 3.0
SETTLE_S = 0.7
POINTS = 5.0
SEQUENCE_OFFSET, VALUES_OFFSET, VALUES_BYTES = 256, 512, 256  # include/aliquot/share.h
COUNTERS_OFFSET = 4096 + 256
STATE = {}


def values(pct, policy):
    return struct.pack("<QQqIIIII", 4 << 30, 0, 0, pct, policy, 0, 1000000, 0).ljust(VALUES_BYTES, b"\0")


def set_up(driver, *devices, client=None):
    """A folder with the libraries, a running simgpud with such devices, and a program of that name built from <name>_client.c."""
    for path in (LIBRARY, SIMGPUD, SIMCTL):
        if not path.exists():
            raise unittest.SkipTest(f"{path} is not built")
    directory = STATE["dir"] = pathlib.Path(tempfile.mkdtemp(prefix="alq-g-"))
    libraries = directory / "lib"
    libraries.mkdir()
    places.copy(LIBRARY, libraries)
    places.copy(BUILD / f"sim/libsimcuda-{driver}.so", libraries, "libcuda.so.1")
    if client:
        subprocess.run(["cc", "-O1", "-I", REPO / "include", "-o", directory / client, pathlib.Path(__file__).resolve().parent / f"{client}_client.c",
                        "-L", libraries, "-l:libcuda.so.1", "-pthread"], check=True)
    common = {"name": "NVIDIA H100 80GB HBM3", "memory": "16Gi", "sms": 132}
    (directory / "devices.json").write_text(json.dumps(
        {"devices": [common | {"minor": minor} | device for minor, device in enumerate(devices)]}))
    STATE["simgpud"] = subprocess.Popen([SIMGPUD, "--config", directory / "devices.json", "--run-dir", directory],
                                        stdout=subprocess.PIPE)
    STATE["simgpud"].stdout.readline()


def setUpModule():
    set_up("550", {"uuid": UUID}, client="gate")


def tearDownModule():
    if "simgpud" in STATE:
        STATE["simgpud"].terminate()
        STATE["simgpud"].wait()
        STATE["simgpud"].stdout.close()
    if "dir" in STATE:
        shutil.rmtree(STATE["dir"], ignore_errors=True)


def waited_ns(pid):
    """For how long the process's threads have been ready to run without a processor to run on."""
    return sum(int(path.read_text().split()[1]) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def busy_ns():
    """Per group, and the simulator's clock."""
    out = subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", "oracle"], check=True, capture_output=True)
    oracle = json.loads(out.stdout)
    return oracle["time_ns"], {g["group"]: g["busy_ns"] for g in oracle["devices"][0]["groups"]}


class Share:
    """A share directory as the daemon makes it, alone under its root."""

    def __init__(self, case, name, pct, policy=0, uuid=UUID, root=None):
        self.name = f"{case.id().rsplit('.', 1)[-1]}-{name}"
        self.root = root or STATE["dir"] / self.name
        directory = self.root / f"{name}-0"
        directory.mkdir(parents=True)
        head = struct.pack("<QII64s48s", 0x314C525443514C41, 1, 4096, f"{name}-0".encode(), uuid.encode())
        self.control = directory / "control"
        self.control.write_bytes((head.ljust(VALUES_OFFSET, b"\0") + values(pct, policy)).ljust(4096, b"\0"))
        self.usage = directory / "usage"
        head = struct.pack("<QIIIIII", 0x3147415355514C41, 1, 4096, 135168, 1, 1024, 128).ljust(4096, b"\0")
        self.usage.write_bytes(head + uuid.encode().ljust(135168, b"\0"))
        self.sequence = 0

    def publish(self, pct, policy=0):
        """As the daemon changes a limit, but for the wake: the library looks every 10 ms."""
        self.sequence += 1
        with open(self.control, "r+b") as f:
            f.seek(VALUES_OFFSET + (self.sequence & 1) * VALUES_BYTES)
            f.write(values(pct, policy))
            f.flush()
            f.seek(SEQUENCE_OFFSET)
            f.write(struct.pack("<II", self.sequence, self.sequence))

    def counters(self):
        names = ["refusals", "allocations", "launches", "charged_ns", "throttled_ns"]
        with open(self.usage, "rb") as f:
            f.seek(COUNTERS_OFFSET)
            return dict(zip(names, struct.unpack("<5Q", f.read(40))))


class GateTest(unittest.TestCase):
    def start(self, share, us, kind="eager", streams=1, sync_every=4, seconds=SECONDS):
        directory = STATE["dir"]
        process = subprocess.Popen(
            [directory / "gate", str(seconds), str(us), kind, str(streams), str(sync_every)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"),
                 "LD_LIBRARY_PATH": str(directory / "lib"), "LD_PRELOAD": str(directory / "lib/libvgpu.so"), "SIMGPU_GROUP": share.name,
                 "ALIQUOT_SHARE_ROOT": str(share.root)})

        def close():
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.addCleanup(close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def run_all(self, processes):
        """Lets them run; the busy percent of each group between settling and shortly before the end, and all launches."""
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        pids = [STATE["simgpud"].pid, *(process.pid for process in processes)]
        time.sleep(SETTLE_S)
        from_ns, before = busy_ns()
        waited = [waited_ns(pid) for pid in pids]
        time.sleep(SECONDS - SETTLE_S - 0.3)
        to_ns, after = busy_ns()
        waited = [waited_ns(pid) - ns for pid, ns in zip(pids, waited)]
        self.lacked = min(1.0, (waited[0] + max(waited[1:])) / (to_ns - from_ns))
        launches = []
        for process in processes:
            launches.append(int(process.stdout.readline()))
            self.assertEqual(process.wait(timeout=30), 0)
        return {g: 100.0 * (after[g] - before.get(g, 0)) / (to_ns - from_ns) for g in after}, launches

    def assert_share(self, busy, share, pct):
        """Never more; and no less than a program can use up that lacked a processor for a part of the time."""
        said = f"{share.name}: {busy[share.name]:.2f} of {pct} percent, {100 * self.lacked:.0f} percent of the time without a processor"
        self.assertLess(busy[share.name], pct + POINTS, said)
        self.assertGreater(busy[share.name], pct * (1 - self.lacked) - POINTS, said)

    def test_kernels_of_several_lengths_are_held(self):
        for us in (20, 500, 10000):
            with self.subTest(us=us):
                share = Share(self, f"len{us}", 30)
                busy, launches = self.run_all([self.start(share, us)])
                self.assert_share(busy, share, 30)
                counters = share.counters()
                self.assertGreaterEqual(launches[0], counters["launches"])
                self.assertGreater(counters["launches"], launches[0] * 0.9)
                if self.lacked < 0.1:
                    self.assertGreater(counters["throttled_ns"], 0.1e9)

    def test_graph_launches_are_held(self):
        share = Share(self, "graph", 30)
        busy, _ = self.run_all([self.start(share, 200, "graph")])
        self.assert_share(busy, share, 30)

    def test_fills_are_held(self):
        share = Share(self, "fill", 30)
        busy, _ = self.run_all([self.start(share, 2000, "fill")])
        self.assert_share(busy, share, 30)

    def test_streams_are_held_together(self):
        share = Share(self, "streams", 50)
        busy, _ = self.run_all([self.start(share, 1000, streams=4, sync_every=8)])
        self.assert_share(busy, share, 50)

    def test_two_processes_of_a_share_are_held_together(self):
        share = Share(self, "two", 40)
        busy, launches = self.run_all([self.start(share, 1000) for _ in range(2)])
        self.assert_share(busy, share, 40)
        self.assertLess(max(launches), 1.5 * min(launches))

    def test_two_shares_of_one_gpu_both_hold(self):
        first, second = Share(self, "first", 30), Share(self, "second", 60)
        busy, _ = self.run_all([self.start(first, 1000), self.start(second, 1000)])
        self.assert_share(busy, first, 30)
        self.assert_share(busy, second, 60)

    def test_whole_and_policy_none_are_not_held(self):
        for name, pct, policy in (("whole", 100, 0), ("none", 20, 2), ("zero", 0, 0)):
            with self.subTest(name=name):
                share = Share(self, name, pct, policy)
                busy, _ = self.run_all([self.start(share, 5000, sync_every=8)])
                self.assertGreater(busy[share.name], 85 * (1 - self.lacked))
                self.assertEqual(share.counters()["throttled_ns"], 0)

    def calls(self, launches, us, pace_ns, share=None):
        """System calls during paced launches: made inside the library, and elsewhere (the simulated driver asks simgpud by messages)."""
        directory = STATE["dir"]
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"), "LD_LIBRARY_PATH": str(directory / "lib")}
        if share:
            env.update({"LD_PRELOAD": str(directory / "lib/libvgpu.so"), "ALIQUOT_SHARE_ROOT": str(share.root)})
        done = subprocess.run([directory / "calls", str(launches), str(us), str(pace_ns)], env=env, check=True, capture_output=True, text=True)
        library, driver = re.fullmatch(r"library (\d+) driver (\d+)\n", done.stdout).groups()
        return int(library), int(driver)

    def test_launches_below_the_limit_make_no_system_call(self):
        subprocess.run(["cc", "-O1", "-I", REPO / "include", "-o", STATE["dir"] / "calls",
                        pathlib.Path(__file__).resolve().parent / "calls_client.c", "-L", STATE["dir"] / "lib", "-l:libcuda.so.1"], check=True)
        share, small = Share(self, "calls", 90), Share(self, "waits", 5)
        # Kernels of 1 us, one every 3 us: a third of the GPU, of 90 percent.
        self.assertEqual(self.calls(100000, 1, 3000)[0], 0)
        self.assertEqual(self.calls(100000, 1, 3000, share)[0], 0)
        self.assertGreaterEqual(share.counters()["launches"], 105000)
        self.assertEqual(share.counters()["throttled_ns"], 0)
        # What waits does make some, and they are seen.
        self.assertGreater(self.calls(500, 50, 1000, small)[0], 0)

    def test_limit_changed_in_the_running_process_acts(self):
        share = Share(self, "change", 1)
        process = self.start(share, 20000, sync_every=1)
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(1.0)  # 20 ms a launch at 1 percent: in the middle of a wait of two seconds
        share.publish(60)
        time.sleep(0.3)
        from_ns, before = busy_ns()
        time.sleep(1.2)
        to_ns, after = busy_ns()
        self.assertLess(abs(100.0 * (after[share.name] - before[share.name]) / (to_ns - from_ns) - 60), 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)

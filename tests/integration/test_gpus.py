# SPDX-License-Identifier: Apache-2.0
"""The daemon's NVML reader on the simulated driver: absent at start, crashing, GPUs lost and back, driver replaced; what it
says that processes use."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_publisher import BUILD, NODE, Server, wait_for  # noqa: E402

ALIQUOTD, READER = BUILD / "src/daemon/aliquotd", BUILD / "src/daemon/aliquotd-nvml"
SIMGPUD, SIMCTL, CLIENT = BUILD / "sim/simgpud", BUILD / "sim/simctl", BUILD / "sim/sim-client"
GPUS = {"devices": [{"name": "NVIDIA H100 80GB HBM3", "memory": "80Gi", "sms": 132, "minor": i,
                     "pci": f"0000:{0x65 + i:02x}:00.0", "profile": "550"} for i in range(2)]}


class Gpus(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", ResourceWarning)
        self.dir = tempfile.mkdtemp(prefix="alq-gpus-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.server = Server(self.dir, "1.34")
        self.addCleanup(self.server.stop)
        self.config = self.path("gpus.json")
        pathlib.Path(self.config).write_text(json.dumps(GPUS), encoding="utf-8")
        os.mkdir(self.path("sim"))
        self.simulator = None
        self.start_simulator()
        self.log = open(self.path("daemon.log"), "w+", encoding="utf-8")
        self.addCleanup(self.log.close)

    def path(self, name):
        return os.path.join(self.dir, name)

    def start_simulator(self):
        self.simulator = subprocess.Popen([SIMGPUD, "--config", self.config, "--run-dir", self.path("sim")],
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.end, self.simulator)
        self.simulator.stdout.readline()

    @staticmethod
    def end(process, number=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
        process.wait(10)
        if process.stdout:
            process.stdout.close()

    def install_driver(self):
        subprocess.run([SIMCTL, "install-root", "--config", self.config, self.path("root")], check=True,
                       stdout=subprocess.DEVNULL)

    def start_daemon(self):
        places = [f"--{flag}={self.path(name)}" for flag, name in (
            ("kubelet-plugins-dir", "plugins"), ("kubelet-registry-dir", "registry"), ("cdi-dir", "cdi"),
            ("state-dir", "state"), ("run-dir", "run"), ("driver-root", "root"))]
        for name in ("plugins", "registry"):
            os.mkdir(self.path(name))
        self.daemon = subprocess.Popen(
            [ALIQUOTD, f"--node-name={NODE}", f"--kubeconfig={self.server.kubeconfig}", "--allow-non-tmpfs", "--start-spread=0s", *places],
            stderr=self.log, env=dict(os.environ, SIMGPU_SOCKET=self.path("sim/simgpud.sock")))
        self.addCleanup(self.end, self.daemon)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def devices(self):
        return sorted(d["name"] for s in self.server.mine() for d in s["spec"]["devices"])

    def wait_for_devices(self, *names, timeout=20):
        try:
            wait_for(f"devices {names}", lambda: self.devices() == sorted(names), timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def reader(self):
        """The child's process id."""
        children = pathlib.Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def test_a_driver_that_comes_late_is_found(self):
        os.mkdir(self.path("root"))
        self.start_daemon()
        wait_for("what is missing", lambda: "no libnvidia-ml.so.1 below" in self.text())
        self.assertIn(self.path("root"), self.text())
        self.assertIn("--driver-root", self.text())
        time.sleep(1)
        self.assertEqual(self.text().count("no libnvidia-ml.so.1 below"), 1)
        self.assertEqual(self.server.mine(), [])
        self.install_driver()
        self.wait_for_devices("hami-gpu-0", "hami-gpu-1")

    def test_a_reader_that_crashes_is_replaced_without_a_trace_in_the_slices(self):
        self.install_driver()
        self.start_daemon()
        self.wait_for_devices("hami-gpu-0", "hami-gpu-1")
        first, writes = self.reader(), len(self.server.writes())
        os.kill(first, signal.SIGSEGV)
        wait_for("another reader", lambda: self.reader() not in (0, first))
        time.sleep(0.5)
        self.wait_for_devices("hami-gpu-0", "hami-gpu-1")
        self.assertEqual(len(self.server.writes()), writes)

    def test_the_daemon_does_not_load_the_driver_and_its_reader_dies_with_it(self):
        self.install_driver()
        self.start_daemon()
        self.wait_for_devices("hami-gpu-0", "hami-gpu-1")
        reader = self.reader()
        maps = pathlib.Path(f"/proc/{self.daemon.pid}/maps").read_text()
        self.assertNotIn(self.path("root"), maps)
        self.assertIn(self.path("root"), pathlib.Path(f"/proc/{reader}/maps").read_text())
        self.daemon.kill()
        self.daemon.wait(10)
        wait_for("the reader to end", lambda: not os.path.exists(f"/proc/{reader}/exe") or
                 pathlib.Path(f"/proc/{reader}/stat").read_text().split()[2] == "Z")

    def test_lost_gpus_leave_and_come_back_under_their_names(self):
        self.install_driver()
        self.start_daemon()
        self.wait_for_devices("hami-gpu-0", "hami-gpu-1")
        self.end(self.simulator, signal.SIGKILL)
        self.wait_for_devices(timeout=30)
        self.start_simulator()
        self.wait_for_devices("hami-gpu-0", "hami-gpu-1", timeout=30)

    def test_the_reader_tells_how_much_of_the_time_each_process_uses(self):
        self.install_driver()
        env = dict(os.environ, SIMGPU_SOCKET=self.path("sim/simgpud.sock"),
                   LD_LIBRARY_PATH=str(next(pathlib.Path(self.path("root")).glob("usr/lib/*-linux-gnu"))))
        spinners = [subprocess.Popen([CLIENT, "spin", "60", "900"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) for _ in range(2)]
        for process in spinners:
            self.addCleanup(process.stdin.close)
            self.addCleanup(self.end, process, signal.SIGKILL)
            process.stdout.readline()
        reader = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" 3>&1', READER, self.path("root"), "/dev"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.addCleanup(self.end, reader, signal.SIGKILL)
        self.addCleanup(reader.stdin.close)

        def ask(byte):
            """The indices that are gone to, and the answer."""
            reader.stdin.write(byte)
            reader.stdin.flush()
            gone_to = []
            while (line := reader.stdout.readline()).startswith("@"):
                gone_to.append(line.strip())
            return gone_to, json.loads(line)

        uuids = [g["uuid"] for g in ask("r")[1]["gpus"]]
        gone_to, use = ask("u")
        self.assertEqual(gone_to, ["@0", "@1"])
        self.assertEqual(use, {"gpus": [{"uuid": u, "window": 0, "age": 0, "processes": []} for u in uuids]})

        def seen():
            """The GPU with both at work; what is nothing in between says so."""
            busy, idle = ask("u")[1]["gpus"]
            self.assertEqual((idle["window"], idle["processes"]), (0, []))
            self.assertEqual(busy["window"] > 0, bool(busy["processes"]))
            return busy if len(busy["processes"]) == 2 else time.sleep(0.05)

        busy = wait_for("both processes", seen)
        self.assertEqual([pid for pid, _ in busy["processes"]], sorted(p.pid for p in spinners))
        self.assertLessEqual(sum(pct for _, pct in busy["processes"]), 102)  # each is rounded
        self.assertLess(busy["age"], 2e9)


if __name__ == "__main__":
    unittest.main()

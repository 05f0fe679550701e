# SPDX-License-Identifier: Apache-2.0
"""The simulator where nothing is as it should be: device files, messages, limits of the machine, a crowd, and deaths of
clients and of simgpud itself. Whatever happens, clients get a clear error in bounded time, simgpud serves the others, and the
oracle is back at zero. Takes about fifteen seconds."""

import contextlib
import json
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from test_sim import MIB, SIM, SMALL, WAIT_S, WIRE, Machine, running, until

TIMEOUT_S = 120

TINY = dict(SMALL, contextBytes="64Ki", moduleBytes="64Ki")
HELLO, DEVICE, PROCESSES, SAMPLES, ORACLE, LIST, RESET, CONTROL, COMMAND, WATCH, EVENT = range(1, 12)
CUDA, NVML, CONTROLLER = 1, 2, 3


def message(kind, body=b""):
    return struct.pack("<II", kind, 8 + len(body)) + body


def hello(kind, group=b""):
    return message(HELLO, struct.pack("<II", WIRE, kind) + group.ljust(128, b"\0"))


class DeviceFile(unittest.TestCase):
    def refusal(self, path):
        with tempfile.TemporaryDirectory() as run:
            out = subprocess.run([SIM / "simgpud", "--config", path, "--run-dir", run], capture_output=True, text=True, timeout=WAIT_S)
        self.assertEqual((out.returncode, out.stdout), (1, ""))
        self.assertEqual(len(out.stderr.splitlines()), 1)
        self.assertIn(str(path), out.stderr)
        return out.stderr

    def test_what_is_no_device_file_at_all(self):
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d) / "machine.json"
            for content, wanted in ((b"", "machine.json"), (b"{", "machine.json"), (b"\xff\xfe{}", "machine.json"), (b"[]", "give an object"),
                                    (b"null", "machine.json"), (b"{}", "devices"), (b'{"devices":{}}', "give a list"), (b'{"devices":[1]}', "devices[0]"),
                                    (b'{"devices":[],"devices":[]}', "machine.json"), (b'{"devices":[],"x":1}', "x"), (b"[" * 5000, "machine.json"),
                                    (b'{"devices":[' + b",".join([b'{"memory":"1Gi"}'] * 33) + b"]}", "at most 32"),
                                    (b'{"devices":[]}' + b" " * (1 << 20), "machine.json"), (b'{"devices":[]} {}', "machine.json"),
                                    (b'{"devices":[{"memory":"1Gi","name":"a\\u0000b"}]}', "column")):
                with self.subTest(content=content[:60]):
                    path.write_bytes(content)
                    self.assertIn(wanted, self.refusal(path))
            self.refusal(pathlib.Path(d))
            self.refusal(pathlib.Path(d) / "missing")

    def test_every_key_of_a_wrong_type_or_value_is_named(self):
        wrong = {"name": [1, "", "n" * 96, None], "memory": [None, True, -1, 1.5, "1Ki", "4Ti", 64 * MIB + 1, "80 GB", {}, 2**63 - 1],
                 "sms": [0, -1, 1025, "132", 1.0], "uuid": [1, "", "GPU-", "MIG-00000000-0000-4000-8000-000000000001", "GPU-" + "g" * 36],
                 "minor": [-1, 1024, "0"], "pci": ["", "65:00.0", "0000:65:00.1", "0000:65:20.0", 1], "profile": [550, "600", ""], "serial": [1, "", "1" * 30],
                 "reservedBytes": ["512Mi", -1, []], "contextBytes": ["512Mi", "x"], "moduleBytes": ["512Mi", None], "numaNode": [-1, 256, "0"],
                 "computeCapability": [9.0, "9", "2.0", "9.0.0", ""], "mig": [1, "yes", None]}
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d) / "machine.json"
            for key, values in wrong.items():
                for value in values:
                    with self.subTest(key=key, value=value):
                        path.write_text(json.dumps({"devices": [SMALL, dict({"memory": "1Gi"}, **{key: value})]}), encoding="utf-8")
                        self.assertIn(f"devices[1].{key}", self.refusal(path))
            for key, value in (("minor", 3), ("uuid", "GPU-00000000-0000-4000-8000-000000000001"), ("pci", "0000:65:00.0"), ("serial", "7")):
                path.write_text(json.dumps({"devices": [dict(SMALL, **{key: value})] * 2}), encoding="utf-8")
                self.assertIn("devices[1].", self.refusal(path))


class Messages(unittest.TestCase):
    def setUp(self):
        self.machine = Machine([TINY])
        self.addCleanup(self.machine.close)

    def connect(self, *messages):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(s.close)
        s.settimeout(WAIT_S)
        s.connect(str(self.machine.socket))
        for m in messages:
            s.send(m)
            s.recv(1 << 18)
        return s

    def test_wrong_messages_cost_only_their_sender(self):
        nobody = [b"x", b"\0" * 8, message(0), message(99), message(EVENT), message(DEVICE, b"\0" * 16), message(ORACLE), message(COMMAND, b"{}"),
                  message(WATCH, b"\0" * 16), message(CONTROL, b"x"), message(HELLO), os.urandom(200), b"\0" * (32 << 10), struct.pack("<II", HELLO, 7) + b"\0" * 136]
        as_nvml = [hello(NVML), message(COMMAND, b"{}"), message(ORACLE), message(DEVICE, struct.pack("<IIQ", 32, 0, 0)), message(DEVICE, b"\xff" * 16), message(WATCH, b"\xff" * 8)]
        as_controller = [hello(CONTROLLER), message(WATCH, b"\0" * 16), message(RESET, b"\0"), struct.pack("<II", ORACLE, 9)]
        with running(self.machine.client("hold", MIB, group="victim"), "held"):
            for first, messages in (((), nobody), ((hello(NVML),), as_nvml), ((hello(CONTROLLER),), as_controller)):
                for m in messages:
                    with self.subTest(m=m[:40]), contextlib.suppress(ConnectionResetError):
                        s = self.connect(*first)
                        with contextlib.suppress(OSError):
                            s.send(m)
                        self.assertEqual(s.recv(1 << 18), b"", "not refused")
            self.assertEqual(self.machine.group("victim")["processes"], 1)

    def test_wrong_commands_are_answered_with_what_is_wrong(self):
        for body in (b"", b"{", b"[]", b"{}", b'{"command":1}', b'{"command":"lose"}', b'{"command":"lose","device":{}}', b'{"command":"lose","device":-1}',
                     b'{"command":"lose","device":0,"x":1}', b'{"command":"add","device":7}', b'{"command":"add"}', b'{"command":"xid","device":0}', b'{"command":"xid","device":0,"xid":"1"}',
                     b'{"command":"fault","entries":[1],"result":1}', b'{"command":"fault","entries":["cuInit"],"result":-1}', b'{"command":"clear","id":0}', b"\xff\xff", b"{" * 2000):
            with self.subTest(body=body[:60]):
                s = self.connect(hello(CONTROLLER))
                s.send(message(COMMAND, body))
                _, fds, _, _ = socket.recv_fds(s, 1 << 12, 4)
                with os.fdopen(fds[0]) as f:
                    self.assertTrue(json.load(f)["error"])
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)

    def test_descriptors_sent_along_are_not_kept(self):
        s = self.connect()
        here, there = os.pipe()
        socket.send_fds(s, [hello(NVML)], [there] * 50)
        s.recv(1 << 18)
        os.close(there)
        self.assertTrue(select.select([here], [], [], WAIT_S)[0], "simgpud keeps the other end")
        self.assertEqual(os.read(here, 1), b"")
        os.close(here)

    def test_one_that_never_reads_is_dropped_and_holds_up_nobody(self):
        s = self.connect(hello(NVML))
        with self.assertRaises(OSError):
            for _ in range(100000):
                s.send(message(DEVICE, struct.pack("<IIQ", 0, 0, 0)))
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)

    def test_a_thousand_labels_do_not_fill_simgpud(self):
        before = len(os.listdir(f"/proc/{self.machine.daemon.pid}/fd"))
        for i in range(1100):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(str(self.machine.socket))
            s.send(hello(CUDA, b"g%d" % i))
            _, fds, _, _ = socket.recv_fds(s, 1 << 18, 4)
            for fd in fds:
                os.close(fd)
            s.close()
        until(lambda: len(json.loads(self.machine.ctl("list"))["clients"]) == 1, "clients outlive their sockets")
        self.assertLess(len(os.listdir(f"/proc/{self.machine.daemon.pid}/fd")) - before, 1030)


class Limits(unittest.TestCase):
    """simgpud and its clients short of descriptors and of memory."""

    def limited(self, **limits):
        machine = Machine([TINY])
        self.addCleanup(machine.close)
        machine.stop()

        def limit():
            for name, value in limits.items():
                resource.setrlimit(getattr(resource, name), (value, value))

        machine.daemon = subprocess.Popen([SIM / "simgpud", "--config", machine.config, "--run-dir", machine.dir], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, preexec_fn=limit)
        self.addCleanup(machine.daemon.stderr.close)
        return machine, machine.daemon.stdout.readline()

    def test_a_client_refused_for_lack_of_descriptors_is_told_and_later_ones_served(self):
        machine, line = self.limited(RLIMIT_NOFILE=24)
        self.assertIn("ready", line)
        held, refused = [], []
        for _ in range(24):
            p = machine.client("hold", MIB)
            line = p.stdout.readline().strip()
            (held if line == "held" else refused).append((p, line))
        self.assertTrue(held)
        self.assertEqual({line for _, line in refused}, {"cuInit 304"})
        code = "print(json.dumps([cu.cuInit(0), ml.nvmlInit_v2()]))"
        idle = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # takes the last place, if there is one
        idle.connect(str(machine.socket))
        self.assertEqual(machine.python(code), [304, 23])
        idle.close()
        for p, _ in held + refused:
            p.communicate()
        until(lambda: machine.oracle()["used_bytes"] == 0, "memory outlives its process")
        self.assertEqual(machine.python(code), [0, 0])

    def test_shared_memory_that_cannot_be_had_is_an_error_and_not_a_crash(self):
        machine, line = self.limited(RLIMIT_FSIZE=16 << 10)
        self.assertEqual((line, machine.daemon.wait(WAIT_S)), ("", 1))
        self.assertIn("cannot make the shared", machine.daemon.stderr.read())

    def test_a_full_dev_shm_is_no_matter(self):
        if os.geteuid() != 0:
            self.skipTest("mounting needs root")
        machine = Machine([TINY])
        self.addCleanup(machine.close)
        script = 'mount -t tmpfs -o size=4k none /dev/shm && { head -c 8192 /dev/zero >/dev/shm/full 2>/dev/null; exec "$@"; }'
        if subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", "true"], capture_output=True).returncode != 0:
            self.skipTest("this machine lets nobody mount")
        with running(machine.client("hold", MIB, prefix=["unshare", "-m", "sh", "-c", script, "sh"]), "held"):
            self.assertEqual(machine.group("")["processes"], 1)

    def test_a_client_without_address_space_gets_out_of_memory(self):
        machine = Machine([dict(TINY, memory="64Gi")])
        self.addCleanup(machine.close)
        p = machine.client("hold", MIB, prefix=["prlimit", f"--as={1 << 30}"])
        self.assertRegex(p.communicate()[0].strip(), r"^cu\w+ 2$")
        self.assertEqual(machine.oracle()["used_bytes"], 0)


class Crowds(unittest.TestCase):
    def test_a_thousand_processes_at_once(self):
        machine = Machine([dict(TINY, memory="4Gi")])
        self.addCleanup(machine.close)
        p = subprocess.Popen([SIM / "sim-mix", "crowd", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=machine.env(SIMGPU_GROUP="crowd"),
                             start_new_session=True)
        try:
            self.assertEqual(p.stdout.readline().strip(), "held 1000")
            got = machine.python("""
h, n = C.c_void_p(), C.c_uint(2000); check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
room = (C.c_ubyte * 48000)(); check(ml.nvmlDeviceGetComputeRunningProcesses_v3(h, C.byref(n), room)); print(n.value)""")
            self.assertEqual(got, 1000)
            crowd = machine.group("crowd")
            self.assertEqual((crowd["processes"], crowd["context_bytes"]), (1000, 1000 * 65536))
            self.assertEqual(machine.oracle()["used_bytes"], crowd["bytes"])
        finally:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
        until(lambda: len(json.loads(machine.ctl("list"))["clients"]) == 1, "clients outlive their processes")
        self.assertEqual((machine.oracle()["used_bytes"], machine.group("crowd")["bytes"]), (0, 0))


class Scribblers(unittest.TestCase):
    """A client may write what it likes into the memory it shares with simgpud."""

    def setUp(self):
        self.machine = Machine([TINY, TINY])
        self.addCleanup(self.machine.close)

    def scribble(self, *args):
        out = subprocess.run([SIM / "sim-scribble", *map(str, args)], env=self.machine.env(), stdout=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(out.returncode, 0, out.stdout)
        self.assertIsNone(self.machine.daemon.poll(), "simgpud is gone")
        return out.stdout.strip()

    def test_an_operation_that_makes_no_sense_cuts_its_client_off(self):
        for kind in range(10):
            for flags in (0, 2, 255):
                with self.subTest(kind=kind, flags=flags):
                    self.assertEqual(self.scribble("lie", kind, flags, (1 << 32) - 1), "cut off")
        until(lambda: self.machine.oracle()["used_bytes"] == 0, "what it held is not free")

    def test_the_next_client_finds_everything_right(self):
        self.machine.ctl("shrink", "0", "1Mi")
        free = set()
        for seed in range(4):
            self.scribble("words", seed, 0.2)
            got = self.machine.python("""
ctx, p, free, total = C.c_void_p(), C.c_ulonglong(), C.c_size_t(), C.c_size_t()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
check(cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(1 << 20))); check(cu.cuMemsetD8Async(p, 1, C.c_size_t(1 << 20), None))
check(cu.cuCtxSynchronize()); check(cu.cuMemFree_v2(p)); check(cu.cuMemGetInfo_v2(C.byref(free), C.byref(total))); print(json.dumps(free.value))
""")
            free.add(got)
            self.assertIn(f'"withheld_bytes": {MIB}', self.machine.ctl("describe", "0"))
            self.assertEqual([self.machine.oracle(d)["used_bytes"] for d in (0, 1)], [0, 0])
        self.assertEqual(len(free), 1, free)


class Deaths(unittest.TestCase):
    def test_killed_in_whatever_call_leaves_nothing(self):
        machine = Machine([dict(TINY, memory="256Mi")])
        self.addCleanup(machine.close)
        others = []
        for seed in range(40):
            p = subprocess.Popen([SIM / "sim-mix", "mix", str(seed)], stdout=subprocess.PIPE, text=True, env=machine.env(SIMGPU_GROUP=f"g{seed % 3}"))
            self.addCleanup(p.stdout.close)
            self.assertEqual(p.stdout.readline().strip(), "mixing")
            others.append(p)
            if len(others) == 4:
                victim = others.pop(0)
                victim.kill()
                self.assertEqual(victim.wait(WAIT_S), -9, "it ended by itself")
        for p in others:
            p.kill()
            p.wait(WAIT_S)
        until(lambda: len(json.loads(machine.ctl("list"))["clients"]) == 1, "a dead client is listed")
        self.assertEqual(machine.oracle()["used_bytes"], 0)
        self.assertEqual({g["bytes"] for g in machine.oracle()["groups"]}, {0})
        self.assertIsNone(machine.daemon.poll())

    def test_killed_while_an_entry_point_works_leaves_nothing(self):
        machine = Machine([TINY])
        self.addCleanup(machine.close)
        for entry, code in (("cuMemAlloc_v2", "cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(1 << 20))"), ("cuMemFree_v2", "cu.cuMemFree_v2(p)"),
                            ("cuDevicePrimaryCtxRelease_v2", "cu.cuDevicePrimaryCtxRelease_v2(0)"), ("cuCtxSynchronize", "cu.cuCtxSynchronize()")):
            machine.ctl("fault", entry, "--delay", "60s")
            prelude = "import ctypes as C\ncu = C.CDLL('libcuda.so.1'); p, ctx = C.c_ulonglong(), C.c_void_p()\n"
            setup = "cu.cuInit(0); cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0); cu.cuCtxSetCurrent(ctx); cu.cuMemAllocManaged(C.byref(p), C.c_size_t(4096), 1)\n"
            p = subprocess.Popen(["/usr/bin/python3", "-c", prelude + setup + code], env=machine.env())
            until(lambda: json.loads(machine.ctl("faults"))["faults"][0]["fired"], f"{entry} was not reached")
            p.kill()
            p.wait(WAIT_S)
            machine.ctl("clear")
            until(lambda: machine.oracle()["used_bytes"] == 0, f"{entry}: memory outlives its process")

    def test_simgpud_that_dies_fails_its_clients_and_a_new_one_serves_new_ones(self):
        machine = Machine([TINY])
        self.addCleanup(machine.close)
        code = f"""
import signal, threading, time
ctx, other, h, s = C.c_void_p(), C.c_void_p(), C.c_void_p(), C.c_void_p()
m, f, p = C.c_void_p(), C.c_void_p(), C.c_ulonglong(); rows = {{}}
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
check(cu.cuModuleLoadData(C.byref(m), b'.version 8.0\\n.entry busy_us(.param .u64 us) {{ ret; }}')); check(cu.cuModuleGetFunction(C.byref(f), m, b'busy_us'))
us = C.c_ulonglong(1500000); args = (C.c_void_p * 1)(C.addressof(us)); check(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, args, None))
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); check(ml.nvmlEventSetCreate(C.byref(s))); check(ml.nvmlDeviceRegisterEvents(h, C.c_ulonglong(8), s))
def wait(): rows['event'] = ml.nvmlEventSetWait_v2(s, (C.c_ubyte * 32)(), 60000)
def sync(): check(cu.cuCtxSetCurrent(ctx)); rows['sync'] = cu.cuCtxSynchronize()
threads = [threading.Thread(target=t, daemon=True) for t in (wait, sync)]
for t in threads: t.start()
time.sleep(0.1); os.kill({machine.daemon.pid}, 9)
for t in threads: t.join(10)
rows['hung'] = [t.is_alive() for t in threads]
u = (C.c_uint * 2)(); rows['nvml'] = ml.nvmlDeviceGetUtilizationRates(h, u); rows['context'] = cu.cuCtxCreate_v2(C.byref(other), 0, 0)
rows['launches'] = sorted(set(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, args, None) for _ in range(3)))
print('dead', flush=True); input()
rows['context again'] = cu.cuCtxCreate_v2(C.byref(other), 0, 0); rows['nvml again'] = ml.nvmlDeviceGetUtilizationRates(h, u)
ml.nvmlShutdown(); check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); rows['anew'] = ml.nvmlDeviceGetUtilizationRates(h, u)
print(json.dumps(rows), flush=True); os._exit(0)
"""
        prelude = "import ctypes as C, json, os\ncu = C.CDLL('libcuda.so.1')\nml = C.CDLL('libnvidia-ml.so.1')\ndef check(rc):\n    assert rc == 0, rc\n"
        p = subprocess.Popen(["/usr/bin/python3", "-c", prelude + code], env=machine.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline().strip(), "dead")
        machine.daemon.wait(WAIT_S)
        machine.daemon.stdout.close()
        machine.start()
        self.assertEqual(machine.python("print(json.dumps([cu.cuInit(0), ml.nvmlInit_v2()]))"), [0, 0])
        p.stdin.write("\n")
        p.stdin.flush()
        rows = json.loads(p.stdout.readline())
        self.assertEqual(rows["hung"], [False, False])
        self.assertEqual((rows["event"], rows["nvml"], rows["context"]), (15, 15, 46))
        self.assertEqual((rows["context again"], rows["nvml again"], rows["anew"]), (46, 15, 0))


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The simulated driver as its clients see it: simgpud, simctl and the stand-in libraries in real processes. What a process
held goes when it dies, figures agree between CUDA, NVML and the oracle, and each driver profile exports and answers exactly
what the real one does."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
SIM = BUILD / "sim"
DATA = REPO / "sim/data"
PROFILES = {"535": "535.261.03", "550": "550.163.01", "13.0": "580.65.06"}
LISTS = {"535": "535.261.03", "550": "550.163.01", "13.0": "13.0"}
MIB = 1 << 20
WAIT_S = 10
WIRE = int(re.search(r"SIM_WIRE_VERSION (\d+)u", (REPO / "sim/common/wire.h").read_text(encoding="utf-8")).group(1))


class Machine:
    """One simgpud with its run directory and driver root."""

    def __init__(self, devices, **more):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sim", dir="/tmp"))
        self.config = self.dir / "machine.json"
        self.config.write_text(json.dumps({"devices": devices, **more}), encoding="utf-8")
        self.socket = self.dir / "simgpud.sock"
        self.root = self.dir / "root"
        self.daemon = None
        self.start()
        subprocess.run([SIM / "simctl", "install-root", "--config", self.config, self.root], check=True)

    def start(self):
        self.daemon = subprocess.Popen([SIM / "simgpud", "--config", self.config, "--run-dir", self.dir],
                                       stdout=subprocess.PIPE, text=True)
        line = self.daemon.stdout.readline()
        if "ready" not in line:
            raise RuntimeError(f"simgpud said {line!r}")

    def stop(self):
        if self.daemon.poll() is None:
            self.daemon.terminate()
        self.daemon.wait(WAIT_S)
        self.daemon.stdout.close()

    def close(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def env(self, **more):
        return dict(os.environ, SIMGPU_SOCKET=str(self.socket), LD_LIBRARY_PATH=str(next(self.root.glob("usr/lib/*-linux-gnu"))),
                    **more)

    def client(self, *args, group="", prefix=()):
        return subprocess.Popen([*prefix, SIM / "sim-client", *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, env=self.env(SIMGPU_GROUP=group))

    def ctl(self, *args):
        return subprocess.run([SIM / "simctl", "--socket", self.socket, *args], check=True, capture_output=True, text=True).stdout

    def oracle(self, device=0):
        return json.loads(self.ctl("oracle"))["devices"][device]

    def group(self, name, device=0):
        return next(g for g in self.oracle(device)["groups"] if g["group"] == name)

    def python(self, code, **env):
        """Runs code with `cu` and `ml` loaded and `check`, which raises on a failed call; its printed JSON."""
        prelude = ("import ctypes as C, json, os\ncu = C.CDLL('libcuda.so.1')\nml = C.CDLL('libnvidia-ml.so.1')\n"
                   "def check(rc):\n    assert rc == 0, rc\n")
        out = subprocess.run(["/usr/bin/python3", "-c", prelude + code], check=True, stdout=subprocess.PIPE, text=True,
                             env=self.env(**env), timeout=60)
        return json.loads(out.stdout)


@contextlib.contextmanager
def running(process, line):
    """A client that has said `line`; killed at the end."""
    try:
        said = process.stdout.readline().strip()
        if said != line:
            raise AssertionError(f"the client said {said!r}, not {line!r}")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def until(condition, what):
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.01)


H100 = {"name": "NVIDIA H100 80GB HBM3", "memory": "80Gi"}
SMALL = {"name": "NVIDIA T4", "memory": "1Gi", "contextBytes": "16Mi", "reservedBytes": "24Mi", "moduleBytes": "2Mi"}


class SimTest(unittest.TestCase):
    devices = [SMALL, dict(SMALL, memory="2Gi")]

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(cls.devices)
        cls.addClassCleanup(cls.machine.close)

    def setUp(self):
        self.machine.ctl("reset")


class Memory(SimTest):
    def test_hold_seen_by_oracle_with_context_and_gone_after_kill(self):
        with running(self.machine.client("hold", 100 * MIB, group="a"), "held") as p:
            a = self.machine.group("a")
            self.assertEqual((a["bytes"], a["context_bytes"], a["processes"]), (116 * MIB, 16 * MIB, 1))
            self.assertEqual(self.machine.oracle()["processes"][0]["pid"], p.pid)
            p.kill()
            p.wait()
            until(lambda: self.machine.group("a")["bytes"] == 0, "memory outlives its process")
        after = self.machine.group("a")
        self.assertEqual((after["peak_bytes"], after["processes"]), (116 * MIB, 0))
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)
        self.machine.ctl("reset")
        self.assertEqual(self.machine.oracle()["groups"], [])

    def test_two_processes_share_the_device_to_the_last_unit(self):
        free = 1024 * MIB - 24 * MIB - 2 * 16 * MIB
        with running(self.machine.client("hold", 600 * MIB), "held"):
            rest = free - 600 * MIB
            with running(self.machine.client("hold", rest), "held"):
                self.assertEqual(self.machine.oracle()["used_bytes"], 1000 * MIB)
            until(lambda: self.machine.oracle()["used_bytes"] == 616 * MIB, "the second's memory is not free")
            p = self.machine.client("hold", rest + 1)
            self.assertEqual(p.communicate()[0].strip(), "cuMemAlloc_v2 2")

    def test_context_that_does_not_fit_is_out_of_memory(self):
        with running(self.machine.client("hold", (1000 - 16 - 8) * MIB), "held"):
            p = self.machine.client("hold", 1)
            self.assertEqual(p.communicate()[0].strip(), "cuDevicePrimaryCtxRetain 2")

    def test_killed_in_the_midst_of_allocating_leaves_nothing(self):
        clients = []
        for seed in range(40):
            clients.append(self.machine.client("churn", 60, seed, group=f"g{seed % 3}"))
            clients[-1].stdout.readline()
            if len(clients) == 4:
                time.sleep(0.02)
                victim = clients.pop(0)
                victim.kill()
                victim.communicate()
        for c in clients:
            c.kill()
            c.communicate()
        until(lambda: not self.machine.oracle()["processes"], "a dead client is listed")
        oracle = self.machine.oracle()
        self.assertEqual(oracle["used_bytes"], 0)
        self.assertEqual({g["bytes"] for g in oracle["groups"]}, {0})

    def test_fork_child_keeps_the_memory_and_cannot_use_cuda(self):
        p = self.machine.client("fork")
        self.assertEqual(p.communicate()[0].split("\n")[:2], ["child 3 3", "parent 0"])
        with running(self.machine.client("fork-hold", 50 * MIB, group="f"), "child") as p:
            p.wait()
            self.assertEqual(self.machine.group("f")["bytes"], 66 * MIB)
            p.stdin.close()
            until(lambda: self.machine.group("f")["bytes"] == 0, "memory outlives the fork child")

    def test_clearing_a_whole_large_card_needs_no_memory(self):
        machine = Machine([H100])
        self.addCleanup(machine.close)
        got = machine.python("""
ctx, p = C.c_void_p(), C.c_ulonglong()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
n = 70 << 30
check(cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(n)))
check(cu.cuMemsetD8_v2(p, 7, C.c_size_t(1 << 20)))
check(cu.cuMemsetD8_v2(C.c_ulonglong(p.value + 1), 0, C.c_size_t(n - 1)))
b = C.create_string_buffer(4)
check(cu.cuMemcpyDtoH_v2(b, p, C.c_size_t(4)))
rss = int([l for l in open('/proc/self/status') if l.startswith('VmRSS')][0].split()[1])
print(json.dumps([b.raw.hex(), rss < 200000]))
""")
        self.assertEqual(got, ["07000000", True])

    def test_copies_move_bytes_and_figures_agree_with_nvml(self):
        got = self.machine.python("""
ctx, p, q = C.c_void_p(), C.c_ulonglong(), C.c_ulonglong()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 1)); check(cu.cuCtxSetCurrent(ctx))
n = C.c_size_t(1 << 20)
check(cu.cuMemAlloc_v2(C.byref(p), n)); check(cu.cuMemAllocManaged(C.byref(q), n, 1))
check(cu.cuMemsetD32_v2(p, 0x01020304, C.c_size_t(1 << 18)))
check(cu.cuMemcpyDtoD_v2(q, p, n))
managed = C.string_at(q.value, 8).hex()
back = C.create_string_buffer(1 << 20)
check(cu.cuMemcpyHtoD_v2(p, b'hello', C.c_size_t(5))); check(cu.cuMemcpyDtoH_v2(back, p, n))
free, total = C.c_size_t(), C.c_size_t()
check(cu.cuMemGetInfo_v2(C.byref(free), C.byref(total)))
bad = [cu.cuMemcpyDtoH_v2(back, C.c_ulonglong(p.value + 1), n), cu.cuMemFree_v2(C.c_ulonglong(p.value + 512)), cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(0))]
class M(C.Structure):
    _fields_ = [('total', C.c_ulonglong), ('free', C.c_ulonglong), ('used', C.c_ulonglong)]
class M2(C.Structure):
    _fields_ = [('version', C.c_uint), ('total', C.c_ulonglong), ('reserved', C.c_ulonglong), ('free', C.c_ulonglong), ('used', C.c_ulonglong)]
h, m, m2 = C.c_void_p(), M(), M2()
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(1, C.byref(h))); check(ml.nvmlDeviceGetMemoryInfo(h, C.byref(m)))
wrong = ml.nvmlDeviceGetMemoryInfo_v2(h, C.byref(m2)); m2.version = C.sizeof(M2) | 2 << 24
check(ml.nvmlDeviceGetMemoryInfo_v2(h, C.byref(m2)))
print(json.dumps([managed, back.raw[:6].hex(), free.value, total.value, bad, m.total, m.used, m2.used, m2.reserved, m2.free, wrong]))
""")
        total, used = 2048 * MIB, 20 * MIB  # two granules and a context
        self.assertEqual(got, ["0403020104030201", b"hello\x03".hex(), total - 24 * MIB - used, total - 24 * MIB, [1, 1, 1],
                               total, 24 * MIB + used, used, 24 * MIB, total - 24 * MIB - used, 25])


class Smi(SimTest):
    def test_private_table_lists_processes_for_nvidia_smi_and_for_no_other_id(self):
        got = self.machine.python("""
check(ml.nvmlInit_v2()); check(cu.cuInit(0))
ctx, table, h = C.c_void_p(), C.POINTER(C.c_void_p)(), C.c_void_p()
check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 1))
ident = bytes.fromhex('c4fe3e6cc98f6c4ea327ee696e12f7c4')
other = ml.nvmlInternalGetExportTable(C.byref(table), ident[::-1])
check(ml.nvmlInternalGetExportTable(C.byref(table), ident))
class P(C.Structure):
    _fields_ = [('pid', C.c_uint), ('used', C.c_ulonglong), ('gi', C.c_uint), ('ci', C.c_uint), ('pad', C.c_ulonglong), ('name', C.c_char * 4096)]
lists = [C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_uint), C.POINTER(P))(table[i]) for i in (213, 214, 215)]
check(C.CFUNCTYPE(C.c_int, C.c_uint, C.POINTER(C.c_void_p), C.c_uint)(table[81])(1, C.byref(h), 0x22))
room, one, short = (P * 4)(), C.c_uint(4), C.c_uint(0)
check(lists[0](h, C.byref(one), room)); rc = lists[0](h, C.byref(short), None)
empty = []
for f in lists[1:]:
    n = C.c_uint(4); check(f(h, C.byref(n), room)); empty.append(n.value)
print(json.dumps([other, table[0], one.value, room[0].pid == os.getpid(), room[0].used, room[0].name.decode(), rc, short.value, empty]))
""")
        self.assertEqual(got, [6, 2048, 1, True, 16 * MIB, "/usr/bin/python3", 7, 1, [0, 0]])


class Time(SimTest):
    def test_busy_time_is_what_was_launched(self):
        p = self.machine.client("spin", 0.5, 1000, group="s")
        with running(p, "spinning"):
            count = int(p.stdout.readline())
            p.wait()
        g = self.machine.group("s")
        self.assertEqual((g["busy_ns"], g["launches"]), (count * 1000000, count))
        self.assertEqual(self.machine.oracle()["busy_ns"], g["busy_ns"])

    def test_queued_kernels_die_with_their_process(self):
        with running(self.machine.client("queue", 100, 1000000, group="q"), "queued") as p:
            p.kill()
            p.wait()
        until(lambda: self.machine.group("q")["processes"] == 0, "a dead client is listed")
        self.assertLess(self.machine.group("q")["busy_ns"], 10 * 10**9)
        begun = time.monotonic()
        p = self.machine.client("spin", 0, 1)
        p.communicate(timeout=WAIT_S)
        self.assertLess(time.monotonic() - begun, WAIT_S)

    def test_kernels_overlap_while_sms_are_free_and_events_tell(self):
        got = self.machine.python("""
ctx, m, f = C.c_void_p(), C.c_void_p(), C.c_void_p()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
check(cu.cuModuleLoadData(C.byref(m), b'.version 8.0\\n.entry busy_us(.param .u64 us) { ret; }'))
check(cu.cuModuleGetFunction(C.byref(f), m, b'busy_us'))
us = C.c_ulonglong(3000); args = (C.c_void_p * 1)(C.addressof(us))
s = [C.c_void_p(), C.c_void_p()]; e = [C.c_void_p() for _ in range(4)]; ms = C.c_float()
for x in s: check(cu.cuStreamCreate(C.byref(x), 1))
for x in e: check(cu.cuEventCreate(C.byref(x), 0))
never = cu.cuEventElapsedTime(C.byref(ms), e[0], e[1])
def pair(grid):
    check(cu.cuEventRecord(e[0], s[0]))
    for x in (s[0], s[1]): check(cu.cuLaunchKernel(f, grid, 1, 1, 1, 1, 1, 0, x, args, None))
    check(cu.cuEventRecord(e[1], s[0])); check(cu.cuEventRecord(e[2], s[1]))
    busy = [cu.cuEventQuery(e[2]), cu.cuStreamQuery(s[1]), cu.cuEventElapsedTime(C.byref(ms), e[0], e[2])]
    check(cu.cuEventSynchronize(e[2])); done = [cu.cuEventQuery(e[2]), cu.cuStreamQuery(s[1])]
    check(cu.cuEventElapsedTime(C.byref(ms), e[1], e[2]))
    return busy + done + [round(ms.value, 3)]
print(json.dumps([never, pair(132), pair(1)]))
""")
        never, wide, narrow = got
        self.assertEqual((never, wide), (400, [600, 600, 600, 0, 0, 3.0]))  # the second waits for all the SMs
        self.assertEqual(narrow[:5], [600, 600, 600, 0, 0])
        self.assertLess(narrow[5], 2.5)  # both run at once, apart by the time between the launches

    def test_kernels_compute_and_graphs_repeat_them(self):
        got = self.machine.python("""
ctx, m, f, s = C.c_void_p(), C.c_void_p(), C.c_void_p(), C.c_void_p()
check(cu.cuInit(0)); check(cu.cuCtxCreate_v2(C.byref(ctx), 0, 0))
ptx = b'.version 8.0\\n.entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }'
check(cu.cuModuleLoadData(C.byref(m), ptx)); check(cu.cuModuleGetFunction(C.byref(f), m, b'saxpy'))
check(cu.cuStreamCreate(C.byref(s), 1))
x, y = C.c_ulonglong(), C.c_ulonglong()
for p in (x, y): check(cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(16)))
check(cu.cuMemcpyHtoD_v2(x, (C.c_float * 4)(1, 2, 3, 4), C.c_size_t(16)))
check(cu.cuMemcpyHtoD_v2(y, (C.c_float * 4)(), C.c_size_t(16)))
n, a = C.c_uint(4), C.c_float(2); args = (C.c_void_p * 4)(*[C.addressof(v) for v in (n, a, x, y)])
check(cu.cuStreamBeginCapture_v2(s, 0))
check(cu.cuLaunchKernel(f, 1, 1, 1, 4, 1, 1, 0, s, args, None))
forbidden = [cu.cuStreamIsCapturing(s, C.byref(C.c_int()))]
g, e = C.c_void_p(), C.c_void_p()
check(cu.cuStreamEndCapture(s, C.byref(g))); check(cu.cuGraphInstantiateWithFlags(C.byref(e), g, C.c_ulonglong(0)))
for _ in range(3): check(cu.cuGraphLaunch(e, s))
check(cu.cuStreamSynchronize(s))
out = (C.c_float * 4)(); check(cu.cuMemcpyDtoH_v2(out, y, C.c_size_t(16)))
check(cu.cuStreamBeginCapture_v2(s, 0)); forbidden.append(cu.cuStreamSynchronize(s)); forbidden.append(cu.cuStreamEndCapture(s, C.byref(g)))
p = C.c_ulonglong(); check(cu.cuStreamBeginCapture_v2(s, 0)); forbidden.append(cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(16))); forbidden.append(cu.cuStreamEndCapture(s, C.byref(g)))
print(json.dumps([list(out), forbidden]))
""")
        self.assertEqual(got, [[6, 12, 18, 24], [0, 900, 901, 900, 901]])

    def test_utilisation_follows_a_busy_process(self):
        with running(self.machine.client("spin", 5, 2000, group="u"), "spinning") as p:
            time.sleep(0.4)
            got = self.machine.python("""
class U(C.Structure):
    _fields_ = [('gpu', C.c_uint), ('memory', C.c_uint)]
class S(C.Structure):
    _fields_ = [('pid', C.c_uint), ('t', C.c_ulonglong), ('sm', C.c_uint), ('mem', C.c_uint), ('enc', C.c_uint), ('dec', C.c_uint)]
h, u, s, n = C.c_void_p(), U(), (S * 4)(), C.c_uint(4)
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
check(ml.nvmlDeviceGetUtilizationRates(h, C.byref(u))); check(ml.nvmlDeviceGetProcessUtilization(h, s, C.byref(n), C.c_ulonglong(0)))
print(json.dumps([u.gpu, n.value, s[0].pid, s[0].sm]))
""")
            # Ten kernels, then a wait for them: nearly always busy, as far as this machine lets the client run.
            self.assertEqual(got[1:3], [1, p.pid])
            self.assertGreater(min(got[0], got[3]), 50)


class Namespaces(SimTest):
    LIST = """
class P(C.Structure):
    _fields_ = [('pid', C.c_uint), ('used', C.c_ulonglong), ('gi', C.c_uint), ('ci', C.c_uint)]
def listed():
    h, n, p = C.c_void_p(), C.c_uint(8), (P * 8)()
    check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
    check(ml.nvmlDeviceGetComputeRunningProcesses_v3(h, C.byref(n), p))
    return [[p[i].pid, p[i].used] for i in range(n.value)]
"""

    def test_pids_are_the_callers(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make PID namespaces")
        prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode:
            self.skipTest("this machine allows no PID namespaces")
        with running(self.machine.client("hold", 10 * MIB, prefix=prefix), "held"):
            outside = self.machine.python(self.LIST + "print(json.dumps(listed()))")
            self.assertEqual([used for _, used in outside], [26 * MIB])
            comm = pathlib.Path(f"/proc/{outside[0][0]}/comm").read_text(encoding="utf-8").strip()
            self.assertEqual(comm, "sim-client")
        inside = subprocess.run([*prefix, "/usr/bin/python3", "-c", """
import ctypes as C, json, os
cu = C.CDLL('libcuda.so.1'); ml = C.CDLL('libnvidia-ml.so.1')
def check(rc):
    assert rc == 0, rc
""" + self.LIST + """
ctx = C.c_void_p(); check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0))
print(json.dumps([os.getpid(), listed()]))
"""], check=True, capture_output=True, text=True, env=self.machine.env())
        pid, listed = json.loads(inside.stdout)
        self.assertEqual(listed, [[pid, 16 * MIB]])
        with running(self.machine.client("hold", 10 * MIB), "held"):
            blind = subprocess.run([*prefix, "/usr/bin/python3", "-c", "import ctypes as C, json\nml = C.CDLL('libnvidia-ml.so.1')\n"
                                    "def check(rc):\n    assert rc == 0, rc\n" + self.LIST + "print(json.dumps(listed()))"],
                                   check=True, capture_output=True, text=True, env=self.machine.env())
            self.assertEqual(json.loads(blind.stdout), [])

    def test_devices_are_those_whose_nodes_are_there(self):
        dev = self.machine.dir / "dev"
        dev.mkdir()
        for name in ("nvidiactl", "nvidia1"):
            (dev / name).symlink_to("/dev/null")
        code = """
n, d, u = C.c_int(), C.c_uint(), C.create_string_buffer(80)
check(cu.cuInit(0)); check(cu.cuDeviceGetCount(C.byref(n)))
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetCount_v2(C.byref(d)))
h = C.c_void_p(); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); check(ml.nvmlDeviceGetUUID(h, u, 80))
print(json.dumps([n.value, d.value, u.value.decode()]))
"""
        uuid = self.machine.oracle(1)["uuid"]
        self.assertEqual(self.machine.python(code, SIMGPU_DEV_DIR=str(dev)), [1, 1, uuid])
        self.assertEqual(self.machine.python(code)[:2], [2, 2])
        self.assertEqual(self.machine.python(code, CUDA_VISIBLE_DEVICES=uuid)[:2], [1, 2])


class Profiles(unittest.TestCase):
    def test_exports_equal_the_lists(self):
        for profile, version in LISTS.items():
            for library, file in (("simcuda", f"libcuda-{version}"),
                                  ("simnvml", f"libnvidia-ml-{'550.163.01' if profile == '13.0' else version}")):
                path = SIM / f"lib{library}-{profile.replace('.', '_')}.so"
                with self.subTest(library=path.name):
                    out = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
                    exported = sorted(line.split()[2] for line in out.splitlines())
                    listed = sorted((DATA / f"{file}.exports.txt").read_text(encoding="utf-8").split())
                    self.assertEqual(exported, listed)

    def test_lookup_equals_the_real_drivers_answers(self):
        for profile in ("535", "550"):
            with self.subTest(profile=profile):
                machine = Machine([dict(SMALL, profile=profile)])
                self.addCleanup(machine.close)
                recorded = (DATA / f"answers/libcuda-{LISTS[profile]}.txt").read_text(encoding="utf-8").splitlines()
                # The request for the empty name cannot be fed through the client's words.
                recorded = [line for line in recorded if len(line.split()) == 6]
                self.assertGreater(len(recorded), 1000)
                asked = "".join(" ".join(line.split()[:3]) + "\n" for line in recorded)
                out = subprocess.run([SIM / "sim-client", "lookup"], input=asked, check=True, capture_output=True, text=True,
                                     env=machine.env()).stdout
                self.assertEqual(out.splitlines(), recorded)

    def test_lookup_quirks(self):
        machine = Machine([SMALL])
        self.addCleanup(machine.close)
        got = machine.python("""
p, s = C.c_void_p(1), C.c_int(9)
v2 = lambda name, version, status=None: [cu.cuGetProcAddress_v2(name, C.byref(p), version, C.c_ulonglong(0), status), p.value, s.value]
rows = [v2(b'cuNoSuchCall', 12000, C.byref(s)), v2(b'cuNoSuchCall', 12000), v2(b'', 12000, C.byref(s)),
        v2(b'cuMemAlloc_v2', 12000, C.byref(s)), v2(b'cuMemAlloc', 1000, C.byref(s))]
p.value = 1; old = [cu.cuGetProcAddress(b'cuNoSuchCall', C.byref(p), 12000, C.c_ulonglong(0)), p.value]
new = v2(b'cuInit', 99999, C.byref(s))
print(json.dumps([rows, old, new[0], new[1] == C.cast(cu.cuInit, C.c_void_p).value]))
""")
        self.assertEqual(got, [[[0, None, 1], [0, None, 1], [0, None, 1], [0, None, 1], [0, None, 2]], [500, 1], 0, True])

    def test_unimplemented_call_is_801_and_counted(self):
        machine = Machine([SMALL])
        self.addCleanup(machine.close)
        got = machine.python("""
before = cu.cuTexRefCreate(None); check(cu.cuInit(0))
print(json.dumps([before, cu.cuTexRefCreate(None), cu.cuTexRefCreate(None), cu.cuGetExportTable(C.byref(C.c_void_p()), b'0' * 16)]))
""")
        self.assertEqual(got, [3, 801, 801, 500])
        listed = json.loads(machine.ctl("list"))
        self.assertEqual(listed["unsupported_calls"], {"cuTexRefCreate": 2})

    def test_library_of_another_profile_is_refused(self):
        machine = Machine([dict(SMALL, profile="550")])
        self.addCleanup(machine.close)
        got = machine.python(f"""
old = C.CDLL({str(SIM / 'libsimcuda-535.so')!r}), C.CDLL({str(SIM / 'libsimnvml-535.so')!r})
print(json.dumps([old[0].cuInit(0), old[1].nvmlInit_v2(), cu.cuInit(0)]))
""")
        self.assertEqual(got, [803, 18, 0])


class Daemon(unittest.TestCase):
    def test_without_a_daemon_clients_get_clear_errors(self):
        machine = Machine([SMALL])
        self.addCleanup(machine.close)
        machine.stop()
        code = "print(json.dumps([cu.cuInit(0), ml.nvmlInit_v2()]))"
        self.assertEqual(machine.python(code), [100, 9])
        out = subprocess.run([SIM / "simctl", "--socket", machine.socket, "oracle"], capture_output=True, text=True)
        self.assertEqual(out.returncode, 1)
        self.assertIn("no simgpud runs there", out.stderr)
        machine.start()

    def test_a_daemon_that_goes_away_is_noticed(self):
        machine = Machine([SMALL])
        self.addCleanup(machine.close)
        code = f"""
ctx, other, h, u = C.c_void_p(), C.c_void_p(), C.c_void_p(), (C.c_uint * 2)()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
os.kill({machine.daemon.pid}, 9)
while open('/proc/{machine.daemon.pid}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': pass
print(json.dumps([ml.nvmlDeviceGetUtilizationRates(h, u), cu.cuCtxCreate_v2(C.byref(other), 0, 0), cu.cuCtxSynchronize()]))
"""
        self.assertEqual(machine.python(code), [15, 46, 0])
        machine.daemon.wait(WAIT_S)
        machine.daemon.stdout.close()
        machine.start()
        self.assertEqual(machine.python("print(json.dumps(cu.cuInit(0)))"), 0)

    def test_second_daemon_on_a_run_directory_is_refused(self):
        machine = Machine([SMALL])
        self.addCleanup(machine.close)
        out = subprocess.run([SIM / "simgpud", "--config", machine.config, "--run-dir", machine.dir], capture_output=True, text=True,
                             timeout=WAIT_S)
        self.assertEqual(out.returncode, 1)
        self.assertIn("another simgpud serves", out.stderr)

    def test_malformed_device_files_name_file_key_and_remedy(self):
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d) / "m.json"
            for text, wanted in (("{", "m.json"), ('{"devices":[{"memory":"1Gi","colour":1}]}', "colour"),
                                 ('{"devices":[{"memory":"lots"}]}', "devices[0].memory"), ('{"devices":[{}]}', "such as \"80Gi\""),
                                 ('{"devices":[{"memory":"1Gi","profile":"600"}]}', "\"13.0\""),
                                 ('{"devices":[{"memory":"1Gi","minor":1},{"memory":"1Gi"}]}', "devices[1].minor")):
                with self.subTest(text=text):
                    path.write_text(text, encoding="utf-8")
                    out = subprocess.run([SIM / "simgpud", "--config", path, "--run-dir", d], capture_output=True, text=True,
                                         timeout=WAIT_S)
                    self.assertEqual(out.returncode, 1)
                    self.assertIn(wanted, out.stderr)
                    self.assertIn("m.json", out.stderr)


if __name__ == "__main__":
    unittest.main()

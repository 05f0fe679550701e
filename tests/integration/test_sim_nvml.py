# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML: every way to a handle, each version of each structure to its last byte, processes as the caller's PID
namespace numbers them, topology, fields. Takes about five seconds."""

import json
import os
import subprocess
import unittest

from test_sim import MIB, SIM, SMALL, Machine, running

CARDS = [dict(SMALL, pci="0000:65:00.0", serial="1111", numaNode=0, uuid="GPU-00000000-0000-4000-8000-000000000001"),
         dict(SMALL, pci="0001:0a:1f.0", serial="2222", numaNode=1, uuid="GPU-00000000-0000-4000-8000-000000000002"),
         dict(SMALL, pci="0001:0b:00.0", serial="3333", numaNode=1, uuid="GPU-00000000-0000-4000-8000-000000000003")]

# call(name, size, version, *before): a buffer of ee with a version word (or none), handed over; [rc, bytes written from the
# start, whether everything behind `size` is untouched]. Written means up to the last byte that differs from the pattern.
PRELUDE = """
import sys
check(ml.nvmlInit_v2())
def handle(i):
    h = C.c_void_p(); check(ml.nvmlDeviceGetHandleByIndex_v2(i, C.byref(h))); return h
h = [handle(i) for i in range(3)]
def call(name, size, version, *before):
    b = bytearray(b'\\xee' * (size + 64))
    if version is not None: b[:4] = version.to_bytes(4, 'little')
    c = (C.c_ubyte * len(b)).from_buffer(b); rc = getattr(ml, name)(*before, c)
    same = bytes(b[4 if version is not None else 0:]) == b'\\xee' * (len(b) - (4 if version is not None else 0))
    return [rc, bytes(b[size:]) == b'\\xee' * 64, same]
def text(name, device, size=96):
    b = C.create_string_buffer(size); rc = getattr(ml, name)(device, b, size); return b.value.decode() if rc == 0 else rc
def number(name, *args, kind=C.c_uint):
    n = kind(); rc = getattr(ml, name)(*args, C.byref(n)); return n.value if rc == 0 else -rc
"""


class NvmlTest(unittest.TestCase):
    profile = "550"

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine([dict(c, profile=cls.profile) for c in CARDS])
        cls.addClassCleanup(cls.machine.close)

    def run_code(self, code, **env):
        return self.machine.python(PRELUDE + code, **env)


class Handles(NvmlTest):
    def test_every_name_of_a_device_leads_to_it_and_no_other_name_does(self):
        got = self.run_code("""
rows = []
for f, names in (('UUID', ['GPU-00000000-0000-4000-8000-000000000002', 'gpu-00000000-0000-4000-8000-000000000002', 'GPU-0', '']),
                 ('Serial', ['2222', '', '222']), ('PciBusId_v2', ['0001:0a:1f.0', '00000001:0A:1F.0', '1:a:1f.0', '0000:0a:1f.0', '0001:0a:1f.1', 'x']), ('PciBusId', ['00000001:0A:1F.0'])):
    for n in names:
        p = C.c_void_p(); rc = getattr(ml, 'nvmlDeviceGetHandleBy' + f)(n.encode(), C.byref(p)); rows.append(rc or h.index(next(x for x in h if x.value == p.value)) * 100)
rows.append([ml.nvmlDeviceGetHandleByIndex_v2(3, C.byref(C.c_void_p())), ml.nvmlDeviceGetHandleByIndex_v2(0, None), number('nvmlDeviceGetIndex', C.c_void_p(0x1234)), number('nvmlDeviceGetIndex', None)])
print(json.dumps(rows))""")
        self.assertEqual(got, [100, 100, 6, 6, 100, 6, 6, 100, 100, 100, 6, 6, 2, 100, [2, 2, -2, -2]])

    def test_texts_need_room_and_are_never_cut(self):
        got = self.run_code("print(json.dumps([text('nvmlDeviceGetUUID', h[0]), text('nvmlDeviceGetUUID', h[0], 41), text('nvmlDeviceGetUUID', h[0], 40), text('nvmlDeviceGetSerial', h[1]), number('nvmlDeviceGetMinorNumber', h[2])]))")
        self.assertEqual(got, [CARDS[0]["uuid"], CARDS[0]["uuid"], 7, "2222", 2])

    def test_nothing_works_before_init_and_after_shutdown(self):
        got = self.machine.python("""
n = C.c_uint(); rows = [ml.nvmlDeviceGetCount_v2(C.byref(n)), ml.nvmlShutdown()]
check(ml.nvmlInit_v2()); check(ml.nvmlInit_v2()); check(ml.nvmlShutdown()); rows.append(ml.nvmlDeviceGetCount_v2(C.byref(n))); check(ml.nvmlShutdown())
rows += [ml.nvmlDeviceGetCount_v2(C.byref(n)), ml.nvmlShutdown(), ml.nvmlEventSetCreate(C.byref(C.c_void_p()))]; print(json.dumps(rows))""")
        self.assertEqual(got, [1, 1, 0, 1, 1, 1])

    def test_a_thousand_inits_do_not_grow_the_process(self):
        got = self.machine.python("""
def maps(): return len(open('/proc/self/maps').readlines()), len(os.listdir('/proc/self/fd'))
rows = []
for i in range(1000):
    check(ml.nvmlInit_v2()); s, h = C.c_void_p(), C.c_void_p(); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); check(ml.nvmlEventSetCreate(C.byref(s)))
    check(ml.nvmlDeviceRegisterEvents(h, C.c_ulonglong(8), s)); check(ml.nvmlEventSetFree(s)); check(ml.nvmlShutdown())
    if i in (10, 999): rows.append(maps())
print(json.dumps(rows[1][0] - rows[0][0] <= 2 and rows[0][1] == rows[1][1]))""")
        self.assertTrue(got)


class Structures(NvmlTest):
    def test_no_byte_beyond_a_structure_of_that_version_is_written(self):
        got = self.run_code("""
rows = {}
for name, size, version in (('nvmlDeviceGetPciInfo', 32, None), ('nvmlDeviceGetPciInfo_v2', 52, None), ('nvmlDeviceGetPciInfo_v3', 68, None), ('nvmlDeviceGetMemoryInfo', 24, None),
                            ('nvmlDeviceGetMemoryInfo_v2', 40, 0x02000028), ('nvmlDeviceGetBAR1MemoryInfo', 24, None), ('nvmlDeviceGetUtilizationRates', 8, None),
                            ('nvmlDeviceGetPciInfoExt', 64, 0x01000040)):
    rows[name] = call(name, size, version, h[0])
rows['ecc'] = call('nvmlDeviceGetDetailedEccErrors', 32, None, h[0], 0, 0)
print(json.dumps({k: v for k, v in rows.items() if v != [0, True, False]}))""")
        self.assertEqual(got, {})

    def test_a_wrong_version_is_a_mismatch_and_writes_nothing(self):
        got = self.run_code("""
rows = []
for name, size, right in (('nvmlDeviceGetMemoryInfo_v2', 40, 0x02000028), ('nvmlDeviceGetPciInfoExt', 64, 0x01000040), ('nvmlDeviceGetProcessesUtilizationInfo', 24, 0x01000018),
                          ('nvmlDeviceGetRunningProcessDetailList', 24, 0x01000018)):
    for wrong in (0, size, right ^ 0x01000000, right ^ 0x03000000, right + 8, 0xffffffff):
        got = call(name, size, wrong, h[0]); rows += [[name, hex(wrong), got]] if got != [25, True, True] else []
print(json.dumps(rows))""")
        self.assertEqual(got, [])

    def test_null_arguments_are_refused(self):
        names = ["PciInfo_v3", "PciInfo_v2", "PciInfo", "MemoryInfo", "MemoryInfo_v2", "BAR1MemoryInfo", "UtilizationRates", "Index", "PowerUsage", "NumaNodeId",
                 "SupportedEventTypes", "RunningProcessDetailList", "ProcessesUtilizationInfo"]
        got = self.run_code(f"print(json.dumps([n for n in {names!r} if getattr(ml, 'nvmlDeviceGet' + n)(h[0], None) != 2]))")
        self.assertEqual(got, [])

    def test_process_lists_of_every_version_give_the_number_without_room_and_fill_only_what_is_there(self):
        lists = [(f"nvmlDeviceGet{kind}RunningProcesses{v}", 16 if v == "" else 24) for kind in ("Compute", "Graphics", "MPSCompute") for v in ("", "_v2", "_v3")]
        with running(self.machine.client("hold", 10 * MIB), "held") as a, running(self.machine.client("hold", 20 * MIB), "held") as b:
            got = self.run_code(f"""
rows = {{}}
for name, size in {lists!r}:
    f, n, one = getattr(ml, name), C.c_uint(0), C.c_uint(1); rc = f(h[0], C.byref(n), None)
    buf = bytearray(b'\\xee' * (size * 5)); c = (C.c_ubyte * len(buf)).from_buffer(buf); short = f(h[0], C.byref(one), c); clean = bytes(buf) == b'\\xee' * len(buf)
    four = C.c_uint(4); full = f(h[0], C.byref(four), c)
    found = sorted((int.from_bytes(buf[i * size:i * size + 4], 'little'), int.from_bytes(buf[i * size + 8:i * size + 16], 'little')) for i in range(four.value))
    rows[name] = [rc, n.value, short, one.value, clean if short else True, full, found, bytes(buf[four.value * size:]) == b'\\xee' * (len(buf) - four.value * size)]
print(json.dumps(rows))""")
            pids = sorted([[a.pid, 26 * MIB], [b.pid, 36 * MIB]])
        for name, _ in lists:
            with self.subTest(name=name):
                if "Compute" in name and "MPS" not in name:
                    self.assertEqual(got[name], [7, 2, 7, 2, True, 0, pids, True])
                else:
                    self.assertEqual(got[name], [0, 0, 0, 0, True, 0, [], True])

    def test_samples_of_processes_have_pids_times_and_percents(self):
        with running(self.machine.client("spin", 20, 900, group="s"), "spinning") as p:
            got = self.run_code("""
import time
class S(C.Structure):
    _fields_ = [('pid', C.c_uint), ('time', C.c_ulonglong), ('sm', C.c_uint), ('mem', C.c_uint), ('enc', C.c_uint), ('dec', C.c_uint)]
class I(C.Structure):
    _fields_ = [('time', C.c_ulonglong), ('pid', C.c_uint), ('sm', C.c_uint), ('mem', C.c_uint), ('enc', C.c_uint), ('dec', C.c_uint), ('jpg', C.c_uint), ('ofa', C.c_uint)]
class U(C.Structure):
    _fields_ = [('version', C.c_uint), ('count', C.c_uint), ('since', C.c_ulonglong), ('array', C.POINTER(I))]
end = time.monotonic() + 8
while True:
    s, n = (S * 4)(), C.c_uint(4); rc = ml.nvmlDeviceGetProcessUtilization(h[0], s, C.byref(n), C.c_ulonglong(0))
    if (rc == 0 and s[0].sm > 50) or time.monotonic() > end: break
    time.sleep(0.05)
late = ml.nvmlDeviceGetProcessUtilization(h[0], s, C.byref(C.c_uint(4)), C.c_ulonglong(2**62))
idle = ml.nvmlDeviceGetProcessUtilization(h[1], (S * 4)(), C.byref(C.c_uint(4)), C.c_ulonglong(0))
short = C.c_uint(0); lack = ml.nvmlDeviceGetProcessUtilization(h[0], None, C.byref(short), C.c_ulonglong(0))
i = (I * 4)(); u = U(0x01000018, 4, 0, i); info = ml.nvmlDeviceGetProcessesUtilizationInfo(h[0], C.byref(u))
fresh = abs(s[0].time / 1e6 - time.time()) < 60
print(json.dumps([rc, n.value, s[0].pid, 50 < s[0].sm <= 100, fresh, late, idle, [lack, short.value], [info, u.count, i[0].pid, i[0].sm > 0]]))""")
            self.assertEqual(got, [0, 1, p.pid, True, True, 6, 6, [7, 1], [0, 1, p.pid, True]])

    def test_processes_are_numbered_as_the_caller_sees_them(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-p", "-f", "true"], capture_output=True).returncode != 0:
            self.skipTest("a PID namespace needs root")
        with running(self.machine.client("hold", MIB), "held") as outside:
            code = f"""
import subprocess
p = subprocess.Popen([{str(SIM / 'sim-client')!r}, 'hold', '512'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True); p.stdout.readline()
n, b = C.c_uint(8), (C.c_uint * 64)(); check(ml.nvmlDeviceGetComputeRunningProcesses_v3(h[0], C.byref(n), b))
print(json.dumps([sorted(b[i * 6] for i in range(n.value)), p.pid])); p.communicate()"""
            prelude = "import ctypes as C, json, os\ncu = C.CDLL('libcuda.so.1')\nml = C.CDLL('libnvidia-ml.so.1')\ndef check(rc):\n    assert rc == 0, rc\n"
            rows = []
            for prefix in ([], ["unshare", "-p", "-f", "--mount-proc"]):
                out = subprocess.run([*prefix, "/usr/bin/python3", "-c", prelude + PRELUDE + code], env=self.machine.env(), check=True, capture_output=True, text=True, timeout=60)
                rows.append(json.loads(out.stdout))
            self.assertEqual(rows[0][0], sorted([outside.pid, rows[0][1]]))
            self.assertEqual(rows[1][0], [rows[1][1]])
            self.assertLess(rows[1][1], 100)


class Topology(NvmlTest):
    def test_ancestors_neighbours_and_peers_agree(self):
        got = self.run_code("""
level = lambda a, b: number('nvmlDeviceGetTopologyCommonAncestor', h[a], h[b])
def near(i, l):
    n, d = C.c_uint(8), (C.c_void_p * 8)(); check(ml.nvmlDeviceGetTopologyNearestGpus(h[i], l, C.byref(n), d)); return [[x.value for x in h].index(d[k]) for k in range(n.value)]
n = C.c_uint(1); short = ml.nvmlDeviceGetTopologyNearestGpus(h[0], 50, C.byref(n), (C.c_void_p * 1)()); count = C.c_uint(0); check(ml.nvmlDeviceGetTopologyNearestGpus(h[0], 50, C.byref(count), None))
p2p = [number('nvmlDeviceGetP2PStatus', h[0], h[1], i) for i in range(5)]; can = C.c_int(); check(cu.cuInit(0)); check(cu.cuDeviceCanAccessPeer(C.byref(can), 0, 1))
print(json.dumps([level(0, 0), level(0, 1), level(1, 2), near(0, 50), near(1, 40), near(0, 40), [short, n.value, count.value], p2p, can.value]))""")
        self.assertEqual(got, [0, 50, 40, [1, 2], [2], [], [7, 2, 2], [0, 0, 5, 0, 0], 1])

    def test_affinity_is_a_set_of_real_cpus(self):
        got = self.run_code("""
s, m = (C.c_ulong * 4)(*[2**64 - 1] * 4), (C.c_ulong * 1)(); check(ml.nvmlDeviceGetCpuAffinity(h[0], 3, s)); check(ml.nvmlDeviceGetMemoryAffinity(h[1], 1, m, 0))
bits = [i for i in range(192) if s[i // 64] >> i % 64 & 1]
print(json.dumps([0 < len(bits) <= os.cpu_count(), s[3] == 2**64 - 1, m[0], number('nvmlDeviceGetNumaNodeId', h[1])]))""")
        self.assertEqual(got, [True, True, 2, 1])


class Fields(unittest.TestCase):
    CODE = """
class F(C.Structure):
    _fields_ = [('id', C.c_uint), ('scope', C.c_uint), ('time', C.c_longlong), ('latency', C.c_longlong), ('type', C.c_uint), ('rc', C.c_uint), ('value', C.c_ulonglong)]
check(ml.nvmlInit_v2()); h = C.c_void_p(); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
f = (F * 4)(F(230), F(4), F(9999), F(1)); check(ml.nvmlDeviceGetFieldValues(h, 4, f))
print(json.dumps([[x.rc, x.type, x.value] if x.rc == 0 else x.rc for x in f] + [ml.nvmlDeviceGetFieldValues(h, 0, f), ml.nvmlDeviceGetFieldValues(h, 1, None)]))"""

    def test_recovery_action_where_the_driver_has_it_and_errors_in_their_own_place(self):
        for profile, action in (("13.0", [0, 1, 4]), ("550", 3), ("535", 3)):
            machine = Machine([dict(SMALL, profile=profile)])
            self.addCleanup(machine.close)
            machine.ctl("action", "0", "drain-and-reset")
            machine.ctl("ecc", "0", "uncorrected", "5")
            self.assertEqual(machine.python(self.CODE), [action, [0, 3, 5], 3, [0, 1, 1], 2, 2])


if __name__ == "__main__":
    unittest.main()

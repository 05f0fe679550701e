# SPDX-License-Identifier: Apache-2.0
"""Time on the simulated driver in real processes: who gets the device when, what events and NVML say of it, and what becomes
of clients and of simgpud when one of them dies or lies. The rules themselves are tested to the nanosecond in virtual time,
tests/unit/sim/test_sim_model.c."""

import json
import random
import subprocess
import time
import unittest

from test_sim import SMALL, WAIT_S, Machine, SimTest, running, until

TIMEOUT_S = 180
ALONE = True
BUSY = """
import ctypes as C, json, os, sys, time
cu = C.CDLL('libcuda.so.1'); ml = C.CDLL('libnvidia-ml.so.1')
def check(rc):
    assert rc == 0, rc
ctx, m, f = C.c_void_p(), C.c_void_p(), C.c_void_p()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
check(cu.cuModuleLoadData(C.byref(m), b'.version 8.0\\n.entry busy_us(.param .u64 us) { ret; }'))
check(cu.cuModuleGetFunction(C.byref(f), m, b'busy_us'))
def launch(n, stream=None, grid=1):
    us = C.c_ulonglong(n); args = (C.c_void_p * 1)(C.addressof(us))
    return cu.cuLaunchKernel(f, grid, 1, 1, 1, 1, 1, 0, stream, args, None)
def event():
    e = C.c_void_p(); check(cu.cuEventCreate(C.byref(e), 0)); return e
def ready():
    print('ready', flush=True); sys.stdin.readline()
"""
UNAVAILABLE = 46


class TimeTest(SimTest):
    devices = [dict(SMALL, copyEngines=1)]

    def program(self, code, group="", machine=None):
        machine = machine or self.machine
        return subprocess.Popen(["/usr/bin/python3", "-c", BUSY + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env=machine.env(SIMGPU_GROUP=group))

    def go(self, *processes):
        for p in processes:
            p.stdin.write("\n")
            p.stdin.flush()


class Sharing(TimeTest):
    def test_processes_take_turns_and_the_union_is_exact(self):
        code = "ready()\nfor _ in range(40): check(launch(10000))\nprint('given', flush=True); sys.stdin.readline()"
        with running(self.program(code, "a"), "ready") as a, running(self.program(code, "b"), "ready") as b:
            self.go(a, b)
            for p in (a, b):
                self.assertEqual(p.stdout.readline(), "given\n")
            until(lambda: min(self.machine.group(g)["busy_ns"] for g in "ab") >= 100 * 10**6, "no progress")
            oracle = self.machine.oracle()
            busy = [g["busy_ns"] for g in oracle["groups"]]
            self.assertEqual(sum(busy), oracle["busy_ns"])
            # Both have kernels since both were started: what one ran alone before is bounded by the start of the other.
            self.assertEqual(oracle["groups"][0]["launches"], 40)
            until(lambda: self.machine.oracle()["busy_ns"] == 800 * 10**6, "the device is not busy for what was given")

    def test_event_of_a_slowed_kernel_tells_both_contexts_time(self):
        hog = "ready()\nfor _ in range(100): check(launch(10000))\nprint('given', flush=True); sys.stdin.readline()"
        with running(self.program(hog), "ready") as p:
            self.go(p)
            p.stdout.readline()
            got = self.machine.python(BUSY + """
a, b, ms = event(), event(), C.c_float()
check(launch(10000))  # while it runs the rest is queued, so that nothing lies between the event and the kernel after it
check(cu.cuEventRecord(a, None)); check(launch(20000)); check(cu.cuEventRecord(b, None))
early = cu.cuEventQuery(b); check(cu.cuEventSynchronize(b)); check(cu.cuEventElapsedTime(C.byref(ms), a, b))
print(json.dumps([early, ms.value]))
""")
        # Ten turns of 2 ms with nine of the other's between them, and at most one before.
        self.assertEqual(got[0], 600)
        self.assertGreaterEqual(got[1], 38 - 0.001)
        self.assertLessEqual(got[1], 40.001)

    def test_copies_run_beside_the_kernels_of_others(self):
        with running(self.program("ready()\ncheck(launch(3000000))\nprint('given', flush=True); sys.stdin.readline()"), "ready") as p:
            self.go(p)
            p.stdout.readline()
            got = self.machine.python(BUSY + """
a, b, ms, d = event(), event(), C.c_float(), C.c_ulonglong()
check(cu.cuMemAlloc_v2(C.byref(d), C.c_size_t(25000000)))
check(cu.cuEventRecord(a, None)); check(cu.cuMemcpyHtoD_v2(d, bytes(25000000), C.c_size_t(25000000))); check(cu.cuEventRecord(b, None))
check(cu.cuEventSynchronize(b)); check(cu.cuEventElapsedTime(C.byref(ms), a, b)); print(json.dumps(ms.value))
""")
        self.assertGreaterEqual(got, 1.002 - 0.001)  # 25 MB at 25 GB/s; moving the bytes here takes as long as it takes
        self.assertEqual(len(self.machine.oracle()["groups"]), 1)

    def test_utilisation_is_of_a_period_that_is_over(self):
        code = "ready()\nend = time.time() + 3\nwhile time.time() < end:\n    check(launch(20000)); check(cu.cuCtxSynchronize())"
        with running(self.program(code, "u"), "ready") as p:
            self.go(p)
            time.sleep(0.5)
            values = self.machine.python("""
import time
check(ml.nvmlInit_v2()); h = C.c_void_p(); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
u, seen = (C.c_uint * 2)(), []
for _ in range(40):
    check(ml.nvmlDeviceGetUtilizationRates(h, u)); seen.append(u[0]); time.sleep(0.01)
print(json.dumps(seen))
""")
        self.assertGreater(min(values), 50)
        changes = sum(a != b for a, b in zip(values, values[1:]))
        self.assertLessEqual(changes, 4)  # a new value comes at the end of a period, some 0.4 s have three


class Durations(TimeTest):
    def test_arguments_then_rules_by_name_then_grid_and_block_say_how_long(self):
        machine = Machine(self.devices, kernels=[{"name": "gemm_*", "us": 700}, {"name": "wave", "waveUs": 5.5}, {"name": "busy_us", "us": 9}])
        self.addCleanup(machine.close)
        got = machine.python(BUSY + """
names = ('gemm_f16', 'wave', 'other')
ptx = '.version 8.0\\n' + ''.join(f'.entry {n}() {{ ret; }}\\n' for n in names)
check(cu.cuModuleLoadData(C.byref(m), ptx.encode()))
a, b, ms, s = event(), event(), C.c_float(), C.c_void_p()
check(cu.cuStreamCreate(C.byref(s), 1))
def time_of(run):
    # Behind a kernel, so that no gap between the calls counts.
    check(launch(20000, s)); check(cu.cuEventRecord(a, s)); check(run()); check(cu.cuEventRecord(b, s))
    check(cu.cuEventSynchronize(b)); check(cu.cuEventElapsedTime(C.byref(ms), a, b)); return round(ms.value * 1000, 1)
def plain(name, grid, block):
    k = C.c_void_p(); check(cu.cuModuleGetFunction(C.byref(k), m, name.encode()))
    return lambda: cu.cuLaunchKernel(k, grid, 1, 1, block, 1, 1, 0, s, None, None)
sms = 40
print(json.dumps([time_of(lambda: launch(1234, s)), time_of(plain('gemm_f16', 9999, 256)), time_of(plain('wave', 3 * sms, 1024)),
                  time_of(plain('other', sms, 1024)), time_of(plain('other', 4 * sms + 1, 256)), time_of(plain('other', 4 * sms, 256))]))
""")
        # An SM of a T4 holds 1,024 threads: one block of 1,024, or four of 256.
        self.assertEqual(got, [1234.0, 700.0, 16.5, 20.0, 40.0, 20.0])


class Deaths(TimeTest):
    def test_clients_killed_in_any_call_disturb_nobody(self):
        code = "ready()\nwhile True:\n    check(launch(5)); check(cu.cuEventQuery(e) * 0); check(cu.cuEventRecord(e, None))"
        code = "e = event()\n" + code
        witness = "ready()\nfor _ in range(300):\n    check(launch(1000)); check(cu.cuCtxSynchronize())\nprint('done', flush=True)"
        rng = random.Random(4)
        with running(self.program(witness, "w"), "ready") as w:
            self.go(w)
            for _ in range(3):
                victims = [self.program(code, "v") for _ in range(3)]
                for v in victims:
                    self.assertEqual(v.stdout.readline(), "ready\n")
                self.go(*victims)
                for v in victims:
                    time.sleep(rng.random() / 20)
                    v.kill()
                    v.wait()
                    v.stdin.close()
                    v.stdout.close()
            self.assertEqual(w.stdout.readline(), "done\n")
        until(lambda: not self.machine.oracle()["processes"], "a dead client is listed")
        self.assertEqual((self.machine.group("w")["busy_ns"], self.machine.group("w")["launches"]), (300 * 10**6, 300))
        groups = self.machine.oracle()["groups"]
        self.assertEqual(sum(g["busy_ns"] for g in groups), self.machine.oracle()["busy_ns"])

    def test_waiter_gets_on_as_soon_as_the_other_is_dead(self):
        with running(self.program("ready()\ncheck(launch(20000000))\nprint('given', flush=True); sys.stdin.readline()"), "ready") as p:
            self.go(p)
            p.stdout.readline()
            waiter = self.program("ready()\ncheck(launch(1500000)); check(cu.cuCtxSynchronize())\nprint('done', flush=True)")
            with running(waiter, "ready"):
                self.go(waiter)
                time.sleep(0.2)
                killed = time.monotonic()
                p.kill()
                self.assertEqual(waiter.stdout.readline(), "done\n")
                self.assertGreater(time.monotonic() - killed, 1.2)  # it had had a tenth of a second
                self.assertLess(time.monotonic() - killed, 1.5 + WAIT_S)

    def test_client_that_writes_nonsense_is_cut_off(self):
        liar = """
span = next(l.split()[0].split('-') for l in open('/proc/self/maps') if 'simgpu-client' in l)
words = (C.c_ulonglong * 2048).from_address(int(span[0], 16))
check(launch(1)); check(cu.cuCtxSynchronize())
was = list(words)
for _ in range(37): check(launch(1))
tail = [i for i in range(2048) if words[i] - was[i] == 37][0]
words[tail] += 1 << 40
ready(); print(cu.cuCtxSynchronize(), flush=True)
"""
        honest = "ready()\nfor _ in range(20):\n    check(launch(1000)); check(cu.cuCtxSynchronize())\nprint('done', flush=True)"
        with running(self.program(honest), "ready") as p, running(self.program(liar), "ready") as q:
            self.machine.oracle()  # a pass
            self.go(p, q)
            self.assertEqual(p.stdout.readline(), "done\n")
            self.assertEqual(q.stdout.readline(), f"{UNAVAILABLE}\n")
        until(lambda: self.machine.oracle()["used_bytes"] == 0, "its memory is not free")

    def test_dead_simgpud_gives_errors_and_no_hang(self):
        machine = Machine(self.devices)
        self.addCleanup(machine.close)
        code = """
e = event(); check(launch(60000000)); check(cu.cuEventRecord(e, None)); ready()
rcs = {'wait': cu.cuCtxSynchronize(), 'event': cu.cuEventSynchronize(e)}
end = time.monotonic() + 10; rc = 0
while rc in (0, 600) and time.monotonic() < end: rc = cu.cuEventQuery(e)
rcs['query'] = rc
s = C.c_void_p(); check(cu.cuStreamCreate(C.byref(s), 1)); rc = 0
for _ in range(20000):
    rc = launch(0, s)
    if rc: break
rcs['launch'] = rc
print(json.dumps(rcs), flush=True)
"""
        with running(self.program(code, machine=machine), "ready") as p:
            self.go(p)
            time.sleep(0.3)
            machine.daemon.kill()
            machine.daemon.wait()
            got = json.loads(p.stdout.readline())
        self.assertEqual((got["wait"], got["event"], got["launch"]), (UNAVAILABLE,) * 3)
        # Until the kernel can be done, a query needs nobody: it says "not ready".
        self.assertIn(got["query"], (600, UNAVAILABLE))


class Many(TimeTest):
    def test_many_clients_at_once_leave_nothing(self):
        clients = [self.machine.client("spin", 1, 100, group=f"m{i % 4}") for i in range(40)]
        launched = 0
        for p in clients:
            self.assertEqual(p.stdout.readline(), "spinning\n")
        for p in clients:
            launched += int(p.stdout.readline())
            p.communicate()
        until(lambda: not self.machine.oracle()["processes"], "a client is listed")
        oracle = self.machine.oracle()
        self.assertEqual(sum(g["launches"] for g in oracle["groups"]), launched)
        self.assertEqual(oracle["busy_ns"], launched * 100000)
        self.assertEqual(oracle["used_bytes"], 0)


del TimeTest

if __name__ == "__main__":
    unittest.main(verbosity=2)

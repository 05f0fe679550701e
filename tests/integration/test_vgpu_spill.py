# SPDX-License-Identifier: Apache-2.0
"""spillToHost under libvgpu.so, on the simulated driver: what finds no room on the device lies on the host, by a limit of its own and in a
book of its own, and the device gives nothing for it. About 4 s."""

import subprocess
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import test_vgpu
from test_vgpu import CONTEXT, GIB, MIB, OUT_OF_MEMORY, SIMCTL, STATE
from test_vgpu_memory import Memory, oracle, until

TIMEOUT_S = 120
INVALID_VALUE = 1
SECTION = 135168


def setUpModule():
    test_vgpu.setUpModule()


def tearDownModule():
    test_vgpu.tearDownModule()


class Spill(Memory):
    def spilled(self, name="claim-0"):
        return self.held(name, section=1)

    def full(self, limit=GIB, spill=2 * GIB, **values):
        """A program whose device share has 16 MiB left."""
        program = self.begin(limit, spill=spill, **values)
        self.fill = limit - self.base_held - 16 * MIB
        program(f"fill = make('cuMemAlloc_v2', {self.fill})")
        return program

    def assertBooked(self, device, host):
        """Beside the context; the device's own figure is that of the device's book."""
        self.assertEqual((self.held() - self.base_held, self.spilled()), (device, host))
        self.assertLessEqual(oracle(self.group) - self.base_oracle, device + 2 * MIB)


class Places(Spill):
    def test_allocation_beyond_the_device_limit_lies_on_the_host_and_is_given_back(self):
        program = self.full()
        program(f"a = make('cuMemAlloc_v2', {GIB + 12345})")
        self.assertBooked(self.fill, GIB + 12345)
        program("b = make('cuMemAlloc_v2', 8 * 2**20)")
        self.assertBooked(self.fill + 8 * MIB, GIB + 12345)
        self.assertEqual(program("""
data = ctypes.create_string_buffer(bytes(range(256)) * 16)
back = ctypes.create_string_buffer(4096)
cu('cuMemcpyHtoD_v2', a, data, 4096)
cu('cuMemcpyDtoD_v2', b, a, 4096)
cu('cuMemcpyDtoH_v2', back, b, 4096)
back.raw == data.raw[:4096]"""), True)
        program("cu('cuMemFree_v2', a)\ncu('cuMemFree_v2', b)")
        self.assertBooked(self.fill, 0)
        self.assertNotEqual(program("rc('cuMemFree_v2', a)"), 0)
        self.assertBooked(self.fill, 0)

    def test_spill_limit_is_exact_and_beyond_it_memory_is_exhausted(self):
        program = self.full(spill=100 * MIB + 7)
        self.assertEqual(program(f"try_make('cuMemAlloc_v2', {100 * MIB + 8})"), [OUT_OF_MEMORY, 0])
        program(f"a = make('cuMemAlloc_v2', {100 * MIB})")
        self.assertEqual(program("try_make('cuMemAlloc_v2', 17 * 2**20)"), [OUT_OF_MEMORY, 0])
        program("cu('cuMemFree_v2', a)")
        self.assertEqual(program(f"(r := try_make('cuMemAlloc_v2', {100 * MIB + 7}))[0]"), 0)
        self.assertBooked(self.fill, 100 * MIB + 7)
        self.publish(GIB, spill=0)  # lowered by the node: what lies there stays, nothing comes
        program("cu('cuMemFree_v2', r[1])")
        self.assertEqual(program(f"try_make('cuMemAlloc_v2', {100 * MIB})"), [OUT_OF_MEMORY, 0])
        self.assertBooked(self.fill, 0)

    def test_one_allocation_may_be_larger_than_the_device_share(self):
        program = self.begin(GIB, spill=8 * GIB)
        program("a = make('cuMemAlloc_v2', 6 * 2**30)")
        self.assertBooked(0, 6 * GIB)
        program("cu('cuMemFree_v2', a)")
        self.assertBooked(0, 0)

    def test_pitched_allocation_spills_with_the_drivers_pitch(self):
        program = self.full()
        bare = self.program(preload=False, SIMGPU_GROUP="bare").start()
        code = "p = out()\nat, pitch = make('cuMemAllocPitch_v2', ref(p), 5001, 4096, 4), p.value\npitch"
        self.assertEqual(program(code), bare(code))
        self.assertBooked(self.fill, program("pitch") * 4096)
        for bad in ("ref(out()), ref(p), 5001, 4096, 5", "ref(out()), ref(p), 0, 4096, 4", "ref(out()), ref(p), 5001, 0, 4"):
            self.assertIn(program(f"rc('cuMemAllocPitch_v2', {bad})"), (INVALID_VALUE, OUT_OF_MEMORY))
        program("cu('cuMemFree_v2', at)")
        self.assertBooked(self.fill, 0)

    def test_pointer_is_what_the_driver_says_of_memory_on_the_host(self):
        program = self.full()
        program("a = make('cuMemAlloc_v2', 2**26)")
        self.assertEqual(program("""
def attribute(which):
    value = out()
    cu('cuPointerGetAttribute', ref(value), which, a)
    return value.value
where = out(ctypes.c_int)
cu('cuMemRangeGetAttribute', ref(where), 4, 2, a, 2**26)
[attribute(2), attribute(8), attribute(12), where.value]"""), [2, 1, 64 * MIB, -1])  # device type, managed, its size; prefers the host

    def test_other_kinds_never_spill(self):
        program = self.full()
        for call in ("'cuMemAllocManaged', 2**26, 1", "'cuMemAllocAsync', 2**26, 0", "'cuMemCreate', 2**26, physical_props(), 0",
                     "'cuArray3DCreate_v2', struct.pack('<QQQIII4x', 4096, 4096, 0, 0x20, 4, 0)"):
            with self.subTest(call):
                self.assertEqual(program(f"try_make({call})"), [OUT_OF_MEMORY, 0])
        self.assertBooked(self.fill, 0)
        program("a = make('cuMemAlloc_v2', 2**26)")
        self.assertEqual(program("rc('cuIpcGetMemHandle', ctypes.create_string_buffer(64), a)"), INVALID_VALUE)
        self.assertBooked(self.fill, 64 * MIB)

    def test_advice_and_prefetches_do_not_take_it_to_the_device(self):
        program = self.full()
        program("a = make('cuMemAlloc_v2', 2**26)")
        self.assertEqual(program("""
there = U64(1)  # {type: device, id: 0}
results = [rc('cuMemAdvise', a, 2**26, 3, 0), rc('cuMemAdvise_v2', a + 4096, 4096, 3, there), rc('cuMemPrefetchAsync', a, 2**26, 0, 0)]
results + [rc('cuMemPrefetchAsync_v2', a + 2**25, 4096, there, 0, 0), rc('cuMemPrefetchAsync_ptsz', a, 4096, 0, 0)]"""), [INVALID_VALUE] * 5)
        self.assertBooked(self.fill, 64 * MIB)
        program("cu('cuMemFree_v2', fill)\nm = make('cuMemAllocManaged', 2**26, 1)\ncu('cuMemPrefetchAsync', m, 2**26, 0, 0)")
        self.assertBooked(64 * MIB, 64 * MIB)

    def test_context_takes_its_spilled_memory_along(self):
        program = self.full()
        program("make('cuMemAlloc_v2', 2**26)\ncu('cuCtxDestroy_v2', context)")
        self.assertEqual((self.held(), self.spilled()), (0, 0))

    def test_shown_memory_is_the_devices(self):
        program = self.full()
        program("a = make('cuMemAlloc_v2', 2**26)\nf, t = out(), out()\ncu('cuMemGetInfo_v2', ref(f), ref(t))")
        self.assertEqual(program("[f.value, t.value]"), [16 * MIB, GIB])

    def test_without_a_limit_for_it_nothing_spills(self):
        program = self.begin(GIB)  # as an older daemon writes control and usage
        self.assertEqual(program("try_make('cuMemAlloc_v2', 2**30)"), [OUT_OF_MEMORY, 0])
        self.publish(GIB, spill=GIB)  # the file has no book for it
        self.assertEqual(program("try_make('cuMemAlloc_v2', 2**30)"), [OUT_OF_MEMORY, 0])


class Processes(Spill):
    def test_limit_is_one_for_all_processes_and_the_dead_give_theirs_back(self):
        first = self.full(spill=GIB)
        first("a = make('cuMemAlloc_v2', 700 * 2**20)")
        self.publish(GIB + CONTEXT, spill=GIB)
        second = self.program().start()
        self.assertEqual(second("try_make('cuMemAlloc_v2', 700 * 2**20)"), [OUT_OF_MEMORY, 0])
        self.assertEqual(second("(b := try_make('cuMemAlloc_v2', 300 * 2**20))[0]"), 0)
        self.assertEqual(self.spilled(), 1000 * MIB)
        first.kill()
        until(lambda: second("try_make('cuMemAlloc_v2', 2**30 - 301 * 2**20)[0]") == 0, "a dead process's spilled memory stays booked")
        self.assertEqual(self.spilled(), 300 * MIB)

    def test_fork_child_has_its_own_book(self):
        program = self.full(spill=GIB)
        program("a = make('cuMemAlloc_v2', 2**28)\nimport os, time\nr, w = os.pipe()")
        self.assertEqual(program("""
pid = os.fork()
if pid == 0:
    os._exit(0 if rc('cuMemFree_v2', a) else 1)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"""), 0)
        self.assertEqual(self.spilled(), 256 * MIB)
        program("cu('cuMemFree_v2', a)")
        self.assertBooked(self.fill, 0)

    def test_wait_comes_after_both_places_are_full_and_either_ends_it(self):
        holder = self.full(spill=GIB, wait=30)
        self.publish(GIB + CONTEXT, spill=GIB, wait=30)
        waiter = self.program().start()
        start = time.monotonic()
        waiter("a = make('cuMemAlloc_v2', 600 * 2**20)")  # the host serves at once
        self.assertLess(time.monotonic() - start, 15)
        holder("b = make('cuMemAlloc_v2', 400 * 2**20)")
        for free in ("b", "fill"):
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(waiter, "(r := try_make('cuMemAlloc_v2', 300 * 2**20))[0]")
                time.sleep(0.1)
                self.assertFalse(answer.done())
                holder(f"cu('cuMemFree_v2', {free})")
                self.assertEqual(answer.result(20), 0)
        self.publish(GIB + CONTEXT, spill=GIB, wait=1)
        self.assertEqual(waiter("try_make('cuMemAlloc_v2', 700 * 2**20)"), [OUT_OF_MEMORY, 0])

    def test_several_shares_of_one_gpu_add_up(self):
        self.share(GIB, spill=100 * MIB)
        self.share(512 * MIB, name="claim-1")  # which may not spill
        self.share(512 * MIB, name="claim-2", spill=50 * MIB)
        program = self.program().start()
        self.assertEqual(program(f"try_make('cuMemAlloc_v2', {2 * GIB})"), [OUT_OF_MEMORY, 0])
        program(f"fill = make('cuMemAlloc_v2', {2 * GIB - CONTEXT})\na = make('cuMemAlloc_v2', {120 * MIB})")
        self.assertEqual((self.spilled("claim-0"), self.spilled("claim-2")), (100 * MIB, 20 * MIB))
        self.assertEqual(program(f"try_make('cuMemAlloc_v2', {31 * MIB})"), [OUT_OF_MEMORY, 0])
        self.assertEqual((self.spilled("claim-0"), self.spilled("claim-2")), (100 * MIB, 20 * MIB))
        program("cu('cuMemFree_v2', a)")
        self.assertEqual((self.spilled("claim-0"), self.spilled("claim-2")), (0, 0))

    def test_racing_threads_never_pass_the_limit(self):
        program = self.full(spill=64 * MIB)
        self.assertEqual(program("""
import threading
results, line = [], threading.Barrier(6)
def churn():
    cu('cuCtxSetCurrent', context)
    for _ in range(50):
        line.wait()
        result, at = try_make('cuMemAlloc_v2', 20 * 2**20)
        results.append(result)
        line.wait()
        if not result: cu('cuMemFree_v2', at)
threads = [threading.Thread(target=churn) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
[results[i:i + 6].count(0) for i in range(0, 300, 6)]"""), [3] * 50)
        self.assertBooked(self.fill, 0)


class Faults(Spill):
    def test_failing_calls_of_the_librarys_own_leave_nothing_behind(self):
        def simctl(*command):
            subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", *command], check=True, stdout=subprocess.DEVNULL)

        self.addCleanup(simctl, "clear")
        program = self.full()
        for entry, result, wanted in (("cuMemAllocManaged", 2, [OUT_OF_MEMORY, 0]), ("cuMemAllocManaged", 801, [OUT_OF_MEMORY, 0]),
                                      ("cuMemAllocManaged", 999, [999, 0]), ("cuMemAdvise*", 801, [OUT_OF_MEMORY, 0])):
            with self.subTest(f"{entry} gives {result}"):
                simctl("fault", entry, "--return", str(result), "--own", "libvgpu.so")
                self.assertEqual(program("try_make('cuMemAlloc_v2', 2**26)"), wanted)
                self.assertBooked(self.fill, 0)
                simctl("clear")
        program("a = make('cuMemAlloc_v2', 2**26)")
        simctl("fault", "cuPointerGetAttribute", "--return", "999", "--own", "libvgpu.so")
        self.assertEqual(program("rc('cuMemPrefetchAsync', a, 2**26, 0, 0)"), 999)
        self.assertBooked(self.fill, 64 * MIB)
        simctl("clear")
        program("cu('cuMemFree_v2', a)")
        self.assertBooked(self.fill, 0)


del Memory
if __name__ == "__main__":
    unittest.main()

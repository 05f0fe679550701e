# SPDX-License-Identifier: Apache-2.0
"""Every byte of device memory under libvgpu.so, on the simulated driver: for each kind of memory, what is charged is at least what the
driver holds for the share, nothing is left when it is freed, and it is refused where it has to be and nowhere else. About 30 s."""

import json
import os
import subprocess
import tempfile
import time
import unittest

import test_vgpu
from test_vgpu import BUILD, CONTEXT, GIB, MIB, OUT_OF_MEMORY, SIMCTL, SOURCES, STATE, Case

TIMEOUT_S = 300
CLIENT = SOURCES / "vgpu_memory_client.py"


def setUpModule():
    test_vgpu.setUpModule()


def tearDownModule():
    test_vgpu.tearDownModule()


def oracle(group, device=0):
    text = subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", "oracle"], check=True, stdout=subprocess.PIPE).stdout
    return sum(g["bytes"] for g in json.loads(text)["devices"][device]["groups"] if g["group"] == group)


def until(condition, message, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(message)
        time.sleep(0.01)


class Program:
    def __init__(self, case, preload=True, profile="550", **env):
        directory = STATE["dir"]
        full = {"PATH": os.environ["PATH"], "SIMGPU_SOCKET": str(directory / "simgpud.sock"), "LD_LIBRARY_PATH": str(directory / "lib"),
                "SIMGPU_GROUP": case.group, "ALIQUOT_SHARE_ROOT": str(case.shares), "PYTHONDONTWRITEBYTECODE": "1", **env}
        if preload:
            full["LD_PRELOAD"] = str(directory / "lib/libvgpu.so")
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(["/usr/bin/python3", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env=full, pass_fds=case.pass_fds)
        case.addCleanup(self.close)

    def __call__(self, code):
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise AssertionError(f"{code}: ended with {self.process.wait()}: {self.errors.read().decode()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{code}: {answer['error']}")
        return answer

    def start(self, device=0):
        self(f"start({device})")
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.errors.close()


class Memory(Case):
    pass_fds = ()

    def setUp(self):
        super().setUp()
        self.group = self.id().rsplit(".", 1)[1]

    def program(self, **options):
        return Program(self, **options)

    def begin(self, limit, **values):
        """A share, a program with a context in it, and the two figures that everything is held against."""
        self.share(limit, **values)
        program = self.program().start()
        self.base_held, self.base_oracle = self.held(), oracle(self.group)
        return program

    def grown(self):
        """(charged, held by the driver) since begin."""
        return self.held() - self.base_held, oracle(self.group) - self.base_oracle

    def assertCovered(self):
        charged, physical = self.grown()
        self.assertGreaterEqual(charged, physical)
        return charged

    def assertNothingLeft(self):
        self.assertEqual(self.grown(), (0, 0))


class Pools(Memory):
    def test_what_a_pool_keeps_is_charged_until_the_driver_trims_it(self):
        program = self.begin(4 * GIB)
        program("a = make('cuMemAllocAsync', 100 * 2**20, 0)")
        self.assertGreaterEqual(self.assertCovered(), 100 * MIB)
        program("cu('cuMemFreeAsync', a, 0)")
        self.assertCovered()
        program("cu('cuCtxSynchronize')")
        self.assertNothingLeft()

    def test_release_threshold_keeps_the_charge_and_trim_ends_it(self):
        program = self.begin(4 * GIB)
        program("""
pool = make('cuMemPoolCreate', pool_props())
cu('cuMemPoolSetAttribute', pool, 4, ref(U64(2**40)))
a = make('cuMemAllocFromPoolAsync', 200 * 2**20, pool, 0)
cu('cuMemFreeAsync', a, 0)
cu('cuCtxSynchronize')""")
        self.assertGreaterEqual(self.assertCovered(), 200 * MIB)
        self.assertEqual(program("try_make('cuMemAllocFromPoolAsync', 200 * 2**20, pool, 0)[0]"), 0)
        self.assertCovered()
        program("cu('cuMemPoolTrimTo', pool, 0)\ncu('cuMemPoolDestroy', pool)")

    def test_destroyed_pool_is_charged_until_its_last_allocation_goes(self):
        program = self.begin(4 * GIB)
        program("""
pool = make('cuMemPoolCreate', pool_props())
a = make('cuMemAllocFromPoolAsync', 64 * 2**20, pool, 0)
b = make('cuMemAllocFromPoolAsync', 64 * 2**20, pool, 0)
cu('cuMemPoolDestroy', pool)
cu('cuMemFree_v2', a)""")
        self.assertGreaterEqual(self.assertCovered(), 64 * MIB)
        program("cu('cuMemFree_v2', b)\ncu('cuCtxSynchronize')")
        self.assertNothingLeft()

    def test_refusal_comes_at_the_limit_and_leaves_nothing(self):
        program = self.begin(2 * GIB)
        room = 2 * GIB - self.base_held
        self.assertEqual(program(f"try_make('cuMemAllocAsync', {room + 1}, 0)"), [OUT_OF_MEMORY, 0])
        self.assertNothingLeft()
        self.assertEqual(program(f"(r := try_make('cuMemAllocAsync', {room // (2 * MIB) * 2 * MIB}, 0))[0]"), 0)
        self.assertCovered()
        self.assertLessEqual(self.held(), 2 * GIB)
        program("cu('cuMemFreeAsync', r[1], 0)\ncu('cuCtxSynchronize')")
        self.assertNothingLeft()

    def test_unused_pool_memory_gives_way_to_other_allocations(self):
        program = self.begin(2 * GIB)
        room = 2 * GIB - self.base_held
        program(f"""
pool = out()
cu('cuDeviceGetDefaultMemPool', ref(pool), 0)
cu('cuMemPoolSetAttribute', pool.value, 4, ref(U64(2**40)))
a = make('cuMemAllocAsync', {room // 2}, 0)
cu('cuMemFreeAsync', a, 0)
cu('cuCtxSynchronize')""")
        self.assertGreaterEqual(self.assertCovered(), room // 2)
        self.assertEqual(program(f"(r := try_make('cuMemAlloc_v2', {room // (2 * MIB) * 2 * MIB}))[0]"), 0)
        self.assertCovered()
        program("cu('cuMemFree_v2', r[1])")
        self.assertNothingLeft()

    def test_pool_of_another_device_is_charged_there(self):
        self.share(4 * GIB)
        self.share(4 * GIB, device=1, name="claim-1")
        program = self.program().start()
        before = self.held("claim-0"), self.held("claim-1")
        program("pool = make('cuMemPoolCreate', pool_props(1))\na = make('cuMemAllocFromPoolAsync', 100 * 2**20, pool, 0)")
        self.assertEqual(self.held("claim-0"), before[0])
        self.assertGreaterEqual(self.held("claim-1") - before[1], oracle(self.group, 1))
        self.assertGreaterEqual(self.held("claim-1") - before[1], 100 * MIB)
        program("cu('cuMemFreeAsync', a, 0)\ncu('cuCtxSynchronize')")
        self.assertEqual(self.held("claim-1"), before[1])

    def test_per_thread_stream_forms_are_charged_alike(self):
        program = self.begin(2 * GIB)
        self.assertEqual(program("try_make('cuMemAllocAsync_ptsz', 2**31, 0)[0]"), OUT_OF_MEMORY)
        program("a = make('cuMemAllocAsync_ptsz', 64 * 2**20, 0)")
        self.assertGreaterEqual(self.assertCovered(), 64 * MIB)
        program("cu('cuMemFreeAsync_ptsz', a, 0)\ncu('cuStreamSynchronize_ptsz', 0)")
        self.assertNothingLeft()

    def test_killed_program_leaves_nothing(self):
        program = self.begin(2 * GIB)
        program("make('cuMemAllocAsync', 2**30, 0)")
        program.kill()
        until(lambda: oracle(self.group) == 0, "the driver keeps memory of a dead process")
        self.assertEqual(self.program().start()("try_make('cuMemAlloc_v2', 2**30 + 2**29)[0]"), 0)


class Graphs(Memory):
    def test_graph_memory_is_charged_while_the_driver_has_it(self):
        program = self.begin(4 * GIB)
        program("""
graph = make('cuGraphCreate', 0)
node = alloc_node(256 * 2**20)
first = make('cuGraphAddMemAllocNode', graph, 0, 0, node)
make('cuGraphAddMemFreeNode', graph, ref(U64(first)), 1, node_pointer(node))
exe = make('cuGraphInstantiateWithFlags', graph, 0)
cu('cuGraphLaunch', exe, 0)
cu('cuCtxSynchronize')""")
        self.assertGreaterEqual(self.assertCovered(), 256 * MIB)
        charged = self.held()
        program("for _ in range(20): cu('cuGraphLaunch', exe, 0)\ncu('cuCtxSynchronize')")
        self.assertEqual(self.held(), charged)
        program("cu('cuGraphExecDestroy', exe)\ncu('cuGraphDestroy', graph)\ncu('cuDeviceGraphMemTrim', 0)")
        self.assertNothingLeft()

    def test_graph_that_does_not_fit_is_refused_at_launch_and_upload(self):
        program = self.begin(GIB)
        program("""
graph = make('cuGraphCreate', 0)
node = alloc_node(2**30)
make('cuGraphAddMemAllocNode', graph, 0, 0, node)
exe = make('cuGraphInstantiateWithFlags', graph, 0)""")
        self.assertEqual(program("[rc('cuGraphLaunch', exe, 0), rc('cuGraphUpload', exe, 0)]"), [OUT_OF_MEMORY] * 2)
        program("cu('cuGraphExecDestroy', exe)\ncu('cuGraphDestroy', graph)\ncu('cuDeviceGraphMemTrim', 0)")
        self.assertNothingLeft()

    def test_captured_allocation_is_the_graphs(self):
        program = self.begin(4 * GIB)
        program("""
stream = make('cuStreamCreate', 1)
cu('cuStreamBeginCapture_v2', stream, 0)
a = make('cuMemAllocAsync', 128 * 2**20, stream)
cu('cuMemFreeAsync', a, stream)
graph = out()
cu('cuStreamEndCapture', stream, ref(graph))
exe = make('cuGraphInstantiateWithFlags', graph.value, 0)
cu('cuGraphLaunch', exe, stream)
cu('cuStreamSynchronize', stream)""")
        self.assertGreaterEqual(self.assertCovered(), 128 * MIB)
        program("cu('cuGraphExecDestroy', exe)\ncu('cuGraphDestroy', graph.value)\ncu('cuDeviceGraphMemTrim', 0)")
        self.assertNothingLeft()


if __name__ == "__main__":
    unittest.main()

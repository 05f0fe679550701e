# SPDX-License-Identifier: Apache-2.0
"""Every byte of device memory under libvgpu.so, on the simulated driver: for each kind of memory, what is charged is at least what the
driver holds for the share, nothing is left when it is freed, and it is refused where it has to be and nowhere else. About 30 s."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

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


class Mappings(Memory):
    def test_physical_memory_is_charged_by_handles_and_mappings(self):
        program = self.begin(4 * GIB)
        program("""
size = 64 * 2**20
h = make('cuMemCreate', size, physical_props(), 0)
at = make('cuMemAddressReserve', 4 * size, 0, 0, 0)
for i in range(3): cu('cuMemMap', at + i * size, size, 0, h, 0)
again = make('cuMemRetainAllocationHandle', P(at))
cu('cuMemRelease', h)""")
        self.assertEqual(self.assertCovered(), 64 * MIB)
        program("cu('cuMemRelease', again)\ncu('cuMemUnmap', at, 2 * size)")
        self.assertEqual(self.assertCovered(), 64 * MIB)
        self.assertNotEqual(program("rc('cuMemUnmap', at, 2 * size)"), 0)
        self.assertEqual(self.assertCovered(), 64 * MIB)
        program("cu('cuMemUnmap', at + 2 * size, size)")
        self.assertNothingLeft()

    def test_part_of_physical_memory_mapped_holds_all_of_it(self):
        program = self.begin(4 * GIB)
        program("""
h = make('cuMemCreate', 2**26, physical_props(), 0)
at = make('cuMemAddressReserve', 2**26, 0, 0, 0)
cu('cuMemMap', at, 2**25, 0, h, 0)
cu('cuMemRelease', h)""")
        self.assertEqual(self.assertCovered(), 64 * MIB)
        program("cu('cuMemUnmap', at, 2**25)")
        self.assertNothingLeft()

    def test_many_mappings_are_unmapped_in_one_call(self):
        program = self.begin(4 * GIB)
        program("""
n, size = 200, 2 * 2**20
at = make('cuMemAddressReserve', n * size, 0, 0, 0)
for i in range(n):
    h = make('cuMemCreate', size, physical_props(), 0)
    cu('cuMemMap', at + i * size, size, 0, h, 0)
    cu('cuMemRelease', h)
None""")
        self.assertEqual(self.assertCovered(), 400 * MIB)
        program("cu('cuMemUnmap', at, n * size)")
        self.assertNothingLeft()

    def test_range_of_any_size_is_judged_by_the_driver_at_once(self):
        program, bare = self.begin(GIB), self.program(preload=False, SIMGPU_GROUP="bare").start()
        make = "h = make('cuMemCreate', 2**21, physical_props(), 0)\nat = make('cuMemAddressReserve', 2**30, 0, 0, 0)\ncu('cuMemMap', at, 2**21, 0, h, 0)"
        program(make), bare(make)
        for at, size in (("at", 2**64 - 2**21), ("at + 2**21", 2**64 - 2**21), ("at - 2**40", 2**46), ("at + 2**21", 2**63), ("2**21", 2**64 - 2**22)):
            with self.subTest(f"{at} {size}"):
                call = f"rc('cuMemUnmap', {at}, {size})"
                self.assertEqual(program(call), bare(call))
                self.assertEqual(self.assertCovered(), 2 * MIB)
        program("cu('cuMemUnmap', at, 2**21)\ncu('cuMemRelease', h)")
        self.assertNothingLeft()

    def test_unmapping_without_memory_for_it_fails_whole(self):
        program = self.begin(GIB)
        program("import resource\nh = make('cuMemCreate', 2**21, physical_props(), 0)\nat = make('cuMemAddressReserve', 2**21, 0, 0, 0)\n"
                "cu('cuMemMap', at, 2**21, 0, h, 0)\nresource.setrlimit(resource.RLIMIT_AS, (2**20, -1))")
        self.assertEqual(program("rc('cuMemUnmap', at, 2**21)"), OUT_OF_MEMORY)
        program("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\ncu('cuMemUnmap', at, 2**21)\ncu('cuMemRelease', h)")
        self.assertNothingLeft()

    def test_threads_that_map_and_unmap_one_address_leave_nothing(self):
        program = self.begin(4 * GIB)
        program("""
import threading
size = 2 * 2**20
at = make('cuMemAddressReserve', size, 0, 0, 0)
def churn():
    cu('cuCtxSetCurrent', context)
    for _ in range(300):
        h = make('cuMemCreate', size, physical_props(), 0)
        while rc('cuMemMap', at, size, 0, h, 0): pass
        cu('cuMemRelease', h)
        cu('cuMemUnmap', at, size)
threads = [threading.Thread(target=churn) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()""")
        self.assertNothingLeft()


class Contexts(Memory):
    def test_heaps_of_a_context_are_overhead_and_end_with_it(self):
        program = self.begin(4 * GIB)
        program("cu('cuCtxSetLimit', 2, 512 * 2**20)")
        self.assertGreaterEqual(self.assertCovered(), 500 * MIB)
        self.assertEqual(program("rc('cuCtxSetLimit', 2, 8 * 2**30)"), OUT_OF_MEMORY)
        program("cu('cuCtxSetLimit', 0, 4096)")
        self.assertCovered()
        program("cu('cuCtxSetLimit', 2, 8 * 2**20)\ncu('cuCtxSetLimit', 0, 1024)")
        self.assertNothingLeft()
        program("cu('cuCtxSetLimit', 2, 512 * 2**20)\ncu('cuCtxDestroy_v2', context)")
        self.assertEqual(self.held(), 0)

    def test_detached_context_is_given_back_with_its_memory(self):
        program = self.begin(4 * GIB)
        program("make('cuMemAlloc_v2', 2**28)\nmake('cuCtxAttach', 0)\ncu('cuCtxDetach', context)")
        self.assertGreaterEqual(self.assertCovered(), 2**28)
        program("cu('cuCtxDetach', context)")
        self.assertEqual((self.held(), oracle(self.group)), (0, 0))

    def test_green_context_is_charged_as_the_primary_one(self):
        self.share(4 * GIB)
        program = self.program()
        program("""
cu('cuInit', 0)
resource = ctypes.create_string_buffer(144)
cu('cuDeviceGetDevResource', 0, resource, 1)
desc = out()
cu('cuDevResourceGenerateDesc', ref(desc), resource, 1)
green = make('cuGreenCtxCreate', desc.value, 0, 1)
form = make('cuCtxFromGreenCtx', green)
cu('cuCtxPushCurrent_v2', form)""")
        self.assertEqual(self.held(), CONTEXT)
        program("make('cuMemAlloc_v2', 2**28)\nprimary = make('cuDevicePrimaryCtxRetain', 0)")
        self.assertEqual(self.held(), CONTEXT + 2**28)
        program("cu('cuGreenCtxDestroy', green)")
        self.assertEqual(self.held(), CONTEXT + 2**28)
        program("cu('cuDevicePrimaryCtxRelease_v2', 0)")
        self.assertEqual((self.held(), oracle(self.group)), (0, 0))

    def test_variables_of_modules_and_libraries_count(self):
        program = self.begin(2 * GIB)
        program("""
import os
def ptx(size):
    return b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .global .align 8 .b8 big[%d];\\n.visible .entry k()\\n{\\nret;\\n}\\n" % size
def library(size): return try_make('cuLibraryLoadData', ptx(size), 0, 0, 0, 0, 0, 0)
path = '/proc/self/fd/%d' % os.memfd_create('ptx')
def file(size):
    with open(path, 'wb') as f: f.write(ptx(size))
    return try_make('cuModuleLoad', path.encode())
None""")
        for load in ("try_make('cuModuleLoadData', ptx({}))", "library({})", "file({})"):
            with self.subTest(load):
                self.assertEqual(program(load.format(3 * GIB) + "[0]"), OUT_OF_MEMORY)
                self.assertNothingLeft()
                self.assertEqual(program("r = " + load.format(GIB) + "\nr[0]"), 0)
                if "library" in load:
                    program("cu('cuLibraryGetGlobal', ref(out()), ref(out()), r[1], b'big')")
                self.assertGreaterEqual(self.assertCovered(), GIB)
                self.assertEqual(program("try_make('cuMemAlloc_v2', 2**30)[0]"), OUT_OF_MEMORY)
                program(f"cu('{'cuLibraryUnload' if 'library' in load else 'cuModuleUnload'}', r[1])")
                self.assertNothingLeft()

    def test_code_that_is_loaded_lazily_counts(self):
        program = self.begin(4 * GIB)
        program("""
ptx = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k(.param .u64 us)\\n{\\nret;\\n}\\n"
lib = make('cuLibraryLoadData', ptx, 0, 0, 0, 0, 0, 0)
make('cuLibraryGetModule', lib)
kernel = make('cuLibraryGetKernel', lib, b'k')
f = make('cuKernelGetFunction', kernel)
cu('cuFuncLoad', f)
m = make('cuModuleLoadData', ptx)
make('cuModuleGetFunction', m, b'k')""")
        self.assertGreaterEqual(self.assertCovered(), 4 * MIB)
        program("cu('cuModuleUnload', m)\ncu('cuLibraryUnload', lib)")
        self.assertNothingLeft()


class Arrays(Memory):
    def test_arrays_cost_what_the_driver_says(self):
        program = self.begin(4 * GIB)
        for w, h, d, fmt, channels, flags in ((1000, 0, 0, 0x20, 4, 0), (1023, 511, 0, 0x01, 1, 0), (4097, 4097, 0, 0x10, 2, 0),
                                              (300, 300, 300, 0x20, 2, 0), (512, 512, 6, 0x01, 4, 4)):
            with self.subTest((w, h, d)):
                program(f"""
d = struct.pack('<QQQIII4x', {w}, {h}, {d}, {fmt}, {channels}, {flags})
a = make('cuArray3DCreate_v2', d)
need = ctypes.create_string_buffer(64)
cu('cuArrayGetMemoryRequirements', need, a, 0)""")
                size = program("struct.unpack_from('<Q', need)[0]")
                self.assertGreaterEqual(self.grown()[0], size)
                self.assertLess(self.grown()[0], size + 4096)
                program("cu('cuArrayDestroy', a)\nm = make('cuMipmappedArrayCreate', d, 4)")
                self.assertGreaterEqual(self.grown()[0], size if w > 512 else 1)
                program("cu('cuMipmappedArrayDestroy', m)")
                self.assertNothingLeft()


class Shared(Memory):
    def test_memory_opened_from_another_process_is_its_makers(self):
        maker = self.begin(4 * GIB)
        user = self.program().start()
        self.base_held, self.base_oracle = self.held(), oracle(self.group)
        maker("a = make('cuMemAlloc_v2', 2**28)\nhandle = ctypes.create_string_buffer(64)\ncu('cuIpcGetMemHandle', handle, a)")
        data = maker("list(handle.raw)")
        user(f"class H(ctypes.Structure): _fields_ = [('b', ctypes.c_char * 64)]\nh = H.from_buffer_copy(bytes({data}))\n"
             "at = make('cuIpcOpenMemHandle_v2', h, 1)")
        self.assertEqual(self.assertCovered(), 2**28)
        user("cu('cuIpcCloseMemHandle', at)")
        self.assertEqual(self.assertCovered(), 2**28)
        maker("cu('cuMemFree_v2', a)")
        self.assertNothingLeft()


class Waiting(Memory):
    def test_allocation_waits_for_another_process_to_free_whatever_signals_come(self):
        holder = self.begin(2 * GIB, wait=30)
        waiter = self.program().start()
        waiter("import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)")
        holder("a = make('cuMemAlloc_v2', 2**30)")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(waiter, "try_make('cuMemAlloc_v2', 2**30)[0]")
            for _ in range(20):
                waiter.process.send_signal(signal.SIGUSR1)
                time.sleep(0.01)
            self.assertFalse(answer.done())
            holder("cu('cuMemFree_v2', a)")
            self.assertEqual(answer.result(20), 0)

    def test_wait_is_bounded_and_a_killed_holder_ends_it(self):
        holder = self.begin(2 * GIB, wait=1)
        waiter = self.program().start()
        holder("a = make('cuMemAlloc_v2', 2**30)")
        start = time.monotonic()
        self.assertEqual(waiter("try_make('cuMemAlloc_v2', 2**30)[0]"), OUT_OF_MEMORY)
        self.assertGreaterEqual(time.monotonic() - start, 1)
        self.publish(2 * GIB, wait=30)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(waiter, "try_make('cuMemAlloc_v2', 2**30)[0]")
            holder.kill()
            self.assertEqual(answer.result(20), 0)

    def test_what_the_process_itself_holds_is_not_waited_for(self):
        program = self.begin(2 * GIB, wait=3600)
        program("make('cuMemAlloc_v2', 2**30)")
        self.assertEqual(program("try_make('cuMemAlloc_v2', 2**30)[0]"), OUT_OF_MEMORY)


class Unchanged(Memory):
    """The checks of the simulator's own programs, under a limit that is never reached: nothing that the library does is seen."""

    GROUPS = {"sim-memory": ("linear", "managed", "host", "arrays", "mipmaps", "peers", "vmm", "export", "pools", "descriptors", "threads",
                             "granules"),
              "sim-graph-memory": ("nodes", "launches", "sharing", "reuse", "unfreed", "auto_free", "room", "packing"),
              "sim-program": ("contexts", "primary", "limits", "green", "modules", "libraries", "functions")}

    def test_programs_get_the_bare_drivers_answers_and_leave_nothing(self):
        self.share(1 << 45)
        self.share(1 << 45, device=1, name="claim-1")
        directory = STATE["dir"]
        for program, groups in self.GROUPS.items():
            for group in groups:
                answers = []
                for extra in ({}, {"LD_PRELOAD": str(directory / "lib/libvgpu.so"), "ALIQUOT_SHARE_ROOT": str(self.shares)}):
                    out = subprocess.run([BUILD / "sim" / program, group], capture_output=True, text=True, timeout=60, env={
                        "SIMGPU_SOCKET": str(directory / "simgpud.sock"), "LD_LIBRARY_PATH": str(directory / "lib"), **extra})
                    answers.append((out.returncode, out.stdout if group != "threads" else "", out.stderr))
                with self.subTest(f"{program} {group}"):
                    self.assertEqual(*answers)
        self.program().start()
        self.assertEqual(self.held(), CONTEXT)


class Faults(Memory):
    CALLS = ("cuMemPoolGetAttribute", "cuDeviceGetMemPool", "cuDeviceGetDefaultMemPool", "cuDeviceGetGraphMemAttribute", "cuStreamIsCapturing",
             "cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphMemAllocNodeGetParams", "cuMemGetInfo_v2", "cuArrayGetMemoryRequirements",
             "cuCtxGetLimit", "cuDeviceGetAttribute", "cuMemPoolTrimTo", "cuCtxGetCurrent", "cuStreamGetCtx", "cu*")

    def test_failing_calls_of_the_librarys_own_leave_nothing_behind(self):
        def simctl(*command):
            subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", *command], check=True, stdout=subprocess.DEVNULL)

        self.addCleanup(simctl, "clear")
        program = self.begin(2 * GIB)
        program("stream = make('cuStreamCreate', 1)")
        for entry in self.CALLS:
            with self.subTest(entry):
                simctl("fault", entry, "--return", "999", "--own", "libvgpu.so")
                results = program("""
graph, exe, node, ptx = out(), out(), alloc_node(2**26), b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k()\\n{\\nret;\\n}\\n"
done = [try_make('cuMemAlloc_v2', 2**21), try_make('cuMemAllocAsync', 2**21, stream), try_make('cuMemCreate', 2**21, physical_props(), 0)]
done.append(try_make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 1024, 1024, 0, 0x20, 4, 0)))
done.append(try_make('cuModuleLoadData', ptx))
rcs = [rc('cuGraphCreate', ref(graph), 0), rc('cuGraphAddMemAllocNode', ref(out()), graph, 0, 0, node)]
rcs += [rc('cuGraphInstantiateWithFlags', ref(exe), graph, 0), rc('cuGraphLaunch', exe, stream), rc('cuCtxSetLimit', 2, 2**26)]
[d[0] for d in done] + rcs""")
                self.assertLessEqual(set(results), {0, 999, OUT_OF_MEMORY, 1})
                simctl("clear")
                program("""
for (r, value), free in zip(done, ('cuMemFree_v2', 'cuMemFree_v2', 'cuMemRelease', 'cuArrayDestroy', 'cuModuleUnload')):
    if not r: cu(free, value)
if not rcs[3]: cu('cuMemFree_v2', node_pointer(node))
rc('cuGraphExecDestroy', exe), rc('cuGraphDestroy', graph)
cu('cuCtxSetLimit', 2, 8 * 2**20)
cu('cuDeviceGraphMemTrim', 0)
cu('cuCtxSynchronize')""")
                self.assertNothingLeft()


class Answers(Memory):
    BAD = ["'cuMemAlloc_v2', 0, 4096", "'cuMemAlloc_v2', 0, 2**62", "'cuMemAlloc_v2', ref(out()), 0", "'cuMemAllocManaged', 0, 4096, 1",
           "'cuMemAllocManaged', ref(out()), 4096, 77", "'cuMemAllocPitch_v2', 0, ref(out()), 100, 100, 4",
           "'cuMemAllocPitch_v2', ref(out()), 0, 100, 100, 4", "'cuMemAllocPitch_v2', ref(out()), ref(out()), 0, 100, 4",
           "'cuMemAllocPitch_v2', ref(out()), ref(out()), 100, 0, 4", "'cuMemAllocPitch_v2', ref(out()), ref(out()), 100, 100, 5",
           "'cuMemAllocAsync', 0, 4096, 0", "'cuMemAllocAsync', ref(out()), 0, 0", "'cuMemAllocFromPoolAsync', ref(out()), 4096, 0, 0",
           "'cuMemFree_v2', 12345", "'cuMemFree_v2', 0", "'cuMemFreeAsync', 12345, 0", "'cuMemFreeAsync', 0, 0",
           "'cuArrayCreate_v2', 0, 0", "'cuArrayCreate_v2', ref(out()), 0", "'cuArrayCreate_v2', 0, bytes(64)",
           "'cuArrayCreate_v2', ref(out()), bytes(64)", "'cuArrayDestroy', 0", "'cuMipmappedArrayCreate', ref(out()), 0, 1",
           "'cuMipmappedArrayDestroy', 0", "'cuMemCreate', 0, 2**21, physical_props(), 0", "'cuMemCreate', ref(out()), 2**21, 0, 0",
           "'cuMemCreate', ref(out()), 1, physical_props(), 0", "'cuMemCreate', ref(out()), 2**21, physical_props(99), 0",
           "'cuMemRelease', 0", "'cuMemMap', 0, 2**21, 0, 0, 0", "'cuMemUnmap', 0, 2**21", "'cuMemUnmap', 4096, 0",
           "'cuMemRetainAllocationHandle', 0, P(0)", "'cuMemRetainAllocationHandle', ref(out()), P(4096)", "'cuMemPoolCreate', 0, pool_props()",
           "'cuMemPoolCreate', ref(out()), 0", "'cuMemPoolDestroy', 0", "'cuMemPoolTrimTo', 0, 0", "'cuGraphUpload', 0, 0",
           "'cuGraphLaunch', 0, 0", "'cuGraphInstantiateWithFlags', 0, 0, 0", "'cuGraphAddMemAllocNode', 0, 0, 0, 0, 0",
           "'cuGraphExecDestroy', 0", "'cuDeviceGraphMemTrim', 99", "'cuCtxSetLimit', 99, 1", "'cuCtxDetach', 0", "'cuCtxDestroy_v2', 0",
           "'cuCtxCreate_v2', 0, 0, 0", "'cuCtxCreate_v2', ref(out()), 0, 99", "'cuDevicePrimaryCtxRetain', 0, 0",
           "'cuDevicePrimaryCtxRetain', ref(out()), 99", "'cuDevicePrimaryCtxRelease_v2', 99", "'cuModuleLoadData', 0, 0",
           "'cuModuleLoadData', ref(out()), 0", "'cuModuleUnload', 0", "'cuModuleGetFunction', 0, 0, 0", "'cuLibraryUnload', 0",
           "'cuMemImportFromShareableHandle', ref(out()), P(-1), 1", "'cuGreenCtxCreate', 0, 0, 0, 0", "'cuGreenCtxDestroy', 0"]

    def test_bad_input_gets_the_bare_drivers_answer_and_costs_nothing(self):
        hooked, bare = self.begin(4 * GIB), self.program(preload=False).start()
        for call in self.BAD:
            with self.subTest(call):
                self.assertEqual(hooked(f"rc({call})"), bare(f"rc({call})"))
        self.base_oracle = 0
        self.assertEqual(self.held(), self.base_held)


if __name__ == "__main__":
    unittest.main()

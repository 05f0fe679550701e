# SPDX-License-Identifier: Apache-2.0
"""Memory between processes under libvgpu.so, on the simulated driver: who pays while it is open, when its maker has let it go, and when
that has died; and what else holds physical memory. About 14 s."""

import socket
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor

import test_vgpu
from test_vgpu import CONTEXT, GIB, MIB, OUT_OF_MEMORY, SIMCTL, STATE, UUIDS, control, usage
from test_vgpu_memory import Memory, oracle, until

TIMEOUT_S = 120
PIECE = 512 * MIB

HELPERS = """
import socket
class Handle(ctypes.Structure): _fields_ = [('b', ctypes.c_char * 64)]
def send(fd): socket.send_fds(socket.socket(fileno=os.dup(SOCKET)), [b'.'], [fd])
def receive(): return socket.recv_fds(socket.socket(fileno=os.dup(SOCKET)), 1, 1)[1][0]
def export(h): return make_fd('cuMemExportToShareableHandle', h, 1, 0)
def make_fd(name, *args):
    value = out(ctypes.c_int)
    cu(name, ref(value), *args)
    return value.value
def take(fd):
    try: return make('cuMemImportFromShareableHandle', P(fd), 1)
    finally: os.close(fd)
def mapped(h, size):
    at = make('cuMemAddressReserve', size, 0, 0, 0)
    cu('cuMemMap', at, size, 0, h, 0)
    return at
None"""


def setUpModule():
    test_vgpu.setUpModule()


def tearDownModule():
    test_vgpu.tearDownModule()


class Between(Memory):
    def setUp(self):
        super().setUp()
        pair = socket.socketpair()
        for end in pair:
            self.addCleanup(end.close)
        self.ends = [end.fileno() for end in pair]
        self.pass_fds = tuple(self.ends)

    def begin(self, limit, **values):
        return self.helped(super().begin(limit, **values), 0)

    def helped(self, program, end):
        program(f"import os\nSOCKET = {self.ends[end]}" + HELPERS)
        return program

    def user(self, own_share=None, **options):
        """The other process: of the same share, of one of its own, or (preload=False) of none."""
        if own_share:
            root = STATE["dir"] / f"other-{self.group}"[:60]
            (root / "claim-9").mkdir(parents=True)
            (root / "claim-9/control").write_bytes(control("claim-9", UUIDS[0], own_share))
            (root / "claim-9/usage").write_bytes(usage(UUIDS[0]))
            options.update(ALIQUOT_SHARE_ROOT=str(root), SIMGPU_GROUP=self.group + "-other")
        elif options:
            options.update(SIMGPU_GROUP=self.group + "-none")
        user = self.helped(self.program(**options).start(), 1)
        self.base_held, self.base_oracle = self.held(), oracle(self.group)
        return user

    def assertHeld(self, charged):
        """Beside the contexts; and the driver does not hold more for the share."""
        self.assertEqual(self.grown()[0], charged)
        self.assertLessEqual(self.grown()[1], charged)


MAKERS = {  # kind: (make and hand over, take, let go, close)
    "vmm": (f"h = make('cuMemCreate', {PIECE}, physical_props(), 0)\nfd = export(h)\nsend(fd)\nos.close(fd)", f"i = take(receive())\nat = mapped(i, {PIECE})",
            "cu('cuMemRelease', h)", f"cu('cuMemUnmap', at, {PIECE})\ncu('cuMemRelease', i)"),
    "ipc": (f"a = make('cuMemAlloc_v2', {PIECE})\nhandle = Handle()\ncu('cuIpcGetMemHandle', ref(handle), a)\nos.write(SOCKET, bytes(handle))",
            "at = make('cuIpcOpenMemHandle_v2', Handle.from_buffer_copy(os.read(SOCKET, 64)), 1)", "cu('cuMemFree_v2', a)",
            "cu('cuIpcCloseMemHandle', at)"),
    "pool": (f"pool = make('cuMemPoolCreate', pool_props(0, 1))\na = make('cuMemAllocFromPoolAsync', {PIECE}, pool, 0)\ncu('cuCtxSynchronize')\n"
             "fd = make_fd('cuMemPoolExportToShareableHandle', pool, 1, 0)\nsend(fd)\nos.close(fd)\n"
             "data = ctypes.create_string_buffer(64)\ncu('cuMemPoolExportPointer', data, a)\nos.write(SOCKET, data.raw)",
             "fd = receive()\np = make('cuMemPoolImportFromShareableHandle', P(fd), 1, 0)\nos.close(fd)\n"
             "at = make('cuMemPoolImportPointer', p, ctypes.create_string_buffer(os.read(SOCKET, 64), 64))",
             "cu('cuMemPoolDestroy', pool)\ncu('cuMemFree_v2', a)", "cu('cuMemPoolDestroy', p)\ncu('cuMemFree_v2', at)"),
}


class SameShare(Between):
    def each(self):
        for kind, steps in MAKERS.items():
            with self.subTest(kind):
                yield kind, steps

    def test_memory_that_its_maker_let_go_counts_while_another_has_it(self):
        maker = self.begin(GIB + 2 * CONTEXT)
        user = self.user()
        for kind, (make, take, let_go, close) in self.each():
            maker(make)
            user(take)
            self.assertHeld(PIECE)  # once
            maker(let_go)
            self.assertHeld(PIECE)
            self.assertEqual(user("try_make('cuMemAlloc_v2', 2**29 + 2**20)[0]"), OUT_OF_MEMORY)
            user(close)
            self.assertEqual(maker("(r := try_make('cuMemAlloc_v2', 2**30 - 2**21))[0]"), 0, kind)
            maker("cu('cuMemFree_v2', r[1])")
            self.assertNothingLeft()

    def test_memory_that_nobody_has_open_is_free_at_once(self):
        maker = self.begin(GIB)
        for kind, (make, _, let_go, _) in self.each():
            maker(make)
            received = socket.socket(fileno=subprocess.os.dup(self.ends[1]))
            if kind != "ipc":
                subprocess.os.close(socket.recv_fds(received, 1, 1)[1][0])
            if kind != "vmm":
                received.recv(64)
            received.close()
            self.assertHeld(PIECE)
            maker(let_go)
            self.assertNothingLeft()

    def test_memory_of_a_dead_maker_counts_while_another_has_it(self):
        for kind, (make, take, _, close) in self.each():
            maker = self.begin(GIB + 2 * CONTEXT)
            user = self.user()
            maker(make)
            maker("make('cuMemAlloc_v2', 2**28)")
            user(take)
            maker.kill()
            until(lambda: oracle(self.group) <= self.base_oracle // 2 + PIECE, "the driver keeps what it does not share")
            self.assertEqual(user("try_make('cuMemAlloc_v2', 2**30)[0]"), OUT_OF_MEMORY)
            self.assertEqual(self.held(), CONTEXT + PIECE, kind)  # its context and what it had for itself are gone
            late = self.program().start()
            self.assertEqual(self.held(), 2 * CONTEXT + PIECE, kind)  # its slot is not given to the next
            user(close)
            self.assertEqual(late("(r := try_make('cuMemAlloc_v2', 2**30))[0]"), 0, kind)
            late.kill()
            user.kill()

    def test_dead_user_lets_go(self):
        for kind, (make, take, let_go, _) in self.each():
            maker = self.begin(GIB + 2 * CONTEXT)
            user = self.user()
            maker(make)
            user(take)
            maker(let_go)
            user.kill()
            until(lambda: maker("(r := try_make('cuMemAlloc_v2', 2**30))[0]") == 0, f"{kind}: stays charged")
            maker.kill()

    def test_maker_that_waits_has_its_memory_when_the_user_closes_it(self):
        maker = self.begin(GIB + 2 * CONTEXT, wait=30)
        user = self.user()
        make, take, let_go, close = MAKERS["vmm"]
        maker(make)
        user(take)
        maker(let_go)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(maker, "(r := try_make('cuMemAlloc_v2', 2**30))[0]")
            with self.assertRaises(TimeoutError):
                answer.result(0.2)
            user(close)
            self.assertEqual(answer.result(20), 0)

    def test_nvml_alone_shows_what_the_user_has_closed(self):
        maker = self.begin(GIB + 2 * CONTEXT)
        user = self.user()
        make, take, let_go, close = MAKERS["vmm"]
        maker(make + "\nnvml = ctypes.CDLL('libnvidia-ml.so.1')\nnvml.nvmlInit_v2()\ndev = P()\nnvml.nvmlDeviceGetHandleByIndex_v2(0, ref(dev))\n"
              "memory = (U64 * 3)()\ndef used(): return [nvml.nvmlDeviceGetMemoryInfo(dev, memory), memory[2]]")
        user(take)
        maker(let_go)
        self.assertEqual(maker("used()"), [0, PIECE + 2 * CONTEXT])
        user(close)
        self.assertEqual(maker("used()"), [0, 2 * CONTEXT])

    def test_context_of_the_maker_goes_and_that_of_the_user(self):
        maker = self.begin(GIB + 2 * CONTEXT)
        user = self.user()
        make, take, _, _ = MAKERS["ipc"]
        maker(make)
        user(take)
        maker("cu('cuCtxDestroy_v2', context)")
        self.assertEqual(self.held(), CONTEXT + PIECE)
        user("cu('cuCtxDestroy_v2', context)")
        maker("context = make('cuCtxCreate_v2', 0, 0)")
        self.assertEqual(maker("try_make('cuMemAlloc_v2', 2**30)[0]"), 0)


class OtherShare(Between):
    def test_import_from_another_share_is_its_makers(self):
        for options in ({"own_share": 2 * GIB}, {"preload": False}):
            for kind, (make, take, let_go, close) in MAKERS.items():
                with self.subTest(f"{kind} {options}"):
                    maker = self.begin(GIB)
                    user = self.user(**options)
                    other = STATE["dir"] / f"other-{self.group}"[:60] / "claim-9/usage"
                    before = other.read_bytes()[4096 + 64:4096 + 72] if "own_share" in options else b""
                    maker(make)
                    user(take)
                    self.assertHeld(PIECE)
                    if before:
                        self.assertEqual(other.read_bytes()[4096 + 64:4096 + 72], before)
                    user(close)
                    maker(let_go)
                    self.assertNothingLeft()
                    maker.kill(), user.kill()
                    subprocess.run(["rm", "-rf", other.parent.parent], check=True)

    def test_memory_let_go_stays_its_makers_while_one_out_of_sight_has_it(self):
        for options in ({"own_share": 2 * GIB}, {"preload": False}):
            for kind in ("vmm", "ipc"):
                make, take, let_go, close = MAKERS[kind]
                with self.subTest(f"{kind} {options}"):
                    maker = self.begin(GIB)
                    user = self.user(**options)
                    maker(make)
                    user(take)
                    maker(let_go)
                    self.assertHeld(PIECE)
                    self.assertEqual(maker("try_make('cuMemAlloc_v2', 2**29)[0]"), OUT_OF_MEMORY)
                    user(close)
                    maker.kill(), user.kill()
                    self.assertEqual(self.program().start()("try_make('cuMemAlloc_v2', 2**29)[0]"), 0)
                    subprocess.run(["rm", "-rf", STATE["dir"] / f"other-{self.group}"[:60]], check=True)


class OwnProcess(Between):
    def test_own_export_that_is_imported_again_counts_once_until_both_are_gone(self):
        program = self.begin(GIB)
        for order in ("cu('cuMemRelease', h)\ncu('cuMemRelease', i)", "cu('cuMemRelease', i)\ncu('cuMemRelease', h)"):
            program(f"h = make('cuMemCreate', {PIECE}, physical_props(), 0)\nfd = export(h)\ni = take(fd)")
            self.assertHeld(PIECE)
            first, second = order.split("\n")
            program(first)
            self.assertHeld(PIECE)
            program(second)
            self.assertNothingLeft()

    def test_descriptor_alone_holds_memory_that_counts(self):
        program = self.begin(GIB)
        program(f"h = make('cuMemCreate', {PIECE}, physical_props(), 0)\nfd = export(h)\ncu('cuMemRelease', h)")
        self.assertHeld(PIECE)
        program(f"at = mapped(take(fd), {PIECE})")
        self.assertHeld(PIECE)

    def test_handle_is_counted_beyond_65535_times(self):
        program = self.begin(GIB)
        program(f"""
h = make('cuMemCreate', {PIECE}, physical_props(), 0)
at = mapped(h, {PIECE})
for _ in range(65540): cu('cuMemRetainAllocationHandle', ref(out()), P(at))
cu('cuMemUnmap', at, {PIECE})
for _ in range(65540): cu('cuMemRelease', h)""")
        self.assertHeld(PIECE)
        program("cu('cuMemRelease', h)")
        self.assertNothingLeft()
        self.assertNotEqual(program("rc('cuMemRelease', h)"), 0)
        self.assertNothingLeft()

    def test_fork_child_pays_for_nothing_of_its_parents(self):
        program = self.begin(GIB)
        program(f"h = make('cuMemCreate', {PIECE}, physical_props(), 0)\nfd = export(h)")
        self.assertEqual(program("""
pid = os.fork()
if pid == 0:
    os._exit(0 if rc('cuMemRelease', h) else 1)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"""), 0)
        self.assertHeld(PIECE)
        program("os.close(fd)\ncu('cuMemRelease', h)")
        self.assertNothingLeft()


class Multicast(Between):
    OBJECT = f"""
import struct
mc = make('cuMulticastCreate', struct.pack('<I4xQQQ', 1, {PIECE}, 0, 0))
cu('cuMulticastAddDevice', mc, 0)
h = make('cuMemCreate', {PIECE}, physical_props(), 0)"""

    def test_bound_memory_counts_until_it_is_unbound(self):
        program = self.begin(GIB)
        program(self.OBJECT)
        program(f"cu('cuMulticastBindMem', mc, 0, h, 0, {PIECE}, 0)\ncu('cuMemRelease', h)")
        self.assertHeld(PIECE)
        self.assertEqual(program("try_make('cuMemCreate', 2**29, physical_props(), 0)[0]"), OUT_OF_MEMORY)
        self.assertNotEqual(program("rc('cuMulticastUnbind', mc, 0, 0, 2**21)"), 0)
        self.assertHeld(PIECE)
        program(f"cu('cuMulticastUnbind', mc, 0, 0, {PIECE})")
        self.assertNothingLeft()
        program("cu('cuMemRelease', mc)")

    def test_object_takes_its_bindings_along(self):
        program = self.begin(GIB)
        program(self.OBJECT)
        program(f"""
at = mapped(h, {PIECE})
cu('cuMulticastBindAddr', mc, 0, at, {PIECE // 2}, 0)
cu('cuMulticastBindMem', mc, {PIECE // 2}, h, 0, {PIECE // 2}, 0)
cu('cuMemRelease', h)
cu('cuMemUnmap', at, {PIECE})
over = mapped(mc, {PIECE})
cu('cuMemRelease', mc)""")
        self.assertHeld(PIECE)
        program(f"cu('cuMemUnmap', over, {PIECE})")
        self.assertNothingLeft()


class Elsewhere(Between):
    def test_free_from_another_thread_context_or_device_is_booked_where_it_was_made(self):
        self.share(4 * GIB, device=1, name="claim-1")
        program = self.begin(4 * GIB)
        program("second = make('cuCtxCreate_v2', 0, 0)\nthird = make('cuCtxCreate_v2', 0, 1)\nimport threading")
        self.base_held, self.base_oracle = self.held(), oracle(self.group)
        other = self.held("claim-1")
        for free, made in (("cuMemFree_v2", "make('cuMemAlloc_v2', 2**26)"), ("cuMemFree_v2", "make('cuMemAllocManaged', 2**26, 1)"),
                           ("cuArrayDestroy", "make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 4096, 4096, 0, 0x20, 1, 0))"),
                           ("cuMemRelease", "make('cuMemCreate', 2**26, physical_props(), 0)")):
            for freer in ("context", "second", "third"):
                with self.subTest(f"{free} {made} {freer}"):
                    program(f"cu('cuCtxSetCurrent', context)\na = {made}")
                    self.assertEqual(self.assertCovered(), 64 * MIB)
                    result = program(f"""
got = []
def free():
    cu('cuCtxSetCurrent', {freer})
    got.append(rc('{free}', a))
t = threading.Thread(target=free)
t.start(), t.join()
got[0]""")
                    if result:
                        program(f"cu('{free}', a)")
                    self.assertNothingLeft()
                    self.assertEqual(self.held("claim-1"), other)


class Faults(Between):
    def test_failing_calls_of_the_librarys_own_leave_nothing_behind(self):
        def simctl(*command):
            subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", *command], check=True, stdout=subprocess.DEVNULL)

        self.addCleanup(simctl, "clear")
        maker = self.begin(2 * GIB)
        user = self.user()
        for entry in ("cuMemGetInfo_v2", "cuPointerGetAttribute", "cuMemGetAllocationPropertiesFromHandle", "cuCtxGetCurrent", "cu*"):
            for kind, (make, take, let_go, close) in MAKERS.items():
                with self.subTest(f"{entry} {kind}"):
                    maker(make)
                    simctl("fault", entry, "--return", "999", "--own", "libvgpu.so")
                    user(take)
                    user(close)
                    maker(let_go)
                    simctl("clear")
                    self.assertNothingLeft()


del Memory
if __name__ == "__main__":
    unittest.main()

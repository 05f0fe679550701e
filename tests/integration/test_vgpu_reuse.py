# SPDX-License-Identifier: Apache-2.0
"""An address that the driver gives out again before the library has its answer to the call that freed it, under libvgpu.so. On a driver
of a few lines that lets another allocation in there. About 2 s."""

import struct

import test_vgpu
from test_vgpu import CONTEXT, GIB, MIB, STATE
from test_vgpu_memory import Memory

EXPORTED = 4096 + 4096 + 96  # of the first slot

CODE = """
BETWEEN = ctypes.CFUNCTYPE(None)
made = []
def between():
    made.append(make('cuMemAlloc_v2', NEXT))
    if IS_EXPORTED:
        cu('cuIpcGetMemHandle', bytes(64), made[-1])
hold = BETWEEN(between)
def free_beside(at):
    ctypes.c_void_p.in_dll(cuda, 'reuse_between').value = ctypes.cast(hold, ctypes.c_void_p).value
    return rc('cuMemFree_v2', at)
None"""


def setUpModule():
    test_vgpu.setUpModule()
    test_vgpu.build_driver("reuse")


def tearDownModule():
    test_vgpu.tearDownModule()


class Reuse(Memory):
    def start(self, was_exported, is_exported):
        self.share(GIB)
        program = self.program(LD_LIBRARY_PATH=str(STATE["dir"] / "reuse")).start()
        program(f"NEXT, IS_EXPORTED = {48 * MIB}, {is_exported}" + CODE)
        program(f"a = make('cuMemAlloc_v2', {16 * MIB})")
        if was_exported:
            program("cu('cuIpcGetMemHandle', bytes(64), a)")
        self.assertFigures(16, 16 if was_exported else 0)
        return program

    def assertFigures(self, held_mib, exported_mib):
        data = (self.shares / "claim-0/usage").read_bytes()
        exported, = struct.unpack_from("<Q", data, EXPORTED)
        self.assertEqual(((self.held() - CONTEXT) // MIB, exported // MIB), (held_mib, exported_mib))

    def test_next_owner_of_the_address_is_booked_as_what_it_is(self):
        for was_exported in (0, 1):
            for is_exported in (0, 1):
                with self.subTest(was=was_exported, now=is_exported):
                    program = self.start(was_exported, is_exported)
                    try:
                        self.assertEqual(program("[free_beside(a), made == [a]]"), [0, True])
                        self.assertFigures(48, 48 if is_exported else 0)
                        program("cu('cuMemFree_v2', a)")
                        self.assertFigures(0, 0)
                    finally:
                        program.close()

    def test_free_that_the_driver_refuses_keeps_what_is_there(self):
        program = self.start(1, 0)
        self.assertEqual(program("rc('cuMemFree_v2', 0xbad)"), 1)
        self.assertFigures(16, 16)
        program("cu('cuMemFree_v2', a)")
        self.assertFigures(0, 0)

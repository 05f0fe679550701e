# SPDX-License-Identifier: Apache-2.0
"""Sparse arrays under libvgpu.so: they cost nothing, and what is mapped into them counts until it is unmapped. On a driver of a few lines,
since the simulator has none. About 3 s."""

import unittest

import test_vgpu
from test_vgpu import CONTEXT, GIB, MIB, OUT_OF_MEMORY, STATE
from test_vgpu_memory import Memory

PIECE = 64 * MIB

TILES = """
def tile(what, array, memory=0, level=0, x=0, width=256, miptail=False):
    where = struct.pack('<I4xQQ8x', 0, x, width) if miptail else struct.pack('<8I', level, 0, x, 0, 0, width, 256, 1)
    return struct.pack('<I4xQI4x', 0, array, int(miptail)) + where + struct.pack('<IIQQII8x', what, 0, memory, 0, 1, 0)
def change(*tiles):
    return rc('cuMemMapArrayAsync', b''.join(tiles), len(tiles), 0)
def piece():
    return make('cuMemCreate', PIECE, physical_props(), 0)
MAP, UNMAP = 1, 2
None"""


def setUpModule():
    test_vgpu.setUpModule()
    test_vgpu.build_driver("sparse")


def tearDownModule():
    test_vgpu.tearDownModule()


class Sparse(Memory):
    def setUp(self):
        super().setUp()
        self.share(GIB)
        self.program_ = self.program(LD_LIBRARY_PATH=str(STATE["dir"] / "sparse")).start()
        self.program_(f"PIECE = {PIECE}" + TILES)

    def assertCounts(self, pieces):
        self.assertEqual(self.held(), CONTEXT + pieces * PIECE)

    def test_array_without_memory_of_its_own_costs_nothing(self):
        for flags in (0x40, 0x80):
            self.program_(f"a = make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 65536, 65536, 0, 0x20, 4, {flags}))")
            self.assertCounts(0)
            self.program_("cu('cuArrayDestroy', a)")
            self.assertCounts(0)
        self.assertEqual(self.program_("try_make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 65536, 65536, 0, 0x20, 4, 0))"),
                         [OUT_OF_MEMORY, 0])

    def test_mapped_memory_counts_until_its_tiles_are_unmapped_or_replaced(self):
        program = self.program_
        program("a = make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 4096, 4096, 0, 0x20, 1, 0x40))\nh, i, j = piece(), piece(), piece()")
        self.assertEqual(program("change(tile(MAP, a, h), tile(MAP, a, h, x=256), tile(MAP, a, i, level=1), tile(MAP, a, j, miptail=True))"), 0)
        program("for p in (h, i, j): cu('cuMemRelease', p)")
        self.assertCounts(3)
        program("change(tile(UNMAP, a))")
        self.assertCounts(3)  # the second tile has the first piece still
        program("change(tile(UNMAP, a, x=128, width=512))")
        self.assertCounts(2)
        program("k = piece()\nchange(tile(MAP, a, k, level=1))\ncu('cuMemRelease', k)")
        self.assertCounts(2)  # in place of the second piece
        program("change(tile(UNMAP, a, miptail=True))")
        self.assertCounts(1)
        program("cu('cuArrayDestroy', a)")
        self.assertCounts(0)

    def test_refused_list_changes_nothing(self):
        program = self.program_
        program("a = make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 4096, 4096, 0, 0x20, 1, 0x40))\nh = piece()")
        self.assertEqual(program("change(*[tile(MAP, a, h, x=256 * n) for n in range(65)])"), 1)
        program("cu('cuMemRelease', h)")
        self.assertCounts(0)

    def test_many_tiles_are_followed(self):
        program = self.program_
        program("""
a = make('cuArray3DCreate_v2', struct.pack('<QQQIII4x', 1 << 20, 4096, 0, 0x20, 1, 0x40))
h = piece()
for n in range(0, 4096, 64): change(*[tile(MAP, a, h, x=256 * (n + k)) for k in range(64)])
cu('cuMemRelease', h)
for n in range(4095): change(tile(UNMAP, a, x=256 * n))""")
        self.assertCounts(1)
        program("change(tile(UNMAP, a, x=256 * 4095))")
        self.assertCounts(0)


del Memory
if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Cubins and fatbins for tests, byte by byte: what ptxas and nvcc write, as far as the simulator reads it. No compiler is
needed; `kernel_one` has parameters of 8, 4 and 24 bytes, 42 registers, 2,048 bytes of shared and 96 of local memory and a bound of
256 threads, `counter` is 0x01020304, `buffer` 4,000 zero bytes and `coef` 16 bytes of constant memory."""

import struct

NULL, PROGBITS, SYMTAB, STRTAB, NOBITS, NV_INFO = 0, 1, 2, 3, 8, 0x70000000


class Names:
    def __init__(self):
        self.data = b"\0"

    def add(self, name):
        at = len(self.data)
        self.data += name.encode() + b"\0"
        return at


def sized(code, payload):
    return struct.pack("<BBH", 4, code, len(payload)) + payload


def param(ordinal, offset, size):
    return sized(0x17, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1f000))


def cubin(cc=90, old=False):
    """An ELF file for a compute capability; `old`: as toolkits before ABI version 8 wrote it."""
    names, strings = Names(), Names()
    sections = []  # name, type, flags, data, nobits size, link, info, entry size

    def section(name, kind, data=b"", size=None, link=0, info=0, entry=0):
        sections.append((names.add(name), kind, 0, data, len(data) if size is None else size, link, info, entry))
        return len(sections)

    kernel_symbol = 1
    shstrtab = section(".shstrtab", STRTAB)
    strtab = section(".strtab", STRTAB)
    symtab = section(".symtab", SYMTAB, link=strtab, entry=24)
    section(".nv.info", NV_INFO, sized(0x2f, struct.pack("<II", kernel_symbol, 42)) if not old else b"")
    sections[-1] = sections[-1][:3] + (sections[-1][3] + sized(0x11, struct.pack("<II", kernel_symbol, 96)),) + sections[-1][4:]
    section(".nv.info.kernel_one", NV_INFO, struct.pack("<BBH", 3, 0x1b, 255) + param(2, 16, 24) + param(1, 8, 4) + param(0, 0, 8) +
            sized(0x05, struct.pack("<III", 64, 2, 2)) + struct.pack("<BBH", 3, 0x19, 40))
    text = section(".text.kernel_one", PROGBITS, b"\x18\x79\0\0" * 32, info=kernel_symbol | (42 << 24 if old else 0))
    section(".nv.constant0.kernel_one", PROGBITS, bytes(0x210 + 40))
    if not old:
        section(".nv.shared.reserved.0", NOBITS, size=0)
    section(".nv.shared.kernel_one", NOBITS, size=2048 + (0 if old else 1024))
    constant = section(".nv.constant3", PROGBITS, struct.pack("<dd", 1.5, 2.5))
    initial = section(".nv.global.init", PROGBITS, bytes(4) + struct.pack("<I", 0x01020304))
    zeroes = section(".nv.global", NOBITS, size=4096)
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name, info, at, value, size in (("kernel_one", 0x12, text, 0, 128), ("counter", 0x11, initial, 4, 4),
                                        ("buffer", 0x11, zeroes, 96, 4000), ("coef", 1, constant, 0, 16), ("elsewhere", 0x11, 0, 0, 4)):
        symbols += struct.pack("<IBBHQQ", strings.add(name), info, 0x10 if name == "kernel_one" else 0, at, value, size)
    fill = {shstrtab: names.data, strtab: strings.data, symtab: symbols}
    body, rows = b"", [bytes(64)]
    for i, (name, kind, flags, data, size, link, info, entry) in enumerate(sections, 1):
        data = fill.get(i, data)
        body += bytes(-len(body) % 8)
        rows.append(struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, 64 + len(body), size if kind == NOBITS else len(data), link, info, 8, entry))
        body += data
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes([0x33 if old else 0x41, 7 if old else 8]) + bytes(7)
    flags = (cc | cc << 16) if old else (0x06000004 | cc << 8)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(rows), shstrtab)
    return ident + head + body + b"".join(rows)


def fatbin(entries):
    """entries: (kind, cc, code, compressed) with kind 1 for PTX and 2 for a cubin."""
    body = b""
    for kind, cc, code, compressed in entries:
        code += bytes(-len(code) % 8)
        flags = 0x11 | (0x8000 if compressed else 0)
        body += struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(code), 0, 0, 8, 1, cc, 0, 0, flags, 0, 0) + code
    return struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(body)) + body

# SPDX-License-Identifier: Apache-2.0
"""A program for test_copies.py: does each fill and copy named on its command line once, in forms and by a driver as they come, and
prints what each call answered. Knows nothing of libvgpu.so."""

import ctypes
import json
import re
import struct
import sys

U64, U32, P = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
BYTES = 4096
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    return getattr(cuda, name)(*[U64(arg) if isinstance(arg, int) else arg for arg in args])


def need(name, *args):
    if rc := call(name, *args):
        raise SystemExit(f"{name} gave {rc}")


def made(name, *args):
    value = U64()
    need(name, ctypes.byref(value), *args)
    return value.value


def on(device):
    context = made("cuCtxCreate_v2", 0, device)
    return context, made("cuMemAlloc_v2", 2 * BYTES), made("cuMemAlloc_v2", 2 * BYTES)


def box(to, from_, kinds, contexts=None):
    """CUDA_MEMCPY3D, and CUDA_MEMCPY3D_PEER where contexts are given: 64 x 8 x 8 bytes."""
    def side(address, kind, context):
        return struct.pack("<4QI4xQQQQQQ", 0, 0, 0, 0, kind, address, address, 0, context, 64, 8)
    from_context, to_context = contexts or (0, 0)
    return side(from_, kinds[1], from_context) + side(to, kinds[0], to_context) + struct.pack("<3Q", 64, 8, 8)


def area(to, from_, kinds):
    def side(address, kind):
        return struct.pack("<QQI4xQQQQ", 0, 0, kind, address, address, 0, 64)
    return side(from_, kinds[1]) + side(to, kinds[0]) + struct.pack("<QQ", 64, 8)


def array():
    return made("cuArrayCreate_v2", struct.pack("<QQII", BYTES, 0, 1, 1))


def one(name, to, from_, array_to, array_from, kinds, contexts):
    """Does it; kinds: 2 device memory, 4 to be found out."""
    base = re.sub(r"(_v2)?(_pt[ds][sz])?$", "", name)
    stream = (0,) if "Async" in base else ()
    words, place = base.removesuffix("Async"), (U64 * 1)
    if match := re.fullmatch(r"cuMemsetD(2D)?(8|16|32)", words):
        return call(name, to, *((64, 0, 16, 4) if match[1] else (0, 64)), *stream)
    if words == "cuMemcpyBatch":
        failed = () if "_v2" in name else (place(0),)
        return call(name, place(to), place(from_), place(BYTES), 1, struct.pack("<IIiIiI", 1, 0, 0, 0, 0, 0), place(0), 1, *failed, 0)
    if words == "cuMemcpy3DBatch":
        def side(address):
            return struct.pack("<I4xQQQIi", 1, address, 0, 0, 0, 0)
        failed = () if "_v2" in name else (place(0),)
        return call(name, 1, side(to) + side(from_) + struct.pack("<3QII", 64, 8, 8, 1, 0), *failed, 0, 0)
    if words == "cuMemBatchDecompress":
        return call(name, struct.pack("<QQQQQI20x", 64, 64, 0, from_, to, 1), 1, 0, place(0), 0)
    if words in ("cuMemcpyPeer",):
        return call(name, to, contexts[0], from_, contexts[1], BYTES, *stream)
    if words == "cuMemcpy3DPeer":
        return call(name, box(to, from_, kinds, contexts[::-1]), *stream)
    if words.startswith("cuMemcpy3D"):
        return call(name, box(to, from_, kinds), *stream)
    if words.startswith("cuMemcpy2D"):
        return call(name, area(to, from_, kinds), *stream)
    if words == "cuMemcpyAtoA":
        return call(name, array_to, 0, array_from, 0, 64)
    if words == "cuMemcpyAtoD":
        return call(name, to, array_from, 0, 64)
    if words == "cuMemcpyDtoA":
        return call(name, array_to, 0, from_, 64)
    return call(name, to, from_, BYTES, *stream)


def main():
    where, names = sys.argv[1], sys.argv[2:]
    need("cuInit", 0)
    host = ctypes.create_string_buffer(2 * BYTES)
    other, far, _ = on(1)
    context, to, from_ = on(0)
    arrays = array(), array()
    ends = {"device": (to, from_, (2, 2), (context, context)), "unified": (to, from_, (4, 4), (context, context)),
            "from-host": (to, ctypes.addressof(host), (4, 4), (context, context)),
            "to-host": (ctypes.addressof(host), from_, (4, 4), (context, context)),
            "peer": (to, far, (4, 4), (context, other))}[where]
    answers = {name: one(name, ends[0], ends[1], *arrays, *ends[2:]) for name in names}
    need("cuCtxSynchronize")
    need("cuCtxDestroy_v2", context)
    print(json.dumps(answers))


main()

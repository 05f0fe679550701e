# SPDX-License-Identifier: Apache-2.0
"""A program for test_vgpu_memory.py that uses the driver through ctypes and knows nothing of libvgpu.so. Each line of its input is
JSON: code whose last line's value it answers, also as JSON. In that code cu("name", ...) is a driver call that must succeed, rc("name", ...)
one that gives its result; out(kind) is room for an output."""

import ctypes
import json
import struct  # noqa: F401, for the code that is sent
import sys

cuda = ctypes.CDLL("libcuda.so.1")
U64, U32, P = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p


def rc(name, *args):
    return getattr(cuda, name)(*[U64(arg) if isinstance(arg, int) else arg for arg in args])


def cu(name, *args):
    result = rc(name, *args)
    if result:
        raise AssertionError(f"{name} gave {result}")


def out(kind=U64):
    return kind(0)


def ref(value):
    return ctypes.byref(value)


def make(name, *args):
    """A call whose first argument is an output; its value."""
    value = out()
    cu(name, ref(value), *args)
    return value.value


def try_make(name, *args):
    """[result, value]"""
    value = out()
    return [rc(name, ref(value), *args), value.value]


def location(device):
    return struct.pack("<II", 1, device)


def pool_props(device=0, handles=0, most=0):
    """CUmemPoolProps"""
    return struct.pack("<II", 1, handles) + location(device) + struct.pack("<QQ", 0, most) + bytes(56)


def physical_props(device=0, handles=1):
    """CUmemAllocationProp"""
    return struct.pack("<II", 1, handles) + location(device) + bytes(16)


def alloc_node(size, device=0):
    """CUDA_MEM_ALLOC_NODE_PARAMS"""
    return ctypes.create_string_buffer(pool_props(device) + struct.pack("<QQQQ", 0, 0, size, 0), 120)


def node_pointer(params):
    return struct.unpack_from("<Q", params, 112)[0]


def start(device=0):
    cu("cuInit", 0)
    globals()["context"] = make("cuCtxCreate_v2", 0, device)


def main():
    names = globals()
    for line in sys.stdin:
        *body, last = json.loads(line).strip().split("\n")
        try:
            exec("\n".join(body), names)
            try:
                answer = eval(last, names)
            except SyntaxError:
                exec(last, names)
                answer = None
        except Exception as error:  # told to the test, which fails with it
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


main()

# SPDX-License-Identifier: Apache-2.0
"""Contexts, code, functions, launches and graphs of the simulated driver: calls and errors as documented, images of every form and any
malformed one, and everything given back at the end. Takes about 10 s."""

import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

import cubin_maker
from test_sim import DATA, MIB, SIM, Machine, SimTest, running, until

HOPPER = {"name": "NVIDIA H100 80GB HBM3", "memory": "1Gi", "contextBytes": "8Mi", "reservedBytes": "24Mi", "moduleBytes": "2Mi"}
PTX = b".version 7.0\n.target sm_70\n.entry kernel_one(.param .u64 a) { ret; }\n\0"


class ProgramTest(SimTest):
    devices = [HOPPER, dict(HOPPER, memory="2Gi")]

    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sim", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.dir)

    def run_group(self, *args, program="sim-program"):
        out = subprocess.run([SIM / program, *args], env=self.machine.env(SIMGPU_GROUP=args[0]), capture_output=True, text=True,
                             timeout=60)
        self.assertRegex(out.stdout, r"\Aok [1-9]\d*\n\Z", out.stderr)
        self.assertEqual(out.returncode, 0)
        until(lambda: not self.machine.oracle()["processes"], "memory outlives its process")
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)


class Groups(ProgramTest):
    """The checks of sim/tests/program.c, each group in a process of its own."""


for name in ("contexts", "primary", "limits", "green", "streams", "threads", "modules", "libraries", "linking", "functions", "launches",
             "together", "growth"):
    setattr(Groups, f"test_{name}", lambda self, name=name: self.run_group(name))


class Graphs(ProgramTest):
    """The checks of sim/tests/graph.c, likewise."""


for name in ("structure", "nodes", "children", "branches", "updates", "capture", "callbacks", "host_nodes", "memops", "objects",
             "pictures", "threads"):
    setattr(Graphs, f"test_{name}", lambda self, name=name: self.run_group(name, program="sim-graph"))


class GraphMemory(ProgramTest):
    """The checks of sim/tests/graph_memory.c, likewise."""


for name in ("nodes", "launches", "sharing", "reuse", "unfreed", "auto_free", "room", "packing"):
    setattr(GraphMemory, f"test_{name}", lambda self, name=name: self.run_group(name, program="sim-graph-memory"))


class Semaphores(ProgramTest):
    """The checks of sim/tests/semaphore.c, likewise."""


for name in ("streams", "graphs", "processes"):
    setattr(Semaphores, f"test_{name}", lambda self, name=name: self.run_group(name, program="sim-semaphore"))


class Conditionals(ProgramTest):
    """The checks of sim/tests/conditional.c, likewise."""

    def test_nodes(self):
        self.run_group("nodes", program="sim-conditional")

    def test_runs(self):
        self.run_group("runs", program="sim-conditional")


class NewerConditionals(ProgramTest):
    """SWITCH, and IF with an else, which came with CUDA 12.8."""

    devices = [dict(HOPPER, profile="13.0")]

    def test_choices(self):
        self.run_group("choices", program="sim-conditional")


class Images(ProgramTest):
    def write(self, data):
        path = self.dir / "image"
        path.write_bytes(data)
        return str(path)

    def test_cubin_says_parameters_needs_and_globals(self):
        self.run_group("binary", self.write(cubin_maker.cubin()))

    def test_cubin_of_an_older_toolkit_says_the_same(self):
        self.run_group("binary", self.write(cubin_maker.cubin(old=True)))

    def test_fatbin_gives_the_cubin_of_the_device(self):
        self.run_group("binary", self.write(cubin_maker.fatbin([(1, 70, PTX, False), (2, 80, cubin_maker.cubin(80), False),
                                                                (2, 90, cubin_maker.cubin(90), False), (2, 100, cubin_maker.cubin(100), False)])))

    def load(self, images, name="kernel_one"):
        """What cuModuleLoadData and cuModuleGetFunction give for each, from memory."""
        paths = []
        for i, image in enumerate(images):
            paths.append(str(self.dir / f"i{i}"))
            pathlib.Path(paths[-1]).write_bytes(image)
        return self.machine.python(f"""
ctx, m, f = C.c_void_p(), C.c_void_p(), C.c_void_p()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
free, total = C.c_size_t(), C.c_size_t()
check(cu.cuMemGetInfo_v2(C.byref(free), C.byref(total))); before = free.value
got = []
for path in {paths!r}:
    from_file = cu.cuModuleLoad(C.byref(m), path.encode())
    if from_file == 0: check(cu.cuModuleUnload(m))
    image = open(path, 'rb').read(); buffer = C.create_string_buffer(image, len(image) + 64)
    rc = cu.cuModuleLoadData(C.byref(m), buffer)
    got.append([rc, cu.cuModuleGetFunction(C.byref(f), m, b'{name}') if rc == 0 else -1])
    if rc == 0: check(cu.cuModuleUnload(m))
check(cu.cuMemGetInfo_v2(C.byref(free), C.byref(total)))
print(json.dumps([got, free.value == before]))
""")

    def test_which_of_a_fatbin_is_taken(self):
        fat, good = cubin_maker.fatbin, cubin_maker.cubin(90)
        images = [fat([(1, 70, PTX, False)]), fat([(1, 100, PTX, False)]), fat([(2, 80, good, False)]), fat([]),
                  fat([(2, 90, b"squeezed", True)]), fat([(1, 80, b"squeezed", True), (2, 90, good, False)]), cubin_maker.cubin(80),
                  cubin_maker.cubin(100)]
        got, whole = self.load(images)
        self.assertEqual([rc for rc, _ in got], [0, 209, 209, 209, 0, 0, 209, 209])
        self.assertEqual([rc for _, rc in got if rc != -1], [0, 0, 0])
        self.assertTrue(whole)
        # Nothing is known of a compressed image: every name is taken for one that is there.
        self.assertEqual(self.load([images[4], images[5]], "other")[0], [[0, 0], [0, 500]])

    def test_malformed_images_are_refused_and_nothing_is_kept(self):
        rng = random.Random(4)
        good, images = cubin_maker.cubin(), []
        for data in (good, cubin_maker.fatbin([(2, 90, good, False), (1, 70, PTX, False)])):
            images += [data[:n] for n in (0, 1, 4, 8, 16, 40, 64, 200, len(data) // 2, len(data) - 1)]
            for _ in range(150):
                broken = bytearray(data)
                for _ in range(rng.randrange(1, 4)):
                    at = rng.randrange(len(data))
                    broken[at:at + 8] = rng.choice([bytes(8), b"\xff" * 8, struct_u64(rng.randrange(1 << 40)), rng.randbytes(8)])[:len(data) - at]
                images.append(bytes(broken))
        got, whole = self.load(images)
        self.assertEqual(len(got), len(images))
        self.assertLessEqual({rc for rc, _ in got}, {0, 2, 200, 209, 218})
        self.assertGreater(sum(rc == 200 for rc, _ in got), 50)
        self.assertTrue(whole)

    def test_an_image_that_claims_more_than_there_is_does_not_crash(self):
        broken = bytearray(cubin_maker.cubin())
        broken[40:48] = struct_u64(1 << 29)  # section headers far behind the file
        self.assertEqual(self.load([bytes(broken)])[0], [[200, -1]])


def struct_u64(n):
    return n.to_bytes(8, "little")


class Lookup(unittest.TestCase):
    def test_newest_driver_finds_every_name_it_exports(self):
        machine = Machine([dict(HOPPER, profile="13.0")])
        self.addCleanup(machine.close)
        exported = set((DATA / "libcuda-13.0.exports.txt").read_text(encoding="utf-8").split())
        rows = [line.split() for line in (DATA / "cuda-procs.txt").read_text(encoding="utf-8").splitlines() if line]
        names = sorted({base for base, version, symbol, _ in rows if symbol in exported and int(version) <= 13000})
        self.assertGreater(len(names), 400)
        asked = [f"{name} 13000 {flags}" for name in names for flags in (0, 2)]
        out = subprocess.run([SIM / "sim-client", "lookup"], input="\n".join(asked) + "\n", check=True, capture_output=True, text=True,
                             env=machine.env()).stdout.splitlines()
        self.assertEqual(len(out), len(asked))
        self.assertEqual([line for line in out if line.split()[4] != "0" or line.split()[5] not in exported], [])


class Processes(ProgramTest):
    def test_what_a_process_held_is_free_once_it_execs(self):
        got = self.machine.python("""
import subprocess, sys
ctx, p = C.c_void_p(), C.c_ulonglong()
check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)); check(cu.cuCtxSetCurrent(ctx))
check(cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(1 << 20)))
child = subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL)
print(json.dumps(child.pid)); sys.stdout.flush(); os._exit(0)
""")
        until(lambda: not self.machine.oracle()["processes"], "a child that execed keeps the memory")
        with open(f"/proc/{got}/comm", encoding="utf-8") as f:
            self.assertEqual(f.read().strip(), "sleep")
        os.kill(got, 9)

    def test_a_child_forked_before_cuinit_is_a_client_of_its_own(self):
        got = self.machine.python("""
r, w = os.pipe()
pid = os.fork()
ctx, n = C.c_void_p(), C.c_int()
mine = [cu.cuInit(0), cu.cuDeviceGetCount(C.byref(n)), cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)]
if pid == 0:
    os.write(w, json.dumps(mine).encode()); os._exit(0)
os.waitpid(pid, 0)
grand = os.fork()
if grand == 0:
    os._exit(cu.cuInit(0) * 10 + cu.cuCtxSynchronize())
print(json.dumps([mine, json.loads(os.read(r, 100)), os.waitstatus_to_exitcode(os.waitpid(grand, 0)[1])]))
""")
        self.assertEqual(got, [[0, 0, 0], [0, 0, 0], 33])

    def test_killed_in_the_midst_of_loading_leaves_nothing(self):
        code = """
import ctypes as C
cu = C.CDLL('libcuda.so.1'); ctx, m = C.c_void_p(), C.c_void_p()
cu.cuInit(0); cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0); cu.cuCtxSetCurrent(ctx); print('loading', flush=True)
while True:
    cu.cuModuleLoadData(C.byref(m), b'.version 7.0\\n.global .b8 a[100000];\\n.global .b8 b[3];\\n'); cu.cuModuleUnload(m)
"""
        for _ in range(5):
            p = subprocess.Popen(["/usr/bin/python3", "-c", code], env=self.machine.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            with running(p, "loading"):
                until(lambda: any(q["module_bytes"] >= 2 * MIB for q in self.machine.oracle()["processes"]), "no module is loaded")
        until(lambda: not self.machine.oracle()["processes"], "a dead client is listed")
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)


if __name__ == "__main__":
    unittest.main()

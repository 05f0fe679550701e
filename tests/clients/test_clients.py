# SPDX-License-Identifier: Apache-2.0
"""Real programs on the simulated driver, bare and under libvgpu.so (a share of its own, HAMi's environment): NVIDIA's
nvidia-smi, numba and pycuda; and NVIDIA's real libcuda.so.1, which loads without a GPU, under our hooks. The optional group of
"make test-clients": fetch.py gets the programs; what cannot be had is skipped with the reason. Thirty seconds once fetched."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

TIMEOUT_S = 340
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

import fetch  # noqa: E402
import places  # noqa: E402
from test_sim import BUILD, DATA, MIB, Machine  # noqa: E402
from test_vgpu import control, usage  # noqa: E402

LIBVGPU = BUILD / "src/vgpu/libvgpu.so"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
CARD = {"name": "NVIDIA H100 80GB HBM3", "memory": "4Gi", "uuid": UUID, "contextBytes": "32Mi", "reservedBytes": "64Mi", "profile": "535"}
LIMIT = 1024 * MIB
WAYS = ("bare", "share", "hami")
STATE = {}


def setUpModule():
    STATE["root"], STATE["missing"] = fetch.fetch(BUILD / "clients")
    STATE["machine"] = Machine([CARD])
    STATE["preload"] = places.copy(LIBVGPU, STATE["machine"].dir)


def tearDownModule():
    STATE["machine"].close()


def libraries():
    """Where the fetched programs find what they link, without the real driver's folder."""
    base = STATE["root"] / "usr/lib/x86_64-linux-gnu"
    return [str(p) for p in (base, base / "blas", base / "lapack")]


class ClientTest(unittest.TestCase):
    needs = ()

    @classmethod
    def setUpClass(cls):
        for name in cls.needs:
            if name in STATE["missing"]:
                raise unittest.SkipTest(f"{name} cannot be fetched: {STATE['missing'][name]}")

    def env(self, way):
        machine = STATE["machine"]
        env = machine.env(PYTHONPATH=str(STATE["root"] / "usr/lib/python3/dist-packages"), PYTHONDONTWRITEBYTECODE="1",
                          NUMBA_CACHE_DIR=str(machine.dir), LC_ALL="C")
        env["LD_LIBRARY_PATH"] = ":".join([env["LD_LIBRARY_PATH"], *libraries()])
        folder = machine.dir / f"{self.id().rsplit('.', 1)[1]}-{way}"[:80]
        if way != "bare":
            folder.mkdir(exist_ok=True)
            env["LD_PRELOAD"] = str(STATE["preload"])
        if way == "share":
            share = folder / "claim-0"
            share.mkdir(exist_ok=True)
            (share / "control").write_bytes(control("claim-0", UUID, LIMIT, context=32 * MIB))
            (share / "usage").write_bytes(usage(UUID))
            env["ALIQUOT_SHARE_ROOT"] = str(folder)
        elif way == "hami":
            env.update(CUDA_DEVICE_MEMORY_LIMIT="1024m", CUDA_DEVICE_MEMORY_SHARED_CACHE=str(folder / "cache"))
        return env

    def run_program(self, way, *command):
        out = subprocess.run([str(c) for c in command], env=self.env(way), capture_output=True, text=True, timeout=60)
        self.assertEqual(out.returncode, 0, f"{way}: {out.stdout[-1500:]}{out.stderr[-1500:]}")
        return out.stdout

    def python(self, way, code):
        return json.loads(self.run_program(way, "/usr/bin/python3", "-c", code).splitlines()[-1])

    def nothing_is_held(self):
        self.assertEqual(STATE["machine"].oracle()["used_bytes"], 0)


class Pycuda(ClientTest):
    needs = ("python3-pycuda", "python3-numpy", "libboost-python1.74.0", "libcurand10")

    def test_copies_come_back_and_a_kernel_computes(self):
        code = """
import json, numpy as np, pycuda.driver as cuda
cuda.init(); ctx = cuda.Device(0).retain_primary_context(); ctx.push()
x, y = np.arange(1000, dtype=np.float32), np.ones(1000, dtype=np.float32)
dx, dy = cuda.mem_alloc(x.nbytes), cuda.mem_alloc(y.nbytes)
cuda.memcpy_htod(dx, x); s = cuda.Stream(); cuda.memcpy_htod_async(dy, cuda.pagelocked_zeros_like(y) + 1, s); s.synchronize()
ptx = b'''.version 8.0
.target sm_90
.address_size 64
.visible .entry saxpy(.param .u64 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }'''
f = cuda.module_from_buffer(ptx).get_function('saxpy')
a, b = cuda.Event(), cuda.Event(); a.record()
f(np.uint64(1000), np.float32(2), dx, dy, grid=(8, 1), block=(128, 1, 1)); b.record(); b.synchronize()
back = np.empty_like(y); cuda.memcpy_dtoh(back, dy); same = np.empty_like(x); cuda.memcpy_dtoh(same, dx)
print(json.dumps([bool((back == 2 * x + 1).all()), bool((same == x).all()), b.time_since(a) > 0, cuda.Device(0).name()]))
del f, dx, dy; ctx.pop(); ctx.detach()"""
        for way in WAYS:
            with self.subTest(way=way):
                self.assertEqual(self.python(way, code), [True, True, True, CARD["name"]])
        self.nothing_is_held()

    def test_out_of_memory_at_the_limit_and_not_before(self):
        code = """
import json, pycuda.driver as cuda
cuda.init(); ctx = cuda.Device(0).retain_primary_context(); ctx.push()
free, total = cuda.mem_get_info(); held = []; got = None
try:
    while True: held.append(cuda.mem_alloc(16 << 20))
except cuda.MemoryError as e: got = str(e)
n = len(held); held.pop().free(); held.append(cuda.mem_alloc(16 << 20))
print(json.dumps([total >> 20, free >> 20, n * 16, 'out of memory' in got]))
held.clear(); ctx.pop(); ctx.detach()"""
        for way in WAYS:
            with self.subTest(way=way):
                total, free, held, is_memory_error = self.python(way, code)
                self.assertTrue(is_memory_error)
                self.assertEqual(total, 4096 - 64 if way == "bare" else LIMIT // MIB)
                self.assertLessEqual(held, free)
                self.assertLess(free - held, 16)
                self.assertLess(total - free, 300)
        self.nothing_is_held()


class Numba(ClientTest):
    needs = ("python3-numba", "python3-llvmlite", "python3-numpy")

    def test_arrays_go_there_and_back(self):
        code = """
import json, numpy as np
from numba import cuda
x = np.arange(1 << 20, dtype=np.int32); d = cuda.to_device(x); e = cuda.device_array_like(x); e.copy_to_device(d)
s = cuda.stream(); p = cuda.pinned_array(16, np.int32); p[:] = 7; q = cuda.to_device(p, stream=s); s.synchronize()
info = cuda.current_context().get_memory_info()
print(json.dumps([bool((e.copy_to_host() == x).all()), q.copy_to_host().tolist()[:2], info.total >> 20, len(cuda.gpus), cuda.runtime.__class__.__name__]))"""
        for way in WAYS:
            with self.subTest(way=way):
                got = self.python(way, code)
                self.assertEqual(got[:4], [True, [7, 7], 4096 - 64 if way == "bare" else LIMIT // MIB, 1])
        self.nothing_is_held()

    def test_out_of_memory_at_the_limit_and_not_before(self):
        code = """
import json, numpy as np
from numba import cuda
cuda.current_context().deallocations.clear(); held = []; code = None
try:
    while True: held.append(cuda.device_array(16 << 20, np.uint8))
except cuda.cudadrv.driver.CudaAPIError as e: code = e.code
print(json.dumps([len(held) * 16, code]))"""
        for way in WAYS:
            with self.subTest(way=way):
                held, error = self.python(way, code)
                room = (4096 - 64 if way == "bare" else LIMIT // MIB)
                self.assertEqual(error, 2)
                self.assertLessEqual(held, room - 32)
                self.assertGreater(held, room - 300)

    def test_kernels(self):
        self.skipTest("numba compiles kernels with NVIDIA's NVVM, which no Debian package of this group brings; pycuda's test runs one")


class NvidiaSmi(ClientTest):
    needs = ("nvidia-smi",)

    def setUp(self):
        self.holder = STATE["machine"].client("hold", 100 * MIB)
        self.assertEqual(self.holder.stdout.readline().strip(), "held")
        self.addCleanup(self.holder.communicate)

    def smi(self, way, *args):
        return self.run_program(way, STATE["root"] / "usr/lib/nvidia/current/nvidia-smi", *args)

    def shown_total(self, way):
        return 4096 if way == "bare" else LIMIT // MIB

    def test_default_table_shows_the_limit(self):
        for way in WAYS:
            with self.subTest(way=way):
                table = self.smi(way)
                self.assertRegex(table, rf"MiB / +{self.shown_total(way)}MiB")
                self.assertIn("Driver Version: 535.261.03", table)
                self.assertIn("H100", table)
                if way == "bare":
                    self.assertRegex(table, rf"{self.holder.pid} +C +\S*sim-client +132MiB")

    def test_list_names_cards_as_they_are(self):
        for way in WAYS:
            self.assertEqual(self.smi(way, "-L").strip(), f"GPU 0: {CARD['name']} (UUID: {UUID})")

    def test_query_gpu_shows_the_limit_and_the_rest_of_the_card(self):
        fields = "memory.total,memory.used,memory.free,utilization.gpu,pci.bus_id,uuid,mig.mode.current,driver_version,index,ecc.errors.uncorrected.volatile.total"
        for way in WAYS:
            with self.subTest(way=way):
                row = self.smi(way, f"--query-gpu={fields}", "--format=csv,noheader,nounits").strip().split(", ")
                self.assertEqual(int(row[0]), self.shown_total(way))
                self.assertEqual(row[3:], ["0", "00000000:10:00.0", UUID, "Disabled", "535.261.03", "0", "0"])
                if way == "bare":
                    self.assertEqual(int(row[1]), 132)
                else:  # no process of this share holds anything
                    self.assertLess(int(row[1]), 132)

    def test_query_compute_apps_lists_the_cards_processes_by_a_private_table(self):
        """This nvidia-smi asks the driver's private table, which the library passes through: processes of others are seen."""
        for way in WAYS:
            with self.subTest(way=way):
                mine = subprocess.Popen([BUILD / "sim/sim-client", "hold", str(50 * MIB)], env=self.env(way), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
                self.assertEqual(mine.stdout.readline().strip(), "held")
                rows = self.smi(way, "--query-compute-apps=pid,used_memory,name", "--format=csv,noheader,nounits").split("\n")
                mine.stdin.close()
                mine.wait()
                mine.stdout.close()
                self.assertTrue(any(re.match(rf"{self.holder.pid}, 132, \S*sim-client$", row) for row in rows), rows)
                self.assertTrue(any(re.match(rf"{mine.pid}, 82, \S*sim-client$", row) for row in rows), rows)

    def test_query_prints_every_section_that_the_simulator_has(self):
        text = self.smi("bare", "-q")
        for wanted in ("Product Name                          : NVIDIA H100 80GB HBM3", f"GPU UUID                              : {UUID}",
                       "Total                             : 4096 MiB", "Minor Number                          : 0", "Gpu                               : 0 %"):
            self.assertIn(wanted, text)
        self.assertNotIn("Unknown Error", text)
        self.assertRegex(self.smi("share", "-q", "-d", "MEMORY"), r"Total +: 1024 MiB")

    def test_a_lost_card_is_reported_as_the_driver_does(self):
        machine = Machine([CARD])
        self.addCleanup(machine.close)
        machine.ctl("lose", "0")
        out = subprocess.run([STATE["root"] / "usr/lib/nvidia/current/nvidia-smi"], env=machine.env(LC_ALL="C"), capture_output=True, text=True, timeout=60)
        self.assertNotEqual(out.returncode, 0)
        self.assertIn("GPU is lost", out.stdout + out.stderr)


REAL_LOOKUPS = """
import ctypes as C, json, os, sys
class Info(C.Structure):
    _fields_ = [('file', C.c_char_p), ('base', C.c_void_p), ('name', C.c_char_p), ('at', C.c_void_p)]
libc, cu = C.CDLL(None), C.CDLL('libcuda.so.1')
def symbol(p):
    i = Info()
    return [os.path.basename(i.file.decode()), (i.name or b'-').decode()] if p.value and libc.dladdr(p, C.byref(i)) else ['-', '-']
rows = []
for line in sys.stdin:
    name, version, flags = line.rstrip('\\n').rsplit(' ', 2)
    p, s = C.c_void_p(), C.c_int(9)
    rc = cu.cuGetProcAddress_v2(name.encode(), C.byref(p), int(version), C.c_ulonglong(int(flags)), C.byref(s)); v2 = [rc, s.value, *symbol(p)]
    p = C.c_void_p(); rc = cu.cuGetProcAddress(name.encode(), C.byref(p), int(version), C.c_ulonglong(int(flags))); rows.append([v2, [rc, *symbol(p)]])
n = C.c_int(); print(json.dumps([rows, cu.cuInit(0), cu.cuDriverGetVersion(C.byref(n)), n.value]))
"""


class RealLibcuda(ClientTest):
    needs = ("libcuda1",)

    def answers(self, way, requests):
        env = self.env(way)
        env["LD_LIBRARY_PATH"] = str(STATE["root"] / "usr/lib/x86_64-linux-gnu/nvidia/current")
        out = subprocess.run(["/usr/bin/python3", "-c", REAL_LOOKUPS], input=requests, env=env, check=True, capture_output=True, text=True, timeout=60)
        return json.loads(out.stdout)

    def test_lookups_through_the_library_are_the_drivers_but_for_our_wrappers(self):
        recorded = [line for line in (DATA / "answers/libcuda-535.261.03.txt").read_text(encoding="utf-8").splitlines() if line]
        words = [line.split(" ") for line in recorded]
        requests = "".join(" ".join(w[:-3]) + "\n" for w in words)
        bare, ours = self.answers("bare", requests), self.answers("share", requests)
        self.assertEqual((bare[1:], ours[1:]), ([100, 0, 12020], [100, 0, 12020]))
        self.assertEqual([[str(v2[0]), str(v2[1]), v2[3]] for v2, _ in bare[0]], [w[-3:] for w in words])
        exported = set(re.findall(r" [TW] (cu\w+)", subprocess.run(["nm", "-D", "--defined-only", LIBVGPU], check=True, capture_output=True, text=True).stdout))
        substituted = 0
        for (bare2, bare1), (ours2, ours1), line in zip(bare[0], ours[0], recorded):
            for there, here in ((bare2, ours2), (bare1, ours1)):
                # The same code, status and symbol; of ours where we export it, the driver's own object otherwise.
                self.assertEqual(here[:-2] + here[-1:], there[:-2] + there[-1:], line)
                self.assertEqual(here[-2], "libvgpu.so" if here[-1] in exported else there[-2], line)
                substituted += here[-2] == "libvgpu.so"
        self.assertGreater(substituted, 200)


class Sources(unittest.TestCase):
    def test_machines_debian_sources_gain_components_and_lose_nothing(self):
        stanzas = fetch.debian_stanzas()
        for text in stanzas:
            self.assertIn("Components: main contrib non-free\n", text)
            self.assertRegex(text, r"(?m)^URIs: \S+")
        self.assertFalse(any("Components: main\n" in text for text in stanzas))

    def test_nothing_is_installed_or_changed_outside(self):
        options = " ".join(map(str, fetch.Apt(BUILD / "clients").options))
        for key in ("Dir::Etc=", "Dir::State=", "Dir::Cache="):
            self.assertIn(f"{key}{(BUILD / 'clients').resolve()}", options)


if __name__ == "__main__":
    unittest.main()

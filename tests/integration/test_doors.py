# SPDX-License-Identifier: Apache-2.0
"""Every way in which programs come to the driver leads to the limit, and other people's libraries keep their own view
of the process. Each program here asks for twice its share: without libvgpu.so the simulated card gives it."""

import glob
import os
import subprocess
import unittest

import test_vgpu as world
from test_vgpu import GIB, OUT_OF_MEMORY, STATE, Case

TIMEOUT_S = 300
JEMALLOC = next(iter(glob.glob("/usr/lib/*/libjemalloc.so.2")), None)
PLUGINS = {  # name: (BY, what else)
    "linked": ("LINK", ["-Wl,--no-as-needed", "-l:libcuda.so.1"]),
    "unlinked": ("LINK", ["-Wl,-z,lazy"]),
    "open": ("OPEN", []),
    "path": ("OPEN", ['-DDRIVER="{dir}/lib/libcuda.so.1"']),
    "next": ("NEXT", ["-Wl,--no-as-needed", "-l:libcuda.so.1"]),
    "default": ("DEFAULT", []),
    "procaddr": ("PROCADDR", []),
    "versioned": ("VERSIONED", []),
    "isolated": ("ISOLATED", []),
    "copy": ("OPEN", ['-DDRIVER="{dir}/other/libother.so"']),
    "deep2": ("OPEN", ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib"]),
    "deep1": ("DEEPER", ['-DNEXT_PLUGIN="{dir}/deep2.so"']),
    "deep0": ("DEEPER", ['-DNEXT_PLUGIN="{dir}/deep1.so"']),
}


def setUpModule():
    world.setUpModule()
    directory = STATE["dir"]
    (directory / "other").mkdir()
    data = (world.BUILD / "sim/libsimcuda-550.so").read_bytes()  # the driver under another SONAME
    (directory / "other/libother.so").write_bytes(data.replace(b"libcuda.so.1\0", b"libother.so\0\0"))

    def compile_(name, source, *flags):
        subprocess.run(["cc", "-O1", "-w", "-I", world.REPO / "include", "-o", directory / name, world.SOURCES / source,
                        "-L", directory / "lib", *flags, "-ldl", "-pthread"], check=True)

    compile_("doors", "doors_client.c")
    compile_("doors-asan", "doors_client.c", "-fsanitize=address")
    for name, (by, flags) in PLUGINS.items():
        compile_(f"{name}.so", "doors_plugin.c", "-shared", "-fPIC", f"-DBY={by}", *(f.format(dir=directory) for f in flags))
    for name, flags in {"wraps": ["-DWRAPS"], "dlsym": ["-DDLSYM"], "names": ["-DNAMES"],
                        "first": ['-DVIEW="first"', "-DFINDER=find_first"],
                        "second": ['-DVIEW="second"', "-DFINDER=find_second"]}.items():
        compile_(f"p-{name}.so", "doors_preload.c", "-shared", "-fPIC", *flags)


tearDownModule = world.tearDownModule


class DoorCase(Case):
    def setUp(self):
        super().setUp()
        self.share(GIB)

    def run_it(self, way, *plugins, program="doors", preload=("{dir}/lib/libvgpu.so",), command=None, **env):
        directory = STATE["dir"]
        full = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"),
                "LD_LIBRARY_PATH": str(directory / "lib"), "ALIQUOT_SHARE_ROOT": str(self.shares),
                "LD_PRELOAD": ":".join(p.format(dir=directory) for p in preload), **env}
        command = command or [directory / program, way, *(directory / f"{p}.so" for p in plugins)]
        return subprocess.run(command, env=full, capture_output=True, text=True, timeout=60)

    def check(self, way, *plugins, want=OUT_OF_MEMORY, others=(), **options):
        """`others`: preloads of others, which are tried before ours and after."""
        ours = "{dir}/lib/libvgpu.so"
        bare = self.run_it(way, *plugins, preload=others, **options)
        self.assertEqual(bare.stdout.split(), ["0"] * len(plugins), bare.stderr)
        for preload in {(ours, *others), (*others, ours)}:
            with self.subTest(way=way, plugins=plugins, preload=preload):
                done = self.run_it(way, *plugins, preload=preload, **options)
                self.assertEqual((done.returncode, done.stdout.split()), (0, [str(want)] * len(plugins)), done.stderr)
                self.assertEqual(done.stderr, bare.stderr)


class Ways(DoorCase):
    def test_plugins_opened_locally_and_globally(self):
        for way in ("local", "global"):
            for plugin in ("linked", "open", "path", "next", "default", "procaddr", "versioned"):
                self.check(way, plugin)

    def test_plugins_with_deepbind(self):
        for plugin in ("linked", "open", "path", "default", "procaddr", "versioned"):
            self.check("deepbind", plugin)

    def test_several_plugins_in_one_process(self):
        self.check("local", "open", "linked", "procaddr")

    def test_lazy_symbols_of_a_driver_opened_globally_as_cgo_does(self):
        self.check("lazy", "unlinked")

    def test_plugin_of_a_plugin_that_finds_the_driver_by_its_own_runpath_as_a_jvm_does(self):
        self.check("local", "deep0", LD_LIBRARY_PATH="")

    def test_ctypes(self):
        program = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); x = ctypes.c_void_p(); p = ctypes.c_uint64(); c.cuInit(0);"
                   "c.cuCtxCreate_v2(ctypes.byref(x), 0, 0); print(c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(2 << 30)))")
        self.check("ctypes", "python", command=["/usr/bin/python3", "-I", "-c", program])

    def assertToolIsLimited(self, said, **variables):
        """`said`: what a tool says of its own attempt, to be filled in with the result."""
        for preload, result in (((), 0), (("{dir}/lib/libvgpu.so",), OUT_OF_MEMORY)):
            done = self.run_it("tool", preload=preload, **variables)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, said.format(result=result))

    def test_profiler_that_the_driver_loads_in_cuinit(self):
        """It calls the driver while cuInit is on its way through the library."""
        for plugin in ("procaddr", "open", "linked", "default"):
            self.assertToolIsLimited("profiler {result}\ninit 0\nagain 0\n", CUDA_INJECTION64_PATH=str(STATE["dir"] / f"{plugin}.so"))
        self.assertToolIsLimited("init 0\nagain 0\n", CUDA_INJECTION64_PATH="/nonexistent.so")

    def test_tool_that_nvtx_loads_before_cuinit(self):
        for plugin in ("procaddr", "open", "linked"):
            self.assertToolIsLimited("range {result}\ninit 0\nagain 0\n", NVTX_INJECTION64_PATH=str(STATE["dir"] / f"{plugin}.so"))

    def test_both_tools_in_one_program(self):
        path = str(STATE["dir"] / "open.so")
        done = self.run_it("tool", CUDA_INJECTION64_PATH=path, NVTX_INJECTION64_PATH=path)
        self.assertEqual(done.stdout.split(), ["profiler", "2", "range", "2", "init", "0", "again", "0"], done.stderr)

    def test_second_driver_in_a_process_is_not_limited_as_limits_md_says(self):
        """A libcuda in a namespace of its own, or one that calls itself otherwise, is not this process's driver."""
        for plugin in ("isolated", "copy"):
            self.check("local", plugin, want=0)
        self.assertIn("dlmopen", (world.REPO / "docs/limits.md").read_text())


class Others(DoorCase):
    def test_preload_that_wraps_driver_functions(self):
        for plugin in ("linked", "open", "procaddr"):
            done = [self.run_it("local", plugin, preload=order) for order in
                    (("{dir}/p-wraps.so", "{dir}/lib/libvgpu.so"), ("{dir}/lib/libvgpu.so", "{dir}/p-wraps.so"))]
            for one in done:
                self.assertEqual(one.stdout.split(), [str(OUT_OF_MEMORY)], (plugin, one.stderr))
            if plugin == "linked":
                self.assertEqual(done[0].stderr, "wrapped\n")  # it is first: it sees the call

    def test_preload_that_wraps_dlsym(self):
        for plugin in ("open", "procaddr", "linked", "default"):
            self.check("local", plugin, others=("{dir}/p-dlsym.so",))

    def test_jemalloc(self):
        if not JEMALLOC:
            self.skipTest("libjemalloc.so.2 is not installed (package libjemalloc2)")
        for plugin in ("linked", "open", "procaddr"):
            self.check("local", plugin, others=(JEMALLOC,))

    def test_address_sanitizer(self):
        for options in ("verify_asan_link_order=0", "verify_asan_link_order=0:detect_leaks=0"):
            self.check("local", "open", program="doors-asan", ASAN_OPTIONS=options)
        runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], check=True, stdout=subprocess.PIPE, text=True).stdout
        runtime = os.path.realpath(runtime.strip())
        self.check("local", "linked", program="doors-asan", others=(runtime,), ASAN_OPTIONS="verify_asan_link_order=0")

    def test_everybody_sees_what_comes_after_himself_from_many_threads(self):
        ours, pair = "{dir}/lib/libvgpu.so", ["{dir}/p-first.so", "{dir}/p-second.so"]
        for preload in (pair, [ours, *pair], [pair[0], ours, pair[1]], [*pair, ours]):
            done = self.run_it("", preload=preload, command=[STATE["dir"] / "doors", "views", "", ""])
            self.assertEqual(done.stdout.split(), ["first", "second", "first", "none", "0"], (preload, done.stderr))
        bare, done = (self.run_it("views", "p-first", "p-second", preload=p) for p in ((), (ours,)))
        self.assertEqual(bare.returncode, 0)
        self.assertEqual(done.stdout, bare.stdout)  # opened later, they have scopes of their own

    def test_names_that_only_begin_like_the_drivers_cost_no_look_at_the_share(self):
        (self.shares / "claim-0/control").write_bytes(b"damaged")  # whoever looks says a line
        done = self.run_it("names", "p-names")
        self.assertEqual((done.stdout, done.stderr), ("names 7000 1\n", ""))
        self.assertIn("claim-0", self.run_it("local", "open").stderr)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""libvgpu.so goes into every process of a container, most of which never touch a GPU: what it asks of the dynamic linker,
and that it leaves ordinary programs of glibc and musl exactly as they are."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import places

TIMEOUT_S = 600
REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
LIBRARY = BUILD / "src/vgpu/libvgpu.so"
CC = os.environ.get("ALIQUOT_CC", "gcc")
RUN = os.environ.get("ALIQUOT_RUN", "env").split()  # an emulator that takes -E NAME=VALUE for the program's environment
BINUTILS = CC[:-len("gcc")] if CC.endswith("-gcc") else ""
DOORS = {"dlsym", "dlvsym", "dlopen", "dlmopen"}
RELOCATIONS_MAX = 50
TLS_BYTES_MAX = 64
NOBODY = 65534

# Prints what a hooked dlsym or dlopen could spoil, and ends in a status that is nobody's default.
PROBE = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    void *self = dlopen(NULL, RTLD_NOW);
    int (*print)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "puts");
    void *missing = dlsym(self, "no_such_symbol");
    const char *error = dlerror();
    if (!self || !print || missing || !error || !strstr(error, "no_such_symbol"))
        return 1;
    if (dlopen("/nonexistent/library.so", RTLD_LAZY) || !dlerror())
        return 2;
    if (dlsym(RTLD_DEFAULT, "cuInit") || dlsym(RTLD_DEFAULT, "nvmlInit_v2"))
        return 3;
    print("probe");
    fprintf(stderr, "%d %s\n", argc, argv[argc - 1]);
    return 42;
}
"""


native = unittest.skipIf(RUN != ["env"], "the machine's own programs are of another architecture")


def tool(program, *args):
    return subprocess.run([BINUTILS + program, *args], check=True, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LC_ALL="C")).stdout


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
class Binary(unittest.TestCase):
    def test_highest_symbol_version_is_glibc_2_17(self):
        versions = {tuple(int(n) for n in v.split(".")) for v in re.findall(r"GLIBC_([0-9.]+)", tool("objdump", "-T", LIBRARY))}
        self.assertLessEqual(max(versions, default=(0,)), (2, 17))

    def test_needs_no_private_and_no_fortified_symbol(self):
        symbols = tool("objdump", "-T", LIBRARY)
        self.assertNotIn("GLIBC_PRIVATE", symbols)
        self.assertNotRegex(symbols, r"_chk\b")

    def test_exports_nothing_but_the_hooks(self):
        names = [line.split()[-1].split("@")[0] for line in tool("nm", "-D", "--defined-only", LIBRARY).splitlines()]
        self.assertGreater(len(names), 20)
        self.assertTrue(DOORS <= set(names), DOORS - set(names))
        self.assertEqual([n for n in names if n not in DOORS and not re.match(r"(cu|nvml)[A-Z]", n)], [])

    def test_undefined_symbols_are_weak(self):
        """A strong one would end every process whose C library has none by that name."""
        table = tool("readelf", "--dyn-syms", "-W", LIBRARY)
        strong = [line.split()[-1] for line in table.splitlines() if " GLOBAL " in line and " UND " in line]
        self.assertEqual(strong, [])

    def test_at_most_50_dynamic_relocations(self):
        count = len(re.findall(r"^[0-9a-f]{8,}\s", tool("readelf", "-rW", LIBRARY), re.M))
        self.assertLessEqual(count, RELOCATIONS_MAX)

    def test_needs_no_library_but_libc(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-dW", LIBRARY))
        self.assertLessEqual(set(needed), {"libc.so.6"})

    def test_has_no_text_relocations_no_constructors_and_no_executable_stack(self):
        dynamic = tool("readelf", "-dW", LIBRARY)
        for tag in ("TEXTREL", "(INIT)", "(INIT_ARRAY)", "(FINI)", "(FINI_ARRAY)", "RPATH", "RUNPATH"):
            self.assertNotIn(tag, dynamic)
        stack = next(line for line in tool("readelf", "-lW", LIBRARY).splitlines() if "GNU_STACK" in line)
        self.assertNotIn("RWE", stack)

    def test_is_bound_at_load_and_stays(self):
        dynamic = tool("readelf", "-dW", LIBRARY)
        self.assertRegex(dynamic, r"FLAGS_1.*NOW")
        self.assertRegex(dynamic, r"FLAGS_1.*NODELETE")

    def test_thread_local_storage_fits_the_static_surplus(self):
        sizes = [int(line.split()[5], 16) for line in tool("readelf", "-lW", LIBRARY).splitlines() if line.split()[:1] == ["TLS"]]
        self.assertLessEqual(sum(sizes), TLS_BYTES_MAX)

    def test_has_both_hash_tables(self):
        dynamic = tool("readelf", "-dW", LIBRARY)
        self.assertIn("(GNU_HASH)", dynamic)
        self.assertIn("(HASH)", dynamic)


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
class Processes(unittest.TestCase):
    """Each program is run without and with the library; status, output and errors must be the same."""

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-load-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.dir.chmod(0o755)
        cls.library = places.copy(LIBRARY, cls.dir)
        (cls.dir / "probe.c").write_text(PROBE)

    def probe(self, compiler, *flags):
        program = self.dir / f"probe-{compiler}"
        subprocess.run([compiler, "-O1", "-o", program, self.dir / "probe.c", *flags], check=True)
        return str(program)

    def bare(self, command):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "CUDA_", "ALIQUOT_"))}
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=60)

    def by_environment(self, command):
        return self.bare([*RUN, *(["-E"] if RUN != ["env"] else []), f"LD_PRELOAD={self.library}", *command])

    def by_preload_file(self, command):
        """/etc/ld.so.preload of a private copy of /etc, in a mount namespace that ends with the command."""
        script = ('set -e; mount -t tmpfs alq "$1/mnt"; cp -a /etc "$1/mnt/etc"; echo "$1/libvgpu.so" >"$1/mnt/etc/ld.so.preload"; '
                  'mount --bind "$1/mnt/etc" /etc; shift; exec "$@"')
        (self.dir / "mnt").mkdir(exist_ok=True)
        return self.bare(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(self.dir), *command])

    def check(self, command, expected_status, expected_output=None):
        ways = [("LD_PRELOAD", self.by_environment)]
        if RUN == ["env"] and os.geteuid() == 0 and self.bare(["unshare", "--mount", "true"]).returncode == 0:
            ways.append(("ld.so.preload", self.by_preload_file))
        want = self.bare([*RUN, *command])
        self.assertEqual(want.returncode, expected_status, want.stderr)
        if expected_output is not None:
            self.assertEqual(want.stdout, expected_output)
        for name, way in ways:
            with self.subTest(name):
                got = way(command)
                self.assertEqual((got.returncode, got.stdout, got.stderr), (want.returncode, want.stdout, want.stderr))

    @native
    def test_true_is_unharmed(self):
        self.check(["/bin/true"], 0, b"")

    @native
    def test_bash_with_children_is_unharmed(self):
        self.check(["/bin/bash", "-c", "echo out; echo err >&2; ls / | grep -c etc; (exit 3); exit $?"], 3, b"out\n1\n")

    @native
    def test_python_loading_extensions_is_unharmed(self):
        self.check(["/usr/bin/python3", "-I", "-c",
                    "import ctypes, json, ssl, threading; print(ctypes.CDLL(None).abs(-7)); raise SystemExit(4)"], 4, b"7\n")

    @native
    def test_setuid_program_is_unharmed(self):
        program = next((p for p in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/chsh", "/usr/bin/passwd")
                        if os.path.exists(p) and os.stat(p).st_mode & 0o4000 and os.stat(p).st_uid == 0), None)
        if not program:
            self.skipTest("no setuid program of root's here")
        command = [program, "--version" if program.endswith(("su", "mount")) else "--help"]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
        self.check(command, self.bare(command).returncode)

    def test_program_using_dlsym_is_unharmed(self):
        self.check([self.probe(CC, "-ldl"), "last"], 42, b"probe\n")

    @native
    @unittest.skipUnless(shutil.which("musl-gcc"), "musl-gcc is not installed (package musl-tools)")
    def test_musl_program_is_unharmed(self):
        self.check([self.probe("musl-gcc"), "last"], 42, b"probe\n")

    @native
    @unittest.skipIf(os.geteuid() != 0, "/etc/ld.so.preload of a private /etc needs root")
    def test_preload_file_really_loads_the_library(self):
        """Guards the other tests: a namespace that hid the file would let them all pass."""
        for way in (self.by_environment, self.by_preload_file):
            self.assertIn(b"libvgpu.so", way(["cat", "/proc/self/maps"]).stdout)


class ForeignRoot:
    """The same in the root file system of another Debian release, with its C library."""

    release = variable = None

    @classmethod
    def setUpClass(cls):
        if not LIBRARY.exists():
            raise unittest.SkipTest(f"{LIBRARY} is not built")
        if os.geteuid() != 0:
            raise unittest.SkipTest("changing the root needs root")
        given = os.environ.get(cls.variable)
        cls.root = pathlib.Path(given or BUILD / "roots" / cls.release)
        if not given and not (cls.root / "bin/true").exists():
            cls.bootstrap()
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-load-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.dir.chmod(0o755)
        shutil.copyfile(LIBRARY, cls.dir / "libvgpu.so")

    @classmethod
    def bootstrap(cls):
        if not shutil.which("debootstrap"):
            raise unittest.SkipTest(f"no root of Debian {cls.release}: set {cls.variable} to one, or install debootstrap")
        cls.root.parent.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(["timeout", "200", "debootstrap", "--variant=minbase", cls.release, cls.root],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if made.returncode != 0:
            shutil.rmtree(cls.root, ignore_errors=True)
            last = made.stdout.strip().splitlines()[-1:] or [""]
            raise unittest.SkipTest(f"no root of Debian {cls.release}: debootstrap failed: {last[0]}")

    def inside(self, command, env=()):
        script = 'set -e; mount --bind "$1" "$2/mnt"; root=$2; shift 2; exec chroot "$root" /usr/bin/env -i "$@"'
        return subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
                               str(self.dir), str(self.root), "PATH=/usr/bin:/bin", *env, *command],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    def test_programs_are_unharmed(self):
        for command in (["/bin/true"], ["/bin/bash", "-c", "echo out; ls / >/dev/null; exit 3"],
                        ["/usr/bin/perl", "-e", "print 7; exit 4"]):
            with self.subTest(command[0]):
                want, got = self.inside(command), self.inside(command, ["LD_PRELOAD=/mnt/libvgpu.so"])
                self.assertEqual((got.returncode, got.stdout, got.stderr), (want.returncode, want.stdout, want.stderr))

    def test_library_is_really_loaded(self):
        script = ["/bin/bash", "-c", "LD_TRACE_LOADED_OBJECTS=1 /bin/true"]
        self.assertIn(b"/mnt/libvgpu.so", self.inside(script, ["LD_PRELOAD=/mnt/libvgpu.so"]).stdout)


@native
class Glibc231(ForeignRoot, unittest.TestCase):
    release, variable = "bullseye", "ALIQUOT_ROOT_BULLSEYE"


@native
class Glibc241(ForeignRoot, unittest.TestCase):
    release, variable = "trixie", "ALIQUOT_ROOT_TRIXIE"

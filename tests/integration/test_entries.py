# SPDX-License-Identifier: Apache-2.0
"""The tables of src/vgpu/entry: every entry point known to the drivers and headers is classed, the library exports exactly
the hooked ones, and each of those hands arguments and results through unchanged where no share is concerned. The driver
of the last part is generated from our declarations: every function notes what it was given and answers what it is told."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import places

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
LIBRARY = BUILD / "src/vgpu/libvgpu.so"
CC = os.environ.get("ALIQUOT_CC", "cc")
RUN = os.environ.get("ALIQUOT_RUN", "env").split()  # an emulator that takes -E NAME=VALUE for the program's environment
ENTRY = REPO / "src/vgpu/entry"
DATA = REPO / "sim/data"
DOORS = {"dlsym", "dlvsym", "dlopen", "dlmopen"}
HEADER_FOLDERS = ["/usr/include", "/usr/local/cuda/include", *sorted(map(str, pathlib.Path("/usr/local").glob("cuda-*/include")))]
LIMITS = (REPO / "docs/limits.md").read_text()


def rows(file, macro):
    """{name: (its type's name, class)} of one kind of row."""
    found = re.findall(rf"^{macro}\(([^)]*)\)", (ENTRY / file).read_text(), re.M)
    table = {}
    for row in found:
        words = [word.strip() for word in row.split(",")]
        if words[0] in table:
            raise AssertionError(f"{words[0]} is twice in {file}")
        table[words[0]] = (words[1], words[2] if len(words) > 2 else words[1])
    return table


TABLES = {"cu": (rows("cuda.def", "ALQ_CU"), rows("cuda.def", "ALQ_CU_NEED"), rows("cuda_pass.def", "ALQ_CU_PASS")),
          "nvml": (rows("nvml.def", "ALQ_NVML"), rows("nvml.def", "ALQ_NVML_NEED"), rows("nvml_pass.def", "ALQ_NVML_PASS"))}


def header(name):
    return next((path for path in (pathlib.Path(folder) / name for folder in HEADER_FOLDERS) if path.exists()), None)


class Tables(unittest.TestCase):
    def assertClassed(self, kind, names):
        self.assertTrue(names)
        known = set().union(*TABLES[kind])
        self.assertEqual(sorted(names - known), [], f"unclassed: give each a row in src/vgpu/entry/{kind}*.def")

    def test_no_name_has_two_rows(self):
        for hooked, needed, passed in TABLES.values():
            self.assertEqual((hooked.keys() & needed.keys()) | (hooked.keys() & passed.keys()) | (needed.keys() & passed.keys()), set())

    def test_every_export_of_every_driver_is_classed(self):
        for kind, pattern in (("cu", "libcuda-*.exports.txt"), ("nvml", "libnvidia-ml-*.exports.txt")):
            for path in sorted(DATA.glob(pattern)):
                with self.subTest(path.name):
                    self.assertClassed(kind, set(re.findall(rf"\b({kind}[A-Z]\w*)", path.read_text())))

    def test_every_function_of_an_installed_header_is_classed(self):
        headers = [(kind, found) for kind, name in (("cu", "cuda.h"), ("nvml", "nvml.h")) if (found := header(name))]
        if not headers:
            self.skipTest("neither cuda.h nor nvml.h on this machine")
        for kind, path in headers:
            with self.subTest(path):
                text = path.read_text(errors="replace")
                names = set(re.findall(r"(?:CUDAAPI|DECLDIR)\s+((?:cu|nvml)[A-Z]\w*)\s*\(", text))
                names |= set(re.findall(r"^#\s*define\s+(?:cu|nvml)[A-Z]\w*\s+((?:cu|nvml)[A-Z]\w*)\s*$", text, re.M))
                for form in ("ptds", "ptsz"):
                    names |= {f"{name}_{form}" for name in re.findall(rf"__CUDA_API_{form.upper()}\((cu[A-Z]\w*)\)", text)}
                self.assertClassed(kind, names)

    def test_what_acts_without_a_wrapper_is_admitted_in_the_docs(self):
        base = {re.sub(r"(_v\d+)?(_pt[ds][sz])?$", "", name)
                for _, _, passed in TABLES.values() for name, (_, what) in passed.items() if what != "NONE"}
        self.assertEqual(sorted(name for name in base if f"`{name}`" not in LIMITS), [])

    def test_passing_rows_are_sorted(self):
        names = [name for _, _, passed in TABLES.values() for name in passed]
        self.assertEqual(names, sorted(names))

    @unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
    def test_library_exports_the_hooked_names_and_no_other(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual({line.split()[-1] for line in symbols.splitlines()},
                         DOORS | TABLES["cu"][0].keys() | TABLES["nvml"][0].keys())


# ---- what goes through ----

DECLARATION = re.compile(r"^(CUresult|nvmlReturn_t|const char \*)\s*(\w+)\(([^;]*)\);$", re.M)


def declarations():
    text = (REPO / "include/aliquot/cuda_calls.h").read_text() + (REPO / "include/aliquot/nvml_abi.h").read_text()
    return {name: (result, [] if args == "void" else [" ".join(a.split()) for a in args.split(",")])
            for result, name, args in DECLARATION.findall(text)}


FAKE = """
#include <string.h>
#include "aliquot/cuda_abi.h"
#include "aliquot/nvml_abi.h"
unsigned char fake_given[4096];
unsigned fake_bytes, fake_calls, fake_answer;
const char *fake_watched;
static unsigned is_watched(const char *name) { return fake_watched && !strcmp(name, fake_watched); }
static void note(const void *arg, unsigned bytes)
{
    memcpy(fake_given + fake_bytes, arg, bytes);
    fake_bytes += bytes;
}
"""

CLIENT = """
#include <stdio.h>
#include <string.h>
#include "aliquot/cuda_abi.h"
#include "aliquot/nvml_abi.h"
extern unsigned char fake_given[4096];
extern unsigned fake_bytes, fake_calls, fake_answer;
extern const char *fake_watched;
static unsigned char memory[16][4096], before[16][4096], given[4096];
static unsigned given_bytes, bad;
static void give(void *arg, unsigned bytes, int is_pointer, unsigned at)
{
    void *pointer = memory[at];
    if (is_pointer)
        memcpy(arg, &pointer, sizeof(pointer));
    else
        memset(arg, (int)(0x11 * (at + 1)), bytes);
    memcpy(given + given_bytes, arg, bytes);
    given_bytes += bytes;
}
static void begin(const char *name)
{
    fake_watched = name;
    fake_calls = fake_bytes = given_bytes = 0;
    for (unsigned i = 0; i < 16; i++)
        memset(memory[i], (int)(0x40 + i), sizeof(memory[i]) - 1);
    if (!strncmp(name, "cuLaunchKernelEx", 16)) /* its attributes are read */
        memset(memory[0], 0, sizeof(memory[0]));
    memcpy(before, memory, sizeof(memory));
}
static void end(unsigned answer)
{
    const char *what = fake_calls != 1                           ? "number of calls"
                       : answer != fake_answer                   ? "result"
                       : fake_bytes != given_bytes ||
                               memcmp(fake_given, given, given_bytes) ? "arguments"
                       : memcmp(before, memory, sizeof(memory))  ? "memory of the program"
                                                                 : NULL;
    if (!what)
        return;
    printf("%s answering %u: %s (%u calls, %u)\\n", fake_watched, fake_answer, what, fake_calls, answer);
    bad++;
}
int main(void)
{
    unsigned answers[] = {ANSWERS}, tried = 0;
    for (unsigned i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        fake_answer = answers[i];
CALLS
    }
    printf("%u tried\\n", tried);
    return bad != 0;
}
"""


def generate(directory, kind):
    """A driver library and a program that calls every hooked entry point of it; the number of calls per answer."""
    declared = declarations()
    hooked, needed, _ = TABLES[kind]
    driver, calls, missing = [FAKE], [], []
    for name, (type_name, _) in {**hooked, **needed}.items():
        if type_name not in declared:
            missing.append(name)
            continue
        result, types = declared[type_name]
        arguments = ", ".join(f"__typeof__({t}) a{i}" for i, t in enumerate(types)) or "void"
        notes = "".join(f" note(&a{i}, sizeof(a{i}));" for i in range(len(types)))
        driver.append(f"{result} {name}({arguments});\n{result} {name}({arguments})\n"
                      f"{{ if (is_watched(\"{name}\")) {{ fake_calls++; fake_bytes = 0;{notes} return ({result})fake_answer; }}"
                      f" return ({result})0; }}")
        if name in hooked:
            prepare = "".join(f" __typeof__({t}) a{i}; give(&a{i}, sizeof(a{i}), {int(t.endswith('*'))}, {i});"
                              for i, t in enumerate(types))
            values = ", ".join(f"a{i}" for i in range(len(types)))
            calls.append(f"        {{ extern __typeof__({type_name}) {name}; begin(\"{name}\");{prepare}"
                         f" end((unsigned){name}({values})); tried++; }}")
    if missing:
        raise AssertionError(f"no declaration of {missing}")
    soname = "libcuda.so.1" if kind == "cu" else "libnvidia-ml.so.1"
    answers = "0, 2, 201, 719" if kind == "cu" else "0, 3, 15, 999"
    (directory / "fake.c").write_text("\n".join(driver))
    (directory / "client.c").write_text(CLIENT.replace("ANSWERS", answers).replace("CALLS", "\n".join(calls)))
    flags = [CC, "-O1", "-w", "-fno-builtin", "-I", REPO / "include"]
    subprocess.run([*flags, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", directory / soname, directory / "fake.c"], check=True)
    subprocess.run([*flags, "-o", directory / "client", directory / "client.c", "-L", directory, f"-l:{soname}"], check=True)
    return len(calls)


def control(memory_bytes):
    """A share of a GPU that the machine does not have (include/aliquot/share.h)."""
    uuid = b"GPU-00000000-0000-0000-0000-000000000001"
    values = struct.pack("<QQqIIIII", memory_bytes, 0, 0, 50, 0, 0, 1000000, 0).ljust(256, b"\0")
    head = struct.pack("<QII64s48s", 0x314C525443514C41, 1, 4096, b"claim-0", uuid).ljust(512, b"\0")
    return (head + values).ljust(4096, b"\0"), (struct.pack("<QIIIIII", 0x3147415355514C41, 1, 4096, 135168, 1, 1024, 128)
                                                .ljust(4096, b"\0") + uuid.ljust(135168, b"\0"))


# A driver with one device, the one that control() names, and two functions from the future.
DRIVER = """
#include <string.h>
#include "aliquot/cuda_abi.h"
CUresult cuInit(unsigned int flags) { return 0; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return 0; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return 0; }
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[15] = 1;
    return 0;
}
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)1; return 0; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return 0; }
CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes) { *ptr = 4096; return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { return 0; }
CUresult cuFutureOne(void) { return 0; }
CUresult cuFutureTwo_v2(void) { return 0; }
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    *pfn = !strcmp(symbol, "cuFutureTwo") ? (void *)cuFutureTwo_v2 : !strcmp(symbol, "cuMemcpyHtoD") ? (void *)cuMemcpyHtoD_v2 : NULL;
    return 0;
}
"""

ASKS = """
#include <dlfcn.h>
#include <stdio.h>
#include "aliquot/cuda_abi.h"
int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/other.so", argv[1]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *other = dlopen(path, RTLD_NOW), *future = 0, *known = 0;
    __typeof__(cuInit) *init = dlsym(driver, "cuInit");
    __typeof__(cuMemAlloc_v2) *alloc = dlsym(driver, "cuMemAlloc_v2");
    __typeof__(cuGetProcAddress_v2) *get = dlsym(driver, "cuGetProcAddress_v2");
    CUdeviceptr ptr;
    if (!driver || !other || !init || !alloc || !get || init(0) || !dlsym(driver, "cuFutureOne") || !dlsym(driver, "cuMemcpyHtoD_v2") ||
        !dlsym(other, "cuBogus") || get("cuFutureTwo", &future, 99999, 0, 0) || get("cuMemcpyHtoD", &known, 12000, 0, 0))
        return 1;
    return !future || !known || alloc(&ptr, 512) ? 2 : 0;
}
"""


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
class Through(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="alq-e-"))
        self.addCleanup(shutil.rmtree, self.directory)
        places.copy(LIBRARY, self.directory)
        (self.directory / "shares").mkdir()

    def share(self, memory_bytes=1 << 30):
        share = self.directory / "shares/claim-0"
        share.mkdir()
        for name, data in zip(("control", "usage"), control(memory_bytes)):
            (share / name).write_bytes(data)

    def run_client(self, *args):
        env = [f"LD_LIBRARY_PATH={self.directory}", f"LD_PRELOAD={self.directory}/libvgpu.so", f"ALIQUOT_SHARE_ROOT={self.directory}/shares"]
        if RUN != ["env"]:
            env = [word for setting in env for word in ("-E", setting)]
        result = subprocess.run([*RUN, *env, self.directory / "client", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, timeout=60, env={"PATH": os.environ["PATH"]})
        return result.returncode, result.stdout

    def assertThrough(self, kind):
        count = generate(self.directory, kind)
        status, output = self.run_client()
        self.assertEqual((output, status), (f"{4 * count} tried\n", 0))

    def test_cuda_without_a_share(self):
        self.assertThrough("cu")

    def test_cuda_with_a_share_of_another_gpu(self):
        self.share()
        self.assertThrough("cu")

    def test_nvml_without_a_share(self):
        self.assertThrough("nvml")

    def test_nvml_with_a_share_of_another_gpu(self):
        self.share()
        self.assertThrough("nvml")

    def test_entry_points_that_no_table_knows_are_counted(self):
        """cuGetProcAddress and dlsym each hand out one unknown and one known function; a function of another library
        that is called like the driver's is not counted."""
        (self.directory / "driver.c").write_text(DRIVER)
        (self.directory / "other.c").write_text("int cuBogus(void) { return 0; }")
        (self.directory / "asks.c").write_text(ASKS)
        for source, flags in (("driver.c", ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", self.directory / "libcuda.so.1"]),
                              ("other.c", ["-shared", "-fPIC", "-o", self.directory / "other.so"]),
                              ("asks.c", ["-o", self.directory / "client"])):
            subprocess.run([CC, "-w", "-I", REPO / "include", self.directory / source, *flags, "-ldl"], check=True)
        self.share()
        self.assertEqual(self.run_client(self.directory), (0, ""))
        usage = (self.directory / "shares/claim-0/usage").read_bytes()
        self.assertEqual(struct.unpack_from("<Q", usage, 4096 + 256 + 48)[0], 2)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What simctl does to a simulated machine, as its clients see it: injected faults, lost, added and removed devices, events,
withheld memory, frozen utilisation, and the live view. Takes about fifteen seconds."""

import json
import re
import subprocess
import unittest

import places
from test_sim import BUILD, MIB, PROFILES, REPO, SIM, SMALL, WAIT_S, Machine, running, until

NVML_PRELUDE = """
h, h2 = C.c_void_p(), C.c_void_p()
class Event(C.Structure):
    _fields_ = [('device', C.c_void_p), ('type', C.c_ulonglong), ('data', C.c_ulonglong), ('gi', C.c_uint), ('ci', C.c_uint)]
def ctl(*args):
    import subprocess
    subprocess.run([%r, *map(str, args)], check=True, stdout=subprocess.DEVNULL)
""" % str(SIM / "simctl")

CUDA_PRELUDE = """
ctx, p, u = C.c_void_p(), C.c_ulonglong(), C.c_ulonglong()
def context(d=0):
    check(cu.cuInit(0)); check(cu.cuDevicePrimaryCtxRetain(C.byref(ctx), d)); check(cu.cuCtxSetCurrent(ctx))
def alloc(n): return cu.cuMemAlloc_v2(C.byref(p), C.c_size_t(n))
"""


class ControlTest(unittest.TestCase):
    devices = [SMALL, dict(SMALL, memory="2Gi")]

    def setUp(self):
        self.machine = Machine(self.devices)
        self.addCleanup(self.machine.close)

    def run_code(self, code, **env):
        return self.machine.python(CUDA_PRELUDE + NVML_PRELUDE + code, **env)

    def ctl(self, *args):
        text = self.machine.ctl(*map(str, args))
        return json.loads(text) if text else None

    def refused(self, *args):
        out = subprocess.run([SIM / "simctl", "--socket", self.machine.socket, *map(str, args)], capture_output=True, text=True,
                             timeout=WAIT_S)
        self.assertEqual((out.returncode, out.stdout), (1, ""))
        return out.stderr


class Faults(ControlTest):
    def test_the_nth_call_fails_and_the_others_do_not(self):
        self.ctl("fault", "cuMemAlloc_v2", "--return", "CUDA_ERROR_OUT_OF_MEMORY", "--call", 3)
        self.assertEqual(self.run_code("context(); print(json.dumps([alloc(512) for _ in range(5)]))"), [0, 0, 2, 0, 0])
        fault = self.ctl("faults")["faults"][0]
        self.assertEqual((fault["id"], fault["calls"], fault["fired"], fault["entries"]), (1, 5, 1, ["cuMemAlloc_v2"]))
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)

    def test_times_and_processes_together_are_counted(self):
        self.ctl("fault", "cuMemAlloc_v2", "--return", 999, "--call", 2, "--times", 2)
        rows = [self.run_code("context(); print(json.dumps([alloc(512), alloc(512)]))") for _ in range(2)]
        self.assertEqual(rows, [[0, 999], [999, 0]])

    def test_every_entry_point_of_both_libraries_obeys_before_and_after_init(self):
        for profile, version in PROFILES.items():
            machine = Machine([dict(SMALL, profile=profile)])
            self.addCleanup(machine.close)
            machine.ctl("fault", "*", "--return", "123")
            names = {}
            for library in ("libcuda", "libnvidia-ml"):
                path = REPO / "sim/data" / f"{library}-{ {'13.0': '13.0' if library == 'libcuda' else '550.163.01'}.get(profile, version)}.exports.txt"
                data = set(re.findall(r"'(cudbg\w+)'", (REPO / "sim/gen_entries.py").read_text(encoding="utf-8").split("SUFFIX")[0]))
                names[library] = [n for n in path.read_text(encoding="utf-8").split() if n not in data and n != "nvmlErrorString"]
            got = machine.python(f"""
names = json.loads({json.dumps(json.dumps(names))})
zero = [C.c_void_p()] * 12
wrong = [n for l, lib in (('libcuda', cu), ('libnvidia-ml', ml)) for n in names[l] if getattr(lib, n)(*zero) != 123]
print(json.dumps(wrong))
""")
            self.assertEqual(got, [], profile)
            machine.ctl("clear")
            self.assertEqual(machine.python("print(json.dumps([cu.cuInit(0), ml.nvmlInit_v2()]))"), [0, 0])

    def test_a_delay_takes_its_time_and_keeps_arguments(self):
        self.ctl("fault", "cuMemsetD32_v2", "--delay", "150ms")
        got = self.run_code("""
import time
context(); check(alloc(4096)); begun = time.monotonic(); check(cu.cuMemsetD32_v2(p, 0x01020304, C.c_size_t(1024)))
took = time.monotonic() - begun
b = C.create_string_buffer(4); check(cu.cuMemcpyDtoH_v2(b, p, C.c_size_t(4)))
print(json.dumps([took >= 0.15, b.raw.hex()]))""")
        self.assertEqual(got, [True, "04030201"])

    def test_floats_and_many_arguments_reach_the_call_behind_a_rule(self):
        self.ctl("fault", "cuLaunchKernel", "--return", 1, "--call", 2)
        got = self.run_code("""
m, f = C.c_void_p(), C.c_void_p(); context()
check(cu.cuModuleLoadData(C.byref(m), b'.version 8.0\\n.entry fill(.param .u64 to, .param .u32 value, .param .u64 n) { ret; }'))
check(cu.cuModuleGetFunction(C.byref(f), m, b'fill')); check(alloc(4096))
v, n = C.c_uint(9), C.c_ulonglong(3); args = (C.c_void_p * 3)(C.addressof(p), C.addressof(v), C.addressof(n))
rc = [cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, args, None) for _ in range(3)]
check(cu.cuCtxSynchronize()); b = (C.c_uint * 3)(); check(cu.cuMemcpyDtoH_v2(b, p, C.c_size_t(12)))
print(json.dumps([rc, list(b)]))""")
        self.assertEqual(got, [[0, 1, 0], [9, 9, 9]])

    def test_pid_and_group_choose_who_is_hit(self):
        self.ctl("fault", "cuInit", "--return", 304, "--group", "a")
        self.assertEqual([self.run_code("print(cu.cuInit(0))", SIMGPU_GROUP=g) for g in ("a", "b", "")], [304, 0, 0])
        self.ctl("clear", 1)
        got = self.run_code("ctl('fault', 'cuMemAlloc_v2', '--return', 700, '--pid', os.getpid()); context(); print(alloc(1))")
        self.assertEqual([got, self.run_code("context(); print(alloc(1))")], [700, 0])

    def test_a_rule_set_while_a_program_runs_is_obeyed_at_its_next_call(self):
        got = self.run_code("""
context(); a = alloc(512); ctl('fault', 'cuMemAlloc_v2', '--return', 2); b = alloc(512); ctl('clear'); print(json.dumps([a, b, alloc(512)]))""")
        self.assertEqual(got, [0, 2, 0])

    def test_nvml_fails_once_and_recovers(self):
        self.ctl("fault", "nvmlInit_v2", "--return", "NVML_ERROR_UNKNOWN", "--call", 1)
        self.assertEqual(self.run_code("print(json.dumps([ml.nvmlInit_v2(), ml.nvmlInit_v2()]))"), [999, 0])

    def test_caller_and_own_calls_are_told_from_forwarded_ones(self):
        """A stand-in for libvgpu.so: its cuMemAlloc_v2 asks cuMemGetInfo_v2 for itself, then forwards."""
        source = self.machine.dir / "wrapper.c"
        library = self.machine.dir / "libwrapper.so"
        source.write_text("""
#include <dlfcn.h>
#include <stddef.h>
static void *real(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
static __attribute__((noinline)) int forward(unsigned long long *p, size_t n)
{ int rc = ((int (*)(unsigned long long *, size_t))real("cuMemAlloc_v2"))(p, n); __asm__ volatile(""); return rc; }
int last_own;
int cuMemAlloc_v2(unsigned long long *p, size_t n)
{
    size_t a, b; int rc;
    last_own = ((int (*)(size_t *, size_t *))real("cuMemGetInfo_v2"))(&a, &b);
    rc = forward(p, n);
    __asm__ volatile("");
    return rc;
}
int by_itself(unsigned long long *p, size_t n) { int rc = forward(p, n); __asm__ volatile(""); return rc; }
""", encoding="utf-8")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-o", library, source, "-ldl"], check=True)
        code = f"""
w = C.CDLL({str(library)!r}); context()
def all(): return [w.cuMemAlloc_v2(C.byref(p), C.c_size_t(1)), C.c_int.in_dll(w, 'last_own').value, w.by_itself(C.byref(p), C.c_size_t(1)), alloc(1)]
rows = [all()]
ctl('fault', 'cuMem*', '--return', 999, '--own', 'libwrapper.so'); rows.append(all()); ctl('clear')
ctl('fault', 'cuMem*', '--return', 999, '--caller', 'libwrapper.so'); rows.append(all())
print(json.dumps(rows))"""
        self.assertEqual(self.run_code(code), [[0, 0, 0, 0], [0, 999, 999, 0], [999, 999, 999, 0]])

    def test_every_driver_call_of_libvgpu_but_the_forwarded_one_fails(self):
        """The application's calls still return what the driver gave them; but where the library cannot learn which device
        is meant, the limit holds and the driver's error is the answer."""
        vgpu = places.publish(BUILD / "src/vgpu/libvgpu.so")
        share = self.machine.dir / "share"
        share.mkdir()
        code = """check(cu.cuInit(0)); rows = [cu.cuDevicePrimaryCtxRetain(C.byref(ctx), 0)]
if not rows[0]: check(cu.cuCtxSetCurrent(ctx)); rows += [alloc(1 << 20), cu.cuMemFree_v2(p), cu.cuCtxSynchronize()]
print(json.dumps(rows))"""
        limit = {"LD_PRELOAD": str(vgpu), "CUDA_DEVICE_MEMORY_LIMIT": "512m", "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(share / "region")}
        for entries, wanted in ((["cu*"], [999]), (["cuEvent*", "cuStream*", "cuMem*"], [0, 0, 0, 0])):
            with self.subTest(entries):
                self.ctl("fault", *entries, "--return", 999, "--own", "libvgpu.so")
                self.assertEqual(self.run_code(code, **limit), wanted)
                self.ctl("clear")

    def test_launch_where_libvgpu_cannot_learn_the_device_fails_with_the_drivers_error(self):
        """One that passed by the gate would be work nobody pays for."""
        vgpu = places.publish(BUILD / "src/vgpu/libvgpu.so")
        code = """m, f = C.c_void_p(), C.c_void_p(); context(0)
check(cu.cuModuleLoadData(C.byref(m), b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k()\\n{\\nret;\\n}\\n'))
check(cu.cuModuleGetFunction(C.byref(f), m, b'k'))
def launch(): return cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)
rows = [launch()]
ctl('fault', 'cuCtxGetDevice', '--return', 999, '--own', 'libvgpu.so'); rows.append(launch())
ctl('clear'); rows.append(launch())
print(json.dumps(rows))"""
        limit = {"LD_PRELOAD": str(vgpu), "CUDA_DEVICE_MEMORY_LIMIT": "512m", "CUDA_DEVICE_SM_LIMIT": "50",
                 "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.machine.dir / "launch.region")}
        self.assertEqual(self.run_code(code, **limit), [0, 999, 0])

    def test_wrong_rules_say_what_to_give(self):
        for args, wanted in ((("fault", "cuNoSuch", "--return", 1), "no entry point cuNoSuch"), (("fault", "cuInit"), "a result, a delay"),
                             (("fault", "cuInit", "--return", "CUDA_ERROR_BLUE"), "CUDA_ERROR_OUT_OF_MEMORY"), (("fault", "cuInit", "--delay", "5"), "20ms"),
                             (("fault", "cuInit", "--return", 1, "--call", 0), "counted from 1"), (("clear", 7), "no fault 7"),
                             (("fault", "nvmlErrorString", "--return", 1), "could return a code"), (("fault",), "takes 1 to 64 arguments"),
                             (("fault", "cuInit", "--return", 1, "--group", "g" * 200), "at most 127 bytes"), (("describe", 9), "no device 9"),
                             (("explode",), "no command explode"), (("freeze", 0, 101), "0 to 100"), (("shrink", 0, "lots"), "shrink"),
                             (("remove", "GPU-1"), "no device GPU-1"), (("ecc", 0, "both"), "corrected or uncorrected"), (("kill", "HARD"), "no signal HARD"),
                             (("add", "{"), "the device"), (("add", "1Ki"), "64Mi to 2Ti"), (("xid", 0, 79, "--fail", "x"), "--fail"), (("top", "--interval", "x"), "--interval"),
                             (("oracle", 0), "oracle takes no arguments"), (("reset", "all"), "reset takes no arguments"),
                             (("kill", "TERM", 1), "kill takes one signal"), (("top", "--count", 10**20), "--count"),
                             (("shrink", 0, "-1"), "no option -1"), (("oracle", "--colour"), "no option --colour"), (("oracle", "--socket"), "--socket needs a value")):
            with self.subTest(args=args):
                said = self.refused(*args)
                self.assertIn(wanted, said)
                self.assertEqual(said.count("\n"), 1)
        for _ in range(64):
            self.ctl("fault", "cuInit", "--return", 1)
        self.assertIn("64 rules are in force", self.refused("fault", "cuInit", "--return", 1))


class Devices(ControlTest):
    def test_a_lost_device_fails_contexts_and_nvml_and_spares_the_other(self):
        got = self.run_code("""
import threading
s, n = Event(), C.c_uint(); sets = C.c_void_p()
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); check(ml.nvmlDeviceGetHandleByIndex_v2(1, C.byref(h2)))
check(ml.nvmlEventSetCreate(C.byref(sets))); check(ml.nvmlDeviceRegisterEvents(h, C.c_ulonglong(8), sets))
context(0); check(alloc(1 << 20)); other = C.c_void_p()
ctl('lose', 0)
name = C.create_string_buffer(96)
rows = [cu.cuCtxSynchronize(), alloc(1), cu.cuMemFree_v2(p), cu.cuCtxCreate_v2(C.byref(other), 0, 0), cu.cuDeviceGet(C.byref(n), 0)]
nv = [ml.nvmlDeviceGetName(h, name, 96), ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(C.c_void_p())), ml.nvmlDeviceGetName(h2, name, 96)]
check(ml.nvmlDeviceGetCount_v2(C.byref(n)))
ev = [ml.nvmlEventSetWait_v2(sets, C.byref(s), 1000), s.type, s.data, ml.nvmlEventSetWait_v2(sets, C.byref(s), 60000)]
check(cu.cuDevicePrimaryCtxRetain(C.byref(other), 1)); check(cu.cuCtxSetCurrent(other))
print(json.dumps([rows, nv, n.value, ev, alloc(1)]))""")
        self.assertEqual(got, [[999, 999, 999, 46, 0], [15, 15, 0], 2, [0, 8, 79, 15], 0])
        fresh = "n = C.c_int(); check(cu.cuInit(0)); check(cu.cuDeviceGetCount(C.byref(n))); print(n.value)"
        self.assertEqual(self.run_code(fresh), 1)
        self.assertEqual(self.ctl("describe", 0)["device"]["condition"], "lost")
        until(lambda: self.machine.oracle()["used_bytes"] == 0, "a lost device's memory is still held")
        self.ctl("recover", 0)
        self.assertEqual(self.run_code(fresh), 2)

    def test_a_thread_that_waits_on_a_lost_device_comes_back(self):
        got = self.run_code("""
import threading, time
m, f = C.c_void_p(), C.c_void_p(); context(); rows = []
check(cu.cuModuleLoadData(C.byref(m), b'.version 8.0\\n.entry busy_us(.param .u64 us) { ret; }')); check(cu.cuModuleGetFunction(C.byref(f), m, b'busy_us'))
us = C.c_ulonglong(300 * 1000000); args = (C.c_void_p * 1)(C.addressof(us)); check(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, args, None))
def wait():
    check(cu.cuCtxSetCurrent(ctx)); rows.append(cu.cuCtxSynchronize())
t = threading.Thread(target=wait, daemon=True); t.start(); time.sleep(0.1); ctl('lose', 0); t.join(10); print(json.dumps(rows), flush=True); os._exit(0)""")
        self.assertEqual(got, [999])

    def test_a_removed_device_is_gone_for_newcomers_and_its_place_is_used_again(self):
        with running(self.machine.client("hold", MIB), "held"):
            self.ctl("remove", 0)
            self.assertEqual([d["index"] for d in self.ctl("list")["devices"]], [1])
            count = "n = C.c_uint(); check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetCount_v2(C.byref(n))); check(cu.cuInit(0)); m = C.c_int(); check(cu.cuDeviceGetCount(C.byref(m))); print(json.dumps([n.value, m.value]))"
            self.assertEqual(self.run_code(count), [1, 1])
            self.assertEqual(self.ctl("add", "3Gi", "NVIDIA L4")["device"]["index"], 2)
            self.assertEqual(self.run_code(count), [2, 2])
        until(lambda: len(self.ctl("list")["clients"]) == 1, "the client is still listed")
        added = self.ctl("add", json.dumps(dict(SMALL, memory="4Gi")))["device"]
        self.assertEqual((added["index"], added["total_bytes"]), (0, 4 << 30))
        with running(self.machine.client("hold", 3000 * MIB, prefix=["env", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]), "held"):
            self.assertEqual(self.machine.oracle(0)["used_bytes"], 3016 * MIB)
        self.assertIn("differs", self.refused("add", json.dumps(dict(SMALL, profile="535"))).replace("the machine's driver is 550", "differs"))
        self.assertIn("the same as", self.refused("add", json.dumps(dict(SMALL, minor=1))))

    def test_a_machine_takes_32_devices_and_no_more(self):
        for _ in range(30):
            self.ctl("add", "1Gi")
        self.assertIn("all 32 places are taken", self.refused("add", "1Gi"))
        self.assertEqual(len({(d["uuid"], d["pci"]) for d in self.ctl("list")["devices"]}), 32)

    def test_an_xid_reaches_waiters_and_may_end_contexts(self):
        got = self.run_code("""
s, sets, v1 = Event(), C.c_void_p(), (C.c_ubyte * 40)(*[0xee] * 40)
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(1, C.byref(h))); check(ml.nvmlEventSetCreate(C.byref(sets)))
types = C.c_ulonglong(); check(ml.nvmlDeviceGetSupportedEventTypes(h, C.byref(types)))
none = ml.nvmlEventSetWait_v2(sets, C.byref(s), 0)
wrong = ml.nvmlDeviceRegisterEvents(h, C.c_ulonglong(4), sets)
check(ml.nvmlDeviceRegisterEvents(h, types, sets)); context(1)
ctl('xid', 0, 31); ctl('xid', 1, 13); ctl('ecc', 1, 'corrected', 3); check(ml.nvmlDeviceRegisterEvents(h, types, sets)); ctl('ecc', 1, 'uncorrected'); ctl('xid', 1, 48, '--fail', 'CUDA_ERROR_ECC_UNCORRECTABLE')
rows = []
for _ in range(3):
    check(ml.nvmlEventSetWait_v2(sets, C.byref(s), 1000)); rows.append([s.device == h.value, s.type, s.data, s.gi])
rc = ml.nvmlEventSetWait(sets, v1, 1000); tail = bytes(v1[24:]).hex()
count = C.c_ulonglong(); check(ml.nvmlDeviceGetTotalEccErrors(h, 0, 0, C.byref(count)))
end = ml.nvmlEventSetWait_v2(sets, C.byref(s), 10); check(ml.nvmlEventSetFree(sets))
print(json.dumps([types.value, none, wrong, rows, rc, tail, count.value, end, cu.cuCtxSynchronize(), ml.nvmlShutdown()]))""")
        self.assertEqual(got, [11, 10, 3, [[True, 8, 13, 2**32 - 1], [True, 1, 0, 2**32 - 1], [True, 2, 0, 2**32 - 1]], 0, "ee" * 16, 3, 10, 214, 0])
        self.assertEqual(self.ctl("describe", 1)["device"]["recovery_action"], 1)

    def test_withheld_memory_is_used_for_all_and_comes_back(self):
        code = """
context(); f, t = C.c_size_t(), C.c_size_t(); rows = []
class M(C.Structure):
    _fields_ = [('total', C.c_ulonglong), ('free', C.c_ulonglong), ('used', C.c_ulonglong)]
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
for b in ('900Mi', 0):
    ctl('shrink', 0, b); m = M(); check(cu.cuMemGetInfo_v2(C.byref(f), C.byref(t))); check(ml.nvmlDeviceGetMemoryInfo(h, C.byref(m)))
    rows.append([f.value >> 20, t.value >> 20, m.used >> 20, alloc(200 << 20)])
print(json.dumps(rows))"""
        self.assertEqual(self.run_code(code), [[84, 1000, 940, 2], [984, 1000, 40, 0]])

    def test_frozen_utilisation_stays_and_thaws(self):
        code = """
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); u = (C.c_uint * 2)(); rows = []
def look(): check(ml.nvmlDeviceGetUtilizationRates(h, u)); rows.append(u[0])
look(); ctl('freeze', 0, 63); look(); ctl('thaw', 0); look(); print(json.dumps(rows))"""
        self.assertEqual(self.run_code(code), [0, 63, 0])

    def test_mig_mode_is_shown_and_hides_the_card_from_cuda(self):
        machine = Machine([dict(SMALL, name="NVIDIA H100", mig=True), SMALL])
        self.addCleanup(machine.close)
        got = machine.python("""
h, a, b, n = C.c_void_p(), C.c_uint(), C.c_uint(), C.c_int(); rows = []
check(ml.nvmlInit_v2()); check(cu.cuInit(0)); check(cu.cuDeviceGetCount(C.byref(n)))
for i in (0, 1):
    check(ml.nvmlDeviceGetHandleByIndex_v2(i, C.byref(h))); rows.append([ml.nvmlDeviceGetMigMode(h, C.byref(a), C.byref(b)), a.value, b.value, ml.nvmlDeviceGetUtilizationRates(h, (C.c_uint * 2)())])
print(json.dumps([n.value, rows]))""")
        self.assertEqual(got, [1, [[0, 1, 1, 3], [3, 1, 1, 0]]])


class Reports(ControlTest):
    def test_processes_tells_what_each_holds(self):
        with running(self.machine.client("hold", 10 * MIB, group="g"), "held") as p:
            mine = next(c for c in self.ctl("processes")["processes"] if c["pid"] == p.pid)
            self.assertEqual((mine["kind"], mine["name"], mine["group"], mine["devices"][0]["index"], mine["devices"][0]["bytes"]),
                             ("cuda", "sim-client", "g", 0, 26 * MIB))

    def test_top_fits_80_columns_when_piped_and_shows_everything(self):
        with running(self.machine.client("hold", 10 * MIB, group="g" * 60), "held") as p:
            text = self.machine.ctl("top", "--count", "2", "--interval", "0.05")
            objects = self.machine.ctl("top", "--count", "2", "--interval", "0.05", "--json")
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertNotIn("\033", text)
        self.assertEqual(text.count("driver 550.163.01"), 2)
        for wanted in ("NVIDIA T4", "gggg", str(p.pid), "sim-client", "ok"):
            self.assertIn(wanted, text)
        self.assertEqual([len(json.loads(line)["devices"]) for line in objects.splitlines()], [2, 2])

    def test_help_names_every_command_and_option(self):
        text = subprocess.run([SIM / "simctl", "--help"], check=True, capture_output=True, text=True).stdout
        source = "".join((REPO / f"sim/ctl/{f}.c").read_text(encoding="utf-8") for f in ("command", "main"))
        words = re.findall(r'^    \{"([a-z-]+)", "[a-z]+", \d', source, re.M) + re.findall(r'^        \{"([a-z-]+)", &', source, re.M)
        self.assertGreater(len(words), 25)
        self.assertEqual([w for w in words if w not in text], [])
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_unsupported_nvml_calls_are_counted(self):
        self.run_code("check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))); print(ml.nvmlDeviceGetJpgUtilization(h, C.byref(C.c_uint()), C.byref(C.c_uint())))")
        self.assertEqual(self.ctl("list")["unsupported_calls"], {"nvmlDeviceGetJpgUtilization": 1})

    def test_kill_ends_simgpud_and_stop_does_not_hang_clients_for_good(self):
        self.machine.ctl("kill")
        self.assertEqual(self.machine.daemon.wait(WAIT_S), -9)
        self.machine.daemon.stdout.close()
        self.machine.start()
        self.assertEqual(self.run_code("print(cu.cuInit(0))"), 0)


if __name__ == "__main__":
    unittest.main()

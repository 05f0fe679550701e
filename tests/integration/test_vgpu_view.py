# SPDX-License-Identifier: Apache-2.0
"""What a program under the library is told of memory, processes and utilisation: by CUDA and by every call of NVML, linked and
through dlsym, beside what the bare driver says to the same questions. view_client.c asks them all. (test_vgpu.py has the
machine and the clients that hold memory meanwhile.)"""

import json
import os
import subprocess
import unittest

import test_vgpu
from test_vgpu import CONTEXT, GIB, MIB, STATE, Case, Client

TIMEOUT_S = 120
LISTS = [f"nvmlDeviceGet{kind}RunningProcesses{version}" for kind in ("Compute", "Graphics", "MPSCompute") for version in ("", "_v2", "_v3")]
INSUFFICIENT, NOT_FOUND, UNINITIALIZED = 7, 6, 1


def setUpModule():
    test_vgpu.setUpModule()
    if not STATE["nvml"]:
        raise unittest.SkipTest("the simulated NVML is not built")
    directory = STATE["dir"]
    source = [test_vgpu.SOURCES / "view_client.c", "-I", test_vgpu.REPO / "include"]
    link = ["-DLINKED", "-L", directory / "lib", "-Wl,--no-as-needed", "-l:libcuda.so.1", "-l:libnvidia-ml.so.1"]
    subprocess.run(["cc", "-O1", "-o", directory / "view", *source, "-ldl"], check=True)
    subprocess.run(["cc", "-O1", "-o", directory / "view-linked", *source, *link, "-ldl"], check=True)


tearDownModule = test_vgpu.tearDownModule


class ViewCase(Case):
    def start(self, *args, door="dlsym", preload=True):
        directory = STATE["dir"]
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"),
               "LD_LIBRARY_PATH": str(directory / "lib"), "ALIQUOT_SHARE_ROOT": str(self.shares)}
        if preload:
            env["LD_PRELOAD"] = str(directory / "lib/libvgpu.so")
        program = directory / ("view-linked" if door == "linked" else "view")
        return subprocess.Popen([program, *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ask(self, *args, **how):
        output = self.start(*args, **how).communicate(timeout=60)[0]
        try:
            return json.loads(output)
        except ValueError:
            raise AssertionError(output) from None

    def assertAgree(self, seen, limit, held, processes):
        """One answer in all its forms: limit and held bytes, and [[pid, counted bytes]] of the processes."""
        free = limit - held
        if "cuda" in seen:
            self.assertEqual(seen["cuda"], [0, limit, free, limit])
        self.assertEqual(seen["v1"], [0, limit, free, held])
        self.assertEqual(seen["v2"], [0, limit, free, held, 0])
        self.assertEqual(seen["bar1"][:2], [0, limit])
        self.assertEqual(sum(seen["bar1"][2:]), limit)
        count = len(processes)
        for name in LISTS:
            expect = processes if "DeviceGetCompute" in name else []
            self.assertEqual(sorted(seen[f"{name}.list"]), sorted(expect), name)
            n = len(expect)
            self.assertEqual(seen[name][:6], [INSUFFICIENT if n else 0, n, INSUFFICIENT if n else 0, n, 0, n], name)
        self.assertEqual(seen["details.0"][:3], [INSUFFICIENT if count else 0, count, 0])
        self.assertEqual(sorted(seen["details.0"][3:]), sorted(processes))
        self.assertEqual((seen["details.1"], seen["details.2"]), ([0, 0, 0], [0, 0, 0]))
        self.assertEqual(seen["touched"], 0)

    def assertErrorsAreTheDrivers(self, seen, bare):
        for key in ("null", "v2.version", "details.3", "details.version", "table"):
            self.assertEqual(seen[key], bare[key], key)
        for name in LISTS:
            self.assertEqual(seen[name][6:], bare[name][6:], name)


class View(ViewCase):
    def test_all_ways_of_asking_agree(self):
        limit = 4 * GIB + 4097
        self.share(limit)
        other = Client(self).start()
        other.ok(f"alloc {100 * MIB}")
        bare = self.ask(0, 1000001, preload=False)
        self.assertEqual(bare["touched"], 0)
        for door in ("dlsym", "linked"):
            with self.subTest(door):
                seen = self.ask(0, 1000001, door=door)
                held = 2 * CONTEXT + 100 * MIB + 1000001 + -1000001 % 512
                self.assertAgree(seen, limit, held, [[other.pid, 100 * MIB], [seen["pid"], 1000001]])
                self.assertErrorsAreTheDrivers(seen, bare)

    def test_program_without_cuda_sees_the_same(self):
        self.share(3 * GIB)
        self.assertAgree(self.ask(0), 3 * GIB, 0, [])
        other = Client(self).start()
        other.ok("alloc 512")
        for door in ("dlsym", "linked"):
            self.assertAgree(self.ask(0, door=door), 3 * GIB, CONTEXT + 512, [[other.pid, 512]])

    def test_process_with_two_shares_of_a_gpu_is_one_with_the_sum(self):
        self.share(1 * GIB, name="a-0")
        self.share(2 * GIB, name="b-0")
        other = Client(self).start()
        other.ok(f"alloc {2 * GIB}")
        self.assertAgree(self.ask(0), 3 * GIB, 2 * GIB + CONTEXT, [[other.pid, 2 * GIB]])

    def test_process_without_a_context_is_not_listed(self):
        self.share(GIB)
        other = Client(self)
        other.ok("init")
        self.assertAgree(self.ask(0), GIB, 0, [])

    def test_device_without_a_share_is_told_as_it_is(self):
        self.share(GIB, device=0)
        bare, seen = self.ask(1, preload=False), self.ask(1)
        for answers in (bare, seen):
            answers.pop("pid")
        self.assertEqual(seen, bare)

    def test_without_a_share_everything_is_the_drivers(self):
        for door in ("dlsym", "linked"):
            bare, seen = self.ask(1, preload=False, door=door), self.ask(1, door=door)
            for answers in (bare, seen):
                answers.pop("pid")
            self.assertEqual(seen, bare)

    def test_before_init_the_driver_answers(self):
        self.share(GIB)
        for door in ("dlsym", "linked"):
            bare, seen = self.ask(0, 0, 0, "early", preload=False, door=door), self.ask(0, 0, 0, "early", door=door)
            for answers in (bare, seen):
                answers.pop("pid")
            self.assertEqual(seen, bare)
            self.assertEqual((seen["v1"][0], seen["rates"][0], seen["process"][2]), (UNINITIALIZED,) * 3)

    def test_correction_of_the_node_is_reserved(self):
        self.share(4 * GIB, correction=GIB)
        seen = self.ask(0)
        self.assertEqual(seen["v1"], [0, 4 * GIB, 3 * GIB, GIB])
        self.assertEqual(seen["v2"], [0, 4 * GIB, 3 * GIB, 0, GIB])


ASK_MORE = """
import ctypes as C, json
ml = C.CDLL("libnvidia-ml.so.1"); h = C.c_void_p(); ml.nvmlInit_v2(); ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h))
def ask(name, words, *args):  # what it returns, and the answer as 32-bit words: 7 where nothing was written
    room = (C.c_uint32 * words)(*[7] * words)
    return [getattr(ml, name)(h, *args, room), *room]
def pids(count, room):
    n = C.c_uint(count); p = (C.c_uint * 4)(*[7] * 4)
    return [ml.nvmlDeviceGetAccountingPids(h, C.byref(n), p if room else None), n.value, *p]
def quads(answer): return [answer[0], *(answer[i] | answer[i + 1] << 32 for i in range(1, len(answer), 2))]
print(json.dumps({"memory": quads(ask("nvmlDeviceGetMemoryInfo", 6)), "protected": quads(ask("nvmlDeviceGetConfComputeProtectedMemoryUsage", 6)),
    "sizes": quads(ask("nvmlDeviceGetConfComputeMemSizeInfo", 4)), "rates": ask("nvmlDeviceGetUtilizationRates", 2),
    "states": ask("nvmlDeviceGetDynamicPstatesInfo", 33)[3::4][:4], "pids": [pids(0, False), pids(4, True), pids(1, True)],
    "stats": [ask("nvmlDeviceGetAccountingStats", 14, C.c_uint(pid)) for pid in (1234, 1)], "null": ml.nvmlDeviceGetAccountingStats(h, 1234, None),
    "stats2": [(ml.nvmlDeviceGetAccountingStats_v2(h, s), s[4]) for s in [(C.c_uint32 * 20)(1234, *[7] * 19)]][0]}))
"""


class More(ViewCase):
    """What only a card with confidential computing and accounting tells; a stand-in of NVML has both."""

    def ask_more(self, preload):
        stand_in = STATE["dir"] / "more"
        if not (stand_in / "libnvidia-ml.so.1").exists():
            stand_in.mkdir(exist_ok=True)
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-I", test_vgpu.REPO / "include", f'-DUUID="{test_vgpu.UUIDS[0]}"', "-Wl,-soname,libnvidia-ml.so.1",
                            "-o", stand_in / "libnvidia-ml.so.1", test_vgpu.SOURCES / "view_nvml.c"], check=True)
        env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(stand_in), "ALIQUOT_SHARE_ROOT": str(self.shares)}
        if preload:
            env["LD_PRELOAD"] = str(STATE["dir"] / "lib/libvgpu.so")
        done = subprocess.run(["/usr/bin/python3", "-I", "-c", ASK_MORE], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_without_a_share_everything_is_the_drivers(self):
        self.assertEqual(self.ask_more(True), self.ask_more(False))

    def test_card_and_other_tenants_are_not_shown(self):
        self.share(4 * GIB, pct=30)
        bare, seen = self.ask_more(False), self.ask_more(True)
        self.assertEqual(seen["memory"], [0, 4 * GIB, 4 * GIB, 0])
        self.assertEqual(seen["protected"], seen["memory"])
        self.assertEqual(seen["sizes"], [0, 4 * GIB // 1024, 0])
        self.assertEqual((bare["rates"], seen["rates"]), ([0, 90, 40], [0, 0, 0]))
        self.assertEqual(bare["states"], [90, 80, 70, 60])
        self.assertEqual(seen["states"], [0, 0, 70, 60])  # the video engine and the bus are the card's
        self.assertEqual(bare["pids"][1], [0, 2, 1234, 5678, 7, 7])
        self.assertEqual(seen["pids"], [[0, 0, 7, 7, 7, 7]] * 3)
        self.assertEqual([answer[0] for answer in bare["stats"]], [0, NOT_FOUND])
        self.assertEqual(seen["stats"], [[NOT_FOUND, *[7] * 14]] * 2)
        self.assertEqual((bare["stats2"][0], seen["stats2"]), (0, [NOT_FOUND, 7]))
        self.assertEqual(seen["null"], bare["null"])


class Utilisation(ViewCase):
    def assertLoad(self, seen, low, high):
        rc, gpu, memory = seen["rates"]
        self.assertEqual(rc, 0)
        self.assertTrue(low <= gpu <= high, seen["rates"])
        self.assertLessEqual(memory, gpu)
        self.assertEqual(seen["samples.gpu"][:3], [0, 0, 1])
        self.assertTrue(low <= seen["samples.gpu"][3] <= high, seen["samples.gpu"])
        self.assertLessEqual(seen["samples.memory"][3], high)

    def test_full_share_reads_its_percentage(self):
        self.share(GIB, pct=30)
        for door in ("dlsym", "linked"):
            seen = self.ask(0, 4096, 1500, door=door)
            self.assertLoad(seen, 20, 40)
            for key in ("process", "processes"):
                self.assertEqual(seen[key][:3], [INSUFFICIENT, 1, 0])
                (pid, pct), = seen[key][3:]
                self.assertEqual(pid, seen["pid"])
                self.assertTrue(15 <= pct <= 40, seen[key])

    def test_idle_share_beside_a_busy_neighbour_reads_nothing(self):
        self.share(GIB, pct=30)
        neighbour = self.start(0, 4096, 3000, preload=False)
        self.addCleanup(neighbour.communicate)
        seen = self.ask(0, 4096, 0)
        self.assertLoad(seen, 0, 0)
        neighbour.kill()

    def test_unlimited_share_reads_what_the_driver_says(self):
        self.share(GIB, pct=100)
        self.assertLoad(self.ask(0, 4096, 1500), 1, 100)  # how much is up to the machine's load; the share's own figure is 0

    def test_nothing_ran_is_not_found_as_the_driver_has_it(self):
        self.share(GIB, pct=30)
        for seen in (self.ask(1, preload=False), self.ask(0)):
            self.assertEqual((seen["process"][2], seen["processes"][2]), (NOT_FOUND, NOT_FOUND))


if __name__ == "__main__":
    unittest.main()

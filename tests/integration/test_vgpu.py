# SPDX-License-Identifier: Apache-2.0
"""libvgpu.so on the simulated driver: limits, views, doors, deaths and configuration, with real processes.

The library is preloaded by LD_PRELOAD and finds its shares under ALIQUOT_SHARE_ROOT, which it looks at only where
/run/aliquot/shares has none, so no test here needs root."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import places

TIMEOUT_S = 300
REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
LIBRARY = BUILD / "src/vgpu/libvgpu.so"
SIMGPUD = BUILD / "sim/simgpud"
SIMCTL = BUILD / "sim/simctl"
SOURCES = pathlib.Path(__file__).resolve().parent

MIB, GIB = 1 << 20, 1 << 30
CARD = 16 * GIB
OUT_OF_MEMORY, INVALID_CONTEXT, NOT_PERMITTED = 2, 201, 800
CONTEXT = 256 * MIB  # reserved for a context where control gives no estimate
UUIDS = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"]
GRANULE = 512
STATE = {}


def control(share, uuid, memory, *, context=0, correction=0, pct=100, policy=0, log=0, wait=0, spill=0):
    """include/aliquot/share.h, struct alq_control."""
    values = struct.pack("<QQqIIIIIIQ", memory, context, correction, pct, policy, 0, 1000000, log, wait, spill).ljust(256, b"\0")
    head = struct.pack("<QII64s48s", 0x314C525443514C41, 1, 4096, share.encode(), uuid.encode()).ljust(512, b"\0")
    return (head + values).ljust(4096, b"\0")


def usage(uuid, sections=1):
    head = struct.pack("<QIIIIII", 0x3147415355514C41, 1, 4096, 135168, sections, 1024, 128).ljust(4096, b"\0")
    return head + uuid.encode().ljust(sections * 135168, b"\0")


def setUpModule():
    start_machine([{"name": "NVIDIA H100 80GB HBM3", "memory": "16Gi", "sms": 132, "uuid": u, "minor": i} for i, u in enumerate(UUIDS)])


def build_driver(name):
    """The folder of a libcuda.so.1 made of <name>_driver.c, beside the simulated driver."""
    directory = STATE["dir"] / name
    directory.mkdir()
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-I", REPO / "include", "-o", directory / "libcuda.so.1",
                    SOURCES / f"{name}_driver.c"], check=True)
    return directory


def start_machine(devices):
    for path in (LIBRARY, SIMGPUD):
        if not path.exists():
            raise unittest.SkipTest(f"{path} is not built")
    directory = STATE["dir"] = pathlib.Path(tempfile.mkdtemp(prefix="alq-v-"))
    libraries = directory / "lib"
    libraries.mkdir()
    places.copy(LIBRARY, libraries)
    places.copy(BUILD / "sim/libsimcuda-550.so", libraries, "libcuda.so.1")
    if (BUILD / "sim/libsimnvml-550.so").exists():
        places.copy(BUILD / "sim/libsimnvml-550.so", libraries, "libnvidia-ml.so.1")
    STATE["nvml"] = (BUILD / "sim/libsimnvml-550.so").exists()

    def compile_(name, source, *flags):
        subprocess.run(["cc", "-O1", "-I", REPO / "include", "-o", directory / name, SOURCES / source, *flags, "-pthread"], check=True)

    link = ["-L", libraries, "-Wl,--no-as-needed", "-l:libcuda.so.1"]
    compile_("client", "vgpu_client.c", "-ldl")
    compile_("client-linked", "vgpu_client.c", "-DLINKED", *link, "-ldl")
    compile_("next.so", "vgpu_helper.c", "-shared", "-fPIC", *link)
    compile_("deep.so", "vgpu_helper.c", "-DBY_LINKAGE", "-shared", "-fPIC", *link)
    (directory / "devices.json").write_text(json.dumps({"devices": devices}))
    STATE["simgpud"] = subprocess.Popen([SIMGPUD, "--config", directory / "devices.json", "--run-dir", directory],
                                        stdout=subprocess.PIPE)
    STATE["simgpud"].stdout.readline()


def tearDownModule():
    if "simgpud" in STATE:
        STATE["simgpud"].terminate()
        STATE["simgpud"].wait()
        STATE["simgpud"].stdout.close()
    if "dir" in STATE:
        shutil.rmtree(STATE["dir"], ignore_errors=True)


class Client:
    """One program under the library; call() sends a line and returns the numbers of the answer."""

    def __init__(self, case, door="dlsym", preload=True, group="", prefix=(), **env):
        directory = STATE["dir"]
        program = "client-linked" if door == "linked" else "client"
        extra = {"next": [directory / "next.so"], "deepbind": [directory / "deep.so"]}.get(door, [])
        full = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"),
                "LD_LIBRARY_PATH": str(directory / "lib"), "SIMGPU_GROUP": group,
                "ALIQUOT_SHARE_ROOT": str(case.shares), **env}
        if preload:
            full["LD_PRELOAD"] = str(directory / "lib/libvgpu.so")
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*prefix, directory / program, door, *extra], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=full)
        case.addCleanup(self.close)
        ready = self.process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise AssertionError(f"client ended: {self.stderr()}")
        self.pid = int(ready[1])

    def words(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise AssertionError(f"{line}: client ended with {self.process.wait()}: {self.stderr()}")
        return answer[1:]

    def call(self, line):
        return [int(word) for word in self.words(line)]

    def ok(self, line):
        answer = self.call(line)
        if answer[0] != 0:
            raise AssertionError(f"{line}: {answer}")
        return answer[1:]

    def start(self, device=0):
        self.ok("init")
        self.ok(f"ctx {device}")
        return self

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.errors.close()


class Case(unittest.TestCase):
    def setUp(self):
        self.shares = STATE["dir"] / f"shares-{self.id().rsplit('.', 1)[1]}"[:60]
        self.shares.mkdir()
        self.addCleanup(shutil.rmtree, self.shares, ignore_errors=True)

    def share(self, memory, device=0, name="claim-0", **values):
        directory = self.shares / name
        directory.mkdir(exist_ok=True)
        (directory / "control").write_bytes(control(name, UUIDS[device], memory, **values))
        (directory / "usage").write_bytes(usage(UUIDS[device], 2 if values.get("spill") else 1))

    def publish(self, memory, name="claim-0", device=0, **values):
        """Into the other copy, in place, then the sequence, as the daemon does."""
        data = control(name, UUIDS[device], memory, **values)[512:768]
        with open(self.shares / name / "control", "r+b", buffering=0) as f:
            f.seek(256)
            sequence, = struct.unpack("<I", f.read(4))
            f.seek(512 + 256 * ((sequence + 1) & 1))
            f.write(data)
            f.seek(256)
            f.write(struct.pack("<I", sequence + 1))

    def held(self, name="claim-0", section=0):
        data = (self.shares / name / "usage").read_bytes()
        return struct.unpack_from("<Q", data, 4096 + section * 135168 + 64)[0]


class Limit(Case):
    def test_bisecting_program_gets_the_limit_to_the_last_bytes(self):
        self.share(4 * GIB)
        client = Client(self).start()
        admitted, = client.ok("bisect")[:1]
        left = 4 * GIB - CONTEXT - admitted
        self.assertGreaterEqual(left, 0)
        self.assertLess(left, GRANULE)
        self.assertEqual(client.ok("info")[1], 4 * GIB)

    def test_driver_that_does_not_answer_the_library_opens_nothing(self):
        """What the library cannot ask (which device is this?) is refused with the driver's error, and good again after."""
        def simctl(*command):
            subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", *command], check=True, stdout=subprocess.DEVNULL)

        self.addCleanup(simctl, "clear")
        self.share(1 * GIB)
        for entry in ("cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid*", "cuCtxGetCurrent", "cuCtxGetDevice", "cuMemGetInfo*", "cu*"):
            with self.subTest(entry):
                simctl("fault", entry, "--return", "999", "--own", "libvgpu.so")
                client = Client(self)
                client.ok("init")
                first = client.call("ctx 0")[0]
                self.assertIn(client.call(f"alloc {2 * GIB}")[0], (999, OUT_OF_MEMORY, INVALID_CONTEXT))
                simctl("clear")
                if first:
                    self.assertEqual(first, 999)
                    client.ok("ctx 0")
                self.assertEqual(client.call(f"alloc {2 * GIB}")[0], OUT_OF_MEMORY)
                client.ok(f"alloc {512 * MIB}")
                client.close()

    def test_odd_limit_is_exact(self):
        limit = 3 * GIB + 12345
        self.share(limit)
        client = Client(self).start()
        self.assertEqual(client.ok("info")[1], limit)
        self.assertEqual(client.ok("total 0")[0], limit)
        admitted = client.ok("bisect")[0]
        self.assertTrue(0 <= limit - CONTEXT - admitted < GRANULE, limit - CONTEXT - admitted)

    def test_refusal_is_out_of_memory_and_touches_no_output(self):
        self.share(1 * GIB)
        client = Client(self).start()
        for kind in ("alloc", "managed", "async"):
            self.assertEqual(client.call(f"{kind} {2 * GIB}")[0], OUT_OF_MEMORY, kind)
        self.assertEqual(client.call(f"pitch {1 << 16} {1 << 16}")[:2], [OUT_OF_MEMORY, 0])
        self.assertEqual(client.call(f"alloc {(1 << 64) - 1}")[0], OUT_OF_MEMORY)

    def test_every_kind_is_counted_and_given_back(self):
        self.share(2 * GIB)
        client = Client(self).start()
        for kind, free, size in (("alloc", "free", 1000), ("managed", "free", MIB), ("alloc", "free", 5)):
            index = client.ok(f"{kind} {size}")[0]
            self.assertEqual(self.held(), CONTEXT + size + -size % GRANULE, kind)
            client.ok(f"{free} {index}")
            self.assertEqual(self.held(), CONTEXT, kind)
        index, pitch = client.ok("pitch 1000 10")
        self.assertEqual(self.held(), CONTEXT + pitch * 10 + -(pitch * 10) % GRANULE)
        client.ok(f"free {index}")
        self.assertEqual(self.held(), CONTEXT)

    def test_double_free_and_unknown_pointers_get_the_drivers_answer(self):
        self.share(2 * GIB)
        client = Client(self).start()
        bare = Client(self, preload=False).start()
        index, other = client.ok("alloc 4096")[0], bare.ok("alloc 4096")[0]
        for c, i in ((client, index), (bare, other)):
            c.ok(f"free {i}")
        self.assertEqual(client.call(f"free {index}"), bare.call(f"free {other}"))
        self.assertEqual(client.call("free-unknown 77"), bare.call("free-unknown 77"))
        self.assertEqual(client.call("free-unknown 0"), bare.call("free-unknown 0"))
        self.assertEqual(client.call("alloc 0")[0], bare.call("alloc 0")[0])
        self.assertEqual(self.held(), CONTEXT)

    def test_allocation_without_a_context_gets_the_drivers_answer_and_costs_nothing(self):
        self.share(2 * GIB)
        client = Client(self)
        client.ok("init")
        self.assertEqual(client.call("alloc 4096")[0], INVALID_CONTEXT)
        self.assertEqual(self.held(), 0)

    def test_repeated_async_pairs_leave_nothing(self):
        self.share(2 * GIB)
        client = Client(self).start()
        for _ in range(500):
            client.ok(f"free-async {client.ok('async 123456')[0]}")
        client.ok("sync")  # where the driver trims its pool
        self.assertEqual(self.held(), CONTEXT)

    def test_modules_are_overhead_and_count(self):
        self.share(2 * GIB)
        client = Client(self).start()
        before = client.ok("info")[0]
        client.ok("module")
        self.assertGreater(before, client.ok("info")[0])

    def test_limit_changed_by_the_node_acts_in_the_running_process(self):
        self.share(4 * GIB)
        client = Client(self).start()
        client.ok(f"alloc {2 * GIB}")
        self.publish(1 * GIB)
        self.assertEqual(client.ok("info"), [0, 1 * GIB])
        self.assertEqual(client.call("alloc 1")[0], OUT_OF_MEMORY)
        self.publish(8 * GIB)
        client.ok(f"alloc {5 * GIB}")
        self.assertEqual(client.ok("info")[1], 8 * GIB)

    def test_correction_of_the_node_is_held_like_memory(self):
        self.share(4 * GIB, correction=GIB)
        client = Client(self).start()
        self.assertEqual(client.ok("info")[0], 3 * GIB - CONTEXT)
        self.assertLess(client.ok("bisect")[0], 3 * GIB - CONTEXT + 1)

    def test_limit_above_the_card_shows_the_card(self):
        self.share(64 * GIB)
        client, bare = Client(self).start(), Client(self, preload=False).start()
        self.assertEqual(client.ok("info")[1], bare.ok("info")[1])
        self.assertEqual(client.ok("total 0"), bare.ok("total 0"))

    def test_device_without_a_share_is_left_alone(self):
        self.share(4 * GIB)
        client = Client(self).start(device=1)
        client.ok(f"alloc {8 * GIB}")
        self.assertEqual(client.ok("total 1")[0], Client(self, preload=False).start().ok("total 1")[0])
        self.assertEqual(self.held(), 0)


class Contexts(Case):
    def test_context_that_does_not_fit_is_out_of_memory(self):
        self.share(300 * MIB)
        client = Client(self).start()
        self.assertEqual(client.call("ctx 0")[0], OUT_OF_MEMORY)
        self.assertEqual(self.held(), CONTEXT)

    def test_estimate_of_control_is_reserved_and_given_back(self):
        self.share(4 * GIB, context=400 * MIB)
        client = Client(self).start()
        self.assertEqual(self.held(), 400 * MIB)
        client.ok("ctx-destroy 0")
        self.assertEqual(self.held(), 0)

    def test_destroyed_context_gives_back_what_lived_in_it(self):
        self.share(4 * GIB)
        client = Client(self).start()
        client.ok("alloc 1000000")
        client.ok("ctx 0")
        client.ok("alloc 2000000")
        client.ok("ctx-destroy 1")
        self.assertEqual(self.held(), CONTEXT + 1000000 + -1000000 % GRANULE)

    def test_primary_context_counts_once_until_its_last_release(self):
        self.share(4 * GIB)
        client = Client(self)
        client.ok("init")
        for _ in range(3):
            client.ok("retain 0")
            self.assertEqual(self.held(), CONTEXT)
        client.ok("alloc 1024")
        client.ok("release 0")
        client.ok("release 0")
        self.assertEqual(self.held(), CONTEXT + 1024)
        client.ok("release 0")
        self.assertEqual(self.held(), 0)

    def test_reset_of_the_primary_context_gives_everything_back(self):
        self.share(4 * GIB)
        client = Client(self)
        client.ok("init")
        client.ok("retain 0")
        client.ok("alloc 1000000")
        client.ok("reset 0")
        self.assertEqual(self.held(), 0)


class Processes(Case):
    def test_two_processes_share_one_limit(self):
        self.share(4 * GIB)
        one, two = Client(self).start(), Client(self).start()
        one.ok(f"alloc {3 * GIB}")
        self.assertEqual(two.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
        self.assertEqual(one.ok("info"), two.ok("info"))
        two.ok(f"alloc {4 * GIB - 3 * GIB - 2 * CONTEXT}")
        self.assertEqual(one.ok("info")[0], 0)

    def test_killed_process_frees_at_the_next_refusal_view_and_start(self):
        self.share(4 * GIB)
        one = Client(self).start()
        for how in ("refusal", "view", "start"):
            victim = Client(self).start()
            victim.ok(f"alloc {3 * GIB}")
            victim.kill()
            if how == "refusal":
                index = one.ok(f"alloc {3 * GIB}")[0]
                one.ok(f"free {index}")
            elif how == "view":
                self.assertEqual(one.ok("info")[0], 4 * GIB - CONTEXT)
            else:
                Client(self).ok("init")
            self.assertEqual(self.held(), CONTEXT, how)

    def test_killed_process_frees_within_a_second_of_small_allocations(self):
        self.share(4 * GIB)
        one, victim = Client(self).start(), Client(self).start()
        victim.ok(f"alloc {GIB}")
        victim.kill()
        deadline = time.monotonic() + 1
        while self.held() > CONTEXT + GIB // 2 and time.monotonic() < deadline:
            one.ok(f"free {one.ok('alloc 512')[0]}")
        self.assertEqual(self.held(), CONTEXT)

    def test_room_of_a_killed_process_is_had_by_all_who_ask_at_once(self):
        self.share(4 * GIB)
        askers = [Client(self).start() for _ in range(4)]
        for _ in range(40):
            victim = Client(self).start()
            victim.ok(f"alloc {4 * GIB - 5 * CONTEXT}")
            victim.kill()
            for asker in askers:
                asker.process.stdin.write(f"alloc {GIB // 2}\n")
                asker.process.stdin.flush()
            answers = [[int(word) for word in asker.process.stdout.readline().split()[1:]] for asker in askers]
            self.assertEqual([answer[0] for answer in answers], [0] * 4)
            for asker, answer in zip(askers, answers):
                asker.ok(f"free {answer[1]}")

    def test_eight_processes_racing_never_pass_the_limit(self):
        self.share(8 * GIB)
        clients = [Client(self).start() for _ in range(8)]
        for client in clients:
            client.process.stdin.write("bisect\n")
            client.process.stdin.flush()
        admitted = sum(int(client.process.stdout.readline().split()[2]) for client in clients)
        self.assertLessEqual(admitted, 8 * GIB - 8 * CONTEXT)
        self.assertLess(8 * GIB - 8 * CONTEXT - admitted, 8 * GRANULE)
        peak = struct.unpack_from("<Q", (self.shares / "claim-0/usage").read_bytes(), 4096 + 256 + 40)[0]
        self.assertLessEqual(peak, 8 * GIB)

    def test_fork_child_has_a_slot_of_its_own_and_the_parents_bytes_stay(self):
        self.share(4 * GIB)
        client = Client(self).start()
        client.ok("alloc 1024")
        bare = Client(self, preload=False).start()
        self.assertEqual(client.call("fork"), bare.call("fork"))
        self.assertEqual(self.held(), CONTEXT + 1024)
        client.ok("free 0")
        self.assertEqual(self.held(), CONTEXT)

    def test_threads_at_the_limit_lose_nothing(self):
        self.share(2 * GIB)
        client, other = Client(self).start(), Client(self).start()
        other.process.stdin.write("threads 4\n")
        other.process.stdin.flush()
        self.assertEqual(client.call("threads 8")[0], 0)
        self.assertEqual(other.process.stdout.readline().split()[1], "0")
        self.assertEqual(self.held(), 2 * CONTEXT)
        self.assertGreater(client.ok("bisect")[0], 2 * GIB - 2 * CONTEXT - GRANULE)

    def test_all_slots_taken_refuses_with_a_line(self):
        import fcntl
        self.share(4 * GIB)
        with open(self.shares / "claim-0/usage", "r+b") as f:
            fcntl.fcntl(f, 37, struct.pack("hhlli", fcntl.F_WRLCK, 0, 0, 1024, 0))  # F_OFD_SETLK
            client = Client(self)
            self.assertEqual(client.call("init")[0], NOT_PERMITTED)
            self.assertIn("slots", client.stderr())


class TwoShares(Case):
    def test_two_shares_of_one_gpu_add_up_in_order(self):
        self.share(1 * GIB, name="a-0")
        self.share(2 * GIB, name="b-0")
        client = Client(self).start()
        self.assertEqual(client.ok("info"), [3 * GIB - CONTEXT, 3 * GIB])
        index = client.ok(f"alloc {2 * GIB}")[0]
        self.assertEqual((self.held("a-0"), self.held("b-0")), (1 * GIB, 2 * GIB + CONTEXT - 1 * GIB))
        self.assertEqual(client.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
        client.ok(f"free {index}")
        self.assertEqual((self.held("a-0"), self.held("b-0")), (CONTEXT, 0))
        client.ok("bisect")
        self.assertEqual((self.held("a-0"), self.held("b-0")), (1 * GIB, 2 * GIB))

    def test_shares_of_two_gpus_do_not_mix(self):
        self.share(1 * GIB, device=0, name="a-0")
        self.share(2 * GIB, device=1, name="a-1")
        client = Client(self).start(device=0)
        client.ok("ctx 1")
        self.assertEqual(client.ok("info")[1], 2 * GIB)
        client.ok("alloc 1024")
        self.assertEqual(self.held("a-1"), CONTEXT + 1024)
        client.ok("set 0")
        self.assertEqual(client.ok("info")[1], 1 * GIB)
        client.ok("free 0")  # from the other context: booked where it was
        self.assertEqual((self.held("a-0"), self.held("a-1")), (CONTEXT, CONTEXT))


class Doors(Case):
    def test_every_door_leads_to_the_limit(self):
        self.share(1 * GIB)
        for door in ("linked", "dlsym", "procaddr", "next", "deepbind"):
            with self.subTest(door):
                client = Client(self, door=door).start()
                self.assertEqual(client.call(f"alloc {2 * GIB}")[0], OUT_OF_MEMORY)
                self.assertEqual(client.ok("info")[1], 1 * GIB)
                self.assertEqual(self.held(), CONTEXT)
                client.kill()

    def test_what_the_driver_lacks_is_not_offered(self):
        self.share(1 * GIB)
        for door in ("linked", "dlsym", "procaddr", "next"):
            client, bare = Client(self, door=door), Client(self, door=door, preload=False)
            for name in ("cuCtxCreate_v4", "cuCtxSynchronize_v2", "cuNoSuchThing", "cuMemAlloc_v2", "cuGetExportTable"):
                self.assertEqual(client.words(f"has {name}"), bare.words(f"has {name}"), (door, name))


class NoShare(Case):
    def test_nothing_changes(self):
        client, bare = Client(self).start(), Client(self, preload=False).start()
        for line in ("count", "info-total-only", "total 0", f"alloc {4 * GIB}", "free 0", "has cuCtxCreate_v4"):
            self.assertEqual(client.words(line), bare.words(line), line)
        self.assertEqual(client.stderr(), "")

    def test_share_of_a_missing_root_is_none(self):
        client = Client(self, ALIQUOT_SHARE_ROOT="/nonexistent/shares").start()
        client.ok(f"alloc {8 * GIB}")
        self.assertEqual(client.stderr(), "")


class Environment(Case):
    def env(self, **values):
        path = self.shares.parent / f"{self.shares.name}.cache"
        self.addCleanup(lambda: path.unlink(missing_ok=True))
        return dict({"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(path)}, **values)

    def test_limit_is_shared_through_the_file(self):
        env = self.env(CUDA_DEVICE_MEMORY_LIMIT="4096m")
        one, two = Client(self, **env).start(), Client(self, **env).start()
        self.assertEqual(one.ok("info")[1], 4 * GIB)
        one.ok(f"alloc {3 * GIB}")
        self.assertEqual(two.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
        self.assertEqual(one.stderr() + two.stderr(), "")

    def test_indexed_limits_follow_the_gpu_and_not_the_ordinal(self):
        if not STATE["nvml"]:
            self.skipTest("the simulated NVML is not built")
        env = self.env(CUDA_DEVICE_MEMORY_LIMIT_0="1g", CUDA_DEVICE_MEMORY_LIMIT_1="2g")
        plain = Client(self, **env).start(0)
        self.assertEqual([plain.ok("total 0")[0], plain.ok("total 1")[0]], [1 * GIB, 2 * GIB])
        for visible, limits in (("1,0", [2, 1]), ("1", [2]), (UUIDS[1], [2]), (UUIDS[0], [1])):
            with self.subTest(visible):
                client = Client(self, CUDA_VISIBLE_DEVICES=visible, **env)
                client.ok("init")
                self.assertEqual([client.ok(f"total {i}")[0] for i in range(len(limits))], [n * GIB for n in limits])

    def test_file_of_another_format_is_left_alone(self):
        env = self.env(CUDA_DEVICE_MEMORY_LIMIT="1g")
        path = pathlib.Path(env["CUDA_DEVICE_MEMORY_SHARED_CACHE"])
        beside = pathlib.Path(str(path) + ".aliquot")
        self.addCleanup(lambda: beside.unlink(missing_ok=True))
        path.write_bytes(b"HAMi" * 1000)
        one, two = Client(self, **env).start(), Client(self, **env).start()
        one.ok(f"alloc {500 * MIB}")
        self.assertEqual(two.call(f"alloc {500 * MIB}")[0], OUT_OF_MEMORY)
        self.assertEqual(path.read_bytes(), b"HAMi" * 1000)

    def test_file_that_cannot_be_had_limits_each_process_with_one_line(self):
        client = Client(self, CUDA_DEVICE_MEMORY_LIMIT="1g", CUDA_DEVICE_MEMORY_SHARED_CACHE="/proc/none/x").start()
        self.assertEqual(client.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
        self.assertEqual(len(client.stderr().splitlines()), 1, client.stderr())

    def test_bad_quantity_is_refused_with_one_line(self):
        for name, value in (("CUDA_DEVICE_MEMORY_LIMIT", "lots"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "-1g"),
                            ("CUDA_DEVICE_SM_LIMIT", "half")):
            client = Client(self, **self.env(**{name: value}))
            self.assertEqual(client.call("init")[0], NOT_PERMITTED)
            self.assertEqual(client.call("init")[0], NOT_PERMITTED)
            lines = client.stderr().splitlines()
            self.assertEqual(len(lines), 1, lines)
            self.assertIn(name, lines[0])

    def test_share_directory_wins(self):
        self.share(2 * GIB)
        client = Client(self, **self.env(CUDA_DEVICE_MEMORY_LIMIT="8g")).start()
        self.assertEqual(client.ok("info")[1], 2 * GIB)

    def test_context_reservation_can_be_set(self):
        client = Client(self, **self.env(CUDA_DEVICE_MEMORY_LIMIT="1g", ALIQUOT_CONTEXT_BYTES="512Mi")).start()
        self.assertEqual(client.ok("info")[0], GIB - 512 * MIB)


class Damaged(Case):
    def test_damaged_control_refuses(self):
        self.share(GIB)
        (self.shares / "claim-0/control").write_bytes(b"x" * 4096)
        client = Client(self)
        self.assertEqual(client.call("init")[0], NOT_PERMITTED)
        self.assertIn("claim-0", client.stderr())

    def test_damaged_usage_limits_each_process(self):
        for content in (b"", b"x" * 200000, usage(UUIDS[0])[:-1]):
            self.share(GIB)
            (self.shares / "claim-0/usage").write_bytes(content)
            client = Client(self).start()
            self.assertEqual(client.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
            client.ok(f"alloc {GIB // 2}")
            self.assertEqual(len(client.stderr().splitlines()), 1, client.stderr())
            client.kill()
            self.assertEqual((self.shares / "claim-0/usage").read_bytes(), content)


class Nvml(Case):
    def setUp(self):
        super().setUp()
        if not STATE["nvml"]:
            self.skipTest("the simulated NVML is not built")

    def test_all_views_agree(self):
        limit = 4 * GIB + 4097
        self.share(limit)
        client = Client(self).start()
        client.ok("nvml-init")
        client.ok("alloc 1000001")
        free, total = client.ok("info")
        self.assertEqual(total, limit)
        self.assertEqual(client.ok("nvml1 0"), [limit, free, limit - free])
        held = self.held()
        v2 = client.ok("nvml2 0")
        self.assertEqual(v2[:3], [limit, free, held])
        self.assertEqual(v2[1] + v2[2] + v2[3], limit)

    def test_view_of_a_program_without_cuda(self):
        self.share(4 * GIB)
        other = Client(self).start()
        other.ok("alloc 1024")
        client = Client(self)
        client.ok("nvml-init")
        self.assertEqual(client.ok("nvml1 0"), [4 * GIB, 4 * GIB - CONTEXT - 1024, CONTEXT + 1024])

    def test_processes_are_those_of_the_share_with_their_counted_memory(self):
        self.share(4 * GIB)
        one, two = Client(self).start(), Client(self).start()
        one.ok("alloc 4096")
        two.ok("alloc 8192")
        one.ok("nvml-init")
        words = one.words("nvml-processes 0")
        self.assertEqual(words[:2], ["0", "2"])
        self.assertEqual(sorted(words[2:]), sorted([f"{one.pid}:4096", f"{two.pid}:8192"]))
        two.kill()
        self.assertEqual(one.words("nvml-processes 0"), ["0", "1", f"{one.pid}:4096"])

    def test_device_without_a_share_is_left_alone(self):
        self.share(4 * GIB)
        client, bare = Client(self), Client(self, preload=False)
        client.ok("nvml-init")
        bare.ok("nvml-init")
        self.assertEqual(client.ok("nvml1 1"), bare.ok("nvml1 1"))


class Oracle(Case):
    def test_physical_bytes_never_pass_the_limit(self):
        if not SIMCTL.exists():
            self.skipTest("simctl is not built")
        self.share(2 * GIB, context=320 * MIB)  # the simulated card's contexts take 295 MiB
        group = self.shares.name
        clients = [Client(self, group=group).start() for _ in range(3)]
        for line in ("module", "bisect"):
            for client in clients:
                client.ok(line)
        report = json.loads(subprocess.run([SIMCTL, "--socket", STATE["dir"] / "simgpud.sock", "oracle"], check=True,
                                           stdout=subprocess.PIPE).stdout)
        peak = [g["peak_bytes"] for g in report["devices"][0]["groups"] if g["group"] == group]
        self.assertEqual(len(peak), 1)
        self.assertLessEqual(peak[0], 2 * GIB)
        self.assertGreater(peak[0], GIB)


if __name__ == "__main__":
    unittest.main()

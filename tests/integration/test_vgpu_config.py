# SPDX-License-Identifier: Apache-2.0
"""Where the library's limits come from, and that they hold: every form of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER on a machine
of three different GPUs, NVML or CUDA first; usage files and share directories that are missing, damaged, full, read-only,
locked away, late or gone. (test_vgpu.py has the clients.)"""

import resource
import shutil
import subprocess
import unittest

import test_vgpu
from test_vgpu import CONTEXT, GIB, MIB, NOT_PERMITTED, OUT_OF_MEMORY, STATE, Case, Client, control, usage

TIMEOUT_S = 180
NO_DEVICE = 100
# By NVML's order, which is that of PCI addresses. CUDA's own order begins with the fastest.
GPUS = [("GPU-11111111-2222-3333-4444-555555555555", "NVIDIA T4", "8Gi", 40),
        ("GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "NVIDIA H100 80GB HBM3", "16Gi", 132),
        ("GPU-abcdef01-bbbb-cccc-dddd-eeeeeeeeeeee", "NVIDIA A10", "12Gi", 72)]
UUIDS = [gpu[0] for gpu in GPUS]
LIMITS = [1 * GIB, 2 * GIB, 3 * GIB]  # by NVML's order
FASTEST = [1, 2, 0]
# CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES, and which of GPUS CUDA then shows
VISIBLE = [
    (None, None, FASTEST),
    ("FASTEST_FIRST", None, FASTEST),
    ("PCI_BUS_ID", None, [0, 1, 2]),
    ("nonsense", None, FASTEST),
    (None, "0,1,2", FASTEST),
    (None, "0", [1]),
    (None, "2,0", [0, 1]),
    ("PCI_BUS_ID", "0", [0]),
    ("PCI_BUS_ID", "2", [2]),
    ("PCI_BUS_ID", "2,0", [2, 0]),
    ("PCI_BUS_ID", "1,2,0", [1, 2, 0]),
    ("PCI_BUS_ID", " 1", [1]),
    ("PCI_BUS_ID", UUIDS[2], [2]),
    (None, f"{UUIDS[2]},{UUIDS[0]}", [2, 0]),
    (None, UUIDS[1].upper(), [1]),
    (None, "GPU-111", [0]),
    (None, "GPU-aa,GPU-ab", [1, 2]),
    (None, "GPU-a", []),                    # of two
    (None, "GPU-99", []),
    (None, "MIG-11111111-2222-3333-4444-555555555555", []),
    (None, f"{UUIDS[0]},MIG-{UUIDS[1]}/1/0,{UUIDS[2]}", [0]),
    (None, "", []),
    (None, "-1", []),
    (None, "none", []),
    ("PCI_BUS_ID", "0,-1,1", [0]),
    ("PCI_BUS_ID", "0,7,1", [0]),
    ("PCI_BUS_ID", "1,1", []),
    ("PCI_BUS_ID", "1,garbage", [1]),
]


def setUpModule():
    test_vgpu.start_machine([{"uuid": u, "name": n, "memory": m, "sms": s, "minor": i} for i, (u, n, m, s) in enumerate(GPUS)])
    subprocess.run(["cc", "-O1", "-I", test_vgpu.REPO / "include", "-o", STATE["dir"] / "jail", test_vgpu.SOURCES / "vgpu_jail.c"],
                   check=True)


tearDownModule = test_vgpu.tearDownModule


class ConfigCase(Case):
    def share(self, memory, device=0, name="claim-0", **values):
        directory = self.shares / name
        directory.mkdir(exist_ok=True)
        (directory / "control").write_bytes(control(name, UUIDS[device], memory, **values))
        (directory / "usage").write_bytes(usage(UUIDS[device]))

    def assertHoldsAlone(self, reason, prefix=(), limit=GIB, **env):
        """Two processes, each with the whole limit and one line of why."""
        one, two = Client(self, prefix=prefix, **env), Client(self, prefix=prefix, **env)
        for client in (one, two):
            client.start(self.ordinal)
            self.assertEqual(client.ok("info")[1], limit)
            self.assertEqual(client.call(f"alloc {limit}")[0], OUT_OF_MEMORY)
            client.ok(f"alloc {limit // 2}")
            lines = client.stderr().splitlines()
            self.assertEqual(len(lines), 1, lines)
            self.assertIn(reason, lines[0])
            self.assertIn("holds for each process by itself", lines[0])
        self.assertEqual(one.ok("info")[0], limit - CONTEXT - limit // 2)

    def assertHoldsTogether(self, prefix=(), limit=GIB, **env):
        one, two = (Client(self, prefix=prefix, **env).start(self.ordinal) for _ in range(2))
        one.ok(f"alloc {limit // 4}")
        self.assertEqual(two.ok("info")[0], limit - 2 * CONTEXT - limit // 4)
        self.assertEqual(one.stderr() + two.stderr(), "")

    ordinal = 2  # CUDA's, of GPUS[0]


class Ordinals(ConfigCase):
    def settings(self, order, visible):
        return {name: value for name, value in (("CUDA_DEVICE_ORDER", order), ("CUDA_VISIBLE_DEVICES", visible)) if value is not None}

    def check(self, limits, **env):
        """limits by NVML's order, None where the card's own."""
        for order, visible, shown in VISIBLE:
            bare = Client(self, preload=False, **self.settings(order, visible))
            expect = bare.call("init")[0]
            self.assertEqual(expect, 0 if shown else NO_DEVICE, (order, visible))
            totals = [limits[gpu] or bare.ok(f"total {i}")[0] for i, gpu in enumerate(shown)]
            for nvml_first in (False, True):
                with self.subTest(order=order, visible=visible, nvml_first=nvml_first):
                    client = Client(self, **self.settings(order, visible), **env)
                    if nvml_first:
                        self.check_nvml(client, limits)
                    self.assertEqual(client.call("init")[0], expect)
                    self.assertEqual([client.ok(f"total {i}")[0] for i in range(len(shown))], totals)
                    for ordinal, gpu in enumerate(shown):
                        self.assertEqual(client.words(f"uuid {ordinal}"), bare.words(f"uuid {ordinal}"))
                        client.ok(f"ctx {ordinal}")
                        self.assertEqual(client.ok("info")[1], totals[ordinal])
                        if limits[gpu]:
                            self.assertEqual(client.call(f"alloc {limits[gpu]}")[0], OUT_OF_MEMORY)
                    if not nvml_first:
                        self.check_nvml(client, limits)
                    self.assertEqual(client.stderr(), "")
                    client.close()
            bare.close()

    def check_nvml(self, client, limits):
        client.ok("nvml-init")
        for index, limit in enumerate(limits):
            total = client.ok(f"nvml1 {index}")[0]
            if limit:
                self.assertEqual(total, limit, index)
            else:
                self.assertGreater(total, max(LIMITS))

    def test_environment_limits_follow_the_gpu(self):
        cache = self.shares / "cache"
        self.check(LIMITS, CUDA_DEVICE_MEMORY_SHARED_CACHE=str(cache), ALIQUOT_SHARE_ROOT="/nonexistent",
                   **{f"CUDA_DEVICE_MEMORY_LIMIT_{i}": str(limit) for i, limit in enumerate(LIMITS)})

    def test_limit_of_one_index_leaves_the_others_alone(self):
        cache = self.shares / "cache"
        self.check([None, LIMITS[1], None], CUDA_DEVICE_MEMORY_SHARED_CACHE=str(cache), ALIQUOT_SHARE_ROOT="/nonexistent",
                   CUDA_DEVICE_MEMORY_LIMIT_1="2g")

    def test_shares_follow_the_gpu(self):
        self.share(LIMITS[1], device=1, name="a-0")
        self.share(LIMITS[2], device=2, name="b-0")
        self.check([None, *LIMITS[1:]])


class Usage(ConfigCase):
    def setUp(self):
        super().setUp()
        self.share(GIB)
        self.file = self.shares / "claim-0/usage"

    def in_mounts(self, script):
        """A prefix that runs the program in a mount namespace of its own, after the script."""
        if subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no user namespaces here")
        return ["unshare", "-rm", "sh", "-ec", f'cd "{self.shares}/claim-0"; {script}; exec "$@"', "sh"]

    def test_good_file_is_shared(self):
        self.assertHoldsTogether()

    def test_missing(self):
        self.file.unlink()
        self.assertHoldsAlone("no such file")
        self.assertFalse(self.file.exists())

    def test_torn_foreign_and_of_another_version(self):
        good = usage(UUIDS[0])
        for content in (b"", good[:-1], good[:4096], b"HAMi" * 50000, good[:8] + b"\2" + good[9:], bytes(len(good))):
            self.file.write_bytes(content)
            self.assertHoldsAlone("not a usage file of this version")
            self.assertEqual(self.file.read_bytes(), content)

    def test_directory_in_its_place(self):
        self.file.unlink()
        self.file.mkdir()
        self.assertHoldsAlone("usage")

    def test_full_file_system(self):
        full = self.shares.parent / f"{self.shares.name}-full"
        self.addCleanup(shutil.rmtree, full)
        shutil.copytree(self.shares / "claim-0", full)
        self.assertHoldsAlone("no space", self.in_mounts(
            f'mount -t tmpfs -o size=64k none "{self.shares}/claim-0"; cd "{self.shares}/claim-0"; cp "{full}/control" .; '
            f'head -c 4096 "{full}/usage" >usage; truncate -s {self.file.stat().st_size} usage'))

    def test_read_only_file_system(self):
        self.assertHoldsAlone("read-only file system", self.in_mounts("mount --bind . .; mount -o remount,bind,ro ."))

    def test_no_permission(self):
        self.file.chmod(0o444)
        self.assertHoldsAlone("permission denied", [STATE["dir"] / "jail", "no-capability"])

    def test_locks_not_permitted(self):
        self.assertHoldsAlone("not permitted", [STATE["dir"] / "jail", "no-lock"])

    def test_mapping_not_permitted(self):
        self.assertHoldsAlone("cannot be mapped", [STATE["dir"] / "jail", "no-map"])

    def test_without_proc_it_is_shared(self):
        self.assertHoldsTogether(self.in_mounts("mount -t tmpfs none /proc"))


class Environment(ConfigCase):
    def env(self, path, **more):
        return {"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(path), "ALIQUOT_SHARE_ROOT": "/nonexistent", **more}

    def test_file_is_made_and_shared(self):
        self.assertHoldsTogether(**self.env(self.shares / "cache"))

    def test_folder_that_is_missing_or_not_to_be_written(self):
        self.assertHoldsAlone("no such file", **self.env(self.shares / "none/cache"))
        self.shares.chmod(0o555)
        self.assertHoldsAlone("permission denied", [STATE["dir"] / "jail", "no-capability"], **self.env(self.shares / "cache"))
        self.shares.chmod(0o755)

    def test_full_file_system(self):
        if subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no user namespaces here")
        prefix = ["unshare", "-rm", "sh", "-ec", f'mount -t tmpfs -o size=64k none "{self.shares}"; exec "$@"', "sh"]
        self.assertHoldsAlone("no space", prefix, **self.env(self.shares / "cache"))

    def test_locks_and_mapping_not_permitted(self):
        for what, reason in (("no-lock", "not permitted"), ("no-map", "cannot be mapped")):
            self.assertHoldsAlone(reason, [STATE["dir"] / "jail", what], **self.env(self.shares / what))

    def test_private_limits_of_three_gpus_do_not_mix(self):
        env = self.env("/proc/none/cache", CUDA_DEVICE_MEMORY_LIMIT_0="1g", CUDA_DEVICE_MEMORY_LIMIT_1="2g", CUDA_DEVICE_MEMORY_LIMIT_2="3g")
        client = Client(self, **env)
        client.ok("nvml-init")
        client.ok("nvml1 0")
        client.ok("init")
        for ordinal, gpu in enumerate(FASTEST):
            client.ok(f"ctx {ordinal}")
            client.ok(f"alloc {(ordinal + 1) * MIB}")
            self.assertEqual(client.ok("info"), [LIMITS[gpu] - CONTEXT - (ordinal + 1) * MIB, LIMITS[gpu]])


class Passing(ConfigCase):
    """A process without free descriptors must not come to have the whole limit for itself: it is refused, and no longer
    than that lasts."""

    def env_of(self, source):
        if source == "share":
            self.share(GIB)
            return {}
        return {"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.shares / "cache"),
                "ALIQUOT_SHARE_ROOT": "/nonexistent"}

    def allow_descriptors(self, client, most):
        hard = resource.prlimit(client.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(client.pid, resource.RLIMIT_NOFILE, (hard if most is None else most, hard))

    def test_first_use_without_descriptors_is_refused_until_there_are_some(self):
        for source in ("share", "environment"):
            for found_before in (False, True):  # the limit is known, its slot is yet to be taken
                with self.subTest(source=source, found_before=found_before):
                    env = self.env_of(source)
                    client, other = Client(self, **env), Client(self, **env).start(self.ordinal)
                    if found_before:
                        client.ok("nvml-init")
                        client.ok("nvml1 0")
                    self.allow_descriptors(client, 0)
                    for _ in range(3):
                        self.assertEqual(client.call("init")[0], NOT_PERMITTED)
                    self.assertEqual(len(client.stderr().splitlines()), 1)
                    self.assertIn("too many open files; GPU use is refused as long as this lasts", client.stderr())
                    self.allow_descriptors(client, None)
                    client.start(self.ordinal)
                    client.ok(f"alloc {GIB // 4}")
                    self.assertEqual(other.ok("info")[0], GIB - GIB // 4 - 2 * CONTEXT)
                    self.assertEqual(other.call(f"alloc {GIB - GIB // 4 - 2 * CONTEXT + 1}")[0], OUT_OF_MEMORY)
                    client.kill()
                    other.kill()
                    shutil.rmtree(self.shares / "claim-0", ignore_errors=True)

    def test_fork_child_without_descriptors_is_refused(self):
        self.share(GIB)
        client = Client(self).start(self.ordinal)
        self.allow_descriptors(client, 0)
        self.assertEqual(client.call("fork")[0], NOT_PERMITTED & 127)
        client.ok(f"alloc {GIB // 4}")

    def test_index_beyond_the_last_is_refused(self):
        client = Client(self, CUDA_DEVICE_MEMORY_LIMIT_16="1g", ALIQUOT_SHARE_ROOT="/nonexistent")
        self.assertEqual(client.call("init")[0], NOT_PERMITTED)
        self.assertIn("CUDA_DEVICE_MEMORY_LIMIT_16=1g: devices are numbered 0 to 15", client.stderr())


class LateAndGone(ConfigCase):
    def test_directory_that_appears_before_init_holds(self):
        client = Client(self)
        client.ok("nvml-init")
        self.assertGreater(client.ok("nvml1 0")[0], 4 * GIB)
        self.share(GIB)
        client.start(self.ordinal)
        self.assertEqual(client.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
        self.assertEqual((client.ok("info")[1], client.ok("nvml1 0")[0]), (GIB, GIB))

    def test_directory_that_appears_between_two_inits_holds_from_then_on(self):
        client = Client(self).start(self.ordinal)
        index = client.ok(f"alloc {2 * GIB}")[0]
        self.share(GIB)
        client.ok(f"free {client.ok(f'alloc {2 * GIB}')[0]}")
        client.ok("init")
        self.assertEqual(client.call(f"alloc {GIB + 1}")[0], OUT_OF_MEMORY)
        client.ok(f"free {index}")  # not ours, and the driver's all the same
        self.assertEqual(self.held(), 0)

    def test_directory_that_goes_before_init_leaves_the_limit(self):
        self.share(GIB)
        client = Client(self)
        client.ok("nvml-init")
        self.assertEqual(client.ok("nvml1 0")[0], GIB)
        shutil.rmtree(self.shares / "claim-0")
        client.start(self.ordinal)
        self.assertEqual(client.call(f"alloc {GIB}")[0], OUT_OF_MEMORY)
        self.assertEqual(client.ok("info"), [GIB - CONTEXT, GIB])
        self.assertEqual(len(client.stderr().splitlines()), 1)

    def test_directory_that_goes_in_use_leaves_the_limit(self):
        self.share(GIB)
        one, two = Client(self).start(self.ordinal), Client(self).start(self.ordinal)
        shutil.rmtree(self.shares / "claim-0")
        one.ok(f"alloc {GIB // 4}")
        for client in (one, two):
            self.assertEqual(client.ok("info"), [GIB - 2 * CONTEXT - GIB // 4, GIB])
            self.assertEqual(client.call(f"alloc {GIB // 2}")[0], OUT_OF_MEMORY)
        self.assertEqual(one.stderr() + two.stderr(), "")

    def test_root_that_cannot_be_read_is_refused(self):
        self.shares.chmod(0)
        client = Client(self, prefix=[STATE["dir"] / "jail", "no-capability"])
        self.assertEqual(client.call("init")[0], NOT_PERMITTED)
        self.assertIn("cannot be read", client.stderr())
        self.shares.chmod(0o755)


if __name__ == "__main__":
    unittest.main()

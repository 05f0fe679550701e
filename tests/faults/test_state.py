# SPDX-License-Identifier: Apache-2.0
"""aliquotd's state after what happens to machines and disks: reboots, lost files, records of every bad kind, full and
read-only disks, too few descriptors, GPUs that are gone, upgrades of the library."""

import ctypes
import fcntl
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults_world import BUILD, DRIVER, FaultWorld, call, result, rewrite_record, wait_for  # noqa: E402
from daemon_world import httpd  # noqa: E402
import test_crash  # noqa: E402

CLONE_NEWNS = 0x00020000
HAS_MOUNTS = False
RUNNING_POD = "cafecafe-0000-4000-8000-000000000001"


def setUpModule():
    test_crash.setUpModule()
    # Mounts of these tests are in a namespace of their own, which the daemons inherit.
    global HAS_MOUNTS
    libc = ctypes.CDLL(None, use_errno=True)
    HAS_MOUNTS = os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0 and \
        subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode == 0


class State(unittest.TestCase):
    def setUp(self):
        self.world = FaultWorld()
        self.addCleanup(self.world.close)
        self.peer = None
        self.set_boot(0)

    def set_boot(self, number):
        self.boot = self.world.path("boot-id")
        with open(self.boot, "w", encoding="ascii") as file:
            file.write(f"{number:08x}-0000-4000-8000-000000000000\n")

    def start(self, **more):
        self.world.start(options=("--boot-id", self.boot, *more.pop("options", ())), **more)
        self.peer = self.world.peer()
        self.addCleanup(self.peer.close)

    def end(self, number=signal.SIGTERM):
        self.peer.close()
        return self.world.end(number)

    def restart(self, **more):
        self.end()
        self.start(**more)

    def prepare(self, claim, timeout=20):
        return call(self.peer, "prepare", claim, timeout)

    def prepared(self, claim):
        error, devices = self.prepare(claim)
        self.assertEqual(error, "")
        return devices

    def unprepared(self, claim):
        self.assertEqual(call(self.peer, "unprepare", claim)[0], "")

    def refused(self, claim, *words, timeout=2):
        error, _ = self.prepare(claim, timeout)
        for word in words:
            self.assertIn(word, error)

    def is_promised(self, cores):
        """Whether exactly so many cores of GPU 0 are promised: one more than the rest is refused, the rest is not."""
        over, rest = (self.world.claim(f"probe-{n}", [result(cores=str(n), memory="1Mi")]) for n in (101 - cores,
                                                                                                     100 - cores))
        if cores:
            self.refused(over, "no room")
        self.prepared(rest)
        self.unprepared(rest)

    def path(self, *names):
        return self.world.path(*names)

    def record(self, claim):
        return self.path("state/claims", claim[2] + ".record")

    def spec_path(self, claim):
        return self.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json")

    def share(self, claim, name, index=0):
        return self.path("run/shares", f"{claim[2]}-{index}", name)

    def mount(self, directory, options):
        if not HAS_MOUNTS:
            self.skipTest("mounts need root")
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", directory], check=False)


class Reboot(State):
    def reboot(self):
        self.end(signal.SIGKILL)
        self.set_boot(1)
        for top in ("run", "cdi"):
            shutil.rmtree(self.path(top))
            os.mkdir(self.path(top))
        self.world.renumber()

    def test_claims_are_made_afresh_with_the_new_minors(self):
        self.start()
        claim, gone = (self.world.claim(n, [result(cores="30")]) for n in ("kept", "gone"))
        devices = self.prepared(claim)
        self.prepared(gone)
        self.assertIn("/dev/nvidia0", str(self.world.spec(claim[2])["devices"]))
        self.reboot()
        self.world.delete_claim(gone)
        self.start()
        wait_for("the record of the claim that is gone to go", lambda: not os.path.exists(self.record(gone)))
        self.assertFalse(os.path.exists(self.spec_path(claim)))  # no container runs: nothing to rebuild
        self.is_promised(30)
        self.assertEqual(self.prepared(claim), devices)
        self.assertIn("/dev/nvidia1", str(self.world.spec(claim[2])["devices"]))
        self.assertTrue(os.path.exists(self.share(claim, "usage")))
        self.is_promised(30)
        self.unprepared(claim)
        self.assertEqual(self.world.tree(), {})
        self.is_promised(0)

    def test_half_made_claims_of_the_last_boot_are_forgotten(self):
        self.start()
        claim = self.world.claim("half", [result(cores="30")])
        devices = self.prepared(claim)
        self.reboot()
        rewrite_record(self.record(claim), b'"completed"', b'"started"')
        self.start()
        self.assertEqual(self.world.tree(), {})
        self.is_promised(0)
        self.assertEqual(self.prepared(claim), devices)

    def test_unprepare_of_a_claim_of_the_last_boot(self):
        self.start()
        claim = self.world.claim("old", [result(cores="30")])
        self.prepared(claim)
        self.reboot()
        self.start()
        self.unprepared(claim)
        self.assertEqual(self.world.tree(), {})


class SameBoot(State):
    def test_lost_files_are_rebuilt_without_any_call(self):
        self.start()
        claim = self.world.claim("lost", [result()])
        self.prepared(claim)
        before = self.world.snapshot()
        usage = os.stat(self.share(claim, "usage")).st_ino
        self.end()
        os.unlink(self.spec_path(claim))
        os.unlink(self.share(claim, "control"))
        for name in os.listdir(self.path("lib")):
            os.unlink(self.path("lib", name))
        self.start()
        self.world.await_snapshot("rebuilt", [before], timeout=10)
        self.assertEqual(os.stat(self.share(claim, "usage")).st_ino, usage)

    def test_what_a_container_wrote_into_usage_stays(self):
        self.start()
        claim = self.world.claim("busy", [result()])
        self.prepared(claim)
        with open(self.share(claim, "usage"), "r+b") as file:
            file.seek(40000)
            file.write(b"a container's ledger")
        os.unlink(self.share(claim, "hami.cache"))
        before = os.stat(self.share(claim, "usage"))
        self.restart()
        wait_for("hami.cache", lambda: os.path.exists(self.share(claim, "hami.cache")))
        after = os.stat(self.share(claim, "usage"))
        self.assertEqual((before.st_ino, before.st_size, before.st_mtime_ns),
                         (after.st_ino, after.st_size, after.st_mtime_ns))

    def test_share_in_use_stays_when_its_gpu_has_less_to_promise(self):
        """A larger --reserve, then the kubelet asks again for claims whose containers run."""
        self.start()
        exact = self.world.claim("exact", [result(memory="81408Mi")])
        whole = self.world.claim("whole", [result(device="hami-gpu-1", cores=None, memory=None)])  # the gate is off
        devices = [self.prepared(c) for c in (exact, whole)]
        before = self.world.tree()
        with open(self.share(whole, "control"), "rb") as file:
            control = file.read()
        self.end()
        self.start(reserve="2Gi")
        self.assertEqual([self.prepared(c) for c in (exact, whole)], devices)
        self.assertEqual(self.world.tree(), before)
        with open(self.share(whole, "control"), "rb") as file:
            self.assertEqual(file.read(), control)
        self.refused(self.world.claim("new", [result(memory="81408Mi", cores="1")]), "more than the 79360Mi")
        for claim in (exact, whole):
            self.unprepared(claim)

    def test_vanished_gpu_costs_its_claims_alone(self):
        self.start()
        there = self.world.claim("there", [result(cores="10")])
        gone = self.world.claim("gone", [result(device="hami-gpu-1", cores="10")])
        devices = self.prepared(there)
        self.prepared(gone)
        self.end()
        self.world.keep_gpus(1)
        self.start()
        self.assertEqual(self.prepared(there), devices)
        self.refused(gone, "default/gone", "hami-gpu-1", timeout=20)
        self.unprepared(gone)
        self.assertEqual([f for f in self.world.tree() if gone[2] in f], [])
        self.unprepared(there)

    def test_claims_are_kept_while_the_api_server_is_in_doubt(self):
        self.start()
        claim = self.world.claim("kept", [result(cores="30")])
        self.prepared(claim)
        before = self.world.tree()
        for code in (403, 500, 503, 429):
            with self.subTest(code):
                self.end()
                fault = httpd.Fault({"match": "GET .*/resourceclaims/kept", "code": code, "count": 1000})
                self.world.http.faults.append(fault)
                self.start()
                wait_for("the claim to be asked for", lambda used=fault: used.used)
                self.is_promised(30)
                self.world.http.faults.clear()
                self.assertEqual(self.world.tree(), before)

    def test_replaced_claim_is_taken_away_by_its_uid(self):
        self.start()
        claim = self.world.claim("name", [result(cores="30")])
        self.prepared(claim)
        self.end()
        self.world.delete_claim(claim)
        self.world.claim("name", [result(cores="30")])
        self.start()
        wait_for("the files of the old one to go", lambda: not self.world.tree())
        self.is_promised(0)


class BadRecords(State):
    def bad(self, claim, kind):
        path = self.record(claim)
        with open(path, "rb") as file:
            data = file.read()
        os.unlink(path)
        if kind == "directory":
            os.makedirs(os.path.join(path, "deep"))
        elif kind == "symlink":
            os.symlink("/etc/passwd", path)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            other = {"torn": data[:len(data) // 2], "empty": b"", "future": data.replace(b"record 1", b"record 9", 1),
                     "huge": b"x" * (1 << 20), "flipped": data.replace(b'"cores"', b'"corez"', 1)}
            with open(path, "wb") as file:
                file.write(other.get(kind, data))
            if kind == "other uid":
                rewrite_record(path, claim[2].encode(), RUNNING_POD.encode())
            if kind == "impossible":
                rewrite_record(path, b'"completed"', b'"perhaps"')

    def test_each_is_set_aside_and_its_promise_is_kept(self):
        kinds = ("torn", "empty", "future", "directory", "symlink", "fifo", "huge", "flipped", "other uid", "impossible")
        self.start()
        good = self.world.claim("good", [result(cores="10", memory="1Gi")])
        claims = {k: self.world.claim("bad-" + k.replace(" ", "-"), [result(cores="5", memory="1Gi")]) for k in kinds}
        devices = self.prepared(good)
        ids = {k: self.prepared(c) for k, c in claims.items()}
        files = {f: i for f, i in self.world.tree().items() if not f.startswith("state")}
        self.end()
        for kind, claim in claims.items():
            self.bad(claim, kind)
        total = 10 + 5 * len(kinds)
        for _ in range(2):  # what was set aside is known at the next start too
            self.start()
            self.assertEqual({f: i for f, i in self.world.tree().items() if not f.startswith("state")}, files)
            self.is_promised(total)
            self.assertEqual(self.prepared(good), devices)
            self.end()
        self.start()
        for kind, claim in claims.items():
            with self.subTest(kind):
                self.assertTrue(os.path.lexists(self.record(claim) + ".bad"))
                usage = os.stat(self.share(claim, "usage")).st_ino
                self.assertEqual(self.prepared(claim), ids[kind])
                self.assertEqual(os.stat(self.share(claim, "usage")).st_ino, usage)  # containers may have it mounted
                self.assertFalse(os.path.lexists(self.record(claim) + ".bad"))
                self.unprepared(claim)
                total -= 5
        self.is_promised(total)
        self.unprepared(good)
        self.assertEqual(self.world.tree(), {})

    def test_unprepare_ends_what_was_set_aside(self):
        self.start()
        claim = self.world.claim("bad", [result(cores="30")])
        self.prepared(claim)
        self.end()
        self.bad(claim, "torn")
        self.start()
        self.is_promised(30)
        self.unprepared(claim)
        self.is_promised(0)
        self.assertEqual(self.world.tree(), {})

    def test_bad_record_of_another_boot_promises_nothing(self):
        self.start()
        claim = self.world.claim("bad", [result(cores="30")])
        self.prepared(claim)
        self.end()
        self.bad(claim, "torn")
        shutil.rmtree(self.path("run"))
        os.mkdir(self.path("run"))
        self.set_boot(1)
        self.start()
        self.is_promised(0)
        self.prepared(claim)

    def test_duplicate_under_another_name_counts_once(self):
        self.start()
        claim = self.world.claim("one", [result(cores="30")])
        self.prepared(claim)
        self.end()
        shutil.copy(self.record(claim), self.path("state/claims", RUNNING_POD + ".record"))
        self.start()
        self.is_promised(30)
        self.assertTrue(os.path.exists(self.path("state/claims", RUNNING_POD + ".record.bad")))

    def test_lost_record_of_a_share_in_use(self):
        """A process of a container holds a slot, so the files stay and count; without one they are an orphan's."""
        self.start()
        busy, idle = (self.world.claim(n, [result(cores="30")]) for n in ("busy", "idle"))
        devices = self.prepared(busy)
        self.prepared(idle)
        self.end()
        for claim in (busy, idle):
            os.unlink(self.record(claim))
        with open(self.share(busy, "usage"), "r+b") as usage:
            fcntl.fcntl(usage, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 3, 1, 0))  # F_OFD_SETLK
            inode = os.stat(self.share(busy, "usage")).st_ino
            self.start()
            self.assertFalse(os.path.exists(self.share(idle, "usage")))
            self.is_promised(30)
            self.assertEqual(self.prepared(busy), devices)
            self.assertEqual(os.stat(self.share(busy, "usage")).st_ino, inode)
        self.unprepared(busy)
        self.assertEqual(self.world.tree(), {})


class Disks(State):
    def fill(self, directory):
        fd = os.open(os.path.join(directory, "filler"), os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(fd, bytes(4096))
        except OSError:
            pass  # full
        finally:
            os.close(fd)

    def test_full_state_disk(self):
        self.mount(self.path("state"), "size=256k")
        self.start()
        held, new = (self.world.claim(n, [result(cores="30")]) for n in ("held", "new"))
        devices = self.prepared(held)
        self.fill(self.path("state"))
        self.refused(new, "No space left on device", self.path("state"), timeout=20)
        self.assertEqual([f for f in self.world.tree() if new[2] in f], [])
        self.assertEqual(self.prepared(held), devices)
        self.restart()
        self.assertEqual(self.prepared(held), devices)
        self.refused(new, "No space left on device", timeout=20)
        self.is_held(held)
        os.unlink(self.path("state/filler"))
        self.prepared(new)
        for claim in (held, new):
            self.unprepared(claim)
        self.assertEqual(self.world.tree(), {})

    def is_held(self, claim):
        self.assertTrue(os.path.exists(self.record(claim)))
        self.assertTrue(os.path.exists(self.spec_path(claim)))

    def test_promise_of_a_share_in_use_outlives_a_full_disk(self):
        self.mount(self.path("state"), "size=256k")
        self.start()
        claim = self.world.claim("torn", [result(cores="30")])
        devices = self.prepared(claim)
        self.end()
        with open(self.record(claim), "wb") as file:
            file.write(b"torn")
        self.fill(self.path("state"))
        self.start()
        self.refused(claim, "No space left on device", timeout=20)
        os.unlink(self.path("state/filler"))
        self.is_promised(30)
        self.assertEqual(self.prepared(claim), devices)
        self.is_promised(30)
        self.unprepared(claim)
        self.is_promised(0)
        self.assertEqual(self.world.tree(), {})

    def test_unprepare_on_a_full_disk(self):
        self.mount(self.path("state"), "size=256k")
        self.start()
        claim = self.world.claim("held", [result(cores="30")])
        self.prepared(claim)
        self.fill(self.path("state"))
        self.unprepared(claim)
        self.assertEqual(self.world.tree(), {})

    def test_full_run_directory(self):
        """The share's files are preallocated: a full tmpfs is an error here, not a container's SIGBUS."""
        self.mount(self.path("run"), "size=640k,mode=755")
        self.start()
        claims = [self.world.claim(f"c{i}", [result(cores="5")]) for i in range(6)]
        answers = [self.prepare(c)[0] for c in claims]
        self.assertEqual(answers[0], "")
        self.assertIn("No space left on device", answers[-1])
        self.assertEqual([f for f in self.world.tree() if claims[-1][2] in f], [])
        self.unprepared(claims[0])
        self.prepared(claims[-1])

    def test_start_on_read_only_disks(self):
        for top in ("state", "cdi", "lib"):
            self.mount(self.path(top), "size=4m,mode=755")
        self.start()
        held, new = (self.world.claim(n, [result(cores="30")]) for n in ("held", "new"))
        devices = self.prepared(held)
        for top in ("state", "cdi", "lib"):
            with self.subTest(top):
                directory = self.path(top)
                self.end()
                subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
                self.start()
                self.assertEqual(self.prepared(held), devices)
                if top != "lib":  # nothing is written there for a new claim
                    self.refused(new, "Read-only file system", timeout=20)
                    self.assertEqual([f for f in self.world.tree() if new[2] in f], [])
                self.end()
                subprocess.run(["mount", "-o", "remount,rw", directory], check=True)
                self.start()
                self.prepared(new)
                self.unprepared(new)
        self.unprepared(held)
        self.assertEqual(self.world.tree(), {})

    def test_library_that_cannot_be_installed_refuses_claims_until_it_can(self):
        self.mount(self.path("lib"), "size=4k,mode=755")
        self.start()
        claim = self.world.claim("early", [result()])
        self.refused(claim, "--host-lib-dir", "No space left on device", timeout=20)
        self.assertEqual(self.world.tree(), {})
        self.end()
        subprocess.run(["mount", "-o", "remount,size=4m", self.path("lib")], check=True)
        self.start()
        self.prepared(claim)

    def test_library_lost_while_running_is_installed_again(self):
        self.start()
        first, second = (self.world.claim(n, [result(cores="10")]) for n in ("first", "second"))
        self.prepared(first)
        before = self.world.snapshot(("lib", ))
        for name in os.listdir(self.path("lib")):
            os.unlink(self.path("lib", name))
        self.prepared(second)
        self.assertEqual(self.world.snapshot(("lib", )), before)

    def test_out_of_descriptors(self):
        """As many as are open, or a few more: a call fails with the reason, a connection at once; then all is well."""
        self.start()
        held, new = (self.world.claim(n, [result(cores="30")]) for n in ("held", "new"))
        devices = self.prepared(held)
        pid = self.world.daemon.pid
        wait_for("publishing", lambda: "slices are published" in self.world.said())
        for more in range(6):
            with self.subTest(more):
                taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
                free = [fd for fd in range(1000) if fd not in taken]
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[more], 4096))
                error, _ = self.prepare(new)
                if error:
                    self.assertRegex(error, "Too many open files|asking the API server")
                    self.assertEqual([f for f in self.world.tree() if new[2] in f], [])
                else:
                    self.unprepared(new)
                other = self.world.peer()
                error, _ = call(other, "prepare", held, timeout=30)
                other.close()
                if error:
                    self.assertRegex(error, "Too many open files|UNAVAILABLE")
                if "UNAVAILABLE" in error:
                    self.assertIn("raise the limit (LimitNOFILE)", self.world.said())
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (4096, 4096))
                self.assertEqual(self.prepared(held), devices)
                self.prepared(new)
                self.unprepared(new)
        self.assertIsNone(self.world.daemon.poll())


class Library(State):
    def library(self, name, more):
        """Another build of the library."""
        path = self.path(name)
        shutil.copy(BUILD / "src/vgpu/libvgpu.so", path)
        with open(path, "ab") as file:
            file.write(more)
        return path

    def installed(self):
        return sorted(n for n in os.listdir(self.path("lib")) if n.startswith("libvgpu"))

    def mounted(self, claim):
        return [m["hostPath"] for m in self.world.spec(claim[2])["containerEdits"].get("mounts", []) +
                [m for d in self.world.spec(claim[2])["devices"] for m in d["containerEdits"].get("mounts", [])]
                if "libvgpu-" in m["hostPath"]][0]

    def test_upgrade_keeps_the_old_one_while_a_share_uses_it(self):
        self.start(library=self.library("one.so", b"1"))
        old = self.world.claim("old", [result(cores="10")])
        devices = self.prepared(old)
        first = self.mounted(old)
        self.restart(library=self.library("two.so", b"2"))
        new = self.world.claim("new", [result(cores="10")])
        self.prepared(new)
        second = self.mounted(new)
        self.assertNotEqual(first, second)
        self.assertEqual(self.prepared(old), devices)
        self.assertEqual(self.mounted(old), first)
        self.assertEqual(self.installed(), sorted(map(os.path.basename, (first, second))))
        self.unprepared(new)
        self.assertEqual(len(self.installed()), 2)
        self.unprepared(old)
        self.assertEqual(self.installed(), [os.path.basename(second)])

    def test_upgrade_without_shares_removes_the_old_one_at_start(self):
        self.start(library=self.library("one.so", b"1"))
        first, = self.installed()
        self.restart(library=self.library("two.so", b"2"))
        second, = self.installed()
        self.assertNotEqual(first, second)

    def test_torn_one_is_replaced_by_rename(self):
        self.start()
        claim = self.world.claim("one", [result()])
        self.prepared(claim)
        path = self.mounted(claim)
        with open(path, "rb") as mapped:  # as a running process has it
            whole = mapped.read()
            self.end()
            os.truncate(path, 100)
            inode = os.stat(path).st_ino
            self.start()
            with open(path, "rb") as file:
                self.assertEqual(file.read(), whole)
            self.assertNotEqual(os.stat(path).st_ino, inode)

    def test_torn_old_one_gives_way_to_the_new_one(self):
        self.start(library=self.library("one.so", b"1"))
        claim = self.world.claim("old", [result()])
        self.prepared(claim)
        first = self.mounted(claim)
        self.end()
        os.truncate(first, 100)
        self.start(library=self.library("two.so", b"2"))
        wait_for("the spec", lambda: self.mounted(claim) != first)
        self.assertFalse(os.path.exists(first))

    def test_directory_without_execution(self):
        self.mount(self.path("lib"), "size=4m,noexec,mode=755")
        status, said = self.world.run(library=BUILD / "src/vgpu/libvgpu.so")
        self.assertEqual(status, 1)
        self.assertIn("noexec", said)
        self.assertIn("--host-lib-dir", said)


class Directories(State):
    def test_run_directory_that_others_may_write_is_refused(self):
        os.chmod(self.path("run"), 0o777)
        status, said = self.world.run()
        self.assertEqual(status, 1)
        self.assertIn("--run-dir", said)
        self.assertIn("0777", said)

    def test_everything_mounted_is_labelled_where_the_host_labels(self):
        self.start()
        claim = self.world.claim("one", [result()])
        self.prepared(claim)
        names = [self.share(claim, n) for n in ("control", "usage", "hami.cache")]
        names += [self.path("lib", n) for n in os.listdir(self.path("lib"))]
        try:
            for name in names:
                os.setxattr(name, "security.selinux", b"system_u:object_r:tmp_t:s0\0")
        except OSError as error:
            self.skipTest(f"labels cannot be set here: {error}")
        self.restart()
        wait_for("the labels", lambda: all(os.getxattr(n, "security.selinux") ==
                                           b"system_u:object_r:container_file_t:s0\0" for n in names))


if __name__ == "__main__":
    unittest.main()

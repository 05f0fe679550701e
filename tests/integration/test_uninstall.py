# SPDX-License-Identifier: Apache-2.0
"""Installing and its end: what aliquotd puts on a host stays for those who use it when a newer version comes, and
aliquotd --uninstall leaves the host as it was before."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest

import yaml

from daemon_world import BUILD, DRIVER, REPO, World, need_daemon, result, wait_for

LIBRARY, HOOK = BUILD / "src/vgpu/libvgpu.so", BUILD / "src/hook/aliquot-hook"
NOT_THE_HOSTS = {"driver", "sim", "pki", "gpus.json", "kubeconfig", "log", "new"}  # made by the test around it


def setUpModule():
    need_daemon()


class Host(unittest.TestCase):
    def setUp(self):
        self.world = World(gpus=1)
        self.addCleanup(self.world.close)
        for name in ("state", "run", "lib"):  # aliquotd's own; it makes them
            os.rmdir(self.world.path(name))
        self.before = self.listing()

    def listing(self):
        root = pathlib.Path(self.world.root)
        return {str(p.relative_to(root)) for p in root.rglob("*") if p.relative_to(root).parts[0] not in NOT_THE_HOSTS}

    def start(self, library=LIBRARY, hook=HOOK, **more):
        self.world.start(library=library, hook=hook, **more)

    def uninstall(self, **more):
        done = subprocess.run([*self.world.command(**more), "--uninstall"], capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stderr

    def prepare(self, name):
        claim = self.world.claim(name, [result(memory="1Gi", cores="10")])
        peer = self.world.peer()
        self.addCleanup(peer.close)
        answer = peer.prepare(claim)[claim[2]]
        self.assertFalse(answer.error)
        return claim

    def unprepare(self, claim):
        peer = self.world.peer()
        self.addCleanup(peer.close)
        self.assertFalse(peer.unprepare(claim)[claim[2]].error)

    def installed(self, prefix):
        return {p.name for p in pathlib.Path(self.world.path("lib")).glob(prefix + "*")}

    def newer(self, source):
        """The same program in other bytes, as a newer version is."""
        folder = pathlib.Path(self.world.path("new"))
        folder.mkdir(exist_ok=True)
        path = folder / source.name
        shutil.copy(source, path)
        with open(path, "ab") as file:
            file.write(b"newer")
        return path


class Upgrade(Host):
    def test_running_pods_keep_the_files_they_were_started_with(self):
        self.start()
        old = self.prepare("old")
        library, = self.installed("libvgpu-")
        hook, = self.installed("aliquot-hook-")
        path = pathlib.Path(self.world.path("lib", library))
        self.addCleanup(os.close, held := os.open(path, os.O_RDONLY))
        self.assertEqual(self.world.stop(), 0)
        self.start(self.newer(LIBRARY), self.newer(HOOK))
        self.assertEqual(len(self.installed("libvgpu-")), 2)
        self.assertEqual(os.fstat(held).st_ino, path.stat().st_ino, "replaced under those who have it mapped")
        self.assertIn(library, str(self.world.spec(old[2])))
        new = self.prepare("new")
        self.assertNotIn(library, str(self.world.spec(new[2])))
        self.assertNotIn(hook, str(self.world.spec(old[2])), "the runtime on the host runs the current hook")
        self.unprepare(old)
        wait_for("what nobody uses any more to go", lambda: library not in self.installed("libvgpu-"))
        self.assertEqual((len(self.installed("libvgpu-")), len(self.installed("aliquot-hook-"))), (1, 1))
        self.unprepare(new)

    def test_end_of_an_instance_leaves_what_the_next_one_needs(self):
        self.start()
        self.unprepare(self.prepare("gone"))
        self.assertEqual(self.world.stop(), 0)
        self.assertTrue(self.installed("libvgpu-"))
        self.assertTrue(os.path.exists(self.world.path("state", "devices.json")))


class Uninstall(Host):
    def test_host_is_as_it_was_before(self):
        self.start()
        self.unprepare(self.prepare("gone"))
        pathlib.Path(self.world.path("state", "claims", "0.record.bad.1")).touch()  # nothing that says "prepared" is passed over
        self.assertEqual(self.world.stop(), 0)
        rc, said = self.uninstall()
        self.assertEqual(rc, 1)
        self.assertIn("1 claims are prepared", said)
        os.unlink(self.world.path("state", "claims", "0.record.bad.1"))
        for name in (f"cdi/k8s.{DRIVER}-claim_left.json", "cdi/.k8s.x.json.tmp-1-1", "lib/.libvgpu-x.so.tmp-1-1", "state/devices.json.bad",
                     "state/faults.json", "state/.faults.json.tmp-1-1", "state/made"):  # made: by aliquotd --standalone
            pathlib.Path(self.world.path(name)).write_text("left by one that was killed")
        for path in (self.world.registration_socket, self.world.dra_socket):
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(path)
        rc, said = self.uninstall()
        self.assertEqual(rc, 0, said)
        self.assertEqual(self.listing() - self.before, {"cdi/.k8s.x.json.tmp-1-1"})  # of another driver
        self.assertEqual(self.before - self.listing(), set())

    def test_second_time_there_is_nothing_to_do(self):
        for _ in range(2):
            rc, said = self.uninstall()
            self.assertEqual(rc, 0, said)
            self.assertEqual(self.listing(), self.before)

    def test_refused_while_an_aliquotd_runs_or_a_claim_is_prepared(self):
        self.start()
        claim = self.prepare("held")
        there = self.listing()
        rc, said = self.uninstall()
        self.assertEqual(rc, 1)
        self.assertIn(f"another aliquotd (pid {self.world.daemon.pid})", said)
        self.world.daemon.send_signal(signal.SIGKILL)
        self.world.daemon.wait()
        rc, said = self.uninstall()
        self.assertEqual(rc, 1)
        self.assertRegex(said, r"1 claims are prepared on this node, among them default/held: delete their pods")
        self.assertEqual(there - self.listing(), set())
        self.start()
        self.unprepare(claim)
        self.assertEqual(self.world.stop(), 0)
        self.assertEqual(self.uninstall()[0], 0)
        self.assertEqual(self.listing(), self.before)

    def test_refused_while_a_process_uses_a_share_that_no_record_tells_of(self):
        self.start()
        claim = self.prepare("held")
        self.world.daemon.send_signal(signal.SIGKILL)
        self.world.daemon.wait()
        os.unlink(self.world.path("state", "claims", f"{claim[2]}.record"))
        there = self.listing()
        with open(self.world.path("run", "shares", f"{claim[2]}-0", "usage"), "r+b") as usage:
            fcntl.lockf(usage, fcntl.LOCK_EX, 1)  # as a process of its container
            rc, said = self.uninstall()
            self.assertEqual(rc, 1)
            self.assertIn(f"a process uses the share {claim[2]}-0: end its container, then uninstall", said)
            self.assertEqual(there - self.listing(), set())
        self.assertEqual(self.uninstall()[0], 0)
        self.assertEqual(self.listing(), self.before)

    def test_what_is_not_ours_stays(self):
        self.start()
        self.world.stop()
        library, = self.installed("libvgpu-")
        for name, text in (("run/other", ""), ("state/other", ""), ("cdi/k8s.other.example-claim_1.json", library)):
            pathlib.Path(self.world.path(name)).write_text(text)
        rc, said = self.uninstall()
        self.assertEqual(rc, 0, said)
        self.assertEqual(self.listing() - self.before, {"run", "run/other", "state", "state/other", "cdi/k8s.other.example-claim_1.json",
                                                        "lib", f"lib/{library}"})

    def test_links_in_the_place_of_directories_stay_and_lead_nowhere(self):
        for name in ("state", "run", "lib"):
            os.makedirs(self.world.path("disk", name))
            os.symlink(self.world.path("disk", name), self.world.path(name))
        other = pathlib.Path(self.world.path("disk", "other"))
        other.mkdir()
        (other / "file").touch()
        before = self.listing()
        self.start()
        self.world.stop()
        for name in ("state/claims/link", "state/made", "run/shares/link"):
            os.symlink(other, self.world.path(name))
        for _ in range(2):
            rc, said = self.uninstall()
            self.assertEqual(rc, 0, said)
            self.assertIn(f"stays: it is a link; the directory behind it was emptied of what is ours file={self.world.path('state')}", said)
            self.assertEqual(self.listing(), before)

    def test_shares_of_another_driver_in_the_same_run_directory_are_let_alone(self):
        self.start()
        claim = self.prepare("held")
        there = self.listing()
        apart = {"driver_name": "other.example.com", "state_dir": self.world.path("other-state")}
        rc, said = self.uninstall(**apart)
        self.assertEqual(rc, 1)
        self.assertIn(f"has its shares in {self.world.path('run/shares')}; give one of them a --run-dir of its own", said)
        done = subprocess.run(self.world.command(**apart), capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("give one of them a --run-dir of its own", done.stderr)
        self.assertEqual(there - self.listing(), set())
        self.unprepare(claim)

    def uninstall_behind(self, *mounts):
        """In a mount namespace of its own where these have been made."""
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("mounts need root and a mount namespace")
        script = " && ".join([*mounts, 'exec "$@"'])
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *self.world.command(), "--uninstall"], capture_output=True,
                              text=True, timeout=30, check=False)
        return done.returncode, done.stderr

    def test_mount_point_is_emptied_and_named(self):
        self.start()
        self.world.stop()
        lib = self.world.path("lib")
        rc, said = self.uninstall_behind(f"mount --bind {lib} {lib}")
        self.assertEqual(rc, 0, said)
        self.assertIn(f"stays, empty: it is a mount point here file={lib}", said)
        self.assertEqual(self.listing() - self.before, {"lib"})

    def test_what_cannot_be_removed_is_named_and_the_rest_goes(self):
        self.start()
        self.world.stop()
        state = self.world.path("state")
        rc, said = self.uninstall_behind(f"mount --bind {state} {state}", f"mount -o remount,bind,ro {state}")
        self.assertEqual(rc, 1)
        self.assertRegex(said, rf"not uninstalled: .*{state}/\S+: Read-only file system")
        self.assertEqual({p.split("/")[0] for p in self.listing() - self.before}, {"state"})
        self.assertEqual(self.uninstall()[0], 0)
        self.assertEqual(self.listing(), self.before)

    def test_stay_waits_for_its_end(self):
        self.start()
        self.world.stop()
        waiting = subprocess.Popen([*self.world.command(), "--uninstall=stay"], stderr=subprocess.PIPE, text=True)
        for line in waiting.stderr:
            if " uninstalled " in line:
                break
        self.assertIsNone(waiting.poll())
        waiting.send_signal(signal.SIGTERM)
        self.assertEqual(waiting.wait(10), 0)
        waiting.stderr.close()
        self.assertEqual(self.listing(), self.before)

    def test_other_value_is_refused(self):
        done = subprocess.run([self.world.program, "--uninstall=now"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (2, 'aliquotd: --uninstall: "now" is not stay, the one value it takes\n'))


class Cluster(unittest.TestCase):
    """deploy/uninstall.yaml, which runs it on every node."""

    def test_directories_of_the_daemon_lie_below_what_is_mounted(self):
        daemon_set = yaml.safe_load((REPO / "deploy/uninstall.yaml").read_text())
        spec = daemon_set["spec"]["template"]["spec"]
        paths = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"]}
        helped = subprocess.run([BUILD / "src/daemon/aliquotd", "--help"], capture_output=True, text=True, check=True).stdout
        version = subprocess.run([BUILD / "src/daemon/aliquotd", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        kept = [re.search(rf"--{flag} .*?\[(\S+)\]", helped)[1] for flag in
                ("kubelet-plugins-dir", "kubelet-registry-dir", "cdi-dir", "state-dir", "run-dir", "host-lib-dir")]
        for container in (*spec["initContainers"], *spec["containers"]):
            self.assertTrue(container["args"][0].startswith("--uninstall"))
            self.assertEqual(container["image"], f"aliquot:{version}")
            mounted = [m["mountPath"] for m in container["volumeMounts"]]
            self.assertEqual(mounted, [paths[m["name"]] for m in container["volumeMounts"]])
            for path in kept:  # /var/run leads to /run, in the image as on the host
                below = path.replace("/var/run/", "/run/")
                self.assertTrue(any(below.startswith(m + "/") for m in mounted), path)


if __name__ == "__main__":
    unittest.main()

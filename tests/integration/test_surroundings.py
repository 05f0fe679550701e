# SPDX-License-Identifier: Apache-2.0
"""libvgpu.so where containers are bare: filtered system calls, a read-only root, no /proc, no /dev/shm, other users and
namespaces. A program without CUDA is untouched; one with CUDA keeps its limit, with one line where something is lost."""

import os
import subprocess
import unittest

import test_vgpu as world
from test_vgpu import GIB, OUT_OF_MEMORY, STATE, Case

TIMEOUT_S = 200
EPERM, EINVAL, ENOSYS = 1, 22, 38


def setUpModule():
    world.setUpModule()
    directory = STATE["dir"]
    flags = ["-O1", "-I", world.REPO / "include"]
    subprocess.run(["cc", *flags, "-o", directory / "filtered", world.SOURCES / "surroundings_client.c", "-ldl"], check=True)
    (directory / "few").mkdir()  # a driver that makes no system calls of its own
    subprocess.run(["cc", *flags, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", directory / "few/libcuda.so.1",
                    world.SOURCES / "ledger_driver.c"], check=True)
    (directory / "static.c").write_text('#include <stdio.h>\nint main(void) { puts("static"); return 5; }\n')
    subprocess.run(["cc", "-static", "-o", directory / "static", directory / "static.c"], check=True)
    for path in (directory, directory / "lib", directory / "simgpud.sock"):
        path.chmod(0o777)


tearDownModule = world.tearDownModule


class Surrounded(Case):
    libraries = "lib"

    def env(self, preload=True):
        directory = STATE["dir"]
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(directory / "simgpud.sock"),
               "LD_LIBRARY_PATH": str(directory / self.libraries), "ALIQUOT_SHARE_ROOT": str(self.shares)}
        return dict(env, LD_PRELOAD=str(directory / "lib/libvgpu.so")) if preload else env

    def run_it(self, command, preload=True):
        """The environment of the last program alone: those that lead to it are the machine's."""
        *leading, program = command
        settings = [f"{name}={value}" for name, value in self.env(preload).items()]
        return subprocess.run([*leading, "env", "-i", *settings, *program], capture_output=True, text=True, timeout=60)

    def filtered(self, *args):
        done = self.run_it([[STATE["dir"] / "filtered", *args]])
        if done.returncode == 77:
            self.skipTest("no filters of system calls here")
        return done

    def check_limit(self, *leading):
        """A program in these surroundings: refused beyond its share, which the bare one is not; what it said."""
        answers = [self.run_it([*leading, [STATE["dir"] / "filtered"]], preload) for preload in (False, True)]
        self.assertEqual(answers[0].stdout, "cuda 0 0\n", answers[0].stderr)
        self.assertEqual(answers[1].stdout, f"cuda 0 {OUT_OF_MEMORY}\n", answers[1].stderr)
        return answers[1].stderr


class Filters(Surrounded):
    libraries = "few"

    def test_program_without_cuda_makes_no_call_that_its_filter_kills(self):
        self.share(GIB)
        bare = self.run_it([[STATE["dir"] / "filtered", "strict"]], preload=False)
        done = self.filtered("strict")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "strict 7 1\n", ""))
        self.assertEqual(bare.stdout, done.stdout)

    def test_limit_holds_without_calls_that_it_can_do_without(self):
        self.share(GIB)
        for call in ("wipeonfork", "membarrier", "readlinkat", "fallocate", "clock_gettime"):
            for error in (EPERM, ENOSYS):
                done = self.filtered(f"{call}:{error}")
                self.assertEqual(self.run_it([[STATE["dir"] / "filtered", f"{call}:{error}"]], preload=False).stdout, "cuda 0 0\n")
                self.assertEqual((done.stdout, done.stderr), (f"cuda 0 {OUT_OF_MEMORY}\n", ""), call)

    def test_without_locks_the_limit_holds_for_each_process_with_a_line(self):
        self.share(GIB)
        for error in (EPERM, EINVAL, ENOSYS):
            done = self.filtered(f"ofd:{error}")
            self.assertEqual(done.stdout, f"cuda 0 {OUT_OF_MEMORY}\n", error)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("each process by itself", done.stderr)
            self.assertEqual(self.held(), 0)


@unittest.skipIf(os.geteuid() != 0, "mounts and other users need root")
class Roots(Surrounded):
    def setUp(self):
        super().setUp()
        self.share(GIB)
        self.shares.chmod(0o755)
        for file in ("control", "usage"):
            (self.shares / "claim-0" / file).chmod(0o644 if file == "control" else 0o666)

    def inside(self, script):
        probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
        if probe.returncode:
            self.skipTest("no mount namespace of our own here")
        return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{script}; shift 0; exec "$@"', "sh"]

    def test_root_that_is_read_only(self):
        directory = STATE["dir"]
        script = f"mount --bind {directory} {directory}; mount -o remount,bind,ro /"
        self.assertEqual(self.check_limit(*self.inside(script)), "")

    def test_without_proc_and_shm(self):
        for where in ("/proc", "/dev/shm"):
            self.assertEqual(self.check_limit(*self.inside(f"mount -t tmpfs -o size=4k none {where}")), "", where)

    def test_usage_that_is_read_only_holds_for_each_process_with_a_line(self):
        said = self.check_limit(*self.inside(f"mount --bind {self.shares} {self.shares}; mount -o remount,bind,ro {self.shares}"))
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("each process by itself", said)

    def test_another_user(self):
        self.assertEqual(self.check_limit("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"), "")
        self.assertEqual(self.check_limit("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--bounding-set=-all"), "")

    def test_user_namespace(self):
        leading = ["unshare", "--user"]
        if subprocess.run([*leading, "true"], capture_output=True).returncode:
            self.skipTest("no user namespaces here")
        self.assertEqual(self.check_limit(*leading), "")  # nobody inside
        self.assertEqual(self.check_limit(*leading, "--map-root-user"), "")


class Programs(Surrounded):
    def test_static_program_and_empty_environment(self):
        done = self.run_it([[STATE["dir"] / "static"]])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "static\n", ""))
        preload = f"LD_PRELOAD={STATE['dir'] / 'lib/libvgpu.so'}"
        done = subprocess.run(["env", "-i", preload, "/bin/sh", "-c", "echo here"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "here\n", ""))


if __name__ == "__main__":
    unittest.main()

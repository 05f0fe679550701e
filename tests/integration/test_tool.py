# SPDX-License-Identifier: Apache-2.0
"""One machine without a cluster: aliquot run and aliquot claim, with aliquotd --standalone and without a daemon."""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import daemon_world as dw
import podman_case
from daemon_world import BUILD, DRIVER, REPO, rewrite_record, wait_for
from standalone_world import ALICE, BOB, DEMO, LIBRARY, Machine, TOOL, Terminal
from test_ops import OpsWorld, ask

GiB = 1 << 30
ROOT = os.geteuid() == 0
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: %s
        capacity: {requests: {cores: "%s", memory: %s}}
"""
KIND = f"k8s.{DRIVER}/claim"
SUMMARY = r"aliquot: hami-gpu-0: peak memory (\S+ \w+) of 4\.0 GiB, GPU time (\S+) s at 30 %, throttled (\S+) s, (\d+) allocations? refused\n"

USERS = [None, ALICE]  # who runs programs: root, and a user where the machine lets users have namespaces


def setUpModule():
    dw.need_daemon()
    mount = ["sh", "-c", "mount -t tmpfs x /mnt"]
    if subprocess.run(["unshare", "-m", *mount], capture_output=True, check=False).returncode:
        raise unittest.SkipTest("no mount namespaces here")
    if subprocess.run(Machine.by(ALICE, ["unshare", "-Urm", *mount]), capture_output=True, check=False).returncode:
        print("users of this machine have no namespaces: aliquot run is tried as root alone", file=sys.stderr)
        USERS.remove(ALICE)


def has_ended(pid):
    """Or is a zombie that its new parent has not seen yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def limits(directory):
    with open(os.path.join(directory, "control"), "rb") as file:
        data = file.read()
    at = 512 + 256 * (struct.unpack_from("<I", data, 256)[0] & 1)
    return struct.unpack_from("<Q", data, at)[0], struct.unpack_from("<I", data, at + 24)[0]


@unittest.skipUnless(ROOT, "aliquotd needs root")
class Tool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = Machine()
        cls.addClassCleanup(cls.world.close)
        cls.world.start()

    def setUp(self):  # after all other clean-ups
        self.addCleanup(wait_for, "the end of all claims", lambda: not self.world.claims())

    def need_users(self):
        if ALICE not in USERS:
            self.skipTest("users of this machine have no namespaces")

    def end(self, process):
        """Lets a program that reads its standard input end."""
        out, err = process.communicate("", timeout=30)
        return process.returncode, out, err

    def apply(self, text, user=None):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            os.chmod(file.name, 0o644)
            return self.world.tool("claim", "apply", "-f", file.name, user=user)

    # ---- run: limits

    def test_run_limits_memory_to_the_byte_and_tells_what_was_used(self):
        for user in USERS:
            status, out, err = self.world.run_program(DEMO / "alq-demo-bisect", user=user)
            self.assertEqual(status, 0, err)
            counted = int(re.search(r"sum_bytes=(\d+)", out)[1])
            self.assertEqual(counted, 4 * GiB - (256 << 20), "the limit less the estimate of a context")
            told = re.fullmatch(SUMMARY, err)
            self.assertTrue(told, err)
            self.assertEqual((told[1], told[4]), ("4.0 GiB", re.search(r"refusals=(\d+)", out)[1]))
            self.assertEqual(out.count("gpu="), 1, "it sees the GPU that it has a share of, and no other")

    def test_run_limits_children_and_programs_that_clear_their_environment(self):
        env = self.world.environment()
        clean = ["env", "-i", f"SIMGPU_SOCKET={env['SIMGPU_SOCKET']}", f"LD_LIBRARY_PATH={env['LD_LIBRARY_PATH']}"]
        for user in USERS:
            status, out, err = self.world.run_program("sh", "-c", f"{' '.join(clean)} {DEMO}/alq-demo-report", user=user)
            self.assertEqual(status, 0, err)
            self.assertIn(f"GPU-5d1f0c5e-8a0b-4f0e-9b7a-6a1d3c2e4f50 name=\"NVIDIA H100 80GB HBM3\" cuda_device_total_bytes={4 * GiB} ", out)

    def test_run_measures_compute(self):
        status, _, err = self.world.run_program(DEMO / "alq-demo-busy", "--seconds", "1", options=("-o", "json"))
        self.assertEqual(status, 0, err)
        told = json.loads(err)
        self.assertEqual((told["exitStatus"], told["voluntary"]), (0, False))
        gpu, = told["gpus"]
        self.assertEqual((gpu["device"], gpu["gpu"], gpu["memoryBytes"], gpu["cores"]), ("hami-gpu-0", dw.UUIDS[0], 4 * GiB, 30))
        self.assertGreater(gpu["launches"], 3)
        self.assertGreater(gpu["gpuSeconds"], 0.003)
        self.assertGreater(gpu["throttledSeconds"], 0)

    def test_run_sees_its_own_share_alone_and_leaves_the_host_as_it_is(self):
        self.need_users()
        other = self.world.start_program("cat", cores="10", user=BOB)
        self.addCleanup(self.end, other)
        before = os.path.lexists("/etc/ld.so.preload"), os.path.lexists("/run/aliquot/shares")
        for user in USERS:
            status, out, err = self.world.run_program(
                "sh", "-c", "ls /run/aliquot/shares; cat /etc/ld.so.preload; test -s /etc/passwd && echo rest; id -u; "
                "echo x 2>/dev/null >/run/aliquot/shares/x || echo closed", user=user)
            share, library, *rest = out.split()
            self.assertRegex(share, r"^[0-9a-f-]{36}-0$", err)
            self.assertEqual((library, rest), (str(LIBRARY), ["rest", str(user or 0), "closed"]))
        self.assertEqual(before, (os.path.lexists("/etc/ld.so.preload"), os.path.lexists("/run/aliquot/shares")))

    def test_run_adds_to_a_preload_file_that_is_there(self):
        there = tempfile.NamedTemporaryFile("w", suffix=".preload")
        self.addCleanup(there.close)
        there.write("/nonexistent/other.so")
        there.flush()
        layer = self.world.path("layer")
        setup = f"mkdir {layer}; mount -t tmpfs x {layer}; mkdir {layer}/u {layer}/w; " \
                f"mount -t overlay o /etc -o lowerdir=/etc,upperdir={layer}/u,workdir={layer}/w; cp {there.name} /etc/ld.so.preload"
        out, err = self.elsewhere(setup, "cat", "/etc/ld.so.preload")
        if "mount:" in err:
            self.skipTest(f"no overlay on /etc here: {err.strip()}")
        self.assertEqual(out, f"/nonexistent/other.so\n{LIBRARY}\n", err)

    def elsewhere(self, setup, *program, user=None):
        """aliquot run in a mount namespace that was made up before: (stdout, stderr)."""
        run = " ".join(self.world.by(user, [TOOL, "run", "--gpu", "0", "--memory", "4Gi", "-q", "--", *program]))
        done = subprocess.run(["unshare", "-m", "sh", "-c", f"set -e; {setup}; exec {run}"], capture_output=True, text=True, check=False,
                              timeout=30, env=self.world.environment())
        return done.stdout, done.stderr

    def test_run_where_etc_cannot_be_an_overlay(self):
        """As in a container, whose /etc has files mounted in it that its users cannot take away."""
        setup = f"echo 1.2.3.4 other >{self.world.path('hosts')}; mount --bind {self.world.path('hosts')} /etc/hosts"
        for user in USERS:
            out, err = self.elsewhere(setup, "cat", "/etc/ld.so.preload", "/etc/passwd", "/etc/alternatives/README", "/etc/hosts", user=user)
            self.assertIn("libvgpu.so\n", out.split("root:")[0], err)
            if user:
                self.assertTrue(out.endswith("1.2.3.4 other\n"), "a copy has what is mounted in it")

    def test_run_where_the_host_has_the_directory_of_shares(self):
        setup = "mount -t tmpfs run /run; mkdir -p /run/aliquot/shares/foreign-0 /run/other"
        for user in USERS:
            out, err = self.elsewhere(setup, "ls", "/run", "/run/aliquot/shares", user=user)
            self.assertRegex(out, r"^/run:\naliquot\nother\n\n/run/aliquot/shares:\n[0-9a-f-]{36}-0\n$", err)

    def test_run_closes_the_nodes_of_other_gpus(self):
        nodes = "null zero nvidia0 nvidia1 nvidiactl"
        setup = f"mount -t tmpfs dev /mnt; mkdir /mnt/shm; mount --rbind /dev/shm /mnt/shm; mount --rbind /mnt /dev; " \
                f"for n in {nodes}; do mknod -m 666 /dev/$n c 1 3; done"
        for user in USERS:
            out, err = self.elsewhere(setup, "sh", "-c", f"'for n in {nodes}; do (: </dev/$n) 2>/dev/null && echo $n; done; true'", user=user)
            self.assertEqual(out.split(), ["null", "zero", "nvidia0", "nvidiactl"], err)

    # ---- run: as if it had been started without us

    def test_run_passes_exit_statuses_and_streams_through(self):
        for program, status in ((("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -TERM $$"), 143), (("no-such-program",), 127),
                                (("/etc/passwd",), 126), (("./none",), 127)):
            for user in USERS:
                got, out, err = self.world.run_program(*program, user=user)
                self.assertEqual((got, out), (status, ""), (program, user, err))
        status, out, _ = self.world.run_program("cat", stdin="through\n", options=("--quiet",))
        self.assertEqual((status, out), (0, "through\n"))
        self.assertEqual(self.world.tool("run", "-q", "-m", "1Gi", "-c", "5", "echo", "-m", "--help")[1], "-m --help\n")

    def test_run_passes_signals_on(self):
        for number, status in ((signal.SIGTERM, 5), (signal.SIGUSR1, 6), (signal.SIGHUP, 128 + signal.SIGHUP)):
            process = self.world.start_program("sh", "-c", 'trap "exit 5" TERM; trap "exit 6" USR1; echo ready; while :; do sleep 0.01; done')
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(number)
            self.assertEqual(self.end(process)[0], status)

    def test_run_passes_every_signal_on(self):
        catch = ("import os, signal\n"
                 "def got(number, frame):\n    print('got', number, flush=True)\n"
                 "for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}: signal.signal(number, got)\n"
                 "print('ready', flush=True)\n"
                 "while True: signal.pause()")
        process = self.world.start_program("/usr/bin/python3", "-c", catch)
        self.assertEqual(process.stdout.readline(), "ready\n")
        for number in sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}):
            process.send_signal(number)
            self.assertEqual(process.stdout.readline(), f"got {int(number)}\n")
        process.kill()
        self.end(process)

    def test_status_is_the_programs_when_nobody_reads_what_is_told(self):
        for options in ((), ("-o", "json"), ("--voluntary",), ("--preload-env",)):
            process = subprocess.Popen([TOOL, "run", "-m", "1Gi", "-c", "1", *options, "--", "sh", "-c", "read line; exit 7"],
                                       stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=self.world.environment(XDG_RUNTIME_DIR=self.world.root))
            if "--preload-env" in options:
                process.stderr.readline()
            process.stderr.close()
            process.stdin.close()
            self.assertEqual(process.wait(30), 7, options)
        self.assertEqual([name for name in os.listdir(self.world.root) if name.startswith("aliquot-run")], [])

    def test_run_of_a_parent_that_ignores_its_children(self):
        done = subprocess.run([TOOL, "run", "-q", "-g", "0", "-m", "1Gi", "-c", "1", "--", "grep", "SigIgn", "/proc/self/status"],
                              capture_output=True, text=True, check=False, timeout=30, env=self.world.environment(),
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(int(done.stdout.split()[1], 16) >> (signal.SIGCHLD - 1) & 1, "the program ignores them too")

    def test_killing_run_leaves_nothing(self):
        for user in USERS:
            process = self.world.start_program("sh", "-c", "echo $$; exec cat", user=user)
            program = int(process.stdout.readline())
            process.kill()
            self.assertEqual(self.end(process)[0], -signal.SIGKILL)
            wait_for("the end of the program", lambda: has_ended(program))  # pylint: disable=cell-var-from-loop
            wait_for("the end of its share", lambda: not self.world.claims() and not os.listdir(self.world.path("run/standalone/shares")))

    def test_share_of_a_program_left_behind_stays_while_it_is_used(self):
        with tempfile.TemporaryDirectory() as directory:
            script = (f"{DEMO}/alq-demo-bisect --hold-seconds 100 >{directory}/out 2>&1 & "
                      f"until grep -q bisect {directory}/out; do sleep 0.01; done; echo $!")
            status, out, err = self.world.run_program("sh", "-c", script)
        self.assertEqual(status, 0, err)
        self.assertIn("still use its share", err)
        self.assertEqual(len(self.world.claims()), 1)
        os.kill(int(out), signal.SIGKILL)

    def test_run_on_a_terminal_stops_and_goes_on_with_its_program(self):
        command = [TOOL, "run", "--gpu", "0", "--memory", "4Gi", "--cores", "30", "--", "/usr/bin/python3", "-c",
                   "import os, sys\nprint('foreground', os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
                   "for line in sys.stdin: print('got', line.strip(), flush=True)"]
        terminal = Terminal(command, self.world.environment())
        self.addCleanup(terminal.close)
        terminal.expect("foreground True")
        terminal.type("one\n")
        terminal.expect("got one")
        terminal.type("\x1a")
        terminal.expect("<stopped>")
        terminal.type("\n")
        terminal.type("two\n")
        terminal.expect("got two")
        terminal.type("\x03")
        terminal.expect("hami-gpu-0: not used")
        terminal.expect("<ended 130>")

    # ---- run: without a daemon, without namespaces

    def test_run_without_a_daemon_limits_and_says_that_it_is_voluntary(self):
        own = self.world.path("own")
        os.mkdir(own)
        os.chmod(own, 0o777)
        for user in USERS:
            status, out, err = self.world.run_program(DEMO / "alq-demo-bisect", user=user, ALIQUOT_SOCKET="/nonexistent/socket",
                                                      XDG_RUNTIME_DIR=own)
            self.assertEqual(status, 0, err)
            self.assertIn(f"sum_bytes={4 * GiB - (256 << 20)} ", out)
            self.assertRegex(err, r"^aliquot: aliquotd does not answer at /nonexistent/socket: [^\n]*: the limit is voluntary, [^\n]*\n"
                                  rf"aliquot: {dw.UUIDS[0]}: peak memory 4\.0 GiB of 4\.0 GiB, [^\n]*\n$")
            self.assertEqual(os.listdir(own), [])
        status, out, err = self.world.run_program(DEMO / "alq-demo-report", options=("--voluntary",), gpu="1")
        self.assertIn(dw.UUIDS[1], out)
        self.assertNotIn("voluntary", err, "who asks for it knows")

    def test_preload_env_limits_and_warns(self):
        for user in USERS:
            for socket in self.world.admin, "/nonexistent/socket":
                status, out, err = self.world.run_program(DEMO / "alq-demo-bisect", options=("--preload-env",), user=user, ALIQUOT_SOCKET=socket)
                self.assertEqual(status, 0, err)
                self.assertIn(f"sum_bytes={4 * GiB - (256 << 20)} ", out)
                self.assertIn("aliquot: --preload-env: a program that clears its environment", err)

    def test_run_within_a_run_has_its_own_limit_or_does_not_run(self):
        inner = (TOOL, "run", "-g", "0", "-m", "2Gi", "-c", "10")
        for user in USERS:
            for options in ((), ("--voluntary",)):
                status, out, err = self.world.run_program(*inner, *options, "--", DEMO / "alq-demo-report", user=user)
                self.assertEqual(status, 0, err)
                self.assertIn(f"cuda_device_total_bytes={2 * GiB} ", out)
            status, out, err = self.world.run_program(*inner, "--preload-env", "--", "echo", "it ran", user=user)
            self.assertEqual((status, out), (1, ""))
            self.assertIn("which would hold in place of this one", err)

    def test_run_without_namespaces_says_what_to_do(self):
        """In a user namespace where no further one may be made."""
        self.need_users()
        ready, go = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).unshare(0x10000000)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
                file.write("0")
            status, out, err = self.world.run_program("true", user=ALICE)
            os._exit(0 if (status, out) == (1, "") and re.fullmatch(
                r"aliquot: no private namespaces for this user \(.*user\.max_user_namespaces is 0\); .*--preload-env\n", err) else
                     (sys.__stderr__.write(f"{status} {out} {err}\n"), 1)[1])
        os.read(ready[0], 1)
        for name in "uid_map", "gid_map":
            with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                file.write("0 0 65536")
        os.write(go[1], b"x")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        for end in (*ready, *go):
            os.close(end)

    # ---- several users

    def test_two_users_cannot_oversell_a_gpu(self):
        self.need_users()
        alice = self.world.start_program("cat", cores="60", memory="50Gi", user=ALICE)
        self.addCleanup(self.end, alice)
        status, out, err = self.world.run_program("true", cores=50, user=BOB)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, r"^aliquot: cannot allocate .* without room for cores\).*aliquot shares shows[^\n]*\n$")
        self.assertEqual(self.world.run_program("true", cores=10, memory="40Gi", user=BOB)[0], 1)
        self.assertEqual(self.apply(CLAIM % ("big", DRIVER, "50", "60Gi"), user=BOB)[0], 0, "the other GPU has room")
        self.assertEqual({c["name"]: c["devices"][0]["device"] for c in self.world.claims()}["big"], "hami-gpu-1")
        share = self.world.run_of(alice)["uid"]
        self.assertEqual(ask(self.world.admin, f"/v1/standalone/claims/{share}")[0], 200)
        status, _, err = self.world.tool("claim", "delete", share, user=BOB)
        self.assertEqual((status, err.count("\n")), (1, 1))
        self.assertIn("only that user and root may delete it", err)
        self.assertEqual(self.world.tool("claim", "delete", "big", user=BOB)[0], 0)

    def test_nobody_but_its_user_reaches_the_files_of_a_share(self):
        self.need_users()
        alice = self.world.start_program("cat", user=ALICE)
        self.addCleanup(self.end, alice)
        directory = self.world.run_of(alice)["devices"][0]["directory"]

        def tries(user, what):
            return subprocess.run(self.world.by(user, ["sh", "-c", f"cd {directory} && {what}"]), capture_output=True, check=False).returncode == 0

        def check():
            self.assertTrue(tries(ALICE, "cat control usage && : >>usage"))
            for user, what in ((BOB, "true"), (BOB, "cat control"), (ALICE, ": >>control"), (ALICE, "touch other"), (ALICE, "rm control")):
                self.assertFalse(tries(user, what), (user, what))
        check()
        share = self.world.run_of(alice)["devices"][0]["share"]
        self.assertEqual(self.world.tool("set", share, "--cores", "40")[0], 0)
        check()

    def test_no_more_is_given_than_there_is_when_all_ask_at_once(self):
        self.need_users()
        script = [TOOL, "run", "--gpu", "0", "--memory", "30Gi", "--cores", "20", "--", "cat"]
        processes = [subprocess.Popen(self.world.by((ALICE, BOB)[i % 2], script), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=self.world.environment(), text=True) for i in range(6)]
        wait_for("all to be answered", lambda: sum(p.poll() is not None for p in processes) + len(self.world.claims()) == 6)
        self.assertEqual(sum(p.poll() is None for p in processes), 2, "30 of 79 GiB each")
        ends = [self.end(p) for p in processes]
        self.assertEqual(sorted(e[0] for e in ends), [0, 0, 1, 1, 1, 1])
        self.assertTrue(all("without room for memory" in e[2] for e in ends if e[0]), ends)

    # ---- claims

    def test_name_that_is_asked_for_at_once_is_given_once(self):
        asking = [subprocess.Popen([TOOL, "claim", "apply", "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.world.environment()) for _ in range(6)]
        for process in asking:
            process.stdin.write(CLAIM % ("mine", DRIVER, "5", "1Gi"))
            process.stdin.flush()
        for process in asking:
            process.stdin.close()
            process.stdin = None
        said = [process.communicate(timeout=30)[0] for process in asking]
        self.assertEqual(sum("created" in out for out in said), 1, said)
        self.assertEqual([c["name"] for c in self.world.claims()], ["mine"])
        self.assertEqual(self.world.tool("claim", "delete", "mine")[0], 0)

    def test_claims_of_a_cluster_are_made_listed_described_and_deleted(self):
        files = ["-f", REPO / "demo/manifests/00-deviceclass.yaml", "-f", REPO / "demo/manifests/10-claims.yaml", "-f",
                 REPO / "demo/manifests/20-pods.yaml"]
        status, out, err = self.world.tool("claim", "apply", *files)
        self.assertEqual(status, 1, "one of them wants an H200, which is not there")
        self.assertRegex(err, r"^aliquot: ResourceClaim cel-gpu-0: [^\n]*\(2 not selected\)[^\n]*\n$")
        for line in (rf"DeviceClass {DRIVER} used\n", r"ResourceClaim single-gpu-0 created\n  --device \S+-0 ", "Pod pod-0 left out: ",
                     r"ResourceClaim double-gpu-0 created\n  --device \S+-0 .*hami-gpu-\d\n  --device \S+-1 ",
                     r"ResourceClaimTemplate tenth-gpu left out: "):
            self.assertRegex(out, line)
        again = self.world.tool("claim", "apply", *files)
        self.assertIn("ResourceClaim single-gpu-0 unchanged\n", again[1])
        self.assertEqual(sorted(re.findall("--device .*", out)), sorted(re.findall("--device .*", again[1])))
        status, listed, _ = self.world.tool("claim", "list", user=ALICE)
        self.assertRegex(listed, r"^CLAIM +OWNER +GPU +MEMORY +CORES +DEVICE\n")
        device = re.search(rf"single-gpu-0 +root +hami-gpu-\d +4Gi +30 +({re.escape(KIND)}=\S+)\n", listed)[1]
        self.assertIn(f"--device {device}\n", self.world.tool("claim", "describe", "single-gpu-0")[1])
        told = json.loads(self.world.tool("claim", "describe", "single-gpu-0", "-o", "json")[1])
        self.assertEqual((told["name"], told["owner"], told["prepared"], told["devices"][0]["cdi"]), ("single-gpu-0", 0, True, device))
        self.assertEqual(told["object"]["kind"], "ResourceClaim")
        self.assertEqual(self.world.tool("claim", "list", *files)[1], listed)
        self.assertEqual(self.world.tool("claim", "list", *files[:2])[1].count("\n"), 1, "no claim is in that file")
        status, described, err = self.world.tool("claim", "describe", *files)
        self.assertEqual((status, described.count("Claim: "), err.count("\n")), (1, 3, 1), "all but the one that is not there")
        self.assertEqual(limits(told["devices"][0]["directory"]), (4 * GiB, 30))
        self.assertEqual([d["name"] for d in self.world.spec(told["uid"])["devices"]], [device.split("=")[1]])
        status, out, err = self.world.tool("claim", "delete", "single-gpu-0", "double-gpu-0")
        self.assertEqual((status, out), (0, "ResourceClaim single-gpu-0 deleted\nResourceClaim double-gpu-0 deleted\n"), err)
        status, out, err = self.world.tool("claim", "delete", *files)
        self.assertEqual((status, out), (1, "ResourceClaim shared-gpu-0 deleted\n"))
        self.assertIn("there is no claim cel-gpu-0", err)
        self.assertEqual(self.world.tree(), {})

    def test_claims_survive_restarts_and_reboots_and_runs_their_daemon(self):
        self.assertEqual(self.apply(CLAIM % ("kept", DRIVER, "20", "8Gi"), user=ALICE)[0], 0)
        before, = self.world.claims()
        lives, dies = (self.world.start_program("cat", cores="10") for _ in range(2))
        self.world.stop(signal.SIGKILL)
        dies.kill()
        self.end(dies)
        self.world.start()
        wait_for("the run that has ended to be gone", lambda: len(self.world.claims()) == 2 and all(c["prepared"] for c in self.world.claims()))
        self.assertEqual(self.world.run_of(lives)["process"], lives.pid)
        self.assertEqual(self.end(lives)[0], 0)
        self.world.stop()
        rewrite_record(self.world.path("state/standalone/claims", f"{before['uid']}.record"), self.boot_id(), b"0" * 8 + b"-0000-4000-8000-" + b"0" * 12)
        shutil.rmtree(self.world.path("run/standalone"))
        os.unlink(self.world.path("cdi", f"k8s.{DRIVER}-claim_{before['uid']}.json"))
        self.world.start()
        self.assertEqual(wait_for("the claim after a reboot", lambda: [c for c in self.world.claims() if c["prepared"]]), [before])
        self.assertEqual(limits(before["devices"][0]["directory"]), (8 * GiB, 20))
        usage = os.path.join(before["devices"][0]["directory"], "usage")
        wait_for("its user's access", lambda: not subprocess.run(self.world.by(ALICE, ["test", "-w", usage]), check=False).returncode)
        self.assertTrue(self.world.spec(before["uid"]))
        self.assertEqual(self.world.tool("claim", "delete", "kept", user=ALICE)[0], 0)

    def test_torn_and_foreign_files_take_no_claim_away_and_are_told(self):
        for name in ("good", "torn"):
            self.assertEqual(self.apply(CLAIM % (name, DRIVER, "20", "1Gi"))[0], 0)
        before = {c["name"]: c for c in self.world.claims()}
        made = pathlib.Path(self.world.path("state/standalone/made"))
        path = made / f"{before['torn']['uid']}.json"
        self.world.stop()
        whole = path.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
        (made / "notes.txt").write_bytes(b"\xff")
        os.mkfifo(made / "pipe.json")
        self.world.start()
        wait_for("the whole claim", lambda: self.world.claims() == [before["good"]])
        status, out, _ = self.world.tool("doctor", "--output", "json")
        finding, = (f for f in json.loads(out)["findings"] if f["id"] == "claims.files")
        self.assertEqual((status, finding["level"], finding["text"].split()[0]), (1, "error", "3"))
        self.assertTrue(os.path.isdir(before["torn"]["devices"][0]["directory"]))
        self.world.stop()
        path.write_bytes(whole)
        for name in ("notes.txt", "pipe.json"):
            (made / name).unlink()
        self.world.start()
        wait_for("both claims", lambda: {c["name"]: c for c in self.world.claims()} == before)
        self.assertRegex(self.world.tool("doctor")[1], r"(?m)^ok +claims\.files ")
        self.assertEqual(self.world.tool("claim", "delete", "good", "torn")[0], 0)

    @staticmethod
    def boot_id():
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()

    def test_podman_runs_with_a_claim(self):
        _, out, err = self.apply(CLAIM % ("boxed", DRIVER, "20", "6Gi"))
        device = re.search("--device (\\S+)", out + err)[1]
        self.addCleanup(self.world.tool, "claim", "delete", "boxed")
        program = str(DEMO / "alq-demo-report")
        said = podman_case.output(self, self.world.path("cdi"), [device], [program], [program], ["SIMGPU_SOCKET=/sim/simgpud.sock"],
                                  [(self.world.path("sim"), "/sim", [])])
        self.assertIn(f"cuda_device_total_bytes={6 * GiB} ", said)

    def test_claim_in_use_is_not_deleted(self):
        self.assertEqual(self.apply(CLAIM % ("used", DRIVER, "20", "8Gi"))[0], 0)
        user = subprocess.Popen([DEMO / "alq-demo-bisect", "--hold-seconds", "100"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                env={**self.world.environment(), "LD_PRELOAD": str(LIBRARY),
                                     "ALIQUOT_SHARE_ROOT": self.world.path("run/standalone/shares")})
        self.addCleanup(self.world.tool, "claim", "delete", "used")
        self.addCleanup(lambda: (user.kill(), user.wait(), user.stdout.close()))
        self.assertIn(b"bisect", user.stdout.readline())
        status, _, err = self.world.tool("claim", "delete", "used")
        self.assertEqual((status, err), (1, "aliquot: claim used is in use: end the programs that use the GPU by it first\n"))

    def test_claim_of_a_run_is_deleted_by_nobody_else(self):
        process = self.world.start_program("cat")
        self.addCleanup(self.end, process)
        self.assertRegex(self.world.tool("claim", "delete", self.world.run_of(process)["uid"])[2],
                         rf"^aliquot: claim run-\S+ is aliquot run's and ends with it \(process {process.pid}\)\n$")

    # ---- bad input

    def test_what_is_not_understood_or_not_possible_is_one_line(self):
        self.assertEqual(self.apply(CLAIM % ("mine", DRIVER, "20", "8Gi"))[0], 0)
        self.addCleanup(self.world.tool, "claim", "delete", "mine")
        for args in (("run",), ("run", "--memory", "4Gi"), ("run", "--", "true"), ("run", "--memory", "much", "--", "true"),
                     ("run", "--memory", "1k", "--", "true"), ("run", "--cores", "101", "--", "true"), ("run", "--cores", "-1", "--", "true"),
                     ("run", "--memory", "99999999999Ei", "--", "true"), ("run", "--gpus", "0", "--", "true"), ("claim",), ("claim", "aply"),
                     ("claim", "apply"), ("claim", "describe"), ("claim", "delete"), ("claim", "list", "x")):
            status, out, err = self.world.tool(*args)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (args, err))
            self.assertIn("--help", err)
        for args, words in ((("run", "-m", "4Ei", "--", "true"), "amount asked of memory"), (("run", "-m", "1Gi", "-g", "7", "--", "true"), 'no GPU "7"; this machine has number 0, 1'),
                            (("run", "-m", "1Gi", "-g", "GPU-zz", "--", "true"), "there is no GPU"),
                            (("run", "-m", "1Gi", "--library", "/none.so", "--", "true"), "/none.so: No such file"),
                            (("claim", "apply", "-f", "/none.yaml"), "/none.yaml: No such file"), (("claim", "describe", "x"), "there is no claim x"),
                            (("claim", "delete", "x"), "aliquot claim list"),
                            (("claim", "list", "--socket", "/none.sock"), "claims need aliquotd --standalone")):
            status, out, err = self.world.tool(*args)
            self.assertEqual((status, out, err.count("\n")), (1, "", 1), (args, err))
            self.assertIn(words, err)

    def test_gpu_that_gets_lost_on_the_way_is_no_wish_for_any(self):
        for gpu in (",", "0,,1", "0,", ",0", b"\xff"):
            done = subprocess.run([TOOL, "run", "-m", "1Gi", "--gpu", gpu, "--", "true"], capture_output=True, check=False, env=self.world.environment())
            self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (2, b"", 1), gpu)
            self.assertIn(b"is no GPU, or list of them", done.stderr)
        for gpu, words in (("x" + "\u00e9" * 100, "there is no GPU"), ("A" * 100000, "more than 64 KiB")):
            status, out, err = self.world.tool("run", "-m", "1Gi", "--gpu", gpu, "--", "echo", "it ran")
            self.assertEqual((status, out, err.count("\n")), (1, "", 1), err)
            self.assertIn(words, err)
        status, out, err = self.world.tool("run", "--voluntary", "-m", "1Gi", "--gpu", "hami-gpu-0", "--", "echo", "it ran")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("give a number or a UUID", err)

    def test_users_of_large_numbers_are_users(self):
        user = 4294967294
        self.assertEqual(self.apply(CLAIM % ("mine", DRIVER, "20", "8Gi"), user=user)[0], 0)
        self.assertEqual([c["owner"] for c in self.world.claims()], [user])
        self.assertEqual(self.world.tool("claim", "delete", "mine", user=user)[0], 0)

    def test_user_with_many_connections_keeps_no_other_out(self):
        begin = ("import socket, time\n"
                 "many = []\n"
                 "def more(n):\n"
                 "    for _ in range(n):\n"
                 "        s = socket.socket(socket.AF_UNIX)\n"
                 f"        s.connect({self.world.admin!r})\n"
                 "        s.sendall(b'GET /v1/version HTTP/1.1\\r\\nHost: x\\r\\n')\n"
                 "        many.append(s)\n"
                 "        time.sleep(0.003)\n")  # each is read before the next comes
        one = subprocess.Popen(Machine.by(BOB, ["/usr/bin/python3", "-c", begin + "more(1)\nprint(flush=True)\ninput()\n"
                                                "many[0].sendall(b'Connection: close\\r\\n\\r\\n')\nprint(many[0].recv(4096).decode()[:12])"]),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        one.stdout.readline()
        subprocess.run(Machine.by(ALICE, ["/usr/bin/python3", "-c", begin + "more(100)"]), check=True)
        self.assertEqual(one.communicate("\n", timeout=30)[0].strip(), "HTTP/1.1 200")

    def test_names_of_others_do_not_command_a_terminal(self):
        evil = json.dumps({"kind": "X\n", "apiVersion": "v1", "metadata": {"name": "a\033[2J"}})
        status, out, _ = self.apply(evil)
        self.assertEqual((status, out), (0, "X  a [2J left out: has no meaning on one machine; only ResourceClaim and DeviceClass have\n"))
        status, _, err = self.apply(CLAIM.replace("name: gpu", 'name: "gpu\\e[2J"') % ("mine", DRIVER, "20", "8Gi"))
        self.assertEqual((status, err.count("\033")), (1, 0))
        self.assertIn('the name "gpu [2J" of a request is none', err)

    def test_manifests_that_are_wrong_are_named(self):
        self.assertEqual(self.apply(CLAIM % ("mine", DRIVER, "20", "8Gi"))[0], 0)
        self.addCleanup(self.world.tool, "claim", "delete", "mine")
        good = CLAIM % ("other", DRIVER, "20", "8Gi")
        for text, words in ((CLAIM % ("mine", DRIVER, "30", "8Gi"), "delete it first"), (good.replace("/v1", "/v1beta1"), "write resource.k8s.io/v1"),
                            (good.replace("other", "Not_A_Name"), "is no name"), (good.replace("other", "x" + "\u00e9" * 100), "is no name"), (good.replace("exactly", "exaktly"), "request"),
                            (good.replace(DRIVER, "no-such-class"), "no-such-class"), (good.replace('"20"', '"x"'), "cores"),
                            ("a: [", "line"), ("", "no object"), ("kind: ResourceClaim", "apiVersion is missing"), ("- 1", "no object")):
            status, out, err = self.apply(text)
            self.assertEqual((status, out), (1, ""), text)
            self.assertIn(words, err)
        self.assertEqual([c["name"] for c in self.world.claims()], ["mine"])

    def test_users_have_so_many_claims_and_no_admin_access(self):
        claim = CLAIM % ("watch", DRIVER, "0", "1Mi")
        status, _, err = self.apply(claim.replace("exactly:", "exactly:\n        adminAccess: true"), user=ALICE)
        self.assertEqual(status, 1)
        self.assertIn("adminAccess is for root", err)
        many = "---".join(CLAIM % (f"n{i}", DRIVER, "0", "1Mi") for i in range(66))
        status, out, err = self.apply(many, user=ALICE)
        self.assertEqual((status, out.count("created"), err.count("a user may have 64 claims")), (1, 64, 2))
        self.assertEqual(self.world.tool("claim", "delete", *(f"n{i}" for i in range(64)), user=BOB)[0], 1)
        self.assertEqual(self.world.tool("claim", "delete", *(f"n{i}" for i in range(64)), user=ALICE)[0], 0)

    def test_second_daemon_of_a_machine_does_not_start(self):
        status, err = self.world.run()
        self.assertEqual(status, 1)
        self.assertIn("another aliquotd serves", err)


@unittest.skipUnless(ROOT, "aliquotd needs root")
class Elsewhere(unittest.TestCase):
    def one_line(self, got, words):
        status, out, err = got
        self.assertEqual((status, out, err.count("\n")), (1, "", 1), err)
        self.assertIn(words, err)

    def test_machine_without_gpus_says_so_until_it_has_some(self):
        world = Machine()
        self.addCleanup(world.close)
        world.stop_gpus()
        world.start(wait=False)
        wait_for("the daemon", world.is_serving)
        wait_for("the first look", lambda: "Driver Not Loaded" in world.run_program("true")[2])
        self.one_line(world.run_program("true"), "load the nvidia kernel module")
        world.start_gpus()
        wait_for("the GPUs", lambda: world.run_program("true")[0] == 0)

    def test_daemon_of_a_node_gives_nothing_to_users(self):
        world = OpsWorld(gpus=1)
        self.addCleanup(world.close)
        world.start()
        self.one_line(world.tool("run", "--library", LIBRARY, "-m", "1Gi", "--", "true"), "--voluntary runs the program without it")
        self.one_line(world.tool("claim", "list"), "serves a kubelet")
        for args in ("run", "-m", "1Gi", "--", "true"), ("claim", "list"):
            done = subprocess.run(Machine.by(ALICE, [TOOL, *args]), capture_output=True, text=True, check=False,
                                  env={**os.environ, "ALIQUOT_SOCKET": world.admin})
            self.one_line((done.returncode, done.stdout, done.stderr), "Permission denied")


@unittest.skipUnless(ROOT, "aliquotd needs root")
class Documents(unittest.TestCase):
    def run_line(self, line, *before, **more):
        done = subprocess.run([*before, *line.split()], capture_output=True, text=True, timeout=60, check=False,
                              env=dict(os.environ, ALIQUOT_BUILD=str(BUILD)), **more)
        self.assertEqual(done.returncode, 0, f"{line}: {done.stderr}")
        return done

    def test_commands_of_the_page_run(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            (path / "train.py").write_text("print('trained')")
            (path / "claims.yaml").write_text(CLAIM % ("a", DRIVER, "10", "1Gi"))
            (path / "python").symlink_to("/usr/bin/python3")
            lines = [line for line in re.findall(r"^    (\S.*)$", (REPO / "docs/standalone.md").read_text(), re.M) if "not run here" not in line]
            self.assertEqual(len(lines), 3)
            for line in lines:
                if line.startswith("aliquot"):
                    self.run_line(line, REPO / "demo/one-machine.sh", "sh", "-c", f'PATH={directory}:$PATH; exec "$@"', "sh", cwd=directory)
                else:
                    self.run_line(line, cwd=REPO)

    def test_the_command_of_the_readme_runs(self):
        line = re.search(r"^    (demo/one-machine\.sh .*?)(?: +#.*)?$", (REPO / "README.md").read_text(), re.M)[1]
        done = self.run_line(line, cwd=REPO)
        self.assertRegex(done.stdout, r"^bisect gpu=0 uuid=\S+ sum_bytes=4026531840 ")
        self.assertRegex(done.stderr, SUMMARY)


if __name__ == "__main__":
    unittest.main()

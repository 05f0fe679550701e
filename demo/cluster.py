# SPDX-License-Identifier: Apache-2.0
"""One simulated node for the demo and the tests: simulated GPUs, the sandbox (API server, scheduler, kubelet) and
aliquotd, each a real process in one directory, stopped together. Nothing here knows how a part works inside; it speaks
to them as an operator would: command lines, kubectl, the simulator's oracle, and the share's usage files."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
PYTHON = "/usr/bin/python3"
DRIVER = "hami-core-gpu.project-hami.io"
WORKLOADS = ["alq-demo-report", "alq-demo-bisect", "alq-demo-busy"]
TMPFS_MAGIC = 0x01021994


class ClusterError(Exception):
    """Something of the node did not come up or did not answer; the text says what and where its log is."""


def is_tmpfs(path):
    out = subprocess.run(["stat", "-f", "-c", "%t", path], capture_output=True, text=True)
    return out.returncode == 0 and int(out.stdout, 16) == TMPFS_MAGIC


def tmpfs_dir(prefix):
    for parent in ("/run", "/dev/shm"):
        if is_tmpfs(parent) and os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix=prefix, dir=parent)
    raise ClusterError("neither /run nor /dev/shm is a writable tmpfs; share directories need one")


def nvidia_smi():
    """NVIDIA's own nvidia-smi where it is installed, else None; becomes part of the simulated driver's root."""
    for path in (shutil.which("nvidia-smi"), "/usr/lib/nvidia/current/nvidia-smi"):
        if path and pathlib.Path(path).is_file():
            return os.path.realpath(path)
    return None


def parse_quantity(text):
    """Whole bytes or units of the quantities that appear in the demo's objects."""
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


class Share:
    """The figures of one usage file, as include/aliquot/share.h lays it out."""

    HEADER, SECTION_HEAD, SLOT, SLOTS = 4096, 4096, 128, 1024

    def __init__(self, data):
        magic, version = struct.unpack_from("<QI", data, 0)
        if magic != 0x3147415355514C41 or version != 1 or len(data) < self.HEADER + self.SECTION_HEAD:
            raise ValueError("not a usage file of version 1")
        section = data[self.HEADER:]
        (self.total,) = struct.unpack_from("<Q", section, 64)
        self.held = self.counted = self.overhead = 0
        for i in range(self.SLOTS):
            at = self.SECTION_HEAD + i * self.SLOT
            (held,) = struct.unpack_from("<Q", section, at + 16)
            if held:
                counted, overhead = struct.unpack_from("<QQ", section, at + 32)
                self.held += held
                self.counted += counted
                self.overhead += overhead


def correction(control):
    """(sequence, overhead in bytes, time in ppm) in force in a control file."""
    sequence, = struct.unpack_from("<I", control, 256)
    _, _, overhead, _, _, _, time_ppm = struct.unpack_from("<QQqIIII", control, 512 + 256 * (sequence & 1))
    return sequence, overhead, time_ppm


class Cluster:
    def __init__(self, devices, server_version="1.36", runtime="auto", daemon_args=(), sandbox_args=(), log=None):
        self.devices_file = pathlib.Path(devices)
        self.server_version = server_version
        self.runtime = runtime
        self.daemon_args = list(daemon_args)
        self.daemon_prefix = []  # a program that runs the daemon
        self.sandbox_args = list(sandbox_args)
        self.log = log or (lambda text: None)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-", dir="/tmp"))
        self.run_dir = pathlib.Path(tmpfs_dir("alq-"))
        self.processes = {}
        self.env = dict(os.environ, KUBECONFIG=str(self.dir / "kubeconfig"), SIMGPU_SOCKET=self.sim_socket)

    # -- paths --------------------------------------------------------------------------------------------------
    @property
    def sim_dir(self):
        return self.dir / "sim"

    @property
    def sim_socket(self):
        return str(self.sim_dir / "simgpud.sock")

    @property
    def cdi_dir(self):
        return self.dir / "cdi"

    @property
    def state_dir(self):
        return self.dir / "state"

    # -- processes ----------------------------------------------------------------------------------------------
    def spawn(self, name, args, ready=None, timeout=30, env=None):
        """Starts a process that logs to <dir>/<name>.log; waits until a line of its output is `ready`."""
        log = open(self.dir / f"{name}.log", "ab")  # closed by pump(), or at once where nothing is waited for
        process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stderr=log,
                                   stdout=subprocess.PIPE if ready else log, env=env or self.env, start_new_session=True)
        self.processes[name] = process
        if not ready:
            log.close()
            return process
        seen = threading.Event()

        def pump():
            with log, process.stdout:
                for line in process.stdout:
                    log.write(line)
                    log.flush()
                    if line.decode(errors="replace").strip().startswith(ready):
                        seen.set()

        threading.Thread(target=pump, daemon=True).start()
        deadline = time.monotonic() + timeout
        while not seen.wait(0.05):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"{name} did not start:\n{self.tail(name)}")
        return process

    def tail(self, name, lines=15):
        try:
            text = (self.dir / f"{name}.log").read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def stop_process(self, name, sig=signal.SIGTERM, timeout=20):
        process = self.processes.pop(name, None)
        if not process:
            return
        if process.poll() is None:
            process.send_signal(sig)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode

    def start_simulator(self):
        self.sim_dir.mkdir(exist_ok=True)
        subprocess.run([BUILD / "sim/simctl", "install-root", "--config", self.devices_file, self.dir / "driver"],
                       check=True, stdout=subprocess.DEVNULL)
        smi = nvidia_smi()
        if smi:
            (self.dir / "driver/usr/bin").mkdir(parents=True, exist_ok=True)
            shutil.copy(smi, self.dir / "driver/usr/bin/nvidia-smi")
        self.spawn("simgpud", [BUILD / "sim/simgpud", "--config", self.devices_file, "--run-dir", self.sim_dir],
                   ready="simgpud")

    def start_sandbox(self):
        args = [PYTHON, REPO / "sandbox/sandbox.py", "--dir", self.dir, "--server-version", self.server_version,
                "--alq-alloc", BUILD / "src/alloc/alq-alloc", "--runtime", self.runtime, *self.sandbox_args]
        for program in WORKLOADS:
            args += ["--program", BUILD / "demo" / program]
        self.spawn("sandbox", args, ready="ready", timeout=60)

    def write_daemon_config(self, extra_mounts=()):
        mounts = [{"hostPath": str(self.sim_dir), "containerPath": "/run/simgpu", "options": ["rw", "bind"]}]
        mounts += list(extra_mounts)
        # JSON is YAML. The simulated cards' contexts take 295 MiB, more than the daemon's first guess of 256Mi.
        config = {"contextEstimate": "320Mi", "extraMounts": mounts}
        (self.dir / "aliquotd.yaml").write_text(json.dumps(config, indent=1))

    def start_daemon(self):
        self.write_daemon_config()
        self.spawn("aliquotd", [
            *self.daemon_prefix, BUILD / "src/daemon/aliquotd", "--config", self.dir / "aliquotd.yaml", "--node-name", "node-a",
            "--kubeconfig", self.dir / "daemon.kubeconfig",
            "--kubelet-plugins-dir", self.dir / "kubelet/plugins",
            "--kubelet-registry-dir", self.dir / "kubelet/plugins_registry",
            "--cdi-dir", self.cdi_dir, "--state-dir", self.state_dir, "--run-dir", self.run_dir,
            "--driver-root", self.dir / "driver", "--library", BUILD / "src/vgpu/libvgpu.so",
            "--hook", BUILD / "src/hook/aliquot-hook",
            "--host-lib-dir", self.dir / "lib", "--metrics-address", "127.0.0.1:0", "--start-spread", "0s", *self.daemon_args])

    def start(self):
        self.log("simulated GPUs")
        self.start_simulator()
        self.log(f"sandbox: API server {self.server_version}, scheduler, kubelet")
        self.start_sandbox()
        self.log("aliquotd")
        self.start_daemon()

    def stop(self, keep_files=False):
        for name in ("sandbox", "aliquotd", "simgpud"):
            self.stop_process(name)
        for name in list(self.processes):
            self.stop_process(name)
        if not keep_files:
            shutil.rmtree(self.run_dir, ignore_errors=True)
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc):
        self.stop()

    # -- looking ------------------------------------------------------------------------------------------------
    def kubectl(self, *args, check=True, stdin=None):
        out = subprocess.run(["kubectl", *[str(a) for a in args]], env=self.env, capture_output=True, text=True,
                             input=stdin)
        if check and out.returncode:
            raise ClusterError(f"kubectl {' '.join(map(str, args))}: {out.stderr.strip() or out.stdout.strip()}")
        return out.stdout if check else out

    def objects(self, kind):
        return json.loads(self.kubectl("get", kind, "-A", "-o", "json"))["items"]

    def oracle(self):
        out = subprocess.run([BUILD / "sim/simctl", "--socket", self.sim_socket, "oracle"], capture_output=True,
                             text=True, env=self.env)
        if out.returncode:
            raise ClusterError(f"simctl oracle: {out.stderr.strip()}")
        return json.loads(out.stdout)

    def gpus_by_device(self):
        """{device name: (uuid, product)} from the published slices."""
        found = {}
        for item in self.objects("resourceslices"):
            for device in item["spec"].get("devices", []):
                attributes = {k.split("/")[-1]: v for k, v in device["attributes"].items()}
                found[device["name"]] = (attributes["uuid"]["string"], attributes["productName"]["string"])
        return found

    def share_ids(self):
        return [p.name for p in (self.run_dir / "shares").glob("*")]

    def usage(self, share_id):
        return Share((self.run_dir / "shares" / share_id / "usage").read_bytes())

    def overhead_correction(self, share_id):
        return correction((self.run_dir / "shares" / share_id / "control").read_bytes())[1]

    def wait_for(self, what, condition, timeout=60, interval=0.2):
        deadline = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise ClusterError(f"{name} ended with status {process.returncode}:\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout} s in vain for {what}")
            time.sleep(interval)

    def leftovers(self):
        """What prepared claims leave on the node: CDI files, share directories, records."""
        found = [str(p) for p in self.cdi_dir.glob("*") if p.is_file()]
        found += [str(p) for p in (self.run_dir / "shares").glob("*")]
        claims = self.state_dir / "claims"
        found += [str(p) for p in claims.glob("*")] if claims.is_dir() else []
        return found

# SPDX-License-Identifier: Apache-2.0
"""A node for tests of aliquotd: simulated GPUs, an API server in this process, the daemon as a child, a kubelet's peer."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
import warnings

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
sys.path.insert(0, str(REPO / "sandbox"))
import api as logic  # noqa: E402
import certs  # noqa: E402
import httpd  # noqa: E402
import resources  # noqa: E402

from kubelet_peer import Peer  # noqa: E402

DRIVER = "hami-core-gpu.project-hami.io"
NODE = "node-a"
TOKEN = "daemon-token"
CLAIMS = resources.resource("resourceclaims")
SLICES = resources.resource("resourceslices")
UUIDS = ["GPU-5d1f0c5e-8a0b-4f0e-9b7a-6a1d3c2e4f50", "GPU-c20b6d1e-37f4-4a59-8d6e-0f9b5a7c1e22"]


def need_daemon():
    """For setUpModule: skips where the programs are not built."""
    warnings.simplefilter("ignore", ResourceWarning)  # connections that the API server's threads still hold
    if not (BUILD / "src/daemon/aliquotd").exists() or not (BUILD / "sim/simgpud").exists():
        raise unittest.SkipTest("aliquotd or simgpud is not built")


def wait_for(what, condition, timeout=15):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {timeout} s for {what}")


def result(request="gpu", device="hami-gpu-0", cores="30", memory="4Gi", share=True, **more):
    out = {"request": request, "driver": DRIVER, "pool": NODE, "device": device}
    if cores is not None or memory is not None:
        out["consumedCapacity"] = {k: v for k, v in (("cores", cores), ("memory", memory)) if v is not None}
    if share:
        out["shareID"] = str(uuid.uuid4())
    out.update(more)
    return {k: v for k, v in out.items() if v is not None}


def rewrite_record(path, old, new):
    """Replaces text in a record and sets its header right (CRC-32C over the body)."""
    with open(path, "rb") as file:
        body = file.read().split(b"\n", 1)[1][:-1].replace(old, new)
    crc = 0xffffffff
    for byte in body:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    with open(path, "wb") as file:
        file.write(b"aliquot-record 1 %08x %d\n%s\n" % (crc ^ 0xffffffff, len(body), body))


class World:
    program = BUILD / "src/daemon/aliquotd"

    def __init__(self, gpus=2, version="1.36", with_driver=True):
        self.root = tempfile.mkdtemp(prefix="alqd-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.daemon = self.gpud = self.http = None
        self.log = os.path.join(self.root, "log")
        for name in ("cdi", "plugins", "registry", "state", "run", "lib", "sim"):
            os.mkdir(self.path(name))
        self.driver_root = self.path("driver")
        self.gpu_config = self.path("gpus.json")
        self.write_gpus(gpus)
        os.mkdir(self.driver_root)
        if with_driver:
            self.install_driver()
        self.start_api(version)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def install_driver(self):
        subprocess.run([BUILD / "sim/simctl", "install-root", "--config", self.gpu_config, self.driver_root],
                       check=True, stdout=subprocess.DEVNULL)
        self.start_gpus()

    def write_gpus(self, count):
        devices = [{"name": "NVIDIA H100 80GB HBM3", "memory": "80Gi", "sms": 132, "minor": i, "profile": "550",
                    "pci": f"0000:{0x65 + i:02x}:00.0", "uuid": (UUIDS + [f"GPU-{i:08x}-0000-4000-8000-000000000000"])[min(i, len(UUIDS))]} for i in range(count)]
        with open(self.gpu_config, "w", encoding="utf-8") as file:
            json.dump({"devices": devices}, file)

    def stop_gpus(self):
        self.gpud.kill()
        self.gpud.wait()
        self.gpud.stdout.close()

    def start_gpus(self):
        self.gpud = subprocess.Popen([BUILD / "sim/simgpud", "--config", self.gpu_config, "--run-dir",
                                      self.path("sim")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.gpud.stdout.readline()

    def start_api(self, version):
        self.api = logic.Api(version)
        ca, certificate, key = certs.make(self.path("pki"))
        self.http = httpd.Server(self.api, certificate, key, 0)
        self.http.tokens = {TOKEN: logic.SYSTEM}
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.api.create(logic.SYSTEM, resources.resource("nodes"), "", {"metadata": {"name": NODE}})
        self.kubeconfig = self.path("kubeconfig")
        certs.kubeconfig(self.kubeconfig, f"https://{self.http.address}", ca, "daemon", TOKEN)

    # ---- the daemon

    def command(self, **more):
        flags = {"node-name": NODE, "kubeconfig": self.kubeconfig, "kubelet-plugins-dir": self.path("plugins"),
                 "kubelet-registry-dir": self.path("registry"), "cdi-dir": self.path("cdi"),
                 "state-dir": self.path("state"), "run-dir": self.path("run"), "driver-root": self.driver_root,
                 "host-lib-dir": self.path("lib"), "metrics-address": "127.0.0.1:0", "start-spread": "0s", "log-level": "debug"}
        flags.update({k.replace("_", "-"): v for k, v in more.items()})
        return [str(self.program), *(f"--{k}={v}" for k, v in flags.items() if v is not None)]

    def environment(self):
        return dict(os.environ, SIMGPU_SOCKET=self.path("sim", "simgpud.sock"))

    def start(self, wait=True, prefix=(), **more):
        with open(self.log, "ab") as log:
            self.log_start = log.tell()
            self.daemon = subprocess.Popen([*prefix, *self.command(**more)], stderr=log, env=self.environment())
        if wait:
            wait_for("the registration socket", lambda: self.is_serving())
            wait_for("the first reading of the GPUs", lambda: "GPUs" in self.said())
        return self.daemon

    def is_serving(self):
        if self.daemon.poll() is not None:
            raise AssertionError("aliquotd ended: " + self.said())
        return os.path.exists(self.registration_socket) and "ready" in self.said()

    @property
    def registration_socket(self):
        return self.path("registry", f"{DRIVER}-reg.sock")

    @property
    def dra_socket(self):
        return self.path("plugins", DRIVER, "dra.sock")

    def said(self):
        """What the daemon has logged since its last start."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(self.log_start)
            return file.read()

    def stop(self, number=signal.SIGTERM):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(number)
        return self.daemon.wait(20)

    def run(self, **more):
        """A daemon that is expected to end by itself; (exit status, stderr)."""
        done = subprocess.run(self.command(**more), stderr=subprocess.PIPE, env=self.environment(), timeout=20,
                              check=False)
        return done.returncode, done.stderr.decode()

    def peer(self):
        return Peer(self.dra_socket)

    def close(self):
        for process in (self.daemon, self.gpud):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        if self.gpud:
            self.gpud.stdout.close()
        if self.http:
            self.http.shutdown()
            self.http.server_close()
            self.api.store.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- claims

    def claim(self, name, results, config=None, uid=None, namespace="default", allocated=True):
        """Puts a claim as the scheduler leaves it, past all validation; returns what the kubelet would ask."""
        uid = uid or str(uuid.uuid4())
        obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
               "metadata": {"name": name, "namespace": namespace, "uid": uid}, "spec": {"devices": {}}, "status": {}}
        if allocated:
            devices = {"results": results}
            if config:
                devices["config"] = config
            obj["status"]["allocation"] = {"devices": devices}
        self.api.store.put(CLAIMS.internal, namespace, name, obj)
        return namespace, name, uid

    def unwritten(self):
        """Claims of ours that are prepared and do not say so."""
        return [c["metadata"]["name"] for c in self.api.store.all(CLAIMS.internal)
                if os.path.exists(self.path("state", "claims", f"{c['metadata']['uid']}.record")) and
                not c["status"].get("devices")]

    def delete_claim(self, claim):
        self.api.store.delete(CLAIMS.internal, claim[0], claim[1])

    # ---- what is on disk

    def tree(self):
        """Every file of claims below state, run and CDI directory, for comparisons."""
        out = {}
        for top in ("state/claims", "run/shares", "cdi"):
            for directory, _, files in os.walk(self.path(top)):
                for name in files:
                    path = os.path.join(directory, name)
                    out[os.path.relpath(path, self.root)] = os.stat(path).st_ino
        return out

    def spec(self, uid):
        with open(self.path("cdi", f"k8s.{DRIVER}-claim_{uid}.json"), encoding="utf-8") as file:
            return json.load(file)


class SharedDaemon(unittest.TestCase):
    """Tests that share one daemon; each leaves it without claims."""

    world = None

    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.start()

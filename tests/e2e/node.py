# SPDX-License-Identifier: Apache-2.0
"""The node of a real cluster: simulated GPUs and aliquotd as processes of the host, kubectl, and everything taken away again.
Settings come from the environment (README.md)."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
sys.path.insert(0, str(REPO / "demo"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image  # noqa: E402
from cluster import tmpfs_dir  # noqa: E402

DRIVER = "hami-core-gpu.project-hami.io"
NAMESPACE = "aliquot-e2e"
PROGRAMS = [BUILD / "demo" / name for name in ("alq-demo-report", "alq-demo-bisect", "alq-demo-busy")]


class Unusable(Exception):
    """This is no cluster, or no node, that the tests can run on; the text says what they need."""


class Failure(Exception):
    """A check did not hold."""


def setting(name, default=None):
    return os.environ.get(f"E2E_{name}") or default


class Node:
    kind = "process"

    def __init__(self):
        self.name = setting("NODE", socket.gethostname())
        self.kubelet_dir = pathlib.Path(setting("KUBELET_DIR", "/var/lib/kubelet"))
        self.cdi_dir = pathlib.Path(setting("CDI_DIR", "/var/run/cdi"))
        self.image = setting("IMAGE", image.NAME)
        self.daemon_kubeconfig = setting("DAEMON_KUBECONFIG")
        self.dir = self.run_dir = None
        self.daemons = {}  # pod UID -> process
        self.gpud = None
        self.undo = []

    # ---- kubectl

    def kubectl(self, *args, stdin=None, check=True):
        done = subprocess.run(["kubectl", *map(str, args)], input=stdin, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode:
            raise Failure(f"kubectl {' '.join(map(str, args))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def objects(self, kind, *args):
        return json.loads(self.kubectl("get", kind, "-o", "json", *args))["items"]

    def wait_for(self, what, condition, timeout=120):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            for uid, process in self.daemons.items():
                if process.poll() is not None:
                    raise Failure(f"aliquotd ended with status {process.returncode}: {self.tail(uid)}")
            time.sleep(0.5)
        raise Failure(f"waited {timeout} s in vain for {what}")

    # ---- what is needed

    def check(self):
        if not os.environ.get("KUBECONFIG"):
            raise Unusable("set KUBECONFIG to a cluster that may be changed; its node must be this machine")
        if os.geteuid() != 0:
            raise Unusable("run it as root: aliquotd writes to the kubelet's directories")
        missing = [str(p) for p in (BUILD / "src/daemon/aliquotd", BUILD / "sim/simgpud", *PROGRAMS) if not p.exists()]
        if missing:
            raise Unusable(f"run make first: {missing[0]} is not built")
        if not shutil.which("kubectl"):
            raise Unusable("kubectl is not installed")
        try:
            version = json.loads(self.kubectl("version", "-o", "json"))["serverVersion"]
        except (Failure, subprocess.TimeoutExpired, KeyError) as e:
            raise Unusable(f"the cluster of KUBECONFIG does not answer: {e}") from e
        if (int(version["major"]), int("".join(filter(str.isdigit, version["minor"])))) < (1, 34):
            raise Unusable(f"Kubernetes 1.34 or newer is needed, the cluster has {version['gitVersion']}")
        if "resourceslices" not in self.kubectl("api-resources", "--api-group=resource.k8s.io", check=False):
            raise Unusable("the API group resource.k8s.io/v1 (Dynamic Resource Allocation) is not served")
        if not self.kubectl("get", "node", self.name, "--ignore-not-found"):
            raise Unusable(f"the cluster has no node {self.name}; run on the node, or name it with E2E_NODE")
        if not (self.kubelet_dir / "plugins_registry").is_dir():
            raise Unusable(f"{self.kubelet_dir} is not the directory of a kubelet (E2E_KUBELET_DIR)")
        if any(s["spec"]["driver"] == DRIVER for s in self.objects("resourceslices")):
            raise Unusable(f"another daemon publishes devices of {DRIVER} in this cluster; take it away first")
        return version["gitVersion"]

    # ---- the host's processes

    def start(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-e2e-"))
        self.undo.append(lambda: shutil.rmtree(self.dir, ignore_errors=True))
        made = pathlib.Path(tmpfs_dir("alq-e2e-"))
        self.undo.append(lambda: shutil.rmtree(made, ignore_errors=True))
        self.run_dir = made / "aliquot"
        subprocess.run([BUILD / "sim/simctl", "install-root", "--config", REPO / "demo/gpus.json", self.dir / "driver"], check=True,
                       stdout=subprocess.DEVNULL)
        (self.dir / "sim").mkdir()
        with open(self.dir / "simgpud.log", "wb") as log:
            self.gpud = subprocess.Popen([BUILD / "sim/simgpud", "--config", REPO / "demo/gpus.json", "--run-dir", self.dir / "sim"],
                                         stdout=subprocess.PIPE, stderr=log)
        self.undo.append(self.stop_gpus)
        self.gpud.stdout.readline()
        mounts = [{"hostPath": str(self.dir / "sim"), "containerPath": "/run/simgpu", "options": ["rw", "bind"]}]
        (self.dir / "aliquotd.yaml").write_text(json.dumps({"contextEstimate": "320Mi", "extraMounts": mounts}))
        if not self.daemon_kubeconfig:
            self.make_account()

    def stop_gpus(self):
        self.gpud.kill()
        self.gpud.wait()
        self.gpud.stdout.close()

    def make_account(self):
        """A kubeconfig of the daemon's own account, so that its rights are tested too."""
        rbac = pathlib.Path(__file__).resolve().parent / "rbac.yaml"
        self.kubectl("apply", "-f", rbac)
        self.undo.append(lambda: self.kubectl("delete", "-f", rbac, "--ignore-not-found", check=False))
        token = self.kubectl("create", "token", "aliquot-e2e", "-n", "kube-system", "--duration=2h").strip()
        config = json.loads(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        config["users"] = [{"name": "aliquotd", "user": {"token": token}}]
        for context in config["contexts"]:
            context["context"]["user"] = "aliquotd"
        self.daemon_kubeconfig = str(self.dir / "daemon.kubeconfig")
        with open(os.open(self.daemon_kubeconfig, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            json.dump(config, file)

    def command(self, *more):
        command = [BUILD / "src/daemon/aliquotd", "--config", self.dir / "aliquotd.yaml", "--node-name", self.name,
                   "--kubeconfig", self.daemon_kubeconfig, "--kubelet-plugins-dir", self.kubelet_dir / "plugins",
                   "--kubelet-registry-dir", self.kubelet_dir / "plugins_registry", "--cdi-dir", self.cdi_dir,
                   "--state-dir", self.dir / "state", "--run-dir", self.run_dir, "--driver-root", self.dir / "driver",
                   "--library", BUILD / "src/vgpu/libvgpu.so", "--host-lib-dir", self.dir / "lib", "--metrics-address", "127.0.0.1:0", *more]
        return list(map(str, command))

    def start_daemon(self):
        """One more instance; its pod UID."""
        uid = str(uuid.uuid4())
        with open(self.dir / f"aliquotd-{uid}.log", "ab") as log:
            self.daemons[uid] = subprocess.Popen(self.command("--pod-uid", uid), stderr=log,
                                                 env=dict(os.environ, SIMGPU_SOCKET=str(self.dir / "sim/simgpud.sock")))
        return uid

    def stop_daemon(self, uid, number=signal.SIGTERM):
        process = self.daemons.pop(uid)
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def killed(self, uid):
        """Kills the instance; the one after it."""
        self.stop_daemon(uid, signal.SIGKILL)
        return self.start_daemon()

    def updated(self, uid, meanwhile):
        """The instance that takes the place of uid; meanwhile() is called while both are there."""
        newer = self.start_daemon()
        self.wait_for("the newer instance to have the state",
                      lambda: "taking over the node's state" in self.said(newer) or "asking the instance" in self.said(newer))
        meanwhile()
        status = self.stop_daemon(uid)
        if status != 0:
            raise Failure(f"the older instance ended with status {status}")
        return newer

    def restarted(self, uid):
        self.stop_daemon(uid)
        return self.start_daemon()

    def uninstall(self):
        """What it said; nothing of Aliquot is to be on the host then."""
        self.stop_daemons()
        done = subprocess.run([*self.command(), "--uninstall"], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise Failure(f"aliquotd --uninstall: {done.stderr}")
        return done.stderr

    def listing(self):
        """What is on the host of Aliquot's directories, and in those of the kubelet and the runtime."""
        own = [top for top in (self.dir / "state", self.dir / "lib", self.run_dir) if top.exists()]
        others = [top for top in (self.cdi_dir, self.kubelet_dir / "plugins", self.kubelet_dir / "plugins_registry") if top.exists()]
        return {str(p) for p in own} | {str(p) for top in own + others for p in top.rglob("*")}

    def said(self, uid):
        return (self.dir / f"aliquotd-{uid}.log").read_text(errors="replace")

    def tail(self, uid):
        return "\n".join(self.said(uid).splitlines()[-10:])

    def leftovers(self):
        """What prepared claims leave on the node."""
        found = [str(p) for p in self.cdi_dir.glob(f"k8s.{DRIVER}*")] if self.cdi_dir.is_dir() else []
        for folder in (self.run_dir / "shares", self.dir / "state/claims"):
            found += [str(p) for p in folder.glob("*")] if folder.is_dir() else []
        return found

    def clean(self):
        """Objects, then daemons, then files; goes on whatever fails."""
        wrong = []
        for step in (self.delete_objects, self.stop_daemons, *reversed(self.undo)):
            try:
                step()
            except (Failure, OSError, subprocess.SubprocessError) as e:
                wrong.append(str(e))
        return wrong

    def stop_daemons(self):
        for uid in list(self.daemons):
            self.stop_daemon(uid)

    def delete_objects(self):
        self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")
        self.kubectl("delete", "deviceclass", DRIVER, f"whole.{DRIVER}", "--ignore-not-found")
        if self.daemons:
            self.wait_for("nothing to be left of the claims", lambda: not self.leftovers())
        self.stop_daemons()
        self.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}", check=False)

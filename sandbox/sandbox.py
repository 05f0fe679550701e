#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One Kubernetes node in one process: API server, scheduler, controllers and kubelet, with real containers.

Owns the command line, the directory's layout and the order of start and stop. See README.md for what is faithful.
"""

import argparse
import os
import secrets
import shutil
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import api as logic  # noqa: E402
import certs  # noqa: E402
import controllers  # noqa: E402
import httpd  # noqa: E402
import kubelet as kubelets  # noqa: E402
import resources  # noqa: E402
import rootfs  # noqa: E402
import runtime as containers  # noqa: E402
import scheduler as schedulers  # noqa: E402

DRIVER = "hami-core-gpu.project-hami.io"
NAMESPACE, ACCOUNT = "kube-system", "aliquotd"


def arguments(argv):
    parser = argparse.ArgumentParser(description="a one-node stand-in for Kubernetes")
    parser.add_argument("--dir", required=True, help="directory for everything; made if missing")
    parser.add_argument("--server-version", choices=sorted(resources.RECORDED), default="1.36")
    parser.add_argument("--node", default="node-a")
    parser.add_argument("--driver", default=DRIVER, help="the driver that the daemon's account may act for")
    parser.add_argument("--port", type=int, default=0, help="of the API server on 127.0.0.1; 0: a free one")
    parser.add_argument("--alq-alloc", help="the allocator program; without it pods with claims stay pending")
    parser.add_argument("--runtime", choices=["auto", *containers.CLASSES, "none"], default="auto")
    parser.add_argument("--rootfs", help="root file system of the containers; default: made from the host's programs")
    parser.add_argument("--program", action="append", default=[], metavar="PATH",
                        help="put this program into /usr/local/bin of the root; may be repeated")
    parser.add_argument("--gate-off", action="store_true", help="DRAConsumableCapacity and DRADeviceTaints off")
    parser.add_argument("--health", choices=["auto", "on", "off"], default="auto",
                        help="the kubelet asks plugins for device health; auto: from 1.36 on, as the gate is")
    parser.add_argument("--wipe-seconds", type=float, default=30,
                        help="a driver's slices are deleted so long after its socket is gone")
    parser.add_argument("--retry-seconds", type=float, default=2, help="first pause after a failed prepare")
    parser.add_argument("--prepare-seconds", type=float, default=45, help="deadline of prepare and unprepare")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def daemon_rules(driver):
    """What the daemon's service account may do (reference/dra.md 4.6)."""
    group = "resource.k8s.io"
    return [(group, "resourceclaims", {"get"}, None),
            (group, "resourceslices", {"get", "list", "watch", "create", "update", "patch", "delete"}, None),
            ("", "nodes", {"get"}, None),
            ("", "events", {"create", "patch"}, None),
            ("events.k8s.io", "events", {"create", "patch"}, None),
            (group, "resourceclaims/status", {"update", "patch"}, None),
            (group, "resourceclaims/driver", {"associated-node:update", "associated-node:patch"}, {driver})]


class Sandbox:
    def __init__(self, options):
        self.options, self.dir = options, os.path.abspath(options.dir)
        self.runtime, self.kubelet, self.server = None, None, None
        options.no_runtime = ""
        self.parts = []

    def log(self, text):
        if self.options.verbose:
            print(f"{time.strftime('%H:%M:%S')} sandbox: {text}", file=sys.stderr, flush=True)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def start(self):
        options = self.options
        for name in ("kubelet/plugins", "kubelet/plugins_registry", "cdi", "logs"):
            os.makedirs(self.path(*name.split("/")), exist_ok=True)
        options.health = options.health == "on" or (options.health == "auto" and options.server_version >= "1.36")
        api = logic.Api(options.server_version, options.gate_off)
        paths = certs.make(self.path("pki"))
        self.server = httpd.Server(api, paths[1], paths[2], options.port)
        self._accounts(paths[0])
        self._containers()
        self.kubelet = kubelets.Kubelet(api, options.node, self.path("kubelet"), self.path("logs"), self.runtime,
                                        options, self.log)
        self.server.logs = self.kubelet.logs
        self.server.hooks.update({
            ("POST", "restart-kubelet"): lambda body: self.kubelet.restart(float(body.get("seconds", 0))),
            ("POST", "power-off"): lambda body: self._power_off(),
            ("POST", "power-on"): lambda body: self.kubelet.bring_up(),
            ("GET", "kubelet"): lambda body: self._kubelet_state(),
            ("POST", "record"): lambda body: self._record(),
            ("GET", "requests"): lambda body: {"requests": self.server.request_log or []}})
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        self.kubelet.start()
        scheduler = schedulers.Scheduler(api, options.node, options.alq_alloc, self.log)
        control = controllers.Controllers(api, self.log)
        self.parts = [scheduler, control]
        for part in self.parts:
            part.start()

    def _accounts(self, authority):
        server, url = self.server, f"https://{self.server.address}"
        users = {
            "kubeconfig": logic.User("admin", ["system:masters"]),
            "daemon.kubeconfig": logic.User(f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}",
                                            ["system:serviceaccounts"], daemon_rules(self.options.driver),
                                            self.options.node),
            "norights.kubeconfig": logic.User("system:serviceaccount:default:norights", ["system:serviceaccounts"],
                                              []),
        }
        for name, user in users.items():
            token = secrets.token_urlsafe(24)
            server.tokens[token] = user
            certs.kubeconfig(self.path(name), url, authority, user.name.rpartition(":")[2], token)

    def _containers(self):
        options = self.options
        if options.runtime == "none":
            options.no_runtime = "the sandbox runs with --runtime none"
            return
        try:
            if os.geteuid() != 0:
                raise containers.RuntimeFailure("containers need root (or a user namespace: unshare -r)")
            containers.enter_namespace()
            root = os.path.abspath(options.rootfs) if options.rootfs else self.path("rootfs")
            extra = [(os.path.abspath(p), f"/usr/local/bin/{os.path.basename(p)}") for p in options.program]
            if not options.rootfs:
                rootfs.make(root, extra)
            else:
                for source, target in extra:
                    rootfs.add(root, source, target)
            self.runtime = containers.choose(options.runtime, self.path("run"), root, self.path("cdi"))
            self.log(f"containers run with {self.runtime.program}, overlay: {self.runtime.overlay}")
        except (containers.RuntimeFailure, rootfs.RootfsError, OSError) as error:
            options.no_runtime = f"no container runtime works here: {error}"
            print(f"sandbox: {options.no_runtime}", file=sys.stderr, flush=True)
            if options.runtime != "auto":
                raise SystemExit(3) from None

    def _kubelet_state(self):
        return {"claims": self.kubelet.claims.dump(), "plugins": self.kubelet.manager.dump(),
                "up": self.kubelet.up.is_set(),
                "runtime": self.runtime.program if self.runtime else None, "noRuntime": self.options.no_runtime}

    def _power_off(self):
        """The machine goes down until power-on; the CDI directory lies on a tmpfs, as /var/run/cdi does."""
        self.kubelet.power_off()
        for name in os.listdir(self.path("cdi")):
            os.unlink(self.path("cdi", name))

    def _record(self):
        self.server.request_log = []

    def stop(self):
        if self.server:
            # Wakes everything that waits for a change; writes still work.
            self.server.api.store.close()
        for part in self.parts:
            part.stop()
        if self.kubelet:
            self.kubelet.stop()
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        if self.runtime:
            self.runtime.sweep()


def main(argv):
    options = arguments(argv)
    if options.alq_alloc and shutil.which(options.alq_alloc) is None:
        print(f"sandbox: --alq-alloc {options.alq_alloc}: no such program", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    sandbox = Sandbox(options)
    try:
        sandbox.start()
        print("ready", flush=True)
        while not stop.wait(3600):
            pass
    finally:
        sandbox.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

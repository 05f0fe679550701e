# SPDX-License-Identifier: Apache-2.0
"""What tests of the monitor need besides a node: /metrics, and programs in mount namespaces that have shares, as containers have."""

import concurrent.futures
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile

import grpc

from daemon_world import BUILD, DRIVER, REPO, wait_for

import places

SOURCES = REPO / "tests/integration"
# $1: directory of shares on the host, $2: ids, then the program. A tmpfs hides the node's own /run.
ENTER = """mount -t tmpfs none /run && shares=$1 ids=$2 && shift 2
for id in $ids; do
    mkdir -p /run/aliquot/shares/$id
    for file in control usage; do
        touch /run/aliquot/shares/$id/$file
        mount --bind "$shares/$id/$file" /run/aliquot/shares/$id/$file || exit
    done
    mount -o remount,bind,ro /run/aliquot/shares/$id/control
done
exec "$@"
"""


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def scrape(world, accept=""):
    """The page and its Content-Type."""
    connection = Unix(world.path("run/aliquotd.sock"))
    connection.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    text = answer.read().decode()
    connection.close()
    return text, answer.headers["Content-Type"]


def findings(world):
    """Ids of what the doctor says."""
    connection = Unix(world.path("run/aliquotd.sock"))
    connection.request("GET", "/v1/doctor")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return {f["id"] for f in answer["findings"]}


def parse(text):
    """[(name, labels, value)]"""
    out = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r'([a-z_]+)(?:\{(.*)\})? (\S+)', line).groups()
            out.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))
    return out


def figures(world, claim):
    """The figures of a claim with one share: name without aliquot_share_ -> value; {} while there is none."""
    return {name[len("aliquot_share_"):]: value for name, labels, value in parse(scrape(world)[0])
            if name.startswith("aliquot_share_") and labels["claim"] == claim[1]}


def value(world, name, **labels):
    found = [v for n, l, v in parse(scrape(world)[0]) if n == name and all(l.get(k) == x for k, x in labels.items())]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def _field(number, data):
    """A length-delimited protobuf field."""
    data = data.encode() if isinstance(data, str) else data
    size, out = len(data), b""
    while size > 127:
        out += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + out + bytes([size]) + data


class PodResources:
    """The kubelet's pod-resources socket: v1.PodResourcesLister/List, as Kubernetes 1.34 answers it."""

    def __init__(self, path):
        self.users = []  # (namespace, pod, container, claim name, share id)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: self.list(), lambda data: data, lambda data: data)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
        self.server.add_insecure_port("unix:" + path)
        self.server.start()

    def list(self):
        out = b""
        for namespace, pod, container, claim, share in self.users:
            cdi = _field(1, _field(1, f"k8s.{DRIVER}/claim={share}")) + _field(2, DRIVER) + _field(3, "pool") + _field(4, "gpu")
            dynamic = _field(2, claim) + _field(3, namespace) + _field(4, _field(1, _field(1, "vendor.com/net=eth0"))) + _field(4, cdi)
            devices = _field(2, _field(1, "vendor.com/device") + _field(2, "id"))
            out += _field(1, _field(1, pod) + _field(2, namespace) + _field(3, _field(1, container) + devices + _field(5, dynamic)))
        return out

    def close(self):
        self.server.stop(0).wait()


def compile_client(directory):
    subprocess.run(["cc", "-O1", "-I", REPO / "include", "-o", os.path.join(directory, "client"), SOURCES / "vgpu_client.c", "-ldl",
                    "-pthread"], check=True)


def driver_folder(world):
    return next((p for p in (world.path("driver/usr/lib", d) for d in os.listdir(world.path("driver/usr/lib")))
                 if os.path.exists(os.path.join(p, "libcuda.so.1"))))


class Program:
    """tests/integration/vgpu_client.c, or another program that says when it is ready, with the shares of some claims, or without any
    (ids empty, preload False)."""

    def __init__(self, case, world, ids, preload=True, command=("client", "dlsym"), **more):
        env = {"PATH": os.environ["PATH"], "SIMGPU_SOCKET": world.path("sim/simgpud.sock"), "LD_LIBRARY_PATH": driver_folder(world), **more}
        if preload:
            env["LD_PRELOAD"] = str(places.copy(BUILD / "src/vgpu/libvgpu.so", world.path("lib")))
        inside = [*(f"{k}={v}" for k, v in env.items()), world.path(command[0]), *command[1:]]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", ENTER, "enter", world.path("run/shares"), " ".join(ids), "env",
                                         *inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        case.addCleanup(self.close)
        self.call("", "ready")

    def call(self, line, want=None):
        if line:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or (want and answer[0] != want):
            self.errors.seek(0)
            raise AssertionError(f"{line or 'start'}: {answer}, {self.errors.read().decode()}")
        return answer[1:]

    def ok(self, line):
        answer = [int(word) for word in self.call(line)]
        assert answer[0] == 0, (line, answer)
        return answer[1:]

    def start(self, device=0):
        self.ok("init")
        self.ok(f"ctx {device}")
        return self

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def settled(world, claim, what, condition, timeout=30):
    """Waits until the figures of a claim meet a condition; returns them."""
    last = {}

    def look():
        last.clear()
        last.update(figures(world, claim))
        return last and condition(last)
    try:
        wait_for(what, look, timeout)
    except AssertionError as error:
        raise AssertionError(f"{error}; last {last}") from error
    return dict(last)

# SPDX-License-Identifier: Apache-2.0
"""Helpers of test_sandbox.py: a sandbox process in a directory of its own, a small HTTPS client, and a DRA plugin made
of grpcio that answers as it is told and writes CDI specs. Each helper stops what it starts."""

import base64
import concurrent.futures
import http.client
import json
import os
import pathlib
import queue
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

import grpc
import yaml

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "sandbox"))
sys.dont_write_bytecode = True
import pluginapi  # noqa: E402

DRIVER = "hami-core-gpu.project-hami.io"
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))


def allocator():
    """The built alq-alloc, or None."""
    path = BUILD / "src/alloc/alq-alloc"
    return path if path.exists() else None


class Client:
    """Speaks to the API server with the credentials of a kubeconfig file."""

    def __init__(self, kubeconfig, token=None):
        config = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
        self.url = urllib.parse.urlsplit(config["clusters"][0]["cluster"]["server"])
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        self.token = config["users"][0]["user"]["token"] if token is None else token
        self.connection = None

    def request(self, method, path, body=None, headers=None, raw=False):
        """(status, headers, body). Raises http.client.RemoteDisconnected when the server just closes."""
        head = {"Accept": "application/json", **(headers or {})}
        if self.token:
            head["Authorization"] = f"Bearer {self.token}"
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        if body is not None:
            head.setdefault("Content-Type", "application/json")
        if self.connection is None:
            self.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.tls,
                                                          timeout=60)
        try:
            self.connection.request(method, path, body, head)
            answer = self.connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        return answer.status, dict(answer.getheaders()), data if raw else (json.loads(data) if data else None)

    def ok(self, method, path, body=None, headers=None):
        """The body of an answer that must be a success."""
        status, _, answer = self.request(method, path, body, headers)
        if status >= 300:
            raise AssertionError(f"{method} {path}: {status} {answer}")
        return answer

    def watch(self, path, seconds):
        """All events of a watch that the server ends after `seconds`."""
        status, _, data = self.request("GET", f"{path}{'&' if '?' in path else '?'}watch=true&timeoutSeconds={seconds}",
                                       raw=True)
        if status != 200:
            raise AssertionError(f"{status} {data}")
        return [json.loads(line) for line in data.splitlines()]

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None


class Sandbox:
    """One sandbox process. Use as a context manager or call stop()."""

    def __init__(self, version="1.36", *options, runtime="none"):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="asb", dir="/tmp"))
        command = ["/usr/bin/python3", REPO / "sandbox/sandbox.py", "--dir", self.dir, "--server-version", version,
                   "--runtime", runtime, "--verbose", *options]
        if allocator():
            command += ["--alq-alloc", allocator()]
        self.log = open(self.dir / "sandbox.log", "wb")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log)
        line = self.process.stdout.readline()
        if line != b"ready\n":
            self.stop(keep=True)
            raise AssertionError(f"the sandbox did not start: {(self.dir / 'sandbox.log').read_text()}")
        self.admin = Client(self.dir / "kubeconfig")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def client(self, name="kubeconfig", token=None):
        return Client(self.dir / name, token)

    def kubectl(self, program, *args, stdin=None, check=True):
        """Runs a kubectl; returns (exit code, stdout, stderr)."""
        home = self.dir / "home"
        home.mkdir(exist_ok=True)
        done = subprocess.run([program, *map(str, args)], input=stdin, capture_output=True, text=True, check=False,
                              timeout=60, env={"HOME": str(home), "PATH": os.environ["PATH"],
                                               "KUBECONFIG": str(self.dir / "kubeconfig")})
        if check and done.returncode:
            raise AssertionError(f"kubectl {args}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.returncode, done.stdout, done.stderr

    def wait(self, what, condition, seconds=30):
        """The first true value of condition()."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {seconds} s\n{(self.dir / 'sandbox.log').read_text()[-3000:]}")
            time.sleep(0.03)

    def pod(self, name):
        status, _, body = self.admin.request("GET", f"/api/v1/namespaces/default/pods/{name}")
        return body if status == 200 else None

    def wait_phase(self, name, *phases, seconds=30):
        return self.wait(f"pod {name} to be {phases}", lambda: (
            lambda p: p if p and p["status"].get("phase") in phases else None)(self.pod(name)), seconds)

    def events(self, name):
        """(reason, message) of all events about an object of this name."""
        body = self.admin.ok("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}")
        return [(e["reason"], e["message"]) for e in body["items"]]

    # ------------------------------------------------------------------ the switchboard

    def fault(self, match, **more):
        """Puts a fault on the board (sandbox/README.md, "Faults"); returns its number."""
        return self.admin.ok("POST", "/sandbox/fault", {"match": match, **more})["id"]

    def faults(self):
        return self.admin.ok("GET", "/sandbox/fault")["faults"]

    def clear_faults(self):
        self.admin.ok("DELETE", "/sandbox/fault")

    def cut(self, match=""):
        """Breaks the connections whose request at hand matches; returns how many."""
        return self.admin.ok("POST", "/sandbox/cut", {"match": match})["cut"]

    def restart_kubelet(self, seconds=0):
        self.admin.ok("POST", "/sandbox/restart-kubelet", {"seconds": seconds})

    def kubelet(self):
        return self.admin.ok("GET", "/sandbox/kubelet")

    def reboot(self, between=lambda: None):
        """The machine goes down and comes back; between() does what the test's own processes do meanwhile."""
        self.admin.ok("POST", "/sandbox/power-off")
        between()
        self.admin.ok("POST", "/sandbox/power-on")

    def stop(self, keep=False):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.log.close()
        if getattr(self, "admin", None):
            self.admin.close()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class Plugin:
    """A DRA plugin on two sockets. calls: (path, [claims as (namespace, uid, name)]) in order; answers may be changed."""

    def __init__(self, sandbox, versions=("v1.DRAPlugin", "v1beta1.DRAPlugin"), driver=DRIVER, instance=""):
        self.sandbox, self.versions, self.driver = sandbox, list(versions), driver
        self.calls, self.metadata, self.registered = [], [], []
        self.fail, self.reply = None, None
        self.before_prepare = lambda: None
        self.health = None  # a queue of lists of DeviceHealth fields; None: no such service
        plugin_dir = sandbox.dir / "kubelet/plugins" / driver
        plugin_dir.mkdir(parents=True, exist_ok=True)
        tail = f"-{instance}" if instance else ""
        self.dra = plugin_dir / f"dra{tail}.sock"
        self.registration = sandbox.dir / "kubelet/plugins_registry" / f"{driver}{tail}-reg.sock"
        self.servers = [self._serve(self.dra), self._serve(self.registration)]

    def _serve(self, path):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((_Handler(self),))
        hidden = path.with_name("." + path.name)
        server.add_insecure_port(f"unix:{hidden}")
        server.start()
        os.rename(hidden, path)
        return server

    def stop(self):
        for path in (self.registration, self.dra):
            path.unlink(missing_ok=True)
        for server in self.servers:
            server.stop(None).wait(5)

    # ------------------------------------------------------------------ the methods

    def handle(self, path, request):
        name = path.rpartition("/")[2]
        types = pluginapi.messages
        if name == "GetInfo":
            return types["PluginInfo"](type="DRAPlugin", name=self.driver, endpoint=str(self.dra),
                                       supported_versions=self.versions)
        if name == "NotifyRegistrationStatus":
            self.registered.append((request.plugin_registered, request.error))
            return types["RegistrationStatusResponse"]()
        self.calls.append((path, [(c.namespace, c.uid, c.name) for c in request.claims]))
        if name == "NodePrepareResources":
            return self._prepare(request)
        answer = types["UnprepareResponse"]()
        for claim in request.claims:
            answer.claims.add(key=claim.uid).value.error = ""
        return answer

    def _prepare(self, request):
        self.before_prepare()
        answer = pluginapi.messages["PrepareResponse"]()
        if self.reply is not None:
            return self.reply(request, answer)
        for claim in request.claims:
            entry = answer.claims.add(key=claim.uid)
            if self.fail:
                entry.value.error = self.fail
                continue
            client = self.sandbox.client()
            body = client.ok(
                "GET", f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
            client.close()
            devices = []
            for i, result in enumerate(body["status"]["allocation"]["devices"]["results"]):
                name = f"{claim.uid}-{i}"
                devices.append({"name": name, "containerEdits": {
                    "env": [f"SHARE_{result['request'].upper()}={result['device']}"],
                    "deviceNodes": [{"path": f"/dev/nvidia{i}", "hostPath": "/dev/null"}]}})
                entry.value.devices.add(request_names=[result["request"].split("/")[0]], pool_name=result["pool"],
                                        device_name=result["device"],
                                        cdi_device_ids=[f"k8s.{self.driver}/claim={name}"],
                                        share_id=result.get("shareID", ""))
            spec = {"cdiVersion": "0.5.0", "kind": f"k8s.{self.driver}/claim", "devices": devices}
            path = self.sandbox.dir / "cdi" / f"k8s.{self.driver}-claim_{claim.uid}.json"
            path.with_suffix(".tmp").write_text(json.dumps(spec))
            os.rename(path.with_suffix(".tmp"), path)
        return answer


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, plugin):
        self.plugin = plugin

    def service(self, details):
        name = details.method.rpartition("/")[2]
        if details.method == pluginapi.HEALTH and self.plugin.health is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._health, request_deserializer=pluginapi.messages["WatchRequest"].FromString,
                response_serializer=lambda m: m.SerializeToString())
        requests = {"GetInfo": "InfoRequest", "NotifyRegistrationStatus": "RegistrationStatus",
                    "NodePrepareResources": "ClaimsRequest", "NodeUnprepareResources": "ClaimsRequest"}
        if name not in requests or not any(
                details.method.startswith(p) for p in [pluginapi.REGISTRATION] +
                [pluginapi.SERVICES[v] for v in self.plugin.versions]):
            return None

        def call(request, context):
            self.plugin.metadata.append((details.method, context.time_remaining()))
            return self.plugin.handle(details.method, request)
        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=pluginapi.messages[requests[name]].FromString,
            response_serializer=lambda m: m.SerializeToString())

    def _health(self, request, context):
        """Sends what the test puts into the queue; None ends the stream."""
        while context.is_active():
            try:
                devices = self.plugin.health.get(timeout=0.1)
            except queue.Empty:
                continue
            if devices is None:
                return
            update = pluginapi.messages["WatchResponse"]()
            for pool, device, state, timeout_s, message in devices:
                entry = update.devices.add(health=state, health_check_timeout_seconds=timeout_s, message=message)
                entry.device.pool_name, entry.device.device_name = pool, device
            yield update

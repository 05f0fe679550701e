# SPDX-License-Identifier: Apache-2.0
"""The daemon's API client and slice publisher against the sandbox's API server, which also misbehaves on request.

The program under test is tests/integration/publish.c: kube/ of the daemon with a command line. No GPU, no container.
"""

import gc
import json
import os
import pathlib
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
PUBLISH = BUILD / "tests/unit/daemon/alq-test-publish"
sys.path.insert(0, str(REPO / "sandbox"))
import api as logic  # noqa: E402
import certs  # noqa: E402
import httpd  # noqa: E402
import resources  # noqa: E402

DRIVER = "hami-core-gpu.project-hami.io"
NODE = "node-a"
TOKEN = "daemon-token"
SLICES = resources.resource("resourceslices")


def wait_for(what, condition, timeout=15):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout} s for {what}")


class Server:
    """One API server in this process."""

    def __init__(self, directory, version="1.36", gate_off=False, port=0, ca=None):
        self.directory = directory
        self.api = logic.Api(version, gate_off=gate_off)
        self.paths = ca or certs.make(directory)
        self.start(port)
        self.api.create(logic.SYSTEM, resources.resource("nodes"), "", {"metadata": {"name": NODE}})
        self.kubeconfig = os.path.join(directory, "kubeconfig")
        certs.kubeconfig(self.kubeconfig, f"https://{self.http.address}", self.paths[0], "daemon", TOKEN)

    def start(self, port=0):
        self.http = httpd.Server(self.api, self.paths[1], self.paths[2], port)
        self.http.tokens = {TOKEN: logic.SYSTEM}
        self.http.request_log = []
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def stop(self):
        """Ends the server and every connection to it, the watches included."""
        port = self.http.server_address[1]
        self.http.shutdown()
        self.http.server_close()
        for one in gc.get_objects():
            if isinstance(one, ssl.SSLSocket) and one.fileno() >= 0 and one.getsockname()[1] == port:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def slices(self):
        items, _ = self.api.list(SLICES, "", {})
        return items

    def mine(self):
        return [s for s in self.slices() if s["spec"]["driver"] == DRIVER and s["spec"].get("nodeName") == NODE]

    def writes(self):
        return [r for r in list(self.http.request_log) if r["method"] in ("POST", "PUT", "DELETE")]

    def fault(self, match, **more):
        with self.http.lock:
            self.http.faults.append(httpd.Fault({"match": match, **more}))

    def delete(self, name):
        self.api.delete(logic.SYSTEM, SLICES, "", name)

    def edit(self, name, change):
        new = json.loads(json.dumps(self.api.get(SLICES, "", name)))
        change(new)
        self.api.update(logic.SYSTEM, SLICES, "", name, new)


class Publisher:
    def __init__(self, kubeconfig, env=None, node=NODE, spread=0):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([PUBLISH, kubeconfig, node, str(spread)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, bufsize=1, env=env)

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def ask(self, line):
        self.say(line)
        return json.loads(self.process.stdout.readline())

    def is_published(self):
        return self.ask("state")["published"]

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.process.stdin.close()
        code = self.process.wait(10)
        self.process.stdout.close()
        return code


@unittest.skipUnless(PUBLISH.exists(), "built without unit tests")
class Case(unittest.TestCase):
    version, gate_off = "1.36", False

    def setUp(self):
        warnings.simplefilter("ignore", ResourceWarning)  # connections that the server's threads still hold
        self.directory = tempfile.mkdtemp(prefix="alq-pub-")
        self.addCleanup(shutil.rmtree, self.directory)
        self.server = Server(self.directory, self.version, self.gate_off)
        self.addCleanup(lambda: self.server.stop())

    def publisher(self, *args, **more):
        publisher = Publisher(*(args or (self.server.kubeconfig,)), **more)

        def end():
            if publisher.process.poll() is None:
                self.assertEqual(publisher.stop(), 0, publisher.text())
            publisher.log.close()
        self.addCleanup(end)
        return publisher

    def published(self, gpus=2, version="550.163.1"):
        publisher = self.publisher()
        publisher.say(f"gpus {gpus} {version}")
        self.settled(publisher, gpus)
        return publisher

    def settled(self, publisher, gpus):
        """All GPUs are there in a complete pool, and the publisher says so."""
        def complete():
            mine = self.server.mine()
            top = max((s["spec"]["pool"]["generation"] for s in mine), default=0)
            return (sum(len(s["spec"]["devices"]) for s in mine) == gpus and
                    all(s["spec"]["pool"]["generation"] == top and
                        s["spec"]["pool"]["resourceSliceCount"] == len(mine) for s in mine) and
                    publisher.is_published())
        try:
            wait_for(f"{gpus} GPUs in a complete pool", complete)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{publisher.text()}\n{self.server.http.request_log}") from None

    def assert_quiet(self, seconds=1.0):
        """Nothing but the watch is asked."""
        time.sleep(0.3)
        before = len(self.server.http.request_log)
        time.sleep(seconds)
        self.assertEqual(self.server.http.request_log[before:], [])


class Layout(Case):
    def test_one_slice_for_all_gpus(self):
        self.published(3)
        (one,) = self.server.mine()
        self.assertEqual([d["name"] for d in one["spec"]["devices"]], ["hami-gpu-0", "hami-gpu-1", "hami-gpu-2"])
        self.assertEqual(one["metadata"]["ownerReferences"][0]["kind"], "Node")
        self.assertEqual(len(self.server.writes()), 1)
        self.assert_quiet()

    def test_gpus_that_come_and_go(self):
        publisher = self.published(2)
        publisher.say("gpus 3 550.163.1")
        self.settled(publisher, 3)
        publisher.say("gpus 0 -")
        wait_for("no slices", lambda: not self.server.mine())
        self.assertNotIn("somebody else", publisher.text())
        publisher.say("gpus 1 550.163.1")
        self.settled(publisher, 1)

    def test_a_restart_writes_nothing(self):
        self.published(2).stop()
        before = len(self.server.writes())
        self.published(2)
        self.assert_quiet(0.5)
        self.assertEqual(len(self.server.writes()), before)


class LayoutBefore135(Case):
    version = "1.34"

    def test_one_slice_for_each_gpu(self):
        publisher = self.published(3)
        mine = self.server.mine()
        self.assertEqual(len(mine), 3)
        self.assertEqual({s["spec"]["pool"]["resourceSliceCount"] for s in mine}, {3})
        self.assertEqual(len(self.server.writes()), 3)
        self.assert_quiet()
        publisher.say("gpus 3 560.1.0")
        wait_for("the new driver version", lambda: all(
            s["spec"]["devices"][0]["attributes"]["driverVersion"]["version"] == "560.1.0" for s in self.server.mine()))
        self.settled(publisher, 3)
        self.assertEqual({s["spec"]["pool"]["generation"] for s in self.server.mine()}, {2})


class Others(Case):
    def test_wiped_slices_come_back_at_once(self):
        publisher = self.published(2)
        started = time.monotonic()
        for s in self.server.mine():
            self.server.delete(s["metadata"]["name"])
        self.settled(publisher, 2)
        self.assertLess(time.monotonic() - started, 5)
        self.assert_quiet(0.5)

    def test_edited_slices_are_corrected(self):
        publisher = self.published(2)
        (one,) = self.server.mine()

        def steal(s):
            s["spec"]["devices"] = s["spec"]["devices"][:1]
            s["spec"]["devices"][0]["capacity"]["memory"]["value"] = "64Gi"
        self.server.edit(one["metadata"]["name"], steal)
        self.settled(publisher, 2)
        (one,) = self.server.mine()
        self.assertEqual(one["spec"]["devices"][0]["capacity"]["memory"]["value"], "16Gi")

    def test_other_drivers_and_old_slices_of_ours(self):
        def make(name, driver, pool):
            self.server.api.create(logic.SYSTEM, SLICES, "", {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
                "spec": {"driver": driver, "nodeName": NODE, "devices": [{"name": "d"}],
                         "pool": {"name": pool, "generation": 9, "resourceSliceCount": 1}}})
        make("other", "gpu.example.com", NODE)
        make("old-pool", DRIVER, "old")
        make("old-generation", DRIVER, NODE)
        self.published(2)
        self.assertIn("other", [s["metadata"]["name"] for s in self.server.slices()])
        self.assertEqual(len(self.server.mine()), 1)
        self.assertGreater(self.server.mine()[0]["spec"]["pool"]["generation"], 9)

    def test_a_fight_is_slowed_down(self):
        publisher = self.published(1)
        begin, before = time.monotonic(), len(self.server.writes())
        while "does a second plugin use this driver name" not in publisher.text():
            self.assertLess(time.monotonic(), begin + 60, publisher.text())
            for s in self.server.mine():
                try:
                    self.server.edit(s["metadata"]["name"],
                                     lambda s: s["spec"]["devices"][0]["attributes"].pop("uuid", None))
                except logic.ApiError:
                    pass
            time.sleep(0.01)
        # A burst of 32, then one in three seconds, and what is under way.
        self.assertLess(len(self.server.writes()) - before, 36 + (time.monotonic() - begin) / 3)


class GateOff(Case):
    gate_off = True

    def test_dropped_fields_are_reported_once_and_not_written_again(self):
        publisher = self.published(2)
        self.assert_quiet()
        self.assertEqual(len(self.server.writes()), 1)
        self.assertEqual(publisher.text().count("DRAConsumableCapacity"), 1)
        self.assertNotIn("allowMultipleAllocations", self.server.mine()[0]["spec"]["devices"][0])


class Trouble(Case):
    def test_server_errors_are_waited_out(self):
        for fault in ({"match": "GET /version", "code": 503}, {"match": "GET /api/v1/nodes", "code": 500},
                      {"match": "GET .*resourceslices", "code": 429, "headers": {"Retry-After": "1"}},
                      {"match": "POST .*resourceslices", "code": 503},
                      {"match": "POST .*resourceslices", "close": True}):
            self.server.fault(**fault)
        self.published(2)
        self.assertEqual(self.server.http.faults, [])

    def test_a_refused_object_is_not_sent_in_a_loop(self):
        self.server.fault("POST .*resourceslices", code=422, count=100)
        publisher = self.publisher()
        publisher.say("gpus 2 550.163.1")
        wait_for("a refusal", self.server.writes)
        self.assert_quiet(2)
        self.assertEqual(len(self.server.writes()), 1)
        self.assertFalse(publisher.is_published())
        self.assertIn("a fault that the test asked for", publisher.text())

    def test_a_conflict_is_resolved_by_reading_again(self):
        self.server.fault("PUT .*resourceslices", code=409)
        publisher = self.published(1)
        publisher.say("gpus 2 550.163.1")
        self.settled(publisher, 2)

    def test_a_watch_that_is_refused_or_too_old_is_begun_again(self):
        for code in (410, 500, 403, 429):
            self.server.fault("GET .*watch=true", code=code)
        publisher = self.published(2)
        wait_for("the faults to be used up", lambda: not self.server.http.faults)
        time.sleep(0.2)
        self.server.delete(self.server.mine()[0]["metadata"]["name"])
        self.settled(publisher, 2)

    def test_the_server_goes_and_comes_back_without_its_memory(self):
        publisher = self.published(2)
        port = self.server.http.server_address[1]
        self.server.stop()
        again = Server(tempfile.mkdtemp(dir=self.directory), port=port, ca=self.server.paths)
        self.server = again
        self.settled(publisher, 2)

    def test_an_unknown_node_is_named_and_waited_for(self):
        publisher = self.publisher(self.server.kubeconfig, node="node-b")
        publisher.say("gpus 1 550.163.1")
        wait_for("a complaint", lambda: "node-b is not known" in publisher.text())
        self.assertEqual(self.server.slices(), [])
        self.server.api.create(logic.SYSTEM, resources.resource("nodes"), "", {"metadata": {"name": "node-b"}})
        wait_for("the slice", self.server.slices)

    def test_without_the_right_to_see_the_node_there_is_no_owner(self):
        self.server.fault("GET /api/v1/nodes", code=403, count=100)
        self.published(1)
        self.assertNotIn("ownerReferences", self.server.mine()[0]["metadata"])


class Credentials(Case):
    def in_cluster(self):
        """A token file for a program that believes to run in a pod; the path is compiled in, so a kubeconfig names it."""
        token = os.path.join(self.directory, "token")
        with open(token, "w", encoding="utf-8") as f:
            f.write(TOKEN + "\n")
        config = os.path.join(self.directory, "token-kubeconfig")
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"""apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "https://{self.server.http.address}", certificate-authority: {self.server.paths[0]}}}}}]
users: [{{name: u, user: {{tokenFile: token}}}}]
""")
        return config, token

    def test_a_rotated_token_is_read_again_after_a_401(self):
        config, token = self.in_cluster()
        publisher = self.publisher(config)
        publisher.say("gpus 1 550.163.1")
        self.settled(publisher, 1)
        with open(token, "w", encoding="utf-8") as f:
            f.write("second")
        self.server.http.tokens = {"second": logic.SYSTEM}
        publisher.say("gpus 2 550.163.1")
        self.settled(publisher, 2)

    def test_a_wrong_token_is_refused_and_not_hammered(self):
        self.server.http.tokens = {}
        publisher = self.publisher()
        publisher.say("gpus 1 550.163.1")
        wait_for("a complaint", lambda: "401" in publisher.text())
        time.sleep(1.5)
        self.assertLess(len(self.server.http.request_log), 12)

    def test_a_server_of_another_authority_is_not_trusted(self):
        other = tempfile.mkdtemp(dir=self.directory)
        ca = certs.make(other)[0]
        config = os.path.join(other, "kubeconfig")
        certs.kubeconfig(config, f"https://{self.server.http.address}", ca, "daemon", TOKEN)
        publisher = self.publisher(config)
        publisher.say("gpus 1 550.163.1")
        wait_for("a complaint", lambda: "certificate" in publisher.text())
        self.assertEqual(self.server.http.request_log, [])

    def test_an_insecure_kubeconfig_is_taken_with_a_warning(self):
        config = os.path.join(self.directory, "insecure")
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"""current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "https://{self.server.http.address}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{token: {TOKEN}}}}}]
""")
        publisher = self.publisher(config)
        publisher.say("gpus 1 550.163.1")
        self.settled(publisher, 1)
        self.assertIn("insecure-skip-tls-verify", publisher.text())


    def test_a_token_written_into_the_kubeconfig_is_read_again_when_the_file_changes(self):
        publisher = self.published(1)
        self.server.http.tokens = {"second": logic.SYSTEM}
        certs.kubeconfig(self.server.kubeconfig + ".new", f"https://{self.server.http.address}", self.server.paths[0],
                         "daemon", "second")
        os.rename(self.server.kubeconfig + ".new", self.server.kubeconfig)
        publisher.say("gpus 2 550.163.1")
        self.settled(publisher, 2)

    def test_a_kubeconfig_that_is_being_written_leaves_the_old_one_in_force(self):
        publisher = self.published(1)
        with open(self.server.kubeconfig, "w", encoding="utf-8") as f:
            f.write("current-context: [")
        self.server.fault("PUT .*resourceslices", code=401)
        publisher.say("gpus 2 550.163.1")
        self.settled(publisher, 2)
        self.assertIn("the old ones stay", publisher.text())

    def test_a_server_whose_authority_changes_is_trusted_when_the_file_does(self):
        config, _ = self.in_cluster()
        publisher = self.publisher(config)
        publisher.say("gpus 1 550.163.1")
        self.settled(publisher, 1)
        port = self.server.http.server_address[1]
        self.server.stop()
        fresh = tempfile.mkdtemp(dir=self.directory)
        paths = certs.make(fresh)
        shutil.copy(paths[0], self.server.paths[0])
        self.server.paths = [self.server.paths[0], *paths[1:]]
        with open(config, "a", encoding="utf-8") as f:
            f.write("# touched: the next 401 or minute reads it again\n")
        self.server.start(port)
        self.server.fault("GET /version", code=401)
        publisher.say("gpus 2 550.163.1")
        self.settled(publisher, 2)


class Proxy:
    """Takes CONNECT and leads every connection to the one server."""

    def __init__(self, port):
        self.port, self.asked = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096) or b"\r\n\r\n"
            self.asked.append(head.split(b"\r\n")[0].decode())
            server = socket.create_connection(("127.0.0.1", self.port))
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    @staticmethod
    def pump(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for s in (one, other):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Ways(Case):
    """How the server is reached."""

    def setUp(self):
        super().setUp()
        self.proxy = Proxy(self.server.http.server_address[1])
        self.addCleanup(self.proxy.listener.close)

    def config(self, server, more=""):
        path = os.path.join(self.directory, "way")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"""current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}", certificate-authority: {self.server.paths[0]}{more}}}}}]
users: [{{name: u, user: {{token: {TOKEN}}}}}]
""")
        return path

    def environment(self, **more):
        clean = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return {**clean, **more}

    def start(self, config, **env):
        publisher = self.publisher(config, env=self.environment(**env))
        publisher.say("gpus 1 550.163.1")
        return publisher

    def test_the_proxy_of_the_environment_is_used(self):
        port = self.server.http.server_address[1]
        config = self.config(f"https://10.99.0.1:{port}", ", tls-server-name: localhost")
        self.settled(self.start(config, HTTPS_PROXY=self.proxy.url, NO_PROXY="192.168.0.0/16,.svc"), 1)
        self.assertIn(f"CONNECT 10.99.0.1:{port} HTTP/1.1", self.proxy.asked)

    def test_no_proxy_takes_ranges_of_addresses_and_loopback_needs_none(self):
        port = self.server.http.server_address[1]
        for server, no_proxy in ((f"https://127.0.0.2:{port}", "10.0.0.0/8,127.0.0.0/29"),
                                 (f"https://127.0.0.1:{port}", "")):
            self.start(self.config(server), HTTPS_PROXY=self.proxy.url, NO_PROXY=no_proxy)
        time.sleep(1)
        self.assertEqual(self.proxy.asked, [])

    def test_the_proxy_of_the_kubeconfig_wins(self):
        port = self.server.http.server_address[1]
        config = self.config(f"https://127.0.0.1:{port}", f", proxy-url: '{self.proxy.url}'")
        self.settled(self.start(config, HTTPS_PROXY="http://127.0.0.1:1"), 1)
        self.assertTrue(self.proxy.asked)

    def test_a_server_with_an_ipv6_address(self):
        try:
            listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        except OSError as error:
            self.skipTest(f"no IPv6 on this machine: {error}")
        self.addCleanup(listener.close)

        def serve():
            while True:
                try:
                    client = listener.accept()[0]
                except OSError:
                    return
                server = socket.create_connection(self.server.http.server_address)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=Proxy.pump, args=(one, other), daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        self.settled(self.start(self.config(f"https://[::1]:{listener.getsockname()[1]}")), 1)


class Outage(Case):
    def test_a_server_that_comes_and_goes(self):
        """ALIQUOT_OUTAGE_S=3600 for the hour; it may be down when a GPU comes, and must have all in the end."""
        dice, publisher, gpus = random.Random(7), self.published(2), 2
        port = self.server.http.server_address[1]
        end = time.monotonic() + float(os.environ.get("ALIQUOT_OUTAGE_S", "4"))
        while time.monotonic() < end:
            self.server.stop()
            gpus = dice.randint(1, 4)
            publisher.say(f"gpus {gpus} 550.163.{dice.randint(1, 99)}")
            time.sleep(dice.choice((0.05, 0.5, 1)))
            self.server.start(port)
            for one in self.server.mine():
                if dice.random() < 0.3:
                    self.server.delete(one["metadata"]["name"])
            time.sleep(dice.choice((0.05, 0.5, 1)))
        wait_for("the pool", lambda: self.whole(gpus), 60)
        self.settled(publisher, gpus)
        self.assert_quiet(0.5)

    def whole(self, gpus):
        return sum(len(s["spec"]["devices"]) for s in self.server.mine()) == gpus

    def test_the_start_is_spread(self):
        many = [Publisher(self.server.kubeconfig, spread=2) for _ in range(8)]
        started = time.monotonic()
        for one in many:
            one.say("gpus 0 -")
        first = []
        while time.monotonic() < started + 10 and len(first) < 8:
            first = [r for r in list(self.server.http.request_log) if r["path"] == "/version"]
            time.sleep(0.1)
            if time.monotonic() < started + 0.4:
                self.assertLess(len(first), 8)
        self.assertEqual(len(first), 8)
        for one in many:
            self.assertEqual(one.stop(), 0)
            one.log.close()


class Claims(Case):
    def test_a_claim_is_got_or_its_absence_named(self):
        self.server.api.create(logic.SYSTEM, resources.resource("resourceclaims"), "default", {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}})
        publisher = self.publisher()
        got = publisher.ask("claim default one 5000")
        self.assertEqual((got["status"], got["code"]), (200, 0))
        self.assertTrue(got["uid"])
        missing = publisher.ask("claim default two 5000")
        self.assertEqual((missing["status"], missing["code"]), (404, -2))
        self.assertIn('"two" not found', missing["text"])
        odd = publisher.ask("claim default ../../nodes/x 5000")
        self.assertEqual(odd["status"], 404)

    def test_a_deadline_holds_and_a_cancelled_call_stays_silent(self):
        self.server.fault("resourceclaims/slow", delaySeconds=1, code=200, count=2)
        publisher = self.publisher()
        late = publisher.ask("claim default slow 100")
        self.assertEqual((late["status"], late["code"]), (0, -8))
        publisher.say("claim default slow 5000")
        publisher.say("cancel")
        self.assertEqual(publisher.ask("claim default quick 5000")["status"], 404)

    def test_redirects_are_not_followed_and_garbage_is_no_answer(self):
        publisher = self.publisher()
        self.server.fault("resourceclaims/moved", code=302, headers={"Location": "https://127.0.0.1:1/"})
        moved = publisher.ask("claim default moved 5000")
        self.assertEqual((moved["status"], moved["code"]), (302, -11))
        self.server.fault("resourceclaims/cut", close=True, count=2)  # libcurl tries once more
        self.assertEqual(publisher.ask("claim default cut 5000")["status"], 0)


if __name__ == "__main__":
    unittest.main()

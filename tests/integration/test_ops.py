# SPDX-License-Identifier: Apache-2.0
"""What operators do with aliquotd: probes, the admin socket and the tool, limits changed, settings read again, sockets taken
away, a port that is taken."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import unittest

import daemon_world as dw
from daemon_world import BUILD, World, result, wait_for

TIMEOUT_S = 240
GROUP = 47011
GiB = 1 << 30
USAGE = {"countedBytes", "overheadBytes", "spilledBytes", "physicalBytes", "peakBytes", "processes", "usedPercent", "usedNs", "chargedNs",
         "throttledNs", "launches", "unknownEntries", "refusals"}


def setUpModule():
    dw.need_daemon()


def talk(where, text, timeout=5):
    """The bytes that come back for a request as it stands, until the server closes or is silent."""
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(timeout)
        s.connect(where)
        s.sendall(text if isinstance(text, bytes) else text.encode())
        out = b""
        try:
            while data := s.recv(65536):
                out += data
        except (TimeoutError, ConnectionResetError):
            pass
        return out.decode()


def ask(where, path, method="GET", body=""):
    """(status, body)"""
    answer = talk(where, f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    head, _, content = answer.partition("\r\n\r\n")
    return int(head.split()[1]), content


class OpsWorld(World):
    def __init__(self, **more):
        super().__init__(**more)
        os.chmod(self.root, 0o711)

    @property
    def admin(self):
        return self.path("run", "aliquotd.sock")

    def address(self):
        host, port = wait_for("the metrics address", lambda: re.search(r"serving /metrics address=(\S+):(\d+)", self.said())).groups()
        return host, int(port)

    def get(self, path):
        status, body = ask(self.admin, path)
        if status != 200:
            raise AssertionError(f"{path}: {status} {body}")
        return json.loads(body)

    def findings(self):
        return {f["id"]: f for f in self.get("/v1/doctor")["findings"]}

    def is_ready(self):
        return ask(self.address(), "/healthz/ready")

    def tool(self, *args):
        done = subprocess.run([BUILD / "src/cli/aliquot", "--socket", self.admin, *args], capture_output=True, text=True, timeout=20,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def limits(self, share):
        """(memory, cores) in force, from the control file as the library reads it."""
        with open(self.path("run", "shares", share, "control"), "rb") as file:
            data = file.read()
        sequence, = struct.unpack_from("<I", data, 256)
        memory, = struct.unpack_from("<Q", data, 512 + 256 * (sequence & 1))
        cores, = struct.unpack_from("<I", data, 512 + 256 * (sequence & 1) + 24)
        return memory, cores


class Operations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = OpsWorld()
        cls.addClassCleanup(cls.world.close)
        cls.settings = cls.world.path("aliquotd.yaml")
        cls.write_settings("")
        cls.world.start(config=cls.settings, admin_group=GROUP, log_level=None)
        cls.peer = cls.world.peer()
        cls.addClassCleanup(cls.peer.close)

    @classmethod
    def write_settings(cls, text):
        with open(cls.settings, "w", encoding="utf-8") as file:
            file.write(text)

    def share(self, name, cores="30", memory="4Gi", device="hami-gpu-0"):
        claim = self.world.claim(name, [result(cores=cores, memory=memory, device=device)])
        self.peer.prepare(claim)
        self.addCleanup(lambda: (self.peer.unprepare(claim), self.world.delete_claim(claim)))
        return claim, f"{claim[2]}-0"

    def reload(self):
        before = self.world.said().count("SIGHUP")
        self.world.daemon.send_signal(signal.SIGHUP)
        wait_for("the answer to SIGHUP", lambda: self.world.said().count("SIGHUP") > before)

    # ---- probes and HTTP

    def test_probes_answer_on_tcp_and_on_the_admin_socket(self):
        where = self.world.address()
        wait_for("ready", lambda: ask(where, "/healthz/ready") == (200, "ok\n"))
        for address in where, self.world.admin:
            self.assertEqual(ask(address, "/healthz/live"), (200, "ok\n"))
        self.assertEqual(ask(where, "/v1/shares")[0], 404, "the admin interface is not on TCP")
        self.assertEqual(ask(where, "/healthz/live", "POST")[0], 405)

    def test_requests_that_are_none_are_refused(self):
        where = self.world.address()
        for text, status in (("GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505), ("GET /\r\n\r\n", 400), ("get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
                             ("GET / HTTP/1.1\r\nHost: x\r\nX: " + "y" * 9000, 431),
                             ("PUT /v1/shares/x HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n", 413),
                             ("PUT /v1/shares/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501)):
            for address in where, self.world.admin:
                answer = talk(address, text)
                self.assertEqual(answer.split()[1], str(status), text[:60])
                self.assertIn("Connection: close", answer)

    def test_one_connection_serves_many_requests(self):
        request = "GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n"
        last = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
        answer = talk(self.world.address(), request * 5 + last)
        self.assertEqual(answer.count("HTTP/1.1 200 OK"), 6)

    def test_idle_connections_do_not_keep_others_out(self):
        idle = [socket.create_connection(self.world.address()) for _ in range(100)]
        try:
            self.assertEqual(ask(self.world.address(), "/healthz/live")[0], 200)
            self.assertEqual(ask(self.world.admin, "/v1/version")[0], 200)
        finally:
            for s in idle:
                s.close()

    def test_peers_that_dawdle_do_not_keep_others_out(self):
        """Neither with half a request nor with answers that they do not take."""
        for sent in b"G", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400:
            for where in self.world.address(), self.world.admin:
                slow = []
                for _ in range(64):
                    s = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
                    self.addCleanup(s.close)
                    s.connect(where)
                    s.sendall(sent)
                    slow.append(s)
                self.assertEqual(ask(where, "/healthz/live"), (200, "ok\n"), sent[:20])
                for s in slow:
                    s.close()

    # ---- the admin socket

    @unittest.skipIf(os.geteuid() != 0, "other users need root")
    def test_group_reads_and_nobody_else(self):
        def as_user(*groups):
            code = ("import socket,sys\n"
                    "def ask(m):\n"
                    " s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                    " s.sendall(b'%s /v1/shares/x HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' % m)\n"
                    " return s.recv(99).split()[1].decode()\n"
                    "try:\n print(ask(b'GET'), ask(b'PUT'))\nexcept OSError as e:\n print(e.errno)\n")
            done = subprocess.run(["setpriv", "--reuid", "47010", "--regid", "47010", *groups, "/usr/bin/python3", "-c", code,
                                   self.world.admin], capture_output=True, text=True, check=False)
            return done.stdout.strip() or done.stderr
        self.assertEqual(as_user("--groups", str(GROUP)), "404 403")
        self.assertEqual(as_user("--clear-groups"), "13")
        self.assertEqual(os.stat(self.world.admin).st_mode & 0o777, 0o660)

    def test_gpus_claims_and_shares_are_told(self):
        claim, share = self.share("told", "30", "4Gi")
        version = self.world.get("/v1/version")
        self.assertEqual((version["driver"], version["node"]), (dw.DRIVER, dw.NODE))
        gpus = self.world.get("/v1/gpus")["gpus"]
        self.assertEqual([g["uuid"] for g in gpus], dw.UUIDS)
        self.assertEqual(gpus[0]["promised"], {"memoryBytes": 4 * GiB, "cores": 30, "shares": 1})
        told, = (c for c in self.world.get("/v1/claims")["claims"] if c["uid"] == claim[2])
        self.assertEqual((told["name"], told["prepared"], told["shares"]), ("told", True, [share]))
        told = wait_for("the share's figures", lambda: next((s for s in self.world.get("/v1/shares")["shares"]
                                                             if s["id"] == share and "usage" in s), None))
        self.assertEqual(told["limits"], {"memoryBytes": 4 * GiB, "cores": 30})
        self.assertEqual(set(told["usage"]), USAGE)
        self.assertEqual({v for k, v in told["usage"].items() if k != "refusals"}, {0})
        self.assertEqual(told["usage"]["refusals"], {})
        self.assertEqual(json.loads(ask(self.world.admin, f"/v1/shares/{share}")[1]), told)

    def test_limits_set_are_in_force_and_never_more_than_the_gpu_has(self):
        _, share = self.share("set-a", "30", "4Gi")
        self.share("set-b", "50", "40Gi")
        path = f"/v1/shares/{share}"
        status, body = ask(self.world.admin, path, "PATCH", '{"memory": "8Gi", "cores": 50}')
        self.assertEqual(status, 200, body)
        self.assertEqual(self.world.limits(share), (8 * GiB, 50))
        for body, code, words in (('{"cores": 51}', 409, "default/set-b"), ('{"memory": "60Gi"}', 409, "default/set-b"),
                                  ('{"memory": "1Ti"}', 400, "hami-gpu-0"), ('{"cores": 101}', 400, "cores"), ('{"memory": "x"}', 400, "memory"),
                                  ('{"memory": 0}', 400, "memory"), ('{"cors": 1}', 400, "cors"), ("{}", 400, "memory or cores"),
                                  ("nonsense", 400, "request")):
            status, answer = ask(self.world.admin, path, "PATCH", body)
            self.assertEqual(status, code, f"{body}: {answer}")
            self.assertIn(words, json.loads(answer)["error"])
        self.assertEqual(self.world.limits(share), (8 * GiB, 50))
        self.assertEqual(ask(self.world.admin, "/v1/shares/none-0", "PATCH", '{"cores": 1}')[0], 404)

    def test_limits_set_outlast_a_restart_and_a_repeated_prepare(self):
        claim, share = self.share("stays")
        self.assertEqual(self.world.tool("set", share, "--cores", "10", "--memory=2Gi")[0], 0)
        self.assertEqual(self.world.limits(share), (2 * GiB, 10))
        self.world.stop(signal.SIGKILL)
        self.world.start(config=self.settings, admin_group=GROUP, log_level=None)
        type(self).peer = self.world.peer()
        self.assertEqual(self.world.limits(share), (2 * GiB, 10))
        self.peer.prepare(claim)
        self.assertEqual(self.world.limits(share), (2 * GiB, 10))
        self.assertEqual(self.world.tool("set", share, "--reset")[0], 0)
        self.assertEqual(self.world.limits(share), (4 * GiB, 30))

    # ---- the tool

    def test_tool_prints_what_the_daemon_says(self):
        _, share = self.share("tool", "20", "3Gi")
        line = rf"{share} +default/tool +hami-gpu-0 +3Gi +20 +0 +0 +0 +0\n"
        wait_for("the share's figures", lambda: re.search(line, self.world.tool("shares")[1]))
        status, out, _ = self.world.tool("shares", "--output", "json")
        self.assertIn(share, [s["id"] for s in json.loads(out)["shares"]])
        self.assertRegex(self.world.tool("version")[1], r"^aliquot \S+\naliquotd \S+ \(driver ")

    def test_tool_says_what_it_does_not_understand_and_what_fails(self):
        for args in ((), ("nonsense",), ("shares", "more"), ("set",), ("set", "x"), ("set", "x", "--cores", "101"),
                     ("set", "x", "--memory", "much"), ("set", "../x", "--reset"), ("set", "x", "--reset", "--cores", "1"), ("doctor", "-o", "xml")):
            status, out, err = self.world.tool(*args)
            self.assertEqual((status, out), (2, ""), args)
            self.assertIn("--help", err)
        status, _, err = self.world.tool("set", "none-0", "--cores", "1")
        self.assertEqual((status, err), (1, "aliquot: there is no share none-0\n"))
        for command in ("doctor", "shares", "set", "version"):
            self.assertRegex(self.world.tool(command, "--help")[1], rf"^usage: aliquot {command}")

    def test_doctor_without_a_daemon_says_so(self):
        done = subprocess.run([BUILD / "src/cli/aliquot", "doctor", "--output=json", "--socket", self.world.path("none.sock")],
                              capture_output=True, text=True, check=False)
        finding = json.loads(done.stdout)["findings"][0]
        self.assertEqual((done.returncode, finding["id"], finding["level"]), (1, "daemon.socket", "error"))
        self.assertIn("none.sock", finding["text"])

    # ---- settings

    def test_sighup_takes_over_what_is_live_and_names_what_is_not(self):
        self.addCleanup(lambda: (self.write_settings(""), self.reload()))
        self.write_settings("logLevel: debug\n")
        self.reload()
        self.assertIn("in force now: logLevel", self.world.said())
        self.share("debugged")
        self.write_settings("logLevle: info\n")
        self.reload()
        said = self.world.said()
        self.assertIn('the settings stay as they were', said)
        self.assertIn('did you mean "logLevel"?', said)
        self.assertEqual(self.world.findings()["config.reload"]["level"], "error")
        self.write_settings("logLevel: debug\nextraEnv: [A=1]\n")
        self.reload()
        found = self.world.findings()
        self.assertNotIn("config.reload", found)
        self.assertIn("extraEnv", found["config.restart"]["text"])

    # ---- sockets

    def test_sockets_that_are_taken_away_are_made_again(self):
        for path in (self.world.dra_socket, self.world.registration_socket, self.world.admin):
            os.unlink(path)
            wait_for(f"{path} again", lambda: os.path.exists(path))  # pylint: disable=cell-var-from-loop
        shutil.rmtree(self.world.path("registry"))
        wait_for("the registration socket in a new directory", lambda: os.path.exists(self.world.registration_socket))
        again = self.world.peer()
        self.addCleanup(again.close)
        self.assertEqual(again.prepare(), {})
        self.assertEqual(ask(self.world.address(), "/healthz/live")[0], 200)
        self.peer.prepare()  # who was connected stays so


@unittest.skipIf(os.geteuid() != 0, "capabilities need root")
@unittest.skipUnless(shutil.which("setpriv"), "setpriv is not installed")
class Capabilities(unittest.TestCase):
    NEEDED = {"chown": 0, "dac_override": 1, "fowner": 3, "mknod": 27, "sys_ptrace": 19}

    @classmethod
    def setUpClass(cls):
        cls.world = OpsWorld()
        cls.addClassCleanup(cls.world.close)

    @staticmethod
    def with_only(names):
        return ["setpriv", "--bounding-set", ",".join(["-all", *(f"+{n}" for n in names)])]

    def test_list_suffices_and_nothing_else_is_kept(self):
        self.world.start(prefix=self.with_only(self.NEEDED))
        self.addCleanup(self.world.stop)
        peer = self.world.peer()
        self.addCleanup(peer.close)
        claim = self.world.claim("least", [result(cores="30", memory="4Gi")])
        self.assertFalse(peer.prepare(claim)[claim[2]].error)
        self.assertEqual(self.world.tool("set", f"{claim[2]}-0", "--cores", "10")[0], 0)
        self.assertFalse(peer.unprepare(claim)[claim[2]].error)
        self.check_kept()

    def test_others_are_dropped_for_good(self):
        self.world.start()
        self.addCleanup(self.world.stop)
        self.check_kept()

    def check_kept(self):
        mask = sum(1 << bit for bit in self.NEEDED.values())
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.world.daemon.pid)], stdout=subprocess.PIPE, text=True, check=False)
        for pid in (self.world.daemon.pid, *map(int, children.stdout.split())):
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                status = dict(line.split(":", 1) for line in file)
            for name in ("CapPrm", "CapEff", "CapBnd"):
                self.assertEqual(int(status[name], 16), mask, f"{name} of {pid}")
            self.assertEqual(status["NoNewPrivs"].strip(), "1")

    def test_one_that_is_missing_is_named(self):
        for missing in self.NEEDED:
            command = [*self.with_only(n for n in self.NEEDED if n != missing), *self.world.command()]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=20, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"capability CAP_{missing.upper()} is missing: it is needed", done.stderr)


class Starts(unittest.TestCase):
    """Daemons that start in a world that is not as it should be."""

    def setUp(self):
        self.world = OpsWorld()
        self.addCleanup(self.world.close)

    def test_metrics_port_that_is_taken_is_a_finding_until_it_is_free(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            self.world.start(metrics_address=address)
            finding = self.world.findings()["metrics.address"]
            self.assertEqual(finding["level"], "warning")
            self.assertIn("another process has the port", finding["text"])
        wait_for("the port", lambda: f"serving /metrics address={address}" in self.world.said())
        self.assertNotIn("metrics.address", self.world.findings())

    def test_not_ready_but_alive_while_the_api_server_cannot_be_reached(self):
        with open(self.world.kubeconfig, encoding="utf-8") as file:
            text = re.sub(r"(https://[^:]+):\d+", r"\1:1", file.read())
        with open(self.world.path("nowhere"), "w", encoding="utf-8") as file:
            file.write(text)
        self.world.start(kubeconfig=self.world.path("nowhere"))
        status, why = self.world.is_ready()
        self.assertEqual(status, 503)
        self.assertIn("ResourceSlices", why)
        self.assertEqual(ask(self.world.address(), "/healthz/live")[0], 200)

    def test_log_as_json_has_its_fields_and_no_secret(self):
        self.world.start(log_format="json")
        wait_for("ready", lambda: ask(self.world.admin, "/healthz/ready")[0] == 200)
        self.assertEqual(self.world.stop(), 0)
        lines = [json.loads(line) for line in self.world.said().splitlines()]
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("error", "warn", "info", "debug"))
            self.assertTrue(line["module"] and line["message"])
        self.assertNotIn(dw.TOKEN, self.world.said())
        self.assertFalse(os.path.exists(self.world.admin))

# SPDX-License-Identifier: Apache-2.0
"""aliquotd as a gRPC server and as the kubelet's plugin: registration, health streams, sockets, and a peer that does
everything wrong. What the calls do to claims is in test_daemon.py."""

import fcntl
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import grpc  # noqa: E402
import places  # noqa: E402
from daemon_world import BUILD, DRIVER, NODE, UUIDS, SharedDaemon, World, httpd, need_daemon, result, wait_for  # noqa: E402
from kubelet_peer import V1, Peer  # noqa: E402

TIMEOUT_S = 200
RAW = type("Raw", (), {"FromString": bytes})
HEALTHY, UNHEALTHY = 1, 2
PREPARE = f"/{V1}.DRAPlugin/NodePrepareResources"


setUpModule = need_daemon


class Server(SharedDaemon):
    def setUp(self):
        self.peer = self.connect(self.world.dra_socket)
        self.open = []

    def tearDown(self):
        for claim in self.open:
            self.peer.unprepare(claim)
        self.assertEqual(self.world.tree(), {})

    def connect(self, path):
        peer = Peer(path)
        self.addCleanup(peer.close)
        return peer

    def claim(self, name, results, **more):
        claim = self.world.claim(name, results, **more)
        self.open.append(claim)
        return claim

    def prepare(self, claim, timeout=45):
        reply = self.peer.prepare(claim, timeout=timeout)
        self.assertEqual(list(reply), [claim[2]])
        return reply[claim[2]]

    def status_of(self, path, message, timeout=10, peer=None):
        with self.assertRaises(grpc.RpcError) as caught:
            (peer or self.peer).method(path, RAW)(message, timeout=timeout)
        return caught.exception.code(), caught.exception.details()

    # ---- registration

    def test_get_info_names_driver_endpoint_and_versions(self):
        info = self.connect(self.world.registration_socket).get_info()
        self.assertEqual((info.type, info.name, info.endpoint), ("DRAPlugin", DRIVER, self.world.dra_socket))
        self.assertEqual(list(info.supported_versions), ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth",
                                                         "v1alpha1.DRAResourceHealth"])

    def test_notify_is_logged_and_serving_goes_on(self):
        peer = self.connect(self.world.registration_socket)
        peer.notify()
        wait_for("the log line", lambda: "registered by the kubelet" in self.world.said())
        peer.notify(registered=False, error="endpoint is taken")
        wait_for("the log line", lambda: "endpoint is taken" in self.world.said())
        self.assertEqual(peer.get_info().name, DRIVER)
        self.assertEqual(dict(self.peer.prepare()), {})

    # ---- what batches may look like

    def test_undecodable_request_is_an_error_of_the_call(self):
        code, _ = self.status_of(PREPARE, b"\x0a\xff\xff\xff\xff\x7f")
        self.assertEqual(code, grpc.StatusCode.INTERNAL)

    def test_empty_batch_gives_empty_reply(self):
        self.assertEqual(dict(self.peer.prepare()), {})
        self.assertEqual(dict(self.peer.unprepare()), {})

    def test_claim_twice_in_a_batch_is_answered_once(self):
        claim = self.claim("again", [result()])
        reply = self.peer.prepare(claim, claim)
        self.assertEqual(list(reply), [claim[2]])
        self.assertEqual(reply[claim[2]].error, "")
        self.assertEqual(dict(self.peer.unprepare(claim, claim)).keys(), {claim[2]})

    def test_claim_without_uid_name_or_namespace_is_refused_alone(self):
        good = self.claim("good", [result()])
        uid = "11111111-2222-3333-4444-555555555555"
        reply = self.peer.prepare(good, ("default", "x", ""), ("default", "", uid))
        self.assertEqual(reply[good[2]].error, "")
        self.assertIn("uid", reply[""].error)
        self.assertIn("name", reply[uid].error)
        self.assertIn("namespace", self.peer.prepare(("", "x", uid))[uid].error)
        self.assertIn("uid", self.peer.unprepare(("default", "x", ""))[""].error)

    def test_thousand_claims_in_a_batch(self):
        claims = [self.world.claim(f"thousand-{i}", [result(cores="0", memory="1Mi")]) for i in range(1000)]
        reply = self.peer.prepare(*claims)
        self.assertEqual(sorted(reply), sorted(c[2] for c in claims))
        self.assertEqual({reply[c[2]].error for c in claims}, {""})
        self.assertEqual({a.error for a in self.peer.unprepare(*claims).values()}, {""})

    def test_more_claims_than_are_taken_are_refused_by_their_number(self):
        request = b"".join(b"\x0a\x06\x12\x04%04d" % i for i in range(5000))
        code, details = self.status_of(PREPARE, request)
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("5000 claims", details)

    # ---- health

    def test_health_in_both_forms(self):
        for package in ("v1", "v1alpha1"):
            with self.subTest(package):
                watch = self.peer.watch_health(package, timeout=20)
                self.addCleanup(watch.cancel)
                devices = next(watch).devices
                self.assertEqual([(d.device.pool_name, d.device.device_name, d.health, d.message) for d in devices],
                                 [(NODE, "hami-gpu-0", HEALTHY, ""), (NODE, "hami-gpu-1", HEALTHY, "")])
                for d in devices:
                    self.assertLess(abs(d.last_updated_time - time.time()), 30)
                    self.assertEqual(d.health_check_timeout_seconds, 30)

    def test_health_is_sent_again_before_it_is_stale(self):
        watch = self.peer.watch_health(timeout=60)
        self.addCleanup(watch.cancel)
        first, second = next(watch), next(watch)
        later = second.devices[0].last_updated_time - first.devices[0].last_updated_time
        self.assertLessEqual(later, 20)
        self.assertEqual(second.devices[0].health, HEALTHY)

    def test_health_watchers_that_never_read_or_go_away_cost_nothing(self):
        watches = [self.peer.watch_health() for _ in range(50)]
        other = self.connect(self.world.dra_socket)
        leaving = [other.watch_health() for _ in range(50)]
        for watch in leaving[::2]:
            watch.cancel()
        other.close()
        watch = self.connect(self.world.dra_socket).watch_health(timeout=20)
        self.addCleanup(watch.cancel)
        self.assertEqual(len(next(watch).devices), 2)
        for watch in watches:
            watch.cancel()

    # ---- transport

    def test_cancelled_call_leaves_the_daemon_well(self):
        self.world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/gone", "delaySeconds": 0.5, "code": 200}))
        claim = self.claim("gone", [result()])
        future = self.peer.prepare_later(claim)
        time.sleep(0.1)
        future.cancel()
        self.assertEqual(self.prepare(claim).error, "")

    def test_unknown_methods_and_services_are_unimplemented(self):
        for path, words in (("/v1.Nothing/Go", "unknown service v1.Nothing"),
                            (f"/{V1}.DRAPlugin/Go", f"unknown method Go for service {V1}.DRAPlugin"),
                            ("/pluginregistration.Registration/GetInfo", "unknown service pluginregistration")):
            code, details = self.status_of(path, b"")
            self.assertEqual(code, grpc.StatusCode.UNIMPLEMENTED)
            self.assertIn(words, details)

    def test_message_of_4_mib_is_taken_and_one_above_is_refused(self):
        # Claims without anything in them, all with the same empty uid.
        code, details = self.status_of(PREPARE, b"\x0a\x00" * (2 << 20))
        self.assertNotEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        code, details = self.status_of(PREPARE, b"\x0a\x00" * (2 << 20) + b"\0")
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("larger than max", details)

    def test_garbage_on_the_socket_closes_that_connection_alone(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.world.dra_socket)
            s.settimeout(5)
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while s.recv(4096):
                pass
        self.assertEqual(dict(self.peer.prepare()), {})


def slow_host(**ms):
    """Command prefix that makes a daemon's disk (fsync) or name server (dns) slow."""
    return ("env", f"LD_PRELOAD={places.publish(BUILD / 'tests/unit/daemon/alq-test-slow-host.so')}",
            *(f"ALQ_TEST_{name.upper()}_MS={value}" for name, value in ms.items()))


class Life(unittest.TestCase):
    """Starts, ends and strange hosts: each test has a daemon of its own."""

    def world(self, **more):
        world = World(**more)
        self.addCleanup(world.close)
        return world

    def connect(self, path):
        peer = Peer(path)
        self.addCleanup(peer.close)
        return peer

    # ---- GetInfo is answered whatever goes on. A daemon that waits in its loop answers none of these calls before what
    # ---- it waits for is over; how long one takes is not looked at.

    def answers_while(self, path, is_going_on, least):
        """GetInfo again and again, each on a connection of its own; at least so many answers while it goes on."""
        answered = 0
        while is_going_on():
            peer = Peer(path)
            self.assertEqual(peer.get_info(timeout=20).name, DRIVER)
            peer.close()
            answered += 1
            time.sleep(0.005)
        self.assertGreaterEqual(answered, least)

    def test_get_info_while_110_claims_are_prepared_on_a_slow_host(self):
        world = self.world()
        world.start(prefix=slow_host(fsync=50))
        peer = self.connect(world.dra_socket)
        claims = [world.claim(f"slow-{i}", [result(cores="0", memory="64Mi")]) for i in range(110)]
        world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/slow-", "delaySeconds": 0.5, "code": 200,
                                              "count": 110}))
        futures = [peer.prepare_later(c) for c in claims]
        self.answers_while(world.registration_socket, lambda: not all(f.done() for f in futures), 20)
        for claim, future in zip(claims, futures):
            self.assertEqual(future.result().claims[claim[2]].error, "")
        # A start with as many records, whose specs are all lost.
        world.stop(signal.SIGKILL)
        for claim in claims:
            os.unlink(world.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json"))
        world.start(wait=False, prefix=slow_host(fsync=50))
        wait_for("the registration socket", world.is_serving)
        self.answers_while(world.registration_socket, lambda: len(os.listdir(world.path("cdi"))) < len(claims), 20)

    def test_get_info_while_a_new_gpu_is_given_a_name_on_a_slow_disk(self):
        world = self.world()
        world.start(wait=False, prefix=slow_host(fsync=1000))
        wait_for("the registration socket", world.is_serving)
        self.answers_while(world.registration_socket, lambda: "GPUs" not in world.said(), 5)

    def test_get_info_while_a_name_server_does_not_answer(self):
        world = self.world()
        with open(world.kubeconfig, encoding="utf-8") as file:
            text = file.read()
        with open(world.kubeconfig, "w", encoding="utf-8") as file:
            file.write(text.replace("127.0.0.1", "api.aliquot.invalid"))
        world.start(prefix=slow_host(dns=20000))
        peer = self.connect(world.dra_socket)
        claim = world.claim("unreachable", [result()])
        future = peer.prepare_later(claim, timeout=3)
        self.answers_while(world.registration_socket, lambda: not future.done(), 20)
        self.assertIn("API server", future.result().claims[claim[2]].error)  # and no missed deadline
        started = time.monotonic()
        self.assertEqual(world.stop(), 0)
        self.assertLess(time.monotonic() - started, 15)  # less than the name server takes

    # ---- who may speak

    def speak(self, path, uid):
        """What a process of that user hears after HTTP/2's preface."""
        code = ("import os, socket, sys; os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2])); "
                "s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])\n"
                "try:\n"
                "    s.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + b'\\0\\0\\0\\4\\0\\0\\0\\0\\0')\n"
                "    print(len(s.recv(100)))\n"
                "except OSError:\n"
                "    print(0)")
        done = subprocess.run([sys.executable, "-c", code, path, str(uid)], check=True, stdout=subprocess.PIPE)
        return int(done.stdout)

    @unittest.skipUnless(os.geteuid() == 0, "only root can speak as others")
    def test_only_root_and_the_daemons_own_user_are_heard(self):
        world = self.world(with_driver=False)
        world.start(wait=False)
        wait_for("the registration socket", world.is_serving)
        self.allow_everybody(world)
        for path in (world.dra_socket, world.registration_socket):
            self.assertGreater(self.speak(path, 0), 0)
            self.assertEqual(self.speak(path, 65534), 0)
        wait_for("the log line", lambda: "connection of uid 65534" in world.said())
        self.assertEqual(world.stop(), 0)

        for directory, _, files in os.walk(world.root):
            for name in (directory, *(os.path.join(directory, f) for f in files)):
                os.chown(name, 65534, 65534)
        programs = BUILD / "src/daemon"
        world.program = places.publish(programs / "aliquotd", programs / "aliquotd-nvml")
        world.start(wait=False, prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
        wait_for("the registration socket", world.is_serving)
        self.allow_everybody(world)
        self.assertGreater(self.speak(world.dra_socket, 0), 0)
        self.assertGreater(self.speak(world.dra_socket, 65534), 0)
        self.assertEqual(self.speak(world.dra_socket, 65533), 0)

    @staticmethod
    def allow_everybody(world):
        """Past the modes of directories and sockets, which keep others out already."""
        for path in (world.root, world.path("plugins"), os.path.dirname(world.dra_socket), world.path("registry")):
            os.chmod(path, 0o755)
        for path in (world.dra_socket, world.registration_socket):
            os.chmod(path, 0o666)

    # ---- sockets

    def test_registration_socket_goes_first(self):
        world = self.world()
        world.start()
        peer = self.connect(world.dra_socket)
        claim = world.claim("slow", [result()])
        world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/slow", "delaySeconds": 1, "code": 200}))
        future = peer.prepare_later(claim)
        time.sleep(0.2)
        world.daemon.send_signal(signal.SIGTERM)
        wait_for("the registration socket to go", lambda: not os.path.exists(world.registration_socket))
        self.assertFalse(future.done())
        self.assertEqual(future.result().claims[claim[2]].error, "")
        self.assertEqual(world.daemon.wait(20), 0)

    def test_sockets_of_killed_instances_are_removed_and_a_living_plugin_is_not_fought(self):
        world = self.world(with_driver=False)
        dead, alive = (str(uuid.uuid4()) for _ in range(2))
        world.start(wait=False)
        wait_for("the registration socket", world.is_serving)
        world.stop(signal.SIGKILL)
        self.assertTrue(os.path.exists(world.registration_socket) and os.path.exists(world.dra_socket))
        paths = {uid: (world.path("registry", f"{DRIVER}-{uid}-reg.sock"),
                       world.path("plugins", DRIVER, f"dra-{uid}.sock")) for uid in (dead, alive)}
        other = world.path("registry", "other.example.com-reg.sock")
        listeners = {}
        for path in (*paths[dead], *paths[alive], other):
            listeners[path] = socket.socket(socket.AF_UNIX)
            self.addCleanup(listeners[path].close)
            listeners[path].bind(path)
            listeners[path].listen()
        for path in (*paths[dead], other):
            listeners[path].close()
        status, said = world.run(pod_uid=str(uuid.uuid4()))
        self.assertEqual(status, 1)
        for part in (f"another plugin serves the driver name {DRIVER}", os.path.realpath(sys.executable),
                     "remove that plugin", "--driver-name"):
            self.assertIn(part, said)
        for path in (*paths[dead], world.registration_socket, world.dra_socket):
            self.assertFalse(os.path.exists(path), path)
        for path in (*paths[alive], other):
            self.assertTrue(os.path.exists(path), path)
        for path in paths[alive]:
            listeners[path].close()
        world.start(wait=False, pod_uid=str(uuid.uuid4()))
        wait_for("ready", lambda: "ready" in world.said())

    def test_directory_that_is_too_long_is_a_clear_error(self):
        world = self.world(with_driver=False)
        for flag in ("kubelet_plugins_dir", "kubelet_registry_dir"):
            status, said = world.run(**{flag: world.path("x" * 90)})
            self.assertEqual(status, 1)
            self.assertIn("--" + flag.replace("_", "-"), said)
            self.assertIn("107 bytes", said)

    def test_sigterm_ends_cleanly_without_sockets(self):
        world = self.world()
        world.start()
        self.assertEqual(world.stop(), 0)
        self.assertFalse(os.path.exists(world.registration_socket))
        self.assertFalse(os.path.exists(world.dra_socket))

    def test_log_that_nobody_reads_holds_up_nothing(self):
        """stderr is a pipe that is full: calls are answered, and who reads at last is told how much is missing."""
        world = self.world()
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        world.daemon = subprocess.Popen(world.command(), stderr=writer, env=world.environment())
        os.close(writer)
        wait_for("the registration socket", lambda: os.path.exists(world.registration_socket))
        peer = self.connect(world.dra_socket)
        claim = world.claim("silent", [result()])
        for _ in range(50):
            self.assertEqual(peer.prepare(claim, timeout=30)[claim[2]].error, "")
            self.assertEqual(peer.unprepare(claim, timeout=30)[claim[2]].error, "")
        self.assertIn(b" ready ", os.read(reader, 65536))
        peer.prepare(claim, timeout=30)
        self.assertRegex(os.read(reader, 65536), rb" warn log: lines lost: .* count=[0-9]+\n")
        self.assertEqual(world.stop(), 0)

    def test_sigterm_answers_open_calls(self):
        world = self.world()
        world.start()
        peer = world.peer()
        self.addCleanup(peer.close)
        claim = world.claim("slow", [result()])
        world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/slow", "delaySeconds": 0.5, "code": 200}))
        future = peer.prepare_later(claim)
        time.sleep(0.2)
        self.assertEqual(world.stop(), 0)
        self.assertEqual(future.result().claims[claim[2]].error, "")

    def test_sigterm_ends_health_streams_at_once(self):
        world = self.world()
        world.start()
        peer = world.peer()
        self.addCleanup(peer.close)
        watch = peer.watch_health()
        self.assertEqual(len(next(watch).devices), 2)
        started = time.monotonic()
        self.assertEqual(world.stop(), 0)
        self.assertLess(time.monotonic() - started, 5)  # the time that open calls are given
        with self.assertRaises(grpc.RpcError) as caught:
            next(watch)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_gpu_that_vanished_is_unhealthy(self):
        """A claim's GPU does not come back after a restart of the node: the pods that hold it learn it by the stream."""
        world = self.world()
        world.start()
        peer = world.peer()
        claim = world.claim("holder", [result(device="hami-gpu-1")])
        self.assertEqual(peer.prepare(claim)[claim[2]].error, "")
        peer.close()
        world.stop()
        world.stop_gpus()
        world.write_gpus(1)
        world.start_gpus()
        world.start()
        peer = world.peer()
        self.addCleanup(peer.close)
        watch = peer.watch_health(timeout=30)
        self.addCleanup(watch.cancel)
        for update in watch:
            health = {d.device.device_name: (d.health, d.message) for d in update.devices}
            if "hami-gpu-0" in health:
                break
        self.assertEqual(health, {"hami-gpu-0": (HEALTHY, ""),
                                  "hami-gpu-1": (UNHEALTHY, f"{UUIDS[1]} is no longer found by NVML")})

    def test_second_daemon_is_refused_and_harms_nothing(self):
        world = self.world()
        world.start()
        status, said = world.run()
        self.assertEqual(status, 1)
        self.assertIn(f"pid {world.daemon.pid}", said)
        elsewhere = {"kubelet_plugins_dir": world.path("other"), "state_dir": world.path("state2")}
        status, said = world.run(**elsewhere)
        self.assertEqual(status, 1)
        self.assertIn("give one of them a --run-dir of its own", said)
        status, said = world.run(**elsewhere, run_dir=world.path("run2"))
        self.assertEqual(status, 1)
        self.assertIn(world.registration_socket, said)
        peer = Peer(world.registration_socket)
        self.addCleanup(peer.close)
        self.assertEqual(peer.get_info().name, DRIVER)

    def test_file_where_a_socket_should_be_is_left_alone(self):
        world = self.world(with_driver=False)
        with open(world.registration_socket, "w", encoding="utf-8") as file:
            file.write("mine")
        status, said = world.run()
        self.assertEqual(status, 1)
        self.assertIn("is no socket", said)
        with open(world.registration_socket, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")


if __name__ == "__main__":
    unittest.main()

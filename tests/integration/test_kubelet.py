# SPDX-License-Identifier: Apache-2.0
"""aliquotd as a gRPC server and as the kubelet's plugin: registration, health streams, sockets, and a peer that does
everything wrong. What the calls do to claims is in test_daemon.py."""

import os
import pathlib
import socket
import sys
import time
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import grpc  # noqa: E402
from daemon_world import BUILD, DRIVER, NODE, UUIDS, World, httpd, result, wait_for  # noqa: E402
from kubelet_peer import V1, Peer  # noqa: E402

TIMEOUT_S = 200
RAW = type("Raw", (), {"FromString": bytes})
HEALTHY, UNHEALTHY = 1, 2
PREPARE = f"/{V1}.DRAPlugin/NodePrepareResources"


def setUpModule():
    warnings.simplefilter("ignore", ResourceWarning)  # connections that the API server's threads still hold
    if not (BUILD / "src/daemon/aliquotd").exists() or not (BUILD / "sim/simgpud").exists():
        raise unittest.SkipTest("aliquotd or simgpud is not built")


class Server(unittest.TestCase):
    """Tests that share one daemon; each leaves it without claims."""

    world = None

    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.start()

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

    def test_get_info_is_quick_while_prepares_hang(self):
        self.world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/hang", "delaySeconds": 1, "code": 200}))
        future = self.peer.prepare_later(self.claim("hang", [result()]))
        peer = Peer(self.world.registration_socket)
        self.addCleanup(peer.close)
        started = time.monotonic()
        peer.get_info()
        self.assertLess(time.monotonic() - started, 1)
        future.result()

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


class Life(unittest.TestCase):
    """Starts and ends: each test has a daemon of its own."""

    def world(self, **more):
        world = World(**more)
        self.addCleanup(world.close)
        return world

    def test_sigterm_ends_cleanly_without_sockets(self):
        world = self.world()
        world.start()
        self.assertEqual(world.stop(), 0)
        self.assertFalse(os.path.exists(world.registration_socket))
        self.assertFalse(os.path.exists(world.dra_socket))

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
        status, said = world.run(kubelet_plugins_dir=world.path("other"), state_dir=world.path("state2"))
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

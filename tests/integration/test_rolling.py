# SPDX-License-Identifier: Apache-2.0
"""Rolling updates: two instances of aliquotd side by side on one node, a kubelet's stand-in that picks the instance as the
kubelet does, and calls without a pause."""

import fcntl
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import grpc  # noqa: E402
from daemon_world import DRIVER, SLICES, World, httpd, need_daemon, result, wait_for  # noqa: E402
from kubelet_peer import Peer  # noqa: E402

TIMEOUT_S = 240


setUpModule = need_daemon


class Instance:
    """One pod of the DaemonSet."""

    def __init__(self, world, **more):
        self.uid = str(uuid.uuid4())
        self.log = world.path(f"log-{self.uid}")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(world.command(pod_uid=self.uid, **more), stderr=log, env=world.environment())
        self.dra_socket = world.path("plugins", DRIVER, f"dra-{self.uid}.sock")
        self.registration_socket = world.path("registry", f"{DRIVER}-{self.uid}-reg.sock")

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_ready(self):
        def is_ready():
            if self.process.poll() is not None:
                raise AssertionError("aliquotd ended: " + self.said())
            return os.path.exists(self.registration_socket)
        wait_for("the registration socket", is_ready)
        return self

    def wait_said(self, *words, timeout=15):
        wait_for(" / ".join(words), lambda: all(w in self.said() for w in words), timeout)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)


class Kubelet(threading.Thread):
    """Registers what appears in the registry, forgets what disappears, and knows who is connected: calls go to the newest
    connected instance."""

    def __init__(self, registry):
        super().__init__(daemon=True)
        self.registry, self.lock, self.is_over = registry, threading.Lock(), False
        self.plugins = []  # [name, peer, is connected], oldest first
        self.old = []
        self.start()

    def run(self):
        while not self.is_over:
            try:
                names = sorted(n for n in os.listdir(self.registry) if n.endswith(".sock") and not n.startswith("."))
            except OSError:
                names = []
            with self.lock:
                gone = [p for p in self.plugins if p[0] not in names]
                self.plugins = [p for p in self.plugins if p[0] in names]
                self.old += gone
                known = {p[0] for p in self.plugins}
            for name in names:
                if name not in known:
                    self.register(name)
            time.sleep(0.01)

    def register(self, name):
        registration = Peer(os.path.join(self.registry, name))
        try:
            plugin = [name, Peer(registration.get_info(timeout=5).endpoint), False]

            def on_state(state):
                plugin[2] = state == grpc.ChannelConnectivity.READY
            plugin[1].channel.subscribe(on_state, try_to_connect=True)
            with self.lock:
                self.plugins.append(plugin)
            registration.notify()
        except grpc.RpcError:
            pass  # it went meanwhile; another round looks again
        finally:
            registration.close()

    def pick(self):
        with self.lock:
            plugins = list(self.plugins)
        for plugin in reversed(plugins):
            if plugin[2]:
                return plugin[1]
        return plugins[-1][1] if plugins else None

    def close(self):
        self.is_over = True
        self.join()
        for plugin in self.plugins + self.old:
            plugin[1].close()


class Traffic:
    """Pods that come and go: each thread prepares, prepares again and unprepares its claim. A call must give what it
    should; what the transport or the instance refused for now is counted, and asked again as the kubelet does."""

    def __init__(self, world, kubelet, pods=4):
        self.world, self.kubelet, self.is_over = world, kubelet, False
        self.calls, self.retries, self.wrong = 0, [], []
        self.threads = [threading.Thread(target=self.pod, args=(i,), daemon=True) for i in range(pods)]
        for thread in self.threads:
            thread.start()

    def call(self, verb, claim):
        while True:
            peer = self.kubelet.pick()
            if not peer:
                time.sleep(0.01)
                continue
            try:
                answer = getattr(peer, verb)(claim)[claim[2]]
            except (grpc.RpcError, ValueError) as error:  # ValueError: grpcio's word for a closed channel
                self.retries.append(f"{verb}: {error.code().name}: {error.details()}" if isinstance(error, grpc.RpcError)
                                    else str(error))
                time.sleep(0.02)
                continue
            self.calls += 1
            return answer

    def pod(self, number):
        claim = self.world.claim(f"pod-{number}", [result(cores="10", memory="1Gi")])
        first = None
        while not self.is_over:
            for verb in ("prepare", "prepare", "unprepare"):
                answer = self.call(verb, claim)
                if answer.error:
                    self.wrong.append(f"{verb}: {answer.error}")
                elif verb == "prepare":
                    first = first or answer
                    if answer != first:
                        self.wrong.append(f"prepare: {answer}")

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                self.wrong.append("a call was never answered")
        return self

    def more(self, count=20):
        """Waits for so many further calls."""
        target = self.calls + count
        wait_for("calls to be answered", lambda: self.calls >= target, 30)


class Rolling(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.addCleanup(self.world.close)
        self.instances = []
        self.addCleanup(lambda: [i.stop(signal.SIGKILL) for i in self.instances])

    def start(self, **more):
        instance = Instance(self.world, **more)
        self.instances.append(instance)
        return instance.wait_ready()

    def kubelet(self):
        kubelet = Kubelet(self.world.path("registry"))
        self.addCleanup(kubelet.close)
        return kubelet

    def traffic(self, kubelet, **more):
        traffic = Traffic(self.world, kubelet, **more)
        self.addCleanup(traffic.stop)
        return traffic

    def connect(self, path):
        peer = Peer(path)
        self.addCleanup(peer.close)
        return peer

    def assert_nothing_left(self):
        self.assertEqual(self.world.tree(), {})
        wait_for("both devices", lambda: sorted(d["name"] for s in self.world.api.list(SLICES, "", {})[0]
                                                for d in s["spec"]["devices"]) == ["hami-gpu-0", "hami-gpu-1"])

    def test_three_updates_under_load_lose_no_call(self):
        older = self.start()
        kubelet = self.kubelet()
        traffic = self.traffic(kubelet)
        traffic.more()
        for _ in range(3):
            newer = self.start()
            older.wait_said("handed over")
            newer.wait_said("taking over")
            traffic.more()
            self.assertEqual(older.stop(), 0)
            self.assertFalse(os.path.exists(older.registration_socket) or os.path.exists(older.dra_socket))
            traffic.more()
            older = newer
        traffic.stop()
        self.assertEqual((traffic.wrong, traffic.retries), ([], []))
        self.assert_nothing_left()

    def test_older_is_told_to_end_at_any_moment(self):
        """SIGTERM some milliseconds after the newer one was started: before it is registered, while it takes over, after."""
        older = self.start()
        kubelet = self.kubelet()
        traffic = self.traffic(kubelet)
        traffic.more()
        for delay in (0, 0.02, 0.05, 0.1, 0.3):
            newer = Instance(self.world)
            self.instances.append(newer)
            wait_for("its socket", lambda newer=newer: os.path.exists(newer.dra_socket))
            time.sleep(delay)
            self.assertEqual(older.stop(), 0)
            newer.wait_said("taking over")
            traffic.more()
            older = newer
        traffic.stop()
        self.assertEqual((traffic.wrong, traffic.retries), ([], []))
        self.assert_nothing_left()

    def test_either_is_killed_at_any_moment(self):
        rng = random.Random(4)
        instance = self.start()
        kubelet = self.kubelet()
        traffic = self.traffic(kubelet)
        traffic.more()
        for number in range(12):
            other = Instance(self.world)
            self.instances.append(other)
            time.sleep(rng.random() * 0.25)
            victim, instance = (instance, other) if number % 2 else (other, instance)
            victim.stop(signal.SIGKILL)
            traffic.more()
        traffic.stop()
        self.assertEqual(traffic.wrong, [])
        for text in traffic.retries:
            self.assertIn("UNAVAILABLE", text)
        instance.wait_ready()
        dead = [i for i in self.instances if i.process.poll() is not None and os.path.exists(i.registration_socket)]
        last = self.start()
        last.wait_said("taking over")
        for i in dead:
            self.assertFalse(os.path.exists(i.registration_socket) or os.path.exists(i.dra_socket))
        self.assert_nothing_left()

    def test_calls_wait_for_the_state_and_late_ones_are_told_where_it_is(self):
        older = self.start()
        peer = self.connect(older.dra_socket)
        slow, quick, late = (self.world.claim(n, [result(cores="10")]) for n in ("slow", "quick", "late"))
        self.world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/slow", "delaySeconds": 1, "code": 200}))
        first = peer.prepare_later(slow)
        time.sleep(0.2)
        newer = self.start()
        other = self.connect(newer.dra_socket)
        second = other.prepare_later(quick)  # asks for the state: the older one still answers the first
        self.assertEqual(first.result().claims[slow[2]].error, "")
        self.assertEqual(second.result().claims[quick[2]].error, "")
        with self.assertRaises(grpc.RpcError) as caught:
            peer.prepare(late, timeout=10)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("another aliquotd serves this node now", caught.exception.details())
        self.assertEqual(other.prepare(slow)[slow[2]], first.result().claims[slow[2]])
        for claim in (slow, quick):
            self.assertEqual(other.unprepare(claim)[claim[2]].error, "")
        self.assert_nothing_left()

    def test_call_that_waits_for_room_does_not_hold_the_state_up(self):
        """Its room comes by an Unprepare that reaches the newer instance: the older one gives the call up in time."""
        older = self.start()
        peer = self.connect(older.dra_socket)
        whole, late = self.world.claim("whole", [result(cores="100")]), self.world.claim("late", [result()])
        older.wait_said("2 GPUs")
        self.assertEqual(peer.prepare(whole)[whole[2]].error, "")
        waiting = peer.prepare_later(late)
        time.sleep(0.2)
        self.assertFalse(waiting.done())
        newer = self.start()
        other = self.connect(newer.dra_socket)
        self.assertEqual(other.unprepare(whole, timeout=30)[whole[2]].error, "")
        self.assertEqual(waiting.exception().code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("call again", waiting.exception().details())
        self.assertEqual(other.prepare(late)[late[2]].error, "")
        self.assertEqual(other.unprepare(late)[late[2]].error, "")
        self.assert_nothing_left()

    def test_older_takes_back_when_the_newer_dies(self):
        older = self.start()
        peer = self.connect(older.dra_socket)
        kept = self.world.claim("kept", [result()])
        answer = peer.prepare(kept)[kept[2]]
        newer = self.start()
        other = self.connect(newer.dra_socket)
        made = self.world.claim("made", [result(device="hami-gpu-1")])
        self.assertEqual(other.prepare(made)[made[2]].error, "")
        newer.stop(signal.SIGKILL)
        self.assertEqual(peer.prepare(kept)[kept[2]], answer)
        self.assertEqual(peer.unprepare(kept, made)[made[2]].error, "")
        self.assert_nothing_left()

    def test_newer_that_cannot_open_the_state_costs_nothing(self):
        """A bad setting in the new version: its pod ends, the old one serves on."""
        older = self.start()
        kubelet = self.kubelet()
        traffic = self.traffic(kubelet)
        traffic.more()
        with open(self.world.path("file"), "w", encoding="utf-8"):
            pass
        newer = Instance(self.world, cdi_dir=self.world.path("file/cdi"))
        self.instances.append(newer)
        self.assertEqual(newer.process.wait(30), 1)
        self.assertIn("--cdi-dir", newer.said())
        self.assertFalse(os.path.exists(newer.registration_socket) or os.path.exists(newer.dra_socket))
        older.wait_said("taking over")
        traffic.more()
        traffic.stop()
        self.assertEqual(traffic.wrong, [])
        for text in traffic.retries:
            self.assertIn("UNAVAILABLE", text)
        self.assert_nothing_left()

    def test_only_the_holder_publishes_slices_and_health(self):
        older = self.start()
        watch = self.connect(older.dra_socket).watch_health(timeout=60)
        self.addCleanup(watch.cancel)
        self.assertEqual([d.health for d in next(watch).devices], [1, 1])
        newer = self.start()
        other = self.connect(newer.dra_socket).watch_health(timeout=60)
        self.addCleanup(other.cancel)
        registration = self.connect(newer.registration_socket)
        registration.notify()
        newer.wait_said("taking over")
        self.assertEqual([d.health for d in next(other).devices], [1, 1])
        newer.wait_said("slices are published")
        for _ in range(3):
            for slice_ in self.world.api.list(SLICES, "", {})[0]:
                self.world.api.store.delete(SLICES.internal, "", slice_["metadata"]["name"])
            wait_for("the slice", lambda: self.world.api.list(SLICES, "", {})[0])
        self.assertEqual(len(self.world.api.list(SLICES, "", {})[0]), 1)
        self.assertEqual(older.said().count("publishing it again"), 0)
        self.assertGreater(newer.said().count("publishing it again"), 0)

    def test_state_follows_the_last_registration(self):
        """A kubelet that restarts registers all instances anew, in any order, and calls the one it registered last."""
        older, newer = self.start(), self.start()
        peers = {i: self.connect(i.dra_socket) for i in (older, newer)}
        for peer in peers.values():
            grpc.channel_ready_future(peer.channel).result(10)

        def holder():
            with open(self.world.path("plugins", DRIVER, "aliquotd.lock"), encoding="utf-8") as file:
                return int(file.readline() or 0)
        for number, order in enumerate(((older, newer), (newer, older), (newer, older), (older, newer), (older, newer))):
            for instance in order:
                registration = Peer(instance.registration_socket)
                registration.notify()
                registration.close()
            wait_for("the last one to have the state", lambda: holder() == order[-1].process.pid)
            claim = self.world.claim(f"claim-{number}", [result()])
            self.assertEqual(peers[order[-1]].prepare(claim)[claim[2]].error, "")
            self.assertEqual(peers[order[-1]].unprepare(claim)[claim[2]].error, "")
            self.assertEqual(holder(), order[-1].process.pid)

    def test_one_that_cannot_hand_over_is_not_asked(self):
        self.world.start()
        status, said = self.world.run(pod_uid=str(uuid.uuid4()))
        self.assertEqual(status, 1)
        self.assertIn("cannot hand over", said)
        self.assertIn(f"pid {self.world.daemon.pid}", said)
        self.assertEqual(self.world.stop(), 0)
        sharing = self.start()
        status, said = self.world.run()
        self.assertEqual(status, 1)
        self.assertIn(f"pid {sharing.process.pid}", said)


class Locks(unittest.TestCase):
    def test_an_instance_that_has_waited_for_a_lock_opens_when_it_is_free(self):
        """State and shares may be held a moment longer by a child of the instance before."""
        world = World(gpus=1)
        self.addCleanup(world.close)
        os.makedirs(world.path("run", "shares"))
        for held in ("state/lock", "run/shares"):
            with self.subTest(held):
                fd = os.open(world.path(held), os.O_RDONLY | (0 if os.path.isdir(world.path(held)) else os.O_CREAT), 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX)
                instance = Instance(world)
                self.addCleanup(instance.stop)
                time.sleep(0.3)
                os.close(fd)
                instance.wait_ready()
                self.assertEqual(instance.stop(), 0)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The sandbox's switchboard: faults of the API server, deaths of kubelet and machine, and what the kubelet stand-in keeps
and forgets over them. A DRA plugin of grpcio is the driver."""

import concurrent.futures
import http.client
import pathlib
import queue
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sandbox_peer as peer  # noqa: E402
from test_sandbox import CLAIMS, CONTAINERS, PODS, SLICES, claim, good_slice, pod  # noqa: E402

GONE = (http.client.HTTPException, OSError)


class Board(unittest.TestCase):
    """Faults of the API server."""

    def setUp(self):
        self.box = peer.Sandbox("1.36")
        self.addCleanup(self.box.stop)
        self.admin = self.box.admin

    def clients(self, count):
        out = [self.box.client() for _ in range(count)]
        for client in out:
            self.addCleanup(client.close)
        return out

    def test_only_the_named_user_is_hit(self):
        daemon = self.box.client("daemon.kubeconfig")
        self.addCleanup(daemon.close)
        self.box.fault("GET .*/resourceslices", user=":aliquotd$", code=500, count=0)
        self.assertEqual(self.admin.request("GET", SLICES)[0], 200)
        for _ in range(3):
            status, _, answer = daemon.request("GET", SLICES)
            self.assertEqual((status, answer["reason"]), (500, "InternalError"))
        fault, = self.box.faults()
        self.assertEqual((fault["used"], fault["left"]), (3, 0))
        self.box.clear_faults()
        self.assertEqual((daemon.request("GET", SLICES)[0], self.box.faults()), (200, []))

    def test_probability_is_seeded(self):
        def run():
            number = self.box.fault("GET .*/resourceslices", code=503, count=0, probability=0.5, seed=7)
            codes = [self.admin.request("GET", SLICES)[0] for _ in range(20)]
            self.admin.ok("DELETE", f"/sandbox/fault/{number}")
            return codes
        first = run()
        self.assertEqual(set(first), {200, 503})
        self.assertEqual(run(), first)

    def test_dropped_before_is_not_done_and_dropped_after_is(self):
        for when, status in (("before", 404), ("after", 200)):
            self.box.fault("POST .*/resourceclaims", close=True, when=when)
            with self.assertRaises(GONE):
                self.admin.request("POST", CLAIMS, claim(when))
            self.assertEqual(self.admin.request("GET", f"{CLAIMS}/{when}")[0], status)

    def test_error_after_the_work_was_done(self):
        self.box.fault("POST .*/resourceclaims", code=504, when="after")
        self.assertEqual(self.admin.request("POST", CLAIMS, claim("late"))[0], 504)
        self.assertEqual(self.admin.request("POST", CLAIMS, claim("late"))[0], 409)

    def test_answers_of_concurrent_requests_change_places(self):
        self.box.fault("GET .*/nodes/node-a", reorder=3, count=3)
        self.admin.ok("POST", "/sandbox/record", {})
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for i, client in enumerate(self.clients(3)):
                held = i + 1
                pool.submit(client.ok, "GET", f"/api/v1/nodes/node-a?n={i}")
                self.box.wait("the request to be held", lambda: held == 3 or not self.box.faults() or
                              self.box.faults()[0]["used"] == held)
        asked = [r for r in self.admin.ok("GET", "/sandbox/requests")["requests"] if "?n=" in r["path"]]
        self.assertEqual([r["path"][-1] for r in sorted(asked, key=lambda r: r["answered"])], ["2", "1", "0"])

    def test_lone_answer_is_not_held_for_ever(self):
        self.box.fault("GET .*/nodes/node-a", reorder=3)
        self.assertEqual(self.admin.request("GET", "/api/v1/nodes/node-a")[0], 200)

    def test_hung_request_is_answered_when_the_fault_is_taken_off(self):
        client, = self.clients(1)
        number = self.box.fault("GET .*/nodes/node-a", hang=True)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.request, "GET", "/api/v1/nodes/node-a")
            self.box.wait("the fault to be used", lambda: not self.box.faults())
            self.assertFalse(answer.done())
            self.admin.ok("DELETE", f"/sandbox/fault/{number}")
            self.assertEqual(answer.result(20)[0], 200)

    def watch(self, seconds=20, **fault):
        """Events of a watch of slices that meets this fault; ends with it, or an exception."""
        self.box.fault("watch=true", **fault)
        client, = self.clients(1)
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        events = pool.submit(client.watch, f"{SLICES}?resourceVersion=1", seconds)
        self.box.wait("the watch", lambda: not self.box.faults())
        return events

    def test_watch_breaks_or_errs_after_so_many_events(self):
        for fault, check in (({"close": True}, None), ({"code": 500}, "ERROR")):
            events = self.watch(events=1, **fault)
            name = "s" + str(len(fault) + (check is None))
            self.admin.ok("POST", SLICES, good_slice("1.36", name))
            if check is None:
                with self.assertRaises(GONE):
                    events.result(20)
            else:
                self.assertEqual(events.result(20)[-1]["type"], check)

    def test_hung_watch_is_silent_until_it_is_cut(self):
        events = self.watch(seconds=60, events=0, hang=True)
        self.admin.ok("POST", SLICES, good_slice("1.36"))
        time.sleep(1.2)
        self.assertFalse(events.done())
        self.assertEqual(self.box.cut("watch=true"), 1)
        with self.assertRaises(GONE):
            events.result(20)

    def test_api_server_that_is_down_answers_nobody_and_comes_back(self):
        self.admin.ok("POST", "/sandbox/api-down", {"seconds": 1})

        def answers():
            try:
                return self.admin.request("GET", SLICES)[0]
            except GONE:
                return None
        self.assertIsNone(answers())
        self.assertEqual(self.box.wait("the API server", answers), 200)

    def test_wrong_fault_is_refused_with_the_reason(self):
        for body, text in (({"match": "x", "colour": 1}, "unknown field colour"), ({"code": 500}, "match is missing"),
                           ({"match": "("}, "unterminated"), ({"match": "x", "when": "now"}, "neither")):
            status, _, answer = self.admin.request("POST", "/sandbox/fault", body)
            self.assertEqual(status, 400)
            self.assertIn(text, answer["message"])


class Node(unittest.TestCase):
    """The kubelet over deaths; without containers where none can be had."""

    def start(self, version="1.36", *options, **more):
        box = peer.Sandbox(version, "--retry-seconds", "0.2", *options, **more)
        self.addCleanup(box.stop)
        return box

    def plugin(self, box, **more):
        plugin = peer.Plugin(box, **more)
        self.addCleanup(plugin.stop)
        box.wait("registration", lambda: plugin.registered)
        return plugin

    def bind(self, box, claims, *bodies):
        """Pods on the node that all use these claims, allocated as the scheduler would have done."""
        users = []
        for body in bodies:
            body["spec"].update(schedulerName="the-test", resourceClaims=[
                {"name": c, "resourceClaimName": c} for c in claims])
            body["spec"]["containers"][0]["resources"] = {"claims": [{"name": c} for c in claims]}
            made = box.admin.ok("POST", PODS, body)
            users.append({"resource": "pods", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]})
        for name in claims:
            obj = box.admin.ok("POST", CLAIMS, claim(name))
            obj["status"] = {"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": peer.DRIVER, "pool": "node-a", "device": "hami-gpu-0",
                 "shareID": "11111111-1111-4111-8111-111111111111",
                 "consumedCapacity": {"cores": "30", "memory": "4Gi"}}]}}, "reservedFor": users}
            box.admin.ok("PUT", f"{CLAIMS}/{name}/status", obj)
        for user in users:
            box.admin.ok("POST", f"{PODS}/{user['name']}/binding", {"target": {"kind": "Node", "name": "node-a"}})

    def count(self, plugin, method):
        return sum(1 for path, _ in plugin.calls if path.endswith(method))

    def containers(self, version="1.36"):
        box = self.start(version, runtime="auto")
        state = box.kubelet()
        if state["runtime"] is None:
            self.skipTest(state["noRuntime"])
        return box

    def test_pods_that_start_together_make_one_prepare_of_their_claim(self):
        box = self.start()
        plugin = self.plugin(box)
        together = threading.Event()
        plugin.before_prepare = lambda: together.wait(20)
        self.bind(box, ["c"], *(pod(f"p{i}") for i in range(4)))
        box.wait("all four to use the claim", lambda: len(box.kubelet()["claims"][0]["pods"]) == 4)
        together.set()
        for i in range(4):
            box.wait_phase(f"p{i}", "Succeeded", "Failed")
        box.wait("unprepare", lambda: self.count(plugin, "NodeUnprepareResources"))
        self.assertEqual(self.count(plugin, "NodePrepareResources"), 1)
        self.assertEqual(box.kubelet()["claims"], [])

    def test_kubelet_killed_while_it_prepares_asks_again_and_tells_nothing_of_it(self):
        box = self.start()
        plugin = self.plugin(box)
        hold = threading.Event()
        plugin.before_prepare = lambda: hold.wait(20)
        self.bind(box, ["c"], pod("p"))
        box.wait("prepare", lambda: plugin.calls)
        box.restart_kubelet()
        hold.set()
        box.wait_phase("p", "Succeeded", "Failed")
        self.assertEqual(self.count(plugin, "NodePrepareResources"), 2)
        told = [m for r, m in box.events("p") if r == "FailedPrepareDynamicResources"]
        self.assertEqual([m for m in told if "is not registered" not in m], [])

    def test_kubelet_that_is_down_does_nothing_until_it_is_back(self):
        box = self.start()
        plugin = self.plugin(box)
        box.restart_kubelet(1.5)
        self.assertFalse(box.kubelet()["up"])
        self.bind(box, ["c"], pod("p"))
        self.assertEqual((plugin.calls, box.pod("p").get("status", {}).get("phase")), ([], "Pending"))
        box.wait_phase("p", "Succeeded", "Failed")
        self.assertEqual(self.count(plugin, "NodePrepareResources"), 1)
        self.assertEqual(len(plugin.registered), 2)

    @unittest.skipUnless(CONTAINERS, "containers need root and one of runc, crun, podman")
    def test_new_kubelet_prepares_for_a_new_pod_and_not_for_a_running_one(self):
        box = self.containers()
        plugin = self.plugin(box)
        self.bind(box, ["c"], pod("p", command="sleep 600"), pod("q", command="true"))
        box.wait_phase("p", "Running")
        box.wait_phase("q", "Succeeded")
        self.assertEqual(self.count(plugin, "NodePrepareResources"), 1)
        box.restart_kubelet()
        box.wait("registration", lambda: len(plugin.registered) == 2)
        self.assertEqual(self.count(plugin, "NodePrepareResources"), 1)
        body = pod("r", command="true")
        body["spec"].update(schedulerName="the-test", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
        made = box.admin.ok("POST", PODS, body)
        obj = box.admin.ok("GET", f"{CLAIMS}/c")
        obj["status"]["reservedFor"].append({"resource": "pods", "name": "r", "uid": made["metadata"]["uid"]})
        box.admin.ok("PUT", f"{CLAIMS}/c/status", obj)
        box.admin.ok("POST", f"{PODS}/r/binding", {"target": {"kind": "Node", "name": "node-a"}})
        box.wait_phase("r", "Succeeded")
        self.assertEqual(self.count(plugin, "NodePrepareResources"), 2)
        self.assertEqual(box.pod("p")["status"]["phase"], "Running")
        self.assertEqual(self.count(plugin, "NodeUnprepareResources"), 0)

    @unittest.skipUnless(CONTAINERS, "containers need root and one of runc, crun, podman")
    def test_reboot_ends_containers_and_prepares_again_what_starts_again(self):
        box = self.containers()
        plugin = self.plugin(box)
        always = pod("always", command="sleep 600")
        always["spec"]["restartPolicy"] = "Always"
        self.bind(box, ["a"], always)
        self.bind(box, ["n"], pod("never", command="sleep 600"))
        for name in ("always", "never"):
            box.wait_phase(name, "Running")
        self.assertEqual(len(list((box.dir / "cdi").iterdir())), 2)
        seen = []
        box.reboot(lambda: seen.append((list((box.dir / "cdi").iterdir()), box.kubelet()["up"])))
        self.assertEqual(seen, [([], False)])
        box.wait_phase("never", "Failed")
        box.wait("the other to run again", lambda: (
            lambda s: s["restartCount"] == 1 and "running" in s["state"])(box.pod("always")["status"]["containerStatuses"][0]))
        prepared = [key[2] for path, keys in plugin.calls if path.endswith("NodePrepareResources") for key in keys]
        self.assertEqual(sorted(prepared), ["a", "a", "n"])

    def test_newest_connected_instance_is_called(self):
        box = self.start()
        old = self.plugin(box, instance="uid-1")
        new = self.plugin(box, instance="uid-2")
        box.wait("both", lambda: len(box.kubelet()["plugins"]) == 2)
        self.bind(box, ["a"], pod("pa"))
        box.wait_phase("pa", "Succeeded", "Failed")
        self.assertEqual((len(old.calls), self.count(new, "NodePrepareResources")), (0, 1))
        new.servers[0].stop(None).wait(5)  # its process hangs or died: the registration socket is still there
        box.wait("the loss to be noticed", lambda: [p["connected"] for p in box.kubelet()["plugins"]] == [True, False])
        self.bind(box, ["b"], pod("pb"))
        box.wait_phase("pb", "Succeeded", "Failed")
        self.assertEqual(self.count(old, "NodePrepareResources"), 1)

    def test_slices_go_when_the_last_connection_is_lost(self):
        box = self.start("1.36", "--wipe-seconds", "0.3")
        plugin = self.plugin(box)
        box.wait("the connection", lambda: box.kubelet()["plugins"][0]["connected"])
        box.admin.ok("POST", SLICES, good_slice("1.36", "s"))
        plugin.servers[0].stop(None).wait(5)
        box.wait("the slice to go", lambda: box.admin.request("GET", f"{SLICES}/s")[0] == 404)

    def health(self, box):
        for device in (box.kubelet()["plugins"] or [{"health": {}}])[0]["health"].values():
            return device["state"], device["message"]
        return None

    def test_health_is_asked_for_as_the_version_does(self):
        for version, options in (("1.36", ()), ("1.34", ("--health", "on")), ("1.34", ())):
            with self.subTest(version=version, options=options):
                box = self.start(version, *options)
                plugin = peer.Plugin(box)
                plugin.health = queue.Queue()
                self.addCleanup(plugin.stop)
                box.wait("registration", lambda: plugin.registered)
                plugin.health.put([("node-a", "hami-gpu-0", 2, 1, "Xid 79")])
                if not options and version == "1.34":
                    time.sleep(0.5)
                    self.assertIsNone(self.health(box))
                    continue
                box.wait("health", lambda: self.health(box))
                new = version == "1.36"
                self.assertEqual(self.health(box), ("Unhealthy", "Xid 79" if new else ""))
                time.sleep(1.2)  # field 4 says one second; 1.34 does not know it
                self.assertEqual(self.health(box)[0], "Unknown" if new else "Unhealthy")
                plugin.health.put(None)
                box.wait("the end of the stream to end what it said", lambda: self.health(box) is None)

    @unittest.skipUnless(CONTAINERS, "containers need root and one of runc, crun, podman")
    def test_health_is_shown_in_the_pods_status(self):
        box = self.containers()
        plugin = peer.Plugin(box)
        plugin.health = queue.Queue()
        self.addCleanup(plugin.stop)
        box.wait("registration", lambda: plugin.registered)
        self.bind(box, ["c"], pod("p", command="sleep 600"))
        box.wait_phase("p", "Running")

        def shown():
            statuses = box.pod("p")["status"]["containerStatuses"][0].get("allocatedResourcesStatus", [])
            return [(s["name"], [(r["health"], r.get("message")) for r in s["resources"]]) for s in statuses]
        for state, word, message in ((1, "Healthy", ""), (2, "Unhealthy", "Xid 79")):
            plugin.health.put([("node-a", "hami-gpu-0", state, 0, message)])
            want = [("claim:c", [(word, message or None)])]
            box.wait(word, lambda: shown() == want)


if __name__ == "__main__":
    unittest.main()

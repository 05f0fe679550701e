# SPDX-License-Identifier: Apache-2.0
"""What the daemon tells the API server of claims: status.devices and Events, with the rights of its service account and with
fewer. How its client stands a bad server is test_publisher.py's; the queues themselves are unit tests."""

import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon_world import (BUILD, CLAIMS, DRIVER, NODE, TOKEN, UUIDS, World, httpd, logic, need_daemon, result,  # noqa: E402
                          wait_for)
import sandbox  # noqa: E402

setUpModule = need_daemon
ACCOUNT = "system:serviceaccount:kube-system:aliquotd"


def account(rules):
    return logic.User(ACCOUNT, ["system:serviceaccounts"], rules, NODE)


class Case(unittest.TestCase):
    version, gpus = "1.36", 2

    @classmethod
    def setUpClass(cls):
        cls.world = World(gpus=cls.gpus, version=cls.version)
        cls.addClassCleanup(cls.world.close)
        cls.world.http.tokens = {TOKEN: account(sandbox.daemon_rules(DRIVER))}
        cls.world.start()

    def setUp(self):
        self.peer = self.world.peer()
        self.addCleanup(lambda: self.peer.close())
        self.world.http.request_log = []
        self.addCleanup(self.world.http.faults.drop)

    def claim(self, name, *results, pods=("p",), **more):
        """A claim as the scheduler leaves it: placed on this node and reserved for pods."""
        claim = self.world.claim(name, list(results) or [result()], **more)
        obj = self.world.api.store.get(CLAIMS.internal, *claim[:2])
        obj["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [NODE]}]}]}
        obj["status"]["reservedFor"] = [{"resource": "pods", "name": p, "uid": f"{p}-uid"} for p in pods]
        self.world.api.store.put(CLAIMS.internal, claim[0], claim[1], obj)
        self.addCleanup(lambda: self.peer.unprepare(claim))
        return claim

    def prepare(self, claim, **more):
        return self.peer.prepare(claim, **more)[claim[2]].error

    def devices(self, claim):
        return self.world.api.store.get(CLAIMS.internal, *claim[:2])["status"].get("devices", [])

    def patches(self):
        return [r for r in self.world.http.request_log if r["method"] == "PATCH" and "/status" in r["path"]]

    def events(self, uid):
        return [e for e in self.world.api.store.all("events") if e["involvedObject"]["uid"] == uid]

    def findings(self):
        class Local(http.client.HTTPConnection):
            def connect(self):
                self.sock = socket.socket(socket.AF_UNIX)
                self.sock.connect(path)
        path = self.world.path("run", "aliquotd.sock")
        connection = Local("localhost")
        connection.request("GET", "/v1/doctor")
        body = json.loads(connection.getresponse().read())
        connection.close()
        return {f["id"]: f for f in (body["findings"] if isinstance(body, dict) else body)}

    def restart(self, number=signal.SIGTERM):
        self.world.stop(number)
        self.world.start()
        self.peer.close()
        self.peer = self.world.peer()


class Status(Case):
    def test_a_prepared_claim_says_so_and_is_not_written_again(self):
        one, two = result(), result("b", cores="20", memory="2Gi")
        claim = self.claim("told", one, two, config=None)
        self.assertEqual(self.prepare(claim), "")
        wait_for("status.devices", lambda: self.devices(claim))
        first = self.devices(claim)
        self.assertEqual([(d["device"], d["shareID"], d["data"]) for d in first], [
            ("hami-gpu-0", one["shareID"], {"uuid": UUIDS[0], "minor": 0, "memoryBytes": 4 << 30, "cores": 30}),
            ("hami-gpu-0", two["shareID"], {"uuid": UUIDS[0], "minor": 0, "memoryBytes": 2 << 30, "cores": 20})])
        for device in first:
            (ready,) = device["conditions"]
            self.assertEqual((ready["type"], ready["status"], ready["reason"]), ("Ready", "True", "Prepared"))
        self.assertEqual(len(self.patches()), 1)
        self.assertEqual(self.prepare(claim), "")
        self.restart()
        self.assertEqual(self.prepare(claim), "")
        wait_for("the look at the claim", lambda: len([r for r in self.world.http.request_log
                                                       if r["path"].endswith("/resourceclaims/told")]) >= 4)
        self.assertEqual(self.prepare(self.claim("after", result(cores="1"))), "")
        wait_for("the next claim's status", lambda: len(self.patches()) == 2)
        self.assertEqual(self.devices(claim), first)

    def test_a_status_that_a_kill_prevented_is_written_by_the_next_daemon(self):
        self.world.http.faults.append(httpd.Fault({"match": "PATCH .*/killed/status", "hang": True}))
        claim = self.claim("killed")
        self.assertEqual(self.prepare(claim), "")  # not delayed by it
        wait_for("the write to hang", self.patches)
        self.assertEqual(self.devices(claim), [])
        self.world.stop(signal.SIGKILL)
        self.world.http.faults.drop()
        self.restart()
        wait_for("status.devices", lambda: self.devices(claim))

    def test_a_status_that_others_take_away_or_own_is_written_at_the_next_prepare(self):
        claim = self.claim("edited")
        self.assertEqual(self.prepare(claim), "")
        wait_for("status.devices", lambda: self.devices(claim))
        obj = self.world.api.store.get(CLAIMS.internal, *claim[:2])
        condition = {"type": "Other", "status": "True", "reason": "R", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}
        obj["status"]["devices"][0]["data"] = {}
        obj["status"]["devices"][0]["conditions"].append(condition)
        self.world.api.store.put(CLAIMS.internal, claim[0], claim[1], obj)
        self.assertEqual(self.prepare(claim), "")
        wait_for("the data", lambda: self.devices(claim)[0]["data"])
        self.assertIn("Other", [c["type"] for c in self.devices(claim)[0]["conditions"]])


class Faults(Case):
    def simctl(self, *args):
        subprocess.run([BUILD / "sim/simctl", "--socket", self.world.path("sim", "simgpud.sock"), *args], check=True,
                       stdout=subprocess.DEVNULL)

    def test_faults_and_loss_of_a_gpu_are_told_to_its_claims_and_their_pods(self):
        claim = self.claim("user", result(device="hami-gpu-1"), pods=("p1", "p2"))
        other = self.claim("bystander", result(device="hami-gpu-0"), pods=("p3",))
        self.assertEqual(self.prepare(claim) + self.prepare(other), "")
        users = [claim[2], "p1-uid", "p2-uid"]
        self.simctl("xid", "1", "48")
        wait_for("the events", lambda: all(self.reasons(u) == {"GPUFault"} for u in users))
        wait_for("Ready False", lambda: self.ready(claim) == ("False", "GPUUnhealthy"))
        self.assertIn("48", self.devices(claim)[0]["conditions"][0]["message"])
        self.simctl("remove", "1")
        wait_for("the events", lambda: all("GPUGone" in self.reasons(u) for u in users), 30)
        self.assertIn("hami-gpu-1", [e for e in self.events("p1-uid") if e["reason"] == "GPUGone"][0]["message"])
        self.assertEqual([e["involvedObject"]["kind"] for e in self.events("p2-uid")], ["Pod"] * 2)
        self.assertEqual(self.events(other[2]) + self.events("p3-uid"), [])
        wait_for("Ready False", lambda: self.ready(claim) == ("False", "GPUGone"))
        self.assertEqual(self.ready(other), ("True", "Prepared"))

    def ready(self, claim):
        condition, = [c for c in self.devices(claim)[0]["conditions"] if c["type"] == "Ready"]
        return condition["status"], condition["reason"]

    def reasons(self, uid):
        return {e["reason"] for e in self.events(uid)}


class FewerRights(Case):
    def test_without_the_granular_right_there_is_one_finding_and_no_storm(self):
        rules = [r for r in sandbox.daemon_rules(DRIVER) if r[1] not in ("resourceclaims/driver", "events")]
        self.world.http.tokens = {TOKEN: account(rules)}
        claims = [self.claim(f"quiet-{i}", result(cores="1", memory="64Mi")) for i in range(5)]
        for claim in claims:
            self.assertEqual(self.prepare(claim), "")
        found = wait_for("the finding", lambda: self.findings().get("claims.status-forbidden"))
        self.assertIn("resourceclaims/driver", found["text"] + found["remedy"])
        self.assertEqual(len(self.patches()), 1)
        self.assertEqual(self.world.said().count("status.devices of claims is not written"), 1)
        # Nor may it write events.
        self.prepare(self.claim("refused", result(device="hami-gpu-9")))
        wait_for("the finding", lambda: self.findings().get("events.forbidden"))


class GateOff(Case):
    """DRAConsumableCapacity is off in the API server: it drops what makes a GPU divisible."""
    gpus = 1

    @classmethod
    def setUpClass(cls):
        cls.world = World(gpus=1)
        cls.addClassCleanup(cls.world.close)
        cls.world.api.gate_off = True
        cls.world.http.request_log = []
        cls.world.start()

    def test_dropped_fields_are_an_event_and_a_finding_and_written_once(self):
        log = self.world.http.request_log = []
        found = wait_for("the finding", lambda: self.findings().get("slices.dropped-fields"))
        self.assertEqual(found["level"], "error")
        self.assertIn("DRAConsumableCapacity", found["remedy"])
        self.assertIn("allowMultipleAllocations", found["text"])
        (event,) = wait_for("the event", lambda: self.events(NODE))
        self.assertEqual((event["reason"], event["involvedObject"]["kind"], event["metadata"]["namespace"]),
                         ("SliceFieldsDropped", "Node", "default"))
        self.assertIn("DRAConsumableCapacity", event["message"])
        wait_for("the publication", lambda: self.findings().get("slices.published"))
        self.assertLessEqual(len([r for r in log if "resourceslices" in r["path"] and r["method"] != "GET"]), 1)


class Events(Case):
    version, gpus = "1.34", 1

    def test_a_refused_claim_has_an_event_that_says_why(self):
        claim = self.claim("gone", result(device="hami-gpu-9"))
        error = self.prepare(claim)
        (event,) = wait_for("the event", lambda: self.events(claim[2]))
        self.assertEqual((event["reason"], event["type"], event["action"]), ("PrepareFailed", "Warning", "Prepare"))
        self.assertIn("hami-gpu-9 is not on this node", event["message"])
        self.assertTrue(error.endswith(event["message"]))
        self.assertEqual(event["involvedObject"]["kind"], "ResourceClaim")
        self.assertEqual(event["metadata"]["namespace"], "default")

    def test_a_mistake_in_a_share_config_is_told(self):
        config = [{"source": "FromClaim", "requests": [], "opaque": {"driver": DRIVER, "parameters": {
            "apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", "compute": {"polcy": "Hard"}}}}]
        claim = self.claim("typo", config=config)
        self.assertNotEqual(self.prepare(claim), "")
        (event,) = wait_for("the event", lambda: self.events(claim[2]))
        self.assertIn("polcy", event["message"])

    def test_no_room_names_the_holders_and_a_retry_is_a_series(self):
        self.assertEqual(self.prepare(self.claim("holder", result(cores="80"))), "")
        claim = self.claim("late", result(cores="50", memory="1Gi"))
        self.prepare(claim, timeout=1.5)
        (event,) = wait_for("the event", lambda: self.events(claim[2]))
        self.assertEqual(event["reason"], "NoRoom")
        self.assertIn("held by default/holder", event["message"])
        before = len(self.world.http.request_log)
        for _ in range(3):
            self.prepare(claim, timeout=1.2)
        self.assertEqual([r for r in self.world.http.request_log[before:] if "/events" in r["path"]], [])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""alq-alloc against what Kubernetes' own scheduler allocated, and its line protocol.

tests/conformance/alloc/kubernetes-*.json hold claims recorded on real clusters together with the allocation that the
scheduler wrote. Ours must be the same but for shareIDs and the time. Kubernetes before 1.36 takes the slices of a pool in
no fixed order, so there one of the orders must give the recorded result.
"""

import copy
import itertools
import json
import os
import re
import subprocess
import unittest

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ALIQUOT_BUILD", os.path.join(REPO, "build"))
ALQ_ALLOC = os.path.join(BUILD, "src", "alloc", "alq-alloc")
FIXTURES = os.path.join(REPO, "tests", "conformance", "alloc")
NODE = {"metadata": {"name": "node-a", "labels": {"zone": "z1", "gpus": "2"}}}
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def load(version):
    with open(os.path.join(FIXTURES, "kubernetes-%s.json" % version), encoding="utf-8") as f:
        return json.load(f)


class Alloc:
    """One alq-alloc process, asked line by line."""

    def __init__(self):
        self.process = subprocess.Popen([ALQ_ALLOC], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask_raw(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, request):
        return self.ask_raw(json.dumps(request).encode())

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(10)
        self.process.stdout.close()
        return code


def comparable(allocation):
    """The allocation without what differs from run to run."""
    a = copy.deepcopy(allocation)
    a.pop("allocationTimestamp", None)
    for result in a["devices"]["results"]:
        result["shareID"] = "shareID" in result
    return a


@unittest.skipUnless(os.access(ALQ_ALLOC, os.X_OK), "alq-alloc is not built")
class AllocTest(unittest.TestCase):
    def setUp(self):
        self.alloc = Alloc()
        self.addCleanup(self.alloc.process.stdout.close)
        self.addCleanup(self.alloc.close)

    def check_recorded(self, version):
        fixture = load(version)
        claims = {s["name"]: s for s in fixture["scenarios"]}
        self.assertGreaterEqual(len(claims), 15)
        for scenario in fixture["scenarios"]:
            with self.subTest(version=version, scenario=scenario["name"]):
                allocated = []
                for name in scenario["allocated"]:
                    held = copy.deepcopy(claims[name]["claim"])
                    held["status"] = {"allocation": claims[name]["expect"]["allocation"]}
                    allocated.append(held)
                orders = [fixture["slices"]] if version == "1.36" else itertools.permutations(fixture["slices"])
                replies = [self.alloc.ask({
                    "claims": [scenario["claim"]], "classes": [fixture["class"]], "slices": list(slices),
                    "allocated": allocated, "node": NODE, "serverVersion": version}) for slices in orders]
                self.check_replies(scenario, replies)

    def check_replies(self, scenario, replies):
        expect = scenario["expect"]
        if "allocation" not in expect:
            for reply in replies:
                (key, text), = expect.items()
                self.assertIn(key, reply)
                self.assertIn(text, reply[key])
            return
        uid = scenario["claim"]["metadata"]["uid"]
        got = [comparable(r["allocations"][uid]) for r in replies if "allocations" in r]
        self.assertTrue(got, replies)
        self.assertIn(comparable(expect["allocation"]), got)
        for reply in replies:
            for result in reply.get("allocations", {}).get(uid, {"devices": {"results": []}})["devices"]["results"]:
                self.assertRegex(result["shareID"], UUID4)

    def test_recorded_1_34_same_allocations(self):
        self.check_recorded("1.34")

    def test_recorded_1_36_same_allocations(self):
        self.check_recorded("1.36")

    def test_share_ids_differ_between_results(self):
        fixture = load("1.36")
        claim = next(s["claim"] for s in fixture["scenarios"] if s["name"] == "two-shares-two-containers")
        request = {"claims": [claim], "classes": [fixture["class"]], "slices": fixture["slices"], "node": NODE}
        ids = set()
        for _ in range(4):
            reply = self.alloc.ask(request)
            for result in reply["allocations"][claim["metadata"]["uid"]]["devices"]["results"]:
                ids.add(result["shareID"])
        self.assertEqual(len(ids), 8)

    def test_now_becomes_the_allocation_timestamp(self):
        fixture = load("1.36")
        claim = fixture["scenarios"][0]["claim"]
        reply = self.alloc.ask({"claims": [claim], "classes": [fixture["class"]], "slices": fixture["slices"], "node": NODE,
                                "now": "2026-11-30T03:48:40Z"})
        allocation = reply["allocations"][claim["metadata"]["uid"]]
        self.assertEqual(allocation["allocationTimestamp"], "2026-11-30T03:48:40Z")

    def test_malformed_lines_get_an_error_and_the_next_is_read(self):
        for line in (b"{", b"[]", b"17", b"null", b'{"claims": 3}', b'{"claims": [1], "node": NODE}', b"\xff\xfe", b"{}",
                     b'{"claims": [{}], "node": {"metadata": {"name": "n"}}}',
                     b'{"claims": [], "slices": [{}], "node": {"metadata": {"name": "n"}}}',
                     b'{"claims": [], "node": {}}', b'{"claims": [], "claims": []}',
                     b'{"claims": [], "node": {"metadata": {"name": "n"}}, "serverVersion": "two"}'):
            with self.subTest(line=line):
                reply = self.alloc.ask_raw(line)
                self.assertEqual(list(reply), ["error"])
                self.assertTrue(reply["error"])
        self.assertEqual(self.alloc.ask({"claims": [], "node": NODE}), {"allocations": {}})

    def test_end_of_input_ends_it(self):
        self.assertEqual(self.alloc.close(), 0)

    def test_check_cel_line_answers_per_expression(self):
        reply = self.alloc.ask({"checkCel": ["true", "device.attributes[", "device.driver == 'x'", 1]})
        self.assertEqual([x is None for x in reply["cel"]], [True, False, True, False])
        self.assertIn("Syntax error", reply["cel"][1])

    def test_check_cel_message_cut_within_a_character_is_still_json(self):
        bad = ["true '" + "a" * n + "\u00e9" * 40 + "'" for n in range(4)] + ["\u00e9" * 300]
        reply = self.alloc.ask({"checkCel": bad})
        self.assertEqual(len(reply["cel"]), 5)
        self.assertTrue(all(reply["cel"]))

    def test_check_cel_option_prints_ok_or_the_error(self):
        good = subprocess.run([ALQ_ALLOC, "--check-cel", "device.allowMultipleAllocations"], capture_output=True, text=True)
        self.assertEqual((good.returncode, good.stdout), (0, "ok\n"))
        bad = subprocess.run([ALQ_ALLOC, "--check-cel", "device.nothing"], capture_output=True, text=True)
        self.assertEqual((bad.returncode, bad.stdout), (1, ""))
        self.assertIn("undefined field 'nothing'", bad.stderr)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The sandbox against what real Kubernetes 1.34 and 1.36 answered (tests/conformance/sandbox), kubectl, a DRA plugin
of grpcio, and containers with CDI specs. Every test starts what it needs and leaves nothing."""

import copy
import http.client
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import sandbox_peer as peer  # noqa: E402

import cdi  # noqa: E402  (on the path by sandbox_peer)
import pluginapi  # noqa: E402
import rootfs  # noqa: E402

GOLDEN = peer.REPO / "tests/conformance/sandbox"
VERSIONS = ("1.34", "1.36")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
# Debian's kubectl is 1.20; a newer one elsewhere is tried too.
KUBECTLS = list(dict.fromkeys(filter(None, [shutil.which("kubectl"), os.environ.get("ALIQUOT_KUBECTL")])))
CONTAINERS = os.geteuid() == 0 and any(shutil.which(p) for p in ("runc", "crun", "podman"))


def golden(version, name):
    return json.loads((GOLDEN / version / name).read_text())


def set_path(obj, path, value):
    """Applies one recorded change: a dotted path in which attribute and capacity names may hold dots."""
    match = re.match(r"(.*?\.(?:attributes|capacity))\.(.*)$", path)
    if match and match[1].endswith("attributes"):
        inner = re.match(r"(.*?)(?:\.(int|bool|string|version))?$", match[2])
        parts = re.findall(r"[^.\[\]]+", match[1]) + [inner[1]] + ([inner[2]] if inner[2] else [])
    elif match:
        parts = re.findall(r"[^.\[\]]+", match[1]) + match[2].split(".")
    else:
        parts = re.findall(r"[^.\[\]]+", path)
    for part in parts[:-1]:
        obj = obj[int(part)] if isinstance(obj, list) else obj.setdefault(part, {})
    last = int(parts[-1]) if isinstance(obj, list) else parts[-1]
    if value == "(removed)":
        obj.pop(last, None)
    else:
        obj[last] = value


def good_slice(version, name="good"):
    data = golden(version, "slice.json")
    sent = copy.deepcopy(data["sent"])
    sent["metadata"] = {"name": name}
    sent["spec"]["pool"] = {"name": "bad", "generation": 1, "resourceSliceCount": 1}
    sent["spec"]["devices"] = copy.deepcopy(data["devices"])
    return sent


def claim(name, cores="30", memory="4Gi", request="gpu"):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": request, "exactly": {
                "deviceClassName": peer.DRIVER, "capacity": {"requests": {"cores": cores, "memory": memory}}}}]}}}


def pod(name, claim_name=None, command="true", template=None, **spec):
    out = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"restartPolicy": "Never", "containers": [
               {"name": "c", "image": "none", "command": ["sh", "-c", command]}], **spec}}
    if claim_name or template:
        key = "resourceClaimName" if claim_name else "resourceClaimTemplateName"
        out["spec"]["resourceClaims"] = [{"name": "gpu", key: claim_name or template}]
        out["spec"]["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
    return out


DEVICE_CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": peer.DRIVER},
                "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{peer.DRIVER}'"}}]}}


class Golden(unittest.TestCase):
    """Answers of the API server, equal to the recorded ones."""

    def sandbox(self, version, *options, **more):
        box = peer.Sandbox(version, *options, **more)
        self.addCleanup(box.stop)
        return box

    def test_slices_with_one_mistake_get_the_recorded_answers(self):
        for version in VERSIONS:
            box, equal = self.sandbox(version), 0
            cases = golden(version, "bad-slices.json")
            for name, case in cases.items():
                obj = good_slice(version, f"bad-{name}")
                if name == "object-name":
                    obj["metadata"]["name"] = "Bad_Name"
                elif name == "object-no-name":
                    obj["metadata"] = {}
                for path, value in case["change"]:
                    set_path(obj, path, value)
                with self.subTest(version=version, case=name):
                    if case["status"] == 0:
                        with self.assertRaises((http.client.HTTPException, OSError)):
                            box.admin.request("POST", SLICES, obj)
                        continue
                    status, _, answer = box.admin.request("POST", SLICES, obj)
                    self.assertEqual(status, case["status"], answer)
                    if status == 422:
                        self.assertEqual(answer["message"], case["message"])
                        self.assertEqual(answer["details"]["causes"], case["causes"])
                        self.assertEqual(answer["reason"], "Invalid")
                    equal += 1
            self.assertGreaterEqual(equal, len(cases) - 1)

    def test_quantities_are_rewritten_as_recorded(self):
        for version in VERSIONS:
            box = self.sandbox(version)
            for i, case in enumerate(golden(version, "normalisation.json")):
                with self.subTest(version=version, case=case["note"]):
                    obj = good_slice(version, f"n{i}")
                    multi = any("requestPolicy" in c for c in case["sent"]["capacity"].values())
                    obj["spec"]["devices"] = [{"name": "d", **case["sent"],
                                               **({"allowMultipleAllocations": True} if multi else {})}]
                    status, _, answer = box.admin.request("POST", SLICES, obj)
                    self.assertEqual(status, case["status"], answer)
                    if status == 201:
                        device = answer["spec"]["devices"][0]
                        self.assertEqual({k: device[k] for k in case["stored"]}, case["stored"])
                    else:
                        self.assertEqual(answer["message"], case["stored"]["message"])

    def test_created_slice_reads_as_recorded(self):
        for version in VERSIONS:
            box, data = self.sandbox(version), golden(version, "slice.json")
            box.admin.request("DELETE", "/api/v1/nodes/node-a")
            node = box.admin.ok("POST", "/api/v1/nodes", {"metadata": {"name": "node-a"}})
            sent = copy.deepcopy(data["sent"])
            sent["metadata"]["ownerReferences"][0]["uid"] = node["metadata"]["uid"]
            answer = box.admin.ok("POST", SLICES, sent)
            want = copy.deepcopy(data["stored"])
            for meta in (answer["metadata"], want["metadata"]):
                for key in ("uid", "resourceVersion", "creationTimestamp"):
                    self.assertTrue(meta.pop(key))
                meta["ownerReferences"][0].pop("uid")
            self.assertEqual(json.dumps(answer), json.dumps(want), "fields or their order differ")

    def test_errors_are_answered_as_recorded(self):
        for version in VERSIONS:
            box = self.sandbox(version)
            sent = copy.deepcopy(golden(version, "slice.json")["sent"])
            sent["metadata"].pop("ownerReferences", None)
            box.admin.ok("POST", SLICES, sent)
            clients = {"admin": box.admin, "none": box.client(token=""), "bad": box.client(token="wrong"),
                       "norights": box.client("norights.kubeconfig")}
            for name, case in golden(version, "answers.json").items():
                who = "norights" if name.startswith("36-") else "bad" if "bad-token" in name else \
                    "none" if "anonymous" in name else "admin"
                with self.subTest(version=version, case=name):
                    client = clients[who]
                    status, _, answer = client.request(case["method"], case["path"], case["body"], case["headers"])
                    self.assertEqual(status, case["status"], answer)
                    self.assertEqual(answer, case["answer"])
            for client in clients.values():
                client.close()

    def test_claims_are_refused_as_recorded(self):
        for version in VERSIONS:
            box = self.sandbox(version)
            for namespace in ("no-label",):
                box.admin.ok("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            for name, case in golden(version, "claims.json").items():
                with self.subTest(version=version, case=name):
                    namespace = case["body"]["metadata"].get("namespace", "default")
                    path = CLAIMS.replace("/default/", f"/{namespace}/")
                    status, _, answer = box.admin.request("POST", path, case["body"])
                    self.assertEqual(status, case["status"], answer)
                    if status == 201:
                        self.assertEqual(answer["spec"], case["answer"]["spec"])
                        self.assertEqual(answer["status"], case["answer"]["status"])
                    else:
                        self.assertEqual(answer, case["answer"])

    def test_gates_off_drop_what_the_real_server_drops(self):
        for version in VERSIONS:
            box = self.sandbox(version, "--gate-off")
            for name, case in golden(version, "gate-off.json").items():
                with self.subTest(version=version, case=name):
                    path = SLICES if "slice" in name else CLAIMS
                    status, _, answer = box.admin.request("POST", path, case["body"])
                    self.assertEqual(status, case["status"], answer)
                    if status == 201:
                        self.assertEqual(answer["spec"], case["answer"]["spec"])
                    else:
                        self.assertEqual(answer, case["answer"])
            made = box.admin.ok("GET", f"{SLICES}/gate-off")
            sent = copy.deepcopy(golden(version, "gate-off.json")["01-slice-create"]["body"])
            again = box.admin.ok("PUT", f"{SLICES}/gate-off", sent)
            self.assertEqual(again["metadata"]["generation"], made["metadata"]["generation"] + 1)

    def test_claim_status_is_judged_as_recorded(self):
        for version in VERSIONS:
            cases = golden(version, "status.json")
            box = self.sandbox(version)
            allocated = cases["01-put-ok"]["answer"]
            made = box.admin.ok("POST", CLAIMS, {"metadata": {"name": "single-gpu-0"}, "spec": allocated["spec"]})
            status = {k: v for k, v in allocated["status"].items() if k != "devices"}
            # Without the pod the controller would free the claim.
            user = box.admin.ok("POST", PODS, pod("pod-s", schedulerName="the-test"))["metadata"]["uid"]
            status["reservedFor"][0]["uid"] = user
            box.admin.ok("PUT", f"{CLAIMS}/single-gpu-0/status", {**made, "status": status})
            for name, case in cases.items():
                if not name.startswith(("01", "02", "03")) or isinstance(case["body"], str):
                    continue
                with self.subTest(version=version, case=name):
                    body = copy.deepcopy(case["body"])
                    for key in ("uid", "resourceVersion", "creationTimestamp"):
                        body["metadata"].pop(key, None)
                    for device in body.get("status", {}).get("devices", []):
                        if "times y" in (device.get("data") or {}).get("x", ""):
                            device["data"]["x"] = "y" * 10300
                    if isinstance(body.get("spec"), str):
                        body["spec"] = allocated["spec"]
                    for entry in body.get("status", {}).get("reservedFor", []):
                        entry["uid"] = user
                    code, _, answer = box.admin.request(case["method"], case["path"], body)
                    self.assertEqual(code, case["status"], answer)
                    if code == 422:
                        self.assertEqual(answer, case["answer"])

    def test_daemon_may_do_what_its_role_says_alone(self):
        box = self.sandbox("1.36")
        daemon = box.client("daemon.kubeconfig")
        self.addCleanup(daemon.close)
        self.assertEqual(daemon.request("GET", f"{CLAIMS}/absent")[0], 404)
        self.assertEqual(daemon.request("GET", SLICES)[0], 200)
        self.assertEqual(daemon.request("POST", SLICES, good_slice("1.36"))[0], 201)
        self.assertEqual(daemon.request("DELETE", f"{SLICES}/good")[0], 200)
        self.assertEqual(daemon.request("GET", "/api/v1/nodes/node-a")[0], 200)
        for method, path in (("GET", CLAIMS), ("GET", PODS), ("DELETE", SLICES), ("DELETE", "/api/v1/nodes/node-a")):
            status, _, answer = daemon.request(method, path)
            self.assertEqual((status, answer["reason"]), (403, "Forbidden"))
            self.assertIn('User "system:serviceaccount:kube-system:aliquotd" cannot', answer["message"])


class Server(unittest.TestCase):
    """Behaviour of the API server that is not one recorded answer."""

    def setUp(self):
        self.box = peer.Sandbox("1.36")
        self.addCleanup(self.box.stop)
        self.admin = self.box.admin

    def test_unchanged_update_keeps_version_and_stale_update_conflicts(self):
        made = self.admin.ok("POST", SLICES, good_slice("1.36"))
        same = self.admin.ok("PUT", f"{SLICES}/good", made)
        self.assertEqual(same["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"])
        changed = copy.deepcopy(made)
        changed["spec"]["pool"]["generation"] = 2
        newer = self.admin.ok("PUT", f"{SLICES}/good", changed)
        self.assertEqual(newer["metadata"]["generation"], 2)
        status, _, answer = self.admin.request("PUT", f"{SLICES}/good", changed)
        self.assertEqual((status, answer["reason"]), (409, "Conflict"))
        changed["spec"].update(driver="other.example.com", nodeName="node-b")
        changed["spec"]["pool"]["name"] = "x"
        changed["metadata"].pop("resourceVersion")
        status, _, answer = self.admin.request("PUT", f"{SLICES}/good", changed)
        self.assertEqual(status, 422)
        self.assertEqual([c["field"] for c in answer["details"]["causes"]],
                         ["spec.pool.name", "spec.driver", "spec.nodeName"])

    def test_watch_tells_the_life_of_an_object_and_ends_with_a_bookmark(self):
        start = self.admin.ok("GET", SLICES)["metadata"]["resourceVersion"]
        events = []
        client = self.box.client()
        watcher = threading.Thread(target=lambda: events.extend(client.watch(
            f"{SLICES}?fieldSelector=spec.driver%3D{peer.DRIVER}&allowWatchBookmarks=true&resourceVersion={start}",
            2)))
        watcher.start()
        made = self.admin.ok("POST", SLICES, good_slice("1.36"))
        made["spec"]["pool"]["generation"] = 5
        self.admin.ok("PUT", f"{SLICES}/good", made)
        other = good_slice("1.36", "other")
        other["spec"]["driver"] = "other.example.com"
        self.admin.ok("POST", SLICES, other)
        self.admin.ok("DELETE", f"{SLICES}/good")
        watcher.join()
        client.close()
        self.assertEqual([(e["type"], e["object"]["metadata"].get("name")) for e in events],
                         [("ADDED", "good"), ("MODIFIED", "good"), ("DELETED", "good"), ("BOOKMARK", None)])
        versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
        self.assertEqual(versions, sorted(versions))

    def test_watch_from_a_forgotten_version_is_an_error_event(self):
        self.admin.ok("POST", SLICES, good_slice("1.36"))
        self.admin.ok("POST", "/sandbox/compact")
        event, = self.admin.watch(f"{SLICES}?resourceVersion=1", 2)
        self.assertEqual((event["type"], event["object"]["code"], event["object"]["reason"]),
                         ("ERROR", 410, "Expired"))
        status, _, answer = self.admin.request("GET", f"{SLICES}?resourceVersion=1&resourceVersionMatch=Exact")
        self.assertEqual((status, answer["reason"]), (410, "Expired"))

    def test_streaming_list_ends_with_its_bookmark(self):
        self.admin.ok("POST", SLICES, good_slice("1.36"))
        events = self.admin.watch(f"{SLICES}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
                                  "&allowWatchBookmarks=true", 1)
        self.assertEqual([e["type"] for e in events][:2], ["ADDED", "BOOKMARK"])
        self.assertEqual(events[1]["object"]["metadata"]["annotations"], {"k8s.io/initial-events-end": "true"})
        self.assertEqual(events[1]["object"]["spec"],
                         {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}})

    def test_pages_of_a_list_show_one_moment(self):
        for i in range(5):
            self.admin.ok("POST", SLICES, good_slice("1.36", f"s{i}"))
        first = self.admin.ok("GET", f"{SLICES}?limit=2")
        self.assertEqual(first["metadata"]["remainingItemCount"], 3)
        self.admin.ok("DELETE", f"{SLICES}/s3")
        second = self.admin.ok("GET", f"{SLICES}?limit=3&continue={first['metadata']['continue']}")
        self.assertEqual([o["metadata"]["name"] for o in first["items"] + second["items"]],
                         ["s0", "s1", "s2", "s3", "s4"])
        self.assertNotIn("continue", second["metadata"])

    def test_finalizer_keeps_a_deleted_claim(self):
        body = claim("kept")
        body["metadata"]["finalizers"] = ["example.com/keep"]
        self.admin.ok("POST", CLAIMS, body)
        gone = self.admin.ok("DELETE", f"{CLAIMS}/kept")
        self.assertIn("deletionTimestamp", gone["metadata"])
        now = self.admin.ok("GET", f"{CLAIMS}/kept")
        now["metadata"].pop("finalizers")
        self.admin.ok("PUT", f"{CLAIMS}/kept", now)
        self.assertEqual(self.admin.request("GET", f"{CLAIMS}/kept")[0], 404)

    def test_apply_takes_back_what_its_manager_no_longer_names(self):
        self.admin.ok("POST", CLAIMS, claim("c"))
        head = {"Content-Type": "application/apply-patch+yaml"}

        def apply(labels):
            return self.admin.ok("PATCH", f"{CLAIMS}/c?fieldManager=m&force=true", {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "c", "labels": labels}}, head)
        self.assertEqual(apply({"a": "1", "b": "2"})["metadata"]["labels"], {"a": "1", "b": "2"})
        self.admin.ok("PATCH", f"{CLAIMS}/c", {"metadata": {"labels": {"x": "y"}}},
                      {"Content-Type": "application/merge-patch+json"})
        self.assertEqual(apply({"a": "3"})["metadata"]["labels"], {"a": "3", "x": "y"})

    def test_faults_are_given_to_the_requests_they_name(self):
        self.admin.ok("POST", "/sandbox/fault", {"match": "GET .*/resourceslices", "code": 429, "count": 2,
                                                 "headers": {"Retry-After": "1"}})
        for _ in range(2):
            status, headers, answer = self.admin.request("GET", SLICES)
            self.assertEqual((status, headers["Retry-After"], answer["reason"]), (429, "1", "TooManyRequests"))
        self.assertEqual(self.admin.request("GET", SLICES)[0], 200)

    def test_owner_gone_takes_its_objects_with_it(self):
        owner = self.admin.ok("POST", CLAIMS, claim("owner"))
        body = claim("owned")
        body["metadata"]["ownerReferences"] = [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                                                "name": "owner", "uid": owner["metadata"]["uid"]}]
        self.admin.ok("POST", CLAIMS, body)
        self.admin.ok("DELETE", f"{CLAIMS}/owner")
        self.box.wait("the owned claim to go", lambda: self.admin.request("GET", f"{CLAIMS}/owned")[0] == 404)


@unittest.skipUnless(KUBECTLS, "kubectl is not installed")
class Kubectl(unittest.TestCase):
    def test_plain_commands(self):
        objects = json.dumps({"apiVersion": "v1", "kind": "List",
                              "items": [claim("k-claim"), DEVICE_CLASS, pod("k-pod", "k-claim")]})
        for program in KUBECTLS:
            with self.subTest(kubectl=program), peer.Sandbox("1.36") as box:
                def run(*args, **more):
                    return box.kubectl(program, *args, **more)[1]
                self.assertIn("k-claim created", run("create", "-f", "-", stdin=objects))
                code, _, errors = box.kubectl(program, "create", "-f", "-", stdin=json.dumps(claim("k-claim")),
                                              check=False)
                self.assertEqual(code, 1)
                self.assertIn('resourceclaims.resource.k8s.io "k-claim" already exists', errors)
                table = run("get", "resourceclaims,pods,deviceclasses")
                self.assertRegex(table, r"(?m)^NAME +STATE +AGE$")
                self.assertRegex(table, r"(?m)^resourceclaim.resource.k8s.io/k-claim +pending +\d+s$")
                self.assertRegex(table, r"(?m)^pod/k-pod +0/1 +Pending +0 +\d+s$")
                self.assertIn("k-claim", run("apply", "-f", "-", stdin=objects))
                self.assertIn("Device Class Name", run("describe", "resourceclaim", "k-claim"))
                self.assertIn("Status:", run("describe", "pod", "k-pod"))
                run("label", "resourceclaim", "k-claim", "a=b")
                run("annotate", "resourceclaim", "k-claim", "c=d")
                self.assertEqual(run("get", "resourceclaim", "k-claim", "-o", "jsonpath={.metadata.labels.a}"), "b")
                self.assertRegex(run("get", "node"), r"node-a +Ready")
                self.assertIn("resourceslices", run("api-resources", "--api-group=resource.k8s.io"))
                run("delete", "-f", "-", stdin=objects)
                run("wait", "--for=delete", "resourceclaim/k-claim", "--timeout=10s", check=False)
                code, _, errors = box.kubectl(program, "get", "resourceclaim", "k-claim", check=False)
                self.assertEqual((code, "NotFound" in errors), (1, True))

    def test_bad_slice_is_shown_with_the_servers_words(self):
        bad = good_slice("1.36")
        bad["spec"]["devices"][0]["name"] = "A.b"
        for program in KUBECTLS:
            with self.subTest(kubectl=program), peer.Sandbox("1.36") as box:
                code, _, errors = box.kubectl(program, "create", "-f", "-", stdin=json.dumps(bad), check=False)
                self.assertEqual(code, 1)
                self.assertIn("spec.devices[0].name: Invalid value", errors)


class Kubelet(unittest.TestCase):
    """The kubelet stand-in against a plugin of grpcio; containers are not needed for these."""

    def start(self, *options, **more):
        box = peer.Sandbox("1.36", "--retry-seconds", "0.2", *options, **more)
        self.addCleanup(box.stop)
        return box

    def plugin(self, box, **more):
        plugin = peer.Plugin(box, **more)
        self.addCleanup(plugin.stop)
        box.wait("registration", lambda: plugin.registered)
        return plugin

    def publish(self, box):
        box.admin.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", DEVICE_CLASS)
        box.admin.ok("POST", SLICES, good_slice("1.36", "s"))

    def bound_pod(self, box, name, claims):
        """A pod on the node with allocated and reserved claims, as the scheduler would have left it."""
        body = pod(name)
        body["spec"]["resourceClaims"] = [{"name": c, "resourceClaimName": c} for c in claims]
        body["spec"]["schedulerName"] = "the-test"
        made = box.admin.ok("POST", PODS, body)
        for name_ in claims:
            obj = box.admin.ok("POST", CLAIMS, claim(name_))
            obj["status"] = {"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": peer.DRIVER, "pool": "bad", "device": "hami-gpu-0",
                 "shareID": "11111111-1111-4111-8111-111111111111",
                 "consumedCapacity": {"cores": "30", "memory": "4Gi"}}]}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}]}
            box.admin.ok("PUT", f"{CLAIMS}/{name_}/status", obj)
        box.admin.ok("POST", f"{PODS}/{name}/binding", {"target": {"kind": "Node", "name": "node-a"}})
        return made

    def test_calls_have_the_recorded_paths_and_bytes(self):
        for versions, run in ((("v1.DRAPlugin", "v1beta1.DRAPlugin"), "both"), (("v1beta1.DRAPlugin",), "v1beta1")):
            with self.subTest(run=run):
                box = self.start()
                plugin = self.plugin(box, versions=versions)
                self.bound_pod(box, "p", ["single-gpu-0"])
                box.wait("unprepare", lambda: any("Unprepare" in c[0] for c in plugin.calls))
                recorded = [c for c in golden("1.36", "kubelet.json") if "DRAPlugin/" in c["path"]]
                want = [c["path"] for c in recorded if (".v1beta1." in c["path"]) == (run == "v1beta1")]
                self.assertEqual([c[0] for c in plugin.calls], want)
                for path, (key,) in plugin.calls:
                    example = next(c for c in recorded if c["path"] == path)
                    fields = example["message"]["claims"][0]
                    request = pluginapi.messages["ClaimsRequest"]()
                    request.claims.add(**fields)
                    self.assertEqual(request.SerializeToString().hex(), example["hex"])
                    self.assertEqual((key[0], key[2]), ("default", "single-gpu-0"))
                limits = {m.rpartition("/")[2]: left for m, left in plugin.metadata}
                self.assertLess(limits["GetInfo"], 1.5)
                self.assertTrue(30 < limits["NodePrepareResources"] < 46, limits)

    def test_several_claims_of_a_pod_come_in_one_call(self):
        box = self.start()
        plugin = self.plugin(box)
        self.bound_pod(box, "p", ["a", "b"])
        box.wait("prepare", lambda: plugin.calls)
        self.assertEqual([k[2] for k in plugin.calls[0][1]], ["a", "b"])

    def test_failed_prepare_is_an_event_and_tried_again(self):
        box = self.start()
        plugin = self.plugin(box)
        plugin.fail = "hami-gpu-0: 12288 MiB wanted, 4096 MiB free"
        self.bound_pod(box, "p", ["c"])
        box.wait("a second try", lambda: len(plugin.calls) >= 2)
        wanted = ("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic resources: "
                  "NodePrepareResources failed for ResourceClaim c: hami-gpu-0: 12288 MiB wanted, 4096 MiB free")
        self.assertIn(wanted, box.events("p"))
        self.assertEqual(box.pod("p")["status"]["phase"], "Pending")
        plugin.fail = None
        box.wait_phase("p", "Succeeded", "Failed")

    def test_wrong_answers_of_a_plugin_are_errors(self):
        def skip(request, answer):
            return answer

        def unknown(request, answer):
            answer.claims.add(key="no-such-uid")
            return answer
        for reply, text in ((skip, "NodePrepareResources skipped 1 ResourceClaims"),
                            (unknown, "returned a result for an unknown claim UID: no-such-uid")):
            with self.subTest(text=text):
                box = self.start()
                plugin = self.plugin(box)
                plugin.reply = reply
                self.bound_pod(box, "p", ["c"])
                box.wait(text, lambda: [m for _, m in box.events("p") if text in m])

    def test_missing_driver_is_named(self):
        box = self.start()
        self.bound_pod(box, "p", ["c"])
        text = f"DRA driver {peer.DRIVER} is not registered"
        box.wait(text, lambda: [m for _, m in box.events("p") if text in m])

    def test_slices_go_after_the_socket_and_at_a_restart(self):
        box = self.start("--wipe-seconds", "0.3")
        plugin = self.plugin(box)
        box.admin.ok("POST", SLICES, good_slice("1.36", "s"))
        box.admin.ok("POST", "/sandbox/restart-kubelet")
        self.assertEqual(box.admin.request("GET", f"{SLICES}/s")[0], 404)
        box.wait("registration again", lambda: len(plugin.registered) == 2)
        box.admin.ok("POST", SLICES, good_slice("1.36", "s"))
        plugin.stop()
        box.wait("the slice to go", lambda: box.admin.request("GET", f"{SLICES}/s")[0] == 404)

    @unittest.skipUnless(peer.allocator(), "alq-alloc is not built")
    def test_template_claim_is_made_prepared_once_and_deleted(self):
        box = self.start()
        plugin = self.plugin(box)
        self.publish(box)
        template = {"metadata": {"name": "t"}, "spec": {"spec": claim("x", "40", "8Gi")["spec"]}}
        box.admin.ok("POST", CLAIMS.replace("resourceclaims", "resourceclaimtemplates"), template)
        box.admin.ok("POST", PODS, pod("p", template="t"))
        box.wait_phase("p", "Succeeded", "Failed")
        (prepare, unprepare) = plugin.calls
        self.assertRegex(prepare[1][0][2], r"^p-gpu-[a-z0-9]{5}$")
        self.assertEqual(prepare[1], unprepare[1])
        box.wait("the claim to go", lambda: not box.admin.ok("GET", CLAIMS)["items"])
        self.assertEqual(box.pod("p")["status"]["resourceClaimStatuses"],
                         [{"name": "gpu", "resourceClaimName": prepare[1][0][2]}])

    @unittest.skipUnless(peer.allocator(), "alq-alloc is not built")
    def test_full_device_keeps_a_pod_pending_until_room_is_made(self):
        box = self.start()
        plugin = self.plugin(box)
        box.admin.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", DEVICE_CLASS)
        one = good_slice("1.36", "s")
        one["spec"]["devices"] = one["spec"]["devices"][:1]
        box.admin.ok("POST", SLICES, one)
        plugin.fail = "held back by the test"
        for name in ("a", "b"):
            box.admin.ok("POST", CLAIMS, claim(name, "60"))
        box.admin.ok("POST", PODS, pod("pa", "a"))
        box.wait("pod pa to be bound", lambda: box.pod("pa")["spec"].get("nodeName"))
        allocation = box.admin.ok("GET", f"{CLAIMS}/a")
        self.assertEqual(allocation["metadata"]["finalizers"], ["resource.kubernetes.io/delete-protection"])
        self.assertEqual(allocation["status"]["reservedFor"][0]["name"], "pa")
        box.admin.ok("POST", PODS, pod("pb", "b"))
        message = box.wait("the event", lambda: [m for r, m in box.events("pb") if r == "FailedScheduling"])[0]
        self.assertIn("0/1 nodes are available: 1 cannot allocate all claims", message)
        self.assertEqual(box.pod("pb")["status"]["conditions"][0]["reason"], "Unschedulable")
        plugin.fail = None
        box.admin.ok("DELETE", f"{PODS}/pa")
        box.wait_phase("pb", "Succeeded", "Failed")
        self.assertEqual(box.wait("claim a to be free", lambda: (
            lambda c: c if c["status"] == {} and "finalizers" not in c["metadata"] else None)(
                box.admin.ok("GET", f"{CLAIMS}/a")))["status"], {})

    @unittest.skipUnless(peer.allocator(), "alq-alloc is not built")
    def test_cel_run_time_error_is_shown_in_the_event(self):
        box = self.start()
        self.publish(box)
        body = claim("c")
        body["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
            {"cel": {"expression": f"device.attributes['{peer.DRIVER}'].absent == 'x'"}}]
        box.admin.ok("POST", CLAIMS, body)
        box.admin.ok("POST", PODS, pod("p", "c"))
        message = box.wait("the event", lambda: [m for r, m in box.events("p") if r == "FailedScheduling"])[0]
        self.assertIn("no such key: absent", message)
        self.assertEqual(box.pod("p")["status"]["conditions"][0]["reason"], "SchedulerError")


@unittest.skipUnless(CONTAINERS, "containers need root and one of runc, crun, podman")
class Containers(unittest.TestCase):
    def start(self, runtime="auto"):
        box = peer.Sandbox("1.36", "--retry-seconds", "0.2", runtime=runtime)
        self.addCleanup(box.stop)
        state = box.admin.ok("GET", "/sandbox/kubelet")
        if state["runtime"] is None:
            self.skipTest(state["noRuntime"])
        return box

    def run_pod(self, box, body):
        box.admin.ok("POST", PODS, body)
        return box.wait_phase(body["metadata"]["name"], "Succeeded", "Failed")

    def logs(self, box, name, query=""):
        return box.admin.request("GET", f"{PODS}/{name}/log{query}", raw=True)[2].decode()

    def test_exit_code_output_and_environment(self):
        box = self.start()
        body = pod("p", command="echo $A; echo $$ >&2; exit 3")
        body["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x y"}]
        ended = self.run_pod(box, body)
        self.assertEqual(ended["status"]["phase"], "Failed")
        state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
        self.assertEqual((state["exitCode"], state["reason"]), (3, "Error"))
        self.assertEqual(sorted(self.logs(box, "p").splitlines()), ["1", "x y"])  # two streams, in either order

    def test_init_containers_come_first_and_volumes_are_shared(self):
        box = self.start()
        mounts = [{"name": "v", "mountPath": "/data"}]
        body = pod("p", command="cat /data/x", volumes=[{"name": "v", "emptyDir": {}}], initContainers=[
            {"name": "i", "image": "none", "command": ["sh", "-c", "echo made > /data/x"], "volumeMounts": mounts}])
        body["spec"]["containers"][0]["volumeMounts"] = mounts
        self.assertEqual(self.run_pod(box, body)["status"]["phase"], "Succeeded")
        self.assertEqual(self.logs(box, "p", "?container=c"), "made\n")

    def test_failing_container_is_started_again(self):
        box = self.start()
        mounts = [{"name": "v", "mountPath": "/data"}]
        body = pod("p", command="test -e /data/x && exit 0; echo > /data/x; exit 1",
                   volumes=[{"name": "v", "emptyDir": {}}])
        body["spec"]["restartPolicy"] = "OnFailure"
        body["spec"]["containers"][0]["volumeMounts"] = mounts
        ended = self.run_pod(box, body)
        self.assertEqual(ended["status"]["phase"], "Succeeded")
        self.assertEqual(ended["status"]["containerStatuses"][0]["restartCount"], 1)

    def test_deleted_pod_gets_term_and_then_kill(self):
        box = self.start()
        body = pod("p", command="trap '' TERM; echo up; while :; do sleep 0.1; done")
        body["spec"]["terminationGracePeriodSeconds"] = 1
        box.admin.ok("POST", PODS, body)
        box.wait("output", lambda: self.logs(box, "p").startswith("up"))
        box.admin.ok("DELETE", f"{PODS}/p")
        self.assertIn("deletionTimestamp", box.pod("p")["metadata"])
        box.wait("the pod to go", lambda: box.pod("p") is None)
        self.assertFalse(os.listdir(box.dir / "run/containers"))

    def test_followed_log_ends_with_the_container(self):
        box = self.start()
        box.admin.ok("POST", PODS, pod("p", command="for i in 1 2 3; do echo $i; sleep 0.1; done"))
        box.wait("a log", lambda: box.admin.request("GET", f"{PODS}/p/log", raw=True)[0] == 200)
        self.assertEqual(self.logs(box, "p", "?follow=true"), "1\n2\n3\n")

    def test_program_that_is_not_there_is_a_start_error(self):
        box = self.start()
        body = pod("p")
        body["spec"]["containers"][0]["command"] = ["no-such-program"]
        state = self.run_pod(box, body)["status"]["containerStatuses"][0]["state"]["terminated"]
        self.assertEqual((state["exitCode"], state["reason"]), (128, "StartError"))
        self.assertIn("no-such-program", state["message"])

    @unittest.skipUnless(peer.allocator(), "alq-alloc is not built")
    def test_claims_reach_containers_by_cdi_narrowed_by_request(self):
        for runtime in [r for r in ("runc", "crun", "podman") if shutil.which(r)]:
            with self.subTest(runtime=runtime):
                try:
                    box = self.start(runtime)
                except AssertionError as error:
                    self.skipTest(f"{runtime} cannot run here: {str(error)[-200:]}")
                plugin = peer.Plugin(box)
                self.addCleanup(plugin.stop)
                box.wait("registration", lambda: plugin.registered)
                box.admin.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", DEVICE_CLASS)
                box.admin.ok("POST", SLICES, good_slice("1.36", "s"))
                two = claim("two", request="big")
                two["spec"]["devices"]["requests"] += claim("", "10", "1Gi", "small")["spec"]["devices"]["requests"]
                box.admin.ok("POST", CLAIMS, two)
                body = pod("p", "two", command="env | grep SHARE_ | sort; ls /dev | grep nvidia")
                body["spec"]["containers"].append(copy.deepcopy(body["spec"]["containers"][0]))
                body["spec"]["containers"][1].update(name="d", resources={"claims": [{"name": "gpu",
                                                                                      "request": "small"}]})
                ended = self.run_pod(box, body)
                self.assertEqual(ended["status"]["phase"], "Succeeded", box.events("p"))
                self.assertEqual(self.logs(box, "p", "?container=c"), "SHARE_BIG=hami-gpu-0\nSHARE_SMALL=hami-gpu-0\n"
                                                                      "nvidia0\nnvidia1\n")
                self.assertEqual(self.logs(box, "p", "?container=d"), "SHARE_SMALL=hami-gpu-0\nnvidia1\n")
                self.assertEqual([c[0].rpartition("/")[2] for c in plugin.calls],
                                 ["NodePrepareResources", "NodeUnprepareResources"])
                plugin.stop()
                box.stop()

    @unittest.skipUnless(peer.allocator(), "alq-alloc is not built")
    def test_shared_claim_is_prepared_once_and_survives_a_kubelet_restart(self):
        box = self.start()
        plugin = peer.Plugin(box)
        self.addCleanup(plugin.stop)
        box.wait("registration", lambda: plugin.registered)
        box.admin.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", DEVICE_CLASS)
        box.admin.ok("POST", SLICES, good_slice("1.36", "s"))
        box.admin.ok("POST", CLAIMS, claim("shared"))
        for name in ("a", "b"):
            body = pod(name, "shared", command="while :; do sleep 0.1; done")
            body["spec"]["terminationGracePeriodSeconds"] = 0
            box.admin.ok("POST", PODS, body)
            box.wait_phase(name, "Running")
        self.assertEqual(len(plugin.calls), 1)
        box.admin.ok("POST", "/sandbox/restart-kubelet")
        box.wait("registration again", lambda: len(plugin.registered) == 2)
        self.assertEqual(len(plugin.calls), 1)
        box.admin.ok("DELETE", f"{PODS}/a")
        box.wait("pod a to go", lambda: box.pod("a") is None)
        box.wait("the reservation to go", lambda: len(box.admin.ok("GET", f"{CLAIMS}/shared")["status"]
                                                      ["reservedFor"]) == 1)
        self.assertEqual(len(plugin.calls), 1)
        box.admin.ok("DELETE", f"{PODS}/b")
        box.wait("unprepare", lambda: len(plugin.calls) == 2)
        self.assertIn("NodeUnprepareResources", plugin.calls[1][0])


class Cdi(unittest.TestCase):
    def directory(self, **files):
        path = pathlib.Path(tempfile.mkdtemp(prefix="cdi"))
        self.addCleanup(shutil.rmtree, path)
        for name, spec in files.items():
            (path / f"{name}.json").write_text(json.dumps(spec))
        return path

    def test_recorded_specs_give_the_recorded_oci_configuration(self):
        for version in VERSIONS:
            for name, case in golden(version, "cdi.json").items():
                with self.subTest(version=version, case=name):
                    registry = cdi.Registry([self.directory(x=case["spec"])])
                    self.assertEqual(registry.errors, [])
                    config = {"process": {"env": []}}
                    registry.inject(config, list(registry.devices))
                    self.assertEqual(config["linux"]["devices"], case["oci"]["linux"]["devices"])
                    self.assertEqual(config["hooks"], case["oci"]["hooks"])
                    for mount in config["mounts"]:
                        self.assertIn(mount, case["oci"]["mounts"])
                    rules = [r for r in case["oci"]["linux"]["resources"]["devices"] if r["allow"]]
                    for rule in config["linux"]["resources"]["devices"]:
                        self.assertIn(rule, rules)
                    self.assertEqual([e for e in case["oci"]["process"]["env"] if e in config["process"]["env"]],
                                     config["process"]["env"])

    def test_bad_specs_are_refused(self):
        good = {"cdiVersion": "0.3.0", "kind": "ab.example.com/claim",
                "devices": [{"name": "d0", "containerEdits": {"env": ["A=b"]}}]}
        cdi.check(good)
        cases = {
            "unknown field": {"colour": 1}, "single character or none": {"kind": "a/claim"},
            "class \"c\"": {"kind": "ab/c"}, "unknown cdiVersion": {"cdiVersion": "9.9.9"}, "no devices": {"devices": []},
            "is missing": {"devices": [{"name": "d"}]}, "edits are empty": {"devices": [{"name": "d",
                                                                                         "containerEdits": {}}]},
            "is there twice": {"devices": good["devices"] * 2},
            "too old": {"devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}]},
            "NAME=VALUE": {"devices": [{"name": "d", "containerEdits": {"env": ["A"]}}]},
            "hookName": {"devices": [{"name": "d", "containerEdits": {"hooks": [{"hookName": "x", "path": "/x"}]}}]},
            "not absolute": {"devices": [{"name": "d", "containerEdits": {"deviceNodes": [{"path": "dev/x"}]}}]},
            "must be of type": {"devices": [{"name": "d", "containerEdits": {"env": [1]}}]},
        }
        for text, change in cases.items():
            with self.subTest(text=text), self.assertRaisesRegex(cdi.CdiError, re.escape(text)):
                cdi.check({**good, **change})

    def test_device_in_two_files_is_no_device(self):
        spec = {"cdiVersion": "0.3.0", "kind": "ab.example.com/claim",
                "devices": [{"name": "d0", "containerEdits": {"env": ["A=b"]}}]}
        registry = cdi.Registry([self.directory(x=spec, y=spec)])
        with self.assertRaisesRegex(cdi.CdiError, "unresolvable CDI devices .* is in another file"):
            registry.inject({"process": {}}, ["ab.example.com/claim=d0"])

    def test_later_edits_replace_earlier_ones(self):
        config = {"process": {"env": ["A=1", "B=2"]}, "mounts": [{"destination": "/x/y", "source": "/1"}]}
        cdi.apply_edits(config, {"env": ["A=3", "C=4"], "mounts": [{"hostPath": "/2", "containerPath": "/x/y"},
                                                                   {"hostPath": "/3", "containerPath": "/x"}]})
        self.assertEqual(config["process"]["env"], ["A=3", "B=2", "C=4"])
        self.assertEqual([(m["destination"], m["source"]) for m in config["mounts"]], [("/x", "/3"), ("/x/y", "/2")])


class Rootfs(unittest.TestCase):
    def test_root_has_a_loader_for_every_program(self):
        path = tempfile.mkdtemp(prefix="root")
        self.addCleanup(shutil.rmtree, path)
        rootfs.make(path, [("/usr/bin/env", "/usr/local/bin/extra")])
        rootfs.make(path)
        for name in ("bin/sh", "usr/bin/cat", "usr/local/bin/extra", "etc/passwd"):
            self.assertTrue(os.path.exists(os.path.join(path, name)), name)
        for library in rootfs.dependencies("/usr/bin/cat", "/bin/sh"):
            self.assertTrue(os.path.exists(path + library), library)


if __name__ == "__main__":
    unittest.main()

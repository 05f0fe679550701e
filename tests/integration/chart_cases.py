# SPDX-License-Identifier: Apache-2.0
"""Requests that the chart's admission policies must let through or refuse. All are dry runs, so that each stands alone. The answers of a
real API server are in tests/conformance/chart/admission-1.36.json; `chart_cases.py KUBECONFIG` records them and its
OpenAPI documents anew (the chart must have been applied there with ALL_POLICIES), `chart_cases.py KUBECONFIG without-granular` the others."""

import http.client
import json
import pathlib
import ssl
import sys
import urllib.parse

import yaml

import chart_objects

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
ANSWERS = REPO / "tests/conformance/chart/admission-1.36.json"
# Of those about the status of claims, with DRAResourceClaimGranularStatusAuthorization off, as servers before 1.36 are.
ANSWERS_WITHOUT_GRANULAR = REPO / "tests/conformance/chart/admission-1.36-without-granular.json"
DRIVER = "hami-core-gpu.project-hami.io"
GROUP = "/apis/resource.k8s.io/v1"
DAEMON = "system:serviceaccount:aliquot:aliquot"  # as rendered: the DaemonSet's account, held by a test
ALL_POLICIES = {"admission": {"ceilings": True, "refuseCounts": "always"}}

LABELS = {"team-a": {"aliquot.dev/max-cores": "50", "aliquot.dev/max-memory": "16Gi"},
          "team-b": {"aliquot.dev/max-memory": "8Gi"}, "team-c": {"aliquot.dev/max-cores": "many"}}


def slice_(node, driver=DRIVER, name=None):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name or f"{node}-x"},
            "spec": {"driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": []}}


def anywhere(name):
    out = slice_("node-a", name=name)
    del out["spec"]["nodeName"]
    out["spec"]["allNodes"] = True
    return out


SETUP = [("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
         for name, labels in LABELS.items()] + \
    [(f"{GROUP}/resourceslices", slice_(node, name=f"{node}-old")) for node in ("node-a", "node-b")] + \
    [(f"{GROUP}/resourceslices", slice_("node-a", "other.example.com", "other-old"))]
USED = f"{GROUP}/namespaces/default/resourceclaims/used"  # a claim that is allocated on node-a


def use(request):
    """Makes USED; request: a function of method, path and body that returns the answer's body."""
    made = request("POST", f"{GROUP}/namespaces/default/resourceclaims", {**claim(ask()), "metadata": {"name": "used"}})
    here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
    made["status"] = {"allocation": {"devices": {"results": [
        {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "hami-gpu-0"}]}, "nodeSelector": {"nodeSelectorTerms": here}},
        "reservedFor": [{"apiGroup": "example.com", "resource": "widgets", "name": "w", "uid": "2a53b554-4d74-4c53-8670-0303f9e6e185"}]}
    request("PUT", f"{USED}/status", made)


def claim(*requests, config=None):
    devices = {"requests": list(requests)}
    if config is not None:
        devices["config"] = config
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}


def template(inner):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "c"}, "spec": {"spec": inner["spec"]}}


def ask(name="gpu", device_class=DRIVER, capacity=None, **more):
    exactly = {"deviceClassName": device_class, **more}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    return {"name": name, "exactly": exactly}


def either(*alternatives):
    return {"name": "gpu", "firstAvailable": [{"name": f"a{i}", **a["exactly"]} for i, a in enumerate(alternatives)]}


def opaque(parameters, driver=DRIVER):
    return {"opaque": {"driver": driver, "parameters": parameters}}


def share_config(**fields):
    return {"apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", **fields}


class Case:
    """node: None for the administrator, else the node that aliquotd's token is bound to ("": none)."""

    def __init__(self, name, is_allowed, method, path, body=None, node=None, content_type="application/json"):
        self.name, self.is_allowed, self.method, self.body, self.node, self.content_type = name, is_allowed, method, body, node, content_type
        self.path = f"{GROUP}/{path}?dryRun=All"

    def headers(self):
        out = {"Content-Type": self.content_type}
        if self.node is None:
            return out
        out |= {"Impersonate-User": DAEMON, "Impersonate-Group": "system:serviceaccounts"}
        if self.node:
            out["Impersonate-Extra-Authentication.kubernetes.io%2fnode-Name"] = self.node
        return out


def _slices():
    for node, is_own in (("node-a", True), ("node-b", False), ("", False)):
        who = f"of {node}" if node else "without a node"
        yield Case(f"slices: aliquotd {who} creates one of node-a", is_own, "POST", "resourceslices", slice_("node-a"), node)
        yield Case(f"slices: aliquotd {who} updates one of node-a", is_own, "PUT", "resourceslices/node-a-old",
                   slice_("node-a", name="node-a-old"), node)
        yield Case(f"slices: aliquotd {who} deletes one of node-a", is_own, "DELETE", "resourceslices/node-a-old", None, node)
    yield Case("slices: aliquotd creates one of another driver", False, "POST", "resourceslices", slice_("node-a", "other.example.com"), "node-a")
    yield Case("slices: aliquotd deletes one of another driver", False, "DELETE", "resourceslices/other-old", None, "node-a")
    yield Case("slices: aliquotd creates one for all nodes", False, "POST", "resourceslices", anywhere("all"), "node-a")
    yield Case("slices: the administrator deletes one of any node", True, "DELETE", "resourceslices/node-b-old")


GOOD = [share_config(),
        share_config(compute={"policy": "Burst", "priority": 0}, memory={"onExhausted": "Wait", "waitSeconds": 30}, logLevel="debug"),
        share_config(compute={"policy": "None"}, memory={"spillToHost": {"limit": "8Gi"}}),
        share_config(memory={"waitSeconds": 3600}), share_config(memory={"spillToHost": {"limit": "0"}})]
BAD = [("no kind", {"apiVersion": "config.aliquot.dev/v1alpha1"}), ("another version", {**share_config(), "apiVersion": "config.aliquot.dev/v2"}),
       ("another kind", {**share_config(), "kind": "GpuConfig"}), ("an unknown field", share_config(computes={"policy": "Hard"})),
       ("an unknown field of compute", share_config(compute={"policies": "Hard"})), ("an unknown policy", share_config(compute={"policy": "hard"})),
       ("a priority of 2", share_config(compute={"priority": 2})), ("a priority in quotes", share_config(compute={"priority": "1"})),
       ("a priority of 0.5", share_config(compute={"priority": 0.5})), ("compute as a word", share_config(compute="Hard")),
       ("memory as a list", share_config(memory=[])),
       ("an unknown field of memory", share_config(memory={"onexhausted": "Wait"})),
       ("an unknown onExhausted", share_config(memory={"onExhausted": "Retry"})),
       ("waitSeconds 0", share_config(memory={"onExhausted": "Wait", "waitSeconds": 0})),
       ("waitSeconds 3601", share_config(memory={"onExhausted": "Wait", "waitSeconds": 3601})),
       ("waitSeconds with Fail", share_config(memory={"onExhausted": "Fail", "waitSeconds": 3})),
       ("a spill without limit", share_config(memory={"spillToHost": {}})),
       ("an unknown field of spillToHost", share_config(memory={"spillToHost": {"limit": "1Gi", "max": 1}})),
       ("a spill limit that is no quantity", share_config(memory={"spillToHost": {"limit": "lots"}})),
       ("a negative spill limit", share_config(memory={"spillToHost": {"limit": "-1Gi"}})),
       ("a spill limit that is a number", share_config(memory={"spillToHost": {"limit": 5}})),
       ("an unknown logLevel", share_config(logLevel="verbose"))]


def _configs():
    path = "namespaces/default/resourceclaims"
    for i, parameters in enumerate(GOOD):
        yield Case(f"share config: good {i}", True, "POST", path, claim(ask(), config=[opaque(parameters)]))
    for what, parameters in BAD:
        yield Case(f"share config: {what}", False, "POST", path, claim(ask(), config=[opaque(share_config()), opaque(parameters)]))
    bad = [opaque(share_config(compute={"policy": "hard"}))]
    yield Case("share config: a mistake in a template", False, "POST", "namespaces/default/resourceclaimtemplates",
               template(claim(ask(), config=bad)))
    yield Case("share config: a good template", True, "POST", "namespaces/default/resourceclaimtemplates",
               template(claim(ask(), config=[opaque(GOOD[1])])))
    yield Case("share config: a mistake in a class", False, "POST", "deviceclasses",
               {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "x"}, "spec": {"config": bad}})
    yield Case("share config: another driver's parameters", True, "POST", path,
               claim(ask(), config=[opaque({"anything": 1}, "other.example.com")]))
    yield Case("share config: a claim without requests", True, "POST", path, claim())


def _statuses():
    """Merge patches, so that what is left out stays."""
    devices = {"devices": [{"driver": DRIVER, "pool": "node-a", "device": "hami-gpu-0", "data": {"minor": 0}}]}
    rows = [("status.devices", True, devices, "node-a"), ("status.devices on another node", False, devices, "node-b"),
            ("status.devices without a node", False, devices, ""), ("no reservedFor", False, {"reservedFor": None}, "node-a"),
            ("no reservedFor on another node", False, {"reservedFor": None}, "node-b"),
            ("an empty status", False, {"allocation": None, "reservedFor": None}, "node-a"),
            ("no reservedFor as administrator", True, {"reservedFor": None}, None)]
    for what, is_allowed, status, node in rows:
        yield Case(f"claim status: {what}", is_allowed, "PATCH", "namespaces/default/resourceclaims/used/status", {"status": status}, node,
                   "application/merge-patch+json")


def _counts():
    rows = [("count 1", True, ask(count=1)), ("count 2", False, ask(count=2)), ("All", False, ask(allocationMode="All")),
            ("count 2 of another class", True, ask(device_class="other.example.com", count=2)),
            ("count 2 of whole GPUs", False, ask(device_class=f"whole.{DRIVER}", count=2)),
            ("count 2 in an alternative", False, either(ask(), ask(count=2))),
            ("All in an alternative", False, either(ask(device_class="other.example.com", allocationMode="All"), ask(allocationMode="All"))),
            ("All in an alternative of another class", True, either(ask(), ask(device_class="other.example.com", allocationMode="All")))]
    for what, is_allowed, request in rows:
        yield Case(f"counts: {what}", is_allowed, "POST", "namespaces/default/resourceclaims", claim(request))
        yield Case(f"counts: {what}, in a template", is_allowed, "POST", "namespaces/default/resourceclaimtemplates", template(claim(request)))


def _ceilings():
    small, large = {"cores": "50", "memory": "16384Mi"}, {"cores": "51", "memory": "1Gi"}
    rows = [("within", "team-a", True, ask(capacity=small)), ("too many cores", "team-a", False, ask(capacity=large)),
            ("too much memory", "team-a", False, ask(capacity={"cores": "1", "memory": "16385Mi"})),
            ("no capacity", "team-a", False, ask()), ("no cores", "team-a", False, ask(capacity={"memory": "1Gi"})),
            ("no cores where only memory has a ceiling", "team-b", True, ask(capacity={"memory": "8Gi"})),
            ("a whole GPU", "team-b", False, ask(device_class=f"whole.{DRIVER}")),
            ("a large alternative", "team-a", False, either(ask(capacity=small), ask(capacity=large))),
            ("another class", "team-a", True, ask(device_class="other.example.com")),
            ("a label that is no quantity", "team-c", False, ask(capacity=small)),
            ("a namespace without labels", "default", True, ask())]
    for what, namespace, is_allowed, request in rows:
        yield Case(f"ceilings: {what}", is_allowed, "POST", f"namespaces/{namespace}/resourceclaims", claim(request))
    yield Case("ceilings: too many cores, in a template", False, "POST", "namespaces/team-a/resourceclaimtemplates",
               template(claim(ask(capacity=large))))


CASES = [*_slices(), *_statuses(), *_configs(), *_counts(), *_ceilings()]


def outcome(status, body):
    """What is compared of an answer."""
    return {"code": status, "message": body["message"]} if status >= 300 else {"code": status}


def main():
    config = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    url = urllib.parse.urlsplit(config["clusters"][0]["cluster"]["server"])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(url.hostname, url.port, context=context)

    def request(method, path, body=None, headers=None):
        connection.request(method, path, json.dumps(body) if body else None,
                           {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    for path, body in SETUP:
        request("POST", path, body)
    use(lambda *args: request(*args)[1])
    is_old = sys.argv[2:] == ["without-granular"]
    cases = list(_statuses()) if is_old else CASES
    answers = {c.name: outcome(*request(c.method, c.path, c.body, c.headers())) for c in cases}
    ANSWERS.parent.mkdir(parents=True, exist_ok=True)
    (ANSWERS_WITHOUT_GRANULAR if is_old else ANSWERS).write_text(json.dumps(answers, indent=1) + "\n")
    documents = [request("GET", f"/openapi/v3/{name}")[1] for name in chart_objects.DOCUMENTS]
    chart_objects.SCHEMAS.write_text(json.dumps(chart_objects.trim(documents), separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n")
    wrong = [c.name for c in cases if (answers[c.name]["code"] < 300) != c.is_allowed]
    print(f"{len(cases)} cases, not as wanted: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

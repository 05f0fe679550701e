# SPDX-License-Identifier: Apache-2.0
"""The chart rendered by Go's template engine and sprig (tests/chart/render.go), and its objects held field by field against the OpenAPI
documents of a real API server (tests/conformance/chart/openapi-1.36.json, trimmed to what the chart uses)."""

import functools
import json
import os
import pathlib
import re
import subprocess

import jsonschema
import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, ten times as fast
REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
CHART = REPO / "deploy/helm/aliquot"
SCHEMAS = REPO / "tests/conformance/chart/openapi-1.36.json"
DOCUMENTS = ["api/v1", "apis/apps/v1", "apis/rbac.authorization.k8s.io/v1", "apis/admissionregistration.k8s.io/v1",
             "apis/networking.k8s.io/v1", "apis/resource.k8s.io/v1"]
KINDS = ["ConfigMap", "ServiceAccount", "DaemonSet", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
         "ValidatingAdmissionPolicyBinding", "NetworkPolicy", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "Pod"]


class RenderError(Exception):
    """What helm would have said instead of objects."""


class Renderer:
    """One render process; built once, kept below the build directory."""

    def __init__(self):
        out = BUILD / "chart/render"
        env = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(BUILD / "chart/go"), "GOFLAGS": "", "GOROOT": "",
               "HOME": str(BUILD / "chart")}
        subprocess.run(["/usr/bin/go", "build", "-o", out, REPO / "tests/chart/render.go"], env=env, check=True)
        self.process = subprocess.Popen([out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, values=None, version="1.36.2", release="aliquot", namespace="aliquot"):
        request = {"chart": str(CHART), "release": release, "namespace": namespace, "kubeVersion": version, "values": values or {}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RenderError(answer["error"])
        return answer

    def objects(self, *args, **kwargs):
        """The objects in the order of the templates' names."""
        texts = self.ask(*args, **kwargs)["objects"]
        return [o for name in sorted(texts) if name != "NOTES.txt" for o in yaml.load_all(texts[name], LOADER) if o]

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def trim(documents):
    """Of OpenAPI v3 documents, the schemas of KINDS and what they refer to, without descriptions, defaults and examples."""
    everything = {name: schema for document in documents for name, schema in document["components"]["schemas"].items()}
    out, todo, roots = {}, [], {}
    for name, schema in everything.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            if gvk["kind"] in KINDS and name.endswith(f".{gvk['version']}.{gvk['kind']}"):
                roots[f"{gvk['group']}/{gvk['version']}/{gvk['kind']}".lstrip("/")] = name
                todo.append(name)

    def strip(value):
        if isinstance(value, list):
            return [strip(v) for v in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            todo.append(value["$ref"].rpartition("/")[2])
        if set(value) <= {"allOf", "default", "description"} and len(value.get("allOf", [])) == 1:
            return strip(value["allOf"][0])
        return {k: {n: strip(s) for n, s in v.items()} if k == "properties" else strip(v) for k, v in value.items()
                if k not in ("description", "default", "example") and not k.startswith("x-kubernetes-list")
                and k not in ("x-kubernetes-group-version-kind", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key")}

    while todo:
        name = todo.pop()
        if name not in out:
            out[name] = strip(everything[name])
    return {"kinds": roots, "schemas": out}


@functools.lru_cache(1)
def _schemas():
    data = json.loads(SCHEMAS.read_text())

    def strict(value):
        if isinstance(value, list):
            return [strict(v) for v in value]
        if not isinstance(value, dict):
            return value
        out = {k: {n: strict(s) for n, s in v.items()} if k == "properties" else strict(v) for k, v in value.items()}
        if "properties" in out and "additionalProperties" not in out and not out.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
        if out.get("format") == "int-or-string":
            return {"type": ["integer", "string"]}
        return out
    root = {"components": {"schemas": {name: strict(schema) for name, schema in data["schemas"].items()}}}
    return data["kinds"], root


def problems(obj):
    """What the API server would refuse of the fields of an object: unknown ones, wrong types, missing ones."""
    kinds, root = _schemas()
    name = kinds.get(f"{obj['apiVersion']}/{obj['kind']}")
    if name is None:
        return [f"{obj['apiVersion']} {obj['kind']}: no schema of it"]
    validator = jsonschema.Draft4Validator(root["components"]["schemas"][name], resolver=jsonschema.RefResolver("", root))
    return [f"{obj['kind']} {obj['metadata']['name']}: {'.'.join(map(str, e.absolute_path))}: {e.message}" for e in validator.iter_errors(obj)]


def metric_names(text):
    """Names of aliquotd's metrics in an expression or a document."""
    return set(re.findall(r"\baliquot_[a-z0-9_]+", text))

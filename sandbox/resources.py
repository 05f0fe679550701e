# SPDX-License-Identifier: Apache-2.0
"""The resources that the API server serves, and what it says of them: discovery, OpenAPI, the columns of tables.

Data and pure functions; the same lists feed routing, discovery and /openapi. Nothing here touches objects in store.
"""

import datetime

_ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


class Resource:
    """One served resource. internal: the key under which it is stored."""

    def __init__(self, group, version, plural, singular, kind, namespaced, short=(), verbs=None, subresources=(),
                 fields=(), shaped=False, generation=False, deleted_body=False, internal=None):
        self.group, self.version, self.plural, self.singular, self.kind = group, version, plural, singular, kind
        self.namespaced, self.short, self.verbs = namespaced, list(short), list(verbs or _ALL)
        self.subresources, self.fields, self.shaped = dict(subresources), fields, shaped
        self.generation, self.deleted_body = generation, deleted_body
        self.internal = internal or plural

    @property
    def api_version(self):
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self):
        """resourceslices.resource.k8s.io, as in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self):
        return f"{self.kind}.{self.group}" if self.group else self.kind


_STATUS = {"status": ("get", "patch", "update")}
_EVENT_FIELDS = ("involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
                 "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
                 "reportingComponent", "source", "type")

RESOURCES = [
    Resource("", "v1", "configmaps", "configmap", "ConfigMap", True, ["cm"]),
    Resource("", "v1", "events", "event", "Event", True, ["ev"], fields=_EVENT_FIELDS),
    Resource("", "v1", "namespaces", "namespace", "Namespace", False, ["ns"], subresources=_STATUS,
             fields=("status.phase",), deleted_body=True),
    Resource("", "v1", "nodes", "node", "Node", False, ["no"], subresources=_STATUS,
             fields=("spec.unschedulable",)),
    Resource("", "v1", "pods", "pod", "Pod", True, ["po"], deleted_body=True, generation=True,
             subresources={**_STATUS, "binding": ("create",), "log": ("get",)},
             fields=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
                     "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName")),
    Resource("", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", True, ["sa"], subresources={"token": ("create",)}),
    Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "validatingadmissionpolicy",
             "ValidatingAdmissionPolicy", False, generation=True),
    Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding",
             "ValidatingAdmissionPolicyBinding", False, generation=True),
    Resource("apps", "v1", "daemonsets", "daemonset", "DaemonSet", True, ["ds"], subresources=_STATUS, generation=True),
    Resource("networking.k8s.io", "v1", "networkpolicies", "networkpolicy", "NetworkPolicy", True, ["netpol"], generation=True),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", False),
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "clusterrole", "ClusterRole", False),
    Resource("events.k8s.io", "v1", "events", "event", "Event", True, ["ev"],
             fields=("regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid",
                     "regarding.apiVersion", "reason", "reportingController", "type")),
    Resource("resource.k8s.io", "v1", "deviceclasses", "deviceclass", "DeviceClass", False, shaped=True,
             generation=True, deleted_body=True),
    Resource("resource.k8s.io", "v1", "resourceclaims", "resourceclaim", "ResourceClaim", True, shaped=True,
             subresources=_STATUS, deleted_body=True),
    Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate",
             True, shaped=True, deleted_body=True),
    Resource("resource.k8s.io", "v1", "resourceslices", "resourceslice", "ResourceSlice", False, shaped=True,
             generation=True, deleted_body=True, fields=("spec.driver", "spec.nodeName")),
    Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "selfsubjectaccessreview",
             "SelfSubjectAccessReview", False, verbs=["create"]),
]
BY_PATH = {(r.group, r.version, r.plural): r for r in RESOURCES}
GROUPS = ["events.k8s.io", "resource.k8s.io", "authorization.k8s.io", "admissionregistration.k8s.io", "apps", "networking.k8s.io",
          "rbac.authorization.k8s.io"]
_SUBRESOURCE_KINDS = {"binding": "Binding", "token": "TokenRequest"}


def resource(plural, group=None):
    """The resource of a plural name; group None takes the first."""
    return next(r for r in RESOURCES if r.plural == plural and group in (None, r.group))


RECORDED = {
    "1.34": {"major": "1", "minor": "34", "emulationMajor": "1", "emulationMinor": "34",
             "minCompatibilityMajor": "1", "minCompatibilityMinor": "33", "gitVersion": "v1.34.9"},
    "1.36": {"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
             "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.2"},
}


def version_info(version):
    """The body of /version. The build says that this is the sandbox."""
    return {**RECORDED[version], "gitCommit": "aliquot-sandbox", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "python3",
            "platform": "linux/amd64"}


# ---------------------------------------------------------------------------------------------- discovery

def api_versions(address):
    return {"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]}


def _group(name):
    versions = [{"groupVersion": f"{name}/v1", "version": "v1"}]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def api_groups():
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g) for g in GROUPS]}


def api_group(name):
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def api_resources(group, version):
    """APIResourceList of a group version, or None."""
    rows = []
    for res in RESOURCES:
        if (res.group, res.version) != (group, version):
            continue
        row = {"name": res.plural, "singularName": res.singular, "namespaced": res.namespaced, "kind": res.kind,
               "verbs": res.verbs}
        if res.short:
            row["shortNames"] = res.short
        rows.append(row)
        for name, verbs in sorted(res.subresources.items()):
            kind = _SUBRESOURCE_KINDS.get(name, res.kind)
            rows.append({"name": f"{res.plural}/{name}", "singularName": "", "namespaced": res.namespaced,
                         "kind": kind, "verbs": list(verbs)})
    if not rows:
        return None
    head = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": rows}


def aggregated(groups):
    """APIGroupDiscoveryList, v2."""
    items = []
    for group in groups:
        rows = []
        for res in RESOURCES:
            if res.group != group:
                continue
            kind = {"group": res.group, "version": res.version, "kind": res.kind}
            row = {"resource": res.plural, "responseKind": kind,
                   "scope": "Namespaced" if res.namespaced else "Cluster", "singularResource": res.singular,
                   "verbs": res.verbs}
            if res.short:
                row["shortNames"] = res.short
            if res.subresources:
                row["subresources"] = [
                    {"subresource": n, "responseKind": {**kind, "kind": _SUBRESOURCE_KINDS.get(n, res.kind)},
                     "verbs": list(v)} for n, v in sorted(res.subresources.items())]
            rows.append(row)
        items.append({"metadata": {"name": group} if group else {},
                      "versions": [{"version": "v1", "resources": rows, "freshness": "Current"}]})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def openapi_v3_index():
    names = ["api/v1"] + [f"apis/{g}/v1" for g in GROUPS]
    return {"paths": {n: {"serverRelativeURL": f"/openapi/v3/{n}?hash=1"} for n in names}}


def openapi_v3(path):
    """The smallest document that lets kubectl see that the server itself validates fields; None for other paths."""
    group = "" if path == "api/v1" else path.split("/")[1] if path.startswith("apis/") else None
    rows = [r for r in RESOURCES if r.group == group]
    if not rows:
        return None
    paths = {}
    for res in rows:
        url = "/" + path + ("/namespaces/{namespace}/" if res.namespaced else "/") + res.plural + "/{name}"
        paths[url] = {"patch": {
            "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
            "responses": {},
            "x-kubernetes-group-version-kind": {"group": res.group, "version": res.version, "kind": res.kind}}}
    return {"openapi": "3.0.0", "info": {"title": "aliquot-sandbox", "version": "v1"}, "paths": paths}


def openapi_v2_protobuf():
    """The v2 document in gnostic's protobuf form: swagger (1), info (2: title 1, version 2), no definitions.

    Old kubectl skips its own validation for kinds that have no definition; the server validates anyway.
    """
    def text(number, value):
        data = value.encode()
        return bytes([number << 3 | 2, len(data)]) + data
    info = text(1, "aliquot-sandbox") + text(2, "v1")
    return text(1, "2.0") + bytes([2 << 3 | 2, len(info)]) + info


def openapi_v2():
    return {"swagger": "2.0", "info": {"title": "aliquot-sandbox", "version": "v1"}, "paths": {}}


# ---------------------------------------------------------------------------------------------- tables

def _age(stamp):
    if not stamp:
        return "<unknown>"
    when = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    seconds = int((datetime.datetime.now(datetime.timezone.utc) - when).total_seconds())
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def _pod_status(pod):
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "Unknown")
    waiting = [c.get("state", {}) for c in status.get("initContainerStatuses", [])]
    for i, state in enumerate(waiting):
        if state.get("terminated", {}).get("exitCode") == 0 and "terminated" in state:
            continue
        if "terminated" in state:
            reason = "Init:" + (state["terminated"].get("reason") or f"ExitCode:{state['terminated']['exitCode']}")
        elif state.get("waiting", {}).get("reason") not in (None, "PodInitializing"):
            reason = "Init:" + state["waiting"]["reason"]
        else:
            reason = f"Init:{i}/{len(waiting)}"
        break
    else:
        running = False
        for state in [c.get("state", {}) for c in reversed(status.get("containerStatuses", []))]:
            if state.get("waiting", {}).get("reason"):
                reason = state["waiting"]["reason"]
            elif "terminated" in state:
                ended = state["terminated"]
                reason = ended.get("reason") or f"ExitCode:{ended['exitCode']}"
            elif "running" in state:
                running = True
        if reason == "Completed" and running:
            reason = "Running"
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else reason


def _pod_cells(pod):
    statuses = pod.get("status", {}).get("containerStatuses", [])
    total = len(pod.get("spec", {}).get("containers", []))
    return [pod["metadata"]["name"], f"{sum(bool(c.get('ready')) for c in statuses)}/{total}", _pod_status(pod),
            str(sum(c.get("restartCount", 0) for c in statuses)), _age(pod["metadata"].get("creationTimestamp")),
            pod.get("status", {}).get("podIP") or "<none>", pod.get("spec", {}).get("nodeName") or "<none>",
            pod.get("status", {}).get("nominatedNodeName") or "<none>", "<none>"]


def _node_cells(node):
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", [])}
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready"), "Unknown")
    if node.get("spec", {}).get("unschedulable"):
        ready += ",SchedulingDisabled"
    info = node.get("status", {}).get("nodeInfo", {})
    addresses = {a["type"]: a["address"] for a in node.get("status", {}).get("addresses", [])}
    return [node["metadata"]["name"], ready, "<none>", _age(node["metadata"].get("creationTimestamp")),
            info.get("kubeletVersion", ""), addresses.get("InternalIP", "<none>"), "<none>",
            info.get("osImage", ""), info.get("kernelVersion", ""), info.get("containerRuntimeVersion", "")]


def _claim_state(claim):
    status, states = claim.get("status", {}), []
    if claim["metadata"].get("deletionTimestamp"):
        states.append("deleted")
    if "allocation" not in status:
        if not states:
            states.append("pending")
    else:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    return ",".join(states)


def _event_cells(event):
    involved = event.get("involvedObject", {})
    stamp = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return [_age(stamp), event.get("type", ""), event.get("reason", ""),
            f"{involved.get('kind', '').lower()}/{involved.get('name', '')}", event.get("message", "")]


def _meta_age(obj):
    return _age(obj["metadata"].get("creationTimestamp"))


_COLUMNS = {
    "pods": (["Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"],
             _pod_cells),
    "nodes": (["Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image",
               "+Kernel-Version", "+Container-Runtime"], _node_cells),
    "resourceclaims": (["Name", "State", "Age"], lambda o: [o["metadata"]["name"], _claim_state(o), _meta_age(o)]),
    "resourceslices": (["Name", "Node", "Driver", "Pool", "Age"],
                       lambda o: [o["metadata"]["name"], o["spec"].get("nodeName", ""), o["spec"]["driver"],
                                  o["spec"]["pool"]["name"], _meta_age(o)]),
    "namespaces": (["Name", "Status", "Age"],
                   lambda o: [o["metadata"]["name"], o.get("status", {}).get("phase", ""), _meta_age(o)]),
    "configmaps": (["Name", "Data", "Age"],
                   lambda o: [o["metadata"]["name"], len(o.get("data", {})), _meta_age(o)]),
    "serviceaccounts": (["Name", "Secrets", "Age"],
                        lambda o: [o["metadata"]["name"], len(o.get("secrets", [])), _meta_age(o)]),
    "events": (["Last Seen", "Type", "Reason", "Object", "Message"], _event_cells),
}
_PLAIN = (["Name", "Age"], lambda o: [o["metadata"]["name"], _meta_age(o)])


def table(res, objects, list_meta, include="Metadata"):
    """meta.k8s.io/v1 Table. "+" columns are shown by -o wide alone."""
    names, cells = _COLUMNS.get(res.plural, _PLAIN)
    columns = []
    for name in names:
        plain = name.lstrip("+")
        columns.append({"name": plain, "type": "integer" if plain == "Data" else "string",
                        "format": "name" if plain == "Name" else "", "description": "",
                        "priority": 1 if name.startswith("+") else 0})
    rows = []
    for obj in objects:
        row = {"cells": cells(obj)}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial(obj)
        rows.append(row)
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": columns,
            "rows": rows}


def partial(obj):
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}

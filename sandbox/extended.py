# SPDX-License-Identifier: Apache-2.0
"""Extended resources backed by DRA: a pod that asks for what a DeviceClass names as extendedResourceName gets a claim from the scheduler.
Pure functions over objects; the forms are those of a real 1.36 (recorded/1.36/claims/extended-resource)."""

import quantity

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


def mappings(pod, classes):
    """What the pod's containers ask for of such resources: (container name, resource, DeviceClass, count, request name)."""
    by_resource, out = {}, []
    for item in classes:  # the newest class of a resource counts
        name = item["spec"].get("extendedResourceName")
        if name and item["metadata"]["creationTimestamp"] >= by_resource.get(name, item)["metadata"]["creationTimestamp"]:
            by_resource[name] = item
    containers = (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]
    for i, container in enumerate(containers):
        wanted = container.get("resources") or {}
        wanted = {**(wanted.get("limits") or {}), **(wanted.get("requests") or {})}
        for j, name in enumerate(n for n in sorted(wanted) if n in by_resource):
            count = quantity.parse(str(wanted[name])).nano // quantity.NANO
            if count:
                out.append((container["name"], name, by_resource[name]["metadata"]["name"], count, f"container-{i}-request-{j}"))
    return out


def claim(pod, wanted):
    """The claim of the pod, as the scheduler creates it."""
    meta = pod["metadata"]
    requests = [{"name": request, "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}}
                for _, _, device_class, count, request in wanted]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
            "metadata": {"generateName": f"{meta['name']}-extended-resources-", "namespace": meta["namespace"],
                         "annotations": {ANNOTATION: "true"}, "ownerReferences": [owner]},
            "spec": {"devices": {"requests": requests}}}


def status(name, wanted):
    """status.extendedResourceClaimStatus of the pod."""
    return {"requestMappings": [{"containerName": container, "resourceName": resource, "requestName": request}
                                for container, resource, _, _, request in wanted], "resourceClaimName": name}


def uses(pod, container):
    """Entries like those of resources.claims for a container's extended resources; their name is the claim's."""
    made = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    return [{"name": made["resourceClaimName"], "request": m["requestName"]} for m in made.get("requestMappings", [])
            if m["containerName"] == container["name"]]

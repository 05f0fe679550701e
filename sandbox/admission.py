# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies: which of them a request meets, and whether they let it through.

Owns no objects: policies and bindings lie in the store. The wording of a refusal is the real server's. Left out, and refused when a
policy is created: parameters, audit annotations, selectors of objects and namespaces, excluded rules.
"""

import cel

_NAMES = ("object", "oldObject", "request", "namespaceObject", "variables")
POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"


class Refused(Exception):
    """The request is denied; the text is what the policy says."""


class _Lazy(dict):
    """The policy's variables, evaluated when they are asked for, each once."""

    def __init__(self, texts, environment):
        super().__init__()
        self.texts, self.environment = texts, environment

    def __contains__(self, name):
        return name in self.texts

    def __getitem__(self, name):
        if name not in self.keys():
            self[name] = _evaluate(self.texts[name], self.environment)
        return super().__getitem__(name)


def _evaluate(text, environment):
    return cel.compile_(text, _NAMES)(environment)


def check(policy):
    """Texts of what is wrong with a policy: (field, message)."""
    spec, out = policy.get("spec") or {}, []
    rules = spec.get("matchConstraints") or {}
    for field, value in (("paramKind", spec.get("paramKind")), ("auditAnnotations", spec.get("auditAnnotations")),
                         ("matchConstraints.namespaceSelector", rules.get("namespaceSelector")),
                         ("matchConstraints.objectSelector", rules.get("objectSelector")),
                         ("matchConstraints.excludeResourceRules", rules.get("excludeResourceRules"))):
        if value:
            out.append((f"spec.{field}", "the sandbox does not know this"))
    for kind, keys in (("matchConditions", ["expression"]), ("variables", ["expression"]), ("validations", ["expression", "messageExpression"])):
        for i, item in enumerate(spec.get(kind) or []):
            for key in keys:
                try:
                    if item.get(key) is not None:
                        cel.compile_(item[key], _NAMES)
                except cel.CelError as error:
                    out.append((f"spec.{kind}[{i}].{key}", f"compilation failed: {error}"))
    return out


def _matches(policy, group, resource, operation):
    return any(group in rule.get("apiGroups", []) and resource in rule.get("resources", []) and
               {operation, "*"} & set(rule.get("operations", []))
               for rule in policy["spec"].get("matchConstraints", {}).get("resourceRules", []))


def _user(user):
    info = {"username": user.name, "groups": list(user.groups)}
    if user.node:
        info["extra"] = {"authentication.kubernetes.io/node-name": [user.node]}
    return info


def _verdict(spec, environment):
    """None, or the text of the first validation that does not hold."""
    try:
        if not all(_evaluate(c["expression"], environment) for c in spec.get("matchConditions") or []):
            return None
    except cel.CelError as error:
        return str(error)
    for validation in spec.get("validations") or []:
        try:
            if _evaluate(validation["expression"], environment) is True:
                continue
        except cel.CelError as error:
            return f"expression '{validation['expression']}' resulted in error: {error}"
        if validation.get("messageExpression"):
            return _evaluate(validation["messageExpression"], environment)
        return validation.get("message") or f"failed expression: {validation['expression']}"
    return None


def admit(store, user, res, sub, operation, namespace, new, old):
    """operation: CREATE, UPDATE or DELETE; sub: the subresource or "". Raises Refused."""
    resource = f"{res.plural}/{sub}" if sub else res.plural
    policies = {p["metadata"]["name"]: p for p in store.all(POLICIES)}
    for binding in store.all(BINDINGS) if policies else []:
        policy = policies.get(binding["spec"].get("policyName"))
        if policy is None or "Deny" not in binding["spec"].get("validationActions", []):
            continue
        if not _matches(policy, res.group, resource, operation):
            continue
        environment = {
            "object": new, "oldObject": old, "namespaceObject": store.get("namespaces", "", namespace) if namespace else None,
            "request": {"operation": operation, "subResource": sub, "userInfo": _user(user), "namespace": namespace,
                        "resource": {"group": res.group, "version": res.version, "resource": res.plural}}}
        texts = {v["name"]: v["expression"] for v in policy["spec"].get("variables") or []}
        environment["variables"] = _Lazy(texts, environment)
        text = _verdict(policy["spec"], environment)
        if text is not None:
            raise Refused(f"ValidatingAdmissionPolicy '{policy['metadata']['name']}' with binding '{binding['metadata']['name']}' "
                          f"denied request: {text}")

# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: rendered by Helm's own engine, its objects compared with golden files (tests/chart/golden; ALIQUOT_GOLDEN=write makes
them anew), held against a real API server's schemas, applied to the sandbox, whose admission must answer as the real one did; and
aliquotd run with the rendered settings and rights."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import textwrap
import unittest

import jsonschema
import yaml

import chart_cases
import chart_objects
import daemon_world
import sandbox_peer
from chart_objects import CHART, REPO, RenderError
from daemon_world import logic, resources

TIMEOUT_S = 300
GOLDEN = REPO / "tests/chart/golden"
MONITORING = ("PodMonitor", "PrometheusRule")
EVERYTHING = {
    "image": {"repository": "registry.example.com/aliquot", "digest": "sha256:" + "ab" * 32}, "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}], "driverName": "gpu.example.com", "driverRoot": "/run/nvidia/driver",
    "devices": {"include": ["NVIDIA H100*"], "exclude": ["0000:65:00.0"]},
    "config": {"reserve": "1Gi", "wholeGpu": "passthrough", "inject": "default,graphics", "healthIgnoreXids": [13, 31], "hamiMetrics": True},
    "deviceClass": {"config": {"apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", "compute": {"policy": "Burst"}}},
    "extendedResource": {"name": "example.com/gpu", "className": "whole-gpu"},
    "admission": {"ceilings": True, "refuseCounts": "always", "moreClasses": ["small-gpu"]}, "metrics": {"port": 9500}, "hostNetwork": True,
    "privileged": True, "seLinuxOptions": {"type": "spc_t"}, "gpuNodesOnly": True, "tolerations": [{"operator": "Exists"}],
    "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "extraEnv": [{"name": "SIMGPU_SOCKET", "value": "/run/simgpu/simgpud.sock"}],
    "extraVolumes": [{"name": "sim", "hostPath": {"path": "/run/simgpu"}}], "extraVolumeMounts": [{"name": "sim", "mountPath": "/run/simgpu"}],
    "serviceAccount": {"annotations": {"e": "f"}}, "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "podMonitor": {"enabled": True, "labels": {"release": "p"}}, "prometheusRule": {"enabled": True}, "grafanaDashboard": {"enabled": True}}
SETS = {  # name of the golden file: (values, server version, release)
    "default": ({}, "1.36.2", "aliquot"),
    "kubernetes-1.34": ({}, "1.34.9", "aliquot"),
    "everything": (EVERYTHING, "1.36.2", "shares"),
    "nothing": ({"deviceClass": {"create": False}, "extendedResource": {"enabled": False},
                 "admission": {"nodeSlices": False, "claimStatus": False, "shareConfig": False, "refuseCounts": "never"},
                 "serviceAccount": {"create": False, "name": "mine"}, "rbac": {"create": False}, "priorityClassName": "", "nodeSelector": None,
                 "runtimeClassName": "nvidia", "resources": {"limits": None, "requests": None}}, "1.36.2", "aliquot")}


class Dumper(yaml.SafeDumper):
    """Texts of several lines as they are."""


Dumper.add_representer(str, lambda d, s: d.represent_scalar("tag:yaml.org,2002:str", s, style="|" if "\n" in s else None))


def of_kind(objects, kind, name=None):
    found = [o for o in objects if o["kind"] == kind and (name is None or o["metadata"]["name"] == name)]
    assert len(found) == 1 or name is None, (kind, name)
    return found[0]


def setUpModule():
    if not os.path.exists("/usr/bin/go"):
        raise unittest.SkipTest("golang-go is not installed; make test installs it (tools/packages.txt, chart)")
    renderer = Rendered.renderer = chart_objects.Renderer()
    unittest.addModuleCleanup(renderer.close)
    Rendered.sets = {name: renderer.objects(values, version, release) for name, (values, version, release) in SETS.items()}
    Rendered.default = Rendered.sets["default"]
    Rendered.schema = json.loads((CHART / "values.schema.json").read_text())


class Rendered(unittest.TestCase):
    renderer = sets = default = schema = None

    def pod(self, name="default"):
        return of_kind(self.sets[name], "DaemonSet")["spec"]["template"]["spec"]

    def settings(self, name="default"):
        return yaml.safe_load(of_kind(self.sets[name], "ConfigMap")["data"]["aliquotd.yaml"])


class Golden(Rendered):
    def test_objects_are_as_the_golden_files_say(self):
        for name, objects in self.sets.items():
            path = GOLDEN / f"{name}.yaml"
            text = "# SPDX-License-Identifier: Apache-2.0\n" + yaml.dump_all(
                [o for o in objects if not o["metadata"]["name"].endswith("-dashboard")], Dumper=Dumper, sort_keys=True, width=160)
            if os.environ.get("ALIQUOT_GOLDEN") == "write":
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            with self.subTest(name):
                self.assertEqual(text, path.read_text(), f"{path.name} differs; ALIQUOT_GOLDEN=write makes it anew")

    def test_every_field_is_one_that_the_api_server_knows(self):
        for name, objects in self.sets.items():
            for obj in objects:
                if obj["kind"] not in MONITORING:
                    self.assertEqual(chart_objects.problems(obj), [], name)

    def test_a_field_that_the_api_server_does_not_know_is_found(self):
        obj = json.loads(json.dumps(of_kind(self.default, "DaemonSet")))
        obj["spec"]["template"]["spec"]["hostPid"] = True
        obj["spec"]["template"]["spec"]["containers"][0]["args"] = "--config"
        self.assertEqual(len(chart_objects.problems(obj)), 2)

    def test_monitoring_objects_have_only_fields_of_the_operator(self):
        objects = self.sets["everything"]
        monitor, rule = of_kind(objects, "PodMonitor"), of_kind(objects, "PrometheusRule")
        self.assertLessEqual(set(monitor["spec"]), {"selector", "podMetricsEndpoints"})
        self.assertLessEqual(set(monitor["spec"]["podMetricsEndpoints"][0]),
                             {"honorLabels", "path", "interval", "port", "portNumber", "relabelings"})
        for group in rule["spec"]["groups"]:
            self.assertLessEqual(set(group), {"name", "rules"})
            for alert in group["rules"]:
                self.assertLessEqual(set(alert), {"alert", "expr", "for", "labels", "annotations"})
        self.assertEqual(monitor["spec"]["selector"], of_kind(objects, "DaemonSet")["spec"]["selector"])


class Values(Rendered):
    def refuse(self, values):
        merged = self.renderer.ask(values)["values"]
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.validate(merged, self.schema)

    def test_schema_takes_every_set(self):
        jsonschema.Draft7Validator.check_schema(self.schema)
        for values, version, release in SETS.values():
            jsonschema.validate(self.renderer.ask(values, version, release)["values"], self.schema)

    def test_schema_refuses_mistakes(self):
        for values in ({"drivername": "x"}, {"driverName": "A_B"}, {"image": {"digest": "sha256:1"}}, {"config": {"logLevels": "info"}},
                       {"config": {"wholeGpu": "yes"}}, {"metrics": {"port": 80}}, {"admission": {"refuseCounts": "maybe"}},
                       {"driverRoot": "run/nvidia"}, {"deviceClass": {"config": {"kind": "GpuConfig"}}}, {"imagePullPolicy": "Sometimes"},
                       {"deviceClass": {"config": {"compute": {"policy": "Burst"}}}}, {"extendedResource": {"className": "a'b"}},
                       {"stateDir": "/var/../etc"}, {"runDir": "/run:x"}, {"podLabels": {"app.kubernetes.io/name": "x"}},
                       {"fullnameOverride": "Shares"}, {"serviceAccount": {"name": "a'b"}}, {"extendedResource": {"name": "-/-"}}):
            with self.subTest(values):
                self.refuse(values)

    def test_schema_has_every_value_and_every_setting(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        self.assertEqual(set(values) | {"global"}, set(self.schema["properties"]))
        documented = set(re.findall(r"^\| `--[a-z-]+` \| `(\w+)` \|", (REPO / "docs/configuration.md").read_text(), re.M))
        left = documented - set(self.schema["properties"]["config"]["properties"])
        own = set(self.settings()) | {"devicesInclude", "devicesExclude"}
        image = {"library", "hook"}  # the image's variables
        pod = {"nodeName", "podUid", "kubeconfig"}
        self.assertEqual(left, (own - {"logFormat", "devRoot"}) | image | pod | {"allowNonTmpfs", "standalone"})

    def test_names_that_yaml_would_take_for_something_else_stay_names(self):
        for name in ("123", "1.5", "true", "null"):
            with self.subTest(name):
                self.hold({"driverName": name, "runtimeClassName": name, "priorityClassName": name}, release=name, namespace=name)
                self.hold({"fullnameOverride": name, "nameOverride": name, "serviceAccount": {"name": name}, "extendedResource": {"className": name + "x"}})

    def test_long_names_end_as_names_may(self):
        for release in ("aliquot-" + "y" * 43 + ".z", "a" * 51 + "-b", "x" * 53, "a.b"):
            with self.subTest(release):
                self.hold(release=release)
        self.hold({"driverName": "d" * 63, "admission": {"moreClasses": ["c" * 253], "ceilings": True, "refuseCounts": "always"}})
        self.hold({"nameOverride": "n" * 62 + ".x"})

    def hold(self, values=None, **where):
        """The schema takes the values, and what is rendered with them has only names and labels that are some."""
        jsonschema.validate(self.renderer.ask(values, **where)["values"], self.schema)
        for obj in self.renderer.objects(values, **where):
            self.assertEqual(chart_objects.problems(obj), [])
            self.assertRegex(obj["metadata"]["name"], r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
            for label in obj["metadata"]["labels"].values():
                self.assertRegex(label, r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")

    def test_a_value_that_is_taken_away_is_refused_or_not_missed(self):
        given = yaml.safe_load((CHART / "values.yaml").read_text())
        for name in ("networkPolicy", "podMonitor", "prometheusRule", "grafanaDashboard"):
            given[name]["enabled"] = True

        def places(values):
            for key, value in list(values.items()):
                yield values, key
                yield from places(value) if isinstance(value, dict) else ()
        for values, key in places(given):
            kept, values[key] = values[key], None  # as Helm has it: null takes the chart's value away
            try:
                wrong = [p for o in self.renderer.objects(given) if o["kind"] not in MONITORING for p in chart_objects.problems(o)]
            except RenderError as error:
                wrong = str(error)
            del values[key]
            if wrong:
                with self.subTest(key), self.assertRaises(jsonschema.ValidationError, msg=wrong):
                    jsonschema.validate(given, self.schema)
            values[key] = kept

    def test_schema_and_aliquotd_take_the_same_settings(self):
        daemon_world.need_daemon()
        good = [{"reserve": "1Gi"}, {"reserve": 0}, {"healthHold": "5m"}, {"healthHold": 60}, {"startSpread": "0s"}, {"healthIgnoreXids": [13, 31]},
                {"healthIgnoreXids": "13,31"}, {"healthIgnoreXids": []}, {"inject": ["default", "-graphics"]}, {"inject": "all"}, {"adminGroup": 1000},
                {"mknod": False, "devChar": False}, {"extraMounts": [{"hostPath": "/a", "containerPath": "/b"}]}, {"extraEnv": ["A=b: c #d"]}]
        bad = [{"reserve": "1..5"}, {"healthHold": "1m30s"}, {"healthHold": "500ms"}, {"startSpread": "soon"}, {"healthIgnoreXids": ["x"]},
               {"inject": "nonsense"}, {"adminGroup": ""}, {"extraEnv": ["A"]}, {"extraMounts": [{"hostPath": "a", "containerPath": "/b"}]}]
        with tempfile.TemporaryDirectory() as root:
            places = {k: f"{root}/{k}" for k in ("kubeletDir", "cdiDir", "stateDir", "runDir", "hostLibDir")}
            for config in good + bad:
                answer = self.renderer.ask({**places, "config": config})
                path = pathlib.Path(root, "aliquotd.yaml")
                path.write_text(yaml.safe_load(answer["objects"]["configmap.yaml"])["data"]["aliquotd.yaml"])
                # Reads its settings, and finds nothing there to remove.
                done = subprocess.run([chart_objects.BUILD / "src/daemon/aliquotd", "--config", path, "--uninstall"], capture_output=True, text=True,
                                      timeout=30, check=False)
                is_valid = jsonschema.Draft7Validator(self.schema).is_valid(answer["values"])
                self.assertEqual((is_valid, done.returncode), (True, 0) if config in good else (False, 2), f"{config}: {done.stderr}")

    def test_config_may_not_say_what_the_chart_decides(self):
        with self.assertRaisesRegex(RenderError, "config.driverName: the chart sets it from a value of its own"):
            self.renderer.ask({"config": {"driverName": "x"}})

    def test_an_older_kubernetes_is_refused(self):
        with self.assertRaisesRegex(RenderError, "incompatible with Kubernetes"):
            self.renderer.ask(version="1.33.4")

    def test_versions_are_the_builds(self):
        version = re.search(r"version: '([^']+)'", (REPO / "meson.build").read_text())[1]
        meta = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((meta["version"], meta["appVersion"]), (version, version))
        self.assertEqual(self.pod()["containers"][0]["image"], f"aliquot:{version}")


class Notes(Rendered):
    def notes(self, *args):
        return self.renderer.ask(*args)["objects"]["NOTES.txt"]

    def test_notes_say_what_to_try_with_objects_that_the_server_takes(self):
        text = self.notes({"driverName": "gpu.example.com"})
        example = text.split("<<'EOF'\n")[1].split("EOF\n")[0]
        objects = list(yaml.safe_load_all(textwrap.dedent(example)))
        self.assertEqual([o["kind"] for o in objects], ["ResourceClaimTemplate", "Pod"])
        for obj in objects:
            self.assertEqual(chart_objects.problems(obj), [])
        self.assertEqual(objects[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "gpu.example.com")
        self.assertIn("aliquot doctor", text)

    def test_notes_say_what_this_cluster_lacks(self):
        plain, old = self.notes(), self.notes({}, "1.34.9")
        self.assertIn("--set privileged=true", plain)
        self.assertNotIn("--set privileged=true", self.notes({"privileged": True}))
        self.assertIn("DRAConsumableCapacity is off", old)
        self.assertNotIn("DRAConsumableCapacity", plain)
        self.assertIn("nvidia.com/gpu: 1", plain)
        self.assertNotIn("nvidia.com/gpu: 1", old)
        self.assertIn("aliquot.dev/max-cores", self.notes({"admission": {"ceilings": True}}))


class Daemonset(Rendered):
    def test_pod_has_the_least_rights_that_do(self):
        security = self.pod()["containers"][0]["securityContext"]
        documented = set(re.findall(r"^\| `CAP_(\w+)` \|", (REPO / "docs/security.md").read_text(), re.M))
        self.assertEqual(security["capabilities"]["drop"], ["ALL"])
        self.assertEqual(set(security["capabilities"]["add"]), documented)
        self.assertIn("SYS_PTRACE", documented)
        self.assertNotIn("privileged", security)
        self.assertFalse(security["allowPrivilegeEscalation"])
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertTrue(self.pod()["hostPID"])
        self.assertNotIn("hostNetwork", self.pod())
        self.assertNotIn("allowPrivilegeEscalation", self.pod("everything")["containers"][0]["securityContext"])

    def test_update_starts_the_new_pod_first(self):
        update = of_kind(self.default, "DaemonSet")["spec"]["updateStrategy"]
        self.assertEqual(update, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        env = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in self.pod()["containers"][0]["env"] if "valueFrom" in e}
        self.assertEqual(env, {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"})

    def test_in_the_hosts_network_two_pods_fit_on_a_node(self):
        container = self.pod("everything")["containers"][0]
        self.assertNotIn("ports", container)  # a declared port would be a host port, and one pod a node
        self.assertNotIn("livenessProbe", container)
        self.assertEqual(container["readinessProbe"]["httpGet"]["port"], 9500)

    def test_every_directory_of_the_settings_is_mounted_where_it_is_on_the_host(self):
        for name, driver in (("default", "/host"), ("everything", "/host/run/nvidia/driver")):
            pod, settings = self.pod(name), self.settings(name)
            volumes = {v["name"]: v.get("hostPath", {}).get("path") for v in pod["volumes"]}
            mounts = {m["mountPath"]: volumes[m["name"]] for m in pod["containers"][0]["volumeMounts"]}
            for key in ("kubeletPluginsDir", "kubeletRegistryDir", "cdiDir", "stateDir", "runDir", "hostLibDir"):
                self.assertEqual(mounts[settings[key]], settings[key], key)
            self.assertEqual(mounts[os.path.dirname(settings["podResourcesSocket"])], os.path.dirname(settings["podResourcesSocket"]))
            self.assertEqual(mounts[driver], settings["driverRoot"])
            self.assertTrue(driver.startswith(settings["hostRoot"]))
            self.assertEqual(mounts["/dev"], "/dev")

    def test_a_change_of_settings_makes_new_pods(self):
        sums = [of_kind(self.renderer.objects(v), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
                for v in ({}, {"config": {"logLevel": "debug"}})]
        self.assertNotEqual(*sums)

    def test_rights_are_those_that_the_documentation_says(self):
        rules = {(g, r): set(rule["verbs"]) for rule in of_kind(self.default, "ClusterRole")["rules"] for g in rule["apiGroups"]
                 for r in rule["resources"]}
        table = (REPO / "docs/configuration.md").read_text().split("| right | for what |")[1].split("\n\n")[0]
        self.assertEqual(rules.pop(("resource.k8s.io", "resourceclaims/driver")), {"associated-node:patch"})
        for (group, resource), verbs in rules.items():
            row = re.search(rf"^\| `{resource}`(?: \(group `([\w.]+)`\))? ([\w, ]+?)[ ,]*(?:\||and from)", table, re.M)
            self.assertIsNotNone(row, resource)
            self.assertEqual(set(re.split(r", ", row[2])), verbs, resource)
            self.assertIn(row[1], (None, group))

    def test_the_policies_of_nodes_are_about_the_daemonsets_own_account(self):
        for name, (_, _, release) in SETS.items():
            policies = [o for o in self.sets[name] if o["kind"] == "ValidatingAdmissionPolicy" and
                        o["metadata"]["name"].endswith(("node-slices", "claim-status"))]
            for policy in policies:
                account = f"system:serviceaccount:aliquot:{self.pod(name)['serviceAccountName']}"
                self.assertIn(f"'{account}'", policy["spec"]["matchConditions"][0]["expression"])
        custom = self.renderer.objects({"serviceAccount": {"name": "gpu-daemon"}}, namespace="kube-system")
        self.assertIn("'system:serviceaccount:kube-system:gpu-daemon'",
                      of_kind(custom, "ValidatingAdmissionPolicy", "aliquot-node-slices")["spec"]["matchConditions"][0]["expression"])
        self.assertEqual(of_kind(custom, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"], "gpu-daemon")

    def test_counts_are_refused_where_the_scheduler_dies_of_them(self):
        names = {name: {o["metadata"]["name"] for o in objects} for name, objects in self.sets.items()}
        self.assertIn("aliquot-one-device", names["kubernetes-1.34"])
        self.assertNotIn("aliquot-one-device", names["default"])
        self.assertNotIn("whole.hami-core-gpu.project-hami.io", names["kubernetes-1.34"])

    def test_one_class_has_the_extended_resource(self):
        classes = {o["metadata"]["name"]: o["spec"].get("extendedResourceName") for o in self.default if o["kind"] == "DeviceClass"}
        self.assertEqual(classes, {"hami-core-gpu.project-hami.io": None, "whole.hami-core-gpu.project-hami.io": "nvidia.com/gpu"})


class Monitoring(Rendered):
    def known(self):
        """Metrics and their labels, from the documentation, which a test holds against metrics.def."""
        rows = re.findall(r"^\| `(aliquot_\w+)` \| (\w+) \| ([\w, ]*) \|", (REPO / "docs/metrics.md").read_text(), re.M)
        out = {}
        for name, kind, labels in rows:
            for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                out[name + suffix] = set(filter(None, labels.split(", "))) | {"instance", "job", "node"} | ({"le"} if suffix == "_bucket" else set())
        return out

    def check(self, expression, known):
        names = chart_objects.metric_names(expression)
        self.assertTrue(names, expression)
        self.assertLessEqual(names, set(known), expression)
        labels = set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', expression))
        for group in re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", expression):
            labels |= set(filter(None, re.split(r",\s*", group)))
        for name in names:
            self.assertLessEqual(labels, known[name], f"{name} in {expression}")

    def test_alerts_name_metrics_and_labels_that_exist(self):
        known, spec = self.known(), of_kind(self.sets["everything"], "PrometheusRule")["spec"]
        rules = [rule for group in spec["groups"] for rule in group["rules"]]
        self.assertGreater(len(rules), 5)
        for rule in rules:
            self.check(rule["expr"], known)
            used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
            gone = re.search(r"\bsum by \(([^)]*)\)", rule["expr"])
            has = set(re.split(r",\s*", gone[1])) if gone else set.union(*(known[n] for n in chart_objects.metric_names(rule["expr"])))
            self.assertLessEqual(used, has, rule["alert"])

    def test_an_alert_on_the_first_step_of_a_counter_sees_counters_that_begin_with_it(self):
        for rule in yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"][0]["rules"]:
            for metric in re.findall(r"increase\((\w+)\[1h\]\) > 0", rule["expr"]):
                self.assertIn(f"or ({metric} > 0 unless {metric} offset 1h)", rule["expr"])

    def test_dashboard_names_metrics_and_labels_that_exist(self):
        known = self.known()
        dashboard = json.loads(of_kind(self.sets["everything"], "ConfigMap", "shares-aliquot-dashboard")["data"]["aliquot.json"])
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                self.check(target["expr"], known)
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                self.assertLessEqual(chart_objects.metric_names(variable["query"]), set(known))

    def test_a_name_that_does_not_exist_is_found(self):
        with self.assertRaises(AssertionError):
            self.check("aliquot_gpu_health == 0", self.known())
        with self.assertRaises(AssertionError):
            self.check('aliquot_gpu_healthy{pod="x"} == 0', self.known())


class Applied(Rendered):
    """In one sandbox, one after the other."""

    @classmethod
    def setUpClass(cls):
        cls.sandbox = sandbox_peer.Sandbox()

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.stop()

    def apply(self, objects):
        return self.sandbox.kubectl("kubectl", "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))[1]

    def compare(self, sandbox, path):
        client, recorded = sandbox.admin, json.loads(path.read_text())
        for where, body in chart_cases.SETUP:
            client.ok("POST", where, body)
        chart_cases.use(client.ok)
        for case in chart_cases.CASES:
            if case.name not in recorded:
                continue
            with self.subTest(case.name):
                status, _, body = client.request(case.method, case.path, case.body, case.headers())
                self.assertEqual(chart_cases.outcome(status, body), recorded[case.name])
                self.assertEqual(status < 300, case.is_allowed)
        return set(recorded)

    def test_objects_are_taken_and_policies_answer_as_the_real_server_did(self):
        self.sandbox.admin.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "aliquot"}})
        objects = self.renderer.objects(chart_cases.ALL_POLICIES)
        self.assertEqual(len(self.apply(objects).splitlines()), len(objects))
        self.assertNotIn(" created\n", self.apply(objects))
        self.assertEqual(self.compare(self.sandbox, chart_cases.ANSWERS), {c.name for c in chart_cases.CASES})

    def test_a_node_cannot_write_into_the_pool_of_another(self):
        """Not recorded of a real server."""
        self.apply([o for o in self.default if o["metadata"]["name"] == "aliquot-node-slices" or o["kind"] in ("ClusterRole", "ClusterRoleBinding")])
        for pool, is_allowed in (("node-a", True), ("node-b", False)):
            body = chart_cases.slice_("node-a")
            body["spec"]["pool"] = {"name": pool, "generation": 99, "resourceSliceCount": 1}
            case = chart_cases.Case(pool, is_allowed, "POST", "resourceslices", body, "node-a")
            status, _, answer = self.sandbox.admin.request(case.method, case.path, case.body, case.headers())
            self.assertEqual(status < 300, is_allowed, answer)
        self.assertIn("aliquotd of node node-a may write ResourceSlices of the pool of its own node only", answer["message"])

    def test_claims_of_other_nodes_are_kept_from_aliquotd_by_servers_that_do_not_do_so_themselves(self):
        with sandbox_peer.Sandbox("1.34") as sandbox:
            for obj in self.renderer.objects(version="1.34.9"):
                if obj["kind"] in ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
                    group = obj["apiVersion"].rpartition("/")[0]
                    plural = next(r.plural for r in resources.RESOURCES if r.kind == obj["kind"])
                    sandbox.admin.ok("POST", f"/apis/{group}/v1/{plural}", obj)
            self.assertTrue(self.compare(sandbox, chart_cases.ANSWERS_WITHOUT_GRANULAR))
            self.refuse_devices_of_another_driver(sandbox.admin)

    def refuse_devices_of_another_driver(self, client):
        """Not recorded of a real server: in a claim that has been allocated devices of two drivers."""
        claims = f"{chart_cases.GROUP}/namespaces/default/resourceclaims"
        made = client.ok("POST", claims, {**chart_cases.claim(chart_cases.ask()), "metadata": {"name": "two"}})
        status = client.ok("GET", chart_cases.USED)["status"]
        devices = [{"driver": d, "pool": "node-a", "device": "hami-gpu-0"} for d in (chart_cases.DRIVER, "other.example.com")]
        status["allocation"]["devices"]["results"] = [{"request": "gpu", **d} for d in devices]
        client.ok("PUT", f"{claims}/two/status", {**made, "status": status})
        for some, is_allowed in ((devices[:1], True), (devices, False), (devices[1:], False)):
            case = chart_cases.Case("two", is_allowed, "PATCH", "namespaces/default/resourceclaims/two/status", {"status": {"devices": some}},
                                    "node-a", "application/merge-patch+json")
            code, _, answer = client.request(case.method, case.path, case.body, case.headers())
            self.assertEqual(code < 300, is_allowed, answer)
        self.assertIn("aliquotd may write status.devices of its own driver", answer["message"])

    def test_a_pod_with_the_extended_resource_gets_a_claim_of_the_class(self):
        devices = [{"name": "hami-gpu-0", "allowMultipleAllocations": True, "attributes": {"type": {"string": "hami-gpu"}},
                    "capacity": {"cores": {"value": "100"}, "memory": {"value": "80Gi"}}}]
        client, slice_ = self.sandbox.admin, chart_cases.slice_("node-a", name="whole")
        slice_["spec"]["devices"] = devices
        client.ok("POST", f"{chart_cases.GROUP}/resourceslices", slice_)
        documents = list(yaml.safe_load_all((REPO / "demo/extended-resource.yaml").read_text()))
        rendered = of_kind(self.default, "DeviceClass", documents[0]["metadata"]["name"])
        self.assertEqual(documents[0]["spec"], rendered["spec"])
        self.apply([rendered, documents[1]])
        made = self.sandbox.wait("a claim in use", lambda: [
            c for c in client.ok("GET", f"{chart_cases.GROUP}/namespaces/default/resourceclaims")["items"] if c["status"].get("reservedFor")])[0]
        pod = self.sandbox.pod("pod-whole-0")
        # As recorded of 1.36.2.
        self.assertRegex(made["metadata"]["name"], r"^pod-whole-0-extended-resources-")
        self.assertEqual(made["metadata"]["annotations"], {"resource.kubernetes.io/extended-resource-claim": "true"})
        self.assertEqual(made["spec"]["devices"]["requests"], [{"name": "container-0-request-0", "exactly": {
            "deviceClassName": rendered["metadata"]["name"], "allocationMode": "ExactCount", "count": 1}}])
        self.assertEqual(made["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"], {"cores": "100", "memory": "80Gi"})
        self.assertEqual(pod["status"]["extendedResourceClaimStatus"], {
            "requestMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}],
            "resourceClaimName": made["metadata"]["name"]})


class Node(daemon_world.World):
    """A node whose aliquotd has the settings, the account and the rights of the rendered chart, the policies in force."""

    def __init__(self, render):
        super().__init__(gpus=1, with_driver=False)
        self.driver_root = self.path("host/opt/driver")
        os.makedirs(self.driver_root)
        self.install_driver()
        dirs = {name: self.path(path) for name, path in (("kubeletDir", "k"), ("cdiDir", "cdi"), ("stateDir", "state"), ("runDir", "run"),
                                                         ("hostLibDir", "lib"))}
        for obj in render({**dirs, "driverRoot": "/opt/driver", "config": {"startSpread": "0s"}}):
            if obj["kind"] == "ConfigMap":
                pathlib.Path(self.path("aliquotd.yaml")).write_text(obj["data"]["aliquotd.yaml"])
            elif obj["kind"] in ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
                self.api.create(logic.SYSTEM, next(r for r in resources.RESOURCES if r.kind == obj["kind"]), "", obj)
            elif obj["kind"] == "DaemonSet":
                account = obj["spec"]["template"]["spec"]["serviceAccountName"]
        self.http.tokens = {daemon_world.TOKEN: logic.Account(self.api.store, "aliquot", account, daemon_world.NODE)}
        self.http.request_log = []
        own = ("kubelet-plugins-dir", "kubelet-registry-dir", "cdi-dir", "state-dir", "run-dir", "driver-root", "host-lib-dir",
               "start-spread", "log-level")
        self.start(config=self.path("aliquotd.yaml"), host_root=self.path("host"), library=str(daemon_world.BUILD / "src/vgpu/libvgpu.so"),
                   **{name.replace("-", "_"): None for name in own})

    registration_socket = property(lambda self: self.path("k/plugins_registry", f"{chart_cases.DRIVER}-reg.sock"))
    dra_socket = property(lambda self: self.path("k/plugins", chart_cases.DRIVER, "dra.sock"))


class Daemon(Rendered):
    @classmethod
    def setUpClass(cls):
        daemon_world.need_daemon()
        cls.node = Node(cls.renderer.objects)
        cls.addClassCleanup(cls.node.close)

    def test_the_rendered_rights_and_settings_do_for_a_claims_whole_life(self):
        node = self.node
        daemon_world.wait_for("slices", lambda: node.api.store.all("resourceslices"))
        claim = node.claim("c", [daemon_world.result()])
        here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [daemon_world.NODE]}]}]
        node.api.store.get("resourceclaims", "default", "c")["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": here}
        lost = node.claim("lost", [daemon_world.result(device="hami-gpu-9")])
        with contextlib.closing(node.peer()) as peer:
            self.assertEqual(peer.prepare(claim)[claim[2]].error, "")
            self.assertIn("hami-gpu-9", peer.prepare(lost)[lost[2]].error)
            spec = json.loads(pathlib.Path(node.path("cdi", f"k8s.{chart_cases.DRIVER}-claim_{claim[2]}.json")).read_text())
            driver = [m["hostPath"] for m in spec["containerEdits"]["mounts"] if "libcuda" in m["hostPath"]]
            self.assertTrue(driver and all(p.startswith("/opt/driver/") for p in driver), driver)
            daemon_world.wait_for("status.devices", lambda: not node.unwritten())
            daemon_world.wait_for("an event", lambda: node.api.store.all("events"))
            self.assertEqual(peer.unprepare(claim)[claim[2]].error, "")
        node.stop()
        self.assertEqual([r for r in node.http.request_log if (r["code"] or 200) >= 400 and "lost" not in r["path"]], [])
        used = {r["method"] for r in node.http.request_log}
        self.assertLessEqual({"GET", "POST", "PATCH"}, used)


if __name__ == "__main__":
    unittest.main()

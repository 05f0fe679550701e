# SPDX-License-Identifier: Apache-2.0
"""The node with Aliquot out of its image and its chart (E2E_INSTALL=chart): a DaemonSet as a user gets it, with directories of the
test's own, so that the host can be compared with what it was."""

import copy
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/image"))
import image  # noqa: E402
import make  # noqa: E402
import oci  # noqa: E402
import root  # noqa: E402
from node import BUILD, DRIVER, REPO, Failure, Node, Unusable, setting  # noqa: E402

CHART = REPO / "deploy/helm/aliquot"
RELEASE = SPACE = "aliquot-e2e-release"
ARCHIVE = BUILD / "image/aliquot.tar"
NEWER = "docker.io/library/aliquot:e2e-newer"
LABEL = f"app.kubernetes.io/instance={RELEASE}"


def merged(base, over):
    return {**base, **{k: merged(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in over.items()}}


def render(values, version):
    """The chart's objects, by helm where it is installed, else by the engine that the chart's own tests have."""
    if shutil.which("helm"):
        done = subprocess.run(["helm", "template", RELEASE, CHART, "-n", SPACE, "--kube-version", version, "--values", "-"],
                              input=json.dumps(values), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unusable(f"helm template: {done.stderr.strip()}")
        return [o for o in yaml.safe_load_all(done.stdout) if o]
    sys.path.insert(0, str(REPO / "tests/integration"))
    import chart_objects
    renderer = chart_objects.Renderer()
    try:
        return renderer.objects(values, version=version.lstrip("v"), release=RELEASE, namespace=SPACE)
    finally:
        renderer.close()


def make_newer(path):
    """The image as a later version: its library is another one."""
    contents, _ = root.assemble(BUILD)
    contents["usr/libexec/aliquot/libvgpu.so"].data += b"newer"
    known = make.facts(BUILD, 0)
    path.write_bytes(oci.archive(contents, NEWER, make.config(known), root.run("dpkg", "--print-architecture").strip(), known["created"], 0))


class ChartNode(Node):
    kind = "chart"

    def check(self):
        if not ARCHIVE.exists():
            raise Unusable(f"{ARCHIVE} is missing; run make image first")
        if self.image == "none":
            raise Unusable("E2E_INSTALL=chart needs a cluster that runs images")
        self.version = super().check()
        return self.version

    def start(self):
        super().start()
        make_newer(self.dir / "newer.tar")
        command = setting("IMAGE_IMPORT", "ctr -n k8s.io images import -")
        for archive in (ARCHIVE, self.dir / "newer.tar"):
            wrong = image.load(command, archive)
            if wrong:
                raise Unusable(f"{archive} cannot be loaded by `{command}` (E2E_IMAGE_IMPORT): {wrong}")
        self.values = {
            "image": {"repository": "docker.io/library/aliquot"}, "imagePullPolicy": "Never", "driverRoot": str(self.dir / "driver"),
            "kubeletDir": str(self.kubelet_dir), "cdiDir": str(self.cdi_dir), "stateDir": str(self.dir / "state"),
            "runDir": str(self.run_dir), "hostLibDir": str(self.dir / "lib"), "priorityClassName": "",
            "config": json.loads((self.dir / "aliquotd.yaml").read_text()) | {"logLevel": "debug"},
            "extraVolumes": [{"name": "simgpu", "hostPath": {"path": str(self.dir / "sim"), "type": "Directory"}}],
            "extraVolumeMounts": [{"name": "simgpu", "mountPath": "/run/simgpu"}]}
        if setting("CHART_VALUES"):
            self.values = merged(self.values, json.loads(setting("CHART_VALUES")))

    def make_account(self):
        """The chart makes it."""

    # ---- the DaemonSet

    def apply(self, objects):
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def install(self):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        self.objects_made = render(self.values, self.version)
        self.apply([namespace])
        self.apply(self.objects_made)

    def pods(self):
        """(pod UID, name, is ready) of the DaemonSet's pods that are not being deleted."""
        out = []
        for pod in self.objects("pods", "-n", SPACE, "-l", LABEL):
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))
            if not pod["metadata"].get("deletionTimestamp"):
                out.append((pod["metadata"]["uid"], pod["metadata"]["name"], ready))
        return out

    def wait_for_pod(self, *others):
        """UID of a pod that is ready and none of others; alone on the node."""
        def there():
            pods = self.pods()
            return pods[0][0] if len(pods) == 1 and pods[0][2] and pods[0][0] not in others else None
        try:
            return self.wait_for("a pod of the DaemonSet to be ready", there, 180)
        except Failure as e:
            said = self.kubectl("logs", "-n", SPACE, "-l", LABEL, "--tail=10", check=False)
            events = self.kubectl("get", "events", "-n", SPACE, "-o", "custom-columns=R:.reason,M:.message", "--no-headers", check=False)
            raise Failure(f"{e}; it said:\n{said}\nevents:\n{events}") from e

    def start_daemon(self):
        self.install()
        return self.wait_for_pod()

    @staticmethod
    def processes(uid):
        """aliquotd's processes of that pod, as this host sees them."""
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "exe").endswith("/aliquotd") and f"POD_UID={uid}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    yield int(path.name)
            except OSError:
                continue

    def killed(self, uid):
        """The kubelet starts the container again, in the same pod."""
        before = set(self.processes(uid))
        if not before:
            raise Failure(f"no process of pod {uid} is found on this host; is it the node's?")
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        self.wait_for("the container to be started again", lambda: set(self.processes(uid)) - before)
        return self.wait_for_pod()

    def updated(self, uid, meanwhile):
        """A newer image: the DaemonSet's own rolling update, with one pod too many for a while. Pods that run keep their library."""
        old, = (self.dir / "lib").glob("libvgpu-*.so")
        before = old.stat()
        daemon_set = next(o for o in self.objects_made if o["kind"] == "DaemonSet")
        newer = copy.deepcopy(daemon_set)
        newer["spec"]["template"]["spec"]["containers"][0]["image"] = NEWER
        self.apply([newer])
        self.wait_for("the newer pod beside the older one", lambda: any(p[0] != uid for p in self.pods()))
        meanwhile()
        there = self.wait_for_pod(uid)
        self.wait_for("the newer library beside the older one", lambda: len(list((self.dir / "lib").glob("libvgpu-*.so"))) == 2)
        if (old.stat().st_ino, old.stat().st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
            raise Failure(f"{old} was written to while a pod has it mapped")
        return there

    def restarted(self, uid):
        self.kubectl("delete", "pod", "-n", SPACE, "-l", LABEL, "--timeout=90s")
        return self.wait_for_pod(uid)

    # ---- the end

    def remove_release(self):
        """As `helm uninstall` does; all that was installed, the namespace last."""
        self.kubectl("delete", "-f", "-", "--ignore-not-found", "--timeout=90s",
                     stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": self.objects_made}))
        self.wait_for("the pods of the DaemonSet to go", lambda: not self.objects("pods", "-n", SPACE, "-l", LABEL))

    def uninstall(self):
        """deploy/uninstall.yaml, with this test's directories for aliquotd's."""
        self.remove_release()
        daemon_set = yaml.safe_load((REPO / "deploy/uninstall.yaml").read_text())
        daemon_set["metadata"]["namespace"] = SPACE
        spec = daemon_set["spec"]["template"]["spec"]
        parents = [self.dir, self.run_dir.parent, self.kubelet_dir, self.cdi_dir.parent]
        spec["volumes"] = [{"name": f"v{i}", "hostPath": {"path": str(p), "type": "Directory"}} for i, p in enumerate(parents)]
        flags = {"kubelet-plugins-dir": self.kubelet_dir / "plugins", "kubelet-registry-dir": self.kubelet_dir / "plugins_registry",
                 "cdi-dir": self.cdi_dir, "state-dir": self.dir / "state", "run-dir": self.run_dir, "host-lib-dir": self.dir / "lib"}
        for container in (*spec["initContainers"], *spec["containers"]):
            container["image"] = f"docker.io/library/{container['image']}"
            container["args"] += [f"--{name}={path}" for name, path in flags.items()]
            container["volumeMounts"] = [{"name": f"v{i}", "mountPath": str(p)} for i, p in enumerate(parents)]
        self.apply([daemon_set])
        try:
            self.kubectl("rollout", "status", "-n", SPACE, "daemonset/aliquot-uninstall", "--timeout=90s")
        finally:
            said = self.kubectl("logs", "-n", SPACE, "daemonset/aliquot-uninstall", "-c", "uninstall", check=False)
            self.kubectl("delete", "daemonset", "-n", SPACE, "aliquot-uninstall", "--timeout=90s")
        return said

    def delete_objects(self):
        super().delete_objects()
        if hasattr(self, "objects_made"):
            self.remove_release()
        self.kubectl("delete", "namespace", SPACE, "--ignore-not-found", "--timeout=90s")
        self.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}", check=False)

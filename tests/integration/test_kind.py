# SPDX-License-Identifier: Apache-2.0
"""deploy/kind/demo.sh with stand-ins for kind, kubectl, helm and docker that note how they are called: what it asks of them, in which
order, and that it takes everything away again. The simulated GPUs are real processes."""

import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import yaml

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
SCRIPT = REPO / "deploy/kind/demo.sh"
# What is given by name, and standard input, is copied away: it is gone when the script ends.
STAND_IN = r"""#!/bin/bash
echo "${0##*/} $*" >>"$CALLS/calls"
for arg in "$@"; do case $arg in /tmp/alq-kind-*) [ ! -f "$arg" ] || cp "$arg" "$CALLS/" ;; esac; done
case "${0##*/} $*" in
"$FAIL"*) echo "no luck" >&2; exit 1 ;;
"kind get clusters") printf 'kind\nmine\n' ;;
"kubectl apply -f -") cat >"$CALLS/pods.yaml" ;;
"kubectl get resourceslices"*) echo resourceslice/one ;;
"kubectl get pods"*) printf 'pod/pod-0\npod/pod-1\n' ;;
"kubectl logs "*) echo "said $2" ;;
esac
"""


def setUpModule():
    if not (BUILD / "sim/simgpud").exists() or not (BUILD / "demo/alq-demo-report").exists():
        raise unittest.SkipTest("simgpud or the demo is not built")


class Kind(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-stub-"))
        self.addCleanup(shutil.rmtree, self.dir)
        for name in ("kind", "kubectl", "helm", "docker"):
            path = self.dir / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(STAND_IN)
            path.chmod(0o755)
        build = self.dir / "build"
        (build / "image").mkdir(parents=True)
        (build / "image/aliquot.tar").write_text("an image")
        for name in ("sim", "demo"):
            (build / name).symlink_to(BUILD / name)

    def run_it(self, *args, fail="none", wait_s=60):
        env = dict(os.environ, PATH=f"{self.dir}/bin:/usr/bin:/bin", CALLS=str(self.dir), FAIL=fail, ALIQUOT_BUILD=str(self.dir / "build"),
                   ALIQUOT_KIND_WAIT_S=str(wait_s))
        return subprocess.run([SCRIPT, *args], capture_output=True, text=True, env=env, timeout=120, check=False)

    def calls(self):
        path = self.dir / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def nothing_is_left(self):
        work, = {c.split("--config ")[1].split("/kind.yaml")[0] for c in self.calls() if "--config " in c}
        self.assertFalse(os.path.exists(work))
        running = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                running.append(path.read_bytes())
            except OSError:  # has ended meanwhile
                continue
        self.assertEqual([c for c in running if work.encode() in c], [])

    def values(self):
        """What helm was given: values that the chart has."""
        values = yaml.safe_load((self.dir / "values.yaml").read_text())
        self.assertEqual(set(values) - set(yaml.safe_load((REPO / "deploy/helm/aliquot/values.yaml").read_text())), set())
        return values

    def test_simulated_gpus_from_the_cluster_to_the_logs(self):
        done = self.run_it("--kubernetes", "1.36", "--name", "try")
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = self.calls()
        heads = [c.split(" /tmp/")[0].split(" --")[0] for c in calls]
        self.assertEqual(heads, ["kind get clusters", "kind create cluster", "kind load image-archive", "kind load image-archive",
                                 "helm install aliquot deploy/helm/aliquot", "kubectl get resourceslices -o name",
                                 "kubectl apply -f demo/manifests/10-claims.yaml", "kubectl apply -f -", "kubectl wait pod",
                                 "kubectl get pods -o name", "kubectl logs pod/pod-0", "kubectl logs pod/pod-1",
                                 "kind delete cluster"])
        self.assertIn("--name try --image kindest/node:v1.36.0", calls[1])
        self.assertTrue(calls[2].endswith("/build/image/aliquot.tar"))
        self.assertIn("said pod/pod-1", done.stdout)
        self.nothing_is_left()

        cluster = yaml.safe_load((self.dir / "kind.yaml").read_text())
        self.assertEqual(cluster["featureGates"], {"DRAConsumableCapacity": True})
        values = self.values()
        mounts = {m["containerPath"] for m in cluster["nodes"][0]["extraMounts"]}
        self.assertEqual(mounts, {values["driverRoot"], values["config"]["extraMounts"][0]["hostPath"]})
        self.assertEqual(values["extraVolumes"][0]["hostPath"]["path"], values["config"]["extraMounts"][0]["hostPath"])
        pods = [p for p in yaml.safe_load_all((self.dir / "pods.yaml").read_text()) if p]
        with tarfile.open(self.dir / "demo.tar") as tar:
            manifest = yaml.safe_load(tar.extractfile("manifest.json"))
        self.assertGreater(len(pods), 3)
        for pod in pods:
            for container in pod["spec"]["containers"]:
                self.assertEqual((container["image"], container["imagePullPolicy"]), (manifest[0]["RepoTags"][0], "Never"))

    def test_real_gpus_are_given_to_the_node(self):
        done = self.run_it("--gpus", "real")
        self.assertEqual(done.returncode, 0, done.stderr)
        cluster = yaml.safe_load((self.dir / "kind.yaml").read_text())
        self.assertEqual(cluster["nodes"][0]["extraMounts"], [{"hostPath": "/dev/null", "containerPath": "/var/run/nvidia-container-devices/all"}])
        self.assertEqual(self.values(), {"privileged": True})
        self.assertIn("kindest/node:v1.34.0", self.calls()[1])

    def test_failure_is_told_and_everything_taken_away(self):
        for what, gpus, wait_s in (("kubectl get resourceslices", "real", 1), ("kind create", "simulated", 60)):
            with self.subTest(what):
                (self.dir / "calls").unlink(missing_ok=True)
                done = self.run_it("--gpus", gpus, fail=what, wait_s=wait_s)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(self.calls()[-1], "kind delete cluster --name aliquot")
                self.nothing_is_left()
        self.assertIn("no luck", done.stderr)

    def test_kept_cluster_is_not_deleted_and_the_way_to_its_end_is_told(self):
        done = self.run_it("--gpus", "real", "--keep")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("kind delete cluster --name aliquot", self.calls())
        self.assertIn("kind delete cluster --name aliquot", done.stdout)
        shutil.rmtree(done.stdout.split("rm -rf ")[1].strip())

    def test_a_cluster_that_was_there_before_is_not_taken_away(self):
        done = self.run_it("--gpus", "real", "--name", "mine")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is a cluster mine already", done.stderr)
        self.assertEqual(self.calls(), ["kind get clusters"])

    def test_mistakes_are_named(self):
        for args, said in ((("--kubernetes", "1.33"), "--kubernetes: 1.33 is not 1.34, 1.35 or 1.36"), (("--name",), "--name needs a value"),
                           (("--name", ""), "--name needs a value"),
                           (("--gpus", "none"), "--gpus: none is neither simulated nor real"), (("--now",), "--now is not an option; see --help")):
            done = self.run_it(*args)
            self.assertEqual((done.returncode, done.stderr), (1, f"kind: {said}\n"))
        (self.dir / "build/image/aliquot.tar").unlink()
        self.assertIn("aliquot.tar is missing; run make image first", self.run_it().stderr)
        (self.dir / "bin/helm").unlink()
        self.assertEqual(self.run_it().stderr, "kind: helm is not installed\n")
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""A node in bad weather: pods come and go while the API server errs, drops and delays, the kubelet and the daemon are
killed, and the machine reboots. All of it is drawn from a seed (ALIQUOT_WEATHER_SEED; ALIQUOT_WEATHER_ROUNDS: for how
long). When the sky clears everything must settle within a minute: no pod is stuck, what could end well has, and what was
deleted has left no record, share, CDI file or allocation."""

import http.client
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cluster_case  # noqa: E402
import sandbox_peer  # noqa: E402
from cluster_case import claim, pod  # noqa: E402

TIMEOUT_S = 600
SEED = int(os.environ.get("ALIQUOT_WEATHER_SEED", "20261130"))
ROUNDS = int(os.environ.get("ALIQUOT_WEATHER_ROUNDS", "40"))
SETTLE_S = 60
LIVE_MAX = 8  # with 10 cores and 2Gi each they always fit
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
BROKEN = (OSError, http.client.HTTPException)
# Only the daemon is hit; the test's own requests and the sandbox's parts are not.
CLIMATE = [{"code": 500, "probability": 0.08}, {"code": 503, "headers": {"Retry-After": "1"}, "probability": 0.05},
           {"code": 429, "headers": {"Retry-After": "1"}, "probability": 0.03}, {"code": 403, "probability": 0.04},
           {"code": 504, "when": "after", "probability": 0.05},
           {"close": True, "probability": 0.05}, {"close": True, "when": "after", "probability": 0.05},
           {"delaySeconds": 0.4, "code": 200, "probability": 0.1}, {"reorder": 3, "probability": 0.05},
           {"match": "watch=true", "events": 1, "close": True, "probability": 0.3},
           {"match": "watch=true", "events": 1, "code": 500, "probability": 0.2},
           {"match": "watch=true", "events": 0, "hang": True, "probability": 0.1}]


class Weather(cluster_case.ClusterCase):
    sandbox_args = ("--retry-seconds", "0.3", "--verbose")

    def setUp(self):
        self.dice = random.Random(SEED)
        self.client = sandbox_peer.Client(self.cluster.dir / "kubeconfig")
        self.addCleanup(self.client.close)
        self.number = 0
        self.alive = {}  # pods -> claims
        self.doomed = set()  # pods that a reboot has ended
        self.diary = []

    def ask(self, method, path, body=None):
        """(status, body); a connection that breaks is tried again."""
        end = time.monotonic() + 30
        while True:
            try:
                status, _, answer = self.client.request(method, path, body)
                return status, answer
            except BROKEN:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def note(self, text):
        self.diary.append(f"{len(self.diary):3} {text}")

    # ---- what may happen

    def pod_comes(self):
        if len(self.alive) >= LIVE_MAX:
            return self.pod_goes()
        self.number += 1
        name = f"w{self.number}"
        shared = self.dice.random() < 0.25 and self.alive
        claims = self.alive[self.dice.choice(sorted(self.alive))] if shared else name
        command = "sleep 600" if self.dice.random() < 0.6 else "alq-demo-report"
        body = pod(name, claims, command)
        body["spec"]["restartPolicy"] = "Always" if command != "alq-demo-report" and self.dice.random() < 0.5 else "Never"
        body["spec"]["terminationGracePeriodSeconds"] = 1
        if not shared:
            self.ask("POST", CLAIMS, claim(claims, [("gpu", "10", "2Gi")]))
        self.ask("POST", PODS, body)
        self.alive[name] = claims
        return self.note(f"pod {name} comes, claim {claims}: {command}, {body['spec']['restartPolicy']}")

    def remove(self, name):
        """The pod, and its claim with the last of its pods."""
        claims = self.alive.pop(name)
        self.ask("DELETE", f"{PODS}/{name}")
        if claims not in self.alive.values():
            self.ask("DELETE", f"{CLAIMS}/{claims}")

    def pod_goes(self):
        if self.alive:
            name = self.dice.choice(sorted(self.alive))
            self.note(f"pod {name} goes")
            self.remove(name)

    def kubelet_dies(self):
        seconds = self.dice.choice((0, 0, 1.5))
        self.note(f"kubelet dies for {seconds} s")
        self.ask("POST", "/sandbox/restart-kubelet", {"seconds": seconds})

    def daemon_dies(self):
        how = self.dice.choice((signal.SIGKILL, signal.SIGTERM))
        pause = self.dice.choice((0, 0.5, 1.5))
        self.note(f"daemon gets {how.name} and is back after {pause} s")
        self.cluster.stop_process("aliquotd", how)
        time.sleep(pause)
        self.cluster.start_daemon()

    def network_breaks(self):
        if self.dice.random() < 0.5:
            self.note("connections of the API server break")
            self.ask("POST", "/sandbox/cut", {"match": "watch=true|resourceclaims"})
        else:
            self.note("API server is down for 1 s")
            self.ask("POST", "/sandbox/api-down", {"seconds": 1})

    def machine_reboots(self):
        self.note("the machine reboots")
        self.ask("POST", "/sandbox/power-off")
        self.cluster.stop_process("aliquotd", signal.SIGKILL)
        for path in self.cluster.run_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        boot = self.cluster.dir / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n")
        self.cluster.daemon_prefix = ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
                                      f'mount --bind "{boot}" {BOOT_ID} && exec "$@"', "sh"]
        self.doomed |= set(self.alive)
        self.cluster.start_daemon()
        self.ask("POST", "/sandbox/power-on")

    # ---- when it is over

    def pods(self):
        return {p["metadata"]["name"]: p for p in self.ask("GET", PODS)[1]["items"]}

    def settled(self, name, item):
        phase = item.get("status", {}).get("phase")
        if item["spec"]["restartPolicy"] == "Always":
            return phase == "Running" and all("running" in s["state"] for s in item["status"]["containerStatuses"])
        return phase in ("Running", "Succeeded", "Failed")

    def wait(self, what, condition):
        """Until nothing is left of what condition() lists."""
        end = time.monotonic() + SETTLE_S
        while True:
            left = condition()
            if not left:
                return
            if time.monotonic() > end:
                raise AssertionError(f"{what} after {SETTLE_S} s: {left}\nseed {SEED}\n" + "\n".join(self.diary) +
                                     f"\naliquotd:\n{self.cluster.tail('aliquotd', 40)}")
            time.sleep(0.2)

    def test_everything_settles_when_the_weather_clears(self):
        for i, fault in enumerate(CLIMATE):
            self.ask("POST", "/sandbox/fault", {"match": "/apis/resource.k8s.io/", "user": ":aliquotd$", "count": 0,
                                                "seed": SEED + i, **fault})
        happenings = [self.pod_comes] * 9 + [self.pod_goes] * 5 + [
            self.kubelet_dies, self.kubelet_dies, self.daemon_dies, self.daemon_dies, self.network_breaks]
        for i in range(ROUNDS):
            if i == ROUNDS * 2 // 3:
                self.machine_reboots()
            self.dice.choice(happenings)()
            time.sleep(self.dice.choice((0, 0.1, 0.4)))
        used = {f["id"]: f["used"] for f in self.ask("GET", "/sandbox/fault")[1]["faults"]}
        self.ask("DELETE", "/sandbox/fault")
        print(f"seed {SEED}: {len(self.diary)} happenings, {self.number} pods, {sum(used.values())} faults")
        self.assertGreater(sum(used.values()), 5)
        self.wait("pods are stuck", lambda: {n: p.get("status", {}).get("phase") for n, p in self.pods().items()
                                             if not self.settled(n, p) or p["metadata"].get("deletionTimestamp")})
        failed = [n for n, p in self.pods().items() if p["status"]["phase"] == "Failed" and n not in self.doomed]
        self.assertEqual(failed, [], f"seed {SEED}\n" + "\n".join(self.diary))
        self.wait("slices are not published", lambda: {} if len(self.cluster.gpus_by_device()) == 2 else "one is missing")
        for name in sorted(self.alive):
            self.remove(name)
        self.wait("pods are stuck in their end", self.pods)
        self.wait("claims are left", lambda: [c["metadata"]["name"] for c in self.ask("GET", CLAIMS)[1]["items"]])
        self.wait("the kubelet has claims", lambda: self.ask("GET", "/sandbox/kubelet")[1]["claims"])
        self.wait("files are left", self.cluster.leftovers)


class Weather134(Weather):
    server_version = "1.34"


if __name__ == "__main__":
    unittest.main()

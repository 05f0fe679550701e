#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make demo: two simulated GPUs, a one-node cluster, the claims and pods of demo/manifests, and a table of what each
share asked for, saw, got and used. Exit status 0 only when every figure holds and nothing is left behind."""

import argparse
import os
import pathlib
import re
import signal
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cluster import REPO, Cluster, ClusterError, parse_quantity  # noqa: E402

MANIFESTS = REPO / "demo/manifests"
COMPUTE_TOLERANCE_POINTS = 5
REMAINDER_BYTES = 512
WARM_UP_NS = 1_000_000_000  # the gate's first second is not judged
started = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - started:5.1f}s] {text}", flush=True)


class Ledger:
    """What was seen of a share's files while it was there."""

    def __init__(self):
        self.sum_bytes = self.overhead_bytes = self.most_bytes = 0
        self.corrections = set()  # of its overhead, by the node's monitor: what the limit was less in force

    def look(self, cluster, share_id):
        try:
            self.corrections.add(cluster.overhead_correction(share_id))
            first, again = cluster.usage(share_id), cluster.usage(share_id)
            self.corrections.add(cluster.overhead_correction(share_id))
        except (FileNotFoundError, ValueError, struct.error):
            return  # being made, or unprepared
        self.most_bytes = max(self.most_bytes, first.total)
        # Between two equal readings nothing was in flight.
        if first.counted == again.counted and first.held == again.held == again.total and first.counted > self.sum_bytes:
            self.sum_bytes, self.overhead_bytes = first.counted, first.total - first.counted


class Kernels:
    """What the simulator's oracle said of a group of processes on a GPU."""

    def __init__(self):
        self.peak_bytes = 0
        self.busy = []  # (time_ns, busy_ns of its kernels)


class ShareView:
    """One share: what its claim asked for, and all that was seen of it while its pods ran."""

    def __init__(self, claim, uid, index, result, uuid, product, pods):
        self.claim, self.uid, self.index, self.uuid, self.product, self.pods = claim, uid, index, uuid, product, pods
        self.device = result["device"]
        self.request = result["request"]
        self.memory = parse_quantity(result["consumedCapacity"]["memory"])
        self.cores = int(result["consumedCapacity"]["cores"])
        self.group = claim  # the SIMGPU_GROUP of its pods; see observe()
        self.ledger, self.gpu = Ledger(), Kernels()
        self.seen = set()
        self.smi_mib = set()
        self.windows = []

    def left_bytes(self):
        """What could not be had at the largest sum, under the correction that was in force then."""
        seen = self.ledger
        left = [self.memory - c - seen.overhead_bytes - seen.sum_bytes for c in seen.corrections or {0}]
        return min((x for x in left if x >= 0), default=max(left))

    def measured_pct(self):
        """GPU time of the share over the wall time in which all its pods that were busy together were busy."""
        if not self.windows:
            return None
        start, end = max(w[0] for w in self.windows) + WARM_UP_NS, min(w[1] for w in self.windows)
        if end - start < WARM_UP_NS:  # pods of one share that hardly overlapped: judge the first alone
            start, end = self.windows[0][0] + WARM_UP_NS, self.windows[0][1]
        inside = [s for s in self.gpu.busy if start <= s[0] <= end]
        if len(inside) < 2 or inside[-1][0] - inside[0][0] < WARM_UP_NS:
            return None
        return 100.0 * (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


class Sampler(threading.Thread):
    """Calls a function at an interval until stopped. The usage files are read in a thread of their own: asking the oracle
    starts a program, which takes long on a busy machine."""

    def __init__(self, look, interval_s):
        super().__init__(daemon=True)
        self.look, self.interval_s = look, interval_s
        self.error = None
        self._stop_asked = threading.Event()
        self.start()

    def run(self):
        try:
            while not self._stop_asked.wait(self.interval_s):
                self.look()
        except (ClusterError, ValueError, KeyError, OSError) as e:
            self.error = e

    def stop(self):
        self._stop_asked.set()
        self.join()


def look_at_oracle(cluster, gpus):
    oracle = cluster.oracle()
    for device in oracle["devices"]:
        for group in device["groups"]:
            seen = gpus.setdefault((device["uuid"], group["group"]), Kernels())
            seen.peak_bytes = max(seen.peak_bytes, group["peak_bytes"])
            seen.busy.append((oracle["time_ns"], group["busy_ns"]))


def look_at_ledgers(cluster, ledgers):
    for share_id in cluster.share_ids():
        ledgers.setdefault(share_id, Ledger()).look(cluster, share_id)


def parse_line(line):
    kind, _, rest = line.partition(" ")
    return kind, {k: v.strip('"') for k, v in re.findall(r'(\w+)=("[^"]*"|\S+)', rest)}


def observe(cluster, claims):
    """The shares of these claims, each with the pods that use it."""
    gpus = cluster.gpus_by_device()
    pods_of = {}
    for pod in cluster.objects("pods"):
        statuses = {s["name"]: s["resourceClaimName"] for s in pod.get("status", {}).get("resourceClaimStatuses", [])}
        for ref in pod["spec"].get("resourceClaims", []):
            claim = ref.get("resourceClaimName") or statuses.get(ref["name"])
            pods_of.setdefault(claim, []).append(pod)
    shares = []
    for claim in claims:
        name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
        for i, result in enumerate(claim["status"]["allocation"]["devices"]["results"]):
            uuid, product = gpus[result["device"]]
            pods = pods_of[name]
            share = ShareView(name, uid, i, result, uuid, product, [p["metadata"]["name"] for p in pods])
            env = {e["name"]: e.get("value") for c in pods[0]["spec"]["containers"] for e in c.get("env", [])}
            share.group = env.get("SIMGPU_GROUP", "")
            shares.append(share)
    return shares


def read_logs(cluster, shares):
    """Fills in what the programs inside the containers printed; returns the logs by pod."""
    logs = {}
    for share in shares:
        for pod in share.pods:
            logs.setdefault(pod, cluster.kubectl("logs", pod))
            for line in logs[pod].splitlines():
                smi = re.fullmatch(r"(GPU-[0-9a-f-]+), (\d+)", line.strip())
                if smi and smi[1] == share.uuid:  # nvidia-smi --query-gpu=uuid,memory.total, in MiB
                    share.smi_mib.add(int(smi[2]))
                kind, fields = parse_line(line)
                if fields.get("uuid") != share.uuid:
                    continue
                if kind == "report":
                    share.seen |= {int(fields[k]) for k in
                                   ("cuda_device_total_bytes", "cuda_total_bytes", "nvml_total_bytes")}
                elif kind == "busy":
                    share.windows.append((int(fields["start_ns"]), int(fields["end_ns"])))
    return logs


def mib(n):
    return f"{n / (1 << 20):,.2f}"


def table(shares):
    rows = [("POD", "GPU", "ASKED MiB", "SEEN MiB", "LARGEST SUM", "OVERHEAD", "LEFT B", "ORACLE PEAK", "CORES", "MEASURED")]
    for s in shares:
        pct = s.measured_pct()
        rows.append(("+".join(s.pods), s.device, mib(s.memory), "/".join(mib(x) for x in sorted(s.seen)) or "-",
                     mib(s.ledger.sum_bytes), mib(s.ledger.overhead_bytes), str(s.left_bytes()),
                     mib(s.gpu.peak_bytes), f"{s.cores} %", "-" if pct is None else f"{pct:.1f} %"))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for r in rows:
        print("  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip())


def judge(shares, samplers):
    """Every way in which a share did not hold, as sentences."""
    wrong = [f"observation stopped: {s.error}" for s in samplers if s.error]
    for s in shares:
        who = f"{s.claim}/{s.request}"
        most = s.memory - min(s.ledger.corrections, default=0)
        if s.ledger.most_bytes > most:
            wrong.append(f"{who}: ledger at {s.ledger.most_bytes} of {most} bytes")
        if s.seen != {s.memory}:
            wrong.append(f"{who}: asked for {s.memory} bytes, the container saw {sorted(s.seen)}")
        if s.smi_mib - {s.memory >> 20}:
            wrong.append(f"{who}: asked for {s.memory >> 20} MiB, nvidia-smi showed {sorted(s.smi_mib)} MiB")
        if s.gpu.peak_bytes > s.memory:
            wrong.append(f"{who}: the simulator held {s.gpu.peak_bytes} bytes for it, more than its {s.memory}")
        if s.gpu.peak_bytes < s.ledger.sum_bytes or not s.ledger.sum_bytes:
            wrong.append(f"{who}: admitted {s.ledger.sum_bytes} bytes, but the simulator held only {s.gpu.peak_bytes}")
        left = s.left_bytes()
        if not 0 <= left < REMAINDER_BYTES:
            wrong.append(f"{who}: {left} bytes of its memory could not be had")
        pct = s.measured_pct()
        if pct is None:
            wrong.append(f"{who}: its compute time could not be measured")
        elif abs(pct - s.cores) > COMPUTE_TOLERANCE_POINTS:
            wrong.append(f"{who}: asked for {s.cores} % of the compute, used {pct:.1f} %")
    return wrong


def pods_done(cluster):
    pods = cluster.objects("pods")
    phases = {p["metadata"]["name"]: p.get("status", {}).get("phase", "Pending") for p in pods}
    failed = [n for n, phase in phases.items() if phase == "Failed"]
    if failed:
        raise ClusterError(f"pod {failed[0]} failed:\n" + cluster.kubectl("logs", failed[0]))
    return all(phase == "Succeeded" for phase in phases.values())


def prepared(cluster):
    """The claims, once all of them are: on a busy machine the first may be over before the last has begun."""
    claims = [c for c in cluster.objects("resourceclaims")
              if "allocation" in c.get("status", {}) and
              (cluster.run_dir / "shares" / f"{c['metadata']['uid']}-0" / "usage").exists()]
    return claims if len(claims) == 5 else None


def describe_trouble(cluster):
    print(cluster.kubectl("get", "pods,resourceclaims", check=False).stdout)
    print(cluster.kubectl("get", "events", check=False).stdout)
    for name in ("aliquotd", "sandbox", "simgpud"):
        print(f"--- end of {name}.log\n{cluster.tail(name)}")


def try_extended_resource(cluster):
    """Once the GPUs are free: a pod that asks for nvidia.com/gpu and gets a whole one. Returns what is wrong."""
    say("kubectl apply -f demo/extended-resource.yaml (nvidia.com/gpu: 1, no claim)")
    print(cluster.kubectl("apply", "-f", REPO / "demo/extended-resource.yaml").rstrip())
    cluster.wait_for("pod-whole-0 to finish", lambda: pods_done(cluster))
    print(cluster.kubectl("logs", "pod-whole-0").rstrip())
    seen = {int(fields["cuda_total_bytes"]) for kind, fields in map(parse_line, cluster.kubectl("logs", "pod-whole-0").splitlines())
            if kind == "report"}
    whole = {parse_quantity(d["capacity"]["memory"]["value"]) for s in cluster.objects("resourceslices") for d in s["spec"]["devices"]}
    cluster.kubectl("delete", "-f", REPO / "demo/extended-resource.yaml")
    return [] if len(seen) == 1 and seen <= whole else [f"pod-whole-0 saw {sorted(seen)} bytes, a whole GPU has {sorted(whole)}"]


def run(cluster, keep):
    cluster.start()
    cluster.wait_for("two published GPUs", lambda: len(cluster.gpus_by_device()) == 2)
    say("GPUs published:")
    for device, (uuid, product) in sorted(cluster.gpus_by_device().items()):
        print(f"         {device}  {product}  {uuid}")
    ledgers, gpus = {}, {}
    samplers = [Sampler(lambda: look_at_oracle(cluster, gpus), 0.2),
                Sampler(lambda: look_at_ledgers(cluster, ledgers), 0.05)]
    say("kubectl apply -f demo/manifests")
    print(cluster.kubectl("apply", "-f", MANIFESTS).rstrip())
    shares = observe(cluster, cluster.wait_for("all claims prepared", lambda: prepared(cluster), timeout=90))
    say("claims allocated and prepared:")
    print(cluster.kubectl("get", "resourceclaims").rstrip())
    say("pods: report, bisect memory to the last byte, keep the GPUs busy")
    cluster.wait_for("the pods to finish", lambda: pods_done(cluster), timeout=150, interval=1)
    for sampler in samplers:
        sampler.stop()
    for share in shares:
        share.ledger = ledgers.get(f"{share.uid}-{share.index}", share.ledger)
        share.gpu = gpus.get((share.uuid, share.group), share.gpu)
    print(cluster.kubectl("get", "pods").rstrip())
    logs = read_logs(cluster, shares)
    say("kubectl logs pod-1")
    print(logs["pod-1"].rstrip())
    print()
    table(shares)
    print()
    wrong = judge(shares, samplers)
    if keep and not wrong:
        print(f"left running in {cluster.dir}; look around with\n"
              f"  export KUBECONFIG={cluster.dir}/kubeconfig SIMGPU_SOCKET={cluster.sim_socket}\n"
              "  kubectl get pods,resourceclaims,resourceslices\n"
              "  kubectl describe resourceclaim double-gpu-0\n"
              f"  {REPO}/build/sim/simctl oracle\n"
              f"logs: {cluster.dir}/*.log. Ctrl-C ends it and removes everything.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()
    say("kubectl delete -f demo/manifests")
    cluster.kubectl("delete", "-f", MANIFESTS / "20-pods.yaml")
    cluster.kubectl("delete", "-f", MANIFESTS / "10-claims.yaml")
    if cluster.server_version >= "1.36":
        wrong += try_extended_resource(cluster)
    try:
        cluster.wait_for("the node to be clean",
                         lambda: not cluster.leftovers() and not cluster.objects("resourceclaims"), timeout=40)
    except ClusterError:
        pass
    left = cluster.leftovers()
    left += [f"claim {c['metadata']['name']}" for c in cluster.objects("resourceclaims")]
    oracle_left = [f"GPU {d['uuid']}: {p['bytes']} bytes of process {p['pid']}"
                   for d in cluster.oracle()["devices"] for p in d["processes"]]
    wrong += [f"left behind: {x}" for x in left + oracle_left]
    say("nothing left: no CDI files, share directories, records, allocations" if not left + oracle_left
        else "something is left behind")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    parser.add_argument("--server-version", default="1.36", choices=["1.34", "1.36"])
    parser.add_argument("--runtime", default="auto", choices=["auto", "podman", "runc", "crun"])
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("the demo starts containers, which needs root here. Run:\n  sudo make demo")
        return 1
    cluster = Cluster(REPO / "demo/gpus.json", args.server_version, args.runtime, log=say)
    try:
        wrong = run(cluster, args.keep)
    except (ClusterError, KeyboardInterrupt) as e:
        wrong = [str(e) or "interrupted"]
        describe_trouble(cluster)
    finally:
        cluster.stop()
    for sentence in wrong:
        print(f"WRONG  {sentence}")
    print(f"demo: {'every share held' if not wrong else 'FAILED'} ({time.monotonic() - started:.0f} s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

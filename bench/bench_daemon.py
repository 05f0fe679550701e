#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""aliquotd's figures, against simulated GPUs, the sandbox's API server and a grpcio kubelet. Prepare's time is the daemon's own
(arrival of the call to its answer), less what the API server took; all directories are on tmpfs, so that no disk is
in it. Prints {name, unit, value_min, value_median, reference, ratio} as JSON."""

import json
import pathlib
import re
import select
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
from daemon_world import World, result, wait_for  # noqa: E402
from kubelet_peer import Peer  # noqa: E402
from monitor_world import scrape  # noqa: E402

CLAIMS = 1000
PARALLEL = 110
STARTS = 5
IDLE_S = 20
SCRAPES = 50
QUIET_S = 3  # before memory is read: a second after the last answer the daemon gives back what a burst took
MEMORY_READINGS = 21  # over two seconds, since each second the monitor takes and gives back half a MiB for its round


def smaps(pid):
    """Sums of /proc/<pid>/smaps_rollup in KiB, by name."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return {name: int(kib) for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", file.read(), re.M)}


def rss_kib(pid):
    """Resident memory of the daemon and its NVML child, a plain sum: pages that both map are counted twice."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return smaps(pid)["Rss"] + sum(smaps(child)["Rss"] for child in file.read().split())


def memory_kib(pid):
    """Least and median of some readings."""
    readings = []
    for _ in range(MEMORY_READINGS):
        readings.append(rss_kib(pid))
        time.sleep(0.1)
    return min(readings), statistics.median(readings)


def starts(world):
    """Milliseconds from exec to the answered call that ends a registration; leaves a daemon running."""
    out = []
    for i in range(STARTS):
        begin = time.monotonic()
        world.start(wait=False, log_level="info")
        while not pathlib.Path(world.registration_socket).exists():
            time.sleep(0.0005)
        peer = Peer(world.registration_socket)
        peer.get_info()
        peer.notify()
        out.append((time.monotonic() - begin) * 1000)
        peer.close()
        while "GPUs" not in world.said():
            time.sleep(0.01)
        if i + 1 < STARTS:
            world.stop()
    return out


def idle_requests_per_hour(world):
    """Of a daemon with all its claims: what it asks of the API server in IDLE_S, but for the watch."""
    world.http.request_log = []
    time.sleep(IDLE_S)
    asked = [r for r in world.http.request_log if "watch=true" not in r["path"]]
    return len(asked) * 3600 / IDLE_S


def scrapes():
    """CPU microseconds of the loop for /metrics with 8 GPUs of 32 shares each, the monitor running."""
    world = World(gpus=8)
    try:
        world.start(log_level="info")
        peer = Peer(world.dra_socket)
        for i in range(8 * 32):
            claim = world.claim(f"s-{i}", [result(device=f"hami-gpu-{i % 8}", cores="3", memory="2Gi")])
            error = peer.prepare(claim)[claim[2]].error
            if error:
                raise RuntimeError(error)
        peer.close()
        time.sleep(QUIET_S)
        out = []
        for _ in range(SCRAPES):
            before = cpu_ns(world.daemon.pid)
            text, _ = scrape(world)
            out.append((cpu_ns(world.daemon.pid) - before) / 1000)
        if text.count("aliquot_share_memory_limit_bytes{") != 8 * 32:
            raise RuntimeError("a share is not on the page")
        return out
    finally:
        world.close()


def cpu_ns(pid):
    """Of the first thread, which has the loop."""
    with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="utf-8") as file:
        return int(file.read().split()[0])


def claims(world, prefix, count):
    return [world.claim(f"{prefix}-{i}", [result(device=f"hami-gpu-{i % 2}", cores="0", memory="64Mi")])
            for i in range(count)]


def prepare(peer, claim):
    answer = peer.prepare(claim)[claim[2]]
    if answer.error:
        raise RuntimeError(answer.error)


class Asker:
    """Another process, so that this one's work is not in its time: asks GetInfo again and again until told to stop."""

    def __init__(self, socket):
        self.process = subprocess.Popen(["/usr/bin/python3", __file__, "--ask", socket], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def worst_ms(self):
        out, _ = self.process.communicate()
        return float(out)


def ask(socket):
    peer, worst = Peer(socket), 0.0
    peer.get_info()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        begin = time.monotonic()
        peer.get_info()
        worst = max(worst, (time.monotonic() - begin) * 1000)
    print(worst)
    peer.close()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def entry(name, unit, low, middle, reference):
    return {"name": name, "unit": unit, "value_min": round(low, 3), "value_median": round(middle, 3),
            "reference": reference, "ratio": round(middle / reference, 4) if reference else None}


def main():
    world = World()
    try:
        started = starts(world)
        peer = world.peer()
        batches, waits = [], []
        for round_ in range(3):
            group = claims(world, f"wave-{round_}", PARALLEL)
            asker = Asker(world.registration_socket)
            begin = time.monotonic()
            futures = [peer.prepare_later(c) for c in group]
            for future, claim in zip(futures, group):
                error = future.result().claims[claim[2]].error
                if error:
                    raise RuntimeError(error)
            batches.append((time.monotonic() - begin) * 1000)
            waits.append(asker.worst_ms())
            peer.unprepare(*group)
        mark = len(world.said())
        for claim in claims(world, "c", CLAIMS):
            prepare(peer, claim)
        wait_for("the claims' statuses", lambda: not world.unwritten(), 120)
        time.sleep(QUIET_S)
        memory = memory_kib(world.daemon.pid)
        lines = re.findall(r"prepared .*took_us=(\d+) api_us=(\d+)", world.said()[mark:])
        own = [int(took) - int(api) for took, api in lines]
        if len(own) != CLAIMS:
            raise RuntimeError(f"{len(own)} log lines of {CLAIMS}")
        idle = idle_requests_per_hour(world)
        peer.close()
        scraped = scrapes()
        print(json.dumps([
            entry("monitor.scrape_us", "us", min(scraped), statistics.median(scraped), 2000),
            entry("daemon.rss_kib", "KiB", *memory, 16384),
            entry("daemon.idle_requests_per_hour", "1/h", idle, idle, None),
            entry("daemon.start_to_registered_ms", "ms", min(started), statistics.median(started), 100),
            entry("daemon.prepare_us.p50", "us", min(own), percentile(own, 0.5), 1000),
            entry("daemon.prepare_us.p99", "us", min(own), percentile(own, 0.99), None),
            entry("daemon.get_info_ms.worst", "ms", min(waits), statistics.median(waits), 100),
            entry("daemon.prepare_110_ms", "ms", min(batches), statistics.median(batches), 2000),
        ], indent=1))
    finally:
        world.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2])
    else:
        main()

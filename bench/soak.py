#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make soak: aliquotd over many prepare/unprepare cycles, on simulated GPUs, with the sandbox's API server and a grpcio
kubelet, a new connection and a new claim object now and then. It shows the daemon's memory, descriptors, files, inodes and
bytes on disk after a warm-up and at ten points of the run, and fails when any of them has grown."""

import argparse
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench_daemon import QUIET_S, rss_kib  # noqa: E402
from daemon_world import World, result, wait_for  # noqa: E402

WARM_UP = 1000
PARALLEL = 8
CYCLES_PER_CONNECTION = 500
# What may come and go without a leak: of the heap (a byte lost a cycle is 98 KiB in 100,000), and connections to the API
# server that are kept for the next request.
GROWTH = {"rss_kib": 256, "descriptors": 6}
TOPS = ("state", "run", "cdi", "lib", "plugins", "registry")
COLUMNS = ("cycles", "rss_kib", "descriptors", "files", "inodes", "disk_kib", "us_per_cycle")


def on_disk(world):
    """(files, inodes, KiB) of all that the daemon writes."""
    files, inodes, blocks = 0, set(), 0
    for top in TOPS:
        for folder, folders, names in os.walk(world.path(top)):
            for name in folders + names:
                info = os.lstat(os.path.join(folder, name))
                inodes.add(info.st_ino)
                blocks += info.st_blocks
            files += len(names)
    return files, len(inodes), blocks // 2


def cycle(world, cycles):
    """Prepares and unprepares, PARALLEL claims at a time; each round's claims are deleted and made anew."""
    done = 0
    while done < cycles:
        peer = world.peer()
        for _ in range(CYCLES_PER_CONNECTION // PARALLEL):
            names = [f"soak-{i}" for i in range(PARALLEL)]
            batch = [world.claim(n, [result(device=f"hami-gpu-{i % 2}", cores="10", memory="1Gi")])
                     for i, n in enumerate(names)]
            for verb, later in (("prepare", peer.prepare_later), ("unprepare", peer.unprepare_later)):
                for claim, future in [(c, later(c)) for c in batch]:
                    error = future.result().claims[claim[2]].error
                    if error:
                        raise RuntimeError(f"{verb} of claim {claim[1]}: {error}")
            for claim in batch:
                world.delete_claim(claim)
            done += PARALLEL
            if done >= cycles:
                break
        peer.close()
    return done


def measure(world, cycles, seconds, since):
    time.sleep(QUIET_S)
    pid = world.daemon.pid
    files, inodes, kib = on_disk(world)
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return dict(zip(COLUMNS, (cycles, rss_kib(pid), descriptors, files, inodes, kib,
                              round(seconds * 1e6 / since) if since else 0)))


def show(row):
    print("  ".join(str(row[c]).rjust(len(c)) for c in COLUMNS), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100000)
    args = parser.parse_args()
    world = World()
    try:
        world.start(wait=False, log_level="warn")
        wait_for("the DRA socket", lambda: os.path.exists(world.dra_socket))
        cycle(world, WARM_UP)
        print("  ".join(COLUMNS))
        first = measure(world, 0, 0, 0)
        show(first)
        total = 0
        for point in range(1, 11):
            begin = time.monotonic()
            done = cycle(world, args.cycles * point // 10 - total)
            total += done
            last = measure(world, total, time.monotonic() - begin, done)
            show(last)
        grown = [f"{c}: {first[c]} -> {last[c]}" for c in COLUMNS[1:-1]
                 if last[c] > first[c] + GROWTH.get(c, 0)]
        if world.daemon.poll() is not None or world.said().strip():
            grown.append("the daemon complained: " + world.said()[-2000:])
        print(f"nothing grew over {total} cycles" if not grown else "grew: " + "; ".join(grown))
        return 1 if grown else 0
    finally:
        world.close()


if __name__ == "__main__":
    sys.exit(main())

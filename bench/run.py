#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: runs every benchmark of this folder, writes build/bench/results.json (a list of {name, unit, value_min,
value_median, reference, ratio}) and prints it beside the bounds that docs/benchmarks.md explains. A benchmark is a
program build/bench/bench_<part> or a script bench/bench_<part>.py; called with --json it prints its list on stdout.

Figures that make accuracy put there (gate.*) stay.

make bench-peer PEER_LIBVGPU=path (--peer): the benchmarks of the library alone, each with ours and with another preload
library that takes HAMi-core's environment, printed side by side; the peer's results go to build/bench/peer.json.

Exit status is non-zero when a benchmark fails to run; a figure over its bound is marked, not an error."""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

PEER_BENCHMARKS = ("bench_gate", "bench_hook", "bench_init")
PEER_LIMIT_S = 600
REPO = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
KEYS = {"name", "unit", "value_min", "value_median", "reference", "ratio"}
BOUNDS = {
    "sim.launch_ns": 150, "sim.alloc_ns": 1000, "sim.event_record_ns": 200, "sim.event_query_ns": 200,
    "hook.none.launch_ns": 5, "hook.limit.launch_ns": 60, "hook.driver_calls_per_launch": 0.05, "gate.wait_late_us.p50": 50,
    "hook.alloc_free_ns.10": 300, "hook.alloc_free_ns.1000000": 500, "hook.refuse_ns": 1000,
    "hook.worst_ns.1000000": 100000, "hook.view_ns": 50, "init.added_us.1": 1000, "init.added_us.64": 1000,
    "init.added_us.true": 150, "library.rss_kib": 1024,
    "daemon.rss_kib": 16384, "daemon.start_to_registered_ms": 100, "daemon.prepare_us.p50": 1000,
    "daemon.get_info_ms.worst": 100, "daemon.idle_requests_per_hour": 0, "image.unpacked_mib": 40,
}


def benchmarks(pattern):
    programs = sorted(p for p in (BUILD / "bench").glob("bench_*") if p.is_file() and os.access(p, os.X_OK))
    scripts = sorted((REPO / "bench").glob("bench_*.py"))
    for path in programs + scripts:
        if not pattern or pattern in path.name:
            yield path, (["/usr/bin/python3", str(path)] if path.suffix == ".py" else [str(path)]) + ["--json"]


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}, simulated GPUs"


def number(value):
    return "-" if value is None else f"{value:,.3f}".rstrip("0").rstrip(".")


def run(path, command, failed, peer=None):
    """The results of one benchmark; what went wrong is added to `failed`. What it has started ends with it."""
    who = f"{path.name} with {peer}" if peer else path.name
    print(f"running {who}", file=sys.stderr, flush=True)
    env = {k: v for k, v in os.environ.items() if k != "PEER_LIBVGPU"}
    env.update({"ALIQUOT_BUILD": str(BUILD)}, **({"PEER_LIBVGPU": peer} if peer else {}))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
    try:
        text = process.communicate(timeout=PEER_LIMIT_S if peer else None)[0]
        items = json.loads(text) if process.returncode == 0 else None
        if not items or any(set(item) != KEYS for item in items):
            raise ValueError("not a list of results")
        return items
    except subprocess.TimeoutExpired:
        failed.append(f"{who}: not done after {PEER_LIMIT_S} s")
    except ValueError as e:
        failed.append(f"{who}: status {process.returncode}, {e}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return []


def compare(peer, pattern):
    ours, theirs, failed = [], [], []
    for path, command in benchmarks(pattern):
        if path.name in PEER_BENCHMARKS:
            ours += run(path, command, failed)
            theirs += run(path, command, failed, peer)
    (BUILD / "bench").mkdir(exist_ok=True)
    (BUILD / "bench/results.json").write_text(json.dumps(ours, indent=1) + "\n")
    (BUILD / "bench/peer.json").write_text(json.dumps(theirs, indent=1) + "\n")
    print(f"machine: {machine()}\ncommand: make bench-peer PEER_LIBVGPU={peer}\n")
    by_name = {item["name"]: item for item in theirs}
    rows = [("NAME", "UNIT", "OURS MIN", "MEDIAN", "PEER MIN", "MEDIAN", "BARE")]
    for item in ours:
        other = by_name.get(item["name"], dict.fromkeys(KEYS))
        rows.append((item["name"], item["unit"], *(number(i[k]) for i in (item, other) for k in ("value_min", "value_median")),
                     number(item["reference"])))
    return ours, rows, failed


def plain(pattern):
    results, failed = [], []
    for path, command in benchmarks(pattern):
        results += run(path, command, failed)
    (BUILD / "bench").mkdir(exist_ok=True)
    path = BUILD / "bench/results.json"
    names = {item["name"] for item in results}
    kept = [item for item in json.loads(path.read_text()) if item["name"].startswith("gate.")] if path.exists() else []
    path.write_text(json.dumps(results + [item for item in kept if item["name"] not in names], indent=1) + "\n")
    print(f"machine: {machine()}\ncommand: make bench\n")
    rows = [("NAME", "UNIT", "MIN", "MEDIAN", "REFERENCE", "RATIO", "BOUND")]
    for item in results:
        bound = BOUNDS.get(item["name"])
        mark = "" if bound is None else number(bound) + ("" if item["value_min"] <= bound else "  over")
        rows.append((item["name"], item["unit"], *(number(item[k]) for k in ("value_min", "value_median", "reference", "ratio")), mark))
    return results, rows, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", metavar="TEXT", help="only benchmarks whose file name holds TEXT")
    parser.add_argument("--peer", metavar="LIBRARY", help="beside ours, another library of HAMi-core's kind")
    args = parser.parse_args()
    if args.peer is not None and not os.path.isfile(args.peer):
        parser.error(f"{args.peer or 'PEER_LIBVGPU is empty'}: no such library; make bench-peer PEER_LIBVGPU=/path/to/libvgpu.so")
    results, rows, failed = compare(os.path.realpath(args.peer), args.k) if args.peer else plain(args.k)
    widths = [max(len(r[i]) for r in rows) for i in range(7)]
    for r in rows:
        print("  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip())
    for sentence in failed:
        print(f"FAILED {sentence}")
    if not results and not failed:
        print("no benchmark was found; build first (make bench does)")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())

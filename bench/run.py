#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: runs every benchmark of this folder, writes build/bench/results.json (a list of {name, unit, value_min,
value_median, reference, ratio}) and prints it beside the bounds that docs/benchmarks.md explains. A benchmark is a
program build/bench/bench_<part> or a script bench/bench_<part>.py; called with --json it prints its list on stdout.
Exit status is non-zero when a benchmark fails to run; a figure over its bound is marked, not an error."""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
KEYS = {"name", "unit", "value_min", "value_median", "reference", "ratio"}
BOUNDS = {
    "sim.launch_ns": 150, "sim.alloc_ns": 1000, "sim.event_record_ns": 200, "sim.event_query_ns": 200,
    "hook.none.launch_ns": 5, "hook.limit.launch_ns": 60, "hook.driver_calls_per_launch": 0.05,
    "hook.alloc_free_ns.10": 300, "hook.alloc_free_ns.1000000": 500, "hook.refuse_ns": 1000,
    "hook.worst_ns.1000000": 100000, "hook.view_ns": 50, "init.added_us.1": 1000, "init.added_us.64": 1000,
    "init.added_us.true": 150, "library.rss_kib": 1024,
    "daemon.rss_kib": 16384, "daemon.start_to_registered_ms": 100, "daemon.prepare_us.p50": 1000,
    "daemon.get_info_ms.worst": 100,
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", metavar="TEXT", help="only benchmarks whose file name holds TEXT")
    args = parser.parse_args()
    results, failed = [], []
    for path, command in benchmarks(args.k):
        print(f"running {path.name}", file=sys.stderr, flush=True)
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, ALIQUOT_BUILD=str(BUILD)))
        try:
            items = json.loads(out.stdout) if out.returncode == 0 else None
            if not items or any(set(item) != KEYS for item in items):
                raise ValueError("not a list of results")
            results += items
        except ValueError as e:
            failed.append(f"{path.name}: status {out.returncode}, {e}")
    (BUILD / "bench").mkdir(exist_ok=True)
    (BUILD / "bench/results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"machine: {machine()}\ncommand: make bench\n")
    rows = [("NAME", "UNIT", "MIN", "MEDIAN", "REFERENCE", "RATIO", "BOUND")]
    for item in results:
        bound = BOUNDS.get(item["name"])
        mark = "" if bound is None else number(bound) + ("" if item["value_min"] <= bound else "  over")
        rows.append((item["name"], item["unit"], *(number(item[k]) for k in ("value_min", "value_median", "reference", "ratio")), mark))
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

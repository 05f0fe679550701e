#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make accuracy: runs every cell of the accuracy matrix (build/bench/accuracy, virtual time), a process per cell and
processor, puts the worst figures (gate.*) into build/bench/results.json and all of them into build/bench/accuracy.json, and
writes the table in docs/benchmarks.md and the plot docs/accuracy.svg, and a line for each of some other covers. Then twelve cells run in real processes and real time,
one by one, and with PEER_LIBVGPU=path a peer's library beside ours.

A figure over its bound is marked and the cell named; it is no error. Exit status is non-zero when a cell fails to run."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

import accuracy_real

REPO = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
PROGRAM = BUILD / "bench/accuracy"
PAGE = REPO / "docs/benchmarks.md"
PLOT = REPO / "docs/accuracy.svg"
BEGIN, END = "<!-- make accuracy writes from here -->", "<!-- to here -->"
REAL = "Twelve cells in real processes and real time"
CELL_LIMIT_S = 600
COVERS = (2, 3, 4)  # in the order of numbers, not chosen: nothing was tuned on them
# Name, unit, key of a cell, which cells, bound.
FIGURES = (
    ("gate.error_pct.alone", "points", "error_pct", lambda cell: cell["neighbours"] == "alone", 1),
    ("gate.error_pct.neighbours", "points", "error_pct", lambda cell: cell["neighbours"] != "alone", 2),
    ("gate.sd_1s_pct", "points", "sd_1s_pct", lambda cell: True, 2),
    ("gate.settle_ms", "ms", "settle_ms", lambda cell: True, 1000),
    ("gate.lost_pct", "%", "lost_pct", lambda cell: True, 1.5),
)


def judged(cell):
    """(key, bound) of what is judged in a cell."""
    return [(key, bound) for _, _, key, is_of, bound in FIGURES if is_of(cell) and cell[key] is not None]


def failures(cell):
    return [key for key, bound in judged(cell) if abs(cell[key]) > bound]


def names_of(cover):
    return subprocess.run([PROGRAM, "--cover", str(cover)], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def run_cell(cover, name):
    done = subprocess.run([PROGRAM, "--cover", str(cover), name], stdout=subprocess.PIPE, text=True, check=True, timeout=CELL_LIMIT_S)
    return json.loads(done.stdout)


def run_cells(cover, names):
    """In the order of names; what went wrong is said and left out."""
    cells, failed = [], []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, run in [(name, pool.submit(run_cell, cover, name)) for name in names]:
            try:
                cells.append(run.result())
            except (subprocess.SubprocessError, ValueError) as e:
                failed.append(f"{name}: {e}")
    return cells, failed


def worst(cells):
    """Of each figure: (name, unit, bound, worst value, its cell, cells judged, cells over the bound)."""
    for name, unit, key, is_of, bound in FIGURES:
        of = [cell for cell in cells if is_of(cell) and cell[key] is not None]
        if of:
            most = max(of, key=lambda cell, key=key: abs(cell[key]))
            yield name, unit, bound, abs(most[key]), most["name"], len(of), sum(abs(cell[key]) > bound for cell in of)


def write_results(cells):
    """The names of other benchmarks in results.json stay as they are."""
    path = BUILD / "bench/results.json"
    names = {figure[0] for figure in FIGURES}
    others = [item for item in json.loads(path.read_text()) if item["name"] not in names] if path.exists() else []
    ours = [{"name": name, "unit": unit, "value_min": value, "value_median": value, "reference": bound, "ratio": round(value / bound, 3)}
            for name, unit, bound, value, *_ in worst(cells)]
    path.write_text(json.dumps(others + ours, indent=1) + "\n")
    (BUILD / "bench/accuracy.json").write_text(json.dumps(cells, indent=1) + "\n")


def columns(rows, left):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip() for row in rows]


def figures_table(cells):
    rows = [("FIGURE", "UNIT", "WORST", "BOUND", "CELLS", "OVER", "WORST CELL")]
    rows += [(name, unit, f"{value:.2f}", f"{bound:g}", str(count), str(over), cell) for name, unit, bound, value, cell, count, over in worst(cells)]
    return columns(rows, (0, 1, 6))


def covers_table(covers):
    """{cover: cells}: of each figure, how many of how many cells are over the bound, and the worst value."""
    rows = [("COVER",) + tuple(figure[0].removeprefix("gate.") for figure in FIGURES)]
    for cover, cells in covers.items():
        by_name = {name: f"{over} of {count}, {value:.2f}" for name, _, _, value, _, count, over in worst(cells)}
        rows.append((str(cover),) + tuple(by_name.get(figure[0], "-") for figure in FIGURES))
    return columns(rows, ())


def shown(value):
    return "-" if value is None else f"{value:.2f}"


def cells_table(cells):
    rows = [("CELL", "TARGET", "MEAN", "ERROR", "SD 1 S", "SETTLED MS", "LOST %", "OVER ITS BOUND")]
    rows += [(cell["name"], shown(cell["target_pct"]), shown(cell["mean_pct"]), f"{cell['error_pct']:+.2f}", shown(cell["sd_1s_pct"]),
              "-" if cell["settle_ms"] is None else f"{cell['settle_ms']:.0f}", shown(cell["lost_pct"]),
              " ".join(key.rsplit("_", 1)[0] for key in failures(cell))) for cell in cells]
    return columns(rows, (0, 7))


def plot(cells):
    """Error of each cell, those alone first; bands are the bounds. Beyond 6 points a mark stands at the edge."""
    ordered = sorted(cells, key=lambda cell: (cell["neighbours"] != "alone", cell["limit_pct"]))
    left, top, height, step, most = 44, 26, 300, 11, 6.0
    width = step * len(ordered)
    alone = step * sum(cell["neighbours"] == "alone" for cell in ordered)

    def y(points):
        return top + height / 2 - max(-most, min(most, points)) * height / (2 * most)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 10}" height="{top + height + 40}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{left}" y="16">Error of the compute limit, points of wall time (bands: bounds; red: over)</text>']
    for x, wide, bound in ((left, alone, 1), (left + alone, width - alone, 2)):
        out.append(f'<rect x="{x}" y="{y(bound):.1f}" width="{wide}" height="{y(-bound) - y(bound):.1f}" fill="#dcebdc"/>')
    for points in range(-6, 7, 2):
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y(points):.1f}" y2="{y(points):.1f}" stroke="#bbb" stroke-width="0.5"/>'
                   f'<text x="{left - 6}" y="{y(points) + 4:.1f}" text-anchor="end">{points:+d}</text>')
    for i, cell in enumerate(ordered):
        colour = "#c0392b" if "error_pct" in failures(cell) else "#2c6e49"
        out.append(f'<circle cx="{left + step * i + step / 2:.1f}" cy="{y(cell["error_pct"]):.1f}" r="3.5" fill="{colour}">'
                   f'<title>{cell["name"]}: {cell["error_pct"]:+.2f}</title></circle>')
    for x, text in ((left, "alone, by limit"), (left + alone, "with neighbours, by limit")):
        out.append(f'<text x="{x + 4}" y="{top + height + 18}">{text}</text>')
    return "\n".join(out + ["</svg>", ""])


def write_page(cells, covers, seconds, real, peer):
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    text = ["", "", f"Command: `make accuracy`, {len(cells)} cells, {seconds:.0f} s on {os.cpu_count()} processors.", "", "![errors](accuracy.svg)", ""]
    text += ["    " + line for line in figures_table(cells)] + [""]
    text += ["    " + line for line in cells_table(cells)] + [""]
    text += ["Other covers of the same factors, on which nothing was tuned; how many cells are over the bound, and the worst of each figure.", ""]
    text += ["    " + line for line in covers_table(covers)] + [""]
    if real is None:
        text += [rest[rest.index(REAL):rest.index(END)].rstrip("\n")]
    else:
        text += [f"{REAL} on the simulated driver, limits from HAMi-core's environment and no daemon; peer: {'HAMi-core' if peer else 'none'}.", ""]
        text += ["    " + line for line in columns(real, (0,))]
    text += [""]
    PAGE.write_text(before + BEGIN + "\n".join(text) + END + after)
    PLOT.write_text(plot(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", metavar="TEXT", help="only cells whose name holds TEXT; nothing is written then")
    parser.add_argument("--cover", type=int, default=1, help="another cover of the same factors; nothing is written then")
    parser.add_argument("--seconds", type=float, default=10, help="of each cell in real time")
    parser.add_argument("--virtual", action="store_true", help="no cells in real time: their table stays as it is")
    args = parser.parse_args()
    peer = os.environ.get("PEER_LIBVGPU")
    if peer and not os.path.isfile(peer):
        parser.error(f"{peer}: no such library; PEER_LIBVGPU is the path of another preload library, or is not set")
    begin = time.monotonic()
    cells, failed = run_cells(args.cover, [name for name in names_of(args.cover) if not args.k or args.k in name])
    if cells:
        print("\n".join(cells_table(cells) + [""] + figures_table(cells)))
        if not args.k and not failed and args.cover == 1:
            seconds = time.monotonic() - begin
            covers = {}
            named = {cell["name"] for cell in cells}
            for cover in COVERS:
                covers[cover], wrong = run_cells(cover, [name for name in names_of(cover) if name not in named])
                failed += wrong
            print("\n".join([""] + covers_table(covers)))
            write_results(cells)
            real = None if args.virtual else list(accuracy_real.rows(BUILD, peer, args.seconds))
            if real:
                print("\n".join([""] + columns(real, (0,))))
            write_page(cells, covers, seconds, real, peer)
    for sentence in failed:
        print(f"FAILED {sentence}")
    if not cells and not failed:
        print(f"no cell's name holds {args.k}; {PROGRAM} --cover {args.cover} lists them")
    return 1 if failed or not cells else 0


if __name__ == "__main__":
    sys.exit(main())

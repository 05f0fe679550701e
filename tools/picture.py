#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/terminal.svg, the terminal of the README: on two simulated GPUs, aliquotd --standalone, three programs under `aliquot run`,
and what `aliquot top` shows of them in a terminal of 100 columns. Nothing in it is typed by hand. As root, after make, in ten seconds.
Usage: tools/picture.py >docs/terminal.svg"""

import os
import pathlib
import re
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests/integration"))
from monitor_world import compile_client  # noqa: E402
from standalone_world import TOOL, Machine  # noqa: E402
from terminal import Terminal  # noqa: E402

COLUMNS, ROWS = 100, 12
COLOURS = {"31": "#f07178", "32": "#a5d6a7", "33": "#ffcb6b", "2": "#7f8fa6"}
PROGRAMS = [("0", "8Gi", 60, 5.5), ("0", "24Gi", 25, 21), ("1", "4Gi", 30, 1.2)]  # GPU, limits, GiB in use
SECONDS = 12


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def spans(line):
    """(style, text) of a line with colours."""
    style = ""
    for part in re.split(r"(\033\[[\d;]*m)", line):
        if part.startswith("\033"):
            style = part[2:-1] if part != "\033[0m" else ""
        elif part:
            yield style, part


def svg(lines):
    width, height = COLUMNS * 8.43 + 32, len(lines) * 18 + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img">',
           "<title>aliquot top on two simulated GPUs; made by tools/picture.py</title>",
           f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1e2430"/>',
           '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#e6e9ef" xml:space="preserve">']
    for number, line in enumerate(lines):
        text = "".join(f'<tspan fill="{COLOURS[style]}">{escape(part)}</tspan>' if style in COLOURS else
                       f'<tspan font-weight="bold">{escape(part)}</tspan>' if style == "1" else escape(part) for style, part in spans(line))
        out.append(f'<text x="16" y="{number * 18 + 26}" textLength="{sum(len(p) for _, p in spans(line)) * 8.43:.1f}">{text}</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])


class Recorder(Terminal):
    """Keeps the last whole picture as it was written."""
    picture = ""

    def feed(self):
        for whole in re.findall(r"\033\[H(.*?)\033\[K\033\[J", self.raw, re.S):
            self.picture = whole
        super().feed()


def main():
    machine = Machine()
    programs = []
    try:
        machine.start(wait=False)
        while not machine.is_serving():
            time.sleep(0.05)
        compile_client(machine.root)
        for gpu, memory, cores, used in PROGRAMS:
            program = subprocess.Popen([TOOL, "run", "--gpu", gpu, "--memory", memory, "--cores", str(cores), "--quiet", "--", machine.path("client")],
                                       env=machine.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            programs.append(program)
            program.stdin.write(f"init\nctx 0\nalloc {int(used * (1 << 30))}\n" + "busy 20 2000\n" * 1000)
            program.stdin.flush()
        terminal = Recorder([TOOL, "top", "--socket", machine.admin], COLUMNS, ROWS)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            terminal.read()
        terminal.type("q")
        terminal.end()
        terminal.close()
    finally:
        for program in programs:
            program.kill()
            program.communicate()
        machine.close()
    lines = [re.sub(r"\033\[K", "", line) for line in terminal.picture.split("\r\n")]
    sys.stdout.write(svg(["$ aliquot top", *lines]))


if __name__ == "__main__":
    os.environ.setdefault("ALIQUOT_BUILD", str(REPO / "build"))
    main()

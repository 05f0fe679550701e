# SPDX-License-Identifier: Apache-2.0
"""Twelve cells of the accuracy matrix in real processes and real time, on the simulated driver: tests/integration/gate_client.c
under a preload library, ours or, from the same run, a peer's that takes HAMi-core's environment (PEER_LIBVGPU). Both are told
their limits by that environment, without a daemon. What is measured is the simulator's busy time of a share's processes."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
SKIPPED_S = 1.0
LEAST_LAUNCHES_S = 0.3  # of the end, while some may have ended

# Name, SMs, shares: (limit, or 0 without library; microseconds; kind; streams; blocks; processes). The first is judged.
CELLS = (
    ("10%-500us", 132, ((10, 500, "eager", 1, 528, 1),)),
    ("50%-500us", 132, ((50, 500, "eager", 1, 528, 1),)),
    ("90%-500us", 132, ((90, 500, "eager", 1, 528, 1),)),
    ("30%-50us", 132, ((30, 50, "eager", 1, 528, 1),)),
    ("30%-5ms", 132, ((30, 5000, "eager", 1, 528, 1),)),
    ("30%-50ms", 132, ((30, 50000, "eager", 1, 528, 1),)),
    ("50%-500us-graph", 132, ((50, 500, "graph", 1, 528, 1),)),
    ("50%-1ms-188sm-small", 188, ((50, 1000, "eager", 4, 47, 1),)),
    ("50%-1ms-40sm", 40, ((50, 1000, "eager", 1, 160, 1),)),
    ("30%-1ms-4-processes", 132, ((30, 1000, "eager", 1, 528, 4),)),
    ("30%-1ms-beside-60%", 132, ((30, 1000, "eager", 1, 528, 1), (60, 1000, "eager", 1, 528, 1))),
    ("30%-1ms-beside-unlimited", 132, ((30, 1000, "eager", 1, 528, 1), (0, 1000, "eager", 1, 528, 1))),
)


class Machine:
    """simgpud with one GPU of so many SMs, and a folder with the library and the stand-in driver."""

    def __init__(self, build, library, sms):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-a-", dir="/tmp"))
        self.build, self.started = build, []
        lib = self.dir / "lib"
        lib.mkdir()
        for source, name in ((library, "libvgpu.so"), (build / "sim/libsimcuda-550.so", "libcuda.so.1"),
                             (build / "sim/libsimnvml-550.so", "libnvidia-ml.so.1")):
            shutil.copyfile(source, lib / name)
            (lib / name).chmod(0o755)
        (self.dir / "devices.json").write_text(json.dumps({"devices": [
            {"name": "NVIDIA H100 80GB HBM3", "memory": "16Gi", "sms": sms, "uuid": "GPU-11111111-2222-3333-4444-555555555555", "minor": 0}]}))

    def __enter__(self):
        self.daemon = subprocess.Popen([self.build / "sim/simgpud", "--config", self.dir / "devices.json", "--run-dir", self.dir],
                                       stdout=subprocess.PIPE)
        self.daemon.stdout.readline()
        return self

    def __exit__(self, *_):
        for process in [*self.started, self.daemon]:
            process.kill()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, share, number, seconds):
        limit, us, kind, streams, blocks, _ = share
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SIMGPU_SOCKET": str(self.dir / "simgpud.sock"), "SIMGPU_GROUP": f"share-{number}",
               "LD_LIBRARY_PATH": str(self.dir / "lib")}
        if limit:
            env.update({"LD_PRELOAD": str(self.dir / "lib/libvgpu.so"), "CUDA_DEVICE_MEMORY_LIMIT": "4096m", "LIBCUDA_LOG_LEVEL": "0",
                        "CUDA_DEVICE_SM_LIMIT": str(limit), "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.dir / f"share-{number}.cache")})
        process = subprocess.Popen([self.build / "bench/gate_client", str(seconds), str(us), kind, str(streams), "4", str(blocks)], env=env,
                                   text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.started.append(process)
        if process.stdout.readline() != "ready\n":
            raise ValueError("a program did not start")
        return process

    def busy_ns(self, group):
        out = subprocess.run([self.build / "sim/simctl", "--socket", self.dir / "simgpud.sock", "oracle"], check=True, capture_output=True)
        oracle = json.loads(out.stdout)
        return oracle["time_ns"], sum(g["busy_ns"] for g in oracle["devices"][0]["groups"] if g["group"] == group)


def run_cell(build, library, cell, seconds):
    """The busy percent of the cell's first share after the first second."""
    _, sms, shares = cell
    with Machine(build, library, sms) as machine:
        for number, share in enumerate(shares):
            for _ in range(share[5]):
                machine.start(share, number, seconds + SKIPPED_S + LEAST_LAUNCHES_S)
        for process in machine.started:
            process.stdin.write("go\n")
            process.stdin.flush()
        time.sleep(SKIPPED_S)
        from_ns, before = machine.busy_ns("share-0")
        time.sleep(seconds)
        to_ns, after = machine.busy_ns("share-0")
        return 100.0 * (after - before) / (to_ns - from_ns)


def rows(build, peer, seconds):
    """The table: name, limit, ours, error, and the peer's."""
    yield ("CELL", "LIMIT", "OURS", "ERROR", "PEER", "ERROR")
    for cell in CELLS:
        limit = cell[2][0][0]
        row = [cell[0], str(limit)]
        for library in (build / "src/vgpu/libvgpu.so", peer):
            try:
                pct = run_cell(build, library, cell, seconds) if library else None
            except ValueError:
                pct = None
            row += ["-", "-"] if pct is None else [f"{pct:.2f}", f"{pct - limit:+.2f}"]
        yield tuple(row)

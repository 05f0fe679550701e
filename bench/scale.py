#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a cluster ask of the API server: NODES publishers (the daemon's own client and slice code, without the
rest of it), started at once against the sandbox's API server in this process. Counts their requests while they start,
while nothing happens, and when every connection of the server breaks. docs/scale.md says what follows for more nodes.

usage: bench/scale.py [NODES [SPREAD_S [QUIET_S]]]    (200, 5, 20)"""

import collections
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import test_publisher as parts  # noqa: E402

GPUS = 8
WAIT_S = 300


def shown(request):
    if "watch=true" in request["path"]:
        return "WATCH slices"
    what = "slices" if "resourceslices" in request["path"] else request["path"].split("/")[-2].rstrip("s") \
        if "/nodes/" in request["path"] else request["path"].strip("/")
    return f"{'LIST' if what == 'slices' and request['method'] == 'GET' else request['method']} {what}"


def settle(server, nodes, condition):
    end = time.monotonic() + WAIT_S
    while not condition(server):
        if time.monotonic() > end:
            raise SystemExit(f"not settled after {WAIT_S} s: {len(server.slices())} slices of {nodes}")
        time.sleep(0.1)


def report(what, nodes, log, seconds):
    kinds = collections.Counter(shown(r) for r in log)
    per_second = collections.Counter(int(r["time"]) for r in log)
    print(f"{what}: {seconds:.1f} s, {len(log)} requests, {len(log) / nodes:.2f} a node, "
          f"at most {max(per_second.values(), default=0)} in a second")
    for kind, count in sorted(kinds.items()):
        print(f"    {kind:16} {count / nodes:.2f} a node")


def main():
    nodes, spread, quiet = (int(a) for a in (*sys.argv[1:4], *("200", "5", "20")[len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory(prefix="alq-scale-") as directory:
        server = parts.Server(directory)
        for i in range(nodes):
            server.api.create(parts.logic.SYSTEM, parts.resources.resource("nodes"), "", {"metadata": {"name": f"n{i}"}})
        log = server.http.request_log = Stamped()
        all_ = [parts.Publisher(server.kubeconfig, node=f"n{i}", spread=spread) for i in range(nodes)]
        try:
            begin = time.time()
            for one in all_:
                one.say(f"gpus {GPUS} 550.163.1")
            settle(server, nodes, lambda s: len(s.slices()) == nodes and watches(log) >= nodes)
            report(f"{nodes} nodes start at once, spread over {spread} s", nodes, log, time.time() - begin)
            log.clear()
            time.sleep(quiet)
            report("nothing happens", nodes, log, quiet)
            log.clear()
            begin = time.time()
            port = server.http.server_address[1]
            server.stop()
            server.start(port)
            log = server.http.request_log = Stamped()
            settle(server, nodes, lambda _: watches(log) >= nodes)
            report("the server restarts", nodes, log, time.time() - begin)
            if len(server.slices()) != nodes:
                raise SystemExit("slices were lost")
        finally:
            for one in all_:
                one.process.kill()
                one.process.wait()
            server.stop()


class Stamped(list):
    """A request log with times."""

    def append(self, request):
        super().append({**request, "time": time.time()})


def watches(log):
    return sum("watch=true" in r["path"] for r in list(log))


if __name__ == "__main__":
    main()

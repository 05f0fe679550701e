# SPDX-License-Identifier: Apache-2.0
"""A program in a container of podman's, with devices of ours: run in a process with mounts of its own, where podman's harm nobody."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SANDBOX = pathlib.Path(__file__).resolve().parent.parent.parent / "sandbox"


def output(case, specs, devices, args, programs=(), env=(), binds=()):
    """What args print in a container with the devices that the CDI directory specs has. programs: copied into its root with what
    they load. Skips the case where podman cannot run."""
    if not shutil.which("podman"):
        case.skipTest("podman is not installed")
    directory = tempfile.mkdtemp(prefix="alqp-", dir="/tmp")  # podman wants it short
    case.addCleanup(shutil.rmtree, directory, True)
    what = {"directory": directory, "specs": specs, "programs": list(programs),
            "container": {"args": list(args), "env": list(env), "cdi": list(devices), "binds": list(binds)}}
    got = subprocess.run(["/usr/bin/python3", __file__], input=json.dumps(what), capture_output=True, text=True, timeout=120, check=False)
    if got.returncode == 77:
        case.skipTest(got.stdout.strip())
    case.assertEqual(got.returncode, 0, got.stdout + got.stderr)
    return got.stdout


def main():
    sys.path.insert(0, str(SANDBOX))
    import rootfs
    import runtime
    what = json.load(sys.stdin)
    runtime.enter_namespace()
    root = os.path.join(what["directory"], "root")
    rootfs.make(root, [(p, p) for p in what["programs"]])
    podman = runtime.Podman(os.path.join(what["directory"], "c"), root, what["specs"])
    why = podman.probe()
    if why:
        print("cannot:", why)
        return 77
    log = os.path.join(what["directory"], "log")
    try:
        container = podman.start("claim", {**what["container"], "log": log})
        status = container.wait(60)
        container.remove()
        print(pathlib.Path(log).read_text(encoding="utf-8"))
    except runtime.RuntimeFailure as error:
        print("failed:", error)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

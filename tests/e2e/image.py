# SPDX-License-Identifier: Apache-2.0
"""An image for the pods of the tests, made of the host's own small programs and the demo's, without a registry: an
archive as `docker save` writes it, which `ctr images import` and `podman load` read."""

import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "sandbox"))
import rootfs  # noqa: E402

NAME = "docker.io/library/aliquot-demo:e2e"


def _add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def make(path, programs):
    """Writes the archive; programs go to /usr/local/bin."""
    with tempfile.TemporaryDirectory() as work:
        root, layer = pathlib.Path(work) / "root", pathlib.Path(work) / "layer.tar"
        root.mkdir()
        rootfs.make(str(root), [(str(p), f"/usr/local/bin/{pathlib.Path(p).name}") for p in programs])
        with tarfile.open(layer, "w") as archive:
            archive.add(root, ".")
        digest = hashlib.sha256(layer.read_bytes()).hexdigest()
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
                             "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        with tarfile.open(path, "w") as archive:
            archive.add(layer, f"{digest}/layer.tar")
            _add(archive, config_name, config)
            _add(archive, "manifest.json",
                 json.dumps([{"Config": config_name, "RepoTags": [NAME], "Layers": [f"{digest}/layer.tar"]}]).encode())


def load(command, path):
    """Imports the archive with a command that reads it from standard input; what it said when it failed, else None."""
    with open(path, "rb") as archive:
        done = subprocess.run(command, shell=True, stdin=archive, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or done.stdout.strip()


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2:])

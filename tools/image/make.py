#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make image: <out>/aliquot.tar, an OCI archive of aliquotd and what it needs, and its bill of materials beside it. The same
commit, build options and Debian packages give the same bytes."""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import oci  # noqa: E402
import sbom  # noqa: E402
from root import PREFIX, Entry, Problem, assemble, run  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[2]
LIMIT_MIB = 40
LAST_SECOND = 0o77777777777  # of a tar header
# [host[:port]/]path, in lower case, as docker, podman and containerd have it.
NAME = r"([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*"
SOURCE = "https://aliquot.dev"


def git(*args):
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(REPO), *args], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def revision():
    """The commit, marked when the tree is not it. $REVISION says it where there is no repository (the Dockerfile)."""
    if os.environ.get("REVISION"):
        return os.environ["REVISION"]
    commit = git("rev-parse", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")


def epoch():
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text and not (re.fullmatch("[0-9]{1,11}", text) and int(text) <= LAST_SECOND):
        raise Problem(f"SOURCE_DATE_EPOCH: {text} is no number of seconds from 0 to {LAST_SECOND}")
    text = text or git("log", "-1", "--format=%ct")
    if not text:
        raise Problem("the time of the image is that of the commit, and this is no git repository; set SOURCE_DATE_EPOCH (seconds)")
    return int(text)


def facts(build, seconds):
    project = json.loads((build / "meson-info/intro-projectinfo.json").read_text())
    return {"version": project["version"], "revision": revision(), "source": os.environ.get("IMAGE_SOURCE") or SOURCE,
            "licenses": "Apache-2.0", "distribution": "debian",
            "created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


def config(known):
    labels = {f"org.opencontainers.image.{key}": known[key] for key in ("version", "revision", "source", "licenses", "created")}
    labels["org.opencontainers.image.title"] = "aliquot"
    labels["org.opencontainers.image.description"] = "Shares of NVIDIA GPUs for containers: aliquotd, libvgpu.so, aliquot-hook, aliquot"
    libexec = f"/{PREFIX}/libexec/aliquot"
    return {"Entrypoint": [f"/{PREFIX}/sbin/aliquotd"], "WorkingDir": "/", "Labels": labels,
            "Env": [f"PATH=/{PREFIX}/sbin:/{PREFIX}/bin", f"ALIQUOT_LIBRARY={libexec}/libvgpu.so", f"ALIQUOT_HOOK={libexec}/aliquot-hook"]}


def unpacked_bytes(root):
    """As a file system of 4 KiB blocks has it."""
    return sum(-(-len(entry.data) // 4096) * 4096 if entry.data is not None else 4096 for entry in root.values())


def write_root(root, folder):
    """The root as files, owned by who runs this: for a Dockerfile's COPY and for tests."""
    folder.mkdir(parents=True)
    for name, entry in root.items():
        path = folder / name
        if entry.link is not None:
            path.symlink_to(entry.link)
        elif entry.data is None:
            path.mkdir()
            path.chmod(entry.mode)
        else:
            path.write_bytes(entry.data)
            path.chmod(entry.mode)


def write(path, data):
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(data)
    beside.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the archive (default: <build>/image)")
    parser.add_argument("--name", default="docker.io/library/aliquot", help="the image's name, without a tag")
    parser.add_argument("--root", type=pathlib.Path, help="write the root as a folder, which must not exist, and no archive")
    args = parser.parse_args()
    try:
        if not re.fullmatch(NAME, args.name):
            raise Problem(f"{args.name!r} is no name of an image, without a tag (IMAGE_NAME)")
        seconds = epoch()
        root, packages = assemble(args.build)
        known = facts(args.build, seconds)
        bill = sbom.make(root, packages, known)
        root[sbom.PLACE] = Entry(0o644, data=bill)
        root = dict(sorted(root.items()))
        mib = unpacked_bytes(root) / (1 << 20)
        if mib > LIMIT_MIB:
            raise Problem(f"the root has {mib:.1f} MiB, more than {LIMIT_MIB}")
        if args.root:
            write_root(root, args.root)
            return 0
        out = args.out or args.build / "image"
        out.mkdir(parents=True, exist_ok=True)
        name = f"{args.name}:{known['version']}"
        data = oci.archive(root, name, config(known), run("dpkg", "--print-architecture").strip(), known["created"], seconds)
        write(out / "aliquot.spdx.json", bill)
        write(out / "aliquot.tar", data)
    except (Problem, OSError) as e:
        print(f"image: {e}", file=sys.stderr)
        return 1
    print(f"image: {out / 'aliquot.tar'}: {name}, {mib:.1f} MiB unpacked, {len(data) / (1 << 20):.1f} MiB, {len(packages)} Debian packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())

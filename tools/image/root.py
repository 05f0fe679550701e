# SPDX-License-Identifier: Apache-2.0
"""What is in the image: our programs, stripped; the shared libraries that they, and NVIDIA's NVML in the reader, need, as the
Debian packages installed here have them, with those packages' copyright files; and a handful of small files. No shell, no
package manager, no C library's data. Reads what is installed; needs no root rights and writes nothing."""

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile

PREFIX = "usr"
PROGRAMS = {  # below the build directory: where in the image
    "src/daemon/aliquotd": f"{PREFIX}/sbin/aliquotd",
    "src/daemon/aliquotd-nvml": f"{PREFIX}/libexec/aliquot/aliquotd-nvml",
    "src/vgpu/libvgpu.so": f"{PREFIX}/libexec/aliquot/libvgpu.so",
    "src/hook/aliquot-hook": f"{PREFIX}/libexec/aliquot/aliquot-hook",
    "src/cli/aliquot": f"{PREFIX}/bin/aliquot",
}
# libnvidia-ml.so.1 comes from the host's driver and is of glibc 2.17: these are parts of the C library there. A thread that
# ends by pthread_exit has the C library load libgcc_s.
FOR_NVML = ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")
FILES = {
    "etc/passwd": "root:x:0:0:root:/:/nonexistent\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",  # KUBERNETES_SERVICE_HOST may be a name
    "etc/os-release": "ID=aliquot\nNAME=Aliquot\nID_LIKE=debian\n",
}
LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "var/run": "../run"}
FOLDERS = ("dev", "proc", "run", "sys", "tmp", "var/lib")  # to mount on
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Problem(Exception):
    """The image cannot be made; the text says what to do."""


@dataclasses.dataclass
class Entry:
    """A file (data), a symbolic link (link) or a folder (neither)."""
    mode: int = 0o755
    data: bytes = None
    link: str = None


@dataclasses.dataclass(frozen=True)
class Package:
    """A Debian package that some of the files are of."""
    name: str
    version: str
    architecture: str
    source: str
    source_version: str


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=CLEAN, check=False)
    if done.returncode:
        raise Problem(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def libraries(programs):
    """Paths, by the loader's own word, of all that the programs need and of FOR_NVML."""
    found = {}
    for program in programs:
        done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, env=CLEAN, check=False)
        text = done.stdout + done.stderr
        if "not found" in text or (done.returncode and "not a dynamic executable" not in text):
            raise Problem(f"ldd {program}: {text.strip()}")
        for name, path in re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", done.stdout, re.M):
            found[name or path] = path
    beside = pathlib.Path(found["libc.so.6"]).parent
    for name in FOR_NVML:
        if not (beside / name).exists():
            raise Problem(f"{beside / name} is missing; install libc6 and libgcc-s1")
        found.setdefault(name, str(beside / name))
    return sorted(set(found.values()))


def owners(paths):
    """Names of the packages that the files are of. The package database knows files by the names that packages give them,
    which before the merge of /usr were without it. One question for all: each reads the whole database."""
    names = {path: {path, path.removeprefix("/usr"), f"/usr{path}"} for path in paths}
    done = subprocess.run(["dpkg-query", "-S", *sorted(set().union(*names.values()))], capture_output=True, text=True, env=CLEAN,
                          check=False)
    known = {path: package for package, path in (line.split(": ", 1) for line in done.stdout.splitlines())}
    packages = set()
    for path, candidates in names.items():
        owner = next((known[name] for name in sorted(candidates) if name in known), None)
        if not owner:
            raise Problem(f"{path} is of no Debian package; the image is made of packages alone")
        packages.add(owner.split(",")[0])
    return packages


def describe(packages):
    """Package objects, sorted by name."""
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"
    lines = run("dpkg-query", "-W", "-f", form, *sorted(packages)).splitlines()
    return sorted((Package(*line.split("\t")) for line in lines), key=lambda p: p.name)


def stripped(path):
    with tempfile.NamedTemporaryFile() as out:
        # The build id is a sum over the debugging information too, and so over where the sources lie.
        run("strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id", "-o", out.name, path)
        return pathlib.Path(out.name).read_bytes()


def add_library(root, path):
    """The file where it really lies, and the name that it is asked for by."""
    real = pathlib.Path(path).resolve()
    asked = pathlib.Path(path).parent.resolve() / pathlib.Path(path).name
    root[str(real)[1:]] = Entry(0o755 if real.name.startswith("ld-") else 0o644, data=real.read_bytes())
    if asked != real:
        root[str(asked)[1:]] = Entry(0o777, link=os.path.relpath(real, asked.parent))


def with_folders(root):
    for name in list(root):
        for parent in pathlib.PurePath(name).parents[:-1]:
            root.setdefault(str(parent), Entry())
    return dict(sorted(root.items()))


def assemble(build):
    """(root, packages): root maps paths without a leading slash to entries, folders before what is in them."""
    build = pathlib.Path(build)
    missing = [name for name in PROGRAMS if not (build / name).exists()]
    if missing:
        raise Problem(f"{build / missing[0]} is not built; run make first")
    root = {name: Entry(0o1777 if name == "tmp" else 0o755) for name in FOLDERS}
    root |= {name: Entry(0o777, link=target) for name, target in LINKS.items()}
    root |= {name: Entry(0o644, data=text.encode()) for name, text in FILES.items()}
    for source, target in PROGRAMS.items():
        root[target] = Entry(0o644 if target.endswith(".so") else 0o755, data=stripped(build / source))
    found = libraries(build / name for name in PROGRAMS)
    for path in found:
        add_library(root, path)
    packages = describe(owners(sorted({str(pathlib.Path(p).resolve()) for p in found})))
    for package in packages:
        text = pathlib.Path("/usr/share/doc") / package.name / "copyright"
        if not text.exists():
            raise Problem(f"{text} is missing; reinstall {package.name} without leaving out its documents")
        root[str(text)[1:]] = Entry(0o644, data=text.read_bytes())
    root["usr/share/doc/aliquot/copyright"] = Entry(0o644, data=(pathlib.Path(__file__).resolve().parents[2] / "LICENSE").read_bytes())
    return with_folders(root), packages

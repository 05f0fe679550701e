# SPDX-License-Identifier: Apache-2.0
"""Fetches the real programs of this folder's tests below build/clients, from the machine's own Debian mirror with contrib and
non-free added. apt gets a configuration, lists and a cache of its own there; nothing is installed and the machine's sources
stay as they are. A package that cannot be had is told, and the tests that need it are skipped with that reason."""

import os
import pathlib
import re
import shutil
import subprocess
import time

SOURCES = pathlib.Path("/etc/apt")
PACKAGES = """
nvidia-smi libcuda1
python3-pycuda python3-pytools python3-appdirs python3-platformdirs python3-decorator python3-mako python3-markupsafe python3-six
python3-typing-extensions libboost-python1.74.0 libcurand10 libboost-thread1.74.0
python3-numba python3-llvmlite libllvm14 python3-numpy python3-pkg-resources python3-setuptools
libblas3 liblapack3 libgfortran5 libquadmath0 libtbb12 libtbbbind-2-5 libtbbmalloc2 libhwloc15
libedit2 libbsd0 libmd0 libffi8 libtinfo6 libxml2 libicu72 libgomp1 libz3-4
""".split()
BUDGET_S = 240  # for all of apt; what has not come by then is missing


def debian_stanzas():
    """The machine's Debian sources in deb822 form, with contrib and non-free among the components."""
    stanzas = []
    for path in sorted((SOURCES / "sources.list.d").glob("*.sources")):
        stanzas += re.split(r"\n\s*\n", path.read_text(encoding="utf-8"))
    lists = sorted((SOURCES / "sources.list.d").glob("*.list")) + [SOURCES / "sources.list"]
    for path in (p for p in lists if p.is_file()):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+(.+)$", line)
            if match:
                options = [o.split("=", 1) for o in (match.group(1) or "").split() if "=" in o]
                signed = "".join(f"Signed-By: {value}\n" for key, value in options if key == "signed-by")
                stanzas.append(f"Types: deb\nURIs: {match.group(2)}\nSuites: {match.group(3)}\nComponents: {match.group(4)}\n{signed}")
    kept = []
    for text in stanzas:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        fields = {key.strip(): value.strip() for key, value in (line.split(":", 1) for line in lines if ":" in line)}
        if "deb" in fields.get("Types", "").split() and "main" in fields.get("Components", "").split():
            fields.update(Types="deb", Components="main contrib non-free")
            kept.append("".join(f"{key}: {value}\n" for key, value in fields.items()))
    return kept


class Apt:
    """apt-get on directories of its own."""

    def __init__(self, home):
        self.home = home
        self.end = time.monotonic() + BUDGET_S
        for name in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial", "debs"):
            (home / name).mkdir(parents=True, exist_ok=True)
        (home / "etc/debian.sources").write_text("\n".join(debian_stanzas()), encoding="utf-8")
        shutil.copyfile("/var/lib/dpkg/status", home / "state/status")
        self.options = []
        for key, value in (("Dir::Etc", home / "etc"), ("Dir::Etc::sourcelist", home / "etc/debian.sources"), ("Dir::Etc::sourceparts", "-"),
                           ("Dir::Etc::trustedparts", "/etc/apt/trusted.gpg.d"), ("Dir::State", home / "state"),
                           ("Dir::State::status", home / "state/status"), ("Dir::Cache", home / "cache"), ("Acquire::Retries", 2),
                           ("Acquire::http::Timeout", 20), ("APT::Update::Error-Mode", "any"), ("Acquire::Languages", "none"), ("APT::Sandbox::User", "root")):
            self.options += ["-o", f"{key}={value}"]

    def run(self, *args):
        """None when all went well, else the last line of what apt-get said."""
        try:
            got = subprocess.run(["apt-get", "-q", *self.options, *args], cwd=self.home / "debs", capture_output=True, text=True,
                                 timeout=max(0.1, self.end - time.monotonic()), env=dict(os.environ, LC_ALL="C"))
        except subprocess.TimeoutExpired:
            return f"apt-get {args[0]} took longer than the {BUDGET_S} s there are for all of it"
        except OSError as e:
            return f"apt-get: {e}"
        said = (got.stderr or got.stdout).strip().splitlines()
        return None if got.returncode == 0 else said[-1] if said else f"apt-get {args[0]}: exit status {got.returncode}"


def fetch(home):
    """Unpacks the packages into home/root. Returns that folder and {package: why it is missing}."""
    home = pathlib.Path(home).resolve()
    root = home / "root"
    stamp = home / "stamp"
    wanted = " ".join(PACKAGES)
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        home.mkdir(parents=True, exist_ok=True)
        apt = Apt(home)
        why = apt.run("update")
        if why:
            return root, {name: why for name in PACKAGES}
        missing = {}
        apt.run("download", *PACKAGES)  # all or, when one is unknown, none
        for name in PACKAGES:
            if any((home / "debs").glob(f"{name}_*.deb")):
                continue
            why = apt.run("download", name)
            if why:
                missing[name] = why
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        for deb in sorted((home / "debs").glob("*.deb")):
            subprocess.run(["dpkg", "-x", deb, root], check=True)
        if missing:
            return root, missing
        stamp.write_text(wanted, encoding="utf-8")
    return root, {}

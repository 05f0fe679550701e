# SPDX-License-Identifier: Apache-2.0
"""Container roots of several distributions' layouts, made from the files of Debian packages that are installed here: no
network, no root of another's making. What differs between distributions and matters to a driver that is mounted in is
where libraries lie, what the loader searches by itself, whether there is a cache, a shell, a glibc."""

import os
import pathlib
import re
import shutil
import subprocess

TRIPLET = "x86_64-linux-gnu"
LIBC = ["libc6"]
SHELL = ["libc6", "libc-bin", "dash", "coreutils", "libselinux1", "libpcre2-8-0", "libacl1", "libattr1", "libgmp10", "libgcc-s1"]
# In place of the image's ldconfig: on the host's side it must never run.
LDCONFIG = "#!/bin/sh\necho ran >/ldconfig-ran\n"


class ImageError(RuntimeError):
    """A root cannot be made here; str() says why."""


def _files(package):
    done = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"package {package} is not installed")
    for line in done.stdout.splitlines():
        if re.match(r"/(bin|sbin|lib\w*|usr/(bin|sbin|lib\w*)|etc/ld.*)/", line) or line.startswith("/etc/ld"):
            yield line


def _copy(packages, root, where):
    """Files and links of the packages; where(path) gives the place in the root."""
    for package in packages:
        for path in _files(package):
            if not os.path.lexists(path) or (os.path.isdir(path) and not os.path.islink(path)):
                continue
            target = root / where(path).lstrip("/")
            if os.path.lexists(target):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def _merge(root, names=("bin", "sbin", "lib", "lib64")):
    for name in names:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        os.symlink(f"usr/{name}", root / name)


def _merged(path):
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", path)


def _cache(root, *directories):
    subprocess.run(["/sbin/ldconfig", "-r", root, *directories], check=True, stderr=subprocess.DEVNULL)


def debian(root):
    """/lib and /usr/lib apart, as before Debian 12."""
    _copy(SHELL, root, lambda path: path)
    _cache(root)


def ubuntu(root):
    """/usr merged, and ldconfig a script around ldconfig.real."""
    _merge(root)
    _copy(SHELL, root, _merged)
    os.rename(root / "usr/sbin/ldconfig", root / "usr/sbin/ldconfig.real")
    _cache(root)


def ubi(root):
    """All libraries in /usr/lib64, no multi-arch directory, and a loader that does not know of one (its built-in paths
    are written over): what is not in the cache is not found."""
    _merge(root)
    _copy(SHELL, root, lambda path: re.sub(rf"^/usr/lib/{TRIPLET}/", "/usr/lib64/", _merged(path)))
    for path in (root / "etc/ld.so.conf.d").iterdir():
        path.unlink()
    (root / "etc/ld.so.conf").write_text("include ld.so.conf.d/*.conf\n")
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    data = loader.read_bytes()
    if loader.is_symlink() or f"/lib/{TRIPLET}/".encode() not in data:
        raise ImageError(f"{loader}: not a loader with the paths of Debian's")
    loader.write_bytes(data.replace(f"/lib/{TRIPLET}/".encode(), f"/nil/{TRIPLET}/".encode()))
    _cache(root, "/usr/lib64")


def alpine(root):
    """musl, and one program of musl's."""
    if not shutil.which("musl-gcc"):
        raise ImageError("musl-gcc is not installed (package musl-tools)")
    _copy(["musl"], root, lambda path: path)
    loader = root / "lib/ld-musl-x86_64.so.1"
    if not os.path.lexists(loader):
        os.symlink("x86_64-linux-musl/libc.so", loader)
    source = root / "alive.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("alive") < 0; }\n')
    (root / "bin").mkdir(exist_ok=True)
    subprocess.run(["musl-gcc", "-o", root / "bin/alive", source], check=True)
    source.unlink()


def distroless(root):
    """The C library and nothing else: no shell, no ldconfig, no cache."""
    _copy(LIBC, root, lambda path: path)


LAYOUTS = {layout.__name__: layout for layout in (debian, ubuntu, ubi, alpine, distroless)}


def make(name, directory):
    """The root `name` below directory, made unless it is there. Raises ImageError."""
    root = pathlib.Path(directory, name)
    if (root / "etc/hostname").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("etc", "proc", "sys", "dev", "run", "tmp", "var"):
        (root / folder).mkdir(parents=True)
    LAYOUTS[name](root)
    for path in ("sbin/ldconfig", "usr/sbin/ldconfig"):
        if (root / path).exists():
            (root / path).write_text(LDCONFIG)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
    (root / "etc/hostname").write_text(name + "\n")  # last: the root is whole
    return root

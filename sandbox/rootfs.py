# SPDX-License-Identifier: Apache-2.0
"""A small root file system for the sandbox's containers, copied from the host's own programs and libraries.

Owns the directory it is given. make() needs no network and no root rights; a later call adds what is missing. What
the host lacks is left out (sh and the dynamic loader excepted).
"""

import os
import re
import shutil
import subprocess

# "sh" comes first: without it nothing works.
PROGRAMS = ["sh", "bash", "dash", "cat", "ls", "sleep", "env", "mount", "umount", "echo", "printf", "true", "false",
            "test", "[", "mkdir", "rm", "rmdir", "cp", "mv", "ln", "touch", "chmod", "chown", "stat", "head", "tail",
            "wc", "cut", "sort", "uniq", "tr", "seq", "date", "id", "uname", "hostname", "dd", "df", "readlink",
            "dirname", "basename", "timeout", "tee", "kill", "ps", "grep", "sed", "find", "mktemp", "od", "sync",
            "ldd", "getconf"]
# Loaded by name at run time, so that ldd does not show them.
LIBRARIES = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
             "libnss_files.so.2"]
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/resolv.conf": "",
    "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
}


class RootfsError(RuntimeError):
    pass


def _usr_merged(path):
    """/bin, /sbin, /lib and /lib64 are links into /usr in the root."""
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", os.path.normpath(path))


def dependencies(*paths):
    """The shared libraries and the loader of ELF files, as ldd names them in a clean environment."""
    done = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"})
    return sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)))


def _copy(source, root, target=None):
    """Copies a file under the name `source` (the link is followed); returns False if it was there."""
    destination = root + _usr_merged(target or source)
    if os.path.exists(destination):
        return False
    os.makedirs(os.path.dirname(destination), exist_ok=True)
    temporary = f"{destination}.{os.getpid()}"
    shutil.copyfile(os.path.realpath(source), temporary)
    os.chmod(temporary, 0o755)
    os.rename(temporary, destination)
    return True


def add(root, source, target=None):
    """Adds one file with the libraries it needs."""
    if not os.path.exists(source):
        raise RootfsError(f"{source}: no such file")
    _copy(source, root, target)
    for library in dependencies(source):
        _copy(library, root)


def make(root, extra=()):
    """Builds the root in `root`. extra: (host path, path in the container) pairs. Raises RootfsError."""
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/local/bin", "etc/ld.so.conf.d", "proc", "sys",
                 "dev", "run", "var", "tmp", "root", "opt", "mnt"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    for name, to in (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"),
                     ("var/run", "../run")):
        link = os.path.join(root, name)
        if not os.path.islink(link):
            os.symlink(to, link)
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    search = os.pathsep.join(["/usr/bin", "/bin", "/usr/sbin", "/sbin"])
    found = {}
    for program in PROGRAMS:
        path = shutil.which(program, path=search)
        if path:
            found[program] = path
    if "sh" not in found:
        raise RootfsError("the host has no sh to copy")
    paths = list(found.values())
    for program, path in found.items():
        _copy(path, root, f"/usr/bin/{program}")
    # One ldd for all programs takes a tenth of the time of one each.
    wanted = set()
    for path in paths:
        with open(os.path.realpath(path), "rb") as file:
            if file.read(4) == b"\x7fELF":
                wanted.add(os.path.realpath(path))
    libraries = dependencies(*sorted(wanted))
    if not libraries:
        raise RootfsError("ldd names no libraries of sh")
    for library in libraries:
        _copy(library, root)
    for folder in {os.path.dirname(p) for p in libraries}:
        for name in LIBRARIES:
            if os.path.exists(os.path.join(folder, name)):
                _copy(os.path.join(folder, name), root)
    for name, text in _FILES.items():
        path = os.path.join(root, name)
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for source, target in extra:
        add(root, source, target)


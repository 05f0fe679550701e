# SPDX-License-Identifier: Apache-2.0
"""Runs containers with runc, crun or podman on a local root file system.

Owns everything below its directory: a writable view of the root for each container, OCI bundles, the runtimes' state.
runc and crun get the CDI devices through cdi.py, podman through its own CDI code. The process must be in a mount
namespace of its own (enter_namespace) so that views vanish with it. Containers may be started from any thread.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time

import cdi

_CAPABILITIES = ["CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
                 "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
                 "CAP_SETUID", "CAP_SYS_CHROOT"]
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CLONE_NEWNS, _MS_REC, _MS_SLAVE, _MS_BIND, _MNT_DETACH = 0x20000, 0x4000, 0x80000, 0x1000, 2
_libc = ctypes.CDLL(None, use_errno=True)


class RuntimeFailure(RuntimeError):
    """A container or the runtime itself could not start; str() is what the runtime said."""


def _mount(source, target, kind, flags, data=None):
    encoded = [None if v is None else os.fsencode(v) for v in (source, target, kind, data)]
    if _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target}: {os.strerror(code)}")


def _unmount(target):
    _libc.umount2(os.fsencode(target), _MNT_DETACH)


def enter_namespace():
    """Moves the process into a mount namespace of its own that still sees the host's later mounts. Main thread only."""
    if _libc.unshare(_CLONE_NEWNS):
        code = ctypes.get_errno()
        raise OSError(code, f"unshare: {os.strerror(code)}")
    _mount("none", "/", None, _MS_REC | _MS_SLAVE)


class Container:
    """One started container. wait() gives the exit code of its first process."""

    def __init__(self, runtime, name, directory, process):
        self.runtime, self.name, self.directory, self.process = runtime, name, directory, process

    def poll(self):
        code = self.process.poll()
        return None if code is None else (code if code >= 0 else 128 - code)

    def wait(self, timeout=None):
        """The exit code, or None if it still runs after timeout seconds."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        return self.poll()

    def kill(self, number):
        self.runtime.kill(self.name, number)

    def remove(self):
        self.runtime.remove(self)


class _Runtime:
    """What all runtimes share: views of the root and the calls of a command line program."""

    program = ""

    def __init__(self, directory, rootfs, cdi_dir):
        self.directory, self.rootfs, self.cdi_dir = directory, rootfs, cdi_dir
        self.state = os.path.join(directory, self.program)
        self.bundles = os.path.join(directory, "containers")
        self.overlay = None
        for path in (self.state, self.bundles):
            os.makedirs(path, exist_ok=True)

    def view(self, directory):
        """A writable root in directory/rootfs: an overlay where the kernel allows one there, else a copy."""
        target = os.path.join(directory, "rootfs")
        os.makedirs(target)
        if self.overlay is not False:
            for name in ("upper", "work"):
                os.makedirs(os.path.join(directory, name))
            data = f"lowerdir={self.rootfs},upperdir={directory}/upper,workdir={directory}/work"
            try:
                _mount("overlay", target, "overlay", 0, data)
                self.overlay = True
                return target
            except OSError:
                self.overlay = False
        os.rmdir(target)
        shutil.copytree(self.rootfs, target, symlinks=True)
        return target

    def _discard(self, directory):
        _unmount(os.path.join(directory, "rootfs"))
        shutil.rmtree(directory, ignore_errors=True)

    def _call(self, *args, timeout=30):
        return subprocess.run(self._command(*args), capture_output=True, text=True, check=False, timeout=timeout,
                              stdin=subprocess.DEVNULL)

    def _command(self, *args):
        raise NotImplementedError

    def probe(self):
        """None if a container runs here, else why not."""
        if shutil.which(self.program) is None:
            return f"{self.program} is not installed"
        name = f"alq-probe-{os.getpid()}"
        log = os.path.join(self.directory, f"probe-{self.program}.log")
        container = None
        try:
            container = self.start(name, {"args": ["/bin/sh", "-c", "exit 7"], "env": [], "log": log})
            code = container.wait(30)
            if code == 7:
                return None
            with open(log, encoding="utf-8", errors="replace") as file:
                return f"{self.program}: a trial container ended with {code}: {file.read().strip()[-400:]}"
        except (RuntimeFailure, OSError, subprocess.TimeoutExpired) as error:
            return f"{self.program}: {error}"
        finally:
            if container:
                container.remove()

    def _spawn(self, directory, command, log):
        with open(log, "ab") as file:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=directory,
                                    start_new_session=True)


class OciRuntime(_Runtime):
    """runc, and what is called like it."""

    program = "runc"

    def _command(self, *args):
        return [self.program, "--root", self.state, *args]

    def config(self, name, spec, root):
        """The OCI configuration of a container before CDI."""
        namespaces = [{"type": t} for t in ("pid", "mount", "ipc", "uts")]
        if not spec.get("host_network"):
            namespaces.append({"type": "network"})
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
             "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
            {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
             "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        ]
        if spec.get("host_network"):
            mounts[-1] = {"destination": "/sys", "type": "bind", "source": "/sys",
                          "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]}
        for source, target, options in spec.get("binds", []):
            mounts.append({"destination": target, "source": source, "options": ["rbind", "rprivate", *options]})
        capabilities = list(_CAPABILITIES) + (["CAP_SYS_ADMIN"] if spec.get("privileged") else [])
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False, "user": {"uid": spec.get("uid", 0), "gid": spec.get("gid", 0)},
                "args": spec["args"], "cwd": spec.get("cwd") or "/", "env": list(spec["env"]),
                "capabilities": {k: capabilities for k in ("bounding", "effective", "permitted")},
                "noNewPrivileges": False},
            "root": {"path": root, "readonly": bool(spec.get("read_only"))},
            "hostname": spec.get("hostname", name)[:63],
            "mounts": mounts,
            "linux": {
                "namespaces": namespaces,
                "cgroupsPath": f"/aliquot-sandbox/{name}",
                "resources": {"devices": [{"allow": False, "access": "rwm"}]},
                "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug",
                                "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]},
        }

    def start(self, name, spec):
        """spec: args, env (list), log, and optionally binds [(host, container, options)], cdi, cwd, hostname."""
        directory = os.path.join(self.bundles, name)
        self._discard(directory)
        os.makedirs(directory)
        try:
            config = self.config(name, spec, self.view(directory))
            if not any(e.startswith("PATH=") for e in config["process"]["env"]):
                config["process"]["env"].insert(0, _PATH)
            if spec.get("cdi"):
                cdi.Registry([self.cdi_dir]).inject(config, spec["cdi"])
            with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file, indent=1)
            return self._run(name, directory, spec)
        except (cdi.CdiError, RuntimeFailure):
            self._discard(directory)
            raise

    def _run(self, name, directory, spec):
        pid_file, messages = os.path.join(directory, "pid"), os.path.join(directory, "runtime.log")
        command = [self.program, "--root", self.state, "--log", messages, "--log-format", "json", "run",
                   "--bundle", directory, "--pid-file", pid_file, name]
        process = self._spawn(directory, self._wrap(command), spec["log"])
        end = time.monotonic() + 60
        while not os.path.exists(pid_file):
            if process.poll() is not None and not os.path.exists(pid_file):
                raise RuntimeFailure(self._message(messages, spec["log"]) or f"{self.program} ended with "
                                                                             f"{process.returncode}")
            if time.monotonic() > end:
                process.kill()
                raise RuntimeFailure(f"{self.program} did not start the container within 60 s")
            time.sleep(0.01)
        return Container(self, name, directory, process)

    @staticmethod
    def _wrap(command):
        return command

    @staticmethod
    def _message(path, log):
        try:
            with open(path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file if line.strip()]
            errors = [line["msg"] for line in lines if line.get("level") in ("error", "fatal")]
            if errors:
                return errors[-1]
        except (OSError, ValueError, KeyError):
            pass
        with open(log, encoding="utf-8", errors="replace") as file:
            return file.read().strip()[-400:]

    def kill(self, name, number):
        self._call("kill", name, str(int(number)))

    def remove(self, container):
        self._call("delete", "--force", container.name)
        try:
            container.process.wait(10)
        except subprocess.TimeoutExpired:
            container.process.kill()
        self._discard(container.directory)

    def sweep(self):
        """Removes what a killed sandbox left behind."""
        for name in os.listdir(self.state):
            self._call("delete", "--force", name)
        for name in os.listdir(self.bundles):
            self._discard(os.path.join(self.bundles, name))


class Crun(OciRuntime):
    """crun 1.8 refuses the hybrid hierarchy, so that it is run where the unified mount is not seen."""

    program = "crun"

    @staticmethod
    def _wrap(command):
        if not os.path.ismount("/sys/fs/cgroup/unified"):
            return command
        return ["unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified && exec "$@"', "sh", *command]

    def _call(self, *args, timeout=30):
        return subprocess.run(self._wrap(self._command(*args)), capture_output=True, text=True, check=False,
                              timeout=timeout, stdin=subprocess.DEVNULL)


class Podman(_Runtime):
    """podman with its own CDI code, which reads fixed directories: DIR/cdi is mounted over one of them."""

    program = "podman"

    def __init__(self, directory, rootfs, cdi_dir):
        super().__init__(directory, rootfs, cdi_dir)
        # podman prefers crun, which refuses the hybrid hierarchy.
        self.oci = ["--runtime", "runc"] if shutil.which("runc") else []

    def _command(self, *args):
        return ["podman", "--root", f"{self.state}/root", "--runroot", f"{self.state}/run", "--tmpdir",
                f"{self.state}/tmp", "--cgroup-manager=cgroupfs", "--events-backend=none", "--log-level=error", *self.oci, *args]

    def probe(self):
        if shutil.which("podman") is None:
            return "podman is not installed"
        try:
            target = next((d for d in ("/var/run/cdi", "/etc/cdi") if os.path.isdir(d)), None)
            if target is None:
                # It stays, empty: to remove it would take the mounts of other sandboxes with it.
                target = "/var/run/cdi"
                os.makedirs(target, exist_ok=True)
            _mount(self.cdi_dir, target, None, _MS_BIND)
        except OSError as error:
            return f"podman: {error}"
        return super().probe()

    def start(self, name, spec):
        directory = os.path.join(self.bundles, name)
        self._discard(directory)
        os.makedirs(directory)
        pid_file = os.path.join(directory, "pid")
        # A process without CAP_SYS_RESOURCE cannot raise the limits to podman's own defaults.
        options = ["run", "--name", name, "--network=" + ("host" if spec.get("host_network") else "none"),
                   "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--pidfile", pid_file,
                   "--hostname", spec.get("hostname", name)[:63], "--log-driver=none", "--security-opt",
                   "seccomp=unconfined", "--pids-limit=-1"]
        if spec.get("cwd"):
            options += ["--workdir", spec["cwd"]]
        if spec.get("uid") or spec.get("gid"):
            options += ["--user", f"{spec.get('uid', 0)}:{spec.get('gid', 0)}"]
        for entry in spec["env"]:
            options += ["--env", entry]
        for source, target, flags in spec.get("binds", []):
            options += ["--volume", f"{source}:{target}:" + ",".join(["rbind", "rprivate", *flags])]
        for device in spec.get("cdi", []):
            options += ["--device", device]
        command = self._command(*options, "--rootfs", self.view(directory), *spec["args"])
        process = self._spawn(directory, command, spec["log"])
        end = time.monotonic() + 60
        while not os.path.exists(pid_file):
            if process.poll() is not None and not os.path.exists(pid_file):
                with open(spec["log"], encoding="utf-8", errors="replace") as file:
                    text = file.read().strip()[-1000:]
                self._call("rm", "--force", "--time=0", name)
                self._discard(directory)
                raise RuntimeFailure(text or f"podman ended with {process.returncode}")
            if time.monotonic() > end:
                process.kill()
                self._discard(directory)
                raise RuntimeFailure("podman did not start the container within 60 s")
            time.sleep(0.01)
        return Container(self, name, directory, process)

    def kill(self, name, number):
        self._call("kill", "--signal", signal.Signals(number).name, name)

    def remove(self, container):
        self._call("rm", "--force", "--time=0", container.name, timeout=60)
        try:
            container.process.wait(10)
        except subprocess.TimeoutExpired:
            container.process.kill()
        self._discard(container.directory)

    def sweep(self):
        self._call("rm", "--force", "--all", "--time=0", timeout=60)
        for name in os.listdir(self.bundles):
            self._discard(os.path.join(self.bundles, name))


# In the order in which "auto" tries them.
CLASSES = {"runc": OciRuntime, "crun": Crun, "podman": Podman}


def choose(wanted, directory, rootfs, cdi_dir):
    """The first runtime that runs a trial container. Raises RuntimeFailure with every reason."""
    reasons = []
    for name in (CLASSES if wanted == "auto" else [wanted]):
        runtime = CLASSES[name](directory, rootfs, cdi_dir)
        if shutil.which(name):
            runtime.sweep()
        why = runtime.probe()
        if why is None:
            return runtime
        reasons.append(why)
    raise RuntimeFailure("; ".join(reasons))

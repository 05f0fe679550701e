# SPDX-License-Identifier: Apache-2.0
"""A node whose daemon runs under alq-faultcall: it can be killed before any of its system calls, or have one fail. And
what all of these tests compare: the directories as they are, against those of a run that nothing disturbed."""

import hashlib
import json
import os
import pathlib
import queue
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import grpc  # noqa: E402
from daemon_world import BUILD, DRIVER, World, result, rewrite_record, wait_for  # noqa: E402

FAULTCALL = BUILD / "tests/faults/alq-faultcall"
TOPS = ("state", "run", "cdi", "lib", "plugins", "registry")
DEADLINE_S = 30


class Supervised:
    """alq-faultcall with the daemon below it. What it says, and the answers of calls, come through one queue."""

    def __init__(self, options, command, environment, log):
        self.process = subprocess.Popen([FAULTCALL, *options, "--", *command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=log, env=environment, text=True, bufsize=1)
        self.events = queue.Queue()
        self.status = None
        self.ended = threading.Event()
        self.pid = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.expect("pid")

    def _read(self):
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "pid":
                self.pid = int(rest)
            if word == "exit":
                self.status = int(rest)
                self.ended.set()
            self.events.put((word, rest))
        self.ended.set()
        self.events.put(("end", ""))

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def expect(self, *words):
        """The next event of one of these names; others are dropped."""
        while True:
            event = self.events.get(timeout=DEADLINE_S)
            if event[0] in words:
                return event
            if event[0] == "end":
                raise AssertionError(f"the supervisor ended while {words} was waited for")

    def poll(self):
        return self.status

    def wait(self, timeout=DEADLINE_S):
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.process.args, timeout)
        return self.status

    def send_signal(self, number):
        if self.status is None and self.pid:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def close(self):
        self.kill()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)
        self.process.stdout.close()


class FaultWorld(World):
    """World, with `start` under supervision, snapshots and templates of its directories."""

    def __init__(self, **more):
        self.supervisors = []
        super().__init__(**more)

    def launch(self, do=None, options=(), **more):
        """Starts the daemon; waits for nothing."""
        command = self.command(**dict({"library": BUILD / "src/vgpu/libvgpu.so"}, **more))
        extra = ["--under", self.root, *options] + (["--do", do] if do else [])
        with open(self.log, "ab") as log:
            self.log_start = log.tell()
            self.daemon = Supervised(extra, command, self.environment(), log)
        self.supervisors.append(self.daemon)
        return self.daemon

    def start(self, wait=True, prefix=(), do=None, options=(), **more):
        self.launch(do, options, **more)
        if wait:
            self.settle()
        return self.daemon

    def is_up(self):
        return "ready" in self.said() and " GPUs" in self.said() and os.path.exists(self.registration_socket)

    def settle(self):
        wait_for("the daemon to serve", lambda: self.is_up() or self.daemon.poll() is not None, DEADLINE_S)
        if self.daemon.poll() is not None:
            raise AssertionError(f"aliquotd ended with {self.daemon.poll()}: {self.said()[-2000:]}")

    def end(self, number=signal.SIGKILL):
        """Stops the daemon, and its supervisor once the NVML child is gone too."""
        if not self.daemon:
            return None
        self.daemon.send_signal(number)
        status = self.daemon.wait()
        self.daemon.close()
        self.supervisors.remove(self.daemon)
        self.daemon = None
        return status

    def renumber(self):
        """The GPUs change their minor numbers, as they may at a reboot."""
        def swap(devices):
            for i, device in enumerate(reversed(devices)):
                device["minor"] = i
            return devices
        self.change_gpus(swap)

    def keep_gpus(self, count):
        """The others have fallen off the bus."""
        self.change_gpus(lambda devices: devices[:count])

    def change_gpus(self, change):
        with open(self.gpu_config, encoding="utf-8") as file:
            config = json.load(file)
        config["devices"] = change(config["devices"])
        with open(self.gpu_config, "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.gpud.kill()
        self.gpud.wait()
        self.gpud.stdout.close()
        shutil.rmtree(self.driver_root)
        self.install_driver()

    def close(self):
        for supervisor in self.supervisors:
            supervisor.close()
        self.daemon = None
        super().close()

    # ---- directories

    def snapshot(self, tops=TOPS):
        """Every entry below the daemon's directories: type, mode and bytes. What differs between two runs that did the
        same is left out: the process id in a lock."""
        out = {}
        for top in tops:
            for directory, names, files in os.walk(self.path(top)):
                for name in names + files:
                    path = os.path.join(directory, name)
                    try:
                        out[os.path.relpath(path, self.root)] = self._entry(path, name)
                    except FileNotFoundError:
                        pass  # renamed or removed meanwhile: the next look will tell
        return out

    @staticmethod
    def _entry(path, name):
        st = os.lstat(path)
        if not stat.S_ISREG(st.st_mode) or name.endswith("lock"):
            return stat.filemode(st.st_mode), ""
        with open(path, "rb") as file:
            return stat.filemode(st.st_mode), hashlib.sha1(file.read()).hexdigest()

    def await_snapshot(self, what, wanted, tops=TOPS, timeout=15):
        """Waits until the directories are like one of those wanted; which."""
        end = time.monotonic() + timeout
        while True:
            now = self.snapshot(tops)
            if now in wanted:
                return wanted.index(now)
            if time.monotonic() > end:
                raise AssertionError(what + ": " + " | or ".join(difference(w, now) for w in wanted))
            time.sleep(0.003)

    def save(self, name):
        for top in TOPS:
            shutil.copytree(self.path(top), self.path("saved", name, top), symlinks=True,
                            ignore=lambda d, names: [n for n in names if n.endswith(".sock")])

    def restore(self, name):
        """The directories as they were saved; None: empty ones."""
        for top in TOPS:
            shutil.rmtree(self.path(top), ignore_errors=True)
            if name is None:
                os.mkdir(self.path(top))
            else:
                shutil.copytree(self.path("saved", name, top), self.path(top), symlinks=True)


def difference(wanted, now):
    """Two snapshots, told apart in a line."""
    lines = [f"missing {k}" for k in wanted if k not in now]
    lines += [f"too much {k}" for k in now if k not in wanted]
    lines += [f"changed {k} {wanted[k]} -> {now[k]}" for k in wanted if k in now and now[k] != wanted[k]]
    return ", ".join(sorted(lines)[:12]) or "same"


def call(peer, verb, claim, timeout=20):
    """(error, device ids) of one call for one claim; a call that fails altogether is an error too."""
    try:
        answer = getattr(peer, verb)(claim, timeout=timeout)[claim[2]]
    except grpc.RpcError as error:
        return f"call failed: {error.code()} {error.details()}", []
    devices = getattr(answer, "devices", [])
    return answer.error, [(list(d.request_names), d.pool_name, d.device_name, list(d.cdi_device_ids), d.share_id)
                          for d in devices]


__all__ = ["DRIVER", "FAULTCALL", "FaultWorld", "Supervised", "TOPS", "call", "difference", "result", "rewrite_record",
           "wait_for"]

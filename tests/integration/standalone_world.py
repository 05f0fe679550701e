# SPDX-License-Identifier: Apache-2.0
"""One machine without a cluster: simulated GPUs, aliquotd --standalone, the tool, and users of the machine."""

import atexit
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import tempfile

from daemon_world import BUILD, World, wait_for
from test_ops import ask


def installed():
    """The programs that users start, where every user may and the loader takes the library's path: the tree may be root's
    alone and have blanks in its name."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="alq-tool-", dir="/tmp"))
    atexit.register(shutil.rmtree, top)
    top.chmod(0o755)
    for name in ("src/cli/aliquot", "src/vgpu/libvgpu.so", *(str(p.relative_to(BUILD)) for p in (BUILD / "demo").glob("alq-demo-*"))):
        if (BUILD / name).is_file():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(BUILD / name, top / name)
    return top


PROGRAMS = installed()
TOOL = PROGRAMS / "src/cli/aliquot"
LIBRARY = PROGRAMS / "src/vgpu/libvgpu.so"
DEMO = PROGRAMS / "demo"
ALICE, BOB = 47021, 47022


class Machine(World):
    def __init__(self, gpus=2):
        super().__init__(gpus=gpus)
        for path in (self.root, self.path("sim"), self.path("run")):
            os.chmod(path, 0o755)

    def start_api(self, version):
        """There is none."""

    @property
    def admin(self):
        return self.path("run", "aliquotd.sock")

    def command(self, **more):
        flags = {"standalone": "true", "cdi-dir": self.path("cdi"), "state-dir": self.path("state"), "run-dir": self.path("run"),
                 "driver-root": self.driver_root, "host-lib-dir": self.path("lib"), "metrics-address": "none", "log-level": "debug"}
        flags.update({k.replace("_", "-"): v for k, v in more.items()})
        return [str(self.program), *(f"--{k}={v}" for k, v in flags.items() if v is not None)]

    def is_serving(self):
        if self.daemon.poll() is not None:
            raise AssertionError("aliquotd ended: " + self.said())
        return os.path.exists(self.admin) and "ready" in self.said()

    def environment(self, **more):
        return {**os.environ, "SIMGPU_SOCKET": self.path("sim", "simgpud.sock"), "ALIQUOT_SOCKET": self.admin,
                "LD_LIBRARY_PATH": self.path("driver/usr/lib/x86_64-linux-gnu"), **more}

    @staticmethod
    def by(user, command):
        return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", *map(str, command)] if user else [*map(str, command)]

    def tool(self, *args, user=None, stdin="", **more):
        """(exit status, stdout, stderr) of aliquot."""
        done = subprocess.run(self.by(user, [TOOL, *args]), capture_output=True, text=True, input=stdin, timeout=60, check=False,
                              env=self.environment(**more))
        return done.returncode, done.stdout, done.stderr

    def run_program(self, *program, memory="4Gi", cores=30, gpu="0", options=(), **more):
        wish = (["--gpu", gpu] if gpu else []) + (["--memory", memory] if memory else []) + (["--cores", cores] if cores is not None else [])
        return self.tool("run", *wish, *options, "--", *program, **more)

    def start_program(self, *program, memory="4Gi", cores=30, user=None, **more):
        """aliquot run in the background, with pipes; its share is there when this returns."""
        process = subprocess.Popen(self.by(user, [TOOL, "run", "--gpu", "0", "--memory", memory, "--cores", cores, "--", *program]),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment(),
                                   **more)
        wait_for("the share of the run", lambda: process.poll() is not None or self.run_of(process))
        return process

    def claims(self):
        status, body = ask(self.admin, "/v1/standalone/claims")
        if status != 200:
            raise AssertionError(f"{status} {body}")
        return json.loads(body)["claims"]

    def run_of(self, process):
        return next((c for c in self.claims() if c.get("process") == process.pid and c["prepared"]), None)


class Terminal:
    """A session with a terminal, a shell's part in it, and the program as the shell's foreground job. "<stopped>" and
    "<ended N>" on the screen say what the shell was told of the job; a line that is typed then brings it back."""

    def __init__(self, command, env):
        self.shell, self.master = pty.fork()
        if not self.shell:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            job = os.fork()
            if not job:
                os.setpgid(0, 0)
                os.tcsetpgrp(0, os.getpgrp())
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
                os.execve(command[0], [*map(str, command)], env)
            self.wait(job)
        self.text = ""

    @staticmethod
    def wait(job):
        while True:
            _, status = os.waitpid(job, os.WUNTRACED)
            os.tcsetpgrp(0, os.getpgrp())
            if not os.WIFSTOPPED(status):
                os.write(1, b"<ended %d>" % os.waitstatus_to_exitcode(status))
                os._exit(0)
            os.write(1, b"<stopped>")
            os.read(0, 100)
            os.tcsetpgrp(0, job)
            os.kill(-job, signal.SIGCONT)

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, word):
        while word not in self.text:
            ready, _, _ = select.select([self.master], [], [], 30)
            if not ready:
                raise AssertionError(f"waited for {word!r}: {self.text!r}")
            self.text += os.read(self.master, 4096).decode(errors="replace")
        self.text = self.text.split(word, 1)[1]

    def close(self):
        os.close(self.master)
        os.waitpid(self.shell, 0)

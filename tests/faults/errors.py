#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one system call of aliquotd fail, each in turn, in one of its phases: a full disk, a read-only one, a broken
one, no descriptor left. Each time the daemon must live, the claim must be prepared or refused with the reason, nobody
else may notice, and once the fault is gone the same call must give what it gives undisturbed.

usage: errors.py SCENARIO:ERRNO[:all] [--shard I/N] [--every K] [--offset O]

With "all" every call that can fail so does, from the chosen one to the end of the phase. A line for each point,
"ok N call detail" or "FAILED N call detail: why", then "points N failed M"."""

import argparse
import os
import signal
import sys

import crash
from faults_world import wait_for

ERRORS = {"ENOSPC": "No space left on device", "EROFS": "Read-only file system", "EIO": "Input/output error",
          "EMFILE": "Too many open files"}


class Fault:
    """Mixed into a scenario of crash.py."""

    error = how = ""

    def command(self, n):
        return f"fail {n} {self.error} {self.how}"

    def failed(self):
        """The first call that failed, None when none did."""
        found = [rest for word, rest in list(self.world.daemon.events.queue) if word == "failed"]
        self.world.daemon.events.queue.clear()
        return found[0] if found else None

    def check_reason(self, text):
        if ERRORS[self.error] not in text:
            raise AssertionError(f"the reason is not said: {text[-1500:]}")

    def others(self):
        return {k: v for k, v in self.world.snapshot(("state", "run", "cdi")).items() if crash.BYSTANDER in k}


class CallFault(Fault):
    def point(self, n):
        self.before()
        daemon = self.world.daemon
        before = self.others()
        daemon.do(self.command(n))
        answer = crash.call(self.peer, self.verb, self.victim)
        daemon.do("off")
        found = self.await_off()
        self.answer = answer
        if daemon.poll() is not None:
            raise AssertionError(f"aliquotd ended: {self.world.said()[-1500:]}")
        if self.others() != before:
            raise AssertionError("the bystander's files have changed")
        if found is None:
            if answer[0]:
                raise AssertionError(f"failed without a fault: {answer[0]}")
            if self.verb == "prepare":
                self.must("unprepare", self.victim)
        return found

    def await_off(self):
        daemon = self.world.daemon
        found = None
        while True:
            word, rest = daemon.expect("failed", "off")
            if word == "off":
                return found
            found = rest

    def check(self):
        error, devices = self.answer
        if error and not error.startswith("call failed"):
            self.check_reason(error)
        if not error and self.verb == "prepare" and devices != self.devices:
            raise AssertionError(f"prepare gave {devices}")
        if not error:
            self.world.await_snapshot("after success", [self.whole if self.verb == "prepare" else self.without])
        elif self.verb == "prepare" and not self.how:
            self.world.await_snapshot("after the refusal", [self.without])
        if self.how:  # what could not even be removed goes at the next start
            self.end()
            self.start()
        if self.verb == "unprepare":
            self.must("unprepare", self.victim)
            self.world.await_snapshot("after the retry", [self.without])
        self.must("prepare", self.victim, self.devices)
        self.world.await_snapshot("after prepare", [self.whole])
        self.check_promise(True)
        self.must("unprepare", self.victim)
        self.world.await_snapshot("after unprepare", [self.without])
        self.check_promise(False)


class StartFault(Fault):
    def point(self, n):
        self.world.restore("begin")
        self.start(do=self.command(n), is_waited_for=False)
        daemon = self.world.daemon
        try:
            wait_for("start or end", lambda: daemon.poll() is not None or self.world.is_up() or self.has_no_gpus(), 30)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.failed()}; {self.world.said()[-1500:]}") from None
        status = daemon.poll()
        found = self.failed()
        said = self.world.said()
        self.end(signal.SIGKILL if status is None and int(self.shard) % 2 else signal.SIGTERM)
        if found is None and status is not None:
            raise AssertionError(f"ended with {status} without a fault: {said[-1500:]}")
        if status not in (None, 1, 127):  # 127: the dynamic linker's
            raise AssertionError(f"ended with {status}: {said[-1500:]}")
        if status:
            self.check_reason(said)
        bad = self.world.path("state/devices.json.bad")
        if os.path.exists(bad):  # it could not be read: kept for people, and made again from the records
            os.unlink(bad)
        return found

    def has_no_gpus(self):
        return "ready" in self.world.said() and "no GPUs are published" in self.world.said()


def scenario(name, shard):
    phase, _, error = name.partition(":")
    error, _, how = error.partition(":")
    base = crash.SCENARIOS[phase]
    mixin = StartFault if issubclass(base, crash.Start) else CallFault
    kind = type("Faulty" + base.__name__, (mixin, base), {"error": error, "how": how, "shard": shard})
    return kind()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    args = parser.parse_args()
    shard, _, shards = args.shard.partition("/")
    return crash.run(scenario(args.scenario, shard), int(shard), int(shards), args.every, args.offset)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kills aliquotd before each of its system calls that can change anything, in one of its phases, and each time has it
start again and looks at everything: what lies in its directories, what is promised, what the kubelet's next calls
give. State changes at system calls only (and at stores to `control`, which are one atomic index), so a kill before
each of these is a kill between any two.

usage: crash.py SCENARIO [--shard I/N] [--every K] [--offset O]

A line for each point, "ok N call detail" or "FAILED N call detail: why", then "points N failed M"."""

import argparse
import os
import re
import shutil
import signal
import socket
import sys
import traceback

from faults_world import DRIVER, TOPS, FaultWorld, call, difference, result, rewrite_record, wait_for

BYSTANDER = "11111111-0000-4000-8000-000000000001"
VICTIM = "22222222-0000-4000-8000-000000000002"
LOST = "33333333-0000-4000-8000-000000000003"
PROBE = "44444444-0000-4000-8000-000000000004"
ORPHAN = "55555555-0000-4000-8000-000000000005"
BOOT_IDS = ("aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb")


TEMPORARY = re.compile(r"/\.|left|99999999|0123456789abcdef")  # hidden names, and what StartWithLeftovers leaves


class Scenario:
    """The claims: a bystander with 60 cores of GPU 0, the victim with 30 of it and 50 of GPU 1."""

    def __init__(self):
        self.world = FaultWorld()
        for i, boot in enumerate(BOOT_IDS):
            with open(self.world.path(f"boot{i}"), "w", encoding="ascii") as file:
                file.write(boot + "\n")
        self.boot = 0
        claim = self.world.claim
        self.bystander = claim("bystander", [self.result("a", "hami-gpu-0", "60", 1)], uid=BYSTANDER)
        self.victim = claim("victim", [self.result("a", "hami-gpu-0", "30", 2), self.result("b", "hami-gpu-1", "50", 3)],
                            uid=VICTIM)
        self.lost = claim("lost", [self.result("a", "hami-gpu-1", "10", 4)], uid=LOST)
        self.probe = claim("probe", [self.result("a", "hami-gpu-0", "40", 5)], uid=PROBE)
        self.orphan = claim("orphan", [self.result("a", "hami-gpu-1", "5", 6)], uid=ORPHAN)
        self.peer = None

    @staticmethod
    def result(request, device, cores, number):
        return dict(result(request, device, cores, share=False), shareID=f"00000000-0000-4000-8000-00000000000{number}")

    def start(self, do=None, is_waited_for=True):
        self.world.start(wait=is_waited_for, do=do, options=("--boot-id", self.world.path(f"boot{self.boot}")))
        if is_waited_for:
            self.peer = self.world.peer()

    def end(self, number=signal.SIGKILL):
        if self.peer:
            self.peer.close()
        self.peer = None
        return self.world.end(number)

    def must(self, verb, claim, devices=None):
        error, got = call(self.peer, verb, claim)
        if error:
            raise AssertionError(f"{verb} of {claim[1]}: {error}")
        if devices is not None and got != devices:
            raise AssertionError(f"{verb} of {claim[1]} gave {got}, not {devices}")
        return got

    def check_promise(self, is_victim_promised):
        """Beside the bystander's 60 cores there is room for 40 more if and only if the victim holds none."""
        for timeout in (1.2, 3, 10) if is_victim_promised else (20, ):  # the refusal comes just before the deadline
            error, _ = call(self.peer, "prepare", self.probe, timeout=timeout)
            if not error or "no room" in error:
                break  # else the machine was too slow for so short a deadline
        if bool(error) != is_victim_promised or (error and "no room" not in error):
            raise AssertionError(f"probe with the victim {'' if is_victim_promised else 'not '}promised: {error!r}")
        self.must("unprepare", self.probe)

    def close(self):
        if self.peer:
            self.peer.close()
        self.world.close()


class Call(Scenario):
    """A Prepare or an Unprepare of the victim, in a daemon that serves the bystander too."""

    verb = None

    def set_up(self):
        self.start()
        self.must("prepare", self.bystander)
        self.without = self.world.snapshot()
        self.devices = self.must("prepare", self.victim)
        self.whole = self.world.snapshot()
        self.must("unprepare", self.victim)
        if self.world.snapshot() != self.without:
            raise AssertionError("an undisturbed unprepare leaves " + difference(self.without, self.world.snapshot()))

    def before(self):
        if self.verb == "unprepare":
            self.must("prepare", self.victim, self.devices)

    def point(self, n):
        self.before()
        daemon = self.world.daemon
        daemon.do(f"kill {n}")
        future = getattr(self.peer, self.verb + "_later")(self.victim)
        future.add_done_callback(lambda f: daemon.events.put(("answer", f)))
        word, detail = daemon.expect("killed", "answer")
        if word == "answer" and detail.exception():
            word, detail = daemon.expect("killed")  # a call that failed, so it must have been
        if word == "answer":
            daemon.do("off")
            daemon.expect("off")
            if self.verb == "prepare":
                self.must("unprepare", self.victim)
            return None
        self.end()
        return detail

    def check(self):
        world = self.world
        self.start()
        found = world.await_snapshot("after the kill", [self.without, self.whole])
        self.check_promise(found == 1)
        if self.verb == "unprepare":
            self.must("unprepare", self.victim)
            world.await_snapshot("after the retry", [self.without])
            self.check_promise(False)
        self.must("prepare", self.victim, self.devices)
        world.await_snapshot("after prepare", [self.whole])
        self.check_promise(True)
        self.must("unprepare", self.victim)
        world.await_snapshot("after unprepare", [self.without])

    def recover(self):
        """After a failed check: from nothing again."""
        self.end()
        self.world.restore(None)
        self.set_up()


class Prepare(Call):
    verb = "prepare"


class Unprepare(Call):
    verb = "unprepare"


class Start(Scenario):
    """A start, in directories that `arrange` has made once; each point begins with a copy of them."""

    has_victim = True

    def set_up(self):
        self.start()
        self.arrange()
        self.end()
        self.disturb()
        self.world.save("begin")
        self.start()
        self.whole = self.quiet()
        self.must("prepare", self.bystander)
        self.devices = self.must("prepare", self.victim)
        self.prepared = self.quiet()
        self.must("unprepare", self.victim)
        self.without = self.world.snapshot()
        self.end()

    def arrange(self):
        for claim in (self.bystander, self.victim, self.lost):
            self.must("prepare", claim)

    def disturb(self):
        """What happens while no daemon runs."""

    def quiet(self):
        """The directories once nothing in them has changed for a while; for undisturbed runs only."""
        seen = []

        def is_quiet():
            seen.append(self.world.snapshot())
            return len(seen) > 40 and all(s == seen[-1] for s in seen[-40:])
        wait_for("quiet", is_quiet, 30)
        for path in seen[-1]:
            if TEMPORARY.search(path):
                raise AssertionError(f"an undisturbed start leaves {path}")
        return seen[-1]

    def point(self, n):
        self.world.restore("begin")
        self.start(do=f"kill {n}", is_waited_for=False)
        daemon = self.world.daemon
        wait_for("kill or start", lambda: daemon.poll() is not None or self.is_through(), 30)
        if daemon.poll() is None:
            self.end()
            return None
        killed = [rest for word, rest in list(daemon.events.queue) if word == "killed"]
        if not killed:
            raise AssertionError(f"ended with {daemon.poll()}: {self.world.said()[-1000:]}")
        self.end()
        return killed[0]

    def is_through(self):
        return self.world.is_up() and self.world.snapshot() == self.whole

    def check(self):
        world = self.world
        self.start()
        world.await_snapshot("after the kill", [self.whole])
        self.must("prepare", self.bystander)
        self.check_promise(self.has_victim)
        self.must("prepare", self.victim, self.devices)
        world.await_snapshot("after prepare", [self.prepared])
        self.check_promise(True)
        self.must("unprepare", self.victim)
        world.await_snapshot("after unprepare", [self.without])
        self.end()

    def recover(self):
        self.end()


class StartFresh(Start):
    """Nothing there yet."""

    has_victim = False

    def arrange(self):
        pass

    def disturb(self):
        for top in TOPS:
            shutil.rmtree(self.world.path(top))
            os.mkdir(self.world.path(top))


class StartSameBoot(Start):
    """Records of this boot; one claim has lost its spec, one a part of its share, and the library is torn."""

    def disturb(self):
        world = self.world
        os.unlink(spec_path(world, LOST))
        os.unlink(world.path("run/shares", VICTIM + "-1", "control"))
        for name in os.listdir(world.path("lib")):
            os.truncate(world.path("lib", name), 5)


class StartAfterReboot(Start):
    """Another boot: nothing is left in the run and the CDI directory, and the GPUs have changed their minor numbers."""

    has_victim = True

    def disturb(self):
        self.boot = 1
        for top in ("run", "cdi"):
            shutil.rmtree(self.world.path(top))
            os.mkdir(self.world.path(top))
        self.world.renumber()


class StartWithLeftovers(Start):
    """What earlier crashes, older versions and people have left: temporaries, orphans, a claim that is gone, damaged and
    half-made records, stale sockets."""

    def arrange(self):
        super().arrange()
        self.must("prepare", self.orphan)

    def disturb(self):
        world = self.world
        world.delete_claim(self.orphan)
        for path in ("state/.devices.json.tmp-1-3", f"state/claims/.{VICTIM}.record.tmp-1-0",
                     f"cdi/.k8s.{DRIVER}-claim_{VICTIM}.json.tmp-1-1", "lib/.libvgpu-0123.so.tmp-1-2",
                     f"cdi/k8s.{DRIVER}-claim_99999999.json", "state/claims/77777777.record",
                     "lib/libvgpu-0123456789abcdef0123456789abcdef.so"):
            with open(world.path(path), "w", encoding="ascii") as file:
                file.write("left over")
        os.makedirs(world.path("run/shares/99999999-0/deep"))
        os.makedirs(world.path("state/claims/88888888.record"))
        rewrite_record(world.path("state/claims", LOST + ".record"), b'"completed"', b'"started"')
        for path in (world.dra_socket, world.registration_socket):
            if not os.path.exists(path):
                with socket.socket(socket.AF_UNIX) as s:
                    s.bind(path)


def spec_path(world, uid):
    return world.path("cdi", f"k8s.{DRIVER}-claim_{uid}.json")


SCENARIOS = {"prepare": Prepare, "unprepare": Unprepare, "start-fresh": StartFresh, "start-same-boot": StartSameBoot,
             "start-after-reboot": StartAfterReboot, "start-with-leftovers": StartWithLeftovers}


def run(scenario, shard, shards, every, offset):
    points = failed = 0
    try:
        scenario.set_up()
        n = 1 + (offset + shard * every)
        while True:
            detail = f"{n} ?"
            try:
                detail = scenario.point(n)
                if detail is None:
                    break
                scenario.check()
                print(f"ok {detail}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAILED {detail}: {error}", flush=True)
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
                scenario.recover()
            points += 1
            n += every * shards
        print(f"points {points} failed {failed} calls {n}", flush=True)
    finally:
        scenario.close()
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    args = parser.parse_args()
    shard, _, shards = args.shard.partition("/")
    return run(SCENARIOS[args.scenario](), int(shard), int(shards), args.every, args.offset)


if __name__ == "__main__":
    sys.exit(main())

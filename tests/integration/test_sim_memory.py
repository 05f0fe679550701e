# SPDX-License-Identifier: Apache-2.0
"""Every kind of memory of the simulated driver, in one process and between processes: calls and errors as documented, bytes that
arrive, and device memory that is free again when the last holder is gone, however it went."""

import contextlib
import os
import random
import socket
import subprocess
import time
import unittest

from test_sim import H100, MIB, SIM, Machine, SimTest, until


class Groups(SimTest):
    """The checks of sim/tests/memory.c, each group in a process of its own."""

    def run_group(self, name, devices=None):
        out = subprocess.run([SIM / "sim-memory", name], env=self.machine.env(SIMGPU_GROUP=name), capture_output=True, text=True, timeout=60)
        self.assertRegex(out.stdout, r"\Aok [1-9]\d*\n\Z", out.stderr)
        self.assertEqual(out.returncode, 0)
        until(lambda: self.machine.group(name)["bytes"] == 0, "memory outlives its process")
        self.assertEqual(self.machine.oracle()["used_bytes"], 0)

    def test_linear(self):
        self.run_group("linear")

    def test_managed(self):
        self.run_group("managed")

    def test_host(self):
        self.run_group("host")

    def test_arrays(self):
        self.run_group("arrays")

    def test_mipmaps(self):
        self.run_group("mipmaps")

    def test_peers(self):
        self.run_group("peers")

    def test_vmm(self):
        self.run_group("vmm")

    def test_export(self):
        self.run_group("export")

    def test_pools(self):
        self.run_group("pools")

    def test_descriptors(self):
        self.run_group("descriptors")

    def test_threads(self):
        self.run_group("threads")

    def test_granules(self):
        self.run_group("granules")

    def test_attributes(self):
        self.run_group("attributes")


class Hopper(Groups):
    """What needs a card of compute capability 9, or a big one."""

    devices = [H100, H100]

    def test_multicast(self):
        self.run_group("multicast")

    def test_big(self):
        self.run_group("big")


INVALID_VALUE, UNAVAILABLE, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 1, 46, 201, 400, 600


NVML = """
class P(C.Structure):
    _fields_ = [('pid', C.c_uint), ('used', C.c_ulonglong), ('gi', C.c_uint), ('ci', C.c_uint)]
class M(C.Structure):
    _fields_ = [('total', C.c_ulonglong), ('free', C.c_ulonglong), ('used', C.c_ulonglong)]
h, n, room, m = C.c_void_p(), C.c_uint(8), (P * 8)(), M()
check(ml.nvmlInit_v2()); check(ml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(h)))
check(ml.nvmlDeviceGetComputeRunningProcesses_v3(h, C.byref(n), room)); check(ml.nvmlDeviceGetMemoryInfo(h, C.byref(m)))
print(json.dumps([[[p.pid, p.used] for p in room[:n.value]], m.used]))
"""


class Process:
    """A sim-share client: call(command) gives (CUresult, value)."""

    def __init__(self, case, group, machine=None):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = theirs.detach()
        self.process = subprocess.Popen([SIM / "sim-share", str(fd)], pass_fds=(fd,), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=(machine or case.machine).env(SIMGPU_GROUP=group))
        os.close(fd)
        case.addCleanup(self.close)
        case.assertEqual(self.process.stdout.readline(), "ready\n")

    def call(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        rc, _, value = self.process.stdout.readline().strip().partition(" ")
        return int(rc), value

    def ok(self, command):
        rc, value = self.call(command)
        if rc:
            raise AssertionError(f"{command}: {rc}")
        return value

    def take_fd(self):
        _, (fd,), _, _ = socket.recv_fds(self.socket, 1, 1)
        return fd

    def give_fd(self, fd):
        socket.send_fds(self.socket, [b"x"], [fd])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.socket.close()


class Sharing(SimTest):
    """Memory that two processes hold: who pays, and when it is free."""

    def two(self):
        return Process(self, "maker"), Process(self, "user")

    def bytes(self, group):
        return self.machine.group(group)["bytes"]

    def gone(self, group="maker", left=0):
        until(lambda: self.bytes(group) == left, f"{group} holds {self.bytes(group)} bytes, not {left}")

    def free_at_the_end(self, *processes):
        for p in processes:
            p.kill()
        until(lambda: self.machine.oracle()["used_bytes"] == 0, "memory outlives its processes")
        self.machine.ctl("reset")
        self.assertEqual(self.machine.oracle()["groups"], [])

    def test_event_of_one_process_is_waited_for_in_another(self):
        maker, user = self.two()
        event = maker.ok("event")
        handle = maker.ok(f"event-get {event}")
        theirs = user.ok(f"event-open {handle}")
        user.ok(f"query {theirs}")  # never recorded: nothing to wait for
        maker.ok(f"record {event}")
        self.assertEqual((user.call(f"query {theirs}")[0], maker.call(f"query {event}")[0]), (NOT_READY, NOT_READY))
        user.ok(f"wait {theirs}")
        self.assertEqual(user.call("drained")[0], NOT_READY)
        maker.ok("go")
        user.ok("drain")
        user.ok(f"query {theirs}")
        maker.ok(f"query {event}")
        # The other way, waiting on the host; then the event outlives its maker.
        user.ok(f"record {theirs}")
        self.assertEqual(maker.call(f"query {event}")[0], NOT_READY)
        user.ok("go")
        maker.ok(f"sync {event}")
        user.ok(f"query {theirs}")
        maker.kill()
        user.ok(f"record {theirs}")
        user.ok("go")
        user.ok(f"sync {theirs}")
        user.ok(f"event-destroy {theirs}")
        until(lambda: user.call(f"event-open {handle}")[0] == INVALID_HANDLE, "a handle outlives all who had the event")
        self.assertEqual(user.call("event-open 00")[0], INVALID_HANDLE)
        self.free_at_the_end(user)

    def test_ipc_memory_is_the_makers_and_lives_until_it_is_closed(self):
        maker, user = self.two()
        n = maker.ok(f"alloc {5 * MIB}")
        small = maker.ok("alloc 1000")  # shares its granule with what is written before the export
        maker.ok(f"write {small} neighbour")
        maker.ok(f"write {n} hello")
        handle = maker.ok(f"ipc-get {n}")
        m = user.ok(f"ipc-open {handle}")
        self.assertEqual(user.ok(f"read {m}"), "hello")
        user.ok(f"write {m} back")
        self.assertEqual(maker.ok(f"read {n}"), "back")
        self.assertEqual(maker.ok(f"read {small}"), "neighbour")
        again = user.ok(f"ipc-open {handle}")  # counted
        self.assertEqual((self.bytes("maker"), self.bytes("user")), (24 * MIB, 16 * MIB))
        self.assertEqual(maker.call(f"ipc-open {handle}")[0], INVALID_CONTEXT)
        self.assertEqual(user.call(f"free {m}")[0], INVALID_VALUE)
        other = maker.ok(f"ipc-get {small}")
        at = user.ok(f"ipc-open {other}")
        self.assertEqual(user.ok(f"read {at}"), "neighbour")
        self.assertEqual(user.ok(f"range {at}"), "0 1000")  # the allocation, not what else is in its granule
        page = maker.ok("alloc 4096")
        maker.ok(f"write {page} page")
        page_at = user.ok(f"ipc-open {maker.ok(f'ipc-get {page}')}")
        maker.ok(f"free {page}")
        self.assertEqual(user.ok(f"read {page_at}"), "page")
        user.ok(f"ipc-close {page_at}")
        maker.ok(f"free {n}")
        self.assertEqual(self.bytes("maker"), 24 * MIB)  # until the last that has it open closes it
        self.assertEqual(user.ok(f"read {m}"), "back")
        third = Process(self, "third")
        self.assertEqual(third.call(f"ipc-open {handle}")[0], INVALID_HANDLE)  # but nobody new gets it
        user.ok(f"ipc-close {m}")
        self.assertEqual(user.ok(f"read {again}"), "back")
        user.ok(f"ipc-close {again}")
        self.assertEqual(user.call(f"ipc-close {again}")[0], INVALID_VALUE)
        self.assertEqual(user.call(f"read {again}")[0], INVALID_VALUE)
        self.assertEqual(self.bytes("maker"), 18 * MIB)  # at once, not some time later
        self.assertEqual(third.call("ipc-open " + "00" * 64)[0], INVALID_HANDLE)
        self.free_at_the_end(maker, user, third)

    def test_memory_of_a_killed_maker_is_held_by_who_has_it_open(self):
        maker, user = self.two()
        n = maker.ok(f"alloc {6 * MIB}")
        maker.ok(f"write {n} testament")
        m = user.ok(f"ipc-open {maker.ok(f'ipc-get {n}')}")
        maker.kill()
        self.gone(left=6 * MIB)
        self.assertEqual(user.ok(f"read {m}"), "testament")
        self.assertEqual(self.machine.oracle()["used_bytes"], 22 * MIB)
        user.kill()
        self.gone()
        self.free_at_the_end()

    def test_a_descriptor_under_way_holds_memory_like_a_process(self):
        maker, user = self.two()
        n = maker.ok(f"create {4 * MIB}")
        maker.ok(f"map {n}")
        maker.ok(f"write {n} in-flight")
        maker.ok(f"export {n}")
        fd = maker.take_fd()
        maker.kill()
        self.gone(left=4 * MIB)
        user.give_fd(fd)
        os.close(fd)  # now it lies in a socket alone
        self.assertEqual(self.bytes("maker"), 4 * MIB)
        m = user.ok(f"import {4 * MIB}")
        user.ok(f"map {m}")
        self.assertEqual(user.ok(f"read {m}"), "in-flight")
        user.ok(f"release {m}")
        self.assertEqual(self.bytes("maker"), 4 * MIB)
        user.ok(f"unmap {m}")
        self.assertEqual(self.bytes("maker"), 0)
        self.free_at_the_end(user)

    def test_external_memory_from_another_process(self):
        maker, user = self.two()
        n = maker.ok(f"create {4 * MIB}")
        maker.ok(f"map {n}")
        maker.ok(f"write {n} external")
        maker.ok(f"export {n}")
        fd = maker.take_fd()
        user.give_fd(fd)
        os.close(fd)
        m = user.ok(f"external {4 * MIB}")
        maker.ok(f"unmap {n}")
        maker.ok(f"release {n}")
        self.assertEqual(user.ok(f"read {m}"), "external")
        user.ok(f"free {m}")
        self.assertEqual(self.bytes("maker"), 16 * MIB)
        self.free_at_the_end(maker, user)

    def test_pools_between_processes(self):
        maker, user = self.two()
        pool = maker.ok("pool")
        maker.ok(f"pool-export {pool}")
        fd = maker.take_fd()
        user.give_fd(fd)
        os.close(fd)
        imported = user.ok("pool-import")
        n = maker.ok(f"pool-alloc {pool} {3 * MIB}")
        maker.ok(f"write {n} pooled")
        pointer = maker.ok(f"pool-pointer {n}")
        m = user.ok(f"pool-open {imported} {pointer}")
        self.assertEqual(user.ok(f"read {m}"), "pooled")
        self.assertEqual((self.bytes("maker"), self.bytes("user")), (48 * MIB, 16 * MIB))
        self.assertEqual(user.call(f"pool-alloc {imported} 4096")[0], INVALID_VALUE)
        user.ok(f"free-async {m}")
        self.assertEqual(user.call(f"read {m}")[0], INVALID_VALUE)
        m = user.ok(f"pool-open {imported} {pointer}")
        maker.kill()
        self.gone(left=32 * MIB)
        self.assertEqual(user.ok(f"read {m}"), "pooled")
        user.ok(f"free {m}")
        user.ok(f"destroy-pool {imported}")
        self.assertEqual(self.bytes("maker"), 0)
        self.free_at_the_end(user)

    def test_shared_memory_counts_for_its_maker_in_nvml_and_the_oracle(self):
        maker, user = self.two()
        n = maker.ok(f"alloc {8 * MIB}")
        m = user.ok(f"ipc-open {maker.ok(f'ipc-get {n}')}")
        held = {p["group"]: p["bytes"] for p in self.machine.oracle()["processes"]}
        self.assertEqual(held, {"maker": 24 * MIB, "user": 16 * MIB})
        listed, used = self.machine.python(NVML)
        self.assertEqual(dict(listed), {maker.process.pid: 24 * MIB, user.process.pid: 16 * MIB})
        self.assertEqual(used, 40 * MIB + 24 * MIB)  # with the driver's reserve
        self.assertEqual(int(user.ok("info")), int(maker.ok("info")))
        user.ok(f"ipc-close {m}")
        maker.ok(f"free {n}")
        self.assertEqual(self.bytes("maker"), 16 * MIB)
        self.free_at_the_end(maker, user)

    def test_without_simgpud_sharing_is_refused(self):
        machine = Machine(self.devices)
        self.addCleanup(machine.close)
        maker = Process(self, "maker", machine)
        n, shared = maker.ok(f"alloc {5 * MIB}"), maker.ok(f"create {2 * MIB}")
        machine.stop()
        self.assertEqual(maker.call(f"ipc-get {n}")[0], UNAVAILABLE)
        self.assertEqual(maker.call(f"export {shared}")[0], UNAVAILABLE)
        self.assertEqual(maker.call("pool")[0], UNAVAILABLE)
        maker.ok(f"release {shared}")

    def test_killed_in_the_midst_of_sharing_leaves_nothing(self):
        seed = random.Random(11)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            maker, user = self.two()
            for p in (maker, user):
                with contextlib.suppress(OSError):
                    p.process.stdin.write("".join(self.script(seed)))
                    p.process.stdin.flush()
            time.sleep(seed.uniform(0, 0.03))
            for p in seed.sample((maker, user), 2):
                p.kill()
                p.socket.close()  # with the descriptors that lie in it
            until(lambda: self.machine.oracle()["used_bytes"] == 0, "memory outlives its processes")

    @staticmethod
    def script(seed):
        for i in range(seed.randint(1, 25)):
            at = 4 * i
            yield (f"alloc {seed.randint(1, 8 * MIB)}\nipc-get {at}\ncreate {2 * MIB}\nmap {at + 1}\nexport {at + 1}\npool\n"
                   f"pool-alloc {at + 2} {seed.randint(1, MIB)}\nfree {at}\nunmap {at + 1}\nrelease {at + 1}\nfree-async {at + 3}\n")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""aliquotd as the kubelet sees it: grpcio as the peer, the sandbox's API server, simulated GPUs, no container."""

import os
import pathlib
import shutil
import signal
import struct
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon_world import (DRIVER, NODE, SLICES, UUIDS, SharedDaemon, World, httpd, need_daemon, result, rewrite_record,  # noqa: E402
                          wait_for)
from kubelet_peer import V1, V1BETA1  # noqa: E402

TIMEOUT_S = 400
GIB = 1 << 30
KIND = f"k8s.{DRIVER}/claim"


setUpModule = need_daemon


def control(world, share):
    """The values in force: (memory bytes, context estimate, cores, policy, priority, log level)."""
    with open(world.path("run/shares", share, "control"), "rb") as file:
        data = file.read()
    assert len(data) == 4096, len(data)
    magic, version, size = struct.unpack_from("<QII", data, 0)
    assert (magic, version, size) == (0x314c525443514c41, 1, 4096)
    at = 512 + 256 * (struct.unpack_from("<I", data, 256)[0] & 1)
    memory, estimate, _, cores, policy, priority, _, level = struct.unpack_from("<QQqIIIII", data, at)
    return memory, estimate, cores, policy, priority, level


class Daemon(SharedDaemon):
    def setUp(self):
        self.peer = self.world.peer()
        self.addCleanup(self.peer.close)
        self.open = []

    def tearDown(self):
        for claim in self.open:
            self.peer.unprepare(claim)
        self.assertEqual(self.world.tree(), {})

    def claim(self, name, results, **more):
        claim = self.world.claim(name, results, **more)
        self.open.append(claim)
        return claim

    def prepare(self, claim, package=V1, timeout=45):
        reply = self.peer.prepare(claim, package=package, timeout=timeout)
        self.assertEqual(list(reply), [claim[2]])
        return reply[claim[2]]

    def refused(self, claim, *words, timeout=45):
        answer = self.prepare(claim, timeout=timeout)
        self.assertEqual(list(answer.devices), [])
        for word in words:
            self.assertIn(word, answer.error)
        self.assertEqual([f for f in self.world.tree() if claim[2] in f], [])
        return answer.error

    def test_slices_are_published(self):
        def devices():
            items, _ = self.world.api.list(SLICES, "", {})
            return sorted((d["name"], d["attributes"]["uuid"]["string"]) for s in items for d in s["spec"]["devices"])
        wait_for("both devices", lambda: devices() == [("hami-gpu-0", UUIDS[0]), ("hami-gpu-1", UUIDS[1])])

    # ---- prepare

    def test_prepare_gives_ids_share_and_files(self):
        r = result()
        claim = self.claim("one", [r])
        answer = self.prepare(claim)
        self.assertEqual(answer.error, "")
        device, = answer.devices
        share = f"{claim[2]}-0"
        self.assertEqual(list(device.request_names), ["gpu"])
        self.assertEqual((device.pool_name, device.device_name), (NODE, "hami-gpu-0"))
        self.assertEqual(list(device.cdi_device_ids), [f"{KIND}={share}"])
        self.assertEqual(device.share_id, r["shareID"])
        self.assertEqual(control(self.world, share), (4 * GIB, 256 << 20, 30, 0, 0, 0))
        for name, mode in (("control", 0o644), ("usage", 0o666), ("hami.cache", 0o666)):
            self.assertEqual(os.stat(self.world.path("run/shares", share, name)).st_mode & 0o7777, mode, name)
        spec = self.world.spec(claim[2])
        self.assertEqual((spec["kind"], [d["name"] for d in spec["devices"]]), (KIND, [share]))

    def test_prepare_twice_gives_the_same_and_touches_nothing(self):
        claim = self.claim("twice", [result(), result("other", "hami-gpu-1", "60", "8Gi")])
        first = self.prepare(claim)
        before = self.world.tree()
        second = self.prepare(claim)
        self.assertEqual(first, second)
        self.assertEqual(before, self.world.tree())

    def test_prepare_in_parallel_gives_the_same(self):
        claim = self.claim("parallel", [result()])
        futures = [self.peer.prepare_later(claim) for _ in range(10)]
        answers = [f.result().claims[claim[2]] for f in futures]
        self.assertEqual(answers[0].error, "")
        self.assertTrue(all(a == answers[0] for a in answers))

    def test_prepare_v1beta1_has_no_share_id(self):
        claim = self.claim("beta", [result()])
        device, = self.prepare(claim, package=V1BETA1).devices
        self.assertEqual(list(device.cdi_device_ids), [f"{KIND}={claim[2]}-0"])
        self.assertFalse(device.UnknownFields() if hasattr(device, "UnknownFields") else [])
        self.peer.unprepare(claim, package=V1BETA1)

    def test_unprepare_twice_and_of_unknown_is_success(self):
        claim = self.claim("un", [result()])
        self.prepare(claim)
        for _ in range(2):
            self.assertEqual(self.peer.unprepare(claim)[claim[2]].error, "")
        unknown = ("default", "nobody", "11111111-2222-3333-4444-555555555555")
        self.assertEqual(self.peer.unprepare(unknown)[unknown[2]].error, "")

    def test_unprepare_needs_no_claim_object(self):
        claim = self.claim("deleted", [result()])
        self.prepare(claim)
        self.world.delete_claim(claim)
        self.assertEqual(self.peer.unprepare(claim)[claim[2]].error, "")

    def test_prepare_again_makes_what_was_lost(self):
        claim = self.claim("lost", [result()])
        first = self.prepare(claim)
        spec = self.world.spec(claim[2])
        os.unlink(self.world.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json"))
        os.unlink(self.world.path("run/shares", f"{claim[2]}-0", "control"))
        self.assertEqual(self.prepare(claim), first)
        self.assertEqual(self.world.spec(claim[2]), spec)
        self.assertEqual(control(self.world, f"{claim[2]}-0")[0], 4 * GIB)

    def test_two_shares_of_one_gpu(self):
        claim = self.claim("double", [result("a", cores="30", memory="4Gi"), result("b", cores="60", memory="8Gi")])
        self.assertEqual([list(d.request_names) for d in self.prepare(claim).devices], [["a"], ["b"]])
        self.assertEqual(control(self.world, f"{claim[2]}-0")[0:3:2], (4 * GIB, 30))
        self.assertEqual(control(self.world, f"{claim[2]}-1")[0:3:2], (8 * GIB, 60))

    def test_subrequest_is_answered_by_its_base_name(self):
        claim = self.claim("sub", [result("gpu/small")])
        self.assertEqual(list(self.prepare(claim).devices[0].request_names), ["gpu"])

    def test_results_of_other_drivers_are_left_out(self):
        other = dict(result("net"), driver="net.example.com")
        claim = self.claim("mixed", [other, result()])
        device, = self.prepare(claim).devices
        self.assertEqual(list(device.cdi_device_ids), [f"{KIND}={claim[2]}-0"])

    def test_quantities_in_every_form(self):
        claim = self.claim("forms", [result("a", cores="1e1", memory="1.5G"), result("b", cores="500m", memory="1073741824")])
        self.assertEqual(self.prepare(claim).error, "")
        self.assertEqual(control(self.world, f"{claim[2]}-0")[0:3:2], (1500000000, 10))
        self.assertEqual(control(self.world, f"{claim[2]}-1")[0:3:2], (GIB, 1))

    def test_admin_access_has_no_share_and_takes_no_room(self):
        whole = self.claim("whole", [result(cores="100", memory=None)])
        self.assertEqual(self.prepare(whole).error, "")
        admin = self.claim("admin", [result(cores="100", memory="80Gi", adminAccess=True)])
        self.assertEqual(self.prepare(admin).error, "")
        self.assertFalse(os.path.exists(self.world.path("run/shares", f"{admin[2]}-0")))

    def test_gate_off_gives_the_whole_device(self):
        claim = self.claim("gate", [result(cores=None, memory=None, share=False)])
        answer = self.prepare(claim)
        self.assertEqual((answer.error, answer.devices[0].share_id), ("", ""))
        memory, _, cores, *_ = control(self.world, f"{claim[2]}-0")
        self.assertEqual(cores, 100)
        self.assertGreater(memory, 70 * GIB)
        other = self.claim("small", [result()])
        self.refused(other, "no room on hami-gpu-0", "default/gate", timeout=2)

    def test_reallocated_claim_gets_new_files(self):
        claim = self.claim("moved", [result()])
        self.prepare(claim)
        self.claim("moved", [result(device="hami-gpu-1", memory="2Gi")], uid=claim[2])
        self.assertEqual(self.prepare(claim).devices[0].device_name, "hami-gpu-1")
        self.assertEqual(control(self.world, f"{claim[2]}-0")[0], 2 * GIB)

    # ---- configuration

    @staticmethod
    def config(parameters, source="FromClaim", requests=(), driver=DRIVER):
        return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}

    @staticmethod
    def share_config(**more):
        return {"apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", **more}

    def test_claim_configuration_goes_over_that_of_the_class(self):
        claim = self.claim("tuned", [result("a"), result("b")], config=[
            self.config(self.share_config(compute={"policy": "None"}, logLevel="debug"), source="FromClaim",
                        requests=["b"]),
            self.config(self.share_config(compute={"policy": "Burst", "priority": 1}), source="FromClass"),
            self.config({"anything": 1}, driver="other.example.com")])
        self.assertEqual(self.prepare(claim).error, "")
        self.assertEqual(control(self.world, f"{claim[2]}-0")[3:], (1, 1, 0))
        self.assertEqual(control(self.world, f"{claim[2]}-1")[3:], (2, 1, 4))

    def test_spill_is_in_control_and_has_a_section_of_its_own(self):
        spill = self.config(self.share_config(memory={"spillToHost": {"limit": "8Gi"}}), requests=["b"])
        claim = self.claim("spills", [result("a"), result("b")], config=[spill])
        for _ in range(2):  # the second time over what is there
            self.assertEqual(self.prepare(claim).error, "")
            for index, (limit, sections) in enumerate(((0, 1), (8 * GIB, 2))):
                share = pathlib.Path(self.world.path("run/shares", f"{claim[2]}-{index}"))
                self.assertEqual(struct.unpack_from("<Q", (share / "control").read_bytes(), 512 + 48)[0], limit)
                usage = (share / "usage").read_bytes()
                self.assertEqual((len(usage), struct.unpack_from("<I", usage, 20)[0]), (4096 + sections * 135168, sections))

    def test_wrong_configuration_is_an_error(self):
        for number, (parameters, word) in enumerate((
                (self.share_config(compte={}), "compte"), (self.share_config(compute={"policy": "Hrad"}), "Hrad"),
                (self.share_config(compute={"policy": "Hard", "x": 1}), "x"),
                (self.share_config(compute={"priority": 2}), "compute.priority"),
                (self.share_config(memory={"waitSeconds": 5}), "onExhausted: Wait"),
                (self.share_config(memory={"spillToHost": {"limit": "8Gx"}}), "memory.spillToHost.limit"),
                ({"apiVersion": "v1", "kind": "GpuConfig"}, "GpuConfig"), (self.share_config(logLevel=3), "logLevel"))):
            with self.subTest(word):
                self.refused(self.claim(f"wrong-{number}", [result()], config=[self.config(parameters)]), word)

    # ---- bad input: an error for that claim alone, nothing left

    def test_bad_claims_in_a_batch_leave_the_good_one(self):
        good, bad = self.claim("good", [result()]), self.claim("bad", [result(memory="lots")])
        absent = ("default", "absent", "99999999-2222-3333-4444-555555555555")
        reply = self.peer.prepare(bad, good, absent)
        self.assertEqual(reply[good[2]].error, "")
        self.assertEqual(len(reply[good[2]].devices), 1)
        self.assertIn("lots", reply[bad[2]].error)
        self.assertIn("default/absent", reply[absent[2]].error)

    def test_unreadable_quantity(self):
        self.refused(self.claim("quantity", [result(memory="4Gx")]), "default/quantity", "consumedCapacity.memory", "4Gx")
        self.refused(self.claim("overflow", [result(memory="9Ei")]), "consumedCapacity.memory")
        self.refused(self.claim("negative", [result(cores="-1")]), "consumedCapacity.cores")

    def test_more_than_the_gpu_has(self):
        self.refused(self.claim("large", [result(memory="81Gi")]), "81Gi")
        self.refused(self.claim("cores", [result(cores="101")]), "101")

    def test_claim_of_another_driver(self):
        self.refused(self.claim("foreign", [dict(result(), driver="gpu.example.com")]), "gpu.example.com", DRIVER)

    def test_unallocated_claim(self):
        self.refused(self.claim("early", [], allocated=False), "not allocated")

    def test_replaced_claim(self):
        new = self.claim("again", [result()])
        old = (new[0], new[1], "aaaaaaaa-2222-3333-4444-555555555555")
        self.refused(old, "replaced", new[2])

    def test_unknown_device_and_pool(self):
        self.refused(self.claim("device", [result(device="hami-gpu-7")]), "hami-gpu-7")
        self.refused(self.claim("pool", [dict(result(), pool="node-b")]), "node-b", NODE)

    def test_uid_that_is_a_path(self):
        self.refused(("default", "x", "../../etc/x"), "uid")
        self.assertIn("uid", self.peer.unprepare(("default", "x", "../x"))["../x"].error)

    # ---- room

    def test_no_room_names_the_holder(self):
        self.prepare(self.claim("holder", [result(cores="80")]))
        started = time.monotonic()
        self.refused(self.claim("late", [result(cores="30")]), "no room on hami-gpu-0", "default/holder", timeout=3)
        self.assertLess(time.monotonic() - started, 3)

    def test_room_is_waited_for(self):
        holder, late = self.claim("first", [result(cores="80")]), self.claim("second", [result(cores="30")])
        self.prepare(holder)
        future = self.peer.prepare_later(late)
        time.sleep(0.2)
        self.assertFalse(future.done())
        self.peer.unprepare(holder)
        self.assertEqual(future.result().claims[late[2]].error, "")

    def test_holder_that_is_gone_gives_its_room_back(self):
        holder, late = self.claim("ghost", [result(cores="80")]), self.claim("heir", [result(cores="30")])
        self.prepare(holder)
        self.world.delete_claim(holder)
        self.assertEqual(self.prepare(late, timeout=4).error, "")

    # ---- order

    def test_unprepare_cancels_an_earlier_prepare(self):
        claim = self.claim("cancelled", [result()])
        self.world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/cancelled", "delaySeconds": 1, "code": 200}))
        future = self.peer.prepare_later(claim)
        time.sleep(0.2)
        self.assertEqual(self.peer.unprepare(claim)[claim[2]].error, "")
        self.assertIn("cancelled by a later", future.result().claims[claim[2]].error)
        self.assertEqual(self.world.tree(), {})
        self.assertEqual(self.prepare(claim).error, "")

    def test_api_server_error_is_passed_on(self):
        claim = self.claim("forbidden", [result()])
        self.world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/forbidden", "code": 403}))
        self.refused(claim, "default/forbidden", "API server")
        self.assertEqual(self.prepare(claim).error, "")

    def test_110_claims_at_once(self):
        claims = [self.claim(f"many-{i}", [result(cores="0", memory="64Mi")]) for i in range(110)]
        futures = [self.peer.prepare_later(c) for c in claims]
        for claim, future in zip(claims, futures):
            self.assertEqual(future.result().claims[claim[2]].error, "")


class Life(unittest.TestCase):
    """Starts, ends and restarts: each test has a daemon of its own."""

    def world(self, **more):
        world = World(**more)
        self.addCleanup(world.close)
        return world

    def test_sigkill_and_restart_keeps_and_rebuilds(self):
        world = self.world()
        world.start()
        claim = world.claim("kept", [result()])
        peer = world.peer()
        self.addCleanup(peer.close)
        first = peer.prepare(claim)[claim[2]]
        spec = world.spec(claim[2])
        control_inode = os.stat(world.path("run/shares", f"{claim[2]}-0", "control")).st_ino
        world.stop(signal.SIGKILL)
        os.unlink(world.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json"))
        os.mkdir(world.path("run/shares/dead-0"))
        with open(world.path("cdi", f"k8s.{DRIVER}-claim_dead.json"), "w", encoding="utf-8"):
            pass
        with open(world.path("state/claims/bbbbbbbb.record"), "w", encoding="utf-8") as file:
            file.write("torn")
        os.mkdir(world.path("state/claims/cccccccc.record"))
        world.start()
        wait_for("the spec", lambda: os.path.exists(world.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json")))
        self.assertEqual(world.spec(claim[2]), spec)
        self.assertEqual(os.stat(world.path("run/shares", f"{claim[2]}-0", "control")).st_ino, control_inode)
        self.assertFalse(os.path.exists(world.path("run/shares/dead-0")))
        self.assertFalse(os.path.exists(world.path("cdi", f"k8s.{DRIVER}-claim_dead.json")))
        self.assertTrue(os.path.exists(world.path("state/claims/bbbbbbbb.record.bad")))
        self.assertTrue(os.path.isdir(world.path("state/claims/cccccccc.record.bad")))
        again = world.peer()
        self.addCleanup(again.close)
        self.assertEqual(again.prepare(claim)[claim[2]], first)
        self.assertEqual(again.unprepare(claim)[claim[2]].error, "")
        self.assertEqual([f for f in world.tree() if claim[2] in f], [])

    def test_sigkill_at_any_moment_leaves_all_or_nothing(self):
        """Kills at moments spread over a prepare and over an unprepare. After the restart the files of the claim are all
        there or not there at all, and the kubelet's next calls do what they say."""
        world = self.world()
        claim = world.claim("killed", [result(), result("b", "hami-gpu-1")])
        world.start()
        peer = world.peer()
        begin = time.monotonic()
        whole_answer = peer.prepare(claim)[claim[2]]
        span = (time.monotonic() - begin) * 1.5
        whole = set(world.tree())
        peer.unprepare(claim)
        self.assertEqual(len(whole), 8)
        for step in range(24):
            is_prepare = step % 2 == 0
            with self.subTest(step=step):
                if not is_prepare:
                    peer.prepare(claim)
                future = peer.prepare_later(claim) if is_prepare else peer.unprepare_later(claim)
                time.sleep(span * (step // 2) / 12)
                world.stop(signal.SIGKILL)
                peer.close()
                future.exception()
                world.start()
                peer = world.peer()
                wait_for("all or nothing", lambda: set(world.tree()) in (whole, set()))
                self.assertEqual(peer.prepare(claim)[claim[2]], whole_answer)
                self.assertEqual(set(world.tree()), whole)
                self.assertEqual(peer.unprepare(claim)[claim[2]].error, "")
                self.assertEqual(world.tree(), {})
        peer.close()

    def test_claim_that_cannot_be_rolled_back_costs_nobody_else(self):
        world = self.world()
        world.start()
        claim, other = world.claim("stuck", [result(cores="10")]), world.claim("other", [result(cores="10")])
        peer = world.peer()
        peer.prepare(claim, other)
        peer.close()
        world.stop(signal.SIGKILL)
        rewrite_record(world.path("state/claims", f"{claim[2]}.record"), b'"completed"', b'"started"')
        spec = world.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json")
        os.unlink(spec)
        os.makedirs(os.path.join(spec, *["deeper"] * 70))  # than what is removed
        world.start()
        self.assertIn("cannot be rolled back", world.said())
        peer = world.peer()
        self.addCleanup(peer.close)
        self.assertEqual(peer.prepare(other)[other[2]].error, "")
        self.assertIn(spec, peer.prepare(claim)[claim[2]].error)
        shutil.rmtree(spec)
        self.assertEqual(peer.prepare(claim)[claim[2]].error, "")
        peer.unprepare(claim, other)
        self.assertEqual(world.tree(), {})

    def test_directory_in_the_place_of_a_spec_does_not_keep_its_pod(self):
        world = self.world()
        world.start()
        peer = world.peer()
        self.addCleanup(peer.close)
        claim = world.claim("blocked", [result(cores="10")])
        self.assertEqual(peer.prepare(claim)[claim[2]].error, "")
        spec = world.path("cdi", f"k8s.{DRIVER}-claim_{claim[2]}.json")
        os.unlink(spec)
        os.makedirs(os.path.join(spec, "in-the-way"))
        self.assertIn(spec, peer.prepare(claim)[claim[2]].error)
        self.assertEqual(peer.unprepare(claim)[claim[2]].error, "")
        self.assertEqual(os.listdir(world.path("cdi")), [])
        self.assertEqual(peer.prepare(claim)[claim[2]].error, "")
        peer.unprepare(claim)

    def test_files_of_a_claim_whose_record_is_set_aside_stay(self):
        """A container that runs may be started anew by its pod at any time: the runtime needs the CDI spec then."""
        world = self.world()
        world.start()
        claim = world.claim("newer", [result()])
        peer = world.peer()
        peer.prepare(claim)
        peer.close()
        files = {f: i for f, i in world.tree().items() if not f.startswith("state")}
        world.stop()
        record = world.path("state/claims", f"{claim[2]}.record")
        with open(record, "r+b") as file:
            file.write(b"aliquot-record 9")
        for _ in range(2):
            world.start()
            self.assertEqual({f: i for f, i in world.tree().items() if not f.startswith("state")}, files)
            world.stop()
        self.assertTrue(os.path.exists(record + ".bad"))
        world.start()
        peer = world.peer()
        self.addCleanup(peer.close)
        self.assertEqual(peer.unprepare(claim)[claim[2]].error, "")
        self.assertEqual(world.tree(), {})  # what was set aside goes with its claim

    def test_lost_record_is_made_again(self):
        world = self.world()
        world.start()
        claim = world.claim("forgotten", [result()])
        peer = world.peer()
        self.addCleanup(peer.close)
        peer.prepare(claim)
        whole = set(world.tree())
        shutil.rmtree(world.path("state/claims"))
        self.assertEqual(peer.prepare(claim)[claim[2]].error, "")
        self.assertEqual(set(world.tree()), whole)

    def test_claim_deleted_while_down_is_taken_away(self):
        world = self.world()
        world.start()
        claim = world.claim("orphan", [result()])
        peer = world.peer()
        peer.prepare(claim)
        peer.close()
        world.stop()
        world.delete_claim(claim)
        world.start()
        wait_for("its files to go", lambda: not world.tree())

    def test_missing_driver_is_not_fatal(self):
        world = self.world(with_driver=False)
        world.start(wait=False)
        wait_for("the socket", world.is_serving)
        peer = world.peer()
        self.addCleanup(peer.close)
        claim = world.claim("blind", [result()])
        error = peer.prepare(claim)[claim[2]].error
        self.assertIn("GPUs", error)
        self.assertIn("default/blind", error)
        self.assertEqual(peer.unprepare(claim)[claim[2]].error, "")
        self.assertEqual(world.tree(), {})

    def test_bad_directories_are_clear_errors(self):
        world = self.world()
        with open(world.path("file"), "w", encoding="utf-8"):
            pass
        for flag, path in (("cdi_dir", world.path("file/cdi")), ("kubelet_plugins_dir", world.path("file/plugins")),
                           ("kubelet_registry_dir", world.path("file/registry")), ("state_dir", world.path("file/s")),
                           ("run_dir", world.path("file/run"))):
            with self.subTest(flag):
                status, said = world.run(**{flag: path})
                self.assertEqual(status, 1)
                self.assertIn(world.path("file"), said)
                self.assertIn("--" + flag.replace("_", "-"), said)
        status, said = world.run(kubeconfig=world.path("absent"))
        self.assertEqual(status, 1)
        self.assertIn(world.path("absent"), said)

    def test_bad_settings_are_clear_errors(self):
        world = self.world(with_driver=False)
        for more, word in (({"reserve": "lots"}, "--reserve"), ({"cdi_dir": "relative"}, "--cdi-dir"),
                           ({"driver_name": "Not_A_Name"}, "--driver-name"), ({"log_level": "loud"}, "loud"),
                           ({"no_such": "x"}, "--no-such"), ({"config": world.path("absent")}, "absent")):
            with self.subTest(word):
                status, said = world.run(**more)
                self.assertEqual(status, 2)
                self.assertIn(word, said)
        with open(world.path("c.yaml"), "w", encoding="utf-8") as file:
            file.write("nodeName: node-a\ncdiDri: /x\n")
        status, said = world.run(config=world.path("c.yaml"))
        self.assertEqual(status, 2)
        self.assertIn("cdiDri", said)


if __name__ == "__main__":
    unittest.main()

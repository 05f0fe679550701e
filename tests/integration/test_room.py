# SPDX-License-Identifier: Apache-2.0
"""Who gets what a GPU has left, with the real daemon and an API server that answers late, wrongly or not at all. The rules
themselves, in virtual time and in every order, are tests/unit/daemon/test_prepare.c's."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon_world import CLAIMS, SharedDaemon, httpd, need_daemon, result, wait_for  # noqa: E402


setUpModule = need_daemon


class Room(SharedDaemon):
    def setUp(self):
        self.peer = self.world.peer()
        self.addCleanup(self.peer.close)
        self.open = []
        self.world.http.request_log = []

    def tearDown(self):
        self.world.http.faults.drop()
        for claim in self.open:
            self.peer.unprepare(claim)
        self.assertEqual(self.world.tree(), {})

    def claim(self, name, cores, **more):
        claim = self.world.claim(name, [result(cores=str(cores), memory="64Mi", **more)])
        self.open.append(claim)
        return claim

    def held(self, name, cores):
        """A claim that is prepared."""
        claim = self.claim(name, cores)
        self.assertEqual(self.peer.prepare(claim)[claim[2]].error, "")
        return claim

    def edit(self, claim, change):
        obj = self.world.api.store.get(CLAIMS.internal, claim[0], claim[1])
        change(obj)
        self.world.api.store.put(CLAIMS.internal, claim[0], claim[1], obj)

    def error(self, future, claim):
        return future.result().claims[claim[2]].error

    def gets(self, claim):
        return sum(r["path"].endswith(f"/resourceclaims/{claim[1]}") for r in self.world.http.request_log)

    def test_deleted_holder_is_found_early(self):
        """Not right before the deadline, which is ten minutes away here."""
        ghost, heir = self.held("ghost", 80), self.claim("heir", 30)
        self.world.delete_claim(ghost)
        future = self.peer.prepare_later(heir, timeout=600)
        wait_for("the heir to be served", future.done, 60)
        self.assertEqual(self.error(future, heir), "")
        self.assertIn("gone without an unprepare", self.world.said())
        self.assertFalse([f for f in self.world.tree() if ghost[2] in f])

    def test_replaced_holder_is_known_by_its_uid(self):
        self.held("same-name", 80)
        heir = self.claim("other", 30)
        self.world.claim("same-name", [result(cores="1")])
        self.assertEqual(self.peer.prepare(heir)[heir[2]].error, "")

    def test_holder_is_kept_while_the_api_server_is_in_doubt(self):
        holder = self.held("kept", 80)
        before = self.world.tree()
        for number, fault in enumerate(({"code": 403}, {"code": 500}, {"code": 503}, {"code": 429}, {"close": True},
                                        {"hang": True})):
            with self.subTest(fault):
                self.world.http.faults.append(httpd.Fault({"match": "GET .*/resourceclaims/kept", "count": 0, **fault}))
                late = self.claim(f"late-{number}", 30)
                error = self.peer.prepare(late, timeout=3)[late[2]].error
                self.assertIn("held by default/kept;", error)
                self.world.http.faults.drop()
                self.assertEqual(self.world.tree(), before)
        self.assertEqual(self.peer.unprepare(holder)[holder[2]].error, "")

    def test_holder_that_lost_its_allocation_is_named_as_such(self):
        stale = self.held("stale", 80)
        self.edit(stale, lambda obj: obj["status"].pop("allocation"))
        late = self.claim("late", 30)
        error = self.peer.prepare(late, timeout=5)[late[2]].error
        self.assertIn("claim default/late: no room on hami-gpu-0: asked are 64Mi and 30 cores, left are", error)
        self.assertIn("and 20 cores; held by default/stale (no longer allocated); tried again", error)

    def test_many_that_wait_ask_for_their_holder_once(self):
        holder = self.held("popular", 100)
        waiting = [self.claim(f"fan-{i}", 1) for i in range(60)]
        before = self.gets(holder)
        futures = [self.peer.prepare_later(c) for c in waiting]
        wait_for("all to wait", lambda: all(self.gets(c) for c in waiting))
        wait_for("the holder to be looked up", lambda: self.gets(holder) > before)
        self.assertLess(self.gets(holder) - before, 20)  # one a second at the most
        self.peer.unprepare(holder)
        self.assertEqual([self.error(f, c) for f, c in zip(futures, waiting)], [""] * 60)

    def test_new_pod_before_the_old_one_is_unprepared(self):
        """As after a removal by force on a real node: 1.34 and 1.36 prepared the new claim 3 s before the old one ended."""
        old = self.held("old", 60)
        new = self.claim("new", 60)
        self.edit(old, lambda obj: obj["status"].pop("allocation"))
        future = self.peer.prepare_later(new)
        wait_for("the old one to be looked up", lambda: self.gets(old) > 1)
        self.assertFalse(future.done())
        self.peer.unprepare(old)
        self.assertEqual(self.error(future, new), "")

    def test_claim_without_room_in_a_batch_spoils_no_other(self):
        self.held("holder", 80)
        first, stuck, last = self.claim("first", 10), self.claim("stuck", 50), self.claim("last", 10)
        reply = self.peer.prepare(first, stuck, last, timeout=5)
        self.assertEqual([bool(reply[c[2]].error) for c in (first, stuck, last)], [False, True, False])
        self.assertIn("default/holder", reply[stuck[2]].error)

    def test_late_prepare_after_an_unprepare_is_judged_by_its_claim(self):
        """A retry that the kubelet sent before it gave up arrives after the Unprepare: the claim has no allocation now."""
        claim = self.held("retried", 10)
        self.peer.unprepare(claim)
        self.edit(claim, lambda obj: obj["status"].pop("allocation"))
        self.assertIn("not allocated", self.peer.prepare(claim)[claim[2]].error)
        self.assertEqual(self.world.tree(), {})

    def test_unprepare_while_the_api_server_is_down(self):
        claim = self.held("down", 10)
        self.world.http.faults.append(httpd.Fault({"match": ".*", "count": 0, "close": True}))
        self.assertEqual(self.peer.unprepare(claim)[claim[2]].error, "")
        self.assertEqual(self.world.tree(), {})


if __name__ == "__main__":
    unittest.main()

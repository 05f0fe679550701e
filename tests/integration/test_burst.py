# SPDX-License-Identifier: Apache-2.0
"""Compute that is lent, end to end: the daemon reads from the usage files what the shares of a GPU leave idle and lends it to those
that may borrow; it takes it back when the owner has work; what a daemon that says nothing any more had lent ends by itself."""

import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compute_case import ComputeCase, need_namespaces  # noqa: E402
from daemon_world import wait_for  # noqa: E402
from monitor_world import figures  # noqa: E402

TIMEOUT_S = 120
ALONE = True
LOAN_OFFSET = 264  # include/aliquot/share.h


def setUpModule():
    need_namespaces()


class Burst(ComputeCase):
    def loan(self, claim):
        """(percent, until) as the share reads it now."""
        word = self.word(claim, LOAN_OFFSET)
        until = (word >> 8) / 1e6
        return (word & 0xff if until > time.clock_gettime(time.CLOCK_MONOTONIC) else 0), until

    def lent(self, claim, pct):
        wait_for(f"a loan of {pct}", lambda: self.loan(claim)[0] == pct, 20)

    def test_idle_time_is_lent_and_taken_back(self):
        guest, owner = self.prepare("guest", 20, "Burst"), self.prepare("owner", 60, "Hard")
        program = self.work(guest)
        self.lent(guest, 100)
        wait_for("it to be used", lambda: self.busy_pct(guest, 0.5) > 40, 20)
        now = figures(self.world, guest)
        self.assertEqual((now["compute_borrowed_percent"], now["compute_lent_percent"], now["compute_limit_percent"]), (80, 0, 20))
        self.assertEqual(figures(self.world, owner)["compute_lent_percent"], 60)
        back = self.work(owner)
        self.lent(guest, 40)
        self.assertEqual(figures(self.world, owner)["compute_lent_percent"], 0)
        back.close()
        self.lent(guest, 100)
        program.close()
        wait_for("the loan to end", lambda: self.loan(guest)[0] == 0)

    def test_silent_daemon_has_lent_nothing(self):
        guest = self.prepare("guest", 10, "Burst")
        self.work(guest)
        self.lent(guest, 100)
        self.world.daemon.send_signal(signal.SIGSTOP)
        try:
            wait_for("the loan to end", lambda: self.loan(guest)[0] == 0, 5)
            time.sleep(0.2)
            self.assertLess(self.busy_pct(guest, 1.5), 10 + 5)
        finally:
            self.world.daemon.send_signal(signal.SIGCONT)
        self.lent(guest, 100)

    def test_priority_0_borrows_before_1_and_both_before_0_percent(self):
        first, second, none = self.prepare("first", 20, "Burst", 0), self.prepare("second", 20, "Burst", 1), self.prepare("none", 0, "Hard", 0)
        wait_for("0 percent to know that somebody lends", lambda: self.loan(none)[1] > 0)
        third = self.work(none)
        self.lent(none, 100)
        programs = [self.work(first), self.work(second)]
        self.lent(first, 80)
        self.lent(second, 0)
        self.lent(none, 0)
        programs[0].close()
        self.lent(second, 100)
        programs[1].close()
        self.lent(none, 100)
        third.close()

    def test_hard_and_none_borrow_nothing(self):
        hard, none = self.prepare("hard", 20, "Hard"), self.prepare("none", 20, "None")
        guest = self.prepare("guest", 10, "Burst")
        programs = [self.work(claim) for claim in (guest, hard, none)]
        self.lent(guest, 60)  # what nobody was promised, and its own
        self.assertEqual((self.loan(hard)[1], self.loan(none)[1]), (0, 0))
        for program in programs:
            program.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)

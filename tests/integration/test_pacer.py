# SPDX-License-Identifier: Apache-2.0
"""The correction of compute, end to end: beside others a share's library measures their turns too and would take half of what it was
promised; the daemon compares with NVML ten times a second, and the share has its part. What it wrote ends with it."""

import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compute_case import ComputeCase, need_namespaces  # noqa: E402
from daemon_world import wait_for  # noqa: E402

TIMEOUT_S = 120
ALONE = True
CREDIT_OFFSET, CONTENDED_OFFSET = 280, 288  # include/aliquot/share.h


def setUpModule():
    need_namespaces()


class Pacer(ComputeCase):
    def is_contended(self, claim):
        return self.word(claim, CONTENDED_OFFSET) > time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def corrected(self, claim):
        wait_for("the share to be corrected", lambda: self.is_contended(claim) and self.word(claim, CREDIT_OFFSET, "<q") != 0, 20)
        time.sleep(1)  # the second in which it settles

    def test_share_beside_one_without_a_limit_has_its_part(self):
        share, other = self.prepare("share", 30, "Hard"), self.prepare("other", 70, "None")
        self.work(other, 1000)
        self.work(share, 1000)
        self.corrected(share)
        busy = self.busy_pct(share, 5)
        self.assertGreater(busy, 25)
        self.assertLess(busy, 35)
        self.assertEqual(self.word(other, CONTENDED_OFFSET), 0)  # it is not held

    def test_share_beside_a_program_outside_all_shares_has_its_part(self):
        share = self.prepare("share", 40, "Hard")
        outside = self.work(None, 1000)
        self.work(share, 1000)
        self.corrected(share)
        busy = self.busy_pct(share, 5)
        self.assertGreater(busy, 35)
        self.assertLess(busy, 45)
        outside.close()
        wait_for("the share to be alone", lambda: not self.is_contended(share), 20)

    def test_share_that_is_alone_is_left_alone(self):
        share = self.prepare("share", 30, "Hard")
        self.work(share, 1000)
        self.assertLess(abs(self.busy_pct(share, 4) - 30), 3)
        self.assertEqual((self.word(share, CREDIT_OFFSET), self.word(share, CONTENDED_OFFSET)), (0, 0))

    def test_silent_daemon_corrects_nothing(self):
        share, other = self.prepare("share", 30, "Hard"), self.prepare("other", 70, "None")
        self.work(other, 1000)
        self.work(share, 1000)
        self.corrected(share)
        self.world.daemon.send_signal(signal.SIGSTOP)
        try:
            wait_for("the correction to end", lambda: not self.is_contended(share), 5)
            time.sleep(0.2)
            self.assertLess(self.busy_pct(share, 2), 30 + 2)  # never above
        finally:
            self.world.daemon.send_signal(signal.SIGCONT)
        self.corrected(share)


if __name__ == "__main__":
    unittest.main(verbosity=2)

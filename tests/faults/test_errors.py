# SPDX-License-Identifier: Apache-2.0
"""One of aliquotd's system calls fails (disk full, read-only or broken, no descriptor left), or all from one on:
errors.py at a sample of the calls, at every one with ALIQUOT_FAULTS=full in the environment (some minutes)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test_crash  # noqa: E402

TIMEOUT_S = 3600
setUpModule = test_crash.setUpModule


class Errors(test_crash.Runs):
    def sweep_errors(self, phase, *rows):
        """Rows: (errno, every, offset, least)."""
        for error, every, offset, least in rows:
            with self.subTest(error):
                self.sweep("errors.py", f"{phase}:{error}", every, offset, least)

    def test_prepare_with_one_failing_call(self):
        self.sweep_errors("prepare", ("ENOSPC", 9, 1, 5), ("EROFS", 16, 2, 5), ("EIO", 19, 3, 5), ("EMFILE", 3, 0, 4))

    def test_prepare_while_all_fails(self):
        self.sweep_errors("prepare", ("ENOSPC:all", 13, 5, 3), ("EROFS:all", 25, 7, 3), ("EIO:all", 28, 9, 3))

    def test_unprepare_with_one_failing_call(self):
        self.sweep_errors("unprepare", ("EROFS", 9, 0, 3), ("EIO", 10, 2, 3))

    def test_unprepare_while_all_fails(self):
        self.sweep_errors("unprepare", ("EROFS:all", 13, 0, 2), ("EIO:all", 15, 2, 2))

    def test_first_start_with_one_failing_call(self):
        self.sweep_errors("start-fresh", ("ENOSPC", 8, 1, 3), ("EROFS", 13, 2, 3))

    def test_start_with_one_failing_call(self):
        self.sweep_errors("start-same-boot", ("EROFS", 19, 1, 3), ("EIO", 37, 2, 4), ("EMFILE", 31, 3, 3))


if __name__ == "__main__":
    test_crash.unittest.main()

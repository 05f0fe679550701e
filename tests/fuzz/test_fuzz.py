# SPDX-License-Identifier: Apache-2.0
"""Every fuzz target for FUZZ_SECONDS, as many at once as there are processors; each is one test. FUZZ_TARGETS names some
of them ("grpc messages"). What they learn is kept below build/fuzz/corpus, an input that breaks one in
build/fuzz/crash-<target>-*. tools/fuzz.sh builds them first."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import unittest

TIMEOUT_S = 3600
HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", HERE.parent.parent / "build"))
FUZZ = BUILD / "fuzz" if (BUILD / "fuzz/build.ninja").exists() else BUILD
SECONDS = int(os.environ.get("FUZZ_SECONDS", "20"))
TARGETS = os.environ.get("FUZZ_TARGETS", "").split() or sorted(p.stem[len("fuzz_"):] for p in HERE.glob("fuzz_*.c"))
POOL = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)
RUNS = {}


def run(target):
    """(exit status, the last lines of what it said) of one target."""
    name, corpus = f"fuzz_{target}", FUZZ / "corpus" / f"fuzz_{target}"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [FUZZ / "tests/fuzz" / name, f"-max_total_time={SECONDS}", "-timeout=10", "-rss_limit_mb=2048",
               f"-artifact_prefix={FUZZ}/crash-{name}-"]
    if (HERE / f"{name}.dict").exists():
        command.append(f"-dict={HERE}/{name}.dict")
    command.append(corpus)
    if (HERE / "seeds" / target).is_dir():
        command.append(HERE / "seeds" / target)
    with open(FUZZ / f"{name}.log", "wb") as log:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
    return status, (FUZZ / f"{name}.log").read_text(errors="replace").splitlines()[-40:]


def setUpModule():
    RUNS.update({t: POOL.submit(run, t) for t in TARGETS})


def tearDownModule():
    POOL.shutdown()


class Fuzz(unittest.TestCase):
    pass


def _test(target):
    def test(self):
        status, lines = RUNS[target].result()
        text = "\n".join(lines)
        self.assertEqual(status, 0, f"{FUZZ}/fuzz_{target}.log:\n{text}")
        done = re.search(r"Done (\d+) runs", text)
        self.assertTrue(done and int(done[1]) > 0, text)
        print(f"{target}: {done[1]} runs")
    return test


for _target in TARGETS:
    setattr(Fuzz, f"test_{_target}", _test(_target))


if __name__ == "__main__":
    unittest.main()

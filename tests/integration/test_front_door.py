# SPDX-License-Identifier: Apache-2.0
"""The front door: what tools/setup.sh decides, seen through stand-ins of dpkg-query, apt-get and id, and what tests/run.py makes
of suites that pass, fail, crash, hang and skip."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import textwrap
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent


class Folder(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-door-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def script(self, path, text):
        path = self.dir / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/bash\n" + textwrap.dedent(text))
        path.chmod(0o755)
        return path


class SetUp(Folder):
    PACKAGES = """
        # a comment
        [lint]
        checker   # finds things
        [build]
        compiler  # compiles
        library
        [run]
        client    unless=alq-no-such-client # only where there is none
        other     unless=bash
        """

    def setUp(self):
        super().setUp()
        shutil.copy(REPO / "tools/setup.sh", self.dir / "setup.sh")
        (self.dir / "packages.txt").write_text(textwrap.dedent(self.PACKAGES))
        (self.dir / "installed").write_text("")
        self.script("bin/id", 'echo "${ALQ_UID:-0}"')
        self.script("bin/dpkg-query", f"""
            for p in "$@"; do grep -qx -- "$p" {self.dir}/installed && printf 'installed/%s ' "$p"; done; exit 1""")
        self.script("bin/apt-get", f"""
            echo "$DEBIAN_FRONTEND $*" >>{self.dir}/calls
            [[ " $* " == *" update "* ]] && exit "${{ALQ_UPDATE_RC:-0}}"
            for p in "$@"; do case $p in -*|*::*|install) ;; *) [ "$p" = "${{ALQ_ABSENT:-}}" ] || echo "$p" >>{self.dir}/installed ;; esac; done
            exit "${{ALQ_INSTALL_RC:-0}}" """)

    def run_setup(self, *groups, **env):
        return subprocess.run([self.dir / "setup.sh", *groups], capture_output=True, text=True,
                              env=dict(os.environ, PATH=f"{self.dir}/bin:/usr/bin:/bin", ALIQUOT_SETUP_LOG=str(self.dir / "log"), **env))

    def calls(self):
        path = self.dir / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def test_root_updates_then_installs_what_is_missing_of_the_groups(self):
        (self.dir / "installed").write_text("library\n")
        done = self.run_setup("build", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        update, install = self.calls()
        self.assertIn(" update", update)
        self.assertTrue(install.startswith("noninteractive "))
        self.assertIn("DPkg::Lock::Timeout=", install)
        self.assertTrue(install.endswith("install -y --no-install-recommends compiler client"), install)

    def test_second_run_does_nothing(self):
        self.run_setup("build", "run")
        before = self.calls()
        done = self.run_setup("build", "run")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.calls(), before)

    def test_command_that_is_there_makes_its_package_needless(self):
        self.script("bin/alq-no-such-client", "exit 0")
        self.run_setup("run")
        self.assertEqual(self.calls(), [])

    def test_without_root_the_exact_command_is_printed_and_nothing_done(self):
        done = self.run_setup("build", ALQ_UID="1000")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines()[-1],
                         "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends compiler library'")
        self.assertEqual(self.calls(), [])

    def test_failed_update_is_no_reason_to_stop(self):
        done = self.run_setup("build", ALQ_UPDATE_RC="100")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.calls()), 2)

    def test_failed_install_fails_and_names_the_log(self):
        done = self.run_setup("build", ALQ_INSTALL_RC="100")
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(self.dir / "log"), done.stderr)

    def test_package_still_missing_afterwards_fails(self):
        done = self.run_setup("build", ALQ_ABSENT="library")
        self.assertEqual(done.returncode, 1)
        self.assertIn("still missing after installing: library", done.stderr)

    def test_list_of_the_tree_has_groups_and_reasons_only(self):
        groups = set()
        for line in (REPO / "tools/packages.txt").read_text().splitlines():
            if line.startswith("["):
                groups.add(line)
            elif line and not line.startswith("#"):
                self.assertRegex(line, r"^[a-z0-9][a-z0-9+.-]+ +(unless=\S+ )?# \S")
        self.assertEqual(groups, {"[lint]", "[fuzz]", "[aarch64]", "[test]", "[deb]", "[build]", "[run]"})


class Runner(Folder):
    """tests/run.py copied beside made-up suites."""

    def setUp(self):
        super().setUp()
        self.tests = self.dir / "tests"
        self.tests.mkdir()
        shutil.copy(REPO / "tests/run.py", self.tests / "run.py")
        self.units = []

    def unit(self, name, text, timeout=10):
        program = self.script(f"build/{name}", text)
        self.units.append({"name": name, "suite": ["x:unit", "x:part"], "cmd": [str(program)], "env": {}, "workdir": None, "timeout": timeout})

    def module(self, name, text):
        path = self.tests / f"integration/test_{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("import unittest\n" + textwrap.dedent(text))

    def run_all(self, *args):
        info = self.dir / "build/meson-info"
        info.mkdir(parents=True)
        (info / "intro-tests.json").write_text(json.dumps(self.units))
        done = subprocess.run(["/usr/bin/python3", self.tests / "run.py", "--build", self.dir / "build", *args],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.stderr, "")
        self.output = done.stdout
        return done.returncode, done.stdout.splitlines()[-1]

    def test_each_test_is_counted_and_skips_tell_why(self):
        self.unit("good", r"""
            printf '[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n[  REASON  ] no moon tonight\n[  SKIPPED ] b\n'""")
        self.module("m", """
            class C(unittest.TestCase):
                def test_a(self): pass
                def test_b(self): self.skipTest("no stars either")
            """)
        self.assertEqual(self.run_all(), (0, "2 passed, 0 failed, 2 skipped"))
        self.assertIn("part/good: b: no moon tonight", self.output)
        self.assertIn("test_b: no stars either", self.output)

    def test_failures_show_the_end_of_the_log(self):
        self.unit("bad", r"""
            printf '[ RUN      ] a\n0x1 != 0x2\n[  FAILED  ] a\n[ RUN      ] b\n[       OK ] b\n[  FAILED  ] a\n'; exit 1""")
        self.module("m", """
            class C(unittest.TestCase):
                def test_a(self): self.assertEqual("left", "right")
                def test_b(self):
                    for i in range(3):
                        with self.subTest(i): self.assertEqual(i, 1)
            """)
        self.assertEqual(self.run_all(), (1, "1 passed, 3 failed, 0 skipped"))
        self.assertIn("| 0x1 != 0x2", self.output)
        self.assertIn("'left' != 'right'", self.output)

    def test_crash_hang_and_silent_failure_are_failures(self):
        self.unit("crash", r"""printf '[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n'; kill -SEGV $$""")
        self.unit("hang", r"""printf '[ RUN      ] a\n'; exec sleep 100""", timeout=1)
        self.unit("silent", r"""printf '[ RUN      ] a\n[       OK ] a\n'; exit 3""")
        self.module("exits", """
            import os
            class C(unittest.TestCase):
                def test_a(self): os._exit(0)
            """)
        self.module("broken", "raise RuntimeError('cannot be loaded')")
        self.assertEqual(self.run_all(), (1, "2 passed, 5 failed, 0 skipped"))
        self.assertIn("killed by SIGSEGV", self.output)
        self.assertIn("not finished after 1 s", self.output)
        self.assertIn("cannot be loaded", self.output)

    def test_class_whose_set_up_skips_or_fails_counts_all_its_tests(self):
        self.module("m", """
            class A(unittest.TestCase):
                @classmethod
                def setUpClass(cls): raise unittest.SkipTest("no root")
                def test_a(self): pass
                def test_b(self): pass
            class B(unittest.TestCase):
                @classmethod
                def setUpClass(cls): raise OSError("no cluster")
                def test_a(self): pass
                def test_b(self): pass
            """)
        self.assertEqual(self.run_all(), (1, "0 passed, 2 failed, 2 skipped"))
        self.assertIn("no cluster", self.output)

    def test_program_that_is_no_cmocka_counts_as_one(self):
        self.unit("plain", "exit 0")
        self.unit("absent", "echo not here; exit 77")
        self.assertEqual(self.run_all(), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("not here", self.output)

    def test_nothing_run_is_a_failure(self):
        self.unit("absent", "exit 77")
        self.assertEqual(self.run_all(), (1, "0 passed, 0 failed, 1 skipped"))

    def test_pattern_picks_suites_and_single_tests(self):
        self.unit("alpha", "exit 0")
        self.unit("beta", "exit 1")
        self.module("m", """
            class C(unittest.TestCase):
                def test_alpha(self): pass
                def test_beta(self): self.fail()
            """)
        self.assertEqual(self.run_all("-k", "alpha"), (0, "2 passed, 0 failed, 0 skipped"))

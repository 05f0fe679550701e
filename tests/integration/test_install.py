# SPDX-License-Identifier: Apache-2.0
"""`make install` lays out a tree whose units name what is in it, and keeps settings."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
TIMEOUT_S = 180


def install(destdir):
    """As it was built, without the steps before."""
    return subprocess.run(["make", "-C", REPO, "-o", "build", "install", f"BUILD={BUILD}", f"DESTDIR={destdir}"], check=True, capture_output=True,
                          text=True).stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (BUILD / "src/daemon/aliquotd").exists() or not (BUILD / "deploy/aliquotd.yaml").exists():
            raise unittest.SkipTest("nothing is built")
        cls.top = tempfile.mkdtemp(suffix=" with blanks")
        cls.addClassCleanup(shutil.rmtree, cls.top)
        install(cls.top)
        cls.files = {os.path.join("/", os.path.relpath(os.path.join(folder, name), cls.top))
                     for folder, _, names in os.walk(cls.top) for name in names}

    def one(self, pattern):
        found = [path for path in self.files if re.search(pattern, path)]
        self.assertEqual(len(found), 1, f"{pattern}: {found}")
        return found[0]

    def test_programs_pages_completions_and_units_are_there(self):
        for pattern in ("/bin/aliquot$", "/sbin/aliquotd$", "/libexec/aliquot/aliquotd-nvml$", "/libexec/aliquot/libvgpu.so$", "/man1/aliquot.1$",
                        "/man8/aliquotd.8$", "/bash-completion/completions/aliquot$", "/_aliquot$", "/aliquot.fish$", "/aliquotd.service$",
                        "/aliquotd-standalone.service$", "/aliquot/aliquotd.yaml$"):
            self.one(pattern)

    def test_units_and_settings_name_files_that_are_installed(self):
        for unit in "aliquotd.service", "aliquotd-standalone.service":
            text = pathlib.Path(self.top + self.one(f"/{unit}$")).read_text()
            program = re.search(r"^ExecStart=(\S+)", text, re.M)[1]
            self.assertIn(program, self.files)
            for path in re.findall(r"--config (\S+)", text):
                self.assertIn(path, self.files)
        settings = pathlib.Path(self.top + self.one("/aliquotd.yaml$")).read_text()
        for path in re.findall(r"^(?:library|hook): (\S+)$", settings, re.M):
            self.assertIn(path, self.files)
        self.assertEqual(settings.count("libexec"), 2)

    def test_units_are_hardened(self):
        """A person who reads `systemd-analyze security` wants these; what is missing has its reason in the unit."""
        for unit in "aliquotd.service", "aliquotd-standalone.service":
            text = pathlib.Path(self.top + self.one(f"/{unit}$")).read_text()
            for line in ("NoNewPrivileges=yes", "SystemCallFilter=@system-service", "RestrictNamespaces=yes", "MemoryDenyWriteExecute=yes",
                         "ProtectKernelModules=yes", "LockPersonality=yes", "RestrictSUIDSGID=yes", "CapabilityBoundingSet=CAP_CHOWN"):
                self.assertIn(line, text)

    def test_settings_that_are_there_are_kept(self):
        path = pathlib.Path(self.top + self.one("/aliquotd.yaml$"))
        was = path.read_text()
        path.write_text("reserve: 1Gi\n")
        self.addCleanup(path.write_text, was)
        install(self.top)
        self.assertEqual(path.read_text(), "reserve: 1Gi\n")

# SPDX-License-Identifier: Apache-2.0
"""`make install` lays out a tree whose units name what is in it, and keeps settings; the Debian package, where `make deb` has made one,
installs, upgrades, is removed and purged in a copy of this machine's root that is thrown away."""

import glob
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
PACKAGES = sorted(glob.glob(str(BUILD / "aliquot_*.deb")))
TIMEOUT_S = 180
# A root that has all of this one's files, and keeps what is written in memory; $1: a folder, then the command.
ROOT = """set -e; top=$1; shift
mount -t tmpfs none "$top"; mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay none -o lowerdir=/,upperdir="$top/upper",workdir="$top/work" "$top/root"
mount -t proc proc "$top/root/proc"; mount --bind /dev "$top/root/dev"; mount -t tmpfs none "$top/root/run"; mount -t tmpfs none "$top/root/tmp"
cp "$1" "$2" "$top/root/tmp/"; shift 2
exec chroot "$top/root" /bin/bash -euc "$1"
"""


def install(destdir):
    return subprocess.run(["/usr/bin/meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", destdir], check=True, capture_output=True,
                          text=True).stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (BUILD / "src/daemon/aliquotd").exists() or not (BUILD / "deploy/aliquotd.yaml").exists():
            raise unittest.SkipTest("nothing is built")
        cls.top = tempfile.mkdtemp()
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


@unittest.skipUnless(PACKAGES, "no package has been made (make deb)")
@unittest.skipIf(os.geteuid() != 0, "packages are installed by root")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.top)
        tree = os.path.join(cls.top, "tree")
        subprocess.run(["dpkg-deb", "-R", PACKAGES[-1], tree], check=True)
        control = pathlib.Path(tree, "DEBIAN/control")
        control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1.1", control.read_text(), flags=re.M))
        cls.newer = os.path.join(cls.top, "newer.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, cls.newer], check=True, stdout=subprocess.DEVNULL)

    def inside(self, script):
        folder = tempfile.mkdtemp(dir=self.top)
        done = subprocess.run(["unshare", "-m", "bash", "-c", ROOT, "root", folder, PACKAGES[-1], self.newer, script], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_it_installs_upgrades_is_removed_and_purged(self):
        out = self.inside(f"""
            export DEBIAN_FRONTEND=noninteractive
            dpkg -i /tmp/{os.path.basename(PACKAGES[-1])} >/dev/null
            aliquotd --version; aliquot version || true; getent group aliquot | cut -d: -f1
            dpkg -V aliquot
            echo 'reserve: 1Gi' >>/etc/aliquot/aliquotd.yaml; mkdir -p /var/lib/aliquot; touch /var/lib/aliquot/names
            dpkg -i /tmp/newer.deb >/dev/null
            echo upgraded to $(dpkg-query -Wf '${{Version}}' aliquot), $(grep -c 'reserve: 1Gi' /etc/aliquot/aliquotd.yaml) setting
            dpkg -r aliquot >/dev/null
            test ! -e /usr/bin/aliquot -a ! -e /usr/sbin/aliquotd; ls /etc/aliquot/aliquotd.yaml /var/lib/aliquot/names
            dpkg -P aliquot >/dev/null
            echo left: $(find /etc /usr /lib /var/lib /opt -xdev -newer /tmp/newer.deb -name '*aliquot*' ! -path '*/dpkg/*')
            """)
        self.assertRegex(out, r"^aliquotd \S+\naliquot \S+\n.*\naliquot\nupgraded to \S+\.1, 1 setting\n/etc/aliquot/aliquotd.yaml\n/var/lib/aliquot/names\nleft:\n$")

    @unittest.skipUnless(shutil.which("lintian"), "lintian is not installed")
    def test_lintian_finds_nothing(self):
        done = subprocess.run(["lintian", "--allow-root", PACKAGES[-1]], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stdout)

# SPDX-License-Identifier: Apache-2.0
"""The Debian package that `make deb` has made installs, upgrades, is removed and purged in a copy of this machine's root that is
thrown away, and lintian finds nothing. Run by `make test-deb`."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", pathlib.Path(__file__).resolve().parent.parent.parent / "build"))
PACKAGE = str(max(BUILD.glob("aliquot_*.deb"), key=os.path.getmtime))
TIMEOUT_S = 180
# A root that has all of this one's files, and keeps what is written in memory; $1: a folder, then the command.
ROOT = """set -e; top=$1; shift
mount -t tmpfs none "$top"; mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay none -o lowerdir=/,upperdir="$top/upper",workdir="$top/work" "$top/root"
mount -t proc proc "$top/root/proc"; mount --bind /dev "$top/root/dev"; mount -t tmpfs none "$top/root/run"; mount -t tmpfs none "$top/root/tmp"
cp "$1" "$2" "$top/root/tmp/"; shift 2
exec chroot "$top/root" /bin/bash -euc "$1"
"""


@unittest.skipIf(os.geteuid() != 0, "packages are installed by root")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.top)
        tree = os.path.join(cls.top, "tree")
        subprocess.run(["dpkg-deb", "-R", PACKAGE, tree], check=True)
        control = pathlib.Path(tree, "DEBIAN/control")
        control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1.1", control.read_text(), flags=re.M))
        cls.newer = os.path.join(cls.top, "newer.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, cls.newer], check=True, stdout=subprocess.DEVNULL)

    def inside(self, script):
        folder = tempfile.mkdtemp(dir=self.top)
        done = subprocess.run(["unshare", "-m", "bash", "-c", ROOT, "root", folder, PACKAGE, self.newer, script], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_it_installs_upgrades_is_removed_and_purged(self):
        out = self.inside(f"""
            export DEBIAN_FRONTEND=noninteractive
            dpkg -i /tmp/{os.path.basename(PACKAGE)} >/dev/null
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

    def test_lintian_finds_nothing(self):
        done = subprocess.run(["lintian", "--allow-root", PACKAGE], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stdout)

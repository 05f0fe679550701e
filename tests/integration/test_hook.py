# SPDX-License-Identifier: Apache-2.0
"""aliquot-hook as a runtime calls it, on roots that mean harm. Each call is made in a mount namespace of its own."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
HOOK = BUILD / "src/hook/aliquot-hook"
RUN = os.environ.get("ALIQUOT_RUN", "env").split()
SIZE_MAX = 200 << 10
LIB = "/usr/lib/x86_64-linux-gnu"
SOURCE = next((p for p in pathlib.Path(LIB).glob("libjansson.so.4.*")), None)
EPERM, ENOEXEC, EACCES, ENOSYS = 1, 8, 13, 38
NR = {"memfd_create": 319, "execveat": 322, "fsopen": 430, "openat2": 437}

# Runs the command with a system call refused, as an old kernel or a container runtime's filter does.
WITHOUT_CALL = """
import ctypes, os, struct, sys
ops = [(0x20, 0, 0, 0), (0x15, 0, 1, {nr}), (0x06, 0, 0, 0x00050000 | {errno}), (0x06, 0, 0, 0x7fff0000)]
code = b"".join(struct.pack("=HBBI", *op) for op in ops)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("@HP", len(ops), ctypes.addressof(buffer))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("seccomp")
os.execv(sys.argv[1], sys.argv[1:])
"""

READ_ONLY = "mount --bind {root} {root}; mount -o remount,bind,ro {root}"

FAKE_LDCONFIG = r"""
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv, char **envp)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];
    int variables = 0, descriptors = 0;
    FILE *seen = fopen("/seen", "w");
    while (envp[variables])
        variables++;
    for (int fd = 0; fd < 256; fd++)
        descriptors += fd != fileno(seen) && fcntl(fd, F_GETFD) >= 0;
    syscall(SYS_capget, &header, caps);
    for (int i = 0; i < argc; i++)
        fprintf(seen, "%s ", argv[i]);
    fprintf(seen, "environment:%d descriptors:%d no_new_privs:%d capabilities:%x proc:%d devices:%d", variables, descriptors,
            prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), caps[0].permitted | caps[0].effective | caps[1].permitted,
            !access("/proc/self", F_OK) || !access("/proc/1", F_OK), open("/null", O_RDONLY) >= 0);
    return fclose(seen);
}
"""


def setUpModule():
    if not HOOK.exists():
        raise unittest.SkipTest(f"{HOOK} is not built")


class Program(unittest.TestCase):
    def test_is_small_static_and_needs_nothing(self):
        self.assertLess(os.path.getsize(HOOK), SIZE_MAX)
        text = subprocess.run(["readelf", "-lW", HOOK], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(text, r"INTERP|DYNAMIC")
        self.assertNotRegex(text, r"GNU_STACK.*RWE")

    def test_tells_its_version_and_usage(self):
        for option, said in (("--version", r"aliquot-hook \d"), ("--help", "usage: aliquot-hook update-ldcache")):
            done = subprocess.run([*RUN, HOOK, option], capture_output=True, text=True, timeout=20)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stdout, said)

    def test_links_need_no_privilege(self):
        """As any user, and under an emulator too: a root without a cache."""
        with tempfile.TemporaryDirectory(prefix="alq-hook-") as top:
            root = pathlib.Path(top, "rootfs")
            (root / "lib").mkdir(parents=True)
            pathlib.Path(top, "config.json").write_text(json.dumps({"root": {"path": "rootfs"}}))
            for args in (["create-symlinks", "--link", "x::/a/b"], ["update-ldcache", "--folder=/lib"]):
                done = subprocess.run([*RUN, HOOK, *args], input=json.dumps({"bundle": top}), capture_output=True, text=True, timeout=20)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.readlink(root / "a/b"), "x")

    def test_wrong_command_lines_end_with_2_and_one_line(self):
        for args in (["frob"], ["update-ldcache"], ["update-ldcache", "--folder"], ["create-symlinks", "--folder", "/x"],
                     ["update-ldcache", "/x"], ["disable-device-node-modification", "x"], ["update-ldcache", "--folder", "/a", "-x"]):
            with self.subTest(args):
                done = subprocess.run([*RUN, HOOK, *args], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)

    def test_wrong_states_end_with_1_and_one_line_that_names_the_thing(self):
        with tempfile.TemporaryDirectory(prefix="alq-hook-") as top:
            bundle = pathlib.Path(top, "bundle")
            (bundle / "rootfs").mkdir(parents=True)
            state = json.dumps({"bundle": str(bundle)})
            rows = [("", None, "standard input"), ("{", None, "not JSON"), ("{}", None, "bundle"), ('{"bundle": "x"}', None, "bundle"),
                    ('{"bundle": "/none"}', None, "/none"), (state, None, "config.json"), (state, "{", "config.json"),
                    (state, "{}", "root.path"), (state, '{"root": {"path": "none"}}', "none: root of the container"),
                    (state, '{"root": {"path": "rootfs", "path": "rootfs"}}', "root.path"),
                    ("[" * 100000, None, "not JSON"), ('{"a":"' + "x" * (1 << 20) + '"}', None, "too large")]
            for text, config, said in rows:
                with self.subTest(text[:40], config=config):
                    if config is not None:
                        (bundle / "config.json").write_text(config)
                    done = subprocess.run([*RUN, HOOK, "create-symlinks", "--link", "a::/b"], input=text, capture_output=True,
                                          text=True, timeout=20)
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                    self.assertIn(said, done.stderr)


@unittest.skipIf(os.geteuid() != 0, "mount namespaces and chroot need root")
@unittest.skipUnless(SOURCE, "libjansson is not where Debian has it")
@unittest.skipIf(RUN != ["env"], "the tests' libraries are of another architecture")
class Roots(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="alq-hook-"))
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.root, self.host = self.top / "rootfs", self.top / "host"
        self.host.mkdir()
        for name in ("etc/ld.so.conf.d", "proc", LIB[1:]):
            (self.root / name).mkdir(parents=True)
        (self.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        (self.root / "etc/ld.so.cache").write_text("")
        shutil.copy(SOURCE, self.root / LIB[1:])
        (self.top / "config.json").write_text(json.dumps({"root": {"path": "rootfs"}}))
        self.secret = self.host / "secret"
        self.secret.write_text("host\n")

    def hook(self, *args, before="", after="", status=0, prefix=(), env=None):
        """stderr of a call between two pieces of shell, all in one mount namespace."""
        script = f'set -e; {before}\nif "$@" <&3; then rc=0; else rc=$?; fi\n{after}\nexit $rc'
        state = self.top / "state"
        state.write_text(json.dumps({"ociVersion": "1.0.2", "id": "x", "pid": 1, "bundle": str(self.top)}))
        with open(state, "rb") as file:
            done = subprocess.run(["unshare", "--mount", "sh", "-c", f"exec 3<{state}; {script}", "sh", *prefix, HOOK, *args],
                                  stdin=file, capture_output=True, text=True, timeout=60, env=env,
                                  cwd=self.root)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertLessEqual(done.stderr.count("\n"), 1 if status or done.stderr else 0, done.stderr)
        self.said = done.stdout
        return done.stderr

    def cached(self):
        """SONAME -> path of the root's cache."""
        out = subprocess.run(["/sbin/ldconfig", "-C", self.root / "etc/ld.so.cache", "-p"], capture_output=True, text=True).stdout
        return dict(re.findall(r"^\t(\S+) .* => (\S+)$", out, re.M))

    def links(self):
        return {p.name: os.readlink(p) for p in (self.root / LIB[1:]).iterdir() if p.is_symlink()}

    def tree(self):
        out = {}
        for directory, names, files in os.walk(self.root):
            for name in names + files:
                path = os.path.join(directory, name)
                out[path] = os.lstat(path).st_ino, os.lstat(path).st_mtime_ns if not path.endswith(("cache", "/etc")) else 0
        return {k: v for k, v in out.items() if "ld.so.cache" not in k and "aux-cache" not in k}

    def is_host_untouched(self):
        self.assertEqual(self.secret.read_text(), "host\n")
        self.assertEqual(sorted(os.listdir(self.host)), ["secret"])

    # ---- update-ldcache

    def test_cache_holds_the_folder_and_later_ldconfigs_keep_it(self):
        (self.root / "opt/driver").mkdir(parents=True)
        os.rename(self.root / LIB[1:] / SOURCE.name, self.root / "opt/driver" / SOURCE.name)
        self.assertEqual(self.hook("update-ldcache", "--folder", "/opt/driver"), "")
        self.assertEqual(self.cached(), {"libjansson.so.4": "/opt/driver/libjansson.so.4"})
        self.assertEqual((self.root / "etc/ld.so.conf.d/00-aliquot.conf").read_text(), "/opt/driver\n")
        subprocess.run(["/sbin/ldconfig", "-r", self.root], check=True)
        self.assertIn("libjansson.so.4", self.cached())

    def test_second_call_changes_nothing(self):
        self.hook("update-ldcache", "--folder", LIB)
        before = {k: v[0] for k, v in self.tree().items()}
        self.hook("update-ldcache", "--folder", LIB)
        self.assertEqual({k: v[0] for k, v in self.tree().items()}, before)
        self.hook("update-ldcache", "--folder", LIB, "/opt/more")
        self.assertEqual((self.root / "etc/ld.so.conf.d/00-aliquot.conf").read_text(), f"{LIB}\n/opt/more\n")

    def test_without_a_cache_links_by_soname(self):
        os.unlink(self.root / "etc/ld.so.cache")
        self.assertEqual(self.hook("update-ldcache", "--folder", LIB), "")
        self.assertEqual(self.links(), {"libjansson.so.4": SOURCE.name})
        self.assertEqual(os.listdir(self.root / "etc/ld.so.conf.d"), [])
        self.assertFalse((self.root / "etc/ld.so.cache").exists())

    def fake_ldconfig(self, path):
        path.parent.mkdir(exist_ok=True)
        (self.top / "fake.c").write_text(FAKE_LDCONFIG)
        subprocess.run(["gcc", "-static", "-O1", "-o", path, self.top / "fake.c"], check=True)

    def test_without_the_hosts_ldconfig_links_by_soname(self):
        """None at all, a script as Ubuntu's, and one that would take the container's loader."""
        self.fake_ldconfig(self.root / "lib64/ld-linux-x86-64.so.2")
        for name, program in (("none", None), ("script", b"#!/bin/sh\n"), ("dynamic", pathlib.Path("/bin/true").read_bytes())):
            with self.subTest(name):
                fake = self.top / "sbin"
                fake.mkdir(exist_ok=True)
                if program:
                    (fake / "ldconfig").write_bytes(program)
                    (fake / "ldconfig").chmod(0o755)
                self.assertEqual(self.hook("update-ldcache", "--folder", LIB, before=f"mount --bind {fake} /usr/sbin"), "")
                self.assertEqual(self.links(), {"libjansson.so.4": SOURCE.name})
                self.assertFalse((self.root / "seen").exists(), "the container's loader ran")
                os.unlink(self.root / LIB[1:] / "libjansson.so.4")

    def test_ldconfig_that_fails_is_told_of_in_one_line(self):
        fake = self.top / "sbin/ldconfig"
        fake.parent.mkdir()
        (self.top / "fake.c").write_text("int main(void) { return 3; }")
        subprocess.run(["gcc", "-static", "-o", fake, self.top / "fake.c"], check=True)
        broken = bytearray(fake.read_bytes())
        at = int.from_bytes(broken[0x20:0x28], "little")
        broken[at + 40:at + 48] = b"\0" * 8  # the memory size of the first segment
        for data, line in ((fake.read_bytes(), "exit status 3; links by SONAME instead"),
                           (broken, "ended by signal 11; links by SONAME instead")):
            fake.write_bytes(data)
            said = self.hook("update-ldcache", "--folder", LIB, before=f"mount --bind {fake.parent} /usr/sbin")
            self.assertTrue(said.startswith(f"aliquot-hook: ldconfig: {line}"), said)
            self.assertEqual(self.links(), {"libjansson.so.4": SOURCE.name})

    def test_on_musl_links_by_soname(self):
        (self.root / "lib").mkdir()
        (self.root / "lib/ld-musl-x86_64.so.1").write_text("")
        self.hook("update-ldcache", "--folder", LIB)
        self.assertEqual((self.root / "etc/ld.so.cache").read_text(), "")
        self.assertEqual(self.links(), {"libjansson.so.4": SOURCE.name})

    def test_read_only_root_gets_its_cache_by_a_mount(self):
        os.symlink(SOURCE.name, self.root / LIB[1:] / "libjansson.so.4")
        cache = self.root / "etc/ld.so.cache"
        before = self.tree()
        said = self.hook("update-ldcache", "--folder", LIB, before=READ_ONLY.format(root=self.root),
                         after=f"/sbin/ldconfig -C {cache} -p; (echo x >{cache}) 2>&1 || true; grep -c '{self.root}/' /proc/self/mountinfo")
        self.assertEqual(said, "")
        self.assertIn(f"=> {LIB}/libjansson.so.4", self.said)
        self.assertIn("Read-only file system\n1\n", self.said)
        self.assertEqual(self.tree(), before)
        self.assertEqual(cache.read_text(), "")

    def test_read_only_root_that_lacks_a_link_by_soname_is_named(self):
        (self.root / "etc/ld.so.cache").unlink()
        said = self.hook("update-ldcache", "--folder", LIB, before=READ_ONLY.format(root=self.root), status=1)
        self.assertIn("libjansson.so.4: link by the SONAME: read-only file system", said)
        os.symlink(SOURCE.name, self.root / LIB[1:] / "libjansson.so.4")
        self.assertEqual(self.hook("update-ldcache", "--folder", LIB, before=READ_ONLY.format(root=self.root)), "")

    def test_links_of_a_read_only_root_are_left_out_with_a_line(self):
        said = self.hook("create-symlinks", "--link", f"libcuda.so.1::{LIB}/libcuda.so", before=READ_ONLY.format(root=self.root))
        self.assertIn(f"{LIB}/libcuda.so: link not made: the root is read-only", said)

    def test_what_is_mounted_has_the_containers_label(self):
        label = "system_u:object_r:container_file_t:s0:c1,c2"
        (self.top / "config.json").write_text(json.dumps({"root": {"path": "rootfs"}, "linux": {"mountLabel": label}}))
        params = self.root / "proc/driver/nvidia/params"
        params.parent.mkdir(parents=True)
        params.write_text("ModifyDeviceFiles: 1\n")
        code = f"import os; print(os.getxattr('{params}', 'security.selinux').rstrip(b'\\0').decode())"
        self.hook("disable-device-node-modification", after=f'/usr/bin/python3 -c "{code}"')
        self.assertEqual(self.said, label + "\n")

    def test_containers_ldconfig_is_never_run(self):
        for directory in ("sbin", "usr/sbin"):
            (self.root / directory).mkdir(parents=True)
            for name in ("ldconfig", "ldconfig.real"):
                (self.root / directory / name).write_text(f"#!/bin/sh\necho run >{self.host}/ran\necho run >/ran\n")
                (self.root / directory / name).chmod(0o755)
        self.hook("update-ldcache", "--folder", LIB)
        self.assertIn("libjansson.so.4", self.cached())
        self.assertFalse((self.root / "ran").exists())
        self.is_host_untouched()

    def test_ldconfig_is_given_neither_environment_nor_rights_nor_proc(self):
        """A program in the place of the host's ldconfig writes down what it finds."""
        fake = self.top / "sbin"
        self.fake_ldconfig(fake / "ldconfig")
        os.mknod(self.root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        env = [f"LD_PRELOAD={self.root}/x.so", f"LD_LIBRARY_PATH={self.root}", f"PATH={self.root}", "GLIBC_TUNABLES=x=y"]
        self.hook("update-ldcache", "--folder", LIB, "/opt/b", prefix=["/usr/bin/env", "-i", *env],
                  before=f"mount --bind /proc {self.root}/proc; mount --bind {fake} /usr/sbin")
        self.assertEqual((self.root / "seen").read_text().split(),
                         ["ldconfig", "-C", "/proc/ld.so.cache", "-f", "/proc/ld.so.conf",
                          "environment:0", "descriptors:3", "no_new_privs:1", "capabilities:2", "proc:0", "devices:0"])

    # ---- roots that mean harm

    def test_links_out_of_the_root_lead_nowhere(self):
        """/etc and the folder as links: absolute, relative, and through a process of the host."""
        for target in (str(self.host), "../host", "/proc/1/root" + str(self.host), "/proc/self/cwd/../host"):
            for what in ("etc", "etc/ld.so.conf.d", LIB[1:]):
                with self.subTest(what, target=target):
                    path = self.root / what
                    moved = path.with_name("moved")
                    os.rename(path, moved)
                    os.symlink(target, path)
                    for args in (["update-ldcache", "--folder", LIB], ["create-symlinks", "--link", f"x::/{what}/planted"]):
                        subprocess.run(["unshare", "--mount", "sh", "-c", f"mount --bind /proc {self.root}/proc; exec \"$@\"", "sh", HOOK, *args],
                                       input=json.dumps({"bundle": str(self.top)}), capture_output=True, text=True, timeout=30)
                    self.is_host_untouched()
                    os.unlink(path)
                    os.rename(moved, path)

    def test_links_in_the_configuration_lead_nowhere(self):
        conf = self.root / "etc/ld.so.conf.d"
        os.symlink(self.secret, conf / "00-aliquot.conf")
        os.symlink("/proc/1/root" + str(self.secret), self.root / "etc/ld.so.cache~")
        (self.root / "var/cache/ldconfig").mkdir(parents=True)
        os.symlink(self.secret, self.root / "var/cache/ldconfig/aux-cache~")
        self.hook("update-ldcache", "--folder", LIB, before=f"mount --bind /proc {self.root}/proc")
        self.is_host_untouched()
        self.assertEqual((conf / "00-aliquot.conf").read_text(), LIB + "\n")
        self.assertIn("libjansson.so.4", self.cached())

    def test_hard_links_to_files_of_the_host_are_not_written_through(self):
        (self.root / "var/cache/ldconfig").mkdir(parents=True)
        for name in ("etc/ld.so.cache", "etc/ld.so.cache~", "etc/ld.so.conf.d/00-aliquot.conf", "etc/ld.so.conf.d/zz-aliquot.conf",
                     "etc/ld.so.conf.d/.aliquot-hook.new", "var/cache/ldconfig/aux-cache", "var/cache/ldconfig/aux-cache~",
                     LIB[1:] + "/libcuda.so"):
            path = self.root / name
            if path.exists():
                path.unlink()
            os.link(self.secret, path)
        self.hook("update-ldcache", "--folder", LIB)
        self.hook("create-symlinks", "--link", f"libcuda.so.1::{LIB}/libcuda.so")
        self.is_host_untouched()
        self.assertIn("libjansson.so.4", self.cached())
        self.assertEqual(self.links()["libcuda.so"], "libcuda.so.1")

    def test_fifos_and_directories_in_the_places_of_files_hold_nothing_up(self):
        places = ("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d/00-aliquot.conf", "etc/ld.so.cache~", LIB[1:] + "/libx.so.1", "etc/ld.so.conf.d")
        for make in (os.mkfifo, os.mkdir):
            for place in places:
                with self.subTest(place, make=make.__name__):
                    path = self.root / place
                    moved = path.with_name("moved")
                    if path.exists():
                        os.rename(path, moved)
                    make(path)
                    done = subprocess.run([HOOK, "update-ldcache", "--folder", LIB], input=json.dumps({"bundle": str(self.top)}),
                                          capture_output=True, text=True, timeout=15)
                    self.assertIn(done.returncode, (0, 1))
                    self.assertLessEqual(done.stderr.count("\n"), 1 + done.returncode, done.stderr)
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink(missing_ok=True)  # the hook itself removes what a broken ldconfig left
                    if moved.exists():
                        os.rename(moved, path)

    def test_fifos_that_ldconfig_opens_hold_it_for_seconds(self):
        """In an include, and behind a link in a folder of libraries; ldconfig itself would wait for ever."""
        os.mkfifo(self.root / "etc/ld.so.conf.d/b.conf")
        os.mkfifo(self.root / "etc/fifo")
        said = "aliquot-hook: ldconfig: held up by what is no file; links by SONAME instead\n"
        self.assertEqual(self.hook("update-ldcache", "--folder", LIB), said)
        self.assertEqual(self.links(), {"libjansson.so.4": SOURCE.name})
        os.unlink(self.root / "etc/ld.so.conf.d/b.conf")
        os.symlink("/etc/fifo", self.root / LIB[1:] / "libx.so.1")
        self.assertEqual(self.hook("update-ldcache", "--folder", LIB), said)

    def test_kernel_that_refuses_what_ldconfig_needs_is_named(self):
        """Executable memory (vm.memfd_noexec), running it (a filter, a security module), a tmpfs (Linux before 5.2)."""
        for name, errno, said in (("memfd_create", EACCES, "memory to run it from, links by SONAME instead: permission denied"),
                                  ("execveat", EACCES, "not run, links by SONAME instead: permission denied"),
                                  ("execveat", ENOEXEC, "not run, links by SONAME instead: not a program that runs by itself"),
                                  ("fsopen", ENOSYS, "no place for its files, links by SONAME instead: not known to this kernel")):
            with self.subTest(name, errno=errno):
                prefix = ["/usr/bin/python3", "-c", WITHOUT_CALL.format(nr=NR[name], errno=errno)]
                self.assertEqual(self.hook("update-ldcache", "--folder", LIB, prefix=prefix), f"aliquot-hook: ldconfig: {said}\n")
                self.assertEqual(self.links(), {"libjansson.so.4": SOURCE.name})
                os.unlink(self.root / LIB[1:] / "libjansson.so.4")

    def test_device_nodes_are_not_opened(self):
        """Number 10:130 is a watchdog: opening it starts it. 4095:1 is nobody's; its open would give an error."""
        for name in ("etc/ld.so.conf.d/00-aliquot.conf", LIB[1:] + "/libx.so.1"):
            os.mknod(self.root / name, stat.S_IFCHR | 0o666, os.makedev(4095, 1))
        self.assertEqual(self.hook("update-ldcache", "--folder", LIB), "")
        self.assertEqual((self.root / "etc/ld.so.conf.d/00-aliquot.conf").read_text(), LIB + "\n")

    def test_mounts_in_the_places_of_files_stay(self):
        target = self.root / LIB[1:] / "libcuda.so"
        target.write_text("mount point")
        bind = f"mount --bind {self.secret} {target}; "
        self.hook("create-symlinks", "--link", f"libcuda.so.1::{LIB}/libcuda.so", before=bind, after=f"cat {target}")
        self.assertEqual(self.said, "host\n")
        cache = self.root / "etc/ld.so.cache"
        said = self.hook("update-ldcache", "--folder", LIB, before=f"mount --bind {self.secret} {cache}; ")
        self.assertIn("links by SONAME instead", said)
        self.assertEqual(self.links()["libjansson.so.4"], SOURCE.name)
        self.is_host_untouched()

    def test_huge_names_and_loops_are_errors_or_nothing(self):
        os.symlink("loop", self.root / "loop")
        for path in ("/" + "x" * 300, "/" + "y/" * 2500, "/loop"):
            with self.subTest(path[:20]):
                self.hook("create-symlinks", "--link", f"a::{path}/b", status=1)
        (self.root / LIB[1:] / ("lib" + "z" * 240 + ".so.1")).write_bytes(SOURCE.read_bytes())
        self.hook("update-ldcache", "--folder", LIB)
        self.is_host_untouched()

    def test_directories_swapped_meanwhile_lead_nowhere(self):
        """A neighbour that shares a volume has /vol/lib be a directory, then a link to the host, by turns."""
        volume = self.root / "vol"
        (volume / "dir").mkdir(parents=True)
        shutil.copy(SOURCE, volume / "dir")
        os.symlink(self.host, volume / "link")
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                for name in ("dir", "link"):
                    try:
                        os.rename(volume / name, volume / "lib")
                        os.rename(volume / "lib", volume / name)
                    except OSError:
                        pass
        thread = threading.Thread(target=swap)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(stop.set)
        state = json.dumps({"bundle": str(self.top)})
        (self.root / "etc/ld.so.cache").unlink()
        for i in range(150):
            args = (["update-ldcache", "--folder", "/vol/lib"], ["create-symlinks", "--link", "x::/vol/lib/a/planted"])[i % 2]
            subprocess.run([HOOK, *args], input=state, capture_output=True, text=True, timeout=15)
        self.is_host_untouched()

    def test_where_openat2_is_refused_the_walk_does_the_same(self):
        for errno in (ENOSYS, EPERM):
            with self.subTest(errno):
                code = WITHOUT_CALL.format(nr=NR["openat2"], errno=errno)
                prefix = ["/usr/bin/python3", "-c", code]
                self.hook("create-symlinks", "--link", f"t{errno}::/a/b/c", prefix=prefix)
                self.assertEqual(os.readlink(self.root / "a/b/c"), f"t{errno}")
                self.hook("update-ldcache", "--folder", LIB, prefix=prefix)
                self.assertIn("libjansson.so.4", self.cached())
                for name in ("00-aliquot.conf", "zz-aliquot.conf"):
                    os.unlink(self.root / "etc/ld.so.conf.d" / name)
        os.symlink("../host", self.root / "out")
        self.hook("create-symlinks", "--link", "x::/out/planted", prefix=["/usr/bin/python3", "-c", code], status=1)
        self.is_host_untouched()

    def test_root_of_the_host_is_left_alone(self):
        (self.top / "config.json").write_text(json.dumps({"root": {"path": "/"}}))
        self.assertEqual(self.hook("create-symlinks", "--link", f"x::{self.host}/planted"), "")
        self.is_host_untouched()

    # ---- create-symlinks

    def test_links_are_made_and_right_ones_left_alone(self):
        links = ["--link", f"libcuda.so.1::{LIB}/libcuda.so", "--link", "../card0::/dev/dri/by-path/pci-0000:65:00.0-card"]
        self.hook("create-symlinks", *links)
        path = self.root / LIB[1:] / "libcuda.so"
        before = path.lstat()
        self.assertEqual(os.readlink(path), "libcuda.so.1")
        self.assertEqual(os.readlink(self.root / "dev/dri/by-path/pci-0000:65:00.0-card"), "../card0")
        self.hook("create-symlinks", *links)
        self.assertEqual((path.lstat().st_ino, path.lstat().st_mtime_ns), (before.st_ino, before.st_mtime_ns))

    def test_wrong_links_are_errors_that_name_them(self):
        for link in ("x", "::/x", "a::", "a::b", "a::/", "a::/x/", "a::/x/..", "a::/x/../y"):
            with self.subTest(link):
                self.assertRegex(self.hook("create-symlinks", "--link", link, status=1), r"^aliquot-hook: (a::|x|::|/)")

    def test_folders_that_would_be_other_lines_are_refused(self):
        for folder in ("relative", "/a b", "/a\n/etc", "/a#b", "/a:b"):
            with self.subTest(folder):
                self.assertIn("--folder wants", self.hook("update-ldcache", "--folder", folder, status=1))

    # ---- disable-device-node-modification

    def test_params_say_0_and_the_rest_stays(self):
        params = self.root / "proc/driver/nvidia/params"
        params.parent.mkdir(parents=True)
        (params.parent / "version").write_text("550\n")
        text = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
        params.write_text(text)
        for without in ([], ["/usr/bin/python3", "-c", WITHOUT_CALL.format(nr=NR["openat2"], errno=ENOSYS)]):
            self.hook("disable-device-node-modification", prefix=without,
                      after=f"cat {params}; ls {params.parent}; (echo x >{params}) 2>&1 || true; grep -c {self.root} /proc/self/mountinfo")
            lines = self.said.splitlines()
            self.assertEqual(lines[:5], text.replace("Files: 1", "Files: 0").splitlines() + ["params", "version"])
            self.assertIn("Read-only file system", lines[5])
            self.assertEqual(lines[6], "1", "one mount and no other is left")
        self.assertEqual(params.read_text(), text)

    def test_params_that_forbid_or_are_not_there_are_left_alone(self):
        self.assertEqual(self.hook("disable-device-node-modification", after="grep -c rootfs /proc/self/mountinfo || true"), "")
        params = self.root / "proc/driver/nvidia/params"
        params.parent.mkdir(parents=True)
        params.write_text("ModifyDeviceFiles: 0\n")
        self.assertEqual(self.hook("disable-device-node-modification", after=f"grep -c {self.root} /proc/self/mountinfo || true"), "")
        self.assertEqual(self.said, "0\n")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""A CUDA program in images of several distributions' layouts, with nothing but the CDI spec of a claim: it runs and sees
its share, whoever it runs as. The runtimes are the real ones; the driver is the simulated one."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "sandbox"))
import image_roots  # noqa: E402
import runtime  # noqa: E402
from daemon_world import BUILD, World, need_daemon, result  # noqa: E402

TIMEOUT_S = 300
HOOK = BUILD / "src/hook/aliquot-hook"
PROGRAM = BUILD / "demo/alq-demo-report"
GLIBC = ["debian", "ubuntu", "ubi", "distroless"]
SHARE_BYTES = 4 << 30
USERNS_FIRST = 100000


class InUserNamespace:
    """Mixed into a runtime: user 0 of the container is USERNS_FIRST on the host, and the root is his."""

    def config(self, name, spec, root):
        config = super().config(name, spec, root)
        config["linux"]["namespaces"].append({"type": "user"})
        for kind in ("uidMappings", "gidMappings"):
            config["linux"][kind] = [{"containerID": 0, "hostID": USERNS_FIRST, "size": 65536}]
        for mount in config["mounts"]:  # what is mounted for a group that the namespace lacks
            mount["options"] = [o for o in mount.get("options", []) if not o.startswith("gid=")]
        return config

    def view(self, directory):
        root = super().view(directory)
        subprocess.run(["chown", "-R", f"{USERNS_FIRST}:{USERNS_FIRST}", root], check=True)
        for path in (directory, os.path.dirname(directory)):
            os.chmod(path, 0o755)
        return root


def private_dev(nodes):
    """A tmpfs over /dev of this mount namespace, with the simulated nodes. In a user namespace runtimes bind the host's
    node of the same path, whatever the spec's hostPath says; and crun gives its standard input, /dev/null, to the
    container's root. /dev/shm stays: the world lies there."""
    wanted = {f"/dev/{name}": os.stat(f"/dev/{name}").st_rdev for name in ("null", "zero", "full", "random", "urandom", "tty")}
    wanted.update({n["path"]: os.stat(n.get("hostPath", n["path"])).st_rdev for n in nodes})
    held = tempfile.mkdtemp(prefix="alq-shm-")
    subprocess.run(["mount", "--bind", "/dev/shm", held], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "dev", "/dev"], check=True)
    os.mkdir("/dev/shm")
    subprocess.run(["mount", "--move", held, "/dev/shm"], check=True)
    os.rmdir(held)
    for path, number in wanted.items():
        os.mknod(path, 0o666 | stat.S_IFCHR, number)
        os.chmod(path, 0o666)
    os.symlink("/proc/self/fd", "/dev/fd")


class UserNamespaceRunc(InUserNamespace, runtime.OciRuntime):
    pass


class UserNamespaceCrun(InUserNamespace, runtime.Crun):
    pass


def setUpModule():
    need_daemon()
    if os.geteuid() != 0:
        raise unittest.SkipTest("containers need root")
    if not (HOOK.exists() and PROGRAM.exists()):
        raise unittest.SkipTest(f"{HOOK} or {PROGRAM} is not built")
    try:
        runtime.enter_namespace()
    except OSError as error:
        raise unittest.SkipTest(f"no mount namespace: {error}") from None


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(gpus=1)
        cls.addClassCleanup(cls.world.close)
        os.chmod(cls.world.root, 0o755)
        mounts = [{"hostPath": cls.world.path("sim"), "containerPath": "/run/simgpu", "options": ["rw", "bind"]}]
        with open(cls.world.path("aliquotd.yaml"), "w", encoding="utf-8") as file:
            json.dump({"contextEstimate": "320Mi", "extraMounts": mounts}, file)
        cls.world.start(config=cls.world.path("aliquotd.yaml"), library=BUILD / "src/vgpu/libvgpu.so", hook=HOOK)
        claim = cls.world.claim("images", [result(memory="4Gi")])
        peer = cls.world.peer()
        prepared = peer.prepare(claim)[claim[2]]
        peer.close()
        assert not prepared.error, prepared.error
        cls.cdi = [i for d in prepared.devices for i in d.cdi_device_ids]
        cls.spec = cls.world.spec(claim[2])
        cls.count = 0
        shutil.copy(PROGRAM, cls.world.path("report"))

    def image(self, name):
        try:
            return image_roots.make(name, BUILD / "roots/images")
        except image_roots.ImageError as error:
            self.skipTest(str(error))

    def container(self, image, args, kind=runtime.OciRuntime, **more):
        """(exit code, output) of a container with the claim's devices; look(root) is called when it has ended."""
        if shutil.which(kind.program) is None:
            self.skipTest(f"{kind.program} is not installed")
        look = more.pop("look", lambda root: None)
        type(self).count += 1
        name = f"alq-image-{os.getpid()}-{self.count}"
        oci = kind(self.world.path(f"oci-{kind.__name__}-{image}"), str(self.image(image)), self.world.path("cdi"))
        log = self.world.path(name)
        # A file that runc makes in the root for a mount would need an existing root for it: /report is one of its kind.
        spec = {"args": args, "env": [], "log": log, "cdi": self.cdi, "binds": [(self.world.path("report"), "/report", ["ro"])], **more}
        try:
            container = oci.start(name, spec)
        except runtime.RuntimeFailure as error:
            self.fail(f"{image}: {error}\n{pathlib.Path(log).read_text()}")
        try:
            code = container.wait(60)
            look(pathlib.Path(container.directory, "rootfs"))
        finally:
            container.remove()
        return code, pathlib.Path(log).read_text()

    def sees_its_share(self, image, kind=runtime.OciRuntime, **more):
        code, said = self.container(image, ["/report"], kind, **more)
        self.assertEqual(code, 0, f"{image}: {said}")
        totals = {int(n) for n in re.findall(r"total\w*=(\d+)", said)}
        self.assertEqual(totals, {SHARE_BYTES}, f"{image}: {said}")

    def each(self, images, *args, **more):
        for image in images:
            with self.subTest(image):
                self.sees_its_share(image, *args, **more)

    def test_program_sees_its_share(self):
        self.each(GLIBC)

    def test_program_sees_its_share_under_crun(self):
        self.each(GLIBC, runtime.Crun)

    def test_program_sees_its_share_as_a_user(self):
        self.each(GLIBC, uid=1000, gid=1000)

    def test_program_sees_its_share_in_a_read_only_root(self):
        for kind in (runtime.OciRuntime, runtime.Crun):
            with self.subTest(kind.program):
                self.each(GLIBC, kind, read_only=True)

    def test_program_sees_its_share_in_a_user_namespace(self):
        edits = [self.spec["containerEdits"], *(d["containerEdits"] for d in self.spec["devices"])]
        private_dev([n for e in edits for n in e["deviceNodes"]])
        self.addCleanup(subprocess.run, ["umount", "-R", "-l", "/dev"], check=True)
        for kind in (UserNamespaceRunc, UserNamespaceCrun):
            with self.subTest(kind.program):
                self.each(["debian", "ubi", "distroless"], kind)

    def test_spec_has_the_hook_by_its_installed_name(self):
        hooks = self.spec["containerEdits"]["hooks"]
        self.assertIn("update-ldcache", [h["args"][1] for h in hooks])
        for hook in hooks:
            self.assertEqual(os.path.dirname(hook["path"]), self.world.path("lib"))
            self.assertEqual(pathlib.Path(hook["path"]).read_bytes(), HOOK.read_bytes())

    def test_alpine_is_unharmed(self):
        code, said = self.container("alpine", ["/bin/alive"])
        self.assertEqual((code, said), (0, "alive\n"))

    def test_cache_or_links_lead_to_the_driver_and_the_images_ldconfig_never_ran(self):
        for image in ("debian", "ubuntu", "ubi", "distroless"):
            with self.subTest(image):
                def look(root):
                    self.assertFalse((root / "ldconfig-ran").exists())
                    cache = root / "etc/ld.so.cache"
                    if image == "distroless":
                        self.assertFalse(cache.exists())
                        return
                    text = subprocess.run(["/sbin/ldconfig", "-C", cache, "-p"], capture_output=True, text=True).stdout
                    for name in ("libcuda.so.1", "libc.so.6"):
                        self.assertRegex(text, rf"\t{re.escape(name)} ")
                self.container(image, ["/report"], look=look)


if __name__ == "__main__":
    unittest.main()

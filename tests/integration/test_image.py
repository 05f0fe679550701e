# SPDX-License-Identifier: Apache-2.0
"""The container image: an archive by the book and the same each time, nothing in it that is not needed, everything that is: the
daemon runs from it, in it alone, and prepares a claim."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from daemon_world import BUILD, REPO, World, need_daemon, result, wait_for

sys.path.insert(0, str(REPO / "tools/image"))
import make as tool  # noqa: E402
import root as contents  # noqa: E402

MAKE = [sys.executable, REPO / "tools/image/make.py", "--build", BUILD]
PROGRAMS = {"usr/sbin/aliquotd", "usr/libexec/aliquot/aliquotd-nvml", "usr/libexec/aliquot/aliquot-hook",
            "usr/bin/aliquot"}


def setUpModule():
    need_daemon()
    if shutil.which("dpkg-query") is None:
        raise unittest.SkipTest("the image is made of Debian packages, and this is no Debian")


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="alq-image-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.env = dict(os.environ, SOURCE_DATE_EPOCH="1700000000", REVISION="0123456789abcdef")
        subprocess.run([*MAKE, "--out", cls.dir], check=True, env=cls.env, stdout=subprocess.DEVNULL)
        with tarfile.open(cls.dir / "aliquot.tar") as tar:
            cls.members = tar.getmembers()
            cls.files = {m.name: tar.extractfile(m).read() for m in cls.members}
        cls.manifest = cls.blob(json.loads(cls.files["index.json"])["manifests"][0])
        cls.config = cls.blob(cls.manifest["config"])
        cls.layer = gzip.decompress(cls.files[cls.path_of(cls.manifest["layers"][0])])
        cls.entries = {m.name: m for m in tarfile.open(fileobj=io.BytesIO(cls.layer))}

    @staticmethod
    def path_of(descriptor):
        return "blobs/" + descriptor["digest"].replace(":", "/")

    @classmethod
    def blob(cls, descriptor):
        return json.loads(cls.files[cls.path_of(descriptor)])

    def read(self, name):
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as tar:
            return tar.extractfile(name).read()

    # ---- the archive

    def test_archive_is_a_layout_whose_digests_and_sizes_hold(self):
        self.assertEqual(json.loads(self.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        descriptors = [json.loads(self.files["index.json"])["manifests"][0], self.manifest["config"], *self.manifest["layers"]]
        for d in descriptors:
            data = self.files[self.path_of(d)]
            self.assertEqual((d["digest"], d["size"]), ("sha256:" + hashlib.sha256(data).hexdigest(), len(data)))
        self.assertEqual(set(self.files), {"oci-layout", "index.json", *map(self.path_of, descriptors)})
        self.assertEqual(self.config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(self.layer).hexdigest()])

    def test_labels_name_version_revision_source_and_license(self):
        version = json.loads((BUILD / "meson-info/intro-projectinfo.json").read_text())["version"]
        labels = self.config["config"]["Labels"]
        self.assertEqual({k: labels[f"org.opencontainers.image.{k}"] for k in ("version", "revision", "licenses")},
                         {"version": version, "revision": "0123456789abcdef", "licenses": "Apache-2.0"})
        self.assertTrue(labels["org.opencontainers.image.source"].startswith("https://"))
        self.assertEqual(self.config["created"], "2023-11-14T22:13:20Z")
        self.assertEqual(json.loads(self.files["index.json"])["manifests"][0]["annotations"]["io.containerd.image.name"],
                         f"docker.io/library/aliquot:{version}")

    def test_second_image_is_the_same_to_the_byte(self):
        again = self.dir / "again"
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        again.mkdir(mode=0o777)
        again.chmod(0o777)
        self.dir.chmod(0o755)
        done = subprocess.run([*nobody, *MAKE, "--out", again], env=dict(self.env, TZ="Asia/Tokyo", LC_ALL="C", LD_PRELOAD=""),
                              capture_output=True, text=True, check=False, umask=0o077)
        if done.returncode and nobody and "Permission denied" in done.stderr:
            self.skipTest(f"another user than root cannot read the build: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("aliquot.tar", "aliquot.spdx.json"):
            self.assertTrue((again / name).read_bytes() == (self.dir / name).read_bytes(), f"{name} differs")

    def test_podman_loads_it_under_its_name(self):
        if os.geteuid() != 0 or shutil.which("podman") is None:
            self.skipTest("needs podman, and root")
        store = ["podman", "--root", self.dir / "store", "--runroot", self.dir / "run", "--storage-driver", "vfs"]
        done = subprocess.run([*store, "load", "-i", self.dir / "aliquot.tar"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"docker\.io/library/aliquot:\d")

    # ---- what is in it

    def test_programs_are_ours_and_the_loader_and_nothing_else(self):
        runs = {name for name, m in self.entries.items() if m.isfile() and m.mode & 0o111}
        loader = {name for name in runs if re.fullmatch(r"usr/lib/[^/]+/ld-linux\S+", name)}
        self.assertEqual(len(loader), 1)
        self.assertEqual(runs, PROGRAMS | loader)
        self.assertFalse([m.name for m in self.entries.values() if not (m.isfile() or m.issym() or m.isdir())])
        self.assertFalse([m.name for m in self.entries.values() if m.isfile() and m.mode & 0o6022])
        self.assertEqual({(m.uid, m.gid, m.uname, m.mtime) for m in self.entries.values()}, {(0, 0, "", 1700000000)})

    def test_every_library_that_is_needed_is_there_and_no_other(self):
        there = {pathlib.PurePath(n).name: n for n in self.entries if re.match(r"usr/lib(64)?/", n) and not self.entries[n].isdir()}
        names, todo = set(), [*PROGRAMS, "usr/libexec/aliquot/libvgpu.so", *(there[n] for n in contents.FOR_NVML)]
        with tempfile.TemporaryDirectory() as folder:
            while todo:
                path = pathlib.Path(folder, "elf")
                name = todo.pop()
                path.write_bytes(self.read(name))
                needed = re.findall(r"NEEDED.*\[(.*)\]", contents.run("readelf", "-d", path))
                for other in set(needed) - names:
                    self.assertIn(other, there, f"{name} needs it")
                    names.add(other)
                    todo.append(there[other])
        names |= {pathlib.PurePath(self.entries[there[n]].linkname).name for n in names if self.entries[there[n]].issym()}
        self.assertEqual(set(there) - names - set(contents.FOR_NVML), set())

    def test_unpacked_it_has_less_than_40_mib(self):
        blocks = sum(-(-m.size // 4096) + (not m.isfile()) for m in self.entries.values())
        self.assertLess(blocks * 4096, 40 << 20)

    def test_bill_of_materials_names_every_file_and_package(self):
        bill = (self.dir / "aliquot.spdx.json").read_bytes()
        self.assertEqual(self.read("usr/share/doc/aliquot/aliquot.spdx.json"), bill)
        document = json.loads(bill)
        self.assertEqual((document["spdxVersion"], document["dataLicense"]), ("SPDX-2.3", "CC0-1.0"))
        self.assertRegex(document["documentNamespace"], r"^https://\S+-[0-9a-f]{64}$")
        sums = {f["fileName"][2:]: {c["algorithm"]: c["checksumValue"] for c in f["checksums"]} for f in document["files"]}
        plain = {n for n, m in self.entries.items() if m.isfile()} - {"usr/share/doc/aliquot/aliquot.spdx.json"}
        self.assertEqual(set(sums), plain)
        for name in plain:
            data = self.read(name)
            self.assertEqual(sums[name], {"SHA1": hashlib.sha1(data).hexdigest(), "SHA256": hashlib.sha256(data).hexdigest()}, name)
        main = next(p for p in document["packages"] if p["SPDXID"] == "SPDXRef-Aliquot")
        joined = "".join(sorted(s["SHA1"] for s in sums.values()))
        self.assertEqual(main["packageVerificationCode"]["packageVerificationCodeValue"], hashlib.sha1(joined.encode()).hexdigest())
        ids = [e["SPDXID"] for e in (document, *document["packages"], *document["files"])]
        self.assertEqual(len(ids), len(set(ids)))
        for identity in ids:
            self.assertRegex(identity, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for r in document["relationships"]:
            self.assertIn(r["spdxElementId"], ids)
            self.assertIn(r["relatedSpdxElement"], ids)
        for p in document["packages"]:
            if p is not main:
                self.assertIn(f"usr/share/doc/{p['name']}/copyright", self.entries)
                self.assertTrue(p["externalRefs"][0]["referenceLocator"].startswith("pkg:deb/debian/"))

    def test_entry_point_and_settings_name_files_of_the_image(self):
        config = self.config["config"]
        settings = dict(e.split("=", 1) for e in config["Env"])
        for path in (*config["Entrypoint"], settings["ALIQUOT_LIBRARY"], settings["ALIQUOT_HOOK"]):
            self.assertTrue(self.entries[path[1:]].isfile(), path)

    # ---- mistakes

    def test_build_that_is_not_there_is_named(self):
        done = subprocess.run([*MAKE[:2], "--build", self.dir / "none", "--out", self.dir], capture_output=True, text=True, env=self.env, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^image: \S+/none/src/daemon/aliquotd is not built; run make first\n$")

    def test_name_and_time_that_are_none_are_named(self):
        for name, seconds, said in (("a:1.0", "0", "'a:1.0' is no name of an image"), ("A name", "0", "'A name' is no name of an image"),
                                    ("a", "soon", "SOURCE_DATE_EPOCH: soon is no number of seconds"),
                                    ("a", "99999999999", "SOURCE_DATE_EPOCH: 99999999999 is no number of seconds from 0 to 8589934591")):
            done = subprocess.run([*MAKE, "--out", self.dir / "none", "--name", name], capture_output=True, text=True, check=False,
                                  env=dict(self.env, SOURCE_DATE_EPOCH=seconds))
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stderr.startswith(f"image: {said}"), done.stderr)
        self.assertFalse((self.dir / "none").exists())


class Dockerfile(unittest.TestCase):
    """deploy/Dockerfile is read, not run: no registry is at hand. Its instructions are held against what make image does."""

    WORDS = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "ENTRYPOINT"}

    @classmethod
    def setUpClass(cls):
        text = (REPO / "deploy/Dockerfile").read_text()
        lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.M)).splitlines()
        cls.steps = [tuple(line.split(" ", 1)) for line in lines if line.strip()]
        cut = [i for i, (word, _) in enumerate(cls.steps) if word == "FROM"]
        cls.stages = [cls.steps[a:b] for a, b in zip(cut, [*cut[1:], None])]

    def of(self, stage, word):
        return [rest for w, rest in self.stages[stage] if w == word]

    @staticmethod
    def pairs(text):
        return dict(re.findall(r'(\S+?)="([^"]*)"', text))

    def test_instructions_are_known_and_stages_are_named_before_use(self):
        self.assertEqual({word for word, _ in self.steps} - self.WORDS, set())
        self.assertEqual(self.steps[0][0], "FROM")
        self.assertEqual(self.of(0, "FROM"), ["debian:12-slim AS build"])
        self.assertEqual(self.of(1, "FROM"), ["scratch"])
        self.assertEqual(self.of(1, "RUN"), [], "there is no shell in it")

    def test_what_is_run_is_in_the_tree_and_in_the_build(self):
        commands = list(map(json.loads, self.of(0, "RUN")))
        self.assertEqual([c[0] for c in commands], ["tools/setup.sh", "tools/build.sh", "tools/image/make.py"])
        for command in commands:
            self.assertTrue(os.access(REPO / command[0], os.X_OK), command[0])
        self.assertIn("[build]", (REPO / "tools/packages.txt").read_text())
        targets = commands[1][commands[1].index("--") + 1:]
        self.assertEqual(set(targets), set(contents.PROGRAMS))
        self.assertEqual(self.of(0, "COPY"), [". ."])
        ignored = (REPO / "deploy/Dockerfile.dockerignore").read_text().split()
        self.assertFalse({"tools", "src", "LICENSE", "meson.build"} & set(ignored))
        root = commands[2][commands[2].index("--root") + 1]
        self.assertEqual(self.of(1, "COPY"), [f"--from=build {root}/ /"])

    def test_image_is_the_one_of_make_image(self):
        project = json.loads((BUILD / "meson-info/intro-projectinfo.json").read_text())
        made = tool.config({"version": project["version"], "revision": "$REVISION", "source": tool.SOURCE,
                            "licenses": "Apache-2.0", "created": ""})
        del made["Labels"]["org.opencontainers.image.created"]
        self.assertEqual(self.pairs(self.of(1, "LABEL")[0]), made["Labels"])
        self.assertEqual(self.pairs(self.of(1, "ENV")[0]), dict(e.split("=", 1) for e in made["Env"]))
        self.assertEqual(json.loads(self.of(1, "ENTRYPOINT")[0]), made["Entrypoint"])
        self.assertEqual(self.of(1, "WORKDIR"), [made["WorkingDir"]])
        self.assertIn("REVISION=unknown", self.of(1, "ARG"))
        self.assertEqual({a.split("=")[0] for a in self.of(0, "ARG")}, {"REVISION", "SOURCE_DATE_EPOCH"})


class Inside(unittest.TestCase):
    """aliquotd with the image's root as its root, and of the host what a pod would mount."""

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            raise unittest.SkipTest("a root of its own needs root and a mount namespace")
        cls.world = World(gpus=1)
        cls.addClassCleanup(cls.world.close)
        cls.world.program = "/usr/sbin/aliquotd"
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="alq-root-")) / "root"
        cls.addClassCleanup(shutil.rmtree, cls.root.parent)
        made, _ = contents.assemble(BUILD)
        tool.write_root(made, cls.root)
        (cls.root / cls.world.root[1:]).mkdir(parents=True, exist_ok=True)
        cls.wrapper = cls.root.parent / "in-image"
        cls.wrapper.write_text(f"""#!/bin/sh -e
            for d in proc sys dev; do mount --rbind /$d {cls.root}/$d; done
            [ -d {cls.root}{cls.world.root}/run ] || mount --bind {cls.world.root} {cls.root}{cls.world.root}
            exec chroot {cls.root} "$@"\n""")
        cls.wrapper.chmod(0o755)

    def inside(self, *command):
        return subprocess.run(["unshare", "-m", self.wrapper, *command], capture_output=True, text=True, env={}, timeout=60, check=False)

    def test_tools_run(self):
        for command in (["/usr/sbin/aliquotd", "--version"], ["/usr/bin/aliquot", "version"]):
            done = self.inside(*command)
            self.assertIn("aliquot", done.stdout, done.stderr)
        self.assertEqual(self.inside("/bin/sh", "-c", "true").returncode, 127)

    def test_claim_is_prepared_with_library_and_hook_installed_on_the_host_by_content(self):
        world = self.world
        program = "/usr/libexec/aliquot"
        world.start(prefix=["unshare", "-m", self.wrapper], library=f"{program}/libvgpu.so", hook=f"{program}/aliquot-hook")
        claim = world.claim("inside", [result(memory="4Gi")])
        peer = world.peer()
        self.addCleanup(peer.close)
        prepared = peer.prepare(claim)[claim[2]]
        self.assertFalse(prepared.error)
        lib = pathlib.Path(world.path("lib"))
        installed = {p.name: p.read_bytes() for p in lib.iterdir()}
        for prefix, suffix, name in (("libvgpu-", ".so", "libvgpu.so"), ("aliquot-hook-", "", "aliquot-hook")):
            data = (self.root / program[1:] / name).read_bytes()
            self.assertEqual(installed[f"{prefix}{hashlib.sha256(data).hexdigest()[:32]}{suffix}"], data)
        spec = json.dumps(world.spec(claim[2]))
        for name in installed:
            self.assertIn(str(lib / name), spec)
        self.assertFalse(peer.unprepare(claim)[claim[2]].error)
        self.assertEqual(world.stop(), 0)
        wait_for("the registration socket to go", lambda: not os.path.exists(world.registration_socket))


if __name__ == "__main__":
    unittest.main()

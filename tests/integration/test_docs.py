# SPDX-License-Identifier: Apache-2.0
"""What the documents say about the tree is so: generated pages are current, links lead somewhere, every source is marked."""

import os
import pathlib
import re
import subprocess
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
FOLDERS = ("include", "src", "sim", "sandbox", "demo", "proto", "deploy", "tests", "bench", "tools", "docs")
SOURCES = {".c", ".h", ".S", ".py", ".sh", ".def", ".map", ".proto"}


def tree(*suffixes):
    for folder in FOLDERS:
        for path in (REPO / folder).rglob("*"):
            if path.is_file() and path.suffix in suffixes:
                yield path
    yield from (p for p in REPO.glob("*") if p.is_file() and p.suffix in suffixes)


class Documents(unittest.TestCase):
    def test_share_abi_page_is_what_the_header_gives(self):
        made = subprocess.run([REPO / "tools/share_abi.py"], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual((REPO / "docs/share-abi.md").read_text(), made, "run tools/share_abi.py >docs/share-abi.md")

    def test_share_abi_page_describes_every_struct_of_the_header(self):
        structs = set(re.findall(r"^struct (alq_\w+) \{", (REPO / "include/aliquot/share.h").read_text(), re.M))
        self.assertGreater(len(structs), 5)
        self.assertEqual(structs, set(re.findall(r"`struct (alq_\w+)`$", (REPO / "docs/share-abi.md").read_text(), re.M)))

    def test_settings_page_has_the_flags_of_aliquotd(self):
        daemon = BUILD / "src/daemon/aliquotd"
        if not daemon.exists():
            self.skipTest("aliquotd is not built")
        text = subprocess.run([daemon, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
        flags = {m[1]: (m[2], m[3] or "") for m in re.finditer(r"^  --([a-z-]+) +(.*?)(?: \[(.*)\])?$", text, re.M)
                 if m[1] not in ("config", "help")}
        page = {m[1]: (m[4], m[3]) for m in re.finditer(
            r"^\| `--([a-z-]+)` \| `(\w+)` \| (.*?) ?\| (.*) \|$", (REPO / "docs/configuration.md").read_text(), re.M)}
        self.assertGreater(len(flags), 15)
        self.assertEqual(flags, page)

    def test_health_page_has_the_classes_of_xids(self):
        table = re.findall(r'^XID\((\d+), (\d+), (\w+), "([^"]*)"\)', (REPO / "src/daemon/devices/xid.def").read_text(), re.M)
        rows = [(a if a == b else f"{a}-{b}", c.lower(), text) for a, b, c, text in table]
        self.assertGreater(len(rows), 40)
        self.assertEqual(rows, re.findall(r"^\| ([\d-]+) \| (\w+) \| (.*) \|$", (REPO / "docs/health.md").read_text(), re.M))
        numbers = [(int(a), int(b)) for a, b, _, _ in table]
        self.assertTrue(all(x[1] < y[0] for x, y in zip(numbers, numbers[1:])), "in order, none twice")

    def test_manual_pages_are_what_the_programs_say(self):
        for program, page in ("src/daemon/aliquotd", "docs/aliquotd.8"), ("src/cli/aliquot", "docs/aliquot.1"):
            if not (BUILD / program).exists():
                self.skipTest(f"{program} is not built")
            made = subprocess.run([REPO / "tools/man.py", BUILD / program], check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertEqual((REPO / page).read_text(), made, f"run tools/man.py build/{program} >{page}")

    def test_links_lead_to_files(self):
        dead = []
        for page in tree(".md"):
            for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                if "://" not in target and not (page.parent / target).exists():
                    dead.append(f"{page.relative_to(REPO)}: {target}")
        self.assertEqual(dead, [])

    def test_promises_of_security_name_tests_that_exist(self):
        rows = re.findall(r"^\| (.+) \| (`tests/.*) \|$", (REPO / "SECURITY.md").read_text(), re.M)
        self.assertGreater(len(rows), 20)
        for promise, named in rows:
            for path, name in re.findall(r"`(tests/[^`:]+)::(\w+)`", named):
                with self.subTest(promise=promise, test=name):
                    self.assertRegex((REPO / path).read_text(), rf"(?m)^\s*(def|static void) {name}\(")
            self.assertEqual(re.sub(r"`tests/[^`:]+::\w+`", "", named).strip(), "", promise)

    def test_every_top_folder_has_a_readme(self):
        self.assertEqual([f for f in FOLDERS if not (REPO / f / "README.md").is_file()], [])

    def test_every_source_names_its_licence(self):
        bare = [str(p.relative_to(REPO)) for p in tree(*SOURCES) if "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:400]]
        self.assertEqual(bare, [])

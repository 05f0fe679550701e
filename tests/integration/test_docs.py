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


PROGRAM = re.compile(r"(?: {4}|\t)\s*((?:make|apt-get|git|kubectl|helm|aliquotd?|podman|docker|ctr|ulimit|kind|systemctl|curl|meson|ninja|"
                     r"(?:tests|tools|demo|bench|deploy)/\S+|alq-\S+)(?: .*)?)$")


def commands():
    """(page, command, whether it is marked) of README.md and docs/; what follows two blanks is a comment."""
    for page in (REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))):
        for line in page.read_text().splitlines():
            found = PROGRAM.match(line)
            if found and not found[1].startswith("kind: "):
                yield page.name, re.split(r"  |\s#", found[1])[0].strip(), "not run here: " in line


class Commands(unittest.TestCase):
    """Every command of the documents is run by somebody, or says why not."""

    @classmethod
    def setUpClass(cls):
        rows = [line.split(" | ") for line in (REPO / "tests/doc_commands.txt").read_text().splitlines() if line and line[0] != "#"]
        cls.runners = dict(rows)
        assert len(cls.runners) == len(rows), "a command stands twice"

    def test_every_command_is_run_or_marked_and_they_are_counted(self):
        found = list(commands())
        nobody = [f"{page}: {command}" for page, command, is_marked in found if not is_marked and command not in self.runners]
        self.assertEqual(nobody, [], "name who runs them in tests/doc_commands.txt, or mark them \"not run here: reason\"")
        self.assertEqual(set(self.runners) - {command for _, command, is_marked in found if not is_marked}, set(), "rows of commands that are gone")
        marked = sum(is_marked for _, _, is_marked in found)
        count = f"{len(found)} commands: {len(found) - marked} are run by a test or by CI, {marked} are marked"
        self.assertTrue(count in (REPO / "docs/README.md").read_text(), f"docs/README.md has another count than: {count}")

    def test_who_runs_them_exists(self):
        for command, runner in self.runners.items():
            path, _, name = runner.partition("::")
            text = (REPO / path).read_text()
            if name:
                self.assertTrue(re.search(rf"(?m)^\s*def {name}\(", text), f"{command}: there is no {name} in {path}")
            else:
                self.assertTrue(command == "make" or command in text, f"{path} does not run {command}")

    def test_commands_for_suites_are_understood(self):
        said = subprocess.run([REPO / "tests/run.py", "--list", "--build", BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn("unit/base", said)


class Documents(unittest.TestCase):
    def test_errors_that_are_explained_are_errors_that_there_are(self):
        """Each text of docs/troubleshooting.md, its parts between "..." in this order, in a string of the sources."""
        sources = "".join(path.read_text() for folder in ("daemon", "cli", "alloc") for path in (REPO / "src" / folder).rglob("*.c"))
        strings = re.sub(r'"\s*\n\s*"', "", sources)
        strings = re.sub(r'"\s*PRI\w+\s*"', "", re.sub(r'"\s+PRI(\w+)\s+"', "", strings))
        missing, count = [], 0
        for text in re.findall(r"(?m)^\| `([^`]+)`", (REPO / "docs/troubleshooting.md").read_text()):
            if text.startswith("CUDA_ERROR"):
                continue
            count += 1
            parts = [re.escape(part.strip()) for part in text.split("...") if part.strip()]
            if not re.search(r'[^"\n]*'.join(parts), strings):
                missing.append(text)
        self.assertGreater(count, 25)
        self.assertEqual(missing, [])

    def test_files_and_functions_that_documents_name_exist(self):
        """Paths in backquotes, and on the walk of a claim the functions in the files beside them."""
        missing = []
        for page in sorted((REPO / "docs").glob("*.md")):
            for path in re.findall(r"`((?:src|tests|demo|sim|bench|tools|deploy|include)/[\w/.-]+)`", page.read_text()):
                if not (REPO / path).exists():
                    missing.append(f"{page.name}: {path}")
        for name, path in re.findall(r"`(\w+)` in `(src/[\w/.]+)`", (REPO / "docs/development.md").read_text()):
            if not re.search(rf"\b{name}\b", (REPO / path).read_text()):
                missing.append(f"{name} in {path}")
        self.assertEqual(missing, [])

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

# SPDX-License-Identifier: Apache-2.0
"""aliquot explain, doctor, help and completion: what became of claims and why, what is looked at on a node, and that every command
says the same in its help, its manual page and to shells."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import unittest
from shlex import quote

import daemon_world as dw
from daemon_world import BUILD, REPO, World, result, wait_for
from standalone_world import TOOL

TIMEOUT_S = 120
COMPLETION = REPO / "src/cli/completion"
LEVELS = ["error", "warning", "ok"]


def setUpModule():
    dw.need_daemon()


def tool(*args, path=os.environ["PATH"], **env):
    done = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=30, check=False, env={"PATH": path, **env})
    return done.returncode, done.stdout, done.stderr


def reserved(world, claim, *pods):
    """Writes who a claim is for, as the scheduler does."""
    obj = world.api.store.get(dw.CLAIMS.internal, claim[0], claim[1])
    obj["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": "u"} for pod in pods]
    world.api.store.put(dw.CLAIMS.internal, claim[0], claim[1], obj)


class Explain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.start(library=BUILD / "src/vgpu/libvgpu.so")
        cls.socket = cls.world.path("run", "aliquotd.sock")
        cls.peer = cls.world.peer()
        cls.addClassCleanup(cls.peer.close)

    def tool(self, *args, **more):
        return tool("--socket", self.socket, *args, **more)

    def claim(self, name, *pods, **more):
        claim = self.world.claim(name, [result(**more)])
        reserved(self.world, claim, *pods)
        self.addCleanup(self.peer.unprepare, claim)
        return claim

    def test_prepared_claim_is_found_by_every_name_and_says_what_it_got(self):
        claim = self.claim("got", "pod-a", "pod-b", memory="4Gi", cores="30")
        self.peer.prepare(claim)
        said = {self.tool("explain", name)[1] for name in ("got", "default/got", claim[2], f"{claim[2]}-0", "pod-a", "default/pod-b")}
        self.assertEqual(len(said), 1)
        text, = said
        self.assertRegex(text, rf"^claim default/got \({claim[2]}\): prepared, 20\d\d-")
        self.assertIn("for pod pod-a, pod-b\n", text)
        self.assertRegex(text, r"share \S+-0: hami-gpu-0 \(GPU-\S+\), request gpu\n    got 4Gi of memory, 30 % of compute; policy Hard, priority 0\n")
        self.assertEqual(self.tool("set", f"{claim[2]}-0", "--cores", "20")[0], 0)
        self.assertIn("now 4Gi of memory, 20 % of compute, set by the operator", self.tool("explain", "got")[1])

    def test_refused_claim_says_why_and_what_to_do(self):
        wrong = self.claim("wrong", "pod-w")
        obj = self.world.api.store.get(dw.CLAIMS.internal, "default", "wrong")
        obj["status"]["allocation"]["devices"]["config"] = [{"opaque": {"driver": dw.DRIVER, "parameters": {
            "apiVersion": "config.aliquot.dev/v1alpha1", "kind": "ShareConfig", "compute": {"policy": "Hrad"}}}, "source": "FromClaim"}]
        self.world.api.store.put(dw.CLAIMS.internal, "default", "wrong", obj)
        for _ in range(2):
            error = self.peer.prepare(wrong)[wrong[2]].error
            self.assertIn("Hrad", error)
        status, text, _ = self.tool("explain", "pod-w")
        self.assertEqual(status, 0)
        self.assertRegex(text, r"claim default/wrong \(\S+\): refused, 20\d\d-")
        self.assertRegex(text, r"refused 2 times, last because: .*Hrad")
        self.assertRegex(text, r"\n    -> what the claim asks for cannot be had")
        known, = json.loads(self.tool("explain", "wrong", "--output=json")[1])["claims"]
        self.assertEqual(set(known), {"namespace", "name", "uid", "pods", "state", "time", "refusals", "reason", "error", "shares", "remedy"})
        self.assertEqual((known["state"], known["refusals"], known["reason"], known["pods"], known["shares"]),
                         ("refused", 2, "invalid", ["pod-w"], []))

    def test_claim_that_waits_for_room_says_so(self):
        holder, waiter = self.claim("holder", memory="60Gi"), self.claim("waiter", "pod-q", memory="60Gi")
        self.peer.prepare(holder)
        second = self.world.peer()
        self.addCleanup(second.close)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(second.prepare(waiter)))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.peer.unprepare, holder)
        wait_for("the claim to wait", lambda: "waits for room: other claims" in self.tool("explain", "pod-q")[1])
        known, = json.loads(self.tool("explain", "waiter", "-o", "json")[1])["claims"]
        self.assertEqual((known["state"], known["pods"]), ("waiting", ["pod-q"]))
        self.peer.unprepare(holder)
        thread.join(20)
        self.assertEqual(answers[0][waiter[2]].error, "")
        self.assertIn(": prepared, ", self.tool("explain", "waiter")[1])

    def test_claim_of_an_earlier_life_and_one_that_is_gone_are_told_apart(self):
        claim = self.claim("gone", "pod-g")
        self.peer.prepare(claim)
        self.peer.unprepare(claim)
        self.assertRegex(self.tool("explain", "gone")[1], r"^claim default/gone \(\S+\): unprepared, 20")

    def test_name_that_is_not_known_is_one_line_with_a_way_out(self):
        status, out, err = self.tool("explain", "nothing")
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))
        self.assertIn("kubectl describe pod", err)
        self.assertEqual(self.tool("explain")[0], 2)

    # ---- doctor

    def doctor(self, path):
        status, out, _ = self.tool("doctor", "--output", "json", path=path)
        found = json.loads(out)["findings"]
        self.assertEqual([f["level"] for f in found], sorted((f["level"] for f in found), key=LEVELS.index), "worst first")
        for f in found:
            self.assertLessEqual({"id", "level", "text"}, set(f))
            self.assertTrue(f["level"] == "ok" or f["remedy"], f)
        self.assertEqual(status, int(found[0]["level"] == "error"))
        return {f["id"]: f for f in found}

    def programs(self, **answers):
        """A PATH with programs that answer --version so."""
        folder = tempfile.mkdtemp(dir=self.world.root)
        for name, text in answers.items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{text}'\n")
            os.chmod(path, stat.S_IRWXU)
        return folder

    def test_doctor_looks_at_everything_of_a_node(self):
        wait_for("the slices", lambda: "slices.published" in self.doctor(self.programs()))
        found = self.doctor(self.programs(kubelet="Kubernetes v1.34.1", containerd="containerd github.com/containerd/containerd/v2 v2.1.3 x"))
        want = {"cdi.driver": "ok", "cdi.device-nodes": "ok", "cdi.library": "ok", "gpus.offered": "ok", "slices.published": "ok", "slices.fields": "ok",
                "kubelet.rivals": "ok", "monitor.usage-files": "ok", "monitor.entry-points": "ok", "host.kernel": "ok", "host.kubelet": "ok",
                "host.containerd": "ok", "host.cdi-specs": "ok", "host.preload": "ok", "kubelet.registered": "warning"}
        self.assertEqual({key: found.get(key, {}).get("level") for key in want}, want)
        self.assertIn("libvgpu-", found["cdi.library"]["text"])

    def test_doctor_names_programs_that_are_too_old(self):
        found = self.doctor(self.programs(kubelet="Kubernetes v1.33.0", containerd="containerd github.com/containerd/containerd 1.7.24 x",
                                          podman="podman version 3.4.4", docker="Docker version 20.10.24, build 1"))
        self.assertEqual({key: found[f"host.{key}"]["level"] for key in ("kubelet", "containerd", "podman", "docker")},
                         {"kubelet": "error", "containerd": "warning", "podman": "warning", "docker": "warning"})
        self.assertIn("1.34", found["host.kubelet"]["remedy"])
        self.assertIn("enable_cdi", found["host.containerd"]["remedy"])
        self.assertEqual(self.doctor(self.programs())["host.runtimes"]["level"], "warning")
        silent = self.doctor(self.programs(docker=""))["host.docker"]
        self.assertEqual((silent["level"], silent["text"]), ("warning", "docker --version tells no version within 5 s"))

    def test_doctor_names_what_is_missing(self):
        node = self.world.path("driver", "dev", "nvidia-uvm")
        os.rename(node, node + ".away")
        self.addCleanup(lambda: os.path.exists(node) or os.rename(node + ".away", node))
        library = next(p for p in os.scandir(self.world.path("lib")) if p.name.startswith("libvgpu-")).path
        os.rename(library, library + ".away")
        self.addCleanup(os.rename, library + ".away", library)
        found = self.doctor(self.programs())
        self.assertEqual((found["cdi.device-nodes"]["level"], found["cdi.library"]["level"]), ("warning", "error"))
        self.assertIn("nvidia-uvm", found["cdi.device-nodes"]["text"])

    def test_doctor_prints_lines_without_colour_into_a_pipe(self):
        _, out, _ = self.tool("doctor", path=self.programs())
        self.assertNotIn("\033", out)
        for line in out.splitlines():
            self.assertRegex(line, r"^(error|warning|ok) +[a-z]+\.[a-z0-9-]+ +\S|^ +-> \S")

    # ---- JSON

    def test_every_field_is_documented(self):
        """In backquotes in docs/cli.md or docs/admin.md, whatever command gives it."""
        claim = self.claim("fields", "pod-f", memory="1Gi")
        self.peer.prepare(claim)
        pages = (REPO / "docs/cli.md").read_text() + (REPO / "docs/admin.md").read_text()
        for args in (("shares",), ("top",), ("explain", "fields"), ("doctor",), ("version",), ("set", f"{claim[2]}-0", "--cores", "5"), ("--help",)):
            fields = set()
            json.loads(self.tool(*args, "--output", "json", path=self.programs())[1], object_pairs_hook=lambda pairs: fields.update(k for k, _ in pairs))
            self.assertGreater(len(fields), 2)
            self.assertEqual({f for f in fields if f"`{f}`" not in pages}, set(), args)

    # ---- completion

    def complete(self, *words):
        return [line.split("\t")[0] for line in self.tool_complete(*words)]

    def tool_complete(self, *words):
        return subprocess.run([TOOL, "__complete", *words], capture_output=True, text=True, timeout=30, check=True,
                              env=dict(os.environ, ALIQUOT_SOCKET=self.socket)).stdout.splitlines()

    def test_completion_offers_commands_options_words_and_what_the_daemon_has(self):
        claim = self.claim("offered")
        self.peer.prepare(claim)
        self.assertIn("shares", self.complete("sh"))
        self.assertEqual(self.complete("set", "x", "--mem"), ["--memory"])
        self.assertEqual(self.complete("shares", "--output", "j"), ["json"])
        self.assertEqual(self.complete("shares", "--output=j"), ["--output=json"])
        self.assertEqual(self.complete("top", "--sort", "=", "c"), ["compute"])
        self.assertIn(f"{claim[2]}-0", self.complete("set", ""))
        self.assertIn("default/offered", self.complete("explain", "def"))
        self.assertEqual(self.complete("--socket", ""), [":files"])
        self.assertEqual(self.complete("set", "x", ""), [])

    def test_completion_of_bash_gives_what_the_tool_offers(self):
        script = f"PATH={quote(str(TOOL.parent))}:$PATH; . {quote(f'{COMPLETION}/aliquot.bash')}; COMP_WORDS=(aliquot shares --output = j); COMP_CWORD=4; " \
                 "_aliquot; printf '%s\\n' \"${COMPREPLY[@]}\"; COMP_WORDS=(aliquot s); COMP_CWORD=1; _aliquot; printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p aliquot"
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=30, check=True)
        self.assertEqual(done.stdout.split("\n")[0], "json")
        self.assertLessEqual({"set", "shares"}, set(done.stdout.split("\n")))
        self.assertIn("complete -F _aliquot aliquot", done.stdout)

    def completed(self, shell, script, *options):
        """What a shell makes of a script, which must be sound too."""
        subprocess.run([shell, "-n", COMPLETION / {"fish": "aliquot.fish", "zsh": "_aliquot"}[shell]], check=True)
        done = subprocess.run([shell, *options, "-c", script], capture_output=True, text=True, timeout=30, check=True,
                              env={"PATH": f"{TOOL.parent}:{os.environ['PATH']}", "HOME": self.world.root, "TERM": "dumb"})
        return done.stdout.strip()

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_completion_of_fish_gives_what_the_tool_offers(self):
        self.assertEqual(self.completed("fish", f"source {quote(f'{COMPLETION}/aliquot.fish')}; complete -C 'aliquot top --sort c'", "--no-config"), "compute")

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_completion_of_zsh_gives_what_the_tool_offers(self):
        """With a stand-in for zsh's own function."""
        script = f"_describe() {{ print -rl -- \"${{(@P)2}}\"; }}; f() {{ . {quote(f'{COMPLETION}/_aliquot')} }}; words=(aliquot top --sort c); CURRENT=4; f"
        self.assertEqual(self.completed("zsh", script, "-f"), "compute")


class Help(unittest.TestCase):
    """What every command says of itself."""

    @classmethod
    def setUpClass(cls):
        cls.said = json.loads(tool("--help", "--output", "json")[1])

    def test_every_command_has_a_summary_help_and_examples_that_fit(self):
        self.assertGreaterEqual(len(self.said["commands"]), 6)
        for command in self.said["commands"]:
            words = command["name"].split()
            status, text, err = tool(*words, "--help")
            self.assertEqual((status, err), (0, ""))
            self.assertIn(f"usage: aliquot {command['name']}", text)
            self.assertTrue(command["examples"], command["name"])
            for line in command["help"].splitlines():
                self.assertLessEqual(len(line), 90, line)
            self.assertIn(f"aliquot {command['name']}", command["examples"][0]["command"])
            for example in command["examples"]:
                self.assertIn(example["command"], text)

    def test_examples_are_understood(self):
        """Each one, up to a pipe and with another program, without a daemon: it may fail, but not for its form."""
        for command in self.said["commands"]:
            for example in command["examples"]:
                line = re.sub(r" -- .*", " -- true", re.split(r" \||>", example["command"])[0])
                if line.startswith("aliquot "):
                    self.assertIn(tool("--socket", "/nonexistent/x", *line.split()[1:], TERM="dumb")[0], (0, 1), example["command"])

    def test_page_of_the_tool_has_every_command(self):
        page = (REPO / "docs/cli.md").read_text()
        for command in self.said["commands"]:
            self.assertRegex(page, f"`aliquot {command['name']}|`aliquot {command['name'].split()[0]} .*`{command['name'].split()[-1]}`")

    def test_what_is_wrong_is_one_line_with_a_way_out(self):
        nowhere = ("--socket", "/nonexistent/x")
        for args, status, words in ((("set", "x-0", "--memory", "99999999999999999999E"), 2, "too large"), (("set", "x-0", "--memory", "-1"), 2, "negative"),
                                    (("set", "x-0", "--memory", "1023"), 2, "1Mi"), (("set", "x-0", "--cores", "1e9"), 2, "from 0 to 100"),
                                    (("set", "x-0", "--cors", "5"), 2, "did you mean --cores?"), (("shars",), 2, "did you mean shares?"),
                                    (("set", "x-0", "--cores", " 5"), 2, "from 0 to 100"), (("set", "", "--cores", "5"), 2, "is not the id"),
                                    (("set", "A" * 100000, "--cores", "5"), 2, "is not the id"), (("set", os.fsdecode(b"\xff"), "--cores", "5"), 2, '"?" is not the id'), (("a\nb\033[31m",), 2, "no command a b [31m"),
                                    (("shares", "x\ny"), 2, "unexpected argument x y"), (("explain", "x\u00e9\n" * 5000, *nowhere), 1, "start it"),
                                    (("shares", *nowhere), 1, "start it, or name its socket with --socket"),
                                    (("explain", "x", "--socket", "/" + "x" * 200), 1, "too long for the path of a socket")):
            got, out, err = tool(*args)
            self.assertEqual((got, out, err.count("\n")), (status, "", 1), args)
            self.assertIn(words, err)

    @unittest.skipIf(os.geteuid() != 0 or not shutil.which("setpriv"), "other users need root")
    def test_no_rights_is_said_with_a_way_out(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            os.chmod(folder, 0o755)
            listener.bind(f"{folder}/s")
            os.chmod(f"{folder}/s", 0o600)
            listener.listen()
            done = subprocess.run(["setpriv", "--reuid", "47010", "--regid", "47010", "--clear-groups", TOOL, "shares", "--socket", f"{folder}/s"],
                                  capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("Permission denied; be root, or in the group", done.stderr)

    def test_output_that_cannot_be_written_is_said(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([TOOL, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)

    def test_refusal_that_reads_nothing_is_an_answer(self):
        """aliquot run takes no daemon for absent that closes before it has read all."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/s")
            listener.listen()
            listener.settimeout(30)
            for answer, words in ((b"", "closed the connection without an answer"), (b'HTTP/1.1 503 X\r\n\r\n{"error":"not now"}', "not now")):
                process = subprocess.Popen([TOOL, "run", "-m", "1Gi", "--socket", f"{folder}/s", "--", "echo", "it ran"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                peer = listener.accept()[0]
                peer.recv(1)
                peer.sendall(answer)
                peer.close()
                out, err = process.communicate(timeout=30)
                self.assertEqual((process.returncode, out, err.count("\n")), (1, "", 1), err)
                self.assertIn(words, err)

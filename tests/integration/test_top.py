# SPDX-License-Identifier: Apache-2.0
"""aliquot top, on a terminal and into a pipe: two shares, a busy program in one of them."""

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import types
import unittest

from daemon_world import BUILD, World, need_daemon, result, wait_for
from monitor_world import Program, compile_client
from terminal import Terminal

TIMEOUT_S = 120
TOOL = BUILD / "src/cli/aliquot"
GIB = 1 << 30


def setUpModule():
    need_daemon()
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise unittest.SkipTest("mount namespaces need root")


def names(screen, heading):
    """First words of the rows below a heading, until the next heading."""
    out, is_in = [], False
    for line in screen:
        if re.match(r"(GPU|SHARE|PROCESS) ", line):
            is_in = line.startswith(heading)
        elif is_in and line.strip():
            out.append(line.split()[0])
    return out


class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        compile_client(cls.world.root)
        cls.world.start()
        cls.socket = cls.world.path("run", "aliquotd.sock")
        peer = cls.world.peer()
        cls.addClassCleanup(peer.close)
        cls.claims = [cls.world.claim("train", [result(memory="4Gi", cores="60")]), cls.world.claim("idle", [result(memory="2Gi", cores="10")])]
        for claim in cls.claims:
            peer.prepare(claim)
        cls.program = Program(types.SimpleNamespace(addCleanup=cls.addClassCleanup), cls.world, [f"{cls.claims[0][2]}-0"]).start()
        cls.program.ok(f"alloc {GIB}")
        is_over = threading.Event()

        def work():
            while not is_over.wait(0.01):
                cls.program.call("busy 20 2000")
        worker = threading.Thread(target=work)
        worker.start()
        cls.addClassCleanup(worker.join)
        cls.addClassCleanup(is_over.set)
        wait_for("the process at work", lambda: any(p["usedPercent"] for p in cls.figures()["processes"]))

    @classmethod
    def tool(cls, *args, **env):
        done = subprocess.run([TOOL, "top", "--socket", cls.socket, *args], capture_output=True, text=True, timeout=30, check=False,
                              env={"PATH": os.environ["PATH"], "TERM": "xterm", **env})
        return done.returncode, done.stdout, done.stderr

    @classmethod
    def figures(cls):
        return json.loads(cls.tool("--output", "json")[1])

    def terminal(self, *args, columns=80, rows=24, **env):
        terminal = Terminal([TOOL, "top", "--socket", self.socket, "--interval", "0.2", *args], columns, rows, **env)
        self.addCleanup(terminal.close)
        return terminal

    def shown(self, terminal):
        terminal.until("the table", lambda screen: names(screen, "SHARE") and names(screen, "PROCESS"))
        return terminal

    # ---- a pipe

    def test_pipe_gets_the_table_once_as_text(self):
        status, out, err = self.tool()
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn("\033", out)
        self.assertEqual(out.count("aliquot top"), 1)
        self.assertRegex(out, r"(?m)^hami-gpu-0 .* 1\.3Gi/80Gi .*\d+/100% .* 1\b")
        self.assertRegex(out, r"(?m)^default/train .* 1\.\dGi/4Gi .*\d+/60% ")
        self.assertRegex(out, r"(?m)^default/idle .* 0/2Gi .* 0/10% ")
        self.assertRegex(out, rf"(?m)^{self.figures()['processes'][0]['pid']} client .* 1\.3Gi/4Gi .*\d+/60%")

    def test_iterations_and_columns_are_as_asked(self):
        status, out, _ = self.tool("--iterations", "3", "--interval", "0.1", COLUMNS="80")
        self.assertEqual((status, out.count("aliquot top")), (0, 3))
        self.assertLessEqual(max(map(len, out.splitlines())), 80)
        self.assertEqual(self.tool("-n2", "--interval=0.1", "-o", "json")[1].count('"processes": ['), 2)

    def test_output_that_cannot_be_written_is_said(self):
        for args in (), ("-o", "json"), ("-n", "2", "--interval", "0.1"):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([TOOL, "top", "--socket", self.socket, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("No space left", done.stderr)

    def test_json_has_the_fields_that_are_documented(self):
        figures = self.figures()
        self.assertEqual(set(figures), {"gpus", "shares", "processes"})
        process, = figures["processes"]
        self.assertEqual(set(process), {"pid", "gpu", "share", "usedPercent", "memoryBytes", "command"})
        self.assertEqual((process["share"], process["command"]), (f"{self.claims[0][2]}-0", "client"))
        self.assertEqual(figures["gpus"][0]["memoryUsedBytes"], process["memoryBytes"])
        self.assertEqual(figures["gpus"][0]["memoryOutsideSharesBytes"], 0)

    def test_wrong_options_are_named(self):
        for args, words in ((("--sort", "size"), "neither memory, compute nor name"), (("--interval", "0"), "--interval"),
                            (("--iterations", "-1"), "--iterations"), (("x",), "unexpected argument x")):
            status, out, err = self.tool(*args)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(words, err)
            self.assertEqual(err.count("\n"), 1)

    # ---- a terminal

    def test_keys_sort_scroll_and_end(self):
        terminal = self.shown(self.terminal())
        self.assertEqual(names(terminal.screen, "SHARE"), ["default/train", "default/idle"])
        self.assertTrue(terminal.is_other and terminal.is_hidden)
        for key, order in (("n", ["default/idle", "default/train"]), ("r", ["default/train", "default/idle"]), ("r", ["default/idle", "default/train"]),
                           ("m", ["default/train", "default/idle"]), ("c", ["default/train", "default/idle"])):
            terminal.type(key)
            terminal.until(f"the order of {key}", lambda screen: names(screen, "SHARE") == order)  # pylint: disable=cell-var-from-loop
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.is_restored())

    def test_it_fits_into_any_size_and_follows_changes(self):
        terminal = self.shown(self.terminal())
        self.assertTrue(any("HISTORY" in line for line in terminal.screen))
        self.assertTrue(any("|" in line for line in terminal.screen))
        for columns, rows in ((50, 10), (34, 24), (20, 5), (9, 2), (200, 50), (80, 24)):
            terminal.resize(columns, rows)
            os.kill(terminal.process.pid, signal.SIGWINCH)
            terminal.until("a new picture", lambda screen: screen[0].startswith("aliquot top"[:columns]))  # pylint: disable=cell-var-from-loop
            terminal.until("its last line", lambda screen: rows < 20 or names(screen, "PROCESS"))  # pylint: disable=cell-var-from-loop
            self.assertLessEqual(max(map(len, terminal.screen)), columns)
            self.assertTrue(terminal.screen[0].startswith("aliquot top"[:columns]), "it has not scrolled")
        wide = self.shown(self.terminal(columns=200, rows=50))
        self.assertTrue(any(f"{self.claims[1][2]}-0" in line for line in wide.screen), "a wide one shows ids")

    def test_arrows_reach_rows_that_do_not_fit(self):
        terminal = self.terminal(rows=6)  # title, GPUs and heading leave one
        terminal.until("the first share", lambda screen: names(screen, "SHARE") == ["default/train"])
        terminal.type("\033[B")
        terminal.until("the second", lambda screen: names(screen, "SHARE") == ["default/idle"])
        terminal.type("\033OA")
        terminal.until("the first again", lambda screen: names(screen, "SHARE") == ["default/train"])
        terminal.type("\033[6~\033[5~k")
        terminal.until("the first again", lambda screen: names(screen, "SHARE") == ["default/train"])

    def test_terminal_is_given_back_on_every_end(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV):
            terminal = self.shown(self.terminal())
            os.kill(terminal.process.pid, number)
            self.assertEqual(terminal.end(), -number)
            self.assertTrue(terminal.is_restored(), number)

    def test_terminal_is_given_back_while_it_is_stopped(self):
        """A shell with jobs, as ^Z does nothing where nobody could let it go on."""
        shell = f"set -m; {shlex.quote(str(TOOL))} top --socket {self.socket}; echo status $?; read -r line; fg >/dev/null; echo status $?"
        terminal = Terminal(["bash", "-c", shell])
        self.addCleanup(terminal.close)
        self.shown(terminal).type("\x1a")
        terminal.until("the shell", lambda screen: f"status {128 + signal.SIGTSTP}" in "".join(screen))
        self.assertTrue(terminal.is_restored())
        terminal.type("\n")
        terminal.until("the other screen", lambda screen: terminal.is_other and names(screen, "SHARE"))
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.is_restored())

    def test_colours_are_on_terminals_only_and_not_with_no_color(self):
        coloured = self.shown(self.terminal())
        self.assertTrue({"1", "32"} & coloured.styles)
        self.assertEqual(self.shown(self.terminal(NO_COLOR="1")).styles, set())
        dumb = self.terminal(TERM="dumb")
        self.assertEqual(dumb.end(), 0)
        self.assertFalse(dumb.styles or dumb.is_other)

    def test_history_has_signs_that_the_locale_has(self):
        terminal = self.terminal()
        terminal.until("blocks", lambda screen: any(c in "".join(screen) for c in "▁▂▃▄▅▆▇█"))
        plain = self.shown(self.terminal(LC_ALL="C"))
        plain.until("signs", lambda screen: re.search(r"% +[.:=+*#@-]+ +\d", "\n".join(screen)))
        self.assertTrue("".join(plain.screen).isascii())

    # ---- set

    def test_set_acts_in_a_program_that_runs(self):
        share = f"{self.claims[1][2]}-0"

        def limit(*args):
            done = subprocess.run([TOOL, "set", "--socket", self.socket, share, *args], capture_output=True, text=True, timeout=30, check=False)
            return done.returncode, done.stdout, done.stderr
        program = Program(self, self.world, [share]).start()
        self.addCleanup(limit, "--reset")
        self.assertEqual(program.ok("info")[1], 2 * GIB)
        self.assertEqual(limit("--memory", "1Gi", "--cores=20"), (0, f"{share}: memory 1Gi, cores 20\n", ""))
        self.assertEqual(program.ok("info")[1], GIB)
        self.assertEqual(program.call(f"alloc {GIB}")[0], "2")
        self.assertEqual(limit("--memory", "6Gi")[0], 0)
        program.ok(f"alloc {3 * GIB}")
        status, out, err = limit("--memory", "79Gi")
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))
        self.assertIn("held by default/train", err)

    def test_daemon_that_is_away_is_said_and_waited_for(self):
        nowhere = self.world.path("run", "later.sock")
        terminal = Terminal([TOOL, "top", "--socket", nowhere, "--interval", "0.1"])
        self.addCleanup(terminal.close)
        terminal.until("the error", lambda screen: "aliquotd does not answer" in screen[0])
        os.symlink(self.socket, nowhere)
        self.addCleanup(os.unlink, nowhere)
        self.shown(terminal)
        status, out, err = self.tool("--socket", self.world.path("none"))
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))

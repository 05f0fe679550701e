# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests: a pty with a size, and a screen that understands what aliquot top writes."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

SEQUENCE = re.compile(r"\033\[(\??)([\d;]*)([A-Za-z])")


class Terminal:
    def __init__(self, command, columns=80, rows=24, **env):
        self.master, slave = pty.openpty()
        self.raw = ""
        self.is_other = self.is_hidden = False
        self.styles = set()
        self.resize(columns, rows, slave)
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                        env={"PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8", **env})

    def resize(self, columns, rows, slave=None):
        self.columns, self.rows = columns, rows
        self.screen, self.x, self.y = [""] * rows, 0, 0
        fcntl.ioctl(slave or self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def read(self, timeout=0.05):
        if select.select([self.master], [], [], timeout)[0]:
            try:
                self.raw += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                return
            self.feed()

    def feed(self):
        """Applies all of raw that is complete."""
        while self.raw:
            if self.raw[0] == "\033":
                found = SEQUENCE.match(self.raw)
                if not found:
                    return
                self.raw = self.raw[found.end():]
                self.sequence(*found.groups())
            elif self.raw[0] in "\r\n":
                self.x, self.y = (0, self.y) if self.raw[0] == "\r" else (self.x, self.y + 1)
                if self.y >= self.rows:  # it scrolls
                    self.screen, self.y = self.screen[1:] + [""], self.rows - 1
                self.raw = self.raw[1:]
            else:
                line = self.screen[self.y].ljust(self.x)
                self.screen[self.y] = line[:self.x] + self.raw[0] + line[self.x + 1:]
                self.x += 1
                self.raw = self.raw[1:]

    def sequence(self, private, numbers, letter):
        if private:
            self.is_other = letter == "h" if numbers == "1049" else self.is_other
            self.is_hidden = letter == "l" if numbers == "25" else self.is_hidden
        elif letter == "H":
            self.x = self.y = 0
        elif letter == "K":
            self.screen[self.y] = self.screen[self.y][:self.x]
        elif letter == "J":
            below = 0 if numbers == "2" else self.y + 1
            self.screen = [line if y < below else "" for y, line in enumerate(self.screen)]
            if below:
                self.screen[self.y] = self.screen[self.y][:self.x]
        elif letter == "m":
            self.styles.add(numbers)

    def until(self, what, condition, timeout=15):
        end = time.monotonic() + timeout
        while not condition(self.screen):
            if time.monotonic() > end:
                raise AssertionError(f"waited for {what}; the screen:\n" + "\n".join(self.screen))
            self.read()

    def end(self, timeout=15):
        """The exit status, with all that was written taken in."""
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read(0)
        return self.process.wait(1)

    def is_restored(self):
        return not self.is_other and not self.is_hidden and termios.tcgetattr(self.slave) == self.modes

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

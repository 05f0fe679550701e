# SPDX-License-Identifier: Apache-2.0
"""The switchboard: what the API server does wrong, and for whom, because a test asked for it (README.md, "Faults").

A fault names requests by a regular expression and says what happens to them; it is used up after `count` of them. The
HTTP side asks take() once a request and calls the fault's methods at the points of its life. Any thread.
"""

import itertools
import random
import re
import threading
import time

REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
           429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
FIELDS = {"match", "user", "when", "code", "headers", "delaySeconds", "close", "hang", "reorder", "events", "count",
          "probability", "seed"}
REORDER_WAIT_S = 2.0


class Reorder:
    """Holds answers until `size` have come (or no more come for a while), then lets them go, the last one first."""

    def __init__(self, size):
        self.size, self.held, self.is_open = size, 0, False
        self.turn = threading.Condition()

    def wait(self):
        with self.turn:
            self.held += 1
            mine = self.held
            self.turn.notify_all()
            end = time.monotonic() + REORDER_WAIT_S
            while not self.is_open and self.held < self.size and time.monotonic() < end:
                self.turn.wait(end - time.monotonic())
            self.is_open = True
            while self.held != mine and time.monotonic() < end + REORDER_WAIT_S:
                self.turn.wait(0.1)

    def leave(self):
        with self.turn:
            self.held -= 1
            self.is_open = self.held > 0
            self.turn.notify_all()


class Fault:
    """One entry of the board. Raises ValueError naming a field that cannot be."""

    _ids = itertools.count(1)

    def __init__(self, body):
        unknown = set(body) - FIELDS
        if unknown or "match" not in body:
            raise ValueError(f"unknown field {sorted(unknown)[0]}" if unknown else "match is missing")
        self.id, self.body, self.used = next(self._ids), body, 0
        self.pattern, self.user = re.compile(body["match"]), re.compile(body.get("user", ""))
        self.count = int(body.get("count", 1))
        self.delay_s, self.headers = float(body.get("delaySeconds", 0)), body.get("headers", {})
        self.close, self.hang = bool(body.get("close")), bool(body.get("hang"))
        self.events = int(body.get("events", 0))
        self.reorder = Reorder(int(body["reorder"])) if body.get("reorder") else None
        is_plain = not (self.close or self.hang or self.reorder)
        self.code = int(body.get("code", 503 if is_plain else 200))
        self.when = "events" if "events" in body else body.get("when", "before")
        if self.when not in ("before", "after", "events"):
            raise ValueError('when is neither "before" nor "after"')
        self.probability = float(body.get("probability", 1))
        self.dice = random.Random(body.get("seed", 0))

    def dump(self):
        return {**self.body, "id": self.id, "left": self.count, "used": self.used}

    def names(self, line, user):
        if not self.pattern.search(line) or not self.user.search(user or ""):
            return False
        return self.probability >= 1 or self.dice.random() < self.probability


class Board(list):
    """All faults in force, oldest first. count 0: until it is taken off."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.hung = []

    def take(self, line, user):
        """The first fault for this request, or None."""
        with self.lock:
            for fault in self:
                if fault.names(line, user):
                    fault.used += 1
                    if fault.hang:
                        self.hung.append(fault)
                    if fault.count:
                        fault.count -= 1
                        if not fault.count:
                            self.remove(fault)
                    return fault
        return None

    def put(self, body):
        fault = Fault(body)
        with self.lock:
            self.append(fault)
        return fault

    def drop(self, number=None):
        """Takes one or all off; what hangs goes on."""
        with self.lock:
            for fault in self.hung:
                fault.hang = fault.hang and number not in (None, fault.id)
            self.hung = [f for f in self.hung if f.hang]
            self[:] = [f for f in self if number not in (None, f.id)]

    def dump(self):
        with self.lock:
            return [f.dump() for f in self]

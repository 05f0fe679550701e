#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every test and counts each one: the cmocka programs that Meson knows, then the unittest modules test_*.py below
tests/, each in a process group of its own with a timeout. The output of each suite is kept in <build>/test-logs/. Then
come all skips with their reasons, all failures with the end of their logs, and the last line is
"N passed, N failed, N skipped". The exit status is 0 only when something ran and nothing failed.

As many run at once as there are processors. A module may set TIMEOUT_S = <seconds> (300 otherwise), and ALONE = True where
it judges times or what the whole machine does: those come last, one after the other. A cmocka test that skips says why on a line
"[  REASON  ] text" before it calls skip()."""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import traceback
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
REPO = TESTS.parent
PYTHON_TIMEOUT_S = 300
GRACE_S = 15
TAIL_LINES = 40
NONE_MATCHES = "no test matches"
OPTIONAL = {"clients", "fuzz", "package"}  # groups that run only when --suite asks for them


def say(line):
    """In one piece: several threads have something to say."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Suite:
    """One program or module: `results` maps each test's name to (status, reason)."""

    def __init__(self, name, command, timeout_s, env=None, cwd=REPO):
        self.name, self.command, self.timeout_s, self.cwd = name, command, timeout_s, cwd
        self.env = dict(os.environ, **(env or {}))
        self.results = {}
        self.seconds = 0.0
        self.log = None
        self.is_python = self.is_alone = False
        self.is_empty = False  # no test of it was asked for

    def count(self, status):
        return sum(1 for s, _ in self.results.values() if s == status)


def run_process(suite, log_path):
    """Runs the suite with all its output in the log. Returns (exit status, was it the timeout)."""
    suite.log = log_path
    start = time.monotonic()
    timed_out = False
    with open(log_path, "wb") as log:
        process = subprocess.Popen(suite.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env=suite.env, cwd=suite.cwd, start_new_session=True)
        try:
            process.wait(suite.timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        except BaseException:
            end_group(process)
            raise
        if timed_out:
            end_group(process)
            log.write(f"\n-- stopped: not finished after {suite.timeout_s} s\n".encode())
    suite.seconds = time.monotonic() - start
    return process.returncode, timed_out


def end_group(process):
    """SIGTERM, so that a test can take down what it started, then SIGKILL, to the suite's own process group."""
    for sig, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, sig)
            process.wait(wait_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


def describe_status(status, timed_out, timeout_s):
    if timed_out:
        return f"not finished after {timeout_s} s"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


CMOCKA_LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED|ERROR|REASON) *\] (.*)$")


def parse_cmocka(suite, text, status, timed_out):
    current, reason = None, None
    for line in text.splitlines():
        match = CMOCKA_LINE.match(line)
        if not match:
            if current and line.strip():
                reason = reason or line.strip()
            continue
        word, rest = match.group(1), match.group(2).strip()
        if word == "RUN":
            current, reason = rest, None
            suite.results[current] = ("failed", "did not end")
        elif word == "REASON":
            reason = rest
        elif word in ("OK", "FAILED", "SKIPPED") and rest in suite.results:
            if word == "OK":
                suite.results[rest] = ("passed", "")
            elif word == "SKIPPED" and suite.results[rest][1] == "did not end":
                suite.results[rest] = ("skipped", reason or "no reason given")
            elif word == "FAILED":
                suite.results[rest] = ("failed", "")
            current = None
    how = describe_status(status, timed_out, suite.timeout_s)
    if not suite.results:  # not a cmocka program: it is one test, and its exit status says all (77: skipped)
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
        kind = {0: "passed", 77: "skipped"}.get(status, "failed")
        suite.results[suite.name] = (kind, last or how if kind == "skipped" else how)
        return
    for name, (kind, why) in suite.results.items():
        if why == "did not end":
            suite.results[name] = ("failed", how)
    if status != 0 and not suite.count("failed"):
        suite.results["(the program itself)"] = ("failed", how)


def run_unit(suite, log_path):
    status, timed_out = run_process(suite, log_path)
    parse_cmocka(suite, log_path.read_text(errors="replace"), status, timed_out)


def run_suite(suite, log_path):
    if not suite.is_python:
        run_unit(suite, log_path)
        return
    say(f"...    {suite.name} (at most {suite.timeout_s} s)")
    run_python(suite, log_path)


def run_python(suite, log_path):
    results_path = log_path.with_suffix(".results")
    results_path.unlink(missing_ok=True)
    suite.env["ALIQUOT_TEST_RESULTS"] = str(results_path)
    status, timed_out = run_process(suite, log_path)
    how = describe_status(status, timed_out, suite.timeout_s)
    lines = results_path.read_text().splitlines() if results_path.exists() else []
    results_path.unlink(missing_ok=True)
    suite.is_empty = lines == [NONE_MATCHES]
    if suite.is_empty:
        return
    for line in lines:
        event = json.loads(line)
        suite.results[event["test"]] = (event["status"], event["reason"])
    for name, (kind, _) in suite.results.items():
        if kind == "pending":
            suite.results[name] = ("failed", f"did not end: {how}")
    if not lines or (status != 0 and not suite.count("failed")):
        suite.results["(the module itself)"] = ("failed", how)


# ---- inside the process of one unittest module ----


class Recorder(unittest.TextTestResult):
    """Writes one JSON line per test as it ends, so that a killed module still tells what it had done."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sink = open(os.environ["ALIQUOT_TEST_RESULTS"], "a", buffering=1)
        self.open_tests = {}

    def plan(self, tests):
        for test in tests:
            self.open_tests[test.id()] = test
            self.write(test.id(), "pending")

    def write(self, name, status, reason=""):
        self.sink.write(json.dumps({"test": name, "status": status, "reason": reason}) + "\n")

    def settle(self, test, status, reason=""):
        """A holder such as "setUpClass (module.Class)" stands for every test of the class that did not run."""
        if test.id() in self.open_tests:
            del self.open_tests[test.id()]
            self.write(test.id(), status, reason)
            return
        match = re.match(r"(setUpClass|setUpModule|tearDownClass|tearDownModule) \((.+)\)$", test.id())
        if not match or match.group(1).startswith("tearDown"):
            self.write(test.id(), status, reason)
            return
        for name in [n for n in self.open_tests if n.startswith(match.group(2) + ".")]:
            del self.open_tests[name]
            self.write(name, status, reason)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.settle(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.settle(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.settle(test, "failed", str(err[1]).strip().split("\n")[0])

    def addError(self, test, err):
        super().addError(test, err)
        self.settle(test, "failed", f"{err[0].__name__}: {err[1]}".strip().split("\n")[0])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.settle(test, "failed", f"{subtest.id()}: {err[1]}".strip().split("\n")[0])

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.settle(test, "failed", "unexpected success")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.settle(test, "passed")


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def child(path, patterns):
    """Runs the tests of one module whose id holds one of the patterns."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that tearDown and cleanups run
    # A shell starts what it runs in the background with these ignored, and so would be what the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    path = pathlib.Path(path)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except unittest.SkipTest as skip:
        with open(os.environ["ALIQUOT_TEST_RESULTS"], "a") as sink:
            sink.write(json.dumps({"test": path.stem, "status": "skipped", "reason": str(skip)}) + "\n")
        return 0
    except Exception:
        traceback.print_exc()
        return 1
    tests = list(flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    if patterns and not names(patterns, suite_name(path)):
        tests = [t for t in tests if any(p in t.id() for p in patterns)]
        if not tests:
            pathlib.Path(os.environ["ALIQUOT_TEST_RESULTS"]).write_text(NONE_MATCHES + "\n")
            return 0

    def make_result(*args, **kwargs):
        result = Recorder(*args, **kwargs)
        result.plan(tests)
        return result

    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=make_result)
    return 0 if runner.run(unittest.TestSuite(tests)).wasSuccessful() else 1


# ---- finding the suites ----


def names(patterns, name):
    """test_sim names the suite integration/sim as well as any test of that name."""
    return any(p in name or p.removeprefix("test_") in name for p in patterns)


def suite_name(path):
    relative = path.relative_to(TESTS)
    return str(relative.parent / relative.stem.removeprefix("test_"))


def unit_suites(build):
    known = json.loads((build / "meson-info/intro-tests.json").read_text())
    for test in known:
        parts = [s.split(":")[-1] for s in test["suite"]]
        name = "/".join([p for p in parts if p != "unit"] + [test["name"]])
        yield Suite("unit/" + name, test["cmd"], test["timeout"], test["env"], test["workdir"] or REPO)


def python_suites(build, patterns):
    for path in sorted(TESTS.glob("**/test_*.py")):
        source = path.read_text()
        match = re.search(r"^TIMEOUT_S = (\d+)$", source, re.M)
        name = suite_name(path)
        if patterns and not names(patterns, name) and not any(p in source for p in patterns):
            continue
        command = ["/usr/bin/python3", "-u", str(TESTS / "run.py"), "--child", str(path)]
        suite = Suite(name, command + [word for p in patterns for word in ("-k", p)],
                      int(match.group(1)) if match else PYTHON_TIMEOUT_S,
                      {"ALIQUOT_BUILD": str(build), "PYTHONDONTWRITEBYTECODE": "1"})
        suite.is_python = True
        suite.is_alone = bool(re.search(r"^ALONE = True$", source, re.M))
        yield suite


# ---- report ----


def report_line(suite):
    passed, failed, skipped = (suite.count(s) for s in ("passed", "failed", "skipped"))
    mark = "FAILED" if failed else "ok" if passed else "skip"
    text = ", ".join([f"{passed} passed"] + [f"{n} {w}" for n, w in ((failed, "failed"), (skipped, "skipped")) if n])
    say(f"{mark:6} {suite.name:36} {text} ({suite.seconds:.1f} s)")


def report_end(suites):
    skips = [(s, n, r) for s in suites for n, (k, r) in s.results.items() if k == "skipped"]
    if skips:
        print(f"\nSkipped ({len(skips)}):")
        for suite, name, reason in skips:
            print(f"  {suite.name}: {name.rsplit('.', 1)[-1]}: {reason}")
    for suite in suites:
        failures = [(n, r) for n, (k, r) in suite.results.items() if k == "failed"]
        if not failures:
            continue
        print(f"\nFAILED {suite.name}")
        for name, reason in failures:
            print(f"  {name}{': ' + reason if reason else ''}")
        lines = suite.log.read_text(errors="replace").splitlines()
        print(f"  the last lines of {suite.log}:")
        for line in lines[-TAIL_LINES:]:
            print(f"  | {line}")
    passed, failed, skipped = (sum(s.count(k) for s in suites) for k in ("passed", "failed", "skipped"))
    if passed + failed == 0:
        print("\nno test ran")
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if failed == 0 and passed > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("ALIQUOT_BUILD", "build"), help="build directory")
    parser.add_argument("-k", metavar="PATTERN", action="append", default=[],
                        help="only suites, or tests of Python suites, whose name holds this; may be repeated")
    parser.add_argument("--suite", metavar="PREFIX", action="append",
                        help="only suites whose name begins so: unit, unit/base, integration/load; may be repeated")
    parser.add_argument("--list", action="store_true", help="name the suites and stop")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.child, args.k)

    build = pathlib.Path(args.build).resolve()
    logs = build / "test-logs"
    logs.mkdir(parents=True, exist_ok=True)
    suites = [s for s in unit_suites(build) if not args.k or names(args.k, s.name)]
    suites += python_suites(build, args.k)
    suites = [s for s in suites if s.name.startswith(tuple(args.suite or [""])) and (args.suite or s.name.split("/")[0] not in OPTIONAL)]
    if args.list:
        print("\n".join(s.name for s in suites))
        return 0

    def log_of(suite):
        return logs / (suite.name.replace("/", "-") + ".log")

    done = []
    for group in ([s for s in suites if not s.is_python], [s for s in suites if s.is_python and not s.is_alone],
                  [s for s in suites if s.is_alone]):
        with concurrent.futures.ThreadPoolExecutor(1 if group and group[0].is_alone else os.cpu_count() or 1) as pool:
            running = {pool.submit(run_suite, s, log_of(s)): s for s in group}
            for future in concurrent.futures.as_completed(running):
                future.result()
                if not running[future].is_empty:
                    done.append(running[future])
                    report_line(running[future])
    done.sort(key=lambda s: suites.index(s))
    return report_end(done)


if __name__ == "__main__":
    sys.exit(main())

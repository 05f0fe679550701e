#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Unit tests under the sanitizers: everything with AddressSanitizer and UndefinedBehaviorSanitizer, what has threads or
# shared memory with ThreadSanitizer. libvgpu.so itself is left out: it has no C library to carry a sanitizer's run-time;
# its policy is in plain functions that the unit tests link directly.
#
# usage: tools/sanitize.sh BUILD_DIR

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:?BUILD_DIR}
rc=0

# Names of all unit test programs of a configured build directory, as ninja targets.
unit_targets() {
    /usr/bin/python3 - "$1" <<'PYTHON'
import json, os, sys
build = os.path.abspath(sys.argv[1])
for test in json.load(open(os.path.join(build, "meson-info/intro-tests.json"))):
    program = test["cmd"][0]
    if program.startswith(build):
        print(os.path.relpath(program, build))
PYTHON
}

run() {
    local sanitizers=$2 dir=$build/$1 options
    # -Wno-tsan: gcc warns that it does not follow fences; the tests that have one also run under ASan.
    options=("-Db_sanitize=$sanitizers" -Db_lundef=false "-Dc_args=-fno-omit-frame-pointer -Wno-tsan")
    echo "sanitize: $sanitizers"
    # Configure first (a target that ninja knows and that builds nothing), then build just the tests.
    tools/build.sh "$dir" "${options[@]}" -- build.ninja ||
        return 1
    mapfile -t targets < <(unit_targets "$dir")
    [ ${#targets[@]} -gt 0 ] || { echo "sanitize: no unit test in $dir" >&2; return 1; }
    tools/build.sh "$dir" "${options[@]}" -- "${targets[@]}" ||
        return 1
    /usr/bin/python3 tests/run.py --build "$dir" --suite unit
}

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=1
# The simulator keeps pointers in memory that it maps itself, where the leak sanitizer does not look.
export LSAN_OPTIONS=suppressions=$PWD/tools/lsan.txt:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
run asan address,undefined || rc=1
run tsan thread || rc=1
exit $rc

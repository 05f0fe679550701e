#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Static checks of all that is in git (and what is about to be): format, clang-tidy, cppcheck, shell scripts, Python.
# Each check runs to its end; the first that found something does not hide the others.
#
# usage: tools/lint.sh BUILD_DIR

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:?BUILD_DIR}
out=$build/lint
mkdir -p "$out"
jobs=$(nproc)
failed=()

sources() {
    git -c safe.directory='*' ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
        [ ! -f "$file" ] || printf '%s\n' "$file"
    done
}

check() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        printf 'ok     lint/%s (%d s)\n' "$name" $((SECONDS - start))
    else
        failed+=("$name")
        printf 'FAILED lint/%s (%d s)\n' "$name" $((SECONDS - start))
        # What matters of clang-tidy's output are the findings, not the count of what it left out.
        grep -v -e 'warnings generated' -e '^Suppressed ' -e '^Use -header-filter' "$out/$name.log" | head -n 60 | sed 's/^/  | /'
    fi
}

mapfile -t c_files < <(sources '*.c' '*.h')
mapfile -t sh_files < <(sources '*.sh' '.ci/run' 'tests/e2e/*.bash')
mapfile -t py_files < <(sources '*.py')
if [ ${#c_files[@]} -eq 0 ] || [ ${#py_files[@]} -eq 0 ]; then
    echo "lint: git names no sources here; this is to be run in a clone" >&2
    exit 1
fi

# The compiled sources below src/, sim/, demo/ and bench/: tests are held by the compiler's warnings and by running.
# gcc's options that clang does not know are taken out of the compile commands; clang's warnings are findings whether the
# build has WERROR=1 or not.
mapfile -t tidy_files < <(/usr/bin/python3 - "$build" "$out" <<'PYTHON'
import json, os, sys
build, out = sys.argv[1:]
root, kept = os.getcwd(), {}
for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
    path = os.path.relpath(os.path.realpath(os.path.join(entry["directory"], entry["file"])), root)
    if path.endswith(".c") and path.startswith(("src/", "sim/", "demo/", "bench/")) and path not in kept:
        command = entry["command"].replace("-fno-tree-loop-distribute-patterns", "").replace(" -c ", " -Werror -c ")
        kept[path] = dict(entry, command=command, file=os.path.join(root, path))
json.dump(list(kept.values()), open(os.path.join(out, "compile_commands.json"), "w"))
print("\n".join(kept))
PYTHON
)

if [ -z "${tidy_files[*]}" ]; then
    echo "lint: $build was not configured for these sources" >&2
    exit 1
fi

run_tidy() {
    printf '%s\0' "${tidy_files[@]}" | xargs -0 -n 4 -P "$jobs" clang-tidy -quiet -p "$out"
}

run_cppcheck() {
    cppcheck -q -j "$jobs" --std=c11 --enable=warning,performance,portability --error-exitcode=1 --inline-suppr \
        --suppressions-list=tools/cppcheck.txt -D__x86_64__ -D_GNU_SOURCE --include=tools/cppcheck.h -I include -I src -I sim \
        "${tidy_files[@]}"
}

compile_python() {
    /usr/bin/python3 -c 'import sys
for path in sys.argv[1:]:
    compile(open(path).read(), path, "exec")' "${py_files[@]}"
}

check format clang-format --dry-run -Werror "${c_files[@]}"
check shellcheck shellcheck "${sh_files[@]}"
check python compile_python
check pyflakes /usr/bin/python3 -m pyflakes "${py_files[@]}"
check cppcheck run_cppcheck
check clang-tidy run_tidy

if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: found something: ${failed[*]} (logs in $out/)"
    exit 1
fi
echo "lint: nothing found in ${#c_files[@]} C, ${#sh_files[@]} shell and ${#py_files[@]} Python files"

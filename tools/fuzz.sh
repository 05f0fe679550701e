#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the fuzz targets with clang, ASan and UBSan, and runs each for a while. What they learn is kept below
# BUILD_DIR/fuzz/corpus, an input that breaks one in BUILD_DIR/fuzz/crash-<target>-*.
#
# usage: tools/fuzz.sh BUILD_DIR SECONDS_EACH

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:?BUILD_DIR}/fuzz
seconds=${2:?SECONDS_EACH}
rc=0

CC=clang tools/build.sh "$build" -Dfuzzers=true -Dtests=false -Db_sanitize=address,undefined -Db_lundef=false \
    '-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-recover=all -O1' -- fuzzers || exit 1

for program in "$build"/tests/fuzz/fuzz_*; do
    [[ -f $program && -x $program ]] || continue
    name=$(basename "$program")
    corpus=$build/corpus/$name
    mkdir -p "$corpus"
    arguments=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$build/crash-$name-")
    [ ! -f "tests/fuzz/$name.dict" ] || arguments+=(-dict="tests/fuzz/$name.dict")
    seeds=()
    [ ! -d "tests/fuzz/seeds/${name#fuzz_}" ] || seeds=("tests/fuzz/seeds/${name#fuzz_}")
    if "$program" "${arguments[@]}" "$corpus" "${seeds[@]}" >"$build/$name.log" 2>&1; then
        printf 'ok     fuzz/%-20s %s\n' "${name#fuzz_}" "$(sed -n 's/^Done /done /p' "$build/$name.log")"
    else
        rc=1
        printf 'FAILED fuzz/%s; the last lines of %s:\n' "${name#fuzz_}" "$build/$name.log"
        tail -n 30 "$build/$name.log" | sed 's/^/  | /'
    fi
done
exit $rc

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Configures a build directory once, again when its options differ, and builds it. Quiet while all is well.
#
# usage: tools/build.sh BUILD_DIR [MESON_OPTION...] [-- NINJA_TARGET...]

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:?BUILD_DIR}
shift
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
[ $# -eq 0 ] || shift

mkdir -p "$build"
log=$build/configure.log
stamp=$build/.options

configure() {
    if ! /usr/bin/meson "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "build: configuring $build failed; the whole output is in $log" >&2
        exit 1
    fi
}

if [ ! -f "$build/build.ninja" ]; then
    echo "build: configuring $build"
    # What is left of an interrupted configuration would only be in the way.
    rm -rf "$build/meson-private" "$build/meson-info"
    configure setup "$build" "${options[@]}"
    printf '%s\n' "${options[@]}" >"$stamp"
elif [ "$(cat "$stamp" 2>/dev/null)" != "$(printf '%s\n' "${options[@]}")" ]; then
    configure configure "$build" "${options[@]}"
    printf '%s\n' "${options[@]}" >"$stamp"
fi

# Ninja configures again by itself where a meson.build changed; its words about that belong in the log.
if ! /usr/bin/ninja -C "$build" build.ninja >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "build: configuring $build failed; the whole output is in $log" >&2
    exit 1
fi

echo "build: building in $build"
# --quiet hides the progress line; warnings and errors are shown.
/usr/bin/ninja -C "$build" --quiet "$@" | sed -e '/^ninja: Entering directory/d' -e '/^ninja: no work to do/d'

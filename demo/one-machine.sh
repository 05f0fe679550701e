#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One machine without Kubernetes, on two simulated GPUs: starts them, aliquotd --standalone where we are root, and the
# command with the tool in its PATH; takes all of it down again. Without root, or with ALIQUOT_DAEMON=none, there is no
# daemon and limits are voluntary.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${ALIQUOT_BUILD:-$here/../build}")
if [ $# -eq 0 ]; then
    echo "usage: $0 COMMAND [ARGUMENT]...    (after make; PATH has aliquot and the programs of the demo)" >&2
    exit 2
fi
parent=/dev/shm
[ -w "$parent" ] || parent=/tmp
dir=$(mktemp -d "$parent/alq-one-XXXXXX")
gpus='' daemon=''

# shellcheck disable=SC2317 # the trap calls it
clean() {
    for pid in $daemon $gpus; do
        kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
    rm -rf "$dir"
}
trap 'clean || true' EXIT
# The command has them too, and ends by them as it likes.
trap : INT TERM HUP

wait_for() {
    tries=0
    until [ -S "$1" ]; do
        tries=$((tries + 1))
        if [ $tries -gt 1000 ]; then
            cat "$dir/log" >&2
            exit 1
        fi
        sleep 0.01
    done
}

mkdir "$dir/run" "$dir/state" "$dir/cdi" "$dir/lib"
chmod 755 "$dir"
SIMGPU_SOCKET=$dir/simgpud.sock
export SIMGPU_SOCKET
"$build/sim/simgpud" --config "$here/gpus.json" --run-dir "$dir" >"$dir/log" 2>&1 &
gpus=$!
wait_for "$SIMGPU_SOCKET"
"$build/sim/simctl" install-root --config "$here/gpus.json" "$dir/driver" >/dev/null
LD_LIBRARY_PATH=$(echo "$dir"/driver/usr/lib/*-linux-gnu)
# The tool and the library that lies beside it: the loader takes no blank in the path of a preloaded library.
mkdir -p "$dir/cli" "$dir/vgpu"
cp "$build/src/cli/aliquot" "$dir/cli"
cp "$build/src/vgpu/libvgpu.so" "$dir/vgpu"
PATH=$dir/cli:$build/demo:$build/sim:$PATH
ALIQUOT_SOCKET=$dir/run/aliquotd.sock
export PATH ALIQUOT_SOCKET
if [ "$(id -u)" -eq 0 ] && [ "${ALIQUOT_DAEMON:-}" != none ]; then
    "$build/src/daemon/aliquotd" --standalone --run-dir "$dir/run" --state-dir "$dir/state" --cdi-dir "$dir/cdi" \
        --host-lib-dir "$dir/lib" --driver-root "$dir/driver" --metrics-address none 2>"$dir/log" &
    daemon=$!
    wait_for "$ALIQUOT_SOCKET"
    until aliquot doctor >/dev/null 2>&1 && grep -q ' GPUs$' "$dir/log"; do
        kill -0 $daemon || { cat "$dir/log" >&2; exit 1; }
        sleep 0.01
    done
fi
status=0
LD_LIBRARY_PATH=$LD_LIBRARY_PATH "$@" || status=$?
exit $status

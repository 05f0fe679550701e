#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# libvgpu.so and aliquot-hook for aarch64: cross-built, the files examined; every hooked entry point is called, and the hook
# run, under qemu's user emulation. The rest of Aliquot is not built for aarch64 here.
#
# usage: tools/aarch64.sh BUILD_DIR

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:?BUILD_DIR}/aarch64

tools/build.sh "$build" --cross-file tools/aarch64.ini -Dlibrary_only=true -Dtests=false -Dwerror=true
export ALIQUOT_CC=aarch64-linux-gnu-gcc
export ALIQUOT_RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu'
exec /usr/bin/python3 tests/run.py --build "$build" --suite integration/entries --suite integration/hook --suite integration/load

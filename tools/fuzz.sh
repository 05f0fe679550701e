#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the fuzz targets with clang, ASan and UBSan in BUILD_DIR/fuzz; tests/fuzz/test_fuzz.py runs them.
#
# usage: tools/fuzz.sh BUILD_DIR

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
CC=clang exec tools/build.sh "${1:?BUILD_DIR}/fuzz" -Dfuzzers=true -Dtests=false -Db_sanitize=address,undefined \
    -Db_lundef=false '-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-recover=all -O1 -Werror=incompatible-pointer-types' -- fuzzers

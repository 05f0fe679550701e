#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of `make install`: puts settings where they are looked for, and never over those that are there.
#
# usage: deploy/install-settings.sh FROM TO (below DESTDIR)

set -eu
to=${DESTDIR:-}$2
if [ -e "$to" ]; then
    echo "$to is kept as it is"
else
    mkdir -p "$(dirname "$to")"
    install -m 0644 "$1" "$to"
fi

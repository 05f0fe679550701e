#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages of tools/packages.txt that are missing. Owns nothing else on the machine: the configuration
# of apt stays as it is. One dpkg-query decides, so a run with nothing to do takes milliseconds.
#
# usage: tools/setup.sh GROUP...

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=${ALIQUOT_SETUP_LOG:-$here/../build/setup.log}
lock_wait_s=600

if [ $# -eq 0 ]; then
    sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi

# Packages of the groups asked for, one a line.
wanted() {
    local line group=none package option
    while IFS= read -r line; do
        line=${line%%#*}
        read -r package option <<<"$line" || true
        [ -n "$package" ] || continue
        if [[ $package == \[*\] ]]; then
            group=${package:1:-1}
            continue
        fi
        case " $* " in *" $group "*) ;; *) continue ;; esac
        if [[ $option == unless=* ]] && command -v "${option#unless=}" >/dev/null; then
            continue
        fi
        printf '%s\n' "$package"
    done <"$here/packages.txt"
}

# Those of the arguments that are not installed.
missing() {
    local installed package
    # shellcheck disable=SC2016  # dpkg-query's own variables
    installed=" $(dpkg-query -W -f='${db:Status-Status}/${Package} ' "$@" 2>/dev/null || true)"
    for package in "$@"; do
        case "$installed" in *" installed/$package "*) ;; *) printf '%s\n' "$package" ;; esac
    done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: this is not a Debian system; install what tools/packages.txt names by your own means," >&2
    echo "setup: then configure with: meson setup build && ninja -C build" >&2
    exit 1
fi

mapfile -t packages < <(wanted "$@")
mapfile -t lacking < <(missing "${packages[@]}")
[ ${#lacking[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: ${#lacking[@]} Debian packages are missing and installing them needs root; run this, then make again:" >&2
    echo "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends ${lacking[*]}'" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C.UTF-8
apt_get=(apt-get -q -o "DPkg::Lock::Timeout=$lock_wait_s" -o Dpkg::Use-Pty=0 -o APT::Color=0)
mkdir -p "$(dirname "$log")"
echo "setup: ${#lacking[@]} packages to install: ${lacking[*]}"

# The lock of the package lists has no timeout of apt's own. A source of the machine's that does not answer is no reason
# to stop: the packages may come from the others.
echo "setup: apt-get update"
: >"$log"
until "${apt_get[@]}" update >>"$log" 2>&1; do
    if tail -n 5 "$log" | grep -q "Could not get lock" && [ $SECONDS -lt $lock_wait_s ]; then
        echo "setup: waiting for another apt-get (${SECONDS} s)"
        sleep 3
        continue
    fi
    echo "setup: apt-get update did not go through (see $log); trying with the lists as they are"
    break
done

show_progress() {
    awk -v log_file="$log" '
        { print >>log_file; fflush(log_file) }
        /newly installed/ { total = $3 }
        /^Need to get/ { print "setup: " $0; fflush() }
        /^Unpacking / { unpacked++; if (unpacked % 10 == 0) { print "setup: unpacked " unpacked " of " total; fflush() } }
        /^Setting up / { done++; if (done % 10 == 0 || done == total) { print "setup: set up " done " of " total; fflush() } }
        /^E: / { print "setup: " $0; fflush() }'
}

if ! "${apt_get[@]}" install -y --no-install-recommends "${lacking[@]}" 2>&1 | show_progress; then
    echo "setup: installing failed; the whole output is in $log" >&2
    exit 1
fi

mapfile -t lacking < <(missing "${packages[@]}")
if [ ${#lacking[@]} -gt 0 ]; then
    echo "setup: still missing after installing: ${lacking[*]} (see $log)" >&2
    exit 1
fi

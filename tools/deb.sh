#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The Debian package of daemon, tool, library and hook: a build of its own with the prefix /usr, laid out with `meson
# install`, without the simulator. The same commit and packages give the same bytes.
#
# usage: tools/deb.sh BUILD_DIR        writes BUILD_DIR/aliquot_<version>_<architecture>.deb and prints its name

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:?BUILD_DIR}")
work=$out/deb
root=$work/root
source=deploy/deb

tools/build.sh "$work/build" -Dprefix=/usr -Dlibdir=lib -Dtests=false -Dbuildtype=debugoptimized >&2
version=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" meson.build)
maintainer=${DEB_MAINTAINER:-Aliquot <aliquot@localhost.localdomain>}
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

rm -rf "$root" "$work/all"
mkdir -p "$root/DEBIAN"
DESTDIR=$work/all /usr/bin/meson install -C "$work/build" --no-rebuild >"$work/install.log"
# What belongs to the package; the rest is for tests and demonstrations.
for path in usr/bin/aliquot usr/sbin/aliquotd usr/libexec/aliquot usr/share/man/man1/aliquot.1 usr/share/man/man8/aliquotd.8 \
    usr/share/bash-completion/completions/aliquot usr/share/fish/vendor_completions.d/aliquot.fish etc/aliquot; do
    mkdir -p "$root/$(dirname "$path")"
    cp -a "$work/all/$path" "$root/$path"
done
install -D -m 0644 -t "$root/lib/systemd/system" "$work/all/usr/lib/systemd/system/"*.service
install -D -m 0644 "$work/all/usr/share/zsh/site-functions/_aliquot" "$root/usr/share/zsh/vendor-completions/_aliquot"
find "$root" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' _ {} \; -exec strip --strip-unneeded --remove-section=.comment --remove-section=.note {} +
chmod -R u=rwX,go=rX "$root"
chmod 0644 "$root/usr/libexec/aliquot/libvgpu.so"
find "$root/usr/share/man" -name 'aliquot*.[18]' -exec gzip -9n {} +

doc=$root/usr/share/doc/aliquot
install -D -m 0644 "$source/copyright" "$doc/copyright"
printf 'aliquot (%s) unstable; urgency=medium\n\n  * Built from the tree; what has changed is in its history.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
install -D -m 0644 "$source/lintian-overrides" "$root/usr/share/lintian/overrides/aliquot"

# dpkg-shlibdeps wants to be in a source package.
mkdir -p "$work/shlibs/debian"
printf 'Source: aliquot\n\nPackage: aliquot\nArchitecture: any\n' >"$work/shlibs/debian/control"
mapfile -t programs < <(find "$root/usr" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' _ {} \; -print)
depends=$(cd "$work/shlibs" && dpkg-shlibdeps -O "${programs[@]}" 2>"$work/shlibs.log" | sed -n 's/^shlibs:Depends=//p')
size=$(du -sk --apparent-size "$root" | cut -f1)
sed -e "s|@VERSION@|$version|" -e "s|@ARCH@|$architecture|" -e "s|@MAINTAINER@|$maintainer|" -e "s|@SIZE@|$size|" -e "s|@DEPENDS@|$depends|" "$source/control" \
    >"$root/DEBIAN/control"
install -m 0755 -t "$root/DEBIAN" "$source/postinst" "$source/prerm" "$source/postrm"
(cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

package=$out/aliquot_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >&2
echo "$package"

#!/usr/bin/env bash
# Usage: package-deb.sh TREES OUT [VERSION]
# Packages of Debian from the trees of package-trees.sh. dpkg-deb is all that is needed: a list of files and a few scripts are not a reason to
# build a packager.
set -euo pipefail
trees=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
debian=$PWD/contrib/packages/debian
version=${3:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)-1}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}" LC_ALL=C
umask 022
machine=${MACHINE:-$(uname -m)}
[ "$machine" != "$(uname -m)" ] || machine=
case $machine in
"") architecture=$(dpkg --print-architecture) ;;
aarch64) architecture=arm64 ;;
x86_64) architecture=amd64 ;;
*) echo "MACHINE=$machine: Debian's name of it is not known here (aarch64, x86_64)" >&2 && exit 2 ;;
esac
maintainer=$(sed -n 's/^Maintainer: //p' "$debian/control")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian" && cp "$debian/control" "$work/debian/control"

# The libraries that a program needs, and since when they have what it uses.
libraries() {
    # Those of another processor are not installed; the newest version of their symbols that the program uses stands in it.
    if [ -n "$machine" ]; then
        readelf -V "$1" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | sed -n '$s/GLIBC_\(.*\)/libc6 (>= \1), libgcc-s1 (>= 4.2)/p'
        return
    fi
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# The releases of CHANGELOG.md, the newest first and under the version of the package.
changelog() {
    local named=$version date
    sed -n 's/^## \([0-9][0-9.]*\) (\(.*\))$/\1 \2/p' CHANGELOG.md | while read -r release date; do
        printf 'tapline (%s) unstable; urgency=medium\n\n  * Changes are in changelog.gz.\n\n' "${named:-$release-1}"
        printf ' -- %s  %s\n\n' "$maintainer" "$(date -u -R -d "$date")"
        named=
    done
}

# The paragraph of a package, as its control file.
control() {
    local package=$1 tree=$2 depends=$3
    local of_all=$architecture
    awk -v RS= -v "package=Package: $package" 'index($0, package "\n") == 1' "$debian/control" >"$work/paragraph"
    grep -q '^Architecture: all' "$work/paragraph" && of_all=all
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$package" "$version" "$of_all" "$maintainer"
        printf 'Installed-Size: %s\nPriority: optional\n' "$(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f1)"
        grep -q '^Section:' "$work/paragraph" || printf 'Section: net\n'
        sed -e '/^Package:/d; /^Architecture:/d' -e "s/\${shlibs:Depends}/$depends/; s/\${source:Version}/$version/" "$work/paragraph"
    } >"$tree/DEBIAN/control"
}

for package in tapline tapline-full tapline-daemon tapline-libpcap; do
    [ -d "$trees/$package" ] || continue
    tree=$work/$package
    cp -a "$trees/$package" "$tree"
    mkdir "$tree/DEBIAN"
    changelog | gzip -9n >"$tree/usr/share/doc/$package/changelog.Debian.gz"
    case $package in
    tapline | tapline-full) depends=$(libraries "$tree/usr/bin/tapline") ;;
    tapline-libpcap) depends=$(libraries "$tree/usr/lib/tapline/libpcap.so.0.8") ;;
    *) depends= ;;
    esac
    control "$package" "$tree" "$depends"
    (cd "$tree" && find etc -type f 2>/dev/null | sort | sed 's|^|/|') >"$tree/DEBIAN/conffiles" || true
    [ -s "$tree/DEBIAN/conffiles" ] || rm "$tree/DEBIAN/conffiles"
    for script in postinst prerm postrm; do
        [ -f "$debian/${package%-full}.$script" ] && install -m 755 "$debian/${package%-full}.$script" "$tree/DEBIAN/$script"
    done
    [ -f "$debian/${package%-full}.triggers" ] && install -m 644 "$debian/${package%-full}.triggers" "$tree/DEBIAN/triggers"
    [ -d "$debian/overrides" ] && [ -f "$debian/overrides/$package" ] &&
        install -D -m 644 "$debian/overrides/$package" "$tree/usr/share/lintian/overrides/$package"
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    of_all=$(sed -n 's/^Architecture: //p' "$tree/DEBIAN/control")
    dpkg-deb --root-owner-group "-Z${DEB_COMPRESSION:-xz}" --build "$tree" "$out/${package}_${version}_${of_all}.deb" >/dev/null
    ls -l "$out/${package}_${version}_${of_all}.deb"
done

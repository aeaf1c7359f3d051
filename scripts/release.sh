#!/usr/bin/env bash
# Usage: release.sh OUT [PROGRAM]
# Every file of a release into OUT: for each processor that this machine can build for, the static program with its licences as a .tar.gz,
# a container image, and packages of Debian and Fedora; then an SBOM and checksums. A part that cannot be built here is named with the reason,
# and the status is 3.
#
# With PROGRAM nothing is built: the packaging is tried with that program of this machine in the place of each one. `make release PROGRAM=...`
set -euo pipefail
out=$(realpath -m "$1") given=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" LC_ALL=C
here=$(uname -m)
for file in "tapline-$version-" "tapline_$version-1_"; do
    grep -q "/$file" README.md || { echo "README.md installs another version than $version" >&2 && exit 1; }
done
umask 022
rm -rf "$out" && mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing=()
step() { printf -- '-- %s\n' "$*"; }
skip() { printf 'skipped: %s\n' "$*" && missing+=("$*"); }
has() { command -v "$1" >/dev/null; }

# The program that needs no library, and what it contains.
static_program() {
    local machine=$1 folder=$work/$1/tapline-$version-$1
    mkdir -p "$folder"
    if [ -n "$given" ]; then
        cp "$given" "$folder/tapline"
        bash scripts/licences.sh "$machine-unknown-linux-musl" >"$folder/copyright"
    else
        make --no-print-directory static TARGET="$machine-unknown-linux-musl"
        cp target/static/tapline target/static/copyright "$folder/"
    fi
    cp README.md LICENSE-MIT LICENSE-APACHE "$folder/"
    chmod 755 "$folder/tapline"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work/$machine" -c "tapline-$version-$machine" |
        gzip -9n >"$out/tapline-$version-$machine.tar.gz"
    python3 scripts/oci-image.py "$machine" "$version" "$folder" "$out/tapline-$version-$machine.oci.tar"
}

# Packages of one processor, by the same steps as `make deb` and `make rpm`.
packages() {
    local machine=$1 target=
    [ "$machine" = "$here" ] || target=$machine-unknown-linux-gnu
    if [ -n "$given" ]; then
        # The library has no part in a trial: its place is taken by the program, too.
        MACHINE=$machine RUNNER= bash scripts/package-trees.sh "$given" "$given" "$work/trees-$machine" ${FULL:+"$given"}
        MACHINE=$machine bash scripts/package-deb.sh "$work/trees-$machine" "$out"
        if has rpmbuild; then MACHINE=$machine bash scripts/package-rpm.sh "$work/trees-$machine" "$out"; fi
    else
        make --no-print-directory deb TARGET="$target" PACKAGES="$out"
        # The trees of the packages of Debian are those of Fedora's.
        if has rpmbuild; then MACHINE=$machine bash scripts/package-rpm.sh target/package-trees "$out"; fi
    fi
    has rpmbuild || skip "$machine: .rpm: apt-get install rpm"
}

# Whether this machine can build for a processor: its own needs no more than the C compiler of musl.
can_build() {
    local machine=$1 kind=$2 cc=$1-linux-gnu-gcc package="gcc-$1-linux-gnu libc6-dev-arm64-cross"
    if [ -n "$given" ]; then
        [ "$machine" = "$here" ] || echo "a trial has the program of this machine alone"
        [ "$machine" = "$here" ]
        return
    fi
    if ! rustc --print target-libdir --target "$machine-unknown-linux-$kind" | xargs test -d; then
        skip "$machine: $kind: rustup target add $machine-unknown-linux-$kind"
        return 1
    fi
    if [ "$machine" = "$here" ]; then
        [ "$kind" = musl ] || return 0
        cc=musl-gcc package=musl-tools
    fi
    if ! has "$cc"; then
        skip "$machine: $kind: no $cc: apt-get install $package"
        return 1
    fi
    # The program writes its manual while its package is made.
    if [ "$kind" = gnu ] && ! has "qemu-$machine"; then
        skip "$machine: packages: no qemu-$machine: apt-get install qemu-user"
        return 1
    fi
}

for machine in x86_64 aarch64; do
    step "$machine: static program and image"
    can_build "$machine" musl && static_program "$machine"
    step "$machine: packages"
    can_build "$machine" gnu && packages "$machine"
done
step "SBOM and checksums"
python3 scripts/sbom.py >"$out/tapline-$version.cdx.json"
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
ls -l "$out"
if [ ${#missing[@]} -gt 0 ]; then
    printf 'not in this release: %s\n' "${missing[@]}" >&2
    exit 3
fi

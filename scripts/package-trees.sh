#!/usr/bin/env bash
# Usage: package-trees.sh PROGRAM LIBPCAP OUT [FULL]
# The files of the packages as trees, for dpkg-deb and rpmbuild alike: OUT/tapline, OUT/tapline-daemon, OUT/tapline-libpcap, and with FULL, the
# program with all features, OUT/tapline-full. Man pages and
# completions are made by the program itself; RUNNER='qemu-aarch64 -L ...' runs the program of another processor, MACHINE=aarch64. The same
# input gives the same bytes: times are those of the last commit.
set -euo pipefail
program=$(realpath "$1") libpcap=$(realpath "$2") out=$3 full=${4:+$(realpath "$4")}
cd "$(dirname "$0")/.."
contrib=$PWD/contrib
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}" LC_ALL=C
RUNNER=${RUNNER:-} MACHINE=${MACHINE:-$(uname -m)}
umask 022

rm -rf "$out" && mkdir -p "$out"
out=$(realpath "$out")
# put TREE SOURCE PLACE [MODE]
put() { install -D -m "${4:-644}" "$2" "$out/$1/$3"; }
put_text() { mkdir -p "$(dirname "$out/$1/$2")" && cat >"$out/$1/$2"; }

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT

# program_tree PACKAGE PROGRAM
program_tree() {
    # The program, its manual and its completions.
    put "$1" "$2" usr/bin/tapline 755
    mkdir -p "$out/$1/usr/libexec/tapline"
    ln -s ../../bin/tapline "$out/$1/usr/libexec/tapline/tapline-extcap"
    rm -rf "$pages/of" && mkdir "$pages/of"
    $RUNNER "$2" manual --pages "$pages/of"
    (cd "$pages/of" && find . -type f) | while read -r page; do
        gzip -9n <"$pages/of/$page" | put_text "$1" "usr/share/man/$page.gz"
    done
    $RUNNER "$2" manual --completions bash | put_text "$1" usr/share/bash-completion/completions/tapline
    $RUNNER "$2" manual --completions zsh | put_text "$1" usr/share/zsh/vendor-completions/_tapline
    $RUNNER "$2" manual --completions fish | put_text "$1" usr/share/fish/vendor_completions.d/tapline.fish
    gzip -9n <README.md | put_text "$1" "usr/share/doc/$1/README.md.gz"
    find docs -name '*.md' | sort | while read -r document; do
        gzip -9n <"$document" | put_text "$1" "usr/share/doc/$1/$document.gz"
    done
    find examples -type f | sort | while read -r example; do
        put "$1" "$example" "usr/share/doc/$1/$example"
    done

    # What stands behind the program: tables and a board of ClickHouse, sources of Spark.
    put "$1" contrib/clickhouse/flows.sql usr/share/tapline/clickhouse/flows.sql
    put "$1" contrib/grafana/flows-clickhouse.json usr/share/tapline/grafana/flows-clickhouse.json
    put "$1" contrib/spark/tapline_spark.py usr/share/tapline/spark/tapline_spark.py
}
program_tree tapline "$program"
packages="tapline tapline-daemon tapline-libpcap"
if [ -n "$full" ]; then
    program_tree tapline-full "$full"
    packages="$packages tapline-full"
fi

# The service.
for unit in "$contrib"/systemd/*.service; do
    put tapline-daemon "$unit" "usr/lib/systemd/system/$(basename "$unit")"
done
put tapline-daemon "$contrib/systemd/tapline.sysusers" usr/lib/sysusers.d/tapline.conf
put tapline-daemon "$contrib/systemd/tapline.tmpfiles" usr/lib/tmpfiles.d/tapline.conf
put tapline-daemon "$contrib/systemd/tapline.catalog" usr/lib/systemd/catalog/tapline.catalog
put tapline-daemon "$contrib/packages/vendor.toml" usr/lib/tapline/tapline.toml
put tapline-daemon "$contrib/packages/serve.toml" etc/tapline/serve.toml
put tapline-daemon "$contrib/packages/tapline.toml" etc/tapline/tapline.toml
put tapline-daemon "$contrib/grafana/tapline.json" usr/share/tapline/grafana/tapline.json
put tapline-daemon "$contrib/prometheus/tapline.rules.yml" usr/share/tapline/prometheus/tapline.rules.yml

# The library, outside of the linker's path.
put tapline-libpcap "$libpcap" usr/lib/tapline/libpcap.so.0.8

bash scripts/licences.sh "$MACHINE-unknown-linux-gnu" >"$pages/copyright"
for package in $packages; do
    put "$package" "$pages/copyright" "usr/share/doc/$package/copyright"
    gzip -9n <CHANGELOG.md | put_text "$package" "usr/share/doc/$package/changelog.gz"
done
find "$out" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

#!/usr/bin/env bash
# Usage: test-release.sh FOLDER [PICTURE]
# From the files of `make release` to the page, in a Debian that has curl and nothing else: the commands of README.md's "Install" with
# DOWNLOAD as the address of FOLDER, and the seconds that each takes. With PICTURE and Chromium the page is kept as a PNG.
#
# Needs root, mmdebstrap and, once, the network; says skipped without them.
set -euo pipefail
files=$(realpath "$1") picture=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/.."
skip() { echo "skipped: release: $1" && exit 0; }
fail() { echo "FAILED: $1" >&2 && exit 1; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
[ -s "$files/SHA256SUMS" ] || skip "no release in $files: make release"

base=$(realpath -m "${CARGO_TARGET_DIR:-target}/debian-12-bare.tar")
if [ ! -s "$base" ]; then
    mmdebstrap --quiet --variant=minbase --include=curl --format=tar bookworm "$base.part" 2>"$base.log" ||
        skip "no Debian 12 from the network: $(tail -1 "$base.log")"
    mv "$base.part" "$base"
fi

# A network of its own, with the server of the files and the page in it.
if [ -z "${TAPLINE_RELEASE_INSIDE:-}" ]; then
    exec env TAPLINE_RELEASE_INSIDE=1 unshare --net --mount "$0" "$files" ${picture:+"$picture"}
fi
ip link set lo up
work=$(mktemp -d /var/tmp/tapline-release.XXXXXX)
root=$work/root
running=()
leave() {
    for pid in "${running[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
    for mount in proc sys dev; do umount -l "$root/$mount" 2>/dev/null || true; done
    rm -rf --one-file-system "$work"
}
trap leave EXIT

mkdir "$root" && tar -xf "$base" -C "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sys "$root/sys"
mount --bind /dev "$root/dev"
for program in cc make cargo python3 tcpdump ip; do
    chroot "$root" sh -c "command -v $program" >/dev/null && fail "the bare Debian has $program"
done
python3 -m http.server --bind 127.0.0.1 8000 --directory "$files" >"$work/server" 2>&1 &
running+=($!)
until curl -sf http://127.0.0.1:8000/SHA256SUMS >/dev/null; do sleep 0.05; done

# The ways of README.md's first block below "## Install": a comment, and the command below it.
awk '/^## Install/ { found = 1 } found && /^```/ { inside = !inside; if (!inside) exit; next } found && inside' README.md >"$work/install"
way() { awk -v name="# $1" 'index($0, name) == 1 { found = 1; next } found && /^#/ { exit } found' "$work/install"; }
# Runs commands in the Debian, prints them and their time.
total=0
run() {
    local began ended
    began=$(date +%s%N)
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        DOWNLOAD=http://127.0.0.1:8000 bash -euo pipefail -c 'cd; sudo() { "$@"; }; eval "$1"' - "$1" >"$work/log" 2>&1 ||
        { cat "$work/log" && fail "$1"; }
    ended=$(date +%s%N)
    total=$((total + (ended - began) / 1000000))
    printf '%6d ms  %s\n' $(((ended - began) / 1000000)) "${1//$'\n'/; }"
}

one=$(way 'One file') deb=$(way 'Debian') check=$(way 'Checksums')
[ -n "$one" ] && [ -n "$deb" ] && [ -n "$check" ] || fail "README.md has not the three ways"
echo "-- one file"
run "$one"
program=$(cd "$root/root" && ls -d tapline-*/tapline)
run "./$program --version"
echo "-- package"
run "$deb"
run "$check"
run "tapline --version"

# Somebody talks, and the page shows it.
echo "-- the page"
began=$(date +%s%N)
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "/root/$program" view -i lo >"$work/view" 2>&1 &
running+=($!)
address=
for _ in $(seq 600); do
    address=$(grep -ao 'http://127[^ ]*#token=[^ ]*' "$work/view" | head -1) && [ -n "$address" ] && break
    kill -0 "${running[-1]}" 2>/dev/null || { cat "$work/view" && fail "tapline view has ended"; }
    sleep 0.05
done
[ -n "$address" ] || { cat "$work/view" && fail "no address"; }
said=$(date +%s%N)
token=${address##*token=} page=${address%%#*}
curl -sf -c "$work/cookie" -H "Authorization: Bearer $token" "${page%/}/api/session" >/dev/null || fail "no session"
shown=
for _ in $(seq 600); do
    curl -sf http://127.0.0.1:8000/SHA256SUMS >/dev/null
    curl -sf -b "$work/cookie" "${page%/}/api/page?page=hosts" >"$work/page" && grep -q '"host":"127.0.0.1"' "$work/page" && shown=yes && break
    sleep 0.05
done
[ -n "$shown" ] || { cat "$work/view" "$work/page" && fail "the page shows no host"; }
ended=$(date +%s%N)
printf '%6d ms  sudo %s view -i lo: the address\n%6d ms  until the page shows the host\n' $(((said - began) / 1000000)) "$program" $(((ended - said) / 1000000))
printf 'from the download to the picture: %d ms\n' $((total + (ended - began) / 1000000))
modules=${CARGO_TARGET_DIR:-target}/node/node_modules
if [ -n "$picture" ] && command -v chromium >/dev/null && [ -d "$modules/playwright-core" ]; then
    while sleep 0.1; do curl -sf "http://127.0.0.1:8000/$(basename "$(ls "$files"/*.deb | head -1)")" >/dev/null; done &
    running+=($!)
    NODE_PATH=$(realpath "$modules") PAGES=overview PICTURE=$picture node scripts/page-speed.cjs "$address" 1 2
fi

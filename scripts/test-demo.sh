#!/usr/bin/env bash
# Runs `make demo` in a bare Debian that has Rust, make and a C compiler, and neither ip nor ethtool nor tcpdump.
#
#     scripts/test-demo.sh [FOLDER]       FOLDER keeps the Debian for the next run; default: demo-root of the target directory
#
# Needs root, mmdebstrap and the network. The commit that is checked out is cloned into the Debian, and its target
# directory stays there.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "skipped: demo: $1" && exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap"

root=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/demo-root}")
toolchain=$(rustc --print sysroot)
leave() {
    for mount in proc sys dev rust cargo; do umount -l "$root/$mount" 2>/dev/null || true; done
}
trap leave EXIT

if [ ! -x "$root/usr/bin/make" ]; then
    mmdebstrap --quiet --variant=minbase --include=gcc,libc6-dev,make,ca-certificates bookworm "$root" ||
        skip "no Debian 12 from the network"
fi
for program in ip ethtool tcpdump; do
    ! chroot "$root" sh -c "command -v $program" || { echo "the bare Debian has $program" >&2 && exit 1; }
done
rm -rf "$root/tapline"
git clone --quiet . "$root/tapline"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/rust" "$root/cargo"
mount -t proc proc "$root/proc"
mount -t sysfs sys "$root/sys"
mount --bind /dev "$root/dev"
mount --bind "$toolchain" "$root/rust"
mount --bind "${CARGO_HOME:-$HOME/.cargo}" "$root/cargo"

log=$root/demo.log
began=$SECONDS
chroot "$root" env PATH=/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO_HOME=/cargo make -C /tapline demo \
    </dev/null 2>&1 | tee "$log"
echo "make demo took $((SECONDS - began)) s"
# It was live, lost nothing, and showed each part.
for line in 'packets, 0 dropped' 'near0' 'http://127.0.0.1:' 'top flows' 'Recorded into a store'; do
    grep -q "$line" "$log" || { echo "the demonstration did not print: $line" >&2 && exit 1; }
done
! grep -q 'No live capture' "$log" || { echo "the demonstration was not live" >&2 && exit 1; }

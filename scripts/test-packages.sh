#!/usr/bin/env bash
# Usage: test-packages.sh DEBS
# The life of the packages in a Debian 12 of their own: an older version, its upgrade, the daemon as its user, removal, purge, installation
# again. Needs root and mmdebstrap; says skipped without them.
set -euo pipefail
debs=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
skip() { echo "skipped: packages: $1" && exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
work=$(mktemp -d /var/tmp/tapline-packages.XXXXXX)
root=$work/root
leave() {
    [ -z "${daemon:-}" ] || kill "$daemon" 2>/dev/null || true
    umount -l "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap leave EXIT
fail() { echo "FAILED: $1" && exit 1; }
step() { echo "-- $1"; }

step "lintian"
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --tag-display-limit 0 --allow-root "$debs"/*.deb || fail "lintian"
else
    echo "skipped: packages: no lintian"
fi

step "a Debian 12"
base=${CARGO_TARGET_DIR:-$here/../target}/debian-12.tar
if [ ! -s "$base" ]; then
    mmdebstrap --quiet --variant=minbase --include=systemd,util-linux,iproute2,wireshark-common bookworm "$base.part" --format=tar 2>"$work/log" ||
        skip "no Debian 12 from the network: $(tail -1 "$work/log")"
    mv "$base.part" "$base"
fi
mkdir "$root" && tar -xf "$base" -C "$root"
mount -t proc proc "$root/proc"
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
install_all() {
    mkdir -p "$root/debs" && rm -f "$root"/debs/* && find "$1" -name '*.deb' ! -name 'tapline-full_*' -exec cp -t "$root/debs" {} +
    in_root sh -c 'dpkg --install /debs/*.deb' >"$work/log" 2>&1 || { cat "$work/log" && fail "installation of $1"; }
}

step "version 0.1"
mkdir "$work/old" "$work/trees"
for deb in "$debs"/*.deb; do
    package=$(dpkg-deb --field "$deb" Package)
    dpkg-deb --extract "$deb" "$work/trees/$package"
    rm -rf "$work/trees/$package/usr/share/lintian" "$work/trees/$package/usr/share/doc/$package/changelog.Debian.gz"
done
bash "$here/package-deb.sh" "$work/trees" "$work/old" 0.1.0-1 >/dev/null
install_all "$work/old"
[ "$(in_root dpkg-query -W -f '${Version}' tapline)" = 0.1.0-1 ] || fail "0.1 is not installed"
in_root id -u tapline >/dev/null || fail "there is no user tapline"
echo 'buffer_of_the_administrator = 1' >>"$root/etc/tapline/tapline.toml"
in_root systemctl is-enabled tapline.service >/dev/null 2>&1 && fail "the service is enabled"

step "upgrade"
install_all "$debs"
in_root tapline --version
in_root dpkg --verify tapline tapline-libpcap || fail "files differ from the package's"
grep -q buffer_of_the_administrator "$root/etc/tapline/tapline.toml" || fail "the administrator's file was replaced"
sed -i '/buffer_of_the_administrator/d' "$root/etc/tapline/tapline.toml"
in_root tapline config check
[ -e "$root/usr/share/man/man1/tapline-capture.1.gz" ] && [ -e "$root/usr/share/man/man7/tapline-filter.7.gz" ] &&
    [ -e "$root/usr/share/man/man5/tapline-serve.toml.5.gz" ] || fail "man pages are missing"
in_root /usr/libexec/tapline/tapline-extcap --extcap-interfaces | grep -q '^extcap {version=' || fail "no extcap"
[ -L "$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/wireshark/extcap/tapline-extcap" ] || fail "Wireshark has no link"
[ "$(stat -c '%U %a' "$root/var/lib/tapline" 2>/dev/null | sed "s/^UNKNOWN/$(in_root id -un tapline)/")" != "" ] || fail "no /var/lib/tapline"

step "units"
for unit in "$root"/usr/lib/systemd/system/tapline*.service; do
    found=$(in_root systemd-analyze verify --man=no "/usr/lib/systemd/system/$(basename "$unit")" 2>&1 | grep tapline || true)
    [ -z "$found" ] || fail "systemd-analyze verify: $found"
done
exposure() {
    in_root systemd-analyze security --offline=true --no-pager --threshold="$2" "/usr/lib/systemd/system/$1" | tail -1 || fail "exposure of $1"
}
for unit in tapline tapline-record@ tapline-probe@ tapline-watch@; do exposure $unit.service 25; done
for unit in tapline-metrics tapline-view tapline-collect; do exposure $unit.service 15; done

step "the daemon as its user, with two capabilities"
cat >"$root/etc/tapline/serve.toml" <<'RULES'
[[capture]]
name = "lo"
interfaces = ["lo"]
history = ""
RULES
in_root tapline config check /etc/tapline/serve.toml
in_root systemd-tmpfiles --create tapline.conf 2>/dev/null || in_root install -d -o tapline -g tapline /run/tapline
uid=$(in_root id -u tapline)
in_root unshare --net sh -c "ip link set lo up; exec setpriv --reuid $uid --regid $(in_root id -g tapline) --clear-groups --no-new-privs \
    --inh-caps=-all,+net_raw,+net_admin --ambient-caps=-all,+net_raw,+net_admin --bounding-set=-all,+net_raw,+net_admin \
    tapline serve --config /etc/tapline/serve.toml" >"$work/daemon.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do [ -S "$root/run/tapline/serve.sock" ] && break || sleep 0.1; done
in_root tapline status | tee "$work/status" | grep -q 'tap:lo (lo)' || { cat "$work/daemon.log" "$work/status" && fail "the daemon does not serve"; }
cat "$work/status"
in_root tapline metrics --once | grep -q '^tapline_daemon_up 1$' || fail "no metrics of the daemon"
pkill -TERM -P "$daemon" 2>/dev/null || kill -TERM "$daemon"
wait "$daemon" || { cat "$work/daemon.log" && fail "the daemon ended by an error"; }
daemon=
grep -q 'balanced' "$work/daemon.log" || { cat "$work/daemon.log" && fail "no account"; }

step "removal and purge"
in_root install -d -o tapline -g tapline /var/lib/tapline/evidence
in_root dpkg --remove tapline-daemon tapline-libpcap tapline >"$work/log" 2>&1 || { cat "$work/log" && fail "removal"; }
[ -e "$root/etc/tapline/serve.toml" ] || fail "removal took the configuration"
[ ! -L "$root/usr/lib/x86_64-linux-gnu/wireshark/extcap/tapline-extcap" ] || fail "the link for Wireshark is left"
in_root dpkg --purge tapline-daemon tapline-libpcap tapline >"$work/log" 2>&1 || { cat "$work/log" && fail "purge"; }
[ ! -e "$root/etc/tapline" ] || fail "purge left $(find "$root/etc/tapline")"
[ -d "$root/var/lib/tapline/evidence" ] || fail "purge took a store"
left=$(find "$root" -xdev \( -path "$root/proc" -o -path "$root/debs" -o -path "$root/var/lib/tapline" \) -prune -o -name '*tapline*' -print)
[ -z "$left" ] || fail "purge left $left"

step "tapline-full in the place of tapline, and back"
install_all "$debs"
full=$(find "$debs" -name 'tapline-full_*.deb')
cp "$full" "$root/debs/"
in_root dpkg --install "/debs/$(basename "$full")" >"$work/log" 2>&1 || { cat "$work/log" && fail "installation of tapline-full"; }
in_root dpkg-query -W -f '${Status}' tapline 2>/dev/null | grep -q '^install ok' && fail "tapline stands beside tapline-full"
in_root dpkg --verify tapline-full || fail "files differ from the package's"
in_root dpkg --audit | grep -q . && fail "dpkg --audit: $(in_root dpkg --audit)"
[ -L "$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/wireshark/extcap/tapline-extcap" ] || fail "tapline-full has no link for Wireshark"
gunzip -c "$root/usr/share/doc/tapline-full/examples/mixed.pcapng.gz" 2>/dev/null >"$root/mixed.pcapng" ||
    cp "$root/usr/share/doc/tapline-full/examples/mixed.pcapng" "$root/mixed.pcapng"
in_root sh -c 'tapline probe -r /mixed.pcapng --export parquet:/flows && ls /flows/*/*/*.parquet' >"$work/log" 2>&1 || fail "no Parquet"
in_root tapline probe -r /mixed.pcapng --export 'kafka://127.0.0.1:1/flows' --patience 0.1s 2>&1 | grep -q 'this build' && fail "no Kafka"
echo "password" >"$root/secret"
# A broker that is away: it fails for that, and not for a client without TLS.
in_root tapline probe -r /mixed.pcapng --export 'kafka://me@127.0.0.1:1/flows' --export-secret /secret --patience 0.1s >"$work/log" 2>&1 || true
grep -q 'not all was taken' "$work/log" || { cat "$work/log" && fail "no TLS to Kafka"; }
in_root tapline config check
rm -r "$root/flows" "$root/mixed.pcapng" "$root/secret"
install_all "$debs"
in_root dpkg --purge tapline-full tapline-daemon tapline-libpcap tapline >"$work/log" 2>&1 || { cat "$work/log" && fail "purge of tapline-full"; }

step "installed again"
install_all "$debs"
in_root tapline capture --help >/dev/null || fail "it does not run"
in_root tapline config check
echo "packages: installed, upgraded, run, removed, purged and installed again"

#!/usr/bin/env bash
# Usage: package-rpm.sh TREES OUT
# Packages of Fedora and its kin from the trees of package-trees.sh, by rpmbuild.
set -euo pipefail
trees=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}" LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# One root for all three; zsh has another place there.
root=$work/root
mkdir -p "$root"
for package in tapline tapline-daemon tapline-libpcap; do cp -a "$trees/$package/." "$root/"; done
mv "$root/usr/share/zsh/vendor-completions" "$root/usr/share/zsh/site-functions"

# The list of a package's files.
files() {
    (cd "$trees/$1" && find . ! -type d -printf '/%P\n' | sort) |
        sed -e 's|/zsh/vendor-completions/|/zsh/site-functions/|' -e 's|^/etc/|%config(noreplace) /etc/|' \
            -e 's|^/usr/share/doc/|%doc /usr/share/doc/|'
}
for package in tapline tapline-daemon tapline-libpcap; do files "$package" >"$work/$package.files"; done
cat >"$work/tapline.spec" <<SPEC
%global _build_id_links none
%global debug_package %{nil}
%global _binary_payload ${RPM_PAYLOAD:-w6.xzdio}
%global __os_install_post %{nil}
%global source_date_epoch_from_changelog 0
%global clamp_mtime_to_source_date_epoch 1
%global use_source_date_epoch_as_buildtime 1
%global _buildhost tapline
Name: tapline
Version: $version
Release: 1
Summary: Packet capture and network analysis that accounts for every packet
License: MIT OR Apache-2.0
AutoReqProv: no
Requires: libc.so.6()(64bit), libgcc_s.so.1()(64bit)
%description
Tapline captures from interfaces and files, filters with the language of libpcap, prints, records for days, finds again, and meters flows.
Each command ends with an account of where every packet went.
%package daemon
Summary: One packet capture for many readers, as a service
Requires: tapline = %{version}, systemd
%description daemon
Units of systemd for tapline serve, tapline record and tapline metrics, with a user of their own.
%package libpcap
Summary: The interface of libpcap on captures of Tapline
Requires: libc.so.6()(64bit), libgcc_s.so.1()(64bit)
%description libpcap
A libpcap.so.0.8 for programs that are started with LD_LIBRARY_PATH=/usr/lib/tapline.
%install
cp -a $root/. %{buildroot}/
%post daemon
systemd-sysusers tapline.conf || :
systemd-tmpfiles --create tapline.conf || :
install -d -o tapline -g tapline -m 0750 /var/lib/tapline || :
[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :
%preun daemon
[ \$1 != 0 ] || [ ! -d /run/systemd/system ] || systemctl stop 'tapline*.service' || :
%postun daemon
[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :
%files -f $work/tapline.files
%files daemon -f $work/tapline-daemon.files
%files libpcap -f $work/tapline-libpcap.files
SPEC
rpmbuild -bb --quiet --nodeps --target "${MACHINE:-$(uname -m)}" --define "_topdir $work/top" --define "_rpmdir $out" --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    "$work/tapline.spec"
ls -l "$out"/*.rpm

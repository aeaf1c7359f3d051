#!/usr/bin/env bash
# Demonstrates Tapline in a minute: traffic over a virtual link, captured with a filter, printed and explained.
#
#   namespace:  near0 ===== far0 --> tapline capture 'filter' --> target/demo-files/demo.pcapng --> text, account
#                 ^
#                 tapline-testkit send
#
# Needs the right to make a network namespace (root). Without it, works on the sample of the repository. Leaves nothing
# behind but target/demo-files.
set -euo pipefail
cd "$(dirname "$0")/.."

namespace="tapline-demo-$$"
folder=target/demo-files
filter='tcp port 443 or udp port 53 or icmp or arp'
frames=50000
rate=20000
capture_pid=

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Prints a command as it could be typed, and runs it.
show() {
    local word line='$'
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./:=,-]+$ ]] || word="'$word'"
        line+=" $word"
    done
    echo "$line"
    "$@"
}

clean_up() {
    # At any end: first the capture, then its namespace.
    [ -n "$capture_pid" ] && kill "$capture_pid" 2>/dev/null && wait "$capture_pid" 2>/dev/null || true
    ip netns delete "$namespace" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

build() {
    say "Building: the first time takes some five minutes of processor time, half of that on two idle processors"
    # Without native code for filters, whose code generator takes three minutes more; nothing below needs it.
    cargo build --profile demo --locked --quiet -p tapline-cli -p tapline-testkit --no-default-features
    binaries="${CARGO_TARGET_DIR:-target}/demo"
    tapline="$binaries/tapline"
    testkit="$binaries/tapline-testkit"
    mkdir -p "$folder"
}

# The capture is ready when its packet socket is bound to an interface of the namespace.
wait_until_listening() {
    for _ in $(seq 100); do
        ip netns exec "$namespace" awk 'NR > 1 && $5 > 0 { found = 1 } END { exit !found }' /proc/net/packet && return 0
        kill -0 "$capture_pid" 2>/dev/null || break
        sleep 0.05
    done
    echo "tapline did not start to capture" >&2
    return 1
}

live() {
    file="$folder/demo.pcapng"
    say "A namespace with a virtual link: near0 === far0"
    ip -n "$namespace" -brief link show type veth

    say "Capturing on far0 while $frames mixed frames are sent on near0, $rate a second"
    echo "$ $tapline capture --netns $namespace -i far0 -w $file '$filter'"
    "$tapline" capture --netns "$namespace" -i far0 -w "$file" "$filter" &
    capture_pid=$!
    wait_until_listening
    show "$testkit" send --netns "$namespace" --interface near0 --count "$frames" --rate "$rate"

    say "Ctrl-C: the capture ends and accounts for every packet"
    kill -INT "$capture_pid"
    wait "$capture_pid"
    capture_pid=
}

offline() {
    file="$folder/demo.pcapng"
    say "No live capture: $1"
    echo "The demonstration goes on with the bundled sample. Run it as root to see a live one."
    show "$tapline" capture -r examples/mixed.pcapng -w "$file" "$filter"
}

look() {
    say "The first packets of $file"
    show "$tapline" capture -r "$file" -n -c 12
    say "Only TLS client hellos, with the name of the server"
    show "$tapline" capture -r "$file" -n -v -c 3 'tcp port 443 and tcp[(tcp[12] >> 4) * 4] = 22 and tcp[(tcp[12] >> 4) * 4 + 5] = 1'
    say "The same file for programs: one JSON object per packet"
    show "$tapline" capture -r "$file" --json -c 1 'udp port 53'
    say "A filter explained, before it runs"
    show "$tapline" filter explain 'tcp port 443'
}

suggest() {
    say "Next steps"
    cat <<END
  interfaces of this machine         $tapline interfaces
  packets of an interface (as root)  $tapline capture -i eth0 -n 'tcp port 443'
  a new file every minute            $tapline capture -i eth0 -G 60 -w 'trace-%H%M%S.pcapng'
  the captured file in Wireshark     wireshark $file
  all options                        $tapline capture --help
  the program as it ships            cargo build --release -p tapline-cli
END
}

build
if reason=$("$testkit" netns up "$namespace" 2>&1); then live; else offline "$reason"; fi
look
suggest

#!/usr/bin/env bash
# Demonstrates Tapline: live traffic is captured, metered, shown, recorded and found again.
#
#   namespace:  near0 ===veth=== far0 --> tapline capture 'filter' --> demo.pcapng --> text, flows, store
#                 ^                   \-> tapline probe --view     --> tapline top, tapline view
#                 tapline-testkit send
#
# Needs the right to make a network namespace (root), and no other program than those it builds. Without that right it
# works on the sample of the repository. Leaves nothing behind but the folder demo-files of the target directory.
set -euo pipefail
cd "$(dirname "$0")/.."

namespace="tapline-demo-$$"
folder="${CARGO_TARGET_DIR:-target}/demo-files"
file="$folder/demo.pcapng"
store="$folder/store"
filter='tcp port 443 or udp port 53 or icmp or arp'
frames=50000
rate=20000
# Processes that still run, each with the signal that ends it.
running=()

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Prints a command as it could be typed.
type_out() {
    local word line='$'
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./:=,-]+$ ]] || word="'$word'"
        line+=" $word"
    done
    echo "$line"
}
show() {
    type_out "$@"
    "$@"
}
# Ends a process that `start` began, and waits for its account.
finish() {
    kill -INT "$1" 2>/dev/null || true
    wait "$1" || true
    local left=() pid
    for pid in "${running[@]}"; do [ "$pid" = "$1" ] || left+=("$pid"); done
    running=("${left[@]}")
}

clean_up() {
    # At any end: first the programs, then their namespace.
    local pid
    for pid in "${running[@]}"; do kill -INT "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
    [ -z "${testkit:-}" ] || "$testkit" netns down "$namespace" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

build() {
    say "Building. The first time takes two minutes on two processors"
    # A build for development is quick; native code for filters is left out, and nothing below needs it.
    cargo build --locked -p tapline-cli -p tapline-testkit --no-default-features --features tapline-cli/view
    binaries="${CARGO_TARGET_DIR:-target}/debug"
    tapline="$binaries/tapline"
    testkit="$binaries/tapline-testkit"
    rm -rf "$folder"
    mkdir -p "$folder"
}

# Starts a program in the background once it was typed out; waits until $1 packet sockets listen in the namespace.
start() {
    local sockets=$1
    shift
    type_out "$@"
    "$@" &
    running+=("$!")
    "$testkit" netns wait "$namespace" "$sockets" "$!"
}

live() {
    say "Live: $frames mixed frames cross a virtual link, $rate a second; one program captures some, one meters all"
    start 1 "$tapline" capture --netns "$namespace" -i far0 -w "$file" "$filter"
    local capture=$!
    "$tapline" probe --netns "$namespace" -i far0 --view >"$folder/flows.txt" 2>"$folder/probe.txt" &
    meter=$!
    running+=("$meter")
    type_out "$tapline" probe --netns "$namespace" -i far0 --view
    "$testkit" netns wait "$namespace" 2 "$meter"
    show "$testkit" send --netns "$namespace" --interface near0 --count "$frames" --rate "$rate"

    say "Ctrl-C: the capture ends and accounts for every packet"
    finish "$capture"

    say "Who talked to whom, from the meter that still runs"
    show "$tapline" top --once --ascii --window 10s "$meter" | sed -n 1,24p
}

offline() {
    say "No live capture: $1"
    if [ "$(id -u)" -eq 0 ]; then
        echo "This system does not let root make a network namespace; the demonstration goes on with the bundled sample."
    else
        echo "The demonstration goes on with the bundled sample. Run it as root to see a live capture."
    fi
    show "$tapline" capture -r examples/mixed.pcapng -w "$file" "$filter"
}

look() {
    say "The first packets of $file"
    show "$tapline" capture -r "$file" -n -c 8
    say "The same file for programs: one JSON object per packet"
    show "$tapline" capture -r "$file" --json -c 1 'udp port 53'
    say "A filter explained, before it runs"
    show "$tapline" filter explain 'tcp port 443'
    say "The top flows of the file"
    show "$tapline" probe -r "$file"
    say "Recorded into a store with an index, then searched"
    show "$tapline" record -r "$file" --to "$store" --size 16MiB --segment 4MiB
    show "$tapline" find "$store" -n -c 5 'udp port 53'
}

# The page, for as long as somebody looks: frames go on, a thousand a second.
page() {
    say "The page of the meter: hosts, flows, names, losses and costs, second by second"
    "$tapline" view --pid "$meter" --listen 127.0.0.1:0 --no-history --address-file "$folder/address" >"$folder/view.txt" 2>&1 &
    local view=$!
    running+=("$view")
    until [ -s "$folder/address" ]; do
        kill -0 "$view" 2>/dev/null || { cat "$folder/view.txt" >&2; return 1; }
        sleep 0.05
    done
    type_out "$tapline" view --pid "$meter"
    cat "$folder/address"
    if [ -t 0 ] && [ -t 1 ]; then
        "$testkit" send --netns "$namespace" --interface near0 --count 100000000 --rate 1000 >/dev/null &
        running+=("$!")
        echo "Open it in a browser here. From another machine, forward the port first: ssh -L PORT:127.0.0.1:PORT this-host"
        read -r -p "Press Enter to end: " _ || true
        finish "${running[-1]}"
    fi
    finish "$view"
    say "The meter ends: all flows of the link, and its account"
    finish "$meter"
    tail -n 3 "$folder/flows.txt"
    cat "$folder/probe.txt"
}

suggest() {
    say "Next steps"
    cat <<END
  interfaces of this machine         $tapline interfaces
  packets of an interface (as root)  $tapline capture -i eth0 -n 'tcp port 443'
  its traffic in a browser           $tapline view -i eth0
  a new file every minute            $tapline capture -i eth0 -G 60 -w 'trace-%H%M%S.pcapng'
  the captured file in Wireshark     wireshark $file
  all options                        $tapline capture --help
  the program as it ships            cargo build --release -p tapline-cli
END
}

meter=
build
if reason=$("$testkit" netns up "$namespace" 2>&1); then live; else offline "$reason"; fi
look
[ -z "$meter" ] || page
suggest

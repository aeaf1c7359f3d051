#!/usr/bin/env bash
# The loss of README.md: a burst that tcpdump loses without a word, and what Tapline reports about it.
#
#   near0 ==veth== port0 [bridge] port1 ==veth== far0 --> backlog of one processor --> taps --> tcpdump, tapline
#     ^                                                   (1,000 packets)               '-> a list of blocked addresses
#     tapline generate: 1,000 packets/s, a burst, 1,000 packets/s
#
# The kernel queues received packets for each processor (net.core.netdev_max_backlog). If the queue is full, packets are
# dropped before any capture program sees them. Here the processor is slow because it compares each packet with a list
# of blocked addresses, as firewalls do. The second run has the queue length that the doctor proposes.
#
# As root, with two processors or more. The namespace and its links go at the end. net.core.netdev_max_backlog is a
# setting of the host: it is set to 1,000, the kernel's default, and put back at any end. TAPLINE is the program,
# target/release/tapline unless given.
set -euo pipefail
cd "$(dirname "$0")/.."

tapline=${TAPLINE:-target/release/tapline}
burst=${BURST:-4000}
addresses=${ADDRESSES:-10000}
namespace="tapline-loss-$$"
setting=/proc/sys/net/core/netdev_max_backlog
folder=$(mktemp -d)
before=$(cat "$setting")
running=()

clean_up() {
    for pid in "${running[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    echo "$before" >"$setting"
    ip netns delete "$namespace" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

inside() { ip netns exec "$namespace" "$@"; }

make_links() {
    ip netns add "$namespace"
    ip -n "$namespace" link add near0 type veth peer name port0
    ip -n "$namespace" link add far0 type veth peer name port1
    ip -n "$namespace" link add switch type bridge mcast_snooping 0
    for port in port0 port1; do ip -n "$namespace" link set "$port" master switch; done
    for link in near0 port0 port1 far0 switch; do
        inside sysctl -qw "net.ipv6.conf.$link.disable_ipv6=1" 2>/dev/null || true
        ip -n "$namespace" link set "$link" arp off multicast off up
    done
    # The last processor receives for far0, as with a card of one queue.
    inside sh -c "printf %x $((1 << ($(nproc) - 1))) > /sys/class/net/far0/queues/rx-0/rps_cpus"
    inside tc qdisc add dev far0 clsact
    for ((at = 0; at < addresses; at++)); do
        echo "filter add dev far0 ingress prio 1 protocol ip u32 match ip src 198.18.$((at / 256)).$((at % 256)) flowid :1"
    done | inside tc -batch -
}

# Sends on the first processor: on the last one it would wait for the receiver.
send() {
    taskset -c 0 "$tapline" generate --netns "$namespace" -i near0 --backend packet udp size=200 "$@" 2>>"$folder/sent.txt"
}

# Prints one run: the sender, the words of tcpdump, and those of Tapline with its exit status.
run() {
    ip netns exec "$namespace" tcpdump -i far0 -w "$folder/tcpdump.pcap" 2>"$folder/tcpdump.txt" &
    local tcpdump=$! watch status=0
    "$tapline" watch --netns "$namespace" -i far0 --rules "$folder/rules.toml" --strict \
        >"$folder/events.txt" 2>"$folder/account.txt" &
    watch=$!
    running+=("$tcpdump" "$watch")
    until [ "$(inside awk 'NR > 1 && $5 > 0' /proc/net/packet | wc -l)" -ge 2 ]; do sleep 0.1; done
    : >"$folder/sent.txt"
    send rate=1k count=2k
    local at
    at=$(date -u +%T.%3N)
    send count="$burst"
    sleep 1
    send rate=1k count=2k
    printf '\nsender, with a burst of %s packets at %s UTC\n' "$burst" "$at"
    grep -E 'packets sent|NOT SENT' "$folder/sent.txt"
    sleep 1
    kill -INT "$tcpdump" "$watch"
    wait "$watch" || status=$?
    wait "$tcpdump" || true
    running=()
    printf '\ntcpdump\n'
    grep packets "$folder/tcpdump.txt"
    printf '\ntapline watch --strict: exit status %s\n' "$status"
    cat "$folder/events.txt"
    grep -vE 'listening|^watch|rule  matched|^  lost ' "$folder/account.txt"
}

[ "$(nproc)" -ge 2 ] || { echo "one processor sends as fast as it receives: two are needed" >&2 && exit 1; }
make_links
cat >"$folder/rules.toml" <<'RULES'
[[rule]]
name = "lost"
on = "account before"
message = "{value} packets were lost before any capture"
RULES

echo "== The backlog of the kernel's default, 1,000 packets"
echo 1000 >"$setting"
"$tapline" doctor --netns "$namespace" far0 --watch 9 >"$folder/doctor.txt" 2>&1 &
doctor=$!
running=("$doctor")
run
wait "$doctor" || true
printf '\ntapline doctor --watch 9\n'
grep '^loses' "$folder/doctor.txt"

printf '\n== The backlog that the doctor proposes, 4,000 packets\n'
echo 4000 >"$setting"
run

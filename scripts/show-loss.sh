#!/usr/bin/env bash
# The picture of README.md: the same loss as tcpdump and as Tapline tell it.
#
#   near0 ===veth=== far0 --> the kernel's backlog (1,000 packets) --> taps --> tcpdump, tapline
#     ^                         full: the packet is dropped before any tap has seen it
#     tapline generate, as fast as it goes
#
# As root. Leaves nothing behind; TAPLINE is the program, target/release/tapline unless given.
set -euo pipefail
cd "$(dirname "$0")/.."

tapline=${TAPLINE:-target/release/tapline}
namespace="tapline-loss-$$"
folder=$(mktemp -d)
captures=()

clean_up() {
    for pid in "${captures[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    ip netns delete "$namespace" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean_up EXIT

ip netns add "$namespace"
ip -n "$namespace" link add near0 type veth peer name far0
for interface in near0 far0; do
    ip netns exec "$namespace" sysctl -qw "net.ipv6.conf.$interface.disable_ipv6=1" || true
    ip -n "$namespace" link set "$interface" arp off multicast off up
done
# All received packets go to the last processor (RPS), as with a card of one queue.
last=$(($(nproc) - 1))
ip netns exec "$namespace" sh -c "printf %x $((1 << last)) > /sys/class/net/far0/queues/rx-0/rps_cpus"

ip netns exec "$namespace" tcpdump -i far0 -B 65536 -w "$folder/tcpdump.pcap" 2>"$folder/tcpdump.txt" &
captures+=($!)
"$tapline" capture --netns "$namespace" -i far0 -B 65536 -w "$folder/trace.pcapng" 2>"$folder/tapline.txt" &
captures+=($!)
for _ in $(seq 100); do
    taps=$(ip netns exec "$namespace" awk 'NR > 1 && $5 > 0' /proc/net/packet | wc -l)
    [ "$taps" -ge 2 ] && break
    sleep 0.1
done
"$tapline" generate --netns "$namespace" -i near0 --backend packet --patience 0 udp size=60 flows=100 count=1M 2>"$folder/sent.txt"
sleep 2
for pid in "${captures[@]}"; do kill -INT "$pid"; done
wait "${captures[@]}" || true
captures=()

echo "sent:" && cat "$folder/sent.txt"
echo "tcpdump:" && cat "$folder/tcpdump.txt"
echo "tapline:" && cat "$folder/tapline.txt"

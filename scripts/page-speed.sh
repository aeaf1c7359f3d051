#!/usr/bin/env bash
# Measures the page of `tapline view` beside a meter of 20,000 packets a second in 100,000 conversations: the first numbers, and the work of
# browser and server for an update. Needs root, chromium, node, and what scripts/test-tools.sh installs.
#
#   scripts/page-speed.sh [PROGRAM...]         target/release/tapline; several are measured in turns, and compared by medians
#   RUNS=7 LOADS=5 SECONDS_EACH=20 PAGES=overview,hosts scripts/page-speed.sh before/tapline after/tapline
set -euo pipefail

if [ "${PAGE_SPEED_NAMESPACE:-}" != yes ]; then
    PAGE_SPEED_NAMESPACE=yes exec unshare --net --pid --fork --mount-proc --kill-child "$0" "$@"
fi
[ $# -gt 0 ] || set -- target/release/tapline
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TAPLINE_RUN_DIR=$folder/run TAPLINE_SOCKET=$folder/socket
NODE_PATH=${NODE_PATH:-$(realpath "${CARGO_TARGET_DIR:-target}/node/node_modules")}
export NODE_PATH

ip link set lo up
ip link add near0 type veth peer name far0
ip address add 10.1.0.1/16 dev far0
ip link set near0 up
ip link set far0 up
"$1" generate -i near0 udp tcp size=imix flows=100k walk=random order=random src=10.0.0.0/16 dst=10.1.0.0/24 rate=20k gaps=burst:1000 >/dev/null 2>&1 &
"$1" probe -i far0 --view >/dev/null 2>&1 &
servers=() addresses=()
for program in "$@"; do
    : >"$folder/address"
    "$program" view --listen 127.0.0.1:0 --no-history >"$folder/address" 2>/dev/null &
    servers+=($!)
    until grep -q token= "$folder/address"; do sleep 0.1; done
    addresses+=("$(head -1 "$folder/address")")
done
# Conversations of chance: 99 in 100 have come after this time.
sleep "${WARM:-25}"
for run in $(seq "${RUNS:-7}"); do
    for at in "${!addresses[@]}"; do
        SERVER=${servers[at]} node scripts/page-speed.cjs "${addresses[at]}" "${LOADS:-5}" "${SECONDS_EACH:-20}" | tee -a "$folder/$at" | sed "s|^|$run ${*:at+1:1} |"
    done
done
for at in "${!addresses[@]}"; do
    echo "medians of ${*:at+1:1}"
    node -e '
        const runs = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n").map(JSON.parse);
        const median = (values) => values.sort((one, other) => one - other)[values.length >> 1];
        const line = (name, of) => console.log(name.padEnd(14), Object.keys(of(runs[0])).map((part) => `${part} ${median(runs.map((run) => of(run)[part]))}`).join("  "));
        line("first numbers", (run) => run.first_numbers_ms);
        Object.keys(runs[0].main_thread_ms_a_second).forEach((page) => line(page, (run) => run.main_thread_ms_a_second[page]));
    ' "$folder/$at"
done

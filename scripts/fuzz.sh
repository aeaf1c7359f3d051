#!/usr/bin/env bash
# Runs each fuzz target for SECONDS: scripts/fuzz.sh SECONDS [TARGET...]
#
# Needs only stable Rust and a C++ compiler: libFuzzer's coverage comes from compiler flags (scripts/fuzz-rustc.sh).
# New inputs go to fuzz/corpus, inputs that break a law to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-30}
shift || true
all=(capture_file filter_text bpf_program fpl_text engines graph_text rules_text packet_text packet_json flows wire sip pattern_search signatures tcp_streams ring_writer ring_reader store_files store_roll_up tap_socket)
targets=("${@:-${all[@]}}")

export RUSTC_WRAPPER="$PWD/../scripts/fuzz-rustc.sh"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:+$CARGO_TARGET_DIR/fuzz}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"

cargo build --release --bins

for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    mkdir -p "corpus/$target" "artifacts/$target"
    TAPLINE_SEEDS="seeds/$target" "$CARGO_TARGET_DIR/release/$target"
    "$CARGO_TARGET_DIR/release/$target" -max_total_time="$seconds" -max_len=4096 -timeout=5 -print_final_stats=0 \
        -verbosity=0 -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target"
done
echo "no law was broken"

#!/usr/bin/env bash
# Runs each fuzz target for so many seconds: scripts/fuzz.sh SECONDS [TARGET...]
#
# Needs nothing but stable Rust and a C++ compiler: libFuzzer's coverage comes from compiler flags.
# Inputs that were found lie in fuzz/corpus, inputs that break a law in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-30}
shift || true
triple=x86_64-unknown-linux-gnu
all=(capture_file filter_text bpf_program fpl_text packet_text packet_json pattern_search)
targets=("${@:-${all[@]}}")

export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:+$CARGO_TARGET_DIR/fuzz}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"

for target in "${all[@]}"; do bins+=(--bin "$target"); done
cargo build --release --target "$triple" "${bins[@]}"
# The seeds need no coverage, and a program with its own main has none to report to.
RUSTFLAGS='' cargo run --quiet --target-dir "$CARGO_TARGET_DIR/plain" --bin seeds -- seeds

for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    mkdir -p "corpus/$target" "artifacts/$target"
    "$CARGO_TARGET_DIR/$triple/release/$target" -max_total_time="$seconds" -max_len=4096 -timeout=5 -print_final_stats=0 \
        -verbosity=0 -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target"
done
echo "no law broken"

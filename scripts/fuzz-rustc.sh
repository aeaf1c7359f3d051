#!/usr/bin/env bash
# The compiler for scripts/fuzz.sh (RUSTC_WRAPPER): coverage for our own crates. What others wrote would only hide what ours do.
set -euo pipefail
case "${CARGO_PKG_NAME:-}" in
tapline-*)
    set -- "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing
    ;;
esac
exec "$@"

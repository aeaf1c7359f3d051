#!/usr/bin/env bash
# Runs the failed tests of a log of `cargo test --no-fail-fast` again, five times each. Exits with 0 where all of them pass
# each time: they are unsteady, and their names are told. More than three failed tests are not run again: those are a fault.
#
#     scripts/run-again.sh LOG [cargo's options]
set -euo pipefail
cd "$(dirname "$0")/.."

log=$1
shift
most=3
times=5

# The names stand, indented, in the last list before `test result: FAILED`.
mapfile -t names < <(awk '
    /^failures:$/ { delete failed; count = 0; next }
    /^    [A-Za-z0-9_:]+$/ { failed[count++] = $1; next }
    /^test result: FAILED/ { for (i = 0; i < count; i++) print failed[i]; count = 0 }
' "$log" | sort -u)
# Kinds of targets suffice: with `--exact` the others have no test of that name.
mapfile -t targets < <(sed -nE 's/^error: test failed, to rerun pass `-p [a-z0-9-]+ (--[a-z]+( [a-z0-9_-]+)?)`$/\1/p' "$log" | sort -u)

if ((${#names[@]} == 0 || ${#targets[@]} == 0)); then
    echo "no list of failed tests in $log: the tests did not run, or not to their end" >&2
    exit 1
fi
if ((${#names[@]} > most)); then
    printf 'failed: %s\n' "${names[@]}" >&2
    exit 1
fi

# Prints how often a test passed and how often it failed in the failed targets, run once each.
results() {
    local target output
    for target in "${targets[@]}"; do
        # shellcheck disable=SC2086 # a target is several words
        output=$("${CARGO:-cargo}" test --workspace --locked $target "${@:2}" -- --exact "$1" --nocapture 2>&1) || true
        printf '%s\n' "$output" >&2
        sed -nE 's/^test result: [a-zA-Z]+\. ([0-9]+) passed; ([0-9]+) failed;.*/\1 \2/p' <<<"$output"
    done | awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }'
}

for name in "${names[@]}"; do
    for ((time = 1; time <= times; time++)); do
        read -r passed failed < <(results "$name" "$@")
        if ((passed == 0 || failed > 0)); then
            echo "failed again: $name (run $time)" >&2
            exit 1
        fi
    done
    echo "unsteady: $name failed once and passed $times times after; its cause is to be found"
done

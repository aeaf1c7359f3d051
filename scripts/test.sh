#!/usr/bin/env bash
# Builds every test program of the workspace and runs all tests, or those of some lanes.
#
#     scripts/test.sh [LANE...] [-- OPTIONS]        OPTIONS are of the test programs, such as --nocapture
#
#     build files, live ──► build the others ──────────► doc tests
#              └─► live ─────────────────────────────┐
#              └─► files ────────────────┐           │
#                                        └─► unit, it ─► report
#
# Tests of the lanes `live` and `files` mostly wait: for other programs, for packets, for the disk. So they begin as soon
# as they are built, beside the build of the others, and run more threads than there are processors. The log of each
# lane is in test-logs of the target directory. TEST_TOOLS=1 installs the programs that tests compare with, meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

# Processes of lanes, by their names.
declare -A pid_of
# Logs of the lanes that failed.
failed=()
# Seconds without a line of output after which a lane hangs. No test takes so long, also beside a build.
silence_max=${TEST_SILENCE:-300}

# Cargo's options for the test programs of a lane.
targets_of() {
    case "$1" in
        live) echo --test live ;;
        files) echo --test files ;;
        it) echo --test it --test death ;;
        unit) echo --lib --bins ;;
        doc) echo --doc ;;
        *) echo "scripts/test.sh: unknown lane $1; expected live, files, it, unit or doc" >&2 && return 2 ;;
    esac
}
has_lane() { [[ " ${lanes[*]} " == *" $1 "* ]]; }
say() { printf '%4d s  %s\n' $((SECONDS - began)) "$*"; }

build() {
    say "building: $*"
    "${cargo[@]}" test --workspace --locked "$@" --no-run 2> >(tee -a "$logs/build.log" >&2)
}

# Ends the lane of this process group once it hangs, and says which tests have not ended and what they wait for.
watch() {
    local lane=$1 group=$2 log="$logs/$1.log"
    while sleep 5 >/dev/null 2>&1; do
        (($(date +%s) - $(stat -c %Y "$log") > silence_max)) || continue
        {
            echo "$lane: ended, for it printed nothing for $silence_max s. Tests that had not ended after a minute:"
            awk '/^test .* has been running for over/ { late[$2] } /^test .* \.\.\. / { delete late[$2] }
                END { for (name in late) print "    " name }' "$log"
            echo "Its processes, and where they wait in the kernel:"
            ps -o pid,ppid,etimes,wchan:24,args --forest -p "$(pgrep -d, -g "$group")" | cut -c-200
        } | tee -a "$log"
        kill -KILL -- "-$group"
    done
}

# Runs a lane in the background, with so many threads in each test program.
start() {
    local lane=$1 count=$2 targets
    shift 2
    has_lane "$lane" || return 0
    read -r -a targets <<<"$(targets_of "$lane")"
    say "$lane: begins"
    (
        code=0
        began=$SECONDS
        : >"$logs/$lane.log"
        group=$BASHPID
        watch "$lane" "$group" &
        watcher=$!
        "${cargo[@]}" test --workspace --locked "${targets[@]}" --no-fail-fast -- --test-threads "$count" "$@" \
            >>"$logs/$lane.log" 2>&1 </dev/null || code=$?
        kill "$watcher"
        echo $((SECONDS - began)) >"$logs/$lane.seconds"
        exit $code
    ) &
    pid_of[$lane]=$!
    # Cargo looks whether all is built, and locks the target directory meanwhile.
    until grep -qE '^ *(Running|Doc-tests) ' "$logs/$lane.log" 2>/dev/null || ! kill -0 "${pid_of[$lane]}" 2>/dev/null; do
        sleep 0.1
    done
}

finish() {
    local lane=$1 code=0
    [ -n "${pid_of[$lane]:-}" ] || return 0
    wait "${pid_of[$lane]}" || code=$?
    say "$lane: $(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed;.*/\1 \2/p' "$logs/$lane.log" |
        awk '{ passed += $1; failed += $2 } END { print passed + 0 " passed, " failed + 0 " failed" }') in $(cat "$logs/$lane.seconds" 2>/dev/null || echo "?") s"
    unset "pid_of[$lane]"
    ((code == 0)) || failed+=("$logs/$lane.log")
}

main() {
    lanes=()
    while (($# > 0)) && [ "$1" != -- ]; do
        lanes+=("$1")
        shift
    done
    (($# == 0)) || shift
    ((${#lanes[@]} > 0)) || lanes=(live files it unit doc)

    cargo=(${CARGO:-cargo})
    threads=$(nproc)
    logs="${CARGO_TARGET_DIR:-target}/test-logs"
    rm -rf "$logs"
    mkdir -p "$logs"
    began=$SECONDS

    for lane in "${lanes[@]}"; do targets_of "$lane" >/dev/null; done
    # Jobs are process groups, so that the programs of a lane end with this script.
    set -m
    trap '((${#pid_of[@]} == 0)) || kill -- "${pid_of[@]/#/-}" 2>/dev/null || true' EXIT
    tools=
    if [ -n "${TEST_TOOLS:-}" ]; then
        bash scripts/test-tools.sh &
        tools=$!
    fi
    early=()
    for lane in live files; do
        if has_lane $lane; then read -r -a targets <<<"$(targets_of $lane)" && early+=("${targets[@]}"); fi
    done
    ((${#early[@]} == 0)) || build "${early[@]}"
    [ -z "$tools" ] || wait "$tools" || true
    start live $((2 * threads)) "$@"
    start files $((2 * threads)) "$@"
    late=()
    for lane in it unit; do
        if has_lane $lane; then read -r -a targets <<<"$(targets_of $lane)" && late+=("${targets[@]}"); fi
    done
    ((${#late[@]} == 0)) || build "${late[@]}"
    # Some tests wait. Next to `live`, which leaves no processor idle, more threads would only be late.
    has_lane live || threads=$((2 * threads))
    start it "$threads" "$@"
    start unit "$threads" "$@"
    start doc "$threads"
    for lane in doc unit it files live; do finish $lane; done

    for lane in "${lanes[@]}"; do
        printf '\n===== %s\n' "$lane"
        cat "$logs/$lane.log"
    done
    if ((${#failed[@]} > 0)); then
        bash scripts/known-flaky.sh judge "${failed[@]}"
    fi
}

# A script is read while it runs: as a function it is whole before it begins.
main "$@"

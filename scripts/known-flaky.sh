#!/usr/bin/env bash
# Holds the list of known flaky tests, .ci/known-flaky.txt, to its rules, and judges a run by it.
#
#     scripts/known-flaky.sh check            at most five entries, none older than two weeks
#     scripts/known-flaky.sh judge LOG...     fails unless every failed test in logs of `cargo test` is on the list
#
# A line of the list: the test's whole name, the date of its entry, and the suspected cause.
#     serve::service::a_reader_leaves  2026-11-29  the daemon closes the socket before it answers
set -euo pipefail
cd "$(dirname "$0")/.."

list=.ci/known-flaky.txt
entries_max=5
days_max=14

entries() { grep -vE '^[[:space:]]*(#|$)' "$list" || true; }

check() {
    local name date cause age count=0 bad=0
    while read -r name date cause; do
        count=$((count + 1))
        if ! age=$(date -d "$date" +%s 2>/dev/null) || [ -z "$cause" ]; then
            echo "$list: $name: expected NAME YYYY-MM-DD CAUSE" >&2
            bad=1
        elif ((($(date +%s) - age) / 86400 > days_max)); then
            echo "$list: $name has been flaky for more than $days_max days: find its cause or delete the test" >&2
            bad=1
        fi
    done < <(entries)
    if ((count > entries_max)); then
        echo "$list: $count entries; at most $entries_max are allowed" >&2
        bad=1
    fi
    return $bad
}

# The names stand, indented, in the last list before `test result: FAILED`.
failed_tests() {
    awk '
        /^failures:$/ { delete failed; count = 0; next }
        /^    [A-Za-z0-9_:]+$/ { failed[count++] = $1; next }
        /^test result: FAILED/ { for (i = 0; i < count; i++) print failed[i]; count = 0 }
    ' "$@" | sort -u
}

# What a test said when it failed: the last lines of a run are what a reader of CI sees first.
panic_of() {
    local name=$1
    shift
    awk -v start="thread '$name' " '
        index($0, start) == 1 { left = 20 }
        /^stack backtrace:/ { left = 0 }
        left-- > 0 { print "    " substr($0, 1, 2000) }
    ' "$@"
}

judge() {
    local names unknown=0 name
    names=$(failed_tests "$@")
    if [ -z "$names" ]; then
        echo "no list of failed tests in $*: a test program did not build, or did not run to its end" >&2
        return 1
    fi
    while read -r name; do
        if entries | awk '{ print $1 }' | grep -qxF -- "$name"; then
            echo "failed, and known to be flaky: $name"
        else
            echo "failed: $name"
            panic_of "$name" "$@"
            unknown=1
        fi
    done <<<"$names"
    return $unknown
}

case "${1:-}" in
    check) check ;;
    judge) shift && judge "$@" ;;
    *) echo "usage: $0 check | judge LOG..." >&2 && exit 2 ;;
esac

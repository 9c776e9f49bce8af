#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Instructions per segment, control lcore and rail lcore apart: runs tests/bench/segment_cost under callgrind with two counts of
# reads and prints the slope, so that start-up does not count. No data moves and nothing is hashed.
# usage: perf/segment-cost.sh [--json] [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
json=no
[ "${1:-}" = --json ] && { json=yes; shift; }
build=${1:-build}
prog=$build/tests/bench/segment_cost
[ -x "$prog" ] || { echo "segment-cost: $prog is not built; run tests/run.sh unit first" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# count FUNCTION READS -> "instructions segments"
count() {
    local out
    out=$(valgrind --tool=callgrind --callgrind-out-file="$tmp/out" --collect-atstart=no --toggle-collect="$1" "$prog" "$2" 2>"$tmp/err")
    echo "$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$tmp/err") ${out##* }"
}

slope() {
    local a b
    a=($(count "$1" 2)); b=($(count "$1" 34))
    echo $(((b[0] - a[0]) / (b[1] - a[1])))
}

control=$(slope control_poll)
rail=$(slope rail_poll)
if [ "$json" = yes ]; then
    printf '{"instructions_per_segment": {"control": %d, "rail": %d, "all": %d}}\n' "$control" "$rail" $((control + rail))
else
    printf 'instructions per segment: control %d, rail %d (both ends of the loopback), all %d\n' "$control" "$rail" $((control + rail))
fi

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Instructions per 1 MiB segment on the healthy path, by who spends them: runs tests/bench/segment_cost under callgrind with two
# counts of reads and prints the slope of each function's own instructions, summed by part, as JSON. What was inlined counts for
# the function that it went into. Exit code 1: health and admission take 100 or more.
# usage: perf/health-cost.sh [--functions] [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
rows=no
[ "${1:-}" = --functions ] && { rows=yes; shift; }
build=${1:-build}
prog=$build/tests/bench/segment_cost
[ -x "$prog" ] || { echo "health-cost: $prog is not built; run tests/run.sh unit first" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# own LOOP READS: writes "function instructions" for what ran inside control_poll or rail_poll; prints the number of segments.
own() {
    local out
    out=$(valgrind --tool=callgrind --callgrind-out-file="$tmp/out" --collect-atstart=no --toggle-collect="$1" "$prog" "$2" 2>/dev/null)
    callgrind_annotate --threshold=100 "$tmp/out" |
        sed -nE 's/^ *([0-9,]+) \([^)]*\) +[^:]*:([A-Za-z0-9_.@]+).*/\2 \1/p' | tr -d , >"$tmp/$1.$2"
    echo "${out##* }"
}

for loop in control_poll rail_poll; do
    few=$(own $loop 2); many=$(own $loop 34)
done

part='
    function part(loop, f) {
        if (loop == "control_poll") {
            if (f ~ /^(path_|health_|rail_health_|admit_|slow_|room_|prober_|eligible_rails|failover_|learn$)/) return "health_and_admission"
            return "control"
        }
        if (f ~ /^(mock_|find_|window_)/) return "mock"
        if (f ~ /^wire_/) return "wire_checks"
        if (f ~ /^(serve_|source_|build_)/) return "serving_half"
        if (f ~ /^(request_|verify_|probe_|post_qp)/) return "requester_half"
        return "rail_loop"
    }'
for loop in control_poll rail_poll; do
    awk -v loop=$loop -v n=$((many - few)) "$part"'
        NR == FNR { few[$1] += $2; next }
        { many[$1] += $2 }
        END { for (f in many) { x = (many[f] - few[f]) / n; if (x >= 0.05) printf "%s %s %.1f\n", part(loop, f), f, x } }' \
        "$tmp/$loop.2" "$tmp/$loop.34"
done | sort -k1,1 -k3,3nr >"$tmp/rows"

[ "$rows" = yes ] && cat "$tmp/rows" >&2
awk '{ by[$1] += $3; all += $3 }
    END {
        printf "{\"instructions_per_segment\": {"
        n = split("health_and_admission control requester_half serving_half rail_loop wire_checks mock", names)
        for (i = 1; i <= n; i++) printf "\"%s\": %.0f, ", names[i], by[names[i]]
        printf "\"all\": %.0f}, \"health_and_admission_limit\": 100}\n", all
        exit by["health_and_admission"] >= 100
    }' "$tmp/rows"

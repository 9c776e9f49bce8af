#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One rail of four slowed to a tenth, in virtual time (tests/bench/slow_rail): prints JSON with, for each object size, the time of an
# object on the four against that on the three healthy ones alone, how many objects it took to get there, and the shares of equal rails.
# Exit code 1: a limit is not met (object time <= 1.05x within 8 objects, equal shares +-10 %, capacity shares +-25 % of the slow one).
# usage: perf/slow-rail.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
prog=$build/tests/bench/slow_rail
[ -x "$prog" ] || { echo "slow-rail: $prog is not built; run tests/run.sh unit first" >&2; exit 1; }

tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT

run() {
    "$prog" "$@" 2>/dev/null || { echo "slow-rail: $prog $* failed" >&2; exit 1; }
}

one() {
    local three four slowed
    three=$(run "$1" 3 0); four=$(run "$1" 4 0); slowed=$(run "$1" 4 1)
    jq -n --argjson three "$three" --argjson four "$four" --argjson slowed "$slowed" '
        def worst: map(fabs) | max;
        ($three.object_ns[-8:] | add / 8) as $alone
        | ($slowed.object_ns[$slowed.slowed_at:] | map(. / $alone)) as $ratios
        | ($four.rail_bytes | map(. * 4 / ($four.rail_bytes | add) - 1) | worst) as $off
        | ($slowed.rail_bytes[3] / ($slowed.rail_bytes | add)) as $share
        | {object_bytes: $slowed.object_bytes,
           alone_ns: $alone,
           ratios: ($ratios | map(. * 1000 | round / 1000)),
           worst_ratio_after_8: ($ratios[8:] | max),
           objects_until_good: (([range($ratios | length) | select($ratios[.] > 1.05)] | last // -1) + 1),
           flagged: $slowed.slow,
           slow_share: $share,
           slow_capacity_share: (0.1 / 3.1),
           equal_shares_off_by: $off,
           ok: (($ratios[8:] | max) <= 1.05 and $off <= 0.1 and $slowed.slow and $share > 0 and $share <= 0.1 / 3.1 * 1.25)}'
}

for mib in 8 16 64; do one $mib; done | jq -s '{slow_rail: ., ok: (map(.ok) | all)}' >"$tmp"
cat "$tmp"
jq -e .ok "$tmp" >/dev/null

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Pairs leave the plans in time and come back, reads under failover do not notice. Bounds are loose here; perf/outage.py has the strict ones.
. "$(dirname "$0")/smoke.sh"
smoke_begin

outage() {
	"$tree/perf/outage.py" "$build" "$1" --outage 3 >"$tmp/$1.json" || [ -s "$tmp/$1.json" ]
}

# Failures, return, and throughput of scenario $1.
check_healed() {
	check "a rail dies and heals: $1" outage "$1"
	check_json "no read fails" ".[\"$1\"] | .reads_failed == 0 and .reads_ok > 20" "$tmp/$1.json"
	timed check_json "the sibling carries on meanwhile" ".[\"$1\"] | .bytes_per_s_during > 0.2 * .bytes_per_s_before" "$tmp/$1.json"
	check_json "it carries again" ".[\"$1\"].back_ms != null" "$tmp/$1.json"
	timed check_json "in time" ".[\"$1\"] | .back_ms != null and .back_ms < 4000" "$tmp/$1.json"
	timed check_json "with the throughput of before" ".[\"$1\"].after_over_before > 0.8" "$tmp/$1.json"
}

can_make_namespaces() {
	local name=ry-probe-$$
	ip netns add "$name" && ip link add "ryp$$" netns "$name" type veth peer name "ryq$$" netns "$name"
	local status=$?
	ip netns del "$name"
	return $status
}

check "the store is killed" outage killed
check_json "its pairs are out" '.killed.out_ms != null' "$tmp/killed.json"
timed check_json "its pairs are out at once" '.killed.out_ms != null and .killed.out_ms < 500' "$tmp/killed.json"
check "the store is stopped" outage stopped
check_json "its pairs are out" '.stopped.out_ms != null' "$tmp/stopped.json"
timed check_json "its pairs are out after the segment deadline" '.stopped | .out_ms != null and .out_ms < .bound_ms + 500' "$tmp/stopped.json"
check_healed mock
if can_make_namespaces >/dev/null 2>&1; then
	check_healed link
	check_healed blackhole
else
	skip "a link goes down and up" "needs permission to make network namespaces"
fi
smoke_end

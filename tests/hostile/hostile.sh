# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the hostile cases share, on top of the smoke cases' library: the well-behaved client beside each attack, and what must be back afterwards.
. "$(dirname "${BASH_SOURCE[0]}")/../smoke/smoke.sh"
HOSTILE=$build/tests/hostile/hostile
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# As most systems have it: each program raises it for itself, and a daemon that does not has no room for a crowd.
ulimit -Sn 1024

# Reads, compares and puts until end_honest.
start_honest() {
	rm -f "$tmp/stop"
	"$HOSTILE" "$(socket_of rd)" honest "$tmp" >"$tmp/honest.json" 2>"$tmp/honest.log" &
	honest=$!
	check "a well-behaved client reads and compares beside all this" wait_for 20 grep -q ready "$tmp/honest.json"
}

end_honest() {
	touch "$tmp/stop"
	wait "$honest"
	sed -i 1d "$tmp/honest.json"
	echo "# honest: $(cat "$tmp/honest.json")"
	sed "s/^/# /" "$tmp/honest.log"
	check_json "its reads were all exact, and none failed" '.wrong == 0 and .failed == 0 and .repeated * 100 <= .reads and .reads > 100 and .puts > 5' "$tmp/honest.json"
	check_json "and none stood still" '.p99_us < 2000000 and .max_us < 5000000' "$tmp/honest.json"
}

# Descriptors, mapped client memory, all mappings, attached clients and their budget of a daemon.
state_of() {
	local proc=/proc/${daemon_pid[$1]}
	echo "$(ls "$proc/fd" | wc -l) $(grep -c memfd:railyard "$proc/maps") $(status_json "$1" '[.clients.attached, .clients.registered_bytes] | @tsv')"
}

n_maps() {
	wc -l <"/proc/${daemon_pid[$1]}/maps"
}

remember() {
	before=$(state_of rd)
	maps_before=$(n_maps rd)
}

# A sanitizer's allocator maps more as it goes.
is_as_before() {
	[ "$(state_of rd)" = "$before" ] && [ "$(n_maps rd)" -le $((maps_before + ${sanitizer:+56} + 8)) ]
}

n_log_lines() {
	cat "$tmp"/rd.log "$tmp"/st.log | wc -l
}

# One of rd's counters of the control lcore.
counter() {
	python3 "$here/control.py" "$(socket_of rd)" metrics | jq ".control.$1"
}

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Hostile clients on a real daemon: whatever they do to what they were given, another client's reads stay exact, the control socket answers, and
# what they held comes back.
. "$(dirname "$0")/hostile.sh"
smoke_begin

# attack NAME MODE [ARGUMENT]: runs it, asks the control socket all the while, and waits until all is as before.
attack() {
	local name=$1 pid answers=0
	shift
	# The attack is what it writes, not the time that it takes from others.
	timeout 60 nice -n 10 "$HOSTILE" "$(socket_of rd)" "$@" >"$tmp/attack.json" 2>"$tmp/attack.log" &
	pid=$!
	while kill -0 $pid 2>/dev/null && timeout 5 "$RAILYARD" --socket "$(socket_of rd)" status --json >"$tmp/status.json"; do
		answers=$((answers + 1))
		sleep 0.1
	done
	check "$name: the control socket answers all the while" jq -e .node "$tmp/status.json"
	check "$name: done" wait $pid
	[ ! -s "$tmp/attack.log" ] || sed 's/^/# /' "$tmp/attack.log"
	echo "# $(cat "$tmp/attack.json")"
	check "$name: descriptors, mappings and clients are what they were" wait_for 20 is_as_before ||
		echo "# before: $before, $maps_before maps; now: $(state_of rd), $(n_maps rd) maps"
	echo "# $(lines_since) lines of the log since the first attack began"
}

mark_log() {
	log_before=$(n_log_lines)
	log_since=$EPOCHREALTIME
}

lines_since() {
	echo $(($(n_log_lines) - log_before))
}

# Of all attacks together, less than 200 lines a minute.
log_is_quiet() {
	local n ms=$(((${EPOCHREALTIME/[.,]/} - ${log_since/[.,]/}) / 1000))
	n=$(lines_since)
	echo "$n lines of the log in $ms ms"
	[ $((n * 60000)) -lt $((200 * ms)) ]
}

# Takes away what can be listed: what the store holds then is of puts that nobody ended.
store_is_empty() {
	local key
	while read -r key; do
		ry rm "$key"
	done < <(ry ls --json | jq -r '.[].key')
	[ "$(status_json st '.store | .objects + .used_bytes')" -eq 0 ]
}

store_lines=('store:' '  memory: 256MiB' '  linger: 500ms')
reader_lines=('reader:' '  read_arena: 48MiB' '  put_arena: 32MiB' '  max_clients: 512')
start_pair 2
start_honest
# Once, so that what a daemon makes for its first clients is there.
"$HOSTILE" "$(socket_of rd)" noise 1 >/dev/null 2>&1
"$HOSTILE" "$(socket_of rd)" crowd 40 >/dev/null 2>&1
one_client() {
	[ "$(status_json rd .clients.attached)" -eq 1 ]
}
check "one client is attached" wait_for 10 one_client
remember
broken_before=$(counter rings_broken)
mark_log

attack "descriptors" fds
check_json "descriptors: what seals must refuse was refused" '.wrong == 0 and .refused >= 40' "$tmp/attack.json"
attack "wake-ups" wakes 4
check_json "wake-ups: swallowed, filled, and left unread" '.swallowed > 10 and .filled > 10 and .unread > 0' "$tmp/attack.json"
attack "noise" noise 4
check_json "noise: many times, over everything" '.attached > 20 and .bytes > 10000000' "$tmp/attack.json"
check "noise: rings that made no sense were counted" [ "$(counter rings_broken)" -gt "$((broken_before + 10))" ]
attack "over its own ring" self
check_json "over its own ring: its next call says why it is detached" '.told == 3' "$tmp/attack.json"
attack "senseless entries" entries 6
check_json "senseless entries: taken, and answered" '.taken > 2000 and .answered > 1000 and .holes > 20' "$tmp/attack.json"
attack "never reaps" idle 2
check_json "never reaps: as many taken as can be answered, no more" '.taken == .entries and .answered == .entries' "$tmp/attack.json"
attack "killed 200 times" vanish 200
check_json "killed 200 times: in the middle of its work" '.killed == 200 and .in_the_middle > 40' "$tmp/attack.json"
attack "a crowd of 511" crowd 511
check_json "a crowd of 511, and one: all were there" '.attached == 511' "$tmp/attack.json"
attack "a crowd too large" crowd 600
check_json "a crowd too large: who is too many is told" '.attached == 511 and .refused == 89' "$tmp/attack.json"
check "the log stays quiet" log_is_quiet
sed 's/^/# /' "$tmp/check.out"

end_honest
check "the budgets are back to zero" wait_for 10 is_idle
check "the store holds nothing but what was put" wait_for 20 store_is_empty || echo "# $(status_json st .store)"
check "the reader ends with 0" stop_daemon rd
check "and the store" stop_daemon st
smoke_end

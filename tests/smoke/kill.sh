#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 in mid-read, of the store, of the client, of the reader: one typed error in time, budgets back to zero, the next read is good.
. "$(dirname "$0")/smoke.sh"
smoke_begin

# Starts `get big` in the background and waits until bytes arrive: $getter is its pid.
start_get() {
	local before
	before=$(rx_bytes) || return 1
	"$RAILYARD" --socket "$(socket_of rd)" get big "$tmp/back" --json >"$tmp/get.json" 2>"$tmp/get.err" &
	getter=$!
	wait_for 10 rx_reaches $((before + 4 * MIB))
}

rx_bytes() {
	ry rails --json | jq -r '[.rails[].counters.rx_bytes] | add'
}

rx_reaches() {
	[ "$(rx_bytes)" -ge "$1" ]
}

# The getter ends with an error within SECONDS.
fails_within() {
	local end=$((SECONDS + $1))
	while kill -0 "$getter" 2>/dev/null; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.02
	done
	! wait "$getter"
}

has_clients() {
	[ "$(status_json rd .clients.attached)" -eq "$1" ]
}

store_is_empty() {
	[ "$(status_json st .store.used_bytes)" -eq 0 ]
}

put_nearly_all() {
	head -c $((240 * MIB)) /dev/zero | ry put full - --deadline 5s
}

make_file in $((64 * MIB))
store_rails=('rate: 20MB/s' 'rate: 20MB/s')
start_pair 2
check "put" ry put big "$tmp/in"

# The rates allow 40 MB a second, so it takes 1.6 s; attach has part of the deadline, too.
check_status 1 "a deadline that is too short fails the read" ry get big "$tmp/back" --deadline 800ms --json
check_json "with TIMEOUT" '.error.status == "TIMEOUT"' "$tmp/check.out"
check "the budgets are back to zero" wait_for 5 is_idle
check "the next read is good" ry get big "$tmp/back"
check "it is byte-exact" same in back
rm -f "$tmp/back"

check "a read is under way" start_get
stop_daemon st KILL
check "kill -9 of the store fails the read in time" fails_within 5
check_json "with one typed error" '.error.status | . == "RAIL" or . == "NO_RAIL" or . == "PEER_RESTARTED"' "$tmp/get.json"
check "the partial file is not left behind" [ ! -e "$tmp/back" ]
check "the budgets are back to zero" wait_for 5 is_idle
check_status 1 "without a store a read fails" ry get big "$tmp/back" --deadline 3s --json
check_json "and says that no rail reaches it" '.error | (.status == "NO_RAIL" or .status == "RAIL") and (.cause | test("refused"))' "$tmp/check.out"
start_daemon st
check "the store comes back" await_daemon rd 2
check_status 4 "it has forgotten the object" ry get big "$tmp/back"
check "put again" ry put big "$tmp/in"
check "the next read is good" ry get big "$tmp/back"
check "it is byte-exact" same in back

rm -f "$tmp/back"
check "a read is under way again" start_get
kill -KILL "$getter"
{ wait "$getter"; } 2>/dev/null
check "kill -9 of the client frees its budget and leases" wait_for 5 is_idle
check "and its attachment" wait_for 5 has_clients 0
check "the next client's read is good" ry get big "$tmp/back"
check "it is byte-exact" same in back

check "a third read is under way" start_get
stop_daemon rd KILL
check "kill -9 of the daemon ends its client in time" fails_within 5
check_json "with DETACHED" '.error.status == "DETACHED"' "$tmp/get.json"
rm -f "$(socket_of rd)"
start_daemon rd
check "the daemon comes back" await_daemon rd 2
check "the store still serves" ry get big "$tmp/back"
check "it is byte-exact" same in back
check "remove" ry rm big
check "no object is left" wait_for 5 store_is_empty
check "no lost connection holds memory of it: an object of nearly the whole store fits" put_nearly_all
check "SIGTERM ends the reader with 0" stop_daemon rd
check "and the store" stop_daemon st
check "their sockets are gone" [ -z "$(ls "$tmp"/*.sock 2>/dev/null)" ]
smoke_end

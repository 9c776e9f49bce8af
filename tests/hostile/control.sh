#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Hostile connections to the control socket: bounded, answered with what is wrong, and a client's reads beside them do not wait.
. "$(dirname "$0")/hostile.sh"
smoke_begin

talk() {
	nice -n 10 python3 "$here/control.py" "$(socket_of rd)" "$1"
}

check_attack() {
	check "$1" talk "$2" && sed 's/^/# /' "$tmp/check.out"
	check "$1: nothing is left of it" wait_for 20 is_as_before || echo "# before: $before, $maps_before maps; now: $(state_of rd), $(n_maps rd) maps"
}

# ends_in SECONDS NODE: as stop_daemon, but it does not wait for ever.
ends_in() {
	kill -TERM "${daemon_pid[$2]}"
	wait_for "$1" is_gone "${daemon_pid[$2]}" || kill -KILL "${daemon_pid[$2]}"
	stop_daemon "$2"
}

is_gone() {
	! kill -0 "$1"
}

memory_kib() {
	awk '/^VmRSS/ {print $2}' "/proc/${daemon_pid[rd]}/status"
}

# Under AddressSanitizer freed memory is kept for a while; what is kept here is looked at.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1
start_pair 2
start_honest
talk parallel_512 >/dev/null 2>&1
remember
log_before=$(n_log_lines)
kib_before=$(memory_kib)

check_attack "ten megabytes without an end" ten_megabytes_without_end
check_attack "ten megabytes that begin as a request" ten_megabytes_of_json
check_attack "half a line" half_a_line
check_attack "deep nesting" deep_nesting
check_attack "wrong types for each parameter of each method" wrong_types
check_attack "unknown methods" unknown_methods
check_attack "lines that are no requests" no_requests
check_attack "512 at once" parallel_512
check_attack "700 that say nothing" silent_crowd
check_attack "who never reads" never_reads
check_attack "who wants no answer" wants_no_answer
check_attack "connections that come and go without end" flood

end_honest
check "no memory was left behind" [ "$(memory_kib)" -lt $((kib_before + 32768)) ]
check "none of it is in the log" [ $(($(n_log_lines) - log_before)) -lt 20 ]
flooders=()
for _ in 1 2 3; do
	talk connect_and_close &
	flooders+=($!)
done
sleep 0.5
check "the reader ends with 0 in the middle of such a flood" ends_in 10 rd
check "which ends with it" wait "${flooders[@]}"
check "and the store" stop_daemon st
smoke_end

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

end_honest
check "no memory was left behind" [ "$(memory_kib)" -lt $((kib_before + 32768)) ]
check "none of it is in the log" [ $(($(n_log_lines) - log_before)) -lt 20 ]
check "the reader ends with 0" stop_daemon rd
check "and the store" stop_daemon st
smoke_end

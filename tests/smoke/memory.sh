#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The same daemons as an ordinary user, without hugepages, and with hugepages where the machine gives some.
. "$(dirname "$0")/smoke.sh"
smoke_begin
huge_file=/proc/sys/vm/nr_hugepages
huge_before=$(cat $huge_file)

case_cleanup() {
	[ ! -w $huge_file ] || echo "$huge_before" >$huge_file
}

roundtrip() {
	rm -f "$tmp/back"
	ry put k "$tmp/in" && ry get k "$tmp/back" && same in back
}

# Some of its hugepages are taken, but it does not answer yet. One that was faster than we look is tried again.
killed_in_start() {
	local i was_ready
	for ((i = 0; i < 20; i++)); do
		start_daemon st
		wait_for 10 pages_are_taken || return 1
		is_ready st
		was_ready=$?
		stop_daemon st KILL
		wait_for 5 grep -q 'HugePages_Free: *768' /proc/meminfo && [ -z "$(ls -A /dev/hugepages 2>/dev/null)" ] || return 1
		[ $was_ready -eq 0 ] || return 0
		rm -f "$(socket_of st)"
	done
	return 1
}

pages_are_taken() {
	! grep -q 'HugePages_Free: *768' /proc/meminfo
}

make_file in $((20 * MIB + 3))
chmod 644 "$tmp/in"

small_store=("${store_lines[@]}") small_reader=("${reader_lines[@]}")
store_lines+=('hugepages: off') reader_lines+=('hugepages: off')
start_pair 2
check "without hugepages an object comes back" roundtrip
check "status says so" [ "$(status_json rd .has_hugepages)" = false ]
check "the budgets are back to zero" is_idle
stop_pair
store_lines=("${small_store[@]}") reader_lines=("${small_reader[@]}")

# An ordinary user: no capability, 64 KiB of lockable memory.
if [ "$(id -u)" -ne 0 ]; then
	ok "this whole run is by an ordinary user"
else
	chmod 777 "$tmp"
	cp "$DAEMON" "$RAILYARD" "$tmp/" && cp -a "$build"/control/client/librailyard.so* "$tmp/" 2>/dev/null
	export LD_LIBRARY_PATH=$tmp
	DAEMON=$tmp/railyardd
	launcher=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all prlimit --memlock=65536)
	start_pair 2
	RAILYARD_ROOT=$RAILYARD
	user=("${launcher[@]}" env "LD_LIBRARY_PATH=$tmp" "$tmp/railyard" --socket "$(socket_of rd)")
	check "an ordinary user puts" "${user[@]}" put k "$tmp/in"
	check "an ordinary user gets" "${user[@]}" get k "$tmp/back"
	check "byte for byte" same in back
	check "the daemon has no privileges" grep -q '^CapEff:.*0000000000000000$' "/proc/${daemon_pid[rd]}/status"
	launcher=()
	stop_pair
	rm -f "$tmp"/*.sock "$tmp/back"
	RAILYARD=$RAILYARD_ROOT
fi

if ! echo 768 2>/dev/null >$huge_file || [ "$(cat $huge_file)" -lt 768 ] || [ ! -d /sys/kernel/mm/hugepages/hugepages-2048kB ]; then
	skip "with hugepages an object comes back" "768 hugepages of 2 MiB cannot be had here"
else
	start_pair 2
	check "with hugepages an object comes back" roundtrip
	check "status says so" [ "$(status_json rd .has_hugepages)" = true ]
	stop_pair
	check "a stopped daemon gives its hugepages back" wait_for 5 grep -q 'HugePages_Free: *768' /proc/meminfo
	check "so does one that is killed in the middle of its start" killed_in_start
	check "three times" killed_in_start
	check "over" killed_in_start
	start_pair 2
	check "and the next one starts on hugepages" roundtrip
	stop_pair
fi
smoke_end

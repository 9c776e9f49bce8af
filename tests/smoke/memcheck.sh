#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One run of store, reader and clients under valgrind's memcheck: no error, and no memory that nothing points to any more. What libraries do wrong is in
# memcheck.supp, each with its reason.
. "$(dirname "$0")/smoke.sh"
smoke_begin
if ! command -v valgrind >/dev/null; then
	skip "memcheck" "valgrind is not installed"
	smoke_end
fi
memcheck=(valgrind --error-exitcode=99 --fair-sched=yes --num-callers=30 --leak-check=full --show-leak-kinds=definite
	--errors-for-leak-kinds=definite "--suppressions=$tree/tests/smoke/memcheck.supp" "--log-file=$tmp/valgrind.%p.txt")

# The CLI, and in it the library of clients.
checked() {
	"${memcheck[@]}" "$RAILYARD" --socket "$(socket_of rd)" "$@"
}

roundtrip() {
	rm -f "$tmp/back"
	checked put "k$1" "$tmp/in.$1" --quiet && checked get "k$1" "$tmp/back" --quiet && same "in.$1" back
}

# By itself, not for what memcheck found.
fails() {
	local status
	"$@"
	status=$?
	[ $status -ne 0 ] && [ $status -ne 99 ]
}

getter_died() {
	checked get big "$tmp/died" --quiet &
	local getter=$!
	wait_for 20 rx_reaches $((2 * MIB))
	kill -KILL $getter
	wait $getter 2>/dev/null
	wait_for 20 is_idle
}

rx_reaches() {
	[ "$(ry rails --json | jq '[.rails[].counters.rx_bytes] | add')" -ge "$1" ]
}

# Every process told its errors, and there are none.
all_clean() {
	local log n=0
	for log in "$tmp"/valgrind.*.txt; do
		if grep -q 'ERROR SUMMARY: [1-9]' "$log"; then
			head -60 "$log"
			return 1
		fi
		n=$((n + $(grep -c 'ERROR SUMMARY: 0 errors' "$log")))
	done
	[ "$n" -ge "$1" ]
}

launcher=("${memcheck[@]}")
store_lines=('store:' '  memory: 24MiB' '  linger: 100ms')
reader_lines=('reader:' '  read_arena: 16MiB' '  put_arena: 8MiB' '  on_rail_failure: failover')
store_rails=('rate: 20MB/s' 'rate: 20MB/s')
start_pair 2
for size in 0 1 $((STRIPE + 1)); do
	make_file "in.$size" "$size"
	check "$size bytes come back" roundtrip "$size"
done
make_file big $((8 * MIB))
check "put" checked put big "$tmp/big" --quiet
check "a client that is killed in mid-read" getter_died
check "list" checked ls
check "stat" checked stat big
check "remove" checked rm big
check "what is missing is told" fails checked get big "$tmp/back" --quiet
check "a deadline passes" fails checked get k$((STRIPE + 1)) "$tmp/back" --deadline 1ms --quiet
check "status, rails, health, reads, limits" eval 'ry status && ry rails && ry health && ry reads && ry limits'
check "drain" ry rails drain rail0
check "a read over the other" roundtrip 1
check "resume" ry rails resume rail0
check "the store is stopped without an error" stop_daemon st
check "a read without it fails" fails checked get k1 "$tmp/back" --deadline 1s --quiet
start_daemon st
check "the store comes back" await_daemon st
check "and its reader finds it" wait_for 30 is_ready rd 2
check "put and get" roundtrip $((STRIPE + 1))
check "the reader is stopped without an error" stop_daemon rd
check "and the store" stop_daemon st
check "nothing was found in daemons and clients" all_clean 16
smoke_end

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Objects at their edges: keys, sizes up to 4 GiB and a byte, budgets and stores that are too small, objects that change while they are read,
# two writers, and a put whose answer was lost.
. "$(dirname "$0")/smoke.sh"
smoke_begin

# edges CASE [ARGUMENT...]
edges() {
	loads timeout 120 python3 "$tree/tests/smoke/edges.py" "$build/control/client/librailyard.so" "$(socket_of rd)" "$@" >"$tmp/tap" 2>"$tmp/tap.err" </dev/null
	merge_tap "$1" "$tmp/tap"
	sed 's/^/# /' "$tmp/tap.err"
}

# Reads of half a second and more, so that something can happen meanwhile.
store_rails=('rate: 50MB/s' 'rate: 50MB/s')
store_lines=('store:' '  memory: 128MiB' '  linger: 20s')
start_pair 2
edges keys
huge=$(head -c 65536 /dev/zero | tr '\0' k)
check_status 2 "the command line refuses a key of 64 KiB" ry put "$huge" /dev/null
cp "$tmp/check.out" "$tmp/words"
check "and says how long a key may be" grep -q 'a key has 1 to 4096 bytes, this one has 65536' "$tmp/words"
check_status 2 "it refuses an empty key" ry get '' "$tmp/back"
make_file in 100
check "it takes a key that is no UTF-8" ry put $'caf\xe9' "$tmp/in"
check "and reads it" ry get $'caf\xe9' "$tmp/back"
check "byte for byte" same in back
ry ls --json >"$tmp/ls.json"
check_json "and lists it as valid JSON" '.[0].key == "caf\\xe9"' "$tmp/ls.json"
edges changes
edges expiry
edges writers
check "the budgets are back to zero" wait_for 5 is_idle
stop_pair

store_rails=()
store_lines=('store:' '  memory: 24MiB' '  tier: pinned' '  linger: 0')
reader_lines=('reader:' '  read_arena: 16MiB' '  put_arena: 16MiB')
start_pair 2
edges small_arena
edges full pinned
check "the budgets are back to zero" wait_for 5 is_idle
stop_pair

store_lines=('store:' '  memory: 24MiB' '  linger: 0')
reader_lines=('reader:' '  read_arena: 32MiB' '  put_arena: 16MiB' '  inflight: 8MiB' '  client_inflight: 8MiB')
start_pair 2
edges small_budget
check "an object larger than the budgets is got in pieces" ry get large "$tmp/back"
check "all of it" [ "$(stat -c %s "$tmp/back")" -eq $((12 * MIB)) ]
check "the budgets are back to zero" wait_for 5 is_idle
stop_pair

store_lines=('store:' '  memory: 24MiB' '  linger: 0')
reader_lines=('reader:' '  read_arena: 32MiB' '  put_arena: 16MiB')
store_rails=()
start_pair 2
edges full cache
for delay in 0.002 0.02 0.05; do
	edges lost_begin "${daemon_pid[rd]}" "$tmp/lost" $delay
	stop_daemon rd KILL
	start_daemon rd
	await_daemon rd 2 || smoke_end
	edges lost_end "$tmp/lost"
done
stop_pair

# 2^31 and 2^32 from both sides. Sparse: marks at the places where a count of 31 or 32 bits would wrap.
sparse() { # bytes
	rm -f "$tmp/huge"
	truncate -s "$1" "$tmp/huge"
	local at
	for at in 0 $(((1 << 31) - 2)) $(((1 << 32) - 2)) $(($1 - 5)); do
		[ "$at" -ge $(($1 - 4)) ] || printf 'mark%d' "$at" | head -c $(($1 - at)) | dd of="$tmp/huge" bs=4096 oflag=seek_bytes seek="$at" conv=notrunc status=none
	done
	[ "$(stat -c %s "$tmp/huge")" -eq "$1" ]
}
got_whole() {
	ry get --failover huge - | cmp - "$tmp/huge"
}
free_mib=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
if [ "$free_mib" -lt 6000 ]; then
	skip "objects of 2 GiB and of 4 GiB" "needs 6000 MiB of free memory, this machine has $free_mib"
else
	store_lines=('store:' '  memory: 4160MiB' '  linger: 0')
	reader_lines=('reader:' '  read_arena: 64MiB' '  put_arena: 32MiB')
	ready_seconds=120 # a slow host takes long for 4 GiB of pages
	start_pair 2
	for size in $(((1 << 31) - 1)) $((1 << 31)) $(((1 << 31) + 1)) $(((1 << 32) + 1)); do
		check "a sparse file of $size bytes" sparse "$size"
		check "put $size bytes" ry put --deadline 120s --quiet huge "$tmp/huge"
		ry stat huge --json >"$tmp/stat.json"
		check_json "stat says $size" ".size_bytes == $size and .stripe_count == $(((size + STRIPE - 1) / STRIPE))" "$tmp/stat.json"
		edges far_end "$tmp/huge"
	done
	check "4 GiB and a byte come back whole" got_whole
	check "the budgets are back to zero" wait_for 5 is_idle
	stop_pair
fi
smoke_end

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Byte for byte over 1, 2, 3, 4 and 8 rails, at the sizes where stripes begin and end.
. "$(dirname "$0")/smoke.sh"
smoke_begin

roundtrip() {
	rm -f "$tmp/back"
	ry put "k$1" "$tmp/in.$1" && ry get "k$1" "$tmp/back" && same "in.$1" back
}

sizes=(0 1 4095 $((STRIPE - 1)) $STRIPE $((STRIPE + 1)) $((64 * MIB + 1)))
for size in "${sizes[@]}"; do
	make_file "in.$size" "$size"
done
for n in 1 2 3 4 8; do
	start_pair "$n"
	for size in "${sizes[@]}"; do
		check "$size bytes over $n rails come back" roundtrip "$size"
	done
	ry rails --json >"$tmp/rails.json"
	check_json "all of $n rails carried bytes" ".rails | length == $n and all(.counters.rx_bytes > 0)" "$tmp/rails.json"
	check "the budgets are back to zero" is_idle
	stop_pair
done
smoke_end

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs of the recorded ABI with today's library and daemon: one linked, one that speaks the ring itself. And what another version is told.
. "$(dirname "$0")/smoke.sh"
smoke_begin

start_pair 2
check "a program of the recorded ABI works with today's library" timeout 60 "$build/tests/abi/previous_client" "$(socket_of rd)"
merge_tap "previous program" "$tmp/check.out"
make_file in $((9 * MIB + 5))
check "put" ry put "a key" "$tmp/in"
check "a client of the recorded ABI works with today's daemon" \
	timeout 60 python3 "$tree/tests/abi/ring_client.py" "$(socket_of rd)" "a key" "$tmp/in"
merge_tap "previous ring" "$tmp/check.out"
check "the budgets are back to zero" wait_for 5 is_idle
stop_pair
smoke_end

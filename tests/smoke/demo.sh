#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The main job: railyard demo measures one rail against several, verifies, and leaves nothing behind.
. "$(dirname "$0")/smoke.sh"
smoke_begin
mkdir "$tmp/demo"
export TMPDIR=$tmp/demo

# No process that works below our private directory, and nothing in it.
left_nothing() {
	! pgrep -f "$TMPDIR/" && [ -z "$(ls -A "$TMPDIR")" ]
}

demo() {
	"$RAILYARD" demo --json "$@" >"$tmp/demo.json"
}

has_daemons() {
	[ "$(pgrep -fc "railyardd.*$TMPDIR/")" -eq 2 ]
}

interrupted() {
	# A shell's background job ignores SIGINT unless told otherwise.
	env --default-signal=INT "$RAILYARD" demo --rail-rate 10MB/s >"$tmp/int.out" 2>&1 &
	local pid=$!
	wait_for 15 has_daemons || return 1
	kill -"$1" "$pid"
	wait "$pid"
	[ $? -ne 0 ]
}

check "demo over 2 rails of 125 MB/s" demo --rails 2 --rail-rate 125MB/s
check_json "it has every field" '
	(.object_bytes == 67108864) and (.stripe_bytes > 0) and (.rails == 2) and (.rail_rate_bytes_per_s == 125000000)
	and (.single | .seconds > 0 and .bytes_per_s > 0) and (.multi | .seconds > 0 and .bytes_per_s > 0)
	and (.multi.rails | length == 2 and all((.name | length) > 0 and .bytes > 0 and .segments > 0 and .busy_s > 0))
	and (.bottleneck | . == "network" or . == "storage" or . == "software")' "$tmp/demo.json"
check_json "everything was verified" '.verified == true' "$tmp/demo.json"
timed check_json "two rails are above 1.7 times one" '.speedup > 1.7 and .speedup < 2.3' "$tmp/demo.json"
check_json "speedup is measured multi over measured single" \
	'(.speedup - .multi.bytes_per_s / .single.bytes_per_s) | . < 0.001 and . > -0.001' "$tmp/demo.json"
check_json "goodput is bytes over seconds" \
	'(.multi.bytes_per_s * .multi.seconds / .object_bytes) | . > 0.98 and . < 1.02' "$tmp/demo.json"
check_json "the rails' bytes add up to the object" '([.multi.rails[].bytes] | add) == .object_bytes' "$tmp/demo.json"
check_json "the caps hold" '.single.bytes_per_s < 140e6 and .multi.bytes_per_s < 280e6' "$tmp/demo.json"
check "it leaves nothing behind" left_nothing

make_file own $((9 * MIB + 1))
check "demo with an own file over 3 rails" demo --rails 3 --file "$tmp/own"
check_json "the object is that file" ".object_bytes == $((9 * MIB + 1)) and .verified == true and .rails == 3" "$tmp/demo.json"
check_json "its speedup is measured, too" '(.speedup - .multi.bytes_per_s / .single.bytes_per_s) | . < 0.001 and . > -0.001' "$tmp/demo.json"
check "it leaves nothing behind" left_nothing
check "demo prints a table" bash -c "'$RAILYARD' demo --rails 2 --file '$tmp/own' | grep -i speed"
check "a file that does not exist is refused" bash -c "! '$RAILYARD' demo --file '$tmp/nowhere'"
check "after a failure nothing is left" left_nothing
for signal in INT TERM; do
	check "SIG$signal in the middle ends it" interrupted $signal
	check "after SIG$signal nothing is left" wait_for 10 left_nothing
done
smoke_end

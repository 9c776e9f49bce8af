#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What an operator does about rails: looks, drains, resumes, changes limits, rehearses failures on mock rails.
. "$(dirname "$0")/smoke.sh"
smoke_begin

health() {
	"$RAILYARD" --socket "$(socket_of "$1")" health --json >"$tmp/health.json"
}

# health_is NODE FILTER: jq's filter is true for `railyard health --json`.
health_is() {
	health "$1" && jq -e "$2" "$tmp/health.json"
}

rx_bytes() {
	ry rails --json | jq -r ".rails[$1].counters.rx_bytes"
}

# A read moves no byte over rail $1, and more than nothing over rail $2.
reads_avoiding() {
	local avoided used
	avoided=$(rx_bytes "$1")
	used=$(rx_bytes "$2")
	ry get big "$tmp/back" --quiet && same in back &&
		[ "$(rx_bytes "$1")" -eq "$avoided" ] && [ "$(rx_bytes "$2")" -gt "$used" ]
}

puts_over_both() {
	local first second
	first=$(tx_bytes 0)
	second=$(tx_bytes 1)
	ry put drained "$tmp/in" --quiet && [ "$(tx_bytes 0)" -gt "$first" ] && [ "$(tx_bytes 1)" -gt "$second" ]
}

reads_over() {
	local before
	before=$(rx_bytes "$1")
	ry get big "$tmp/back" --quiet && same in back && [ "$(rx_bytes "$1")" -gt "$before" ]
}

tx_bytes() {
	ry rails --json | jq -r ".rails[$1].counters.tx_bytes"
}

# The store pulls a put's bytes over rail $2 and none over rail $1.
puts_avoiding() {
	local avoided used
	avoided=$(tx_bytes "$1")
	used=$(tx_bytes "$2")
	ry put drained "$tmp/in" --quiet && [ "$(tx_bytes "$1")" -eq "$avoided" ] && [ "$(tx_bytes "$2")" -gt "$used" ]
}

# The table says whose time it was, and how much of it.
reads_with_share() {
	ry reads --last 1 >"$tmp/check.out" && grep -Eq ' (network|storage|software) [0-9]+ % ' "$tmp/check.out"
}

# So does the read itself.
get_with_share() {
	ry get big "$tmp/back" --json >"$tmp/check.out" && jq -e '.class == "network" and .class_share_permille > 500
		and .class_share_permille <= 1000' "$tmp/check.out"
}

make_file in $((32 * MIB))
store_rails=('rate: 100MB/s' 'rate: 100MB/s')
start_pair 2
check "put" ry put big "$tmp/in" --quiet

check "health answers" health rd
check_json "two pairs, both carry data" '.n_pairs == 2 and .n_eligible == 2' "$tmp/health.json"
check_json "with every field that an operator needs" '.pairs | all(has("rail", "peer", "state", "blocked_by", "eligible", "connected", "proven",
	"suspect", "draining", "slow", "trips", "in_state_ns", "cooldown_left_ns", "last_error", "last_class") and
	(.probes | has("sent", "ok", "failed", "expired", "cancelled")))' "$tmp/health.json"
check_json "closed, connected, proven" '.pairs | all(.state == "closed" and .connected and .proven and .blocked_by == "")' "$tmp/health.json"
check "the store shows the pairs that its reader dialled" health_is st '.n_pairs == 2 and all(.pairs[]; .peer == "rd" and .is_dialler == false)'

ry rails drain rail0 --json >"$tmp/drain.json"
check_json "drain is answered, without a warning" '.rail == "rail0" and .draining and .warning == ""' "$tmp/drain.json"
check "a drained rail carries nothing" reads_avoiding 0 1
check "no put either" puts_avoiding 0 1
check "health says why" health_is rd '.n_eligible == 1 and .pairs[0].blocked_by == "draining"'
check "the last rail may be drained" ry rails drain rail1 --json
check_json "with a warning" '.warning | test("no rail is left for reads from st")' "$tmp/check.out"
check_status 1 "then reads fail" ry get big "$tmp/back" --deadline 2s --json
check_json "with NO_RAIL" '.error.status == "NO_RAIL"' "$tmp/check.out"
check_status 1 "so do puts" ry put drained "$tmp/in" --json
check_json "with NO_RAIL, too" '.error.status == "NO_RAIL"' "$tmp/check.out"
check "resume" ry rails resume rail0
check "carries data again" reads_over 0
check "and the other one" ry rails resume rail1
check "both are used" reads_over 1
check "by puts as well" puts_over_both
check_status 1 "an unknown rail is refused" ry rails drain rial0 --json
check_json "and the nearest is named" ".error.cause | test(\"did you mean 'rail0'\")" "$tmp/check.out"
check_status 2 "so is an unknown verb" ry rails stop rail0

check "limits" ry limits --json
check_json "are the configuration's" '.max_reads == 1024 and .inflight_max_bytes == 1073741824 and .reads == 0' "$tmp/check.out"
check "limits change live" ry limits --client-inflight 1MiB --max-reads 300 --json
check_json "and are in force" '.client_inflight_max_bytes == 1048576 and .max_reads == 300' "$tmp/check.out"
check_status 1 "a read above them is refused" ry get big "$tmp/back" --length 2MiB --json
check_json "with both numbers" '.error | .status == "BUDGET" and (.cause | test("1048576"))' "$tmp/check.out"
check "status shows them" [ "$(status_json rd .inflight.max_reads)" -eq 300 ]
check_status 1 "a limit outside its range is refused" ry limits --client-inflight 2GiB
check "a rail's budget and that of arenas" ry limits --rail rail0 --rail-inflight 1MiB --registered 1GiB --json
check_json "are in force too" '.rails[0].inflight_max_bytes == 1048576 and .rails[1].inflight_max_bytes == 67108864 and .registered_max_bytes == 1073741824' "$tmp/check.out"
check_status 1 "a rail's has its range as well" ry limits --rail rail0 --rail-inflight 1kB --json
check_json "which is told" '.error | .status == "INVALID" and (.cause | test("1MiB to 64GiB"))' "$tmp/check.out"
check_status 2 "it needs the rail's name" ry limits --rail-inflight 2MiB
check "limits are raised again" ry limits --client-inflight 256MiB
check "and reads go on" reads_over 0
check "the flight recorder" ry reads --failed --json
check_json "has the refused read" '.reads[0] | .status == "BUDGET" and .key == "big"' "$tmp/check.out"
check "the newest first" ry reads --last 2 --json
check_json "as many as asked for" '.reads | length == 2 and (.[0].number > .[1].number) and .[0].status == "OK" and (.[0].rails | length > 0)' "$tmp/check.out"
check "a read tells its class and its share" get_with_share
check "and so does the table" reads_with_share
check_status 1 "faults are not allowed here" ry faults inject rail0 disconnect:at=1 --json
check_json "and it is said how they would be" '.error | .status == "DENIED" and (.cause | test("fault_injection: true"))' "$tmp/check.out"
stop_pair

# A rehearsal: a mock node whose rail falls silent, is tripped, is healed, and comes back.
mock_rail() {
	printf '  - name: %s\n    transport: mock\n    bandwidth: 200MB/s\n    latency: 20us\n' "$1"
}

{
	printf 'node: rd\nsocket: %s\nroles: [reader, store]\nfault_injection: true\nrails:\n' "$(socket_of rd)"
	mock_rail rail0
	mock_rail rail1
	printf 'stores:\n  - {name: self, self: true}\nreader: {read_arena: 48MiB, put_arena: 32MiB, on_rail_failure: failover}\n'
	printf 'store: {memory: 128MiB}\nhealth: {rail_error_threshold: 2}\n'
} >"$tmp/rd.yaml"
daemon_config[rd]=$tmp/rd.yaml
start_daemon rd
await_daemon rd 2 || smoke_end
check "put over mock rails" ry put big "$tmp/in" --quiet
check "get over both" reads_over 1
check "a stall is injected" ry faults inject rail1 'stall:at=1MiB,for=600s' --json
check_json "and shown" '.rails[1].plan == "stall:at=1MiB,for=600s"' "$tmp/check.out"
check "reads fail over" ry get big "$tmp/back" --quiet
check "byte-exact" same in back
check "the rail is tripped" wait_for 15 health_is rd '.pairs[1] | .state == "open" and .trips == 1 and .eligible == false'
check_json "by path evidence" '.pairs[1] | .last_class == "path" and .last_error == "TIMEOUT" and .cooldown_left_ns > 0' "$tmp/health.json"
check "it is probed" wait_for 5 health_is rd '.pairs[1].probes.sent >= 1'
check "resume of a dead rail says so" ry rails resume rail1 --json
check_json "and why" '.warning | test("the rail is dead: its pair with self is .*open")' "$tmp/check.out"
check "the other rail carries all" reads_avoiding 1 0
check "the fault is cleared" ry faults clear rail1
check "the rail comes back by a probe" wait_for 5 health_is rd '.pairs[1] | .state == "closed" and .eligible and .probes.ok == 1'
check "and carries data" reads_over 1
check "one line of the log for each change" [ "$(grep -c 'health: rail rail1: store self: closed -> open: TIMEOUT (path)' "$tmp/rd.log")" -eq 1 ]
check "and for the way back" grep -q 'health: rail rail1: store self: open -> closed: a probe came back' "$tmp/rd.log"
check_status 1 "a fault on an unknown rail is refused" ry faults inject eth0 disconnect:at=1 --json
check_json "as INVALID" '.error.status == "INVALID"' "$tmp/check.out"
check_status 1 "a plan that is none is refused" ry faults inject rail0 explode:at=1 --json
check_json "and explained" '.error.cause | test("explode")' "$tmp/check.out"
check "the budgets are back to zero" wait_for 5 is_idle
check "SIGTERM ends it with 0" stop_daemon rd
smoke_end

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What is done to one rail shows in that rail's bytes and in goodput: a cap, cut connections, a dead link.
. "$(dirname "$0")/smoke.sh"
smoke_begin
ns=ry-smoke-$$

case_cleanup() {
	ip netns del "$ns" 2>/dev/null
	return 0
}

# rx_bytes of one rail of the reader.
rx_bytes() {
	ry rails --json | jq -r ".rails[$1].counters.rx_bytes"
}

rx_reaches() {
	[ "$(rx_bytes "$1")" -ge "$2" ]
}

get_json() {
	ry get big "$tmp/back" --json >"$tmp/$1.json" 2>"$tmp/get.err"
}

# A rail that carried nothing is not in the list.
share_of() {
	echo "(([.rails[] | select(.name == \"rail$1\") | .bytes] | add // 0) / ([.rails[].bytes] | add))"
}

# Reads of 1 MiB for two seconds at the rate of both rails.
measure() {
	"$build/perf/railyard-perf" read --socket "$(socket_of rd)" --size 1MiB --stripe 256KiB --count 160 --json >"$tmp/$1.json"
}

# The same beside one who asks for status without end, and who ends with it; how often he asked.
measure_asked() {
	local asker measured
	while ry status --json >"$tmp/status.json"; do echo; done >"$tmp/asked" &
	asker=$!
	measure asked
	measured=$?
	kill "$asker" && ! wait "$asker" && [ "$(wc -l <"$tmp/asked")" -ge 50 ] && [ $measured -eq 0 ]
}

unchanged() {
	jq -n --slurpfile alone "$tmp/alone.json" --slurpfile asked "$tmp/asked.json" \
		'$alone[0] as $a | $asked[0] as $b | {rate: ($b.bytes_per_s / $a.bytes_per_s), p99: ($b.p99_us / $a.p99_us)}' >"$tmp/ratio.json"
	cat "$tmp/ratio.json"
	jq -e '.rate > 0.95 and .p99 < 1.5' "$tmp/ratio.json"
}

make_file in $((64 * MIB))

# Two equal rails, then one of them four times slower.
store_rails=('rate: 40MB/s' 'rate: 40MB/s')
start_pair 2
check "put" ry put big "$tmp/in"
check "get over two equal rails" get_json equal
check_json "each carries about a half" "$(share_of 1) | . > 0.4 and . < 0.6" "$tmp/equal.json"
timed check_json "goodput is above one rail's" '.bytes_per_s > 56e6' "$tmp/equal.json"
check "small reads by themselves" measure alone
check "and beside the CLI, over and over" measure_asked
timed check "rate and p99 are what they were" unchanged
stop_pair
store_rails=('rate: 40MB/s' 'rate: 10MB/s')
start_pair 2
one_rail_only() {
	local before
	before=$(rx_bytes 1)
	ry get big "$tmp/back" --one-rail --json >"$tmp/one.json" && same in back && [ "$(rx_bytes 1)" -eq "$before" ]
}
check "put beside a slow rail" ry put big "$tmp/in"
check "get beside a slow rail" get_json slow
check "it is byte-exact" same in back
check_json "the slow rail carries about a fifth" "$(share_of 1) | . > 0.1 and . < 0.32" "$tmp/slow.json"
timed check_json "goodput is that of both rails" '.bytes_per_s > 36e6 and .bytes_per_s < 56e6' "$tmp/slow.json"
check "with --one-rail the other rail stays still" one_rail_only
timed check_json "and goodput is one rail's" '.bytes_per_s > 25e6 and .bytes_per_s < 44e6' "$tmp/one.json"
stop_pair

# Connections of one rail are cut in mid-read. Killing sockets needs privileges.
store_rails=('rate: 20MB/s' 'rate: 20MB/s')
start_pair 2
read -ra ports <<<"${daemon_ports[st]}"
check "put before the cut" ry put big "$tmp/in"
cut_mid_read() {
	local before reader
	before=$(rx_bytes 1)
	get_json cut &
	reader=$!
	wait_for 10 rx_reaches 1 $((before + 2 * MIB)) && ss -K "dport = :${ports[1]}" | grep -q . || return 1
	wait $reader
	[ $? -ne 0 ]
}
if [ "$(id -u)" -ne 0 ] || ! ss -K 'dport = :1' >/dev/null 2>&1; then
	skip "a rail is cut in mid-read" "killing sockets (ss -K) needs root and INET_DIAG_DESTROY"
else
	check "a read whose rail is cut fails" cut_mid_read
	check_json "the error is of kind RAIL and names rail1" '.error.status == "RAIL" and (.error.cause | test("rail1"))' "$tmp/cut.json"
	check "the budgets are back to zero" wait_for 5 is_idle
	check "the next read succeeds" get_json again
	check "it is byte-exact" same in back
	check "the rail comes back" wait_for 10 is_ready rd 2
fi
stop_pair

# The link of one rail goes down and stays down: the rail falls silent.
make_netns() {
	ip netns add "$ns" || return 1
	local i
	for i in 0 1; do
		ip link add "rys$$-$i" type veth peer name "ryp$i" netns "$ns" || return 1
		ip addr add "10.231.$i.1/24" dev "rys$$-$i"
		ip link set "rys$$-$i" up
		ip -n "$ns" addr add "10.231.$i.2/24" dev "ryp$i"
		ip -n "$ns" link set "ryp$i" up
	done
	ip -n "$ns" link set lo up
}

start_pair_in_netns() {
	local times=('timeouts:' '  keepalive: 200ms' '  keepalive_dead: 600ms' '  read: 8s')
	rail_address=(10.231.0.2 10.231.1.2) rail_extra=('rate: 20MB/s' 'rate: 20MB/s') node_extra=("${times[@]}")
	store='' write_config st store 2
	rail_address=(10.231.0.1 10.231.1.1) rail_extra=() store_address=(10.231.0.2 10.231.1.2)
	store=st write_config rd reader 2
	launcher=(ip netns exec "$ns")
	start_daemon st
	launcher=()
	start_daemon rd
	await_daemon st && await_daemon rd 2
}

down_mid_read() {
	local before reader
	before=$(rx_bytes 1)
	get_json down &
	reader=$!
	wait_for 10 rx_reaches 1 $((before + 2 * MIB)) || return 1
	ip link set "rys$$-1" down || return 1
	wait $reader
	[ $? -ne 0 ]
}

rail1_is_out() {
	ry rails --json >"$tmp/rails.json" && jq -e '.rails[1].pairs_up == 0' "$tmp/rails.json"
}

if [ "$(id -u)" -ne 0 ] || ! make_netns >/dev/null 2>&1; then
	skip "a link goes down in mid-read" "network namespaces and veth need root"
elif start_pair_in_netns; then
	check "put over veth" ry put big "$tmp/in"
	start=$SECONDS
	check "a read whose link goes down fails" down_mid_read
	check_json "with one typed error" '.error.status | . == "RAIL" or . == "TIMEOUT"' "$tmp/down.json"
	check "within its deadline" [ $((SECONDS - start)) -le 10 ]
	check "the dead rail is taken out" wait_for 10 rail1_is_out
	check "the budgets are back to zero" wait_for 5 is_idle
	check "the next read succeeds over the other rail" get_json after
	check "it is byte-exact" same in back
	check_json "the dead rail carried nothing" "$(share_of 1) == 0" "$tmp/after.json"
	ip link set "rys$$-1" up
	check "the rail comes back with its link" wait_for 15 is_ready rd 2
	stop_pair
fi
smoke_end

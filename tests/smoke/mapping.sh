#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Which endpoint each rail uses when the operator names none: spread while all is well, the other one when the preferred one is gone, and back.
. "$(dirname "$0")/smoke.sh"
smoke_begin

# Endpoints without a word on rails.
write_stores() {
	local port
	printf 'stores:\n  - name: %s\n    endpoints:\n' "$1"
	for port in ${daemon_ports[$1]}; do
		printf '      - {address: 127.0.0.1, port: %d}\n' "$port"
	done
}

pairs() {
	ry health --json >"$tmp/health.json"
}

# rail_uses RAIL PORT: its pair with this endpoint carries its data.
rail_uses() {
	pairs && jq -e ".pairs | any(.rail == \"$1\" and (.endpoint | endswith(\":$2\")) and .in_use and .eligible)" "$tmp/health.json"
}

# Bytes that rail $1 brought so far.
rail_bytes() {
	ry rails --json | jq ".rails[] | select(.name == \"$1\").counters.rx_bytes"
}

# Reads are right, and rail $1 carried its part of one. Of a few, because a rail whose lcore has no CPU for a while carries little.
reads_move() {
	local before after i
	for ((i = 0; i < 5; i++)); do
		before=$(rail_bytes "$1")
		ry get o1 "$tmp/got" && same got big || return 1
		after=$(rail_bytes "$1")
		[ "$after" -le $((before + 4 * MIB)) ] || return 0
	done
	return 1
}

# Bytes that were pulled from the reader over its rail $1.
tx_bytes() {
	ry rails --json | jq ".rails[] | select(.name == \"$1\").counters.tx_bytes"
}

# A put goes over both rails of its writer, whatever spare pairs there are.
puts_over_both() {
	local first second
	first=$(tx_bytes rail0)
	second=$(tx_bytes rail1)
	ry put o1 "$tmp/big" && [ "$(tx_bytes rail0)" -gt $((first + 4 * MIB)) ] && [ "$(tx_bytes rail1)" -gt $((second + 4 * MIB)) ]
}

reader_lines+=('health:' '  rail_cooldown_secs: 5')
start_pair 2
read -ra port <<<"${daemon_ports[st]}"
make_file big $((32 * MIB))
check "an object is put" ry put o1 "$tmp/big"
pairs
check_json "two rails, two endpoints, two pairs: one each" '.n_pairs == 2 and .n_eligible == 2 and all(.pairs[]; .preferred and .in_use)' "$tmp/health.json"
check "the first rail uses the first endpoint" rail_uses rail0 "${port[0]}"
check "the second rail the second" rail_uses rail1 "${port[1]}"
ry rails --json >"$tmp/rails.json"
check_json "the others stand by" '[.rails[].pairs[] | select(.state == "STANDBY")] | length == 2' "$tmp/rails.json"
check "both carry a read" reads_move rail0
check "the second rail too" reads_move rail1

# The store comes back without its first rail.
stop_daemon st
sed '/name: rail0$/,/^    port:/d' "${daemon_config[st]}" >"$tmp/one.yaml"
both=${daemon_config[st]}
daemon_config[st]=$tmp/one.yaml
start_daemon st
await_daemon st
check "the second rail is back on its endpoint" wait_for 10 rail_uses rail1 "${port[1]}"
check "the first one goes to the endpoint that is left" wait_for 10 rail_uses rail0 "${port[1]}"
check "an object is put again" ry put o1 "$tmp/big"
check "and the first rail carries its share of a read" reads_move rail0
check "so does the second" reads_move rail1
pairs
check_json "its preferred pair is shown as not connected" '.pairs | any(.rail == "rail0" and .preferred and (.connected | not))' "$tmp/health.json"

# And with both again.
stop_daemon st
daemon_config[st]=$both
start_daemon st
await_daemon st
check "the first rail is back where it belongs" wait_for 15 rail_uses rail0 "${port[0]}"
check "the second is where it was" wait_for 10 rail_uses rail1 "${port[1]}"
check "an object is put once more, over both" puts_over_both
check "and both carry a read" reads_move rail0
check "of which the second has its share" reads_move rail1
stop_pair
smoke_end

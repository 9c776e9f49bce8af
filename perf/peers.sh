#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Measures what other programs reach over this machine's loopback, for comparison: peers.sh iperf3|ucx prints bytes per second.
# Exit code 77: the program is not installed.
set -eu

server=
log=$(mktemp)
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -f "$log"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

port() {
	# A port outside the ephemeral range, different from run to run.
	echo $((20000 + $$ % 8000))
}

# Runs the client again until the server listens; a client that fails has measured nothing.
try() {
	n=0
	until "$@" >"$log" 2>&1; do
		n=$((n + 1))
		[ $n -lt 50 ] || { cat "$log" >&2; exit 1; }
		sleep 0.1
	done
}

run_iperf3() {
	p=$(port)
	iperf3 -s -1 -B 127.0.0.1 -p "$p" >/dev/null 2>&1 &
	server=$!
	try iperf3 -c 127.0.0.1 -p "$p" -t 3 -f k
	awk '/receiver/ { for (i = 1; i <= NF; i++) if ($i == "Kbits/sec") printf "%.0f\n", $(i - 1) * 125 }' "$log"
}

run_ucx() {
	p=$(port) size=67108864
	export UCX_TLS=tcp UCX_NET_DEVICES=lo
	ucx_perftest -p "$p" >/dev/null 2>&1 &
	server=$!
	try ucx_perftest 127.0.0.1 -p "$p" -t ucp_get -s $size -n 40 -w 4
	# Column 5 of the last line is microseconds per operation over all.
	awk -v size=$size '$1 == "Final:" { printf "%.0f\n", size / $5 * 1e6 }' "$log"
}

case "${1-}" in
iperf3)
	command -v iperf3 >/dev/null || exit 77
	run_iperf3
	;;
ucx)
	command -v ucx_perftest >/dev/null || exit 77
	run_ucx
	;;
*)
	echo "usage: $0 iperf3|ucx" >&2
	exit 2
	;;
esac

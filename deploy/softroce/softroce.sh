#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# RDMA without an RDMA NIC: rails of Soft-RoCE on this host, where its kernel has rdma_rxe. Each rail is a veth pair with an rxe device on it.
#
#   deploy/softroce/softroce.sh up [RAILS]     makes what is not there yet (default 2 rails, at most 8)
#   deploy/softroce/softroce.sh status         says what there is
#   deploy/softroce/softroce.sh down           removes what `up` made
#
# Rail i is the RDMA device ryrxe$i with the address $SOFTROCE_NET.$i.1 (default 10.78) on network device ryroce$i. Then: railyard demo --transport verbs.
# up and down need root and may be repeated. Exit codes: 0 done (status: at least one rail, each of them whole), 1 not, 2 usage.
set -euo pipefail

net=${SOFTROCE_NET:-10.78}
rails_max=8
mtu=4200 # the device's own MTU becomes 4096

main() {
	export PATH=$PATH:/usr/sbin:/sbin
	[ $# -le 2 ] || usage
	case ${1:-} in
	up) up "${2:-2}" ;;
	down | status)
		[ $# = 1 ] || usage
		check_tools
		"$1"
		;;
	*) usage ;;
	esac
}

usage() {
	sed -n '/^# RDMA/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
}

die() {
	echo "softroce: $*" >&2
	exit 1
}

check_tools() {
	local tool
	for tool in ip rdma modprobe; do
		command -v "$tool" >/dev/null || die "$tool is not installed: apt-get install iproute2 kmod"
	done
}

check_root() {
	[ "$(id -u)" = 0 ] || die "only root may make and remove devices: sudo $0 $1"
}

up() {
	local n=$1 i
	[[ $n =~ ^[1-9]$ ]] && [ "$n" -le $rails_max ] || usage
	check_tools
	check_root up
	load
	for ((i = 0; i < n; i++)); do
		make_netdev "$i"
		rdma link show "ryrxe$i/1" >/dev/null 2>&1 || rdma link add "ryrxe$i" type rxe netdev "ryroce$i" ||
			die "rdma link add ryrxe$i failed: see above, and the kernel's log (dmesg)"
		await_address "$i"
	done
	status
}

# crc32_generic: without it rxe cannot add a device, and says "No such file or directory".
load() {
	modprobe crc32_generic 2>/dev/null || true
	modprobe rdma_rxe 2>/dev/null || [ -d /sys/module/rdma_rxe ] ||
		die "this kernel ($(uname -r)) has no rdma_rxe: take one that has (Debian: linux-image-amd64, not the cloud flavour; WSL2: deploy/softroce/wsl2.md), or use guests: tests/run.sh vm"
	modprobe rdma_ucm 2>/dev/null || true # tells of removed devices; rails work without it
	modprobe ib_uverbs 2>/dev/null || [ -d /sys/module/ib_uverbs ] || die "this kernel ($(uname -r)) has no ib_uverbs"
	modprobe veth 2>/dev/null || true # may be built in: the next step tells
}

make_netdev() {
	local i=$1 other
	other=$(ip -o addr show to "$net.$i.1" | awk '$2 != "ryroce'"$i"'" { print $2; exit }')
	[ -z "$other" ] || die "$net.$i.1 is an address of $other already: choose another net with SOFTROCE_NET"
	if ! ip link show "ryroce$i" >/dev/null 2>&1; then
		ip link add "ryroce$i" mtu $mtu type veth peer name "rypeer$i" mtu $mtu || die "ip link add ryroce$i failed: has this kernel veth?"
	fi
	ip addr show dev "ryroce$i" | grep -qF "inet $net.$i.1/" || ip addr add "$net.$i.1/24" dev "ryroce$i"
	ip link set "rypeer$i" up
	ip link set "ryroce$i" up
}

# The GID table follows the addresses a moment later.
await_address() {
	local i=$1 turn
	for ((turn = 0; turn < 100; turn++)); do
		! is_whole "$i" || return 0
		sleep 0.1
	done
	die "ryrxe$i has not become active with a GID of $net.$i.1 within 10 s: rdma link show ryrxe$i"
}

is_whole() {
	local ports=/sys/class/infiniband/ryrxe$1/ports/1 gid
	grep -q ACTIVE "$ports/state" 2>/dev/null || return 1
	gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x01' "${net%.*}" "${net#*.}" "$1")
	grep -qx "$gid" "$ports"/gids/* 2>/dev/null
}

status() {
	local i n=0 bad=0
	for ((i = 0; i < rails_max; i++)); do
		if is_whole "$i"; then
			echo "ryrxe$i: active, $net.$i.1 on ryroce$i"
			n=$((n + 1))
		elif [ -e "/sys/class/infiniband/ryrxe$i" ] || [ -e "/sys/class/net/ryroce$i" ]; then
			echo "ryrxe$i: not whole: softroce.sh up makes it so"
			bad=$((bad + 1))
		fi
	done
	[ $((n + bad)) -gt 0 ] || echo "no rails of Soft-RoCE here"
	[ "$n" -gt 0 ] && [ "$bad" = 0 ]
}

down() {
	local i
	check_root down
	for ((i = 0; i < rails_max; i++)); do
		# Waits until nobody has it open.
		[ ! -e "/sys/class/infiniband/ryrxe$i" ] || rdma link delete "ryrxe$i" || die "ryrxe$i cannot be removed: see above"
		[ ! -e "/sys/class/net/ryroce$i" ] || ip link delete "ryroce$i"
	done
	echo "no rails of Soft-RoCE here"
}

main "$@"

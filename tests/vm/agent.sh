#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs in a guest: sets up modules, rails and hugepages, then executes what the host asks for over the second serial port.
#
# A line "ID COMMAND-IN-BASE64" is a command; its output goes to /run/out/ID, and "ID STATUS" comes back when it has ended. Commands run side by side.
# Words of the kernel command line: rails=veth (both ends of each rail here) or eth (virtio devices), address=N (this guest's number), mtu=BYTES.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C

main() {
	mkdir -p "/lib/modules/$(uname -r)"
	mount --bind "$vm_modules/$(uname -r)" "/lib/modules/$(uname -r)"
	hostname "guest${vm_address}"
	local module
	for module in crc32_generic veth virtio_net sch_netem sch_tbf nf_tables ib_uverbs rdma_ucm rdma_rxe; do
		modprobe "$module" || echo "vm: cannot load $module"
	done
	ip link set lo up
	echo "${vm_hugepages:-0}" >/proc/sys/vm/nr_hugepages
	"rails_${vm_rails}"
	stty -F /dev/ttyS1 raw -echo 115200
	exec 3<>/dev/ttyS1
	echo "ready 0" >&3
	serve
}

# Rail i: 10.77.i.1 and fd77:i::1 on vi, its veth peer wi beside it, so that the device has a carrier.
rails_veth() {
	local i
	for i in 0 1; do
		ip link add "v$i" mtu "$vm_mtu" type veth peer name "w$i" mtu "$vm_mtu"
		ip addr add "10.77.$i.1/24" dev "v$i"
		ip addr add "fd77:$i::1/64" dev "v$i" nodad
		ip link set "w$i" up
		ip link set "v$i" up
		rdma link add "rxe$i" type rxe netdev "v$i"
	done
}

# Rail i: 10.77.i.N and fd77:i::N on ethi, towards the other guest.
rails_eth() {
	local i
	for i in 0 1; do
		ip link set "eth$i" mtu "$vm_mtu"
		ip addr add "10.77.$i.$vm_address/24" dev "eth$i"
		ip addr add "fd77:$i::$vm_address/64" dev "eth$i" nodad
		ip link set "eth$i" up
		rdma link add "rxe$i" type rxe netdev "eth$i"
	done
}

serve() {
	local id command
	while read -r id command <&3; do
		[ "$id" = off ] && break
		(
			echo "$command" | base64 -d >"/tmp/command.$id"
			setsid bash "/tmp/command.$id" >"/run/out/$id" 2>&1 </dev/null 3>&-
			echo "$id $?" >&3
		) &
	done
	echo o >/proc/sysrq-trigger
	sleep 60
}

main

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Fetches Debian's own kernel and makes an initramfs for a guest that has Soft-RoCE. Prints the directory that holds vmlinuz, initrd and lib/modules.
#
#   tests/vm/prepare.sh [--dir DIR]
#
# DIR is a cache (default $RAILYARD_VM_CACHE, else ~/.cache/railyard-vm): a kernel that is there is used, without asking the network; remove it to get a
# newer one. Exit codes: 0 ready, 1 not (standard error says why, and what to do), 2 usage.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# What the initramfs needs to reach the host's file system; everything else is loaded from there.
boot_modules=(virtio_pci 9pnet_virtio 9p overlay)
# The package and what is in it, while it is unpacked; afterwards 430.
need_mib=600
scratch=

main() {
	local dir=${RAILYARD_VM_CACHE:-${HOME:-/root}/.cache/railyard-vm} kernel
	case ${1:-} in
	--dir) dir=${2:?directory} ;;
	'') ;;
	*) usage ;;
	esac
	export PATH=$PATH:/usr/sbin:/sbin
	check_tools
	mkdir -p "$dir" 2>/dev/null && [ -w "$dir" ] || die "cannot write to $dir: name another directory with RAILYARD_VM_CACHE"
	trap 'rm -rf ${scratch:+"$scratch"}' EXIT
	exec 9>"$dir/lock"
	flock -w 900 9 || die "another process has held $dir/lock for 15 minutes: end it"
	kernel=$(newest_kernel "$dir")
	if [ -z "$kernel" ]; then
		kernel=$dir/$(kernel_package)
		make_kernel "$(basename "$kernel")" "$kernel"
	fi
	make_initrd "$kernel"
	echo "$kernel"
}

usage() {
	sed -n '/^# Fetches/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
}

die() {
	echo "vm: $*" >&2
	exit 1
}

check_tools() {
	local tool missing=()
	for tool in qemu-system-x86_64 busybox cpio depmod modprobe flock gzip; do
		command -v "$tool" >/dev/null || missing+=("$tool")
	done
	[ ${#missing[@]} = 0 ] || die "not installed: ${missing[*]}: run deploy/install-deps.sh --tests as root"
	# In the initramfs there are no libraries.
	! ldd "$(command -v busybox)" >/dev/null 2>&1 || die "busybox is linked dynamically: install busybox-static"
}

# Of those that are whole.
newest_kernel() {
	local ready kernel
	for ready in "$1"/*/ready; do
		kernel=${ready%/ready}
		if [ -s "$kernel/vmlinuz" ] && compgen -G "$kernel/lib/modules/*/modules.dep" >/dev/null; then
			echo "$kernel"
		fi
	done | sort -V | tail -1
}

# The generic flavour: the cloud one lacks rdma_rxe.
kernel_package() {
	local package
	package=$(named_package)
	if [ -z "$package" ]; then
		echo "vm: apt has no lists; fetching them" >&2
		apt-get -q update >&2 || die "apt has no package lists and cannot fetch them: run 'apt-get update' as root where there is a network, or copy the cache of a machine that has one"
		package=$(named_package)
	fi
	[ -n "$package" ] || die "apt knows no linux-image-amd64: add Debian's main archive to its sources"
	echo "$package"
}

named_package() {
	apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }' || true
}

make_kernel() {
	local package=$1 to=$2 version free_mib
	free_mib=$(($(df --output=avail -k "$(dirname "$to")" | tail -1) / 1024))
	[ "$free_mib" -ge "$need_mib" ] ||
		die "$(dirname "$to") has $free_mib MiB free, $need_mib are needed: free some, or name another directory with RAILYARD_VM_CACHE"
	scratch=$to.new
	rm -rf "$to" "$scratch"
	mkdir -p "$scratch/deb"
	# apt may drop its privileges, and complains where it then cannot write.
	chmod 777 "$scratch/deb"
	echo "vm: fetching $package" >&2
	(cd "$scratch/deb" && { apt-get -q download "$package" || { apt-get -q update && apt-get -q download "$package"; }; }) >&2 ||
		die "apt-get could not download $package: is there a network? A copy of another machine's $to does as well"
	dpkg -x "$scratch"/deb/*.deb "$scratch" || die "$package cannot be unpacked into $scratch: see above; is the disk full?"
	version=$(ls "$scratch/lib/modules")
	# Without it modprobe finds no dependencies.
	depmod -b "$scratch" "$version" || die "depmod failed in $scratch: see above; is the disk full?"
	mv "$scratch/boot/vmlinuz-$version" "$scratch/vmlinuz"
	rm -rf "$scratch/deb" "$scratch/boot"
	touch "$scratch/ready"
	mv "$scratch" "$to"
	scratch=
}

# Made anew each time, because it holds our init.
make_initrd() {
	local dir=$1 tree version module
	version=$(ls "$dir/lib/modules")
	tree=$(mktemp -d) || die "no temporary directory: is ${TMPDIR:-/tmp} full?"
	scratch=$tree
	mkdir -p "$tree"/{bin,modules,proc,sys,dev,host,mem,root}
	cp "$(command -v busybox)" "$tree/bin/busybox"
	for module in sh mount insmod mkdir chroot switch_root cat mknod; do
		ln -s busybox "$tree/bin/$module"
	done
	list_modules "$dir" "$version" "$tree/modules" >"$tree/modules/order" || die "$dir lacks modules: remove it, and it is made anew"
	install -m 755 "$here/init" "$tree/init"
	(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initrd.new" || die "cannot write $dir/initrd.new: is the disk full?"
	mv "$dir/initrd.new" "$dir/initrd"
	rm -rf "$tree"
	scratch=
}

# Copies the modules, prints them in the order in which they load, each once.
list_modules() {
	local dir=$1 version=$2 to=$3 module path
	for module in "${boot_modules[@]}"; do
		modprobe -d "$dir" -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' | while read -r path; do
		cp "$path" "$to/"
		basename "$path"
	done
}

main "$@"

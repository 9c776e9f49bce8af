#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Fetches Debian's own kernel and makes an initramfs for a guest that has Soft-RoCE. Prints the directory that holds vmlinuz, initrd and lib/modules.
#
#   tests/vm/prepare.sh [--dir DIR]
#
# DIR is a cache (default $RAILYARD_VM_CACHE, else ~/.cache/railyard-vm): what is there already is used as it is. Exit codes: 0 ready, 1 not, 2 usage.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# What the initramfs needs to reach the host's file system; everything else is loaded from there.
boot_modules=(virtio_pci 9pnet_virtio 9p overlay)

main() {
	local dir=${RAILYARD_VM_CACHE:-${HOME:-/root}/.cache/railyard-vm} package
	case ${1:-} in
	--dir) dir=${2:?directory} ;;
	'') ;;
	*) usage ;;
	esac
	mkdir -p "$dir"
	exec 9>"$dir/lock"
	flock 9
	package=$(kernel_package)
	[ -e "$dir/$package/ready" ] || make_kernel "$package" "$dir/$package"
	make_initrd "$dir/$package"
	echo "$dir/$package"
}

usage() {
	sed -n '/^# Fetches/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
}

# The generic flavour: the cloud one lacks rdma_rxe.
kernel_package() {
	local package
	package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
	if [ -z "$package" ]; then
		apt-get -q update >&2
		package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
	fi
	[ -n "$package" ] || die "apt knows no linux-image-amd64: add Debian's main archive to its sources"
	echo "$package"
}

make_kernel() {
	local package=$1 to=$2 version
	rm -rf "$to" "$to.new"
	mkdir -p "$to.new/deb"
	echo "vm: fetching $package" >&2
	(cd "$to.new/deb" && { apt-get -q download "$package" || { apt-get -q update && apt-get -q download "$package"; }; }) >&2 ||
		die "apt-get could not download $package"
	dpkg -x "$to.new"/deb/*.deb "$to.new"
	version=$(ls "$to.new/lib/modules")
	# Without it modprobe finds no dependencies.
	depmod -b "$to.new" "$version"
	mv "$to.new/boot/vmlinuz-$version" "$to.new/vmlinuz"
	rm -rf "$to.new/deb" "$to.new/boot"
	touch "$to.new/ready"
	mv "$to.new" "$to"
}

# Made anew each time, because it holds our init.
make_initrd() {
	local dir=$1 tree version module
	version=$(ls "$dir/lib/modules")
	tree=$(mktemp -d)
	mkdir -p "$tree"/{bin,modules,proc,sys,dev,host,mem,root}
	cp "$(command -v busybox)" "$tree/bin/busybox"
	for module in sh mount insmod mkdir chroot switch_root cat mknod; do
		ln -s busybox "$tree/bin/$module"
	done
	list_modules "$dir" "$version" "$tree/modules" >"$tree/modules/order"
	install -m 755 "$here/init" "$tree/init"
	(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initrd.new"
	mv "$dir/initrd.new" "$dir/initrd"
	rm -rf "$tree"
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

die() {
	echo "vm: $*" >&2
	exit 1
}

main "$@"

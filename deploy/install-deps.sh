#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs the Debian 12 packages that Railyard needs and that are not there yet.
#
#   deploy/install-deps.sh            what building and running needs
#   deploy/install-deps.sh --tests    also what the tests and comparisons need
#   deploy/install-deps.sh --list     only print the names (with --tests: of both)
#
# Calls apt only as root and only when something is missing. An ordinary user is told what to ask root for. Exit codes: 0 all there, 1 something is missing
# and could not be installed, 2 usage.
set -euo pipefail

build_packages=(gcc g++ libc6-dev meson ninja-build pkg-config libdpdk-dev libxxhash-dev libjansson-dev libcyaml-dev libyaml-dev libnuma-dev libbsd-dev libibverbs-dev ibverbs-providers)
test_packages=(libcriterion-dev python3 jq iperf3 ucx-utils valgrind clang libclang-rt-14-dev clang-format gcovr iproute2 procps util-linux spin systemd
	qemu-system-x86 busybox-static cpio kmod nftables rdma-core ibverbs-utils rdmacm-utils perftest groff-base)

main() {
	local packages=("${build_packages[@]}") want_list=0 argument
	for argument in "$@"; do
		case $argument in
		--tests) packages+=("${test_packages[@]}") ;;
		--list) want_list=1 ;;
		-h | --help) usage 0 ;;
		*) usage 2 ;;
		esac
	done
	if [ $want_list = 1 ]; then
		printf '%s\n' "${packages[@]}"
		return
	fi
	if ! command -v dpkg-query >/dev/null; then
		say "this is not Debian: install the equivalents of: ${packages[*]}"
		return 1
	fi
	local missing
	mapfile -t missing < <(list_missing "${packages[@]}")
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		say "these packages are missing, and only root may install them; ask for:"
		say "    apt-get install --no-install-recommends ${missing[*]}"
		return 1
	fi
	install_packages "${missing[@]}"
}

usage() {
	sed -n '/^# Installs/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
	exit "$1"
}

say() {
	echo "install-deps: $*" >&2
}

list_missing() {
	local package
	for package in "$@"; do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || echo "$package"
	done
}

# The package lists that are there usually do; absent or stale ones are fetched.
install_packages() {
	say "installing: $*"
	export DEBIAN_FRONTEND=noninteractive
	try_install "$@" && return
	apt-get -q update >&2 && try_install "$@" && return
	say "apt-get could not install: $*"
	return 1
}

try_install() {
	apt-get -qq -o DPkg::Lock::Timeout=300 -y --no-install-recommends install "$@" >&2
}

main "$@"

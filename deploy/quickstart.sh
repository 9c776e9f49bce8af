#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# From a fresh clone to the main job: installs what is missing, builds, and runs `railyard demo` with this script's arguments.
#
#   deploy/quickstart.sh [--rails N] [--rail-rate 125MB/s] [--file PATH] [--json] ...    (railyard demo --help lists them)
#
# Standard output is the demo's alone; everything else goes to standard error. Works as root and as an ordinary user, from any directory. The tree is built in
# build/, or, where that is not ours to write, below ~/.cache. RY_BUILD names another directory.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

main() {
	"$root/deploy/install-deps.sh"
	choose_build
	build_tree
	warn_hugepages
	exec "$build/control/cli/railyard" demo "$@"
}

say() {
	echo "quickstart: $*" >&2
}

choose_build() {
	local base=$root
	if ! [ -w "$root" ]; then
		base=${XDG_CACHE_HOME:-$HOME/.cache}/railyard
		mkdir -p "$base"
	fi
	build=${RY_BUILD:-$base/build}
	# One that somebody else built here stays as it is.
	if [ -e "$build" ] && ! [ -w "$build" ]; then
		build=$build-$(id -u)
	fi
	case $build in /*) ;; *) build=$PWD/$build ;; esac
}

build_tree() {
	local log
	log=$(mktemp)
	# shellcheck disable=SC2064
	trap "rm -f '$log'" EXIT
	if [ ! -f "$build/build.ninja" ]; then
		say "configuring $build"
		run_logged "$log" meson setup --buildtype release "$build" "$root"
	fi
	say "building"
	run_logged "$log" ninja -C "$build" control/daemon/railyardd control/cli/railyard perf/railyard-perf
	rm -f "$log"
	trap - EXIT
}

# Shows the output only when the command fails.
run_logged() {
	local log=$1
	shift
	"$@" >"$log" 2>&1 </dev/null && return
	grep -E 'error|ERROR|FAILED' "$log" | head -20 >&2 || true
	tail -20 "$log" >&2
	say "failed: $*"
	return 1
}

warn_hugepages() {
	local free
	free=$(awk '/^HugePages_Free:/ { print $2 }' /proc/meminfo)
	[ "${free:-0}" -eq 0 ] || return 0
	say "warning: no free hugepages, so memory is in normal pages and large reads are a little slower; the fix, as root: sysctl -w vm.nr_hugepages=512"
}

main "$@"

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs what the tests need, builds, runs suites, and ends with the line "N passed, N failed, N skipped".
#
#   tests/run.sh [SUITE...]    no argument: all suites of CI
#
# Suites: lint unit conform fault model smoke vm asan fuzz tsan valgrind cover mutate (CI; vm is what guests with Soft-RoCE
# show, a third of its time; vm-core of that is the conformance of verbs and the demo; asan is unit, conform, hostile and
# smoke under sanitizers; cover is coverage and its bounds), hostile (clients, peers and connections that attack),
# long (ten minutes of soak, and more of vm), hw (needs an RDMA NIC; no test of this version asks for one, so it is
# skipped). Environment: RY_BUILD, RY_BUILD_ASAN,
# RY_BUILD_TSAN, RY_BUILD_COVER, RY_BUILD_FUZZ (build directories), RY_FUZZ_SECONDS (each target, 60), RY_JOBS, RY_NO_INSTALL=1 (never call the package manager),
# RAILYARD_VM_CACHE (where the guests' kernel is kept, default ~/.cache/railyard-vm).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
ci_suites="lint unit conform fault model smoke vm asan fuzz tsan valgrind cover mutate"
jobs=${RY_JOBS:-$(nproc)}
passed=0 failed=0 skipped=0

main() {
	local suites=("$@")
	[ $# -gt 0 ] || read -ra suites <<<"$ci_suites"
	case " $* " in *" -h "* | *" --help "*) usage 0 ;; esac
	local suite
	for suite in "${suites[@]}"; do
		[ "$(limit_of "$suite")" -gt 0 ] || { echo "unknown suite: $suite" >&2; usage 2; }
	done
	choose_build_dirs
	install_packages
	for suite in "${suites[@]}"; do
		run_suite "$suite"
	done
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
}

usage() {
	sed -n '/^# Installs/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
	exit "$1"
}

# Seconds a suite may take, several times what it does take; 0 = no such suite.
limit_of() {
	case $1 in
	conform) echo 120 ;;
	lint | unit | model) echo 240 ;;
	fault | tsan | valgrind) echo 360 ;;
	vm-core | asan | asan-daemons | hostile | smoke | cover | cover-smoke) echo 900 ;;
	fuzz) echo 1200 ;;
	mutate | long) echo 1500 ;;
	vm) echo 2400 ;;
	hw) echo 1 ;;
	*) echo 0 ;;
	esac
}

# A build directory that belongs to somebody else (root built here before) is left alone.
choose_build_dirs() {
	local base=$root
	if ! [ -w "$root" ]; then
		base=${XDG_CACHE_HOME:-$HOME/.cache}/railyard
		mkdir -p "$base" || exit 2
	fi
	build=$(absolute "${RY_BUILD:-$base/build}")
	build_asan=$(absolute "${RY_BUILD_ASAN:-$base/build-asan}")
	build_fuzz=$(absolute "${RY_BUILD_FUZZ:-$base/build-fuzz}")
	build_tsan=$(absolute "${RY_BUILD_TSAN:-$base/build-tsan}")
	build_cover=$(absolute "${RY_BUILD_COVER:-$base/build-cover}")
	logs=$build/test-logs
}

absolute() {
	local dir=$1
	[ ! -e "$dir" ] || [ -w "$dir" ] || dir=$dir-$UID
	case $dir in /*) echo "$dir" ;; *) echo "$PWD/$dir" ;; esac
}

install_packages() {
	local script=$root/deploy/install-deps.sh
	[ "${RY_NO_INSTALL:-0}" = 1 ] && return
	[ -x "$script" ] || return
	"$script" --tests || echo "warning: deploy/install-deps.sh --tests failed; going on with what is installed" >&2
}

# Configures where needed, then builds (`ninja_targets`, or all). Output is shown only on failure.
build_tree() {
	local dir=$1
	shift
	local log=$logs/build-$(basename "$dir").log
	mkdir -p "$logs"
	{
		if [ -f "$dir/build.ninja" ]; then
			meson configure "$dir" -Dtests=enabled "$@"
		else
			meson setup "$dir" "$root" -Dtests=enabled "$@"
		fi && timeout -k 10 1800 ninja -C "$dir" -j "$jobs" ${ninja_targets:-}
	} >"$log" 2>&1 && return
	grep -E 'error|ERROR|FAILED' "$log" | head -20
	tail -5 "$log"
	return 1
}

add() {
	passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

run_suite() {
	local suite=$1 start=$SECONDS
	local before=($passed $failed $skipped)
	echo "== $suite"
	case $suite in
	mutate) run_mutate ;;
	asan) run_asan ;;
	fuzz) run_fuzz ;;
	tsan) run_tsan ;;
	cover) run_cover ;;
	hw)
		echo "skipped hw: needs an RDMA NIC, and this version has no tests for one; vm runs verbs over Soft-RoCE"
		add 0 0 1
		;;
	*)
		if [[ $suite == vm* ]] && ! "$here/vm/prepare.sh" >/dev/null; then
			echo "FAILED vm: no kernel for the guests, see above"
			add 0 1 0
		elif build_tree "$build" -Dbuildtype=release -Db_ndebug=false; then
			[ "$suite" != unit ] || lend_hugepages
			run_meson "$suite" "$build" "$suite"
			return_hugepages
		else
			echo "FAILED $suite: the tree does not build"
			add 0 1 0
		fi
		;;
	esac
	echo "-- $suite: $((passed - before[0])) passed, $((failed - before[1])) failed, $((skipped - before[2])) skipped in $((SECONDS - start)) s"
}

# label, build directory, meson suites...
run_meson() {
	local label=$1 dir=$2 limit status suite
	shift 2
	last_failed=0
	limit=$(limit_of "$label")
	local log=$dir/meson-logs/run-$label
	local chosen=()
	for suite in "$@"; do
		chosen+=(--suite "$suite")
	done
	rm -f "$log.json"
	# One program at a time where daemons and clocks share the CPUs.
	local width=$jobs
	case $label in smoke | hostile | asan-daemons | valgrind | cover-smoke | vm | vm-core | long) width=1 ;; esac
	run_tests "$dir" "$label" "${chosen[@]}"
	status=$?
	if [ $status -ne 0 ] && [ $status -lt 124 ] && [[ $label == vm* ]] && [ -s "$log.json" ]; then
		run_again "$dir" "$label"
		status=$?
	elif [ -s "$log.json" ]; then
		count "$log.json"
	elif [ $status -eq 0 ]; then
		echo "skipped $label: this version has no such tests"
		add 0 0 1
	else
		tail -20 "$log.out"
	fi
	if [ $status -eq 124 ] || [ $status -eq 137 ]; then
		echo "FAILED $label: not finished in $limit s"
		add 0 1 0
	elif [ $status -ne 0 ] && [ "$last_failed" -eq 0 ]; then
		echo "FAILED $label: meson test ended with $status, see $log.out"
		add 0 1 0
	fi
	[ $status -eq 0 ] || [ ! -s "$log.txt" ] || echo "log: $log.txt"
}

run_tests() {
	local dir=$1 name=$2
	shift 2
	CRITERION_VERBOSITY_LEVEL=1 timeout -k 10 "$limit" meson test -C "$dir" --no-rebuild --num-processes "$width" --timeout-multiplier "${stretch:-1}" \
		--logbase "run-$name" "$@" </dev/null >"$dir/meson-logs/run-$name.out" 2>&1
}

# The CPU of a guest is emulated, and where the host gives it none for a second a case that is right may fail: a group of
# guests that failed runs once more. The second result counts, and what had failed is printed.
run_again() {
	local dir=$1 label=$2 names status
	local log=$dir/meson-logs/run-$label
	read -ra names <<<"$(python3 "$here/count.py" --failed "$log.json")"
	[ ${#names[@]} -gt 0 ] || { count "$log.json"; return 1; }
	rm -f "$log-again.json"
	run_tests "$dir" "$label-again" "${names[@]}"
	status=$?
	count "$log.json" --again "$log-again.json"
	return $status
}

# Some unit tests want free hugepages; root lends them for the suite, an ordinary user sees them skipped with that reason.
pages=/proc/sys/vm/nr_hugepages
lend_hugepages() {
	lent_from=
	[ -w "$pages" ] || return 0
	lent_from=$(cat "$pages")
	echo $((lent_from + 64)) >"$pages" || true
}

return_hugepages() {
	[ -z "${lent_from:-}" ] || echo "$lent_from" >"$pages"
	lent_from=
}
trap return_hugepages EXIT

# Adds what count.py counts in a log; shows its lines.
count() {
	local lines numbers
	if ! lines=$(python3 "$here/count.py" "$@"); then
		echo "FAILED: $* cannot be counted"
		last_failed=1
		add 0 1 0
		return
	fi
	numbers=$(tail -1 <<<"$lines")
	sed '$d' <<<"$lines"
	read -r _ last_failed _ <<<"$numbers"
	# shellcheck disable=SC2086
	add $numbers
}

run_asan() {
	last_failed=0
	if ! build_tree "$build_asan" -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false; then
		echo "FAILED asan: the tree does not build"
		add 0 1 0
		return
	fi
	export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=1:detect_leaks=0:handle_sigbus=0}
	export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
	lend_hugepages
	run_meson asan "$build_asan" unit conform
	return_hugepages
	# What the unit tests leave behind goes with the process of each; a daemon and the CLI leave nothing.
	local stretch=3
	local -x ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1
	run_meson asan-daemons "$build_asan" asan hostile
}

# Only the fuzz programs are built, with clang.
run_fuzz() {
	local log=$logs/fuzz.tap status
	local -x CC=clang CXX=clang++
	local ninja_targets=fuzzers
	last_failed=0
	if ! build_tree "$build_fuzz" -Dfuzz=true -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false; then
		echo "FAILED fuzz: the tree does not build"
		add 0 1 0
		return
	fi
	timeout -k 10 "$(limit_of fuzz)" "$here/fuzz/run.sh" "$build_fuzz" "${RY_FUZZ_SECONDS:-60}" >"$log" 2>"$logs/fuzz.err" </dev/null
	status=$?
	count "$log" --tap fuzz
	[ $status -eq 0 ] || grep '^#' "$log"
	[ $status -eq 0 ] || [ "$last_failed" -ne 0 ] || { echo "FAILED fuzz: ended with $status"; add 0 1 0; }
}

# Programs of their own: whatever the sanitizer finds ends one with a status that is no success.
run_tsan() {
	last_failed=0
	local ninja_targets=tsan
	if build_tree "$build_tsan" -Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false; then
		run_meson tsan "$build_tsan" tsan
	else
		echo "FAILED tsan: the tree does not build"
		add 0 1 0
	fi
}

# What unit, conform and four smoke cases reach, and whether it is enough: cover.py has the bounds.
run_cover() {
	last_failed=0
	if ! build_tree "$build_cover" -Dbuildtype=debug -Doptimization=1 -Db_coverage=true; then
		echo "FAILED cover: the tree does not build"
		add 0 1 0
		return
	fi
	find "$build_cover" -name '*.gcda' -delete
	local stretch=4 # counting costs time
	lend_hugepages
	run_meson cover "$build_cover" unit conform
	return_hugepages
	run_meson cover-smoke "$build_cover" cover
	local log=$logs/cover.tap
	timeout -k 10 300 python3 "$here/cover.py" "$root" "$build_cover" "$jobs" >"$log" 2>"$logs/cover.err"
	count "$log" --tap cover
	grep '^# ' "$log"
	[ ! -s "$logs/cover.err" ] || tail -5 "$logs/cover.err"
}

run_mutate() {
	local log=$logs/mutate.tap
	mkdir -p "$logs"
	last_failed=0
	timeout -k 10 "$(limit_of mutate)" "$here/mutate.sh" >"$log" 2>"$logs/mutate.err" </dev/null
	local status=$?
	count "$log" --tap mutate
	if [ $status -ne 0 ]; then
		tail -5 "$logs/mutate.err"
		[ "$last_failed" -ne 0 ] || { echo "FAILED mutate: ended with $status"; add 0 1 0; }
	fi
}

last_failed=0
main "$@"

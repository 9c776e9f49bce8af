#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Fuzzes: each target for a while, two at a time, from what is kept in corpus/. Output is TAP.
#
#   tests/fuzz/run.sh BUILD [SECONDS [TARGET...]]    BUILD: made with -Dfuzz=true and clang; default 60 s each, all targets
#
# An input that ends a target is left in BUILD/fuzz-found, and printed with the command that runs it again. Once its cause is
# mended, keep it in corpus/<target>/ under a name that says what it was. RY_KEEP=1 merges what reached new code into corpus/.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:?build directory}" && pwd) || exit 2
seconds=${2:-60}
shift $(($# < 2 ? $# : 2))
found=$build/fuzz-found
n=0 n_bad=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=1:handle_sigbus=0:detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}

main() {
	local targets=("$@") target i
	[ $# -gt 0 ] || read -ra targets <<<"$(cd "$here/corpus" && echo *)"
	mkdir -p "$found"
	for ((i = 0; i < ${#targets[@]}; i += 2)); do
		local pids=() pair=("${targets[@]:i:2}")
		for target in "${pair[@]}"; do
			fuzz "$target" &
			pids+=($!)
		done
		for target in "${!pair[@]}"; do
			wait "${pids[target]}"
			report $? "${pair[target]}"
		done
	done
	echo "1..$n"
	[ $n_bad -eq 0 ]
}

fuzz() {
	local target=$1 work=$build/fuzz-work/$1
	local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=4096 -handle_bus=0 -print_final_stats=1
		-artifact_prefix="$found/$target-")
	[ ! -f "$here/$target.dict" ] || options+=(-dict="$here/$target.dict")
	rm -rf "$work"
	mkdir -p "$work"
	timeout -k 10 $((seconds + 120)) "$build/tests/fuzz/fuzz_$target" "${options[@]}" "$work" "$here/corpus/$target" \
		>"$found/$target.log" 2>&1 </dev/null || return
	[ "${RY_KEEP:-0}" != 1 ] || "$build/tests/fuzz/fuzz_$target" -handle_bus=0 -merge=1 "$here/corpus/$target" "$work" \
		>>"$found/$target.log" 2>&1 </dev/null
}

report() { # exit status, target
	local log=$found/$2.log input runs
	n=$((n + 1))
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
	if [ "$1" -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
		echo "ok $n - $2: $runs inputs in $seconds s"
		return
	fi
	n_bad=$((n_bad + 1))
	echo "not ok $n - $2: ended with $1"
	grep -E 'ERROR|SUMMARY|not true|runtime error' "$log" | head -5 | sed 's/^/# /'
	input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
	[ -z "$input" ] || echo "# again: $build/tests/fuzz/fuzz_$2 -handle_bus=0 $input"
	echo "# log: $log"
}

main "$@"

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Breaks the code on purpose, one small change at a time, and expects the tests to notice.
#
#   tests/mutate.sh [NAME...]     all mutations, or those named; exit 1 when one survives
#   tests/mutate.sh --check       only whether each still applies to exactly one place
#   tests/mutate.sh --self-test   whether a stale mutation and a survivor are reported
#
# Works on a copy of the tree, never on the tree. Mutations are data: tests/mutations/*.mut, described in apply.py there. Output is TAP.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
mutations=${RY_MUTATIONS:-$here/mutations}
apply=$here/mutations/apply.py
jobs=${RY_JOBS:-$(nproc)}
n=0
n_bad=0

main() {
	case ${1:-} in
	--check) check_all ;;
	--self-test) self_test ;;
	-*) sed -n '/^#   tests/s/^#   //p' "${BASH_SOURCE[0]}"; exit 2 ;;
	*) mutate_all "$@" ;;
	esac
	echo "1..$n"
	[ $n_bad -eq 0 ]
}

report() { # verdict, text
	n=$((n + 1))
	[ "$1" = ok ] || n_bad=$((n_bad + 1))
	echo "$1 $n - $2"
}

names_of_all() {
	local file
	for file in "$mutations"/*.mut; do
		basename "$file" .mut
	done
}

check_all() {
	local name
	for name in $(names_of_all); do
		if python3 "$apply" --check "$mutations/$name.mut" "$root"; then
			report ok "$name applies"
		else
			report "not ok" "$name no longer applies: adapt tests/mutations/$name.mut to the code"
		fi
	done
}

mutate_all() {
	local names=("$@") name
	[ $# -gt 0 ] || read -ra names <<<"$(names_of_all | tr '\n' ' ')"
	work=$(mktemp -d "${TMPDIR:-/tmp}/ry-mutate-XXXXXX") || exit 2
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM HUP
	copy_tree
	if ! build; then
		tail -20 "$work/build.log" >&2
		report "not ok" "the unchanged tree builds"
		return
	fi
	# A test that fails anyway would kill every mutation.
	local tests
	tests=$(for name in "${names[@]}"; do python3 "$apply" --tests "$mutations/$name.mut"; done | tr ' ' '\n' | sort -u | tr '\n' ' ')
	if ! run_tests $tests; then
		grep -E ' (FAIL|TIMEOUT|ERROR) ' "$work/test.log" | sed 's/^/# /'
		report "not ok" "the unchanged tree passes $tests"
		return
	fi
	report ok "the unchanged tree passes $tests"
	for name in "${names[@]}"; do
		mutate_one "$name"
	done
}

copy_tree() {
	mkdir "$work/tree"
	(cd "$root" && tar -c --exclude=./.git --exclude='./build*' .) | tar -x -C "$work/tree"
}

build() {
	{
		[ -f "$work/build/build.ninja" ] || meson setup "$work/build" "$work/tree" -Dtests=enabled -Dbuildtype=release -Db_ndebug=false
	} >"$work/build.log" 2>&1 && timeout -k 10 1800 ninja -C "$work/build" -j "$jobs" >>"$work/build.log" 2>&1
}

# Words that are suites mean the suite, others name one test. Ends at the first failure.
run_tests() {
	local word
	for word in "$@"; do
		case $word in unit | conform | fault | smoke | lint) word="--suite=$word" ;; esac
		timeout -k 10 900 meson test -C "$work/build" --no-rebuild --num-processes "$jobs" "$word" </dev/null \
			>"$work/test.log" 2>&1 || return
	done
}

mutate_one() {
	local name=$1 file=$mutations/$1.mut what tests changed
	what=$(python3 "$apply" --what "$file")
	tests=$(python3 "$apply" --tests "$file")
	if ! changed=$(python3 "$apply" "$file" "$work/tree"); then
		report "not ok" "$name no longer applies: adapt tests/mutations/$name.mut to the code"
	elif ! build; then
		tail -5 "$work/build.log" >&2
		report "not ok" "$name does not compile"
	elif run_tests $tests; then
		report "not ok" "SURVIVED: $name: $what ($tests passed)"
	else
		report ok "killed: $name: $what"
	fi
	for file in $changed; do
		cp "$root/$file" "$work/tree/$file"
	done
}

self_test() {
	local dir
	dir=$(mktemp -d) || exit 2
	printf '# x\nwhat: w\ntests: status\nfile: include/railyard/status.h\n--- from\nthis text is nowhere\n--- to\n\n' >"$dir/stale.mut"
	if RY_MUTATIONS=$dir "${BASH_SOURCE[0]}" --check >/dev/null 2>&1; then
		report "not ok" "a mutation that no longer applies is reported"
	else
		report ok "a mutation that no longer applies is reported"
	fi
	rm -rf "$dir"
	dir=$(mktemp -d) || exit 2
	printf '# x\nwhat: w\ntests: status\nfile: include/railyard/status.h\n--- from\n#endif\n--- to\n\n' >"$dir/twice.mut"
	if RY_MUTATIONS=$dir "${BASH_SOURCE[0]}" --check >/dev/null 2>&1; then
		report "not ok" "a mutation with two places is reported"
	else
		report ok "a mutation with two places is reported"
	fi
	rm -rf "$dir"
}

main "$@"

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Breaks the code on purpose, one small change at a time, and expects the tests to notice.
#
#   tests/mutate.sh [NAME...]     all mutations, or those named; exit 1 when one survives
#   tests/mutate.sh --check       only whether each still applies to exactly one place
#   tests/mutate.sh --self-test   whether a stale mutation, a killed one and a survivor are reported as such, on a tree of one file
#
# Works on a copy of the tree, never on the tree. Mutations are data: tests/mutations/*.mut, described in apply.py there. Output is TAP.
# Environment: RY_TREE and RY_MUTATIONS (another tree, other mutations), RY_JOBS.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RY_TREE:-$(dirname "$here")}
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
	local tests
	tests=$(for name in "${names[@]}"; do python3 "$apply" --tests "$mutations/$name.mut"; done | tr ' ' '\n' | sort -u | tr '\n' ' ')
	if ! build $tests; then
		tail -20 "$work/build.log" >&2
		report "not ok" "the unchanged tree builds"
		return
	fi
	# A test that fails anyway would kill every mutation.
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

# What these tests run, in the trees that they are in: programs under ThreadSanitizer have one of their own.
build() {
	local word
	: >"$work/build.log"
	for word in "$@"; do
		case $word in tsan-*) build_one build-tsan tsan ;; *) build_one build "$word" ;; esac >>"$work/build.log" 2>&1 || return
	done
}

# Its program alone, if the test is one: linking all the others again would take most of the time.
build_one() { # directory, test
	local dir=$work/$1 options=(-Dbuildtype=release -Db_ndebug=false) targets=()
	[ "$1" = build ] || options=(-Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false)
	[ -f "$dir/build.ninja" ] || meson setup "$dir" "$work/tree" -Dtests=enabled "${options[@]}" || return
	mapfile -t targets < <(ninja -C "$dir" -t targets all | sed -nE "s#^(tests/[a-z]+/(test_)?$2|tsan): .*#\1#p" | grep -E "(_|/|^)$2\$")
	timeout -k 10 1800 ninja -C "$dir" -j "$jobs" ${targets[@]+"${targets[@]}"}
}

# Words that are suites mean the suite, others name one test. Ends at the first failure.
run_tests() {
	local word dir
	for word in "$@"; do
		dir=$work/build
		case $word in
		unit | conform | fault | smoke | lint) word="--suite=$word" ;;
		tsan-*) dir=$work/build-tsan ;;
		esac
		timeout -k 10 900 meson test -C "$dir" --no-rebuild --num-processes "$jobs" "$word" </dev/null \
			>"$work/test.log" 2>&1 || return
	done
}

mutate_one() {
	local name=$1 file=$mutations/$1.mut what tests changed
	what=$(python3 "$apply" --what "$file")
	tests=$(python3 "$apply" --tests "$file")
	if ! changed=$(python3 "$apply" "$file" "$work/tree"); then
		report "not ok" "$name no longer applies: adapt tests/mutations/$name.mut to the code"
	elif ! build $tests; then
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
	dir=$(mktemp -d "${TMPDIR:-/tmp}/ry-mutate-test-XXXXXX") || exit 2
	plant_tree "$dir/tree"
	mkdir "$dir/stale" "$dir/twice" "$dir/run"
	plant "$dir/stale" stale "this text is nowhere" ""
	plant "$dir/twice" twice "/* twice */" ""
	plant "$dir/run" wrong "return a + b;" "return a - b;"
	plant "$dir/run" no-op "/* The sum. */" "/* The total. */"
	expect_check "$dir" stale "a mutation that no longer applies is reported"
	expect_check "$dir" twice "a mutation with two places is reported"
	if RY_TREE=$dir/tree RY_MUTATIONS=$dir/run "${BASH_SOURCE[0]}" >"$dir/run.tap" 2>&1; then
		report "not ok" "a run with a survivor fails"
	else
		report ok "a run with a survivor fails"
	fi
	expect_line "$dir/run.tap" "^not ok [0-9]+ - SURVIVED: no-op: " "a change that no test can notice is reported as survivor"
	expect_line "$dir/run.tap" "^ok [0-9]+ - killed: wrong: " "a change that a test notices is reported as killed"
	[ $n_bad -eq 0 ] || sed 's/^/# /' "$dir/run.tap"
	rm -rf "$dir"
}

# A tree that builds in a second: one function, one test. Lines lose their tabs here.
plant_tree() {
	mkdir -p "$1"
	cat >"$1/meson.build" <<-'END'
		project('planted', 'c')
		test('sum', executable('sum', 'sum.c'))
	END
	echo "option('tests', type: 'feature')" >"$1/meson_options.txt"
	cat >"$1/sum.c" <<-'END'
		static int sum(int a, int b)
		{
			/* The sum. */
			return a + b;
		}

		int main(void)
		{
			return sum(2, 3) != 5;
		}
		/* twice */
		/* twice */
	END
}

plant() { # folder, name, from, to
	printf '# planted\nwhat: planted\ntests: sum\nfile: sum.c\n--- from\n%s\n--- to\n%s\n' "$3" "$4" >"$1/$2.mut"
}

expect_check() { # folder, name, text
	local tap
	tap=$(RY_TREE=$1/tree RY_MUTATIONS=$1/$2 "${BASH_SOURCE[0]}" --check 2>&1)
	case $?:$tap in
	1:*"not ok 1 - $2 no longer applies"*) report ok "$3" ;;
	*) report "not ok" "$3" ;;
	esac
}

expect_line() { # file, pattern, text
	if grep -qE "$2" "$1"; then report ok "$3"; else report "not ok" "$3"; fi
}

main "$@"

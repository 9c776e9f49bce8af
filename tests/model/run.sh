#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks the models with spin: the good ones exhaustively and without an error, each broken variant until the error it was made for.
#
#   tests/model/run.sh [NAME...]     all runs, or those whose name contains NAME; output is TAP
#   tests/model/run.sh --list        names, models and options
#   tests/model/run.sh --trail NAME  the steps that lead to the error of one run
#
# Environment: RY_JOBS (runs at a time), RY_MODEL_MEM_MB (limit of one run). See docs/model.md.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jobs=${RY_JOBS:-$(nproc)}
memory_mb=${RY_MODEL_MEM_MB:-2048}

# name | model | expected | options of spin (-D) and of the search (others)
#
# Expected: ok; assert TEXT, where TEXT is part of the violated assertion; hangs (a state without a way on that is no proper end).
# "witnesses" after ok: every line marked "witness:" in the model must have been reached.
table() {
	cat <<'ROWS'
health defaults                           | rail_health | ok witnesses  | -DWITNESSES
health no probes while open               | rail_health | ok            | -DINTERVAL=0
health control late                       | rail_health | ok            | -DLATE_POLL
health answers at once                    | rail_health | ok            | -DEVENTS=1 -DRTT=0
health pause shorter than an interval     | rail_health | ok            | -DEVENTS=1 -DCOOLDOWN=1
health never stranded                     | rail_health | ok            | -DEVENTS=1 -DLTL -a -N never_stranded
health comes back                         | rail_health | ok            | -DEVENTS=1 -DLTL -a -N comes_back
health comes back without probes          | rail_health | ok            | -DEVENTS=1 -DINTERVAL=0 -DLTL -a -N comes_back
health broken: verdict without token      | rail_health | assert cause==             | -DBROKEN_NO_TOKEN
health broken: verdict of an older trial  | rail_health | assert cause==             | -DBROKEN_KIND_ONLY
health broken: no lease                   | rail_health | assert half_open_age<=     | -DBROKEN_NO_LEASE
health broken: no lease, by logic         | rail_health | assert acceptance cycle    | -DEVENTS=1 -DBROKEN_NO_LEASE -DUNTIMED -DLTL -a -N never_stranded
health broken: expiry escalates           | rail_health | assert cooldown<=was       | -DBROKEN_EXPIRY_ESCALATES
health broken: trial beside a probe       | rail_health | assert attempt.kind==      | -DBROKEN_TRIAL_BESIDE_PROBE
health broken: failure extends the pause  | rail_health | assert resume_left<=was    | -DBROKEN_FAILURE_EXTENDS
health broken: refused probe not cancelled | rail_health | assert in_flight==        | -DBROKEN_ORPHAN
window verbs, late and wrong store        | window      | ok witnesses  | -DEXTENTS=1
window verbs, bye overtakes writes        | window      | ok            | -DEXTENTS=1 -DROGUES=0 -DBYES=1
window verbs, two reads at once           | window      | ok            | -DLOSSES=0 -DROGUES=0
window verbs, silence                     | window      | ok            | -DEXTENTS=1 -DROGUES=0 -DLOSSES=0 -DSILENCE
window verbs, every run ends              | window      | ok            | -DEXTENTS=1 -DROGUES=0 -DLOSSES=0 -DSILENCE -l
window software, late and wrong store     | window      | ok witnesses  | -DSOFT -DEXTENTS=1
window software, bye overtakes writes     | window      | ok            | -DSOFT -DEXTENTS=1 -DROGUES=0 -DBYES=1
window software, two reads at once        | window      | ok            | -DSOFT -DLOSSES=0 -DROGUES=0
window software, silence                  | window      | ok            | -DSOFT -DROGUES=0 -DLOSSES=0 -DSILENCE
window software, every run ends           | window      | ok            | -DSOFT -DEXTENTS=1 -DROGUES=0 -DLOSSES=0 -DSILENCE -l
window broken: shown before LOCAL_INV     | window      | assert mem[       | -DEXTENTS=1 -DUNTIDY -DBROKEN_SHOWN_BEFORE_INV
window broken: cancel frees memory        | window      | assert mem[       | -DEXTENTS=1 -DUNTIDY -DBROKEN_CANCEL_FREES
window broken: fence only waits           | window      | assert mem[       | -DEXTENTS=1 -DUNTIDY -DBROKEN_FENCE_ONLY_WAITS
window broken: BYE taken for a fence      | window      | assert mem[       | -DEXTENTS=1 -DUNTIDY -DROGUES=0 -DBYES=1 -DBROKEN_BYE_IS_FENCE
window broken: invalidated at cancel      | window      | assert done_came  | -DEXTENTS=1 -DBROKEN_INV_AT_CANCEL
window broken: request id ignored         | window      | assert done_came  | -DEXTENTS=1 -DBROKEN_ID_IGNORED
window broken: no fence                   | window      | hangs             | -DEXTENTS=1 -DROGUES=0 -DLOSSES=0 -DSILENCE -DBROKEN_NO_FENCE
window broken: retries without end        | window      | hangs             | -DEXTENTS=1 -DROGUES=0 -DLOSSES=0 -DSILENCE -DBROKEN_RETRY_FOR_EVER
window broken: software, fence only waits | window      | assert mem[       | -DSOFT -DEXTENTS=1 -DUNTIDY -DBROKEN_FENCE_ONLY_WAITS
window broken: software, keys not salted  | window      | assert mem[       | -DSOFT -DEXTENTS=1 -DBROKEN_NO_SALT
window broken: software, pointer kept     | window      | assert mem[       | -DSOFT -DEXTENTS=1 -DBROKEN_POINTER_KEPT
window broken: software, clock needs room | window      | hangs             | -DSOFT -DEXTENTS=1 -DROGUES=0 -DLOSSES=0 -DSILENCE -DBROKEN_CLOCK_NEEDS_ROOM
grant late, wrong and honest store        | grant       | ok witnesses  | -DSILENCE
grant two losses, honest store            | grant       | ok            | -DROGUES=0 -DLOSSES=2
grant silence ends                        | grant       | ok            | -DROGUES=0 -DLOSSES=0 -DSILENCE -l
grant broken: closed before PULLED        | grant       | assert ((writer_gave_up | -DROGUES=0 -DLOSSES=0 -DBROKEN_CLOSES_UNASKED
grant broken: source goes at the loss     | grant       | assert !(is_freed | -DROGUES=0 -DBROKEN_SOURCE_GOES_AT_LOSS
grant broken: memory goes at the loss     | grant       | assert !(is_reused | -DROGUES=0 -DBROKEN_STORE_FREES_EARLY
grant broken: PULLED counted twice        | grant       | assert !(w[   | -DLOSSES=0 -DBROKEN_STATE_IGNORED
grant broken: PULLED of another request   | grant       | assert w[     | -DLOSSES=0 -DBROKEN_ID_IGNORED
grant broken: nothing expires             | grant       | hangs         | -DROGUES=0 -DLOSSES=0 -DCANCELS=0 -DSILENCE -DBROKEN_NO_EXPIRY
ROWS
}

main() {
	case ${1:-} in
	--list) table; return ;;
	--trail) want_trail=1; shift ;;
	-*) sed -n '/^#   tests/s/^#   //p' "${BASH_SOURCE[0]}"; exit 2 ;;
	esac
	for tool in spin gcc; do
		command -v "$tool" >/dev/null || { echo "1..0 # SKIP $tool is not installed (deploy/install-deps.sh --tests)"; exit 77; }
	done
	work=$(mktemp -d "${TMPDIR:-/tmp}/ry-model-XXXXXX") || exit 2
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM HUP
	choose "$@"
	run_all
	[ "${want_trail:-0}" = 0 ] || return 0
	tell
}

# Fills names[], models[], expected[], options[].
choose() {
	local name model expect option want
	names=() models=() expected=() options=()
	while IFS='|' read -r name model expect option; do
		name=$(trim "$name")
		want=$#
		for part in "$@"; do
			[[ $name != *"$part"* ]] || want=0
		done
		[ "$want" -eq 0 ] || continue
		names+=("$name") models+=("$(trim "$model")") expected+=("$(trim "$expect")") options+=("$(trim "$option")")
	done < <(table)
	[ ${#names[@]} -gt 0 ] || { echo "no run is called that: see --list" >&2; exit 2; }
}

trim() {
	local text=$1
	text=${text#"${text%%[! ]*}"}
	echo "${text%"${text##*[! ]}"}"
}

run_all() {
	local i
	for i in "${!names[@]}"; do
		while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
			wait -n
		done
		run_one "$i" </dev/null &
	done
	wait
}

# Leaves $work/<number>/log.
run_one() {
	local dir=$work/$1 model=${models[$1]}.pml option defines=() search=() build=(-DSAFETY)
	for option in ${options[$1]}; do
		case $option in
		-D*) defines+=("$option") ;;
		*) search+=("$option") ;;
		esac
		case $option in
		-l) build=(-DNP) ;;
		-a) build=() ;;
		esac
	done
	# Long vectors repeat themselves: compressed they fit.
	[ "${models[$1]}" != window ] || build+=(-DCOLLAPSE)
	mkdir -p "$dir" && cp "$here"/*.pml "$dir/" && cd "$dir" || return
	{
		spin -a "${defines[@]}" "$model" &&
			gcc -O1 -w -DVECTORSZ=2048 -DMEMLIM="$memory_mb" "${build[@]}" -o pan pan.c &&
			timeout -k 5 300 ./pan -m2000000 -w22 "${search[@]}"
	} >log 2>&1
	rm -f pan pan.[bchmpt]
	[ "${want_trail:-0}" = 0 ] || spin -t -p -g "${defines[@]}" "$model" 2>&1
}

tell() {
	local i n_bad=0 why
	for i in "${!names[@]}"; do
		if why=$(judge "$i"); then
			echo "ok $((i + 1)) - ${names[$i]}"
		else
			echo "not ok $((i + 1)) - ${names[$i]}: $why"
			sed 's/^/# /' "$work/$i/log" | tail -40
			n_bad=$((n_bad + 1))
		fi
		echo "# ${models[$i]} ${options[$i]}: $(grep -oE '[0-9]+ states, stored' "$work/$i/log")"
	done
	echo "1..${#names[@]}"
	[ "$n_bad" -eq 0 ]
}

# Says what is wrong and returns 1, or returns 0.
judge() {
	local log=$work/$1/log want=${expected[$1]} text
	case $want in
	ok*)
		grep -q 'errors: 0$' "$log" || { echo "spin found an error: $(error_of "$log")"; return 1; }
		! grep -qE 'Search not completed|out of memory|search depth too small' "$log" ||
			{ echo "not exhaustive: $(grep -m1 -E 'not completed|memory|too small' "$log")"; return 1; }
		grep -q '^Full statespace search' "$log" || { echo "no full search"; return 1; }
		[ "$want" = ok ] || all_witnesses "$1"
		;;
	*)
		text="invalid end state"
		[ "$want" = hangs ] || text=${want#assert }
		[ -s "$work/$1/${models[$1]}.pml.trail" ] || { echo "spin did not notice"; return 1; }
		error_of "$log" | grep -qF "$text" || { echo "another error than '$text': $(error_of "$log")"; return 1; }
		;;
	esac
}

error_of() {
	grep -m1 -E '^pan:1:|[Ee]rror' "$1"
}

# A situation that no search met proves that the model does less than it says.
all_witnesses() {
	local dir=$work/$1 file line missed=""
	grep -q 'witness:' "$dir/${models[$1]}.pml" || { echo "no witnesses in the model"; return 1; }
	while IFS=: read -r file line; do
		missed+=$(sed -nE "${line}s/.*(witness: .*) \*\/.*/\1; /p" "$dir/$file")
	done < <(sed -nE 's/^\t(\S+\.pml:[0-9]+), state.*/\1/p' "$dir/log" | sort -u)
	[ -z "$missed" ] || { echo "never met: $missed"; return 1; }
}

main "$@"

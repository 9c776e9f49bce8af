# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the smoke cases share: daemons on loopback, bounded waits, TAP output. A case sources this file with the build directory as $1, calls
# smoke_begin, then check/check_not/skip, and ends with smoke_end. Every process that a case starts is ended by its pid on exit.
set -u
build=$(cd "${1:?build directory}" && pwd) || exit 2
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
RAILYARD=$build/control/cli/railyard
DAEMON=$build/control/daemon/railyardd
export RAILYARD_DAEMON=$DAEMON
MIB=$((1 << 20))
STRIPE=$((4 * MIB)) # the default stripe of a put
n_checks=0
n_failed=0
declare -A daemon_pid=() daemon_ports=() daemon_config=()

smoke_begin() {
	tmp=$(mktemp -d "${TMPDIR:-/tmp}/ry-smoke-XXXXXX") || exit 2
	chmod 755 "$tmp"
	trap smoke_cleanup EXIT
	trap 'exit 130' INT TERM HUP
	if ! [ -x "$RAILYARD" ] || ! [ -x "$DAEMON" ]; then
		not_ok "railyard and railyardd are built in $build"
		smoke_end
	fi
	# The run time of AddressSanitizer where the build has it.
	sanitizer=$(ldd "$DAEMON" | awk '$1 ~ /^libasan/ {print $3}')
}

# Ends whatever the case started; pids are ours until we have waited for them.
smoke_cleanup() {
	local pid
	for pid in $(jobs -p) ${daemon_pid[@]+"${daemon_pid[@]}"}; do
		kill -KILL "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	if declare -F case_cleanup >/dev/null; then
		case_cleanup
	fi
	[ -n "${KEEP:-}" ] || rm -rf "$tmp"
}

smoke_end() {
	echo "1..$n_checks"
	[ "$n_failed" -eq 0 ]
	exit
}

ok() {
	n_checks=$((n_checks + 1))
	echo "ok $n_checks - $1"
}

not_ok() {
	n_checks=$((n_checks + 1))
	n_failed=$((n_failed + 1))
	echo "not ok $n_checks - $1"
}

skip() {
	n_checks=$((n_checks + 1))
	echo "ok $n_checks - $1 # SKIP $2"
}

# check WHAT COMMAND...: the command succeeds. Its output is shown when it does not.
check() {
	local what=$1
	shift
	"$@" >"$tmp/check.out" 2>&1 </dev/null
	local status=$?
	if [ $status -eq 0 ]; then
		ok "$what"
		return 0
	fi
	not_ok "$what"
	echo "# '$*' ended with $status"
	tail -5 "$tmp/check.out" | sed 's/^/#   /'
	show_logs
	return 1
}

# left_out WHAT WHY: no check of a build with sanitizers.
left_out() {
	echo "# left out under sanitizers: $1: $2"
}

# timed CHECK WHAT...: a check that asks how fast this build is. Under sanitizers, where every access is looked at, it is left out.
timed() {
	if [ -n "$sanitizer" ]; then
		left_out "$2" "asks the clock"
	else
		"$@"
	fi
}

# loads COMMAND...: a program without the sanitizer that loads a library with it needs its run time first; what leaks there is not ours.
loads() {
	if [ -n "$sanitizer" ]; then
		LD_PRELOAD=$sanitizer ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 "$@"
	else
		"$@"
	fi
}

# merge_tap LABEL FILE: the lines of a TAP program become ours.
merge_tap() {
	local line n=0
	while read -r line; do
		case $line in
		"ok "*" # SKIP "*) line=${line#* - } && skip "$1: ${line%% # SKIP*}" "${line##*# SKIP }" ;;
		"ok "*) ok "$1: ${line#* - }" ;;
		"not ok "*) not_ok "$1: ${line#* - }" ;;
		"#"*) echo "$line" ;;
		"1.."*) n=1 ;;
		esac
	done <"$2"
	[ $n -eq 1 ] || not_ok "$1 came to its end"
}

show_logs() {
	local log
	for log in "$tmp"/*.log; do
		[ -s "$log" ] && tail -4 "$log" | sed "s,^,# ${log##*/}: ,"
	done
}

# check_status WANTED WHAT COMMAND...: the command ends with exactly this exit status.
check_status() {
	local wanted=$1 what=$2 status
	shift 2
	"$@" >"$tmp/check.out" 2>&1 </dev/null
	status=$?
	if [ $status -eq "$wanted" ]; then
		ok "$what"
		return 0
	fi
	not_ok "$what"
	echo "# '$*' ended with $status, expected $wanted"
	tail -5 "$tmp/check.out" | sed 's/^/#   /'
	return 1
}

# check_json WHAT FILTER FILE: jq's filter is true for the file.
check_json() {
	local what=$1 filter=$2 file=$3
	if jq -e "$filter" "$file" >/dev/null 2>"$tmp/jq.err"; then
		ok "$what"
		return 0
	fi
	not_ok "$what"
	echo "# not true: $filter"
	cat "$tmp/jq.err" "$file" | head -c 1500 | sed 's/^/#   /'
	return 1
}

# wait_for SECONDS COMMAND...: polls until the command succeeds; false when the time is over.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.02
	done
}

# N free TCP ports of loopback, all different.
free_ports() {
	python3 -c '
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in held])' "$1"
}

socket_of() {
	echo "$tmp/$1.sock"
}

# write_config NODE ROLES RAILS: reads the arrays of extra lines rail_extra (per rail) and node_extra (whole file), and store= for a reader.
write_config() {
	local node=$1 roles=$2 n_rails=$3 i ports=()
	local file=$tmp/$node.yaml
	if [[ $roles == *store* ]]; then
		read -ra ports <<<"$(free_ports "$n_rails")"
		daemon_ports[$node]="${ports[*]}"
	fi
	{
		printf 'node: %s\nsocket: %s\nroles: [%s]\nrails:\n' "$node" "$(socket_of "$node")" "$roles"
		for ((i = 0; i < n_rails; i++)); do
			printf '  - name: rail%d\n    transport: tcp\n    address: %s\n' "$i" "${rail_address[$i]:-127.0.0.1}"
			[ ${#ports[@]} -eq 0 ] || printf '    port: %d\n' "${ports[$i]}"
			[ -z "${rail_extra[$i]:-}" ] || printf '    %s\n' "${rail_extra[$i]}"
		done
		[ -z "${store:-}" ] || write_stores "$store"
		[ ${#node_extra[@]} -eq 0 ] || printf '%s\n' "${node_extra[@]}"
	} >"$file"
	daemon_config[$node]=$file
}

write_stores() {
	local name=$1 port i=0
	printf 'stores:\n  - name: %s\n    endpoints:\n' "$name"
	for port in ${daemon_ports[$name]}; do
		printf '      - {address: %s, port: %d, rail: rail%d}\n' "${store_address[$i]:-127.0.0.1}" "$port" "$i"
		i=$((i + 1))
	done
}
rail_extra=() rail_address=() store_address=() node_extra=() launcher=() eal_extra=()

# Starts a daemon whose configuration was written. More lcores than CPUs share them all. `launcher` is put in front of the command.
start_daemon() {
	local node=$1 n_rails
	n_rails=$(grep -c '^  - name: rail' "${daemon_config[$node]}")
	${launcher[@]+"${launcher[@]}"} "$DAEMON" ${eal_extra[@]+"${eal_extra[@]}"} --lcores "(0-$n_rails)@(0-$(($(nproc) - 1)))" -- \
		--config "${daemon_config[$node]}" >>"$tmp/$node.log" 2>&1 </dev/null &
	daemon_pid[$node]=$!
}

# Ready: the control socket answers, and a reader has all its pairs.
is_ready() {
	"$RAILYARD" --socket "$(socket_of "$1")" rails --json >"$tmp/ready.json" || return 1
	[ "${2:-0}" -eq 0 ] || jq -e ".rails | length == $2 and all(.pairs_up >= 1)" "$tmp/ready.json"
}

await_daemon() {
	wait_for "${ready_seconds:-20}" is_ready "$@" && return 0
	not_ok "daemon $1 becomes ready"
	show_logs
	return 1
}

# stop_daemon NODE [SIGNAL]: ends it, waits for its end, returns its exit status.
stop_daemon() {
	local pid=${daemon_pid[$1]} status
	kill -"${2:-TERM}" "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	status=$?
	unset "daemon_pid[$1]"
	return $status
}

# start_pair RAILS: store "st" and reader "rd" with RAILS rails each; store_rails, store_lines, reader_lines add configuration.
start_pair() {
	local n_rails=$1 name
	rail_extra=(${store_rails[@]+"${store_rails[@]}"})
	node_extra=(${store_lines[@]+"${store_lines[@]}"})
	store='' write_config st store "$n_rails"
	rail_extra=()
	node_extra=(${reader_lines[@]+"${reader_lines[@]}"})
	store=st write_config rd reader "$n_rails"
	start_daemon st
	start_daemon rd
	await_daemon st && await_daemon rd "$n_rails" && return 0
	smoke_end
}
# Small memory, so that starting a daemon and attaching to it do not spend their time on zeroing pages.
store_rails=()
store_lines=('store:' '  memory: 256MiB' '  linger: 500ms')
reader_lines=('reader:' '  read_arena: 48MiB' '  put_arena: 32MiB')

stop_pair() {
	stop_daemon rd
	stop_daemon st
}

# The CLI against the reader.
ry() {
	"$RAILYARD" --socket "$(socket_of rd)" "$@"
}

# make_file NAME BYTES: random bytes.
make_file() {
	head -c "$2" /dev/urandom >"$tmp/$1"
}

same() {
	cmp "$tmp/$1" "$tmp/$2"
}

# status_json NODE FILTER: one value of `railyard status --json`.
status_json() {
	"$RAILYARD" --socket "$(socket_of "$1")" status --json | jq -r "$2"
}

# The in-flight budget and everything behind it is back to zero.
is_idle() {
	"$RAILYARD" --socket "$(socket_of rd)" status --json >"$tmp/idle.json" &&
		jq -e '(.inflight | .bytes == 0 and .reads == 0 and .quarantined_bytes == 0) and .clients.leases == 0' "$tmp/idle.json"
}

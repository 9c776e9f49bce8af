#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a daemon says to a wrong command line, configuration or host: what, where, and what to do, with the exit code of its kind, before it has
# touched any memory of a store. And what the configuration in effect is, with the source of each value.
. "$(dirname "$0")/smoke.sh"
smoke_begin
conf=$tmp/c.yaml

case_cleanup() {
	[ -z "${held_pid:-}" ] || kill -KILL "$held_pid" 2>/dev/null
	[ ! -d "$tmp/ro" ] || umount "$tmp/ro" 2>/dev/null
}

# A store on one TCP rail. config KEY=VALUE...: node, socket, address, port, rail (more keys of the rail), more (lines at the end)
config() {
	local node=n1 socket=$tmp/n1.sock address=127.0.0.1 port=$free_port rail='' transport=tcp more='store: {memory: 16MiB}' "$@"
	printf 'node: %s\nsocket: %s\nroles: [store]\nrails:\n  - {name: rail0, transport: %s, address: "%s", port: %s%s}\n%s\n' \
		"$node" "$socket" "$transport" "$address" "$port" "${rail:+, $rail}" "$more" >"$conf"
}

# run ARGUMENT...: the daemon, its words in $tmp/said; one that starts all the same is ended after run_s, 15 s (status 124). Its words come through a pipe,
# because it may be forbidden to write files.
run() {
	${launcher[@]+"${launcher[@]}"} timeout -k 5 "${run_s:-15}" "$DAEMON" "$@" 2>&1 </dev/null | cat >"$tmp/said"
	return "${PIPESTATUS[0]}"
}

# refuses WHAT STATUS WORDS... -- ARGUMENT...: it ends with the status and says all of the words, in few lines, and "ready" is not one of them.
refuses() {
	local what=$1 wanted=$2 words=() word status
	shift 2
	while [ "$1" != -- ]; do
		words+=("$1")
		shift
	done
	shift
	run "$@"
	status=$?
	for word in "${words[@]}"; do
		grep -qF -e "$word" "$tmp/said" || status="$status without '$word'"
	done
	! grep -qiE 'panic|backtrace|segmentation| ready: |preparing' "$tmp/said" || status="$status and more than a message"
	[ "$(wc -l <"$tmp/said")" -le "${most_lines:-4}" ] || status="$status in $(wc -l <"$tmp/said") lines"
	if [ "$status" = "$wanted" ]; then
		ok "$what"
	else
		not_ok "$what"
		echo "# ended with $status, expected $wanted"
		head -12 "$tmp/said" | sed 's/^/#   /'
	fi
}

launch() {
	${launcher[@]+"${launcher[@]}"} "$DAEMON" -- --config "$conf" >"$tmp/n1.log" 2>&1 </dev/null &
	daemon_pid[n1]=$!
}

# starts WHAT WORDS...: with the configuration in place it becomes ready, having said the words; then it is stopped.
starts() {
	local what=$1 status word
	shift
	launch
	await_daemon n1 || return
	stop_daemon n1
	status=$?
	for word in "$@"; do
		grep -qF -e "$word" "$tmp/n1.log" || status="$status without '$word'"
	done
	if [ "$status" = 0 ]; then
		ok "$what"
	else
		not_ok "$what"
		echo "# ended with $status"
		head -8 "$tmp/n1.log" | sed 's/^/#   /'
	fi
}

read -r free_port other_port <<<"$(free_ports 2)"
n_cpus=$(nproc)
config

# ---- command line ----
refuses "no configuration" 2 '--config FILE is missing' '--help' -- --no-huge --
refuses "an unknown option" 2 "unknown option '--confg'" '--help' -- --confg "$conf"
refuses "an option without its value" 2 "no value for '--config'" -- --config
refuses "EAL arguments without the dashes" 2 'EAL arguments stand before "--"' -- -l 0-1 --config "$conf"
refuses "an EAL argument that there is not" 4 'eal: would not start with' '--no-such-thing: Invalid argument' 'railyardd -h -- lists' '--log-level=lib.eal:debug' -- --no-such-thing -- --config "$conf"
refuses "a list of lcores that is none" 4 '-l zero: not understood' 'Examples: -l 0-2' -- -l zero -- --config "$conf"
refuses "CPUs that do not exist" 4 '-l 900-901: CPU 900 does not exist here' "this process has $n_cpus" 'try --lcores' -- -l 900-901 -- --config "$conf"
refuses "too few lcores" 4 'names 1 lcores, but one for control and one for each of 1 rails makes 2' 'Leave the option out' -- -l 0 -- --config "$conf"
refuses "lcores chosen twice" 4 '-l and --lcores both choose lcores' -- -l 0-1 --lcores 0,1 -- --config "$conf"
refuses "control on the lcore of a rail" 4 'rails[0].lcore: 1 is the main lcore, which runs control; give the rail another' \
	-- --lcores "(0-1)@(0-$((n_cpus - 1)))" --main-lcore 1 -- --config "$conf"
config rail='lcore: 9'
refuses "a lcore that EAL does not have" 4 'rails[0].lcore: EAL has no lcore 9; add it to --lcores' -- --lcores "(0-1)@(0-$((n_cpus - 1)))" -- --config "$conf"
config
if [ "$(cat /proc/sys/vm/nr_hugepages)" -eq 0 ]; then
	refuses "hugepages that the arguments insist on" 4 'hugepages: ' 'MiB free for us, and the options given insist on hugepages' 'nr_hugepages' -- --in-memory -- --config "$conf"
	starts "too few hugepages are a warning with the command that makes more" 'running on ordinary pages, which costs speed. To have them: echo'
else
	skip "hugepages that the arguments insist on" "this machine has hugepages"
fi
refuses "too little memory for EAL" 4 'eal: the memory arguments give it 8 MiB, but this configuration needs' 'leave -m and --socket-mem out' -- --no-huge -m 8 -- --config "$conf"

# ---- the file ----
refuses "a file that is missing" 3 "$tmp/none.yaml: cannot be opened: No such file" -- --config "$tmp/none.yaml"
refuses "a directory" 3 "$tmp: cannot be read: Is a directory" -- --config "$tmp"
: >"$tmp/empty.yaml"
refuses "an empty file" 3 "$tmp/empty.yaml:1: the file is empty; at least node, roles and rails are needed" -- --config "$tmp/empty.yaml"
head -c 4096 /dev/urandom >"$tmp/noise.yaml"
refuses "noise" 3 "$tmp/noise.yaml:" -- --config "$tmp/noise.yaml"
config more=$'store: {memroy: 16MiB, tier: cash}\ntimeouts: {read: 30, drain: -1s, fence: 0, hello: 2h}\nreader: {segment: 1MiB}' rail='lcore: 0, mtu: 4KiB'
most_lines=9 refuses "everything wrong in a file at once" 3 "$conf:5: rails[0].lcore: 0 is outside its range, 1 to 127" '0 runs control' \
	"$conf:5: rails[0].mtu: is for transport verbs only, and this rail is tcp: take it out" \
	"$conf:6: store.memroy: unknown key 'memroy' in store; did you mean 'memory'?" "$conf:6: store.tier: 'cash' is none of cache|pinned" \
	"$conf:7: timeouts.read: '30' is not a time with its unit, such as 50us, 100ms or 30s" "$conf:7: timeouts.drain: '-1s' is not" \
	"$conf:7: timeouts.fence: 0 is outside its range, 1ms to 1min" "$conf:7: timeouts.hello: 2h is outside its range, 10ms to 1min" \
	"$conf:8: reader: is for the role reader, which this node does not have" -- --config "$conf" --check
"$RAILYARD" config-check --json "$conf" >"$tmp/check.json"
check_json "config-check has all of them" '.error.status == "INVALID" and (.error.cause | split("\n") | length == 9)' "$tmp/check.json"
config more=$'  - {name: rail1, transport: tcp, address: 127.0.0.1, port: '"$free_port}"
refuses "two rails on one address and port" 3 "$conf:6: rails[1].port: 127.0.0.1 port $free_port is also that of rails[0]" -- --config "$conf"
config address=10.9.9.1 more=$'  - {name: rail1, transport: tcp, address: 10.9.9.1, port: 7999}\nstore: {memory: 16MiB}'
refuses "two rails on one address" 3 "$conf:6: rails[1].address: 10.9.9.1 is also the address of rails[0]: both would share one port" -- --config "$conf"
config address=0.0.0.0
refuses "a rail on every address" 3 "$conf:5: rails[0].address: 0.0.0.0 is every address of this host" -- --config "$conf"
ln -s "$tmp/nowhere" "$tmp/dangling"
config socket="$tmp/dangling/x.sock"
refuses "a run directory that is a link to nothing" 4 "run directory $tmp/dangling" "No such file or directory" -- --config "$conf"
config more='  - {name: rail1, transport: mock, lcore: 1}'
refuses "two rails on one lcore" 3 "$conf:6: rails[1].lcore: 1 is also the lcore of rails[0]; every rail needs one of its own" -- --config "$conf"
config transport=vreb
refuses "a transport that there is not" 3 "$conf:5: rails[0].transport: 'vreb' is not in this build; railyardd --version lists what is" -- --config "$conf"
config address=localhost
refuses "a host name" 3 "rails[0].address: 'localhost' is no IPv4 or IPv6 address" -- --config "$conf"

# ---- the host ----
config address=192.0.2.77
refuses "an address that this host does not have" 4 "rail rail0: listen on 192.0.2.77 port $free_port: this host does not have the rail's address; choose another" -- --config "$conf"
config rail='netdev: nodev77'
refuses "a network device that this host does not have" 4 'rail rail0: netdev: this host has no network device nodev77; ip link shows' -- --config "$conf"
config transport=verbs rail='device: nodev77'
refuses "an RDMA device that this host does not have" 4 'rail rail0: transport verbs cannot be opened' 'nodev77' -- --config "$conf"
python3 -c '
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
print("held", flush=True)
time.sleep(300)' "$other_port" >"$tmp/held" &
held_pid=$!
wait_for 10 grep -q held "$tmp/held"
config port="$other_port"
refuses "a port in use" 4 "rail rail0: listen on 127.0.0.1 port $other_port: address in use by another program; choose another" -- --config "$conf"
config more='store: {memory: 15TiB}'
if [ "$(cat /proc/sys/vm/overcommit_memory)" -eq 1 ]; then
	skip "more memory than the host has" "this host overcommits whatever is asked for"
else
	run -- --config "$conf"
	check "more memory than the host has is told with the key" grep -q 'store: no memory for store.memory of 16492674416640 bytes: .*; make it smaller' "$tmp/said"
fi
if [ "$(id -u)" -eq 0 ]; then
	chmod 777 "$tmp"
	cp "$DAEMON" "$RAILYARD" "$tmp/" && cp -a "$build"/control/client/librailyard.so* "$tmp/" 2>/dev/null
	export LD_LIBRARY_PATH=$tmp
	own_daemon=$DAEMON DAEMON=$tmp/railyardd
	launcher=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all)
	user=yes
else
	user=''
	launcher=()
fi
config
launcher+=(prlimit --memlock=0)
starts "a TCP rail needs no lockable memory (ulimit -l 0)" 'ready: 1 rails of 1'
for n in 8 10 20 30 51; do
	launcher+=(prlimit --nofile=$n)
	refuses "$n open files are too few" 4 "open files: 52 are needed for 1 rails and a client, the limit is $n; raise it: ulimit -n, or LimitNOFILE= of the unit" -- --config "$conf"
	unset 'launcher[-1]'
done
launcher+=(prlimit --nofile=52)
starts "52 are enough" 'ready: 1 rails of 1'
unset 'launcher[-1]'
launcher+=(prlimit --fsize=0)
refuses "files that may not be written" 4 'file sizes: 1048576 bytes are needed, the limit is 0; raise it: ulimit -f, or LimitFSIZE= of the unit' -- --config "$conf"
unset 'launcher[-1]'
cp "$conf" "$tmp/store.yaml"
config more=$'store: {memory: 16MiB}\nreader: {read_arena: 32MiB, put_arena: 8MiB}\nstores:\n  - {name: other, endpoints: [{address: 127.0.0.1, port: 9}]}'
sed -i 's/roles: .store./roles: [store, reader]/' "$conf"
launcher+=(prlimit --fsize=$((16 << 20)))
refuses "files too small for a client's memory" 4 'file sizes: 33554432 bytes are needed for the arenas of a client (reader.read_arena, reader.put_arena), the limit is 16777216' -- --config "$conf"
unset 'launcher[-1]'
launcher+=(prlimit --fsize=$((32 << 20)))
starts "just large enough" 'ready: 1 rails of 1'
cp "$tmp/store.yaml" "$conf"
unset 'launcher[-1]' 'launcher[-1]'
# Less and less address space: each step of the start finds none, and none of them sends a store's operator to a reader's keys.
n_tables=0 wrong=''
for ((kib = 150000; kib < ${sanitizer:+0 *} 400000; kib += 10000)); do
	launcher+=(prlimit --as=$((kib * 1024)))
	run_s=2 run -- --config "$conf"
	unset 'launcher[-1]'
	! grep -q 'ready:' "$tmp/said" || break
	n_tables=$((n_tables + $(grep -c 'control: no memory for its tables' "$tmp/said")))
	grep -E ' error $|reader\.|max_reads' "$tmp/said" && wrong="$wrong $kib"
done
if [ -n "$sanitizer" ]; then
	left_out "a store without address space" "they reserve terabytes of it"
else
	check "a store without address space names none of a reader's keys" [ "$n_tables" -gt 0 -a -z "$wrong" ]
fi
chmod 000 "$conf"
refuses "a file that may not be read" 3 "$conf: cannot be opened: Permission denied" -- --config "$conf"
rm -f "$conf"

# ---- the run directory and its socket ----
mkdir "$tmp/shut"
chmod 555 "$tmp/shut"
config socket="$tmp/shut/n1.sock"
refuses "a run directory that may not be written" 4 "run directory $tmp/shut: " 'Permission denied; make the directory writable for this user, or set socket' -- --config "$conf"
config socket="$tmp/no/such/n1.sock"
refuses "a run directory that does not exist" 4 "run directory $tmp/no/such: " 'No such file or directory' -- --config "$conf"
launcher=()
if [ -n "$user" ] && mkdir "$tmp/ro" && mount -t tmpfs -o ro none "$tmp/ro" 2>/dev/null; then
	config socket="$tmp/ro/n1.sock"
	refuses "a read-only run directory" 4 "run directory $tmp/ro: " 'Read-only file system; make the directory writable' -- --config "$conf"
	umount "$tmp/ro"
else
	skip "a read-only run directory" "mounting needs root"
fi
[ -z "$user" ] || DAEMON=$own_daemon
rm -f "$tmp"/*.lock "$tmp"/*.sock
config socket="$tmp/$(head -c 120 /dev/zero | tr '\0' s).sock"
refuses "a socket path that is too long" 3 "$conf:2: socket: " 'characters; the most is 107' -- --config "$conf"
mkdir "$tmp/dir.sock"
config socket="$tmp/dir.sock"
refuses "a directory where the socket belongs" 4 "control socket $tmp/dir.sock: a file that is no socket is in the way; remove it" -- --config "$conf"
config socket="$tmp/file.sock"
echo mine >"$tmp/file.sock"
refuses "a file where the socket belongs" 4 "control socket $tmp/file.sock: a file that is no socket is in the way; remove it" -- --config "$conf"
check "the file is left alone" grep -q mine "$tmp/file.sock"
python3 -c '
import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$tmp/n1.sock"
config
check "a stale socket is there" [ -S "$tmp/n1.sock" ]
starts "a stale socket is replaced" 'ready: 1 rails of 1'
check "and nothing is left of the daemon" [ "$(echo "$tmp"/n1.[sl]*ck)" = "$tmp/n1.[sl]*ck" ]

# ---- a second one, and what the first runs with ----
config port="$free_port" rail='rate: 125MB/s' more=$'store: {memory: 16MiB}\ntimeouts: {drain: 3s}'
cp "$conf" "$tmp/first.yaml"
"$DAEMON" --lcores "(0-1)@(0-$((n_cpus - 1)))" -- --config "$tmp/first.yaml" >"$tmp/n1.log" 2>&1 </dev/null &
daemon_pid[n1]=$!
await_daemon n1 || smoke_end
config port=0 transport=mock address= more='store: {memory: 16MiB}'
sed -i 's/address: "", //' "$conf"
refuses "a second daemon on the same socket" 4 'node n1: another daemon of this name runs here (pid ' 'stop it, or give this one another node name' -- --config "$conf"
sed -i 's/^node:.*/node: n2/' "$conf"
refuses "one of another name on the same socket" 4 "control socket $tmp/n1.sock: another daemon answers there; stop it or give this one another path" -- --config "$conf"
sed -i "s,^node:.*,node: n1,;s,^socket:.*,socket: $tmp/n2.sock," "$conf"
refuses "one of the same name on another socket" 4 'node n1: another daemon of this name runs here' "lock $tmp/n1.lock" -- --config "$conf"
config node=n2 socket="$tmp/n2.sock"
refuses "one of another name on the same port" 4 "listen on 127.0.0.1 port $free_port: address in use" -- --config "$conf"
check "the first one did not notice" is_ready n1

n1() {
	"$RAILYARD" --socket "$tmp/n1.sock" "$@"
}
n1 config --json >"$tmp/config.json"
source_of() { # key, value, source
	check_json "$1 is $2 by $3" ".settings[] | select(.key == \"$1\") | .value == \"$2\" and .source == \"$3\"" "$tmp/config.json"
}
source_of node n1 "$tmp/first.yaml:1"
source_of roles '[store]' "$tmp/first.yaml:3"
source_of 'rails[0].rate' 125MB/s "$tmp/first.yaml:5"
source_of 'rails[0].inflight' 64MiB default
source_of timeouts.drain 3s "$tmp/first.yaml:7"
source_of timeouts.fence 100ms default
source_of --config "$tmp/first.yaml" 'command line'
check_json "and the EAL arguments" '.settings[] | select(.key == "EAL arguments") | .source == "command line" and (.value | startswith("--lcores"))' "$tmp/config.json"
check "limits change while it runs" n1 limits --rail rail0 --rail-inflight 32MiB
n1 config --json >"$tmp/config.json"
source_of 'rails[0].inflight' 32MiB 'railyard limits'
check "config prints a table" n1 config
"$DAEMON" -- --config "$tmp/first.yaml" --print-config >"$tmp/printed.yaml"
check "--print-config has the line of each value" grep -qE "rate: 125MB/s +# $tmp/first.yaml:5$" "$tmp/printed.yaml"
check "and says what is default" grep -qE "^  fence: 100ms +# default$" "$tmp/printed.yaml"
check "what it prints is a configuration" "$RAILYARD" config-check "$tmp/printed.yaml"
stop_daemon n1

# Killed while it starts: nothing hinders the next.
config more='store: {memory: 256MiB}'
for pause in 0.01 0.05 0.15 0.3; do
	launch
	sleep $pause
	stop_daemon n1 KILL
done
starts "kill -9 in the middle of a start hinders no later one" 'ready: 1 rails of 1'

# More lcores than CPUs: they share what there is.
{
	printf 'node: n1\nsocket: %s\nroles: [store]\nrails:\n' "$tmp/n1.sock"
	for i in $(seq 0 $((n_cpus + 1))); do
		printf '  - {name: rail%d, transport: mock}\n' "$i"
	done
	printf 'store: {memory: 16MiB}\n'
} >"$conf"
launch
await_daemon n1 || smoke_end
check "more lcores than CPUs start, and share them" grep -q "ready: $((n_cpus + 2)) rails of $((n_cpus + 2))" "$tmp/n1.log"
stop_daemon n1
smoke_end

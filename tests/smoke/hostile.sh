#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A reader between a good store and one that lies, then a store under attack: typed errors, nothing left over, few lines of log, and
# what the good store holds is read exactly all the time.
. "$(dirname "$0")/smoke.sh"
peer=$tree/tests/smoke/hostile_peer.py
smoke_begin

start_liar() {
	python3 "$peer" store >"$tmp/liar.out" 2>"$tmp/liar.err" &
	liar=$!
	wait_for 10 test -s "$tmp/liar.out" && liar_port=$(head -1 "$tmp/liar.out")
}

# Keys are spread over the stores by their hash: one whose home is the liar.
liars_key() { # what
	local i
	for ((i = 0; i < 64; i++)); do
		[ "$(home_of "$1.$i")" = liar ] && echo "$1.$i" && return
	done
}

# Asked in the words of a store that exists: the good one has nothing of this name.
home_of() {
	local before
	before=$(lookups_of "${1%%.*}")
	ry stat "$1" --deadline 300ms >/dev/null 2>&1
	[ "$(lookups_of "${1%%.*}")" -gt "$before" ] && echo liar
}

# What it says of earlier requests may come at any time.
lookups_of() { # what
	grep -c "^lookup $1\$" "$tmp/liar.out"
}

# lie WHAT STATUS...: reading it ends with one of these, the budgets are back, and the good store is read exactly.
lie() {
	local what=$1 key wanted
	shift
	wanted=$(printf '"%s",' "$@")
	key=$(liars_key "$what")
	rm -f "$tmp/out"
	ry get "$key" "$tmp/out" --deadline 2s --json >"$tmp/get.json" 2>"$tmp/get.err"
	check_json "$what: ends with $*" ".error.status // \"OK\" | IN(${wanted%,})" "$tmp/get.json"
	[ "$1" != OK ] || [ $# -gt 1 ] || check "$what: exactly" cmp "$tmp/out" "$tmp/lied"
	check "$what: the budgets are back to zero" wait_for 5 is_idle
	check "$what: the good store is read" good_read
}

# A host that is short of CPU may miss a segment deadline of 100 ms: then over the other rail, and once more. What is read is exact.
good_read() {
	ry get "$good" "$tmp/back" --failover || ry get "$good" "$tmp/back" --failover || return
	same good.in back
}

counter() { # of all rails
	ry rails --json | jq "[.rails[].counters.$1] | add"
}

grew() { # counter, before
	[ "$(counter "$1")" -gt "$2" ]
}

liar_was_asked() {
	grep -q "^$1" "$tmp/liar.out"
}

store_counter() { # of all rails, or conn.NAME
	python3 "$peer" metrics "$(socket_of st)" | jq "if \"$1\" | startswith(\"conn.\") then .$1 else [.rails[].$1] | add end"
}

store_counted() { # counter: it grew during this attack
	[ "$(store_counter "$1")" -gt "${counted[$1]}" ]
}

# The store's lines since the attack began.
said() {
	tail -n +$((at + 1)) "$tmp/st.log"
}

# An attacker comes up and is lost, twice at the most; then once a minute.
told_once() {
	local most
	most=$(said | grep -o 'node evil[0-9]*' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $1}')
	[ "${most:-0}" -le 5 ] || return
	# A host's odd HELLOs: a line of each kind.
	most=$(said | sed -n 's/.*hello from 127\.0\.0\.1:[0-9]*\( refused\)\?: \([^:(]*\).*/\2/p' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $1}')
	[ "${most:-0}" -ge 1 ] && [ "$most" -le 2 ]
}

# What it is told of differs; whatever it is, at least once, and of no node or host more than of twice up and down and a line a minute.
told_some() {
	local most
	most=$(said | sed -nE 's/.*(node evil[0-9]*|hello from 127\.0\.0\.1|pair with node \?).*/\1/p' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $1}')
	[ "${most:-0}" -ge 1 ] && [ "$most" -le 6 ]
}

# A thousand a second, of which a quarter at least is taken: the others find the queue full, which lets no more of them wait. Where this host
# cannot do as many, all are taken.
connects_were_borne() {
	local n taken share=1
	n=$(awk '$1 == "connects" {n += $2} END {print n}' "$tmp/attack.out")
	taken=$(($(store_counter conn.accepted) - ${counted[conn.accepted]}))
	echo "# $(grep ^connects "$tmp/attack.out" | tr '\n' ' ')accepted $taken"
	! grep -qE '^connects ([3-9][0-9]{3}|[0-9]{5,}) ' "$tmp/attack.out" || share=4
	[ "$n" -gt 0 ] && [ $((taken * share)) -ge "$n" ]
}

# What the reader's log says of the lying store, without the time and the count.
told_of_liar() { # most lines of a kind, kinds
	local told
	told=$(grep -oE '(peer liar: .*|node evil sent [0-9]+ messages.*)' "$tmp/rd.log" | sed -E 's/[0-9]+//g; s/ \( since the last line\)//' | sort | uniq -c)
	sed 's/^/# /' <<<"$told"
	awk -v most="$1" -v kinds="$2" '$1 > most {bad = 1} END {exit bad || NR < kinds}' <<<"$told"
}

lines_of() {
	wc -l <"$tmp/$1.log"
}

liar_is_up() {
	ry rails --json | jq -e '[.rails[].pairs[] | select(.store == "liar" and .state == "UP")] | length == 1'
}

twin_reads() {
	"$RAILYARD" --socket "$(socket_of twin)" get "$good" "$tmp/back" && same good.in back
}

fds_of() {
	find "/proc/$1/fd" -type l | wc -l
}

few_fds() {
	[ "$(fds_of "${daemon_pid[st]}")" -le "$1" ]
}

start_liar || { not_ok "the lying store starts"; smoke_end; }
node_extra=('store:' '  memory: 256MiB')
store='' write_config st store 2
node_extra=("  - name: liar" "    endpoints:" "      - {address: 127.0.0.1, port: $liar_port, rail: rail0}" "${reader_lines[@]}"
	'health:' '  rail_error_threshold: 1000' 'timeouts:' '  reconnect: 200ms')
store=st write_config rd reader 2
start_daemon st
start_daemon rd
await_daemon st && await_daemon rd 2 || smoke_end
check "the pair with the lying store is up" wait_for 10 liar_is_up
python3 -c "
import sys; sys.path.insert(0, '$tree/tests/smoke')
import hostile_peer; sys.stdout.buffer.write(hostile_peer.OBJECT)" >"$tmp/lied"
make_file good.in $((8 * MIB))
for good in good.{0..63}; do
	[ "$(home_of "$good")" = liar ] || break
done
check "put into the good store" ry put "$good" "$tmp/good.in"
started=$SECONDS

lie honest OK
check "it was asked" liar_was_asked "read honest"
late=$(counter late_messages)
lie twice OK
check "answers that came twice are counted" grew late_messages "$late"
late=$(counter late_messages)
lie strange OK
check "answers to nothing are counted" grew late_messages "$late"
lie fewer INCOMPLETE
lie more INCOMPLETE
lie older STALE_GENERATION
lie empty CHECKSUM
lie wrong CHECKSUM
lie swapped CHECKSUM
check "stripes that changed places are found" liar_was_asked "read swapped"
lie credits OK
dropped=$(counter late_dropped_bytes)
lie outside OK
check "bytes for other windows are counted" grew late_dropped_bytes "$dropped"
lie asking OK
lie granting OK
lie busy TIMEOUT
lie patient TIMEOUT
late=$(counter late_messages)
lie silent RAIL TIMEOUT
check "it got a CANCEL, which it ignored" wait_for 5 liar_was_asked "cancel silent"
check "and spoke late" wait_for 5 liar_was_asked "late"
for what in status frame large zero noise cut; do
	wait_for 10 liar_is_up
	lie "$what" RAIL NO_RAIL TIMEOUT PROTOCOL INCOMPLETE
done
wait_for 10 liar_is_up
lie mute TIMEOUT
lie malformed PROTOCOL
lie huge INVALID_DESCRIPTOR
lie crowded INVALID_DESCRIPTOR
lie unhashed INVALID_DESCRIPTOR
lie another PROTOCOL
lie pages STALE_GENERATION
lie echoes OK
lie oversized RAIL NO_RAIL TIMEOUT
wait_for 10 liar_is_up
lie honest OK
# Bytes, generation, checksum, answers without sense, answers to nothing on either connection: at once, then once a minute.
check "its breaches are in the log, each once a minute" told_of_liar $((1 + (SECONDS - started + 59) / 60)) 6

fds=$(fds_of "${daemon_pid[st]}")
check "put for the attacks" ry put big "$tmp/good.in"
before=$(lines_of st) attacked=$SECONDS
port=${daemon_ports[st]%% *}
declare -A counted=()
# What each must be counted as.
declare -A counts_as=([garbage]='protocol_errors conn.hellos_refused' [hellos]=conn.hellos_refused [connects]=conn.accepted [loris]=conn.hellos_late
	[requests]='busy_sent protocol_errors' [replay]='late_messages protocol_errors requests_refused' [metadata]='conn.pairs_broken conn.messages_refused')
least=20 # reads during each attack
for what in garbage hellos connects loris requests replay metadata; do
	for name in ${counts_as[$what]:-}; do
		counted[$name]=$(store_counter "$name")
	done
	rm -f "$tmp/enough"
	at=$(lines_of st) began=$SECONDS
	timeout 120 python3 "$peer" attack "$port" "$what" "$tmp/enough" >"$tmp/attack.out" 2>&1 </dev/null &
	attacker=$!
	n_read=0 n_wrong=0
	while kill -0 "$attacker" 2>/dev/null; do
		good_read >/dev/null 2>&1 || n_wrong=$((n_wrong + 1))
		n_read=$((n_read + 1))
		[ "$n_read" -lt "$least" ] || : >"$tmp/enough"
	done
	wait "$attacker"
	check "attack $what: borne" grep -q "^bore $what" "$tmp/attack.out" || sed 's/^/# /' "$tmp/attack.out" | tail -5
	check "attack $what: $n_read reads meanwhile in $((SECONDS - began)) s, all exact" [ "$n_wrong" -eq 0 -a "$n_read" -ge "$least" ]
	for name in ${counts_as[$what]:-}; do
		check "attack $what: counted as $name" wait_for 5 store_counted "$name"
	done
	case $what in
	garbage | hellos) check "attack $what: each attacker is told of once" told_once || said | sed 's/^/# /' | tail -40 ;;
	loris | metadata | requests | replay)
		check "attack $what: told of, but not each time" told_some || said | sed 's/^/# /' | tail -40
		;;
	connects)
		check "attack $what: as many as can be are taken" wait_for 5 connects_were_borne && connects_were_borne
		check "attack $what: told of once" [ "$(said | grep -c 'connections within a minute ended before')" -eq 1 ]
		;;
	esac
done
check "its descriptors are back" wait_for 15 few_fds "$fds"
check "the store lives" kill -0 "${daemon_pid[st]}"
lines=$(($(lines_of st) - before)) seconds=$((SECONDS - attacked))
check "the store's log has few lines" [ $((lines * 60)) -lt $((200 * seconds)) ]
echo "# $lines lines of the store in $seconds s"

# Another reader under the name of ours, as if on another host: the later one works, the earlier one is told and waits.
mkdir "$tmp/other"
ln -s other/twin.sock "$tmp/twin.sock"
sed "s|^socket: .*|socket: $tmp/other/twin.sock|" "$tmp/rd.yaml" >"$tmp/twin.yaml"
daemon_config[twin]=$tmp/twin.yaml
before=$(lines_of st)
start_daemon twin
check "a second node of the same name comes up" await_daemon twin 2
check "the first is told that its name is taken" wait_for 10 grep -q 'hello .*: another node of the same name' "$tmp/rd.log"
check "so is the store, whatever else came from this host" wait_for 30 grep -q 'refused: DENIED: another node of the same name' "$tmp/st.log"
check "the second reads" wait_for 10 twin_reads
check "they do not fill the log" [ $(($(lines_of st) - before)) -lt 40 ]
stop_daemon twin
check "when it has left, the first reads again" wait_for 45 good_read

lines=$(lines_of rd) seconds=$((SECONDS - started))
check "the reader's log has few lines" [ $((lines * 60)) -lt $((200 * seconds)) ]
echo "# $lines lines of the reader in $seconds s"
check "SIGTERM ends the reader with 0" stop_daemon rd
check "and the store" stop_daemon st
smoke_end

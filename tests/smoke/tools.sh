#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The operator's commands: version, config-check, status, rails, plan; and their exit codes.
. "$(dirname "$0")/smoke.sh"
smoke_begin

prints_version() {
	"$RAILYARD" version | grep -E '[0-9]+\.[0-9]+\.[0-9]+'
}

# The unit as it is installed, but for the program, which is not.
unit_is_valid() {
	sed "s,^ExecStart=[^ ]*,ExecStart=$build/control/daemon/railyardd," "$build/deploy/systemd/railyardd.service" >"$tmp/railyardd.service"
	# Of other units on this host it complains, too.
	systemd-analyze verify --man=no "$tmp/railyardd.service" 2>&1 | tee "$tmp/verify" | grep -v railyardd | cat
	! grep railyardd "$tmp/verify"
}
if command -v systemd-analyze >/dev/null; then
	check "the systemd unit is valid" unit_is_valid
else
	skip "the systemd unit is valid" "no systemd-analyze here"
fi

attached_are() {
	[ "$(status_json rd .clients.attached)" = "$1" ]
}

store_lines=() reader_lines=() # all defaults
start_pair 2
make_file in $((20 * MIB))
check "version" prints_version
check "config-check accepts the reader's file" "$RAILYARD" config-check "${daemon_config[rd]}"
sed 's/^node:/nodde:/' "${daemon_config[rd]}" >"$tmp/bad.yaml"
check "config-check refuses an unknown key" bash -c "! '$RAILYARD' config-check '$tmp/bad.yaml'"
ry status --json >"$tmp/status.json"
check_json "status --json has the node, its rails and budgets" \
	'.node == "rd" and .rails.effective == 2 and .stores[0].state == "up" and .inflight.max_bytes > 0' "$tmp/status.json"
check "status prints a table" ry status
ry rails --json >"$tmp/rails.json"
check_json "rails --json has both rails" '.rails | length == 2 and .[0].name == "rail0" and .[1].name == "rail1"' "$tmp/rails.json"
check "rails prints a table" ry rails
check "put" ry put k "$tmp/in"
ry plan --json k >"$tmp/plan.json"
check_json "plan gives every byte to a rail" "[.rails[].bytes] | add == $((20 * MIB))" "$tmp/plan.json"
for i in 0 1; do
	check "rail$i is drained" ry rails drain rail$i
done
why='NO_RAIL: no rail to st: rail0 is drained, rail1 is drained'
check_status 1 "no plan without a rail" ry plan k
cp "$tmp/check.out" "$tmp/words"
check "and it says why, once" grep -qxF "railyard: plan: $why" "$tmp/words"
check_status 1 "no put without a rail" ry put k "$tmp/in"
cp "$tmp/check.out" "$tmp/words"
check "and it says why" grep -qF "railyard: put: $why" "$tmp/words"
for i in 0 1; do
	check "rail$i is back" ry rails resume rail$i
done
kill -STOP "${daemon_pid[st]}"
check_status 1 "a store that is stopped answers no look-up" ry get k --deadline 1s "$tmp/back"
cp "$tmp/check.out" "$tmp/words"
check "and is named" grep -qF 'TIMEOUT: look-up: st did not answer' "$tmp/words"
ry reads --failed --json >"$tmp/reads.json"
check_json "and is in the flight recorder" '.reads[0] | .status == "TIMEOUT" and .lookup and .key == "k" and .store == "st"' "$tmp/reads.json"
kill -CONT "${daemon_pid[st]}"
check "it goes on, and its pairs are up again" await_daemon rd 2
# A put that waits for its input holds the arenas of one client, and there is room for one and a little more.
mkfifo "$tmp/hold"
ry limits --registered 520MiB >/dev/null
check "who gave up has left" wait_for 20 attached_are 0
ry put held - <"$tmp/hold" >"$tmp/held.out" 2>&1 &
held=$!
exec 9>"$tmp/hold"
check "a put holds its arenas" wait_for 20 attached_are 1
check "stat fits beside it: it takes small arenas" ry stat k
check "ls fits beside it" ry ls
check_status 1 "get does not" ry get k "$tmp/out"
cp "$tmp/check.out" "$tmp/words"
check "and it says so once" grep -qF "railyard: get: BUDGET: cannot attach to $(socket_of rd): arenas of" "$tmp/words"
check "rm fits beside it" ry rm k
exec 9>&-
check "the put ends" wait $held || cat "$tmp/held.out"
check_status 2 "an unknown command is a usage error" ry nonsense
check_status 2 "a missing argument is a usage error" ry put
check_status 3 "no daemon at the socket" "$RAILYARD" --socket "$tmp/none.sock" status
check_status 3 "nor one to attach to" "$RAILYARD" --socket "$tmp/none.sock" stat k
cp "$tmp/check.out" "$tmp/words"
check "and its path is told once" grep -qF "cannot attach to $tmp/none.sock: No such file or directory" "$tmp/words"
stop_pair
smoke_end

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# railyard-perf: daemons of its own, a reader that runs already, and rails that carry nothing.
. "$(dirname "$0")/smoke.sh"
smoke_begin

PERF=$build/perf/railyard-perf
if ! [ -x "$PERF" ]; then
	not_ok "railyard-perf is built in $build"
	smoke_end
fi
reader_lines=('reader:' '  read_arena: 48MiB' '  put_arena: 32MiB')
start_pair 2
"$PERF" read --socket "$(socket_of rd)" --size 8MiB --count 4 --json >"$tmp/own.json"
check_json "a reader that runs is measured over the rails it has" \
	'.verified and .transport == "tcp" and .n_rails == 2 and .object_bytes == 8388608 and (.rails | map(.bytes) | add) == 4 * 8388608' "$tmp/own.json"
check_json "the CPU time of its daemons is not known" '.cpu_s == null and .client_cpu_s > 0' "$tmp/own.json"
"$PERF" read --socket "$(socket_of rd)" --size 8MiB --count 4 >"$tmp/own.txt"
check "and not shown as none" grep -qE '^CPU time: client [0-9.]+ s, in' "$tmp/own.txt"
check "and both of its rails are required" "$PERF" read --socket "$(socket_of rd)" --size 8MiB --count 4 --require-rails 2
check "what it stored there is gone again" [ "$(ry ls --json | jq length)" -eq 0 ]
ry rails drain rail1 >/dev/null
"$PERF" read --socket "$(socket_of rd)" --size 8MiB --count 4 --require-rails 2 >/dev/null 2>"$tmp/idle.txt"
check "a rail that carries nothing fails it" [ $? -eq 1 ]
check "and is counted" grep -q "only 1 of 2 rails carried bytes" "$tmp/idle.txt"
stop_pair
check_status 1 "no reader there" "$PERF" read --socket "$tmp/none.sock" --size 8MiB --count 1
check_status 1 "no RDMA device for an exchange" "$PERF" exchange --device none --count 1
smoke_end

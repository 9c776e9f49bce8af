#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Objects larger than a client's arenas go by batches of stripes, through files and through pipes.
. "$(dirname "$0")/smoke.sh"
smoke_begin

put_piped() {
	cat "$tmp/in" | ry put piped -
}

get_piped() {
	ry get piped - >"$tmp/piped"
}

store_lines=('store:' '  memory: 512MiB')
reader_lines=('reader:' '  read_arena: 16MiB' '  put_arena: 16MiB')
make_file in $((150 * MIB + 12345))
start_pair 2
check "put 150 MiB through a put arena of 16 MiB" ry put big "$tmp/in"
check "get it through a read arena of 16 MiB" ry get big "$tmp/back"
check "every byte is the same" same in back
check "put from a pipe, size unknown" put_piped
check "get to a pipe" get_piped
check "every byte of the pipe is the same" same in piped
ry stat piped --json >"$tmp/stat.json"
check_json "stat knows the size" ".size_bytes == $((150 * MIB + 12345))" "$tmp/stat.json"
check "the budgets are back to zero" is_idle
stop_pair
smoke_end

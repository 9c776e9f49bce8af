#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What an operator does with objects: overwrite, put-if-absent, stat, list, remove, expire, two clients at once.
. "$(dirname "$0")/smoke.sh"
smoke_begin

generation() {
	ry stat "$1" --json | jq .generation
}

grows() {
	[ "$1" -gt "$2" ]
}

list_all() {
	ry ls --json "$@" | jq -r '.[].key' | sort >"$tmp/listed"
}

two_clients() {
	local first second
	ry get a "$tmp/back.1" &
	first=$!
	ry get b "$tmp/back.2" &
	second=$!
	wait $first && wait $second && same in.a back.1 && same in.b back.2
}

is_gone() {
	! ry stat "$1"
}

start_pair 2
make_file in.a $((9 * MIB))
make_file in.b $((5 * MIB + 7))

check "put" ry put a "$tmp/in.a"
before=$(generation a)
check "overwrite" ry put a "$tmp/in.b"
check "the generation grows" grows "$(generation a)" "$before"
check "get after overwrite" ry get a "$tmp/back"
check "it is the new content" same in.b back
range() { # offset, length
	ry get a "$tmp/range" --offset "$1B" --length "$2B" && tail -c +$(($1 + 1)) "$tmp/in.b" | head -c "$2" | cmp - "$tmp/range"
}
for at in "0 1" "1 $((5 * MIB + 6))" "$((STRIPE - 1)) 2" "$((STRIPE + 3)) 100000" "$((5 * MIB + 6)) 1"; do
	# shellcheck disable=SC2086
	check "range $at" range $at
done
check_status 1 "a range behind the end is refused" ry get a "$tmp/range" --offset 6MiB
check_status 1 "put-if-absent of an existing key fails" ry put --if-absent a "$tmp/in.a" --json
check_json "with EXISTS" '.error.status == "EXISTS"' "$tmp/check.out"
check "and changes nothing" ry get a "$tmp/back"
check "it is still the old content" same in.b back
check "put-if-absent of a new key" ry put --if-absent b "$tmp/in.b"
check "put a again" ry put a "$tmp/in.a"
check "two clients read at once" two_clients

for i in $(seq 1 40); do
	printf '%s' "$i" >"$tmp/small"
	ry put "many/$i" "$tmp/small" >/dev/null || not_ok "put many/$i"
done
seq 1 40 | sed 's,^,many/,' | sort >"$tmp/expected"
check "list by prefix" list_all many/
check "the list is complete" same expected listed
check "list everything" list_all
check "nothing is lost or repeated" [ "$(uniq "$tmp/listed" | wc -l)" -eq 42 ]

check "remove" ry rm b
check_status 4 "get of a removed object is NOT_FOUND" ry get b "$tmp/back"
check_status 4 "stat of a removed object is NOT_FOUND" ry stat b
check_status 4 "a second remove is NOT_FOUND" ry rm b
ry get b "$tmp/back" --json >"$tmp/err.json" 2>/dev/null
check_json "the error is typed in JSON" '.error.status == "NOT_FOUND"' "$tmp/err.json"

check "put with a ttl" ry put --ttl 4s short "$tmp/in.b"
check "it can be read" ry get short "$tmp/back"
check "it expires" wait_for 12 is_gone short
check_status 4 "then it is NOT_FOUND" ry get short "$tmp/back"
check "the budgets are back to zero" is_idle
stop_pair
smoke_end

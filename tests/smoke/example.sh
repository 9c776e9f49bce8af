#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The C example of the README, built the way an application is: with pkg-config's flags and nothing else.
. "$(dirname "$0")/smoke.sh"
smoke_begin
export PKG_CONFIG_PATH=$build/meson-uninstalled

build_example() {
	local cflags libs
	cflags=$(pkg-config --cflags railyard) && libs=$(pkg-config --libs railyard) || return 1
	# shellcheck disable=SC2086
	cc -std=c11 -Wall -Wextra -Werror $cflags "$tree/docs/examples/stream_object.c" -o "$tmp/example" $libs "-Wl,-rpath,$build/control/client"
}

# As a program that takes nothing along: flags of pkg-config --static.
build_static() {
	local cflags libs
	cflags=$(pkg-config --cflags railyard) && libs=$(pkg-config --static --libs railyard) || return 1
	# shellcheck disable=SC2086
	cc -std=c11 -static $cflags "$tree/docs/examples/stream_object.c" -o "$tmp/example-static" $libs
}

needs_no_dpdk() {
	! ldd "$tmp/example" | grep -E 'librte_|libibverbs'
}

start_pair 2
make_file in $((10 * MIB + 1))
check "the example compiles as C11" build_example
check "it needs neither DPDK nor verbs" needs_no_dpdk
check "put" ry put greeting "$tmp/in"
RAILYARD_SOCKET=$(socket_of rd)
export RAILYARD_SOCKET
check "the example runs" loads "$tmp/example" greeting "$tmp/back"
check "it read every byte" same in back
rm -f "$tmp/back"
if [ -n "$sanitizer" ]; then
	left_out "the example links statically" "AddressSanitizer has no static run time"
elif cc -static -x c - -o "$tmp/probe" -lxxhash -ljansson <<<'int main(void) { return 0; }' 2>/dev/null; then
	check "the example links statically" build_static
	check "the static example runs" "$tmp/example-static" greeting "$tmp/back"
	check "it read every byte" same in back
else
	skip "the example links statically" "no libxxhash.a, libjansson.a or libc.a here"
fi
check_status 1 "the example reports a missing object" loads "$tmp/example" nothing "$tmp/back"
stop_pair
smoke_end

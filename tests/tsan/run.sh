#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs one program under ThreadSanitizer: with addresses that it can place its own memory beside, where the kernel lets us ask for them.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=0:exitcode=66:second_deadlock_stack=1}
if setarch -R true 2>/dev/null; then
	exec setarch -R "$@"
fi
exec "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A dead peer costs others nothing: one reader, two stores over tcp on loopback, one of them stopped (SIGSTOP). Reads from the healthy
# one are measured alone and beside reads from the dead one, in interleaved pairs, each pair with a second measurement alone, whose
# distance from the first is the band of this machine (A/A). Prints JSON; medians over the pairs are judged.
# Exit code 1: throughput < 0.95 of alone, p50 more than 5 % above, or p99 above by more than max(25 %, band).
# usage: perf/isolation.sh [BUILD_DIR] [PAIRS] [SECONDS]
cd "$(dirname "$0")/.." || exit 2
set -- "${1:-build}" "${2:-5}" "${3:-3}"
n_pairs=$2 seconds=$3
. tests/smoke/smoke.sh "$1"
load=$build/tests/bench/read_load
[ -x "$load" ] || { echo "isolation: $load is not built; run tests/run.sh unit first" >&2; exit 2; }
smoke_begin
rails=2

die() {
    echo "isolation: $*" >&2
    show_logs >&2
    exit 2
}

on() {
    local node=$1
    shift
    "$RAILYARD" --socket "$(socket_of "$node")" "$@"
}

objects_of() {
    on "$1" status --json | jq .store.objects
}

start() {
    local node
    # What a rail sends is capped, so that CPUs which everything here shares do not decide.
    rail_extra=('rate: 60MB/s' 'rate: 60MB/s') node_extra=('store:' '  memory: 64MiB')
    for node in well dead; do
        store='' write_config $node store $rails
        start_daemon $node
        await_daemon $node >&2 || exit 2
    done
    # The second store's lines follow the first one's.
    rail_extra=() node_extra=("$(write_stores dead | sed 1d)" 'reader:' '  read_arena: 64MiB' '  put_arena: 16MiB')
    store=well write_config rd reader $rails
    start_daemon rd
    await_daemon rd $rails >&2 || exit 2
}

# Keys are spread over the stores by their hash: tries until each has one.
place() {
    local i before
    well_key='' dead_key=''
    for i in $(seq 1 64); do
        before=$(objects_of well)
        on rd put "key$i" "$tmp/in" >/dev/null || die "put failed"
        if [ "$(objects_of well)" -gt "$before" ]; then well_key=${well_key:-key$i}; else dead_key=${dead_key:-key$i}; fi
        [ -n "$well_key" ] && [ -n "$dead_key" ] && return
    done
    die "64 keys, and all on one store"
}

measure() {
    "$load" "$(socket_of rd)" "$well_key" "$seconds" 2 0 10000 || die "the measured load failed"
}

# Beside eight places that ask the dead store, each at once again after 20 ms.
beside() {
    local other
    kill -STOP "${daemon_pid[dead]}"
    "$load" "$(socket_of rd)" "$dead_key" "$seconds" 8 20 1000 >"$tmp/other.json" &
    other=$!
    measure
    wait $other || die "the other load failed"
    kill -CONT "${daemon_pid[dead]}"
}

is_read_again() {
    on rd get "$dead_key" "$tmp/back" --deadline 1s
}

make_file() {
    head -c "$2" /dev/urandom >"$tmp/$1"
}

make_file in $((2 * MIB))
start
place
# A descriptor in the cache: what is asked of the dead store is data.
is_read_again >/dev/null 2>&1 || die "the second store is not read"
measure >/dev/null
for ((i = 0; i < n_pairs; i++)); do
    measure >"$tmp/alone.$i.json"
    beside >"$tmp/beside.$i.json"
    cp "$tmp/other.json" "$tmp/other.$i.json"
    wait_for 20 is_read_again || die "the store that was dead is not read again"
    measure >"$tmp/again.$i.json"
done
jq -n --slurpfile alone <(cat "$tmp"/alone.*.json) --slurpfile beside <(cat "$tmp"/beside.*.json) \
    --slurpfile again <(cat "$tmp"/again.*.json) --slurpfile other <(cat "$tmp"/other.*.json) '
    def median: sort | .[(length - 1) / 2 | floor];
    def ratios(a; b; f): [range(a | length) | (b[.] | f) / (a[.] | f)];
    (ratios($alone; $beside; .bytes_per_s) | median) as $rate
    | (ratios($alone; $beside; .p50_ns) | median) as $p50
    | (ratios($alone; $beside; .p99_ns) | median) as $p99
    | (ratios($alone; $again; .p99_ns) | map(. - 1 | fabs) | max) as $band
    | {isolation: {pairs: ($alone | length), throughput_ratio: $rate, p50_ratio: $p50, p99_ratio: $p99,
        aa: {throughput_ratio: (ratios($alone; $again; .bytes_per_s) | median), p50_ratio: (ratios($alone; $again; .p50_ns) | median),
             p99_ratio: (ratios($alone; $again; .p99_ns) | median), p99_band: $band},
        alone: $alone, beside: $beside, again: $again, dead: $other},
       ok: ($rate >= 0.95 and $p50 <= 1.05 and $p99 <= 1 + ([0.25, $band] | max) and ($other | map(.failed > 0 and .reads == 0) | all))}' >"$tmp/result.json" || die "no result"
cat "$tmp/result.json"
jq -e .ok "$tmp/result.json" >/dev/null

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a node costs when nothing happens, and what waking it costs: a store and a reader with two TCP rails each on loopback, left alone for
# SECONDS; then reads of 64 KiB one at a time, which find every lcore asleep.
# Prints one JSON object: CPU share of each idle daemon in percent of a core, its resident memory beyond pools, slab and arenas, and
# the latency of a woken read.
# usage: perf/idle.sh [BUILD_DIR] [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
seconds=${2:-10}
slab_mib=64
tmp=$(mktemp -d)
pids=()
cleanup() {
    for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
p0=$(free_port)
p1=$(free_port)
cat >"$tmp/store.yaml" <<YAML
node: store
socket: $tmp/store.sock
roles: [store]
rails:
  - {name: rail0, transport: tcp, address: 127.0.0.1, port: $p0}
  - {name: rail1, transport: tcp, address: 127.0.0.1, port: $p1}
store: {memory: ${slab_mib}MiB}
YAML
cat >"$tmp/reader.yaml" <<YAML
node: reader
socket: $tmp/reader.sock
roles: [reader]
rails:
  - {name: rail0, transport: tcp, address: 127.0.0.1}
  - {name: rail1, transport: tcp, address: 127.0.0.1}
stores:
  - {name: store, endpoints: [{address: 127.0.0.1, port: $p0}, {address: 127.0.0.1, port: $p1}]}
YAML

start() {
    "$build/control/daemon/railyardd" -- --config "$tmp/$1.yaml" >"$tmp/$1.log" 2>&1 &
    pids+=($!)
    for _ in $(seq 100); do
        "$build/control/cli/railyard" --socket "$tmp/$1.sock" status >/dev/null 2>&1 && return
        sleep 0.1
    done
    cat "$tmp/$1.log" >&2
    exit 1
}

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

# Resident KiB that are neither EAL's pools, nor arenas and rings (all memfds), nor the slab.
beyond_kib() { # PID SLAB_KIB
    awk -v slab="$2" '/^[0-9a-f]+-/ {is_memfd = /memfd:/} /^Rss:/ {if (!is_memfd) sum += $2} END {print sum - slab}' "/proc/$1/smaps"
}

start store
start reader
sleep 2
a=($(ticks "${pids[0]}") $(ticks "${pids[1]}"))
sleep "$seconds"
b=($(ticks "${pids[0]}") $(ticks "${pids[1]}"))
hz=$(getconf CLK_TCK)
wake=$("$build/perf/railyard-perf" read --transport tcp --rails 2 --size 64KiB --count 400 --depth 1 --json)
jq -n --argjson wake "$wake" \
    --argjson store_cpu "$(((b[0] - a[0]) * 100))" --argjson reader_cpu "$(((b[1] - a[1]) * 100))" \
    --argjson per "$((hz * seconds))" \
    --argjson store_kib "$(beyond_kib "${pids[0]}" $((slab_mib * 1024)))" --argjson reader_kib "$(beyond_kib "${pids[1]}" 0)" \
    '{idle_cpu_percent: {store: ($store_cpu / $per), reader: ($reader_cpu / $per)},
      rss_beyond_pools_mib: {store: ($store_kib / 1024), reader: ($reader_kib / 1024)},
      woken_read_64k: {p50_us: $wake.p50_us, p99_us: $wake.p99_us, verified: $wake.verified}}'

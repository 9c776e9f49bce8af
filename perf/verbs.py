#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads over verbs rails beside ib_write_bw on the same rails, in interleaved pairs of one run.

perf/verbs.py BUILD ADDRESS [ADDRESS]      both ends on this host: a store and a reader of its own on each address
        [--sizes 16MiB,64MiB] [--pairs 5] [--seconds 4] [--qps N] [--reader 'segment: 1MiB'] [--exchange] [--dead ADDRESS]

Each pair measures ib_write_bw (1 MiB messages; one per rail, at the same time) and then verified reads, for the same time and with as many bytes under
way; printed is the median of the pairs' ratios, as JSON, and exit status 1 says that a bound was missed. --exchange adds 64 KiB reads beside the bare SEND + WRITE + SEND of railyard-perf exchange, --dead reads while an address that does not answer is being dialled. Every number comes from counters of
this run: railyard-perf read fails when the rails' counters and the bytes that the client got differ, and this script fails when the transport
was not verbs, a window was left open, or a rail ran in quarantine. --reader gives
keys of the reader other than those below, which suit lcores that share CPUs: fewer, larger segments wake them less often.
"""
import argparse
import contextlib
import ipaddress
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from nodes import MIB, Failure, Nodes, parse_size

WRITE_BYTES = MIB
SHARED_CPUS = 'segment: 4MiB, depth_min: 8MiB'
LEAST_WRITE_BW, MOST_EXCHANGE, MOST_DEAD_P50, MOST_DEAD_P99 = 0.9, 2.0, 1.05, 1.25
WRITE_DEPTH_BYTES = 128 * MIB  # what ib_write_bw has under way: as many messages by default


def device_of(address):
    """(device, index) of the RoCEv2 GID that is this address."""
    want = address if ':' in address else '::ffff:' + address
    for device in sorted(os.listdir('/sys/class/infiniband')):
        gids = f'/sys/class/infiniband/{device}/ports/1/gids'
        for index in sorted(os.listdir(gids), key=int):
            gid = open(f'{gids}/{index}', encoding='ascii').read().strip()
            kind = f'/sys/class/infiniband/{device}/ports/1/gid_attrs/types/{index}'
            with contextlib.suppress(OSError):
                if ipaddress.ip_address(gid) == ipaddress.ip_address(want) and 'v2' in open(kind, encoding='ascii').read():
                    return device, int(index)
    raise Failure(f'no RDMA device has the address {address}')


def await_listener(port):
    end = time.monotonic() + 30
    want = f':{port:04X}'
    while time.monotonic() < end:
        for table in ('tcp', 'tcp6'):
            with open(f'/proc/net/{table}', encoding='ascii') as f:
                if any(words[1].endswith(want) and words[3] == '0A' for words in map(str.split, f)):
                    return
        time.sleep(0.02)
    raise Failure(f'ib_write_bw does not listen on port {port}')


def write_bw(addresses, n):
    """Bytes per second of n messages of ib_write_bw over each address at the same time, summed."""
    runs = []
    for i, address in enumerate(addresses):
        device, index = device_of(address)
        command = ['ib_write_bw', '-d', device, '-x', str(index), '-s', str(WRITE_BYTES), '-n', str(n), '-F', '-p', str(18600 + i)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        runs.append((server, command, address))
    for i in range(len(addresses)):
        await_listener(18600 + i)
    clients = [subprocess.Popen([*command, address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _, command, address in runs]
    total = 0.0
    for client in clients:
        out, _ = client.communicate(timeout=180)
        row = [line.split() for line in out.splitlines() if line.split()[:1] == [str(WRITE_BYTES)]]
        if not row:
            raise Failure(f'ib_write_bw printed no result, it ended with {client.returncode}:\n' + out[-800:])
        total += float(row[0][3]) * MIB  # its "MB" are 2^20 bytes
    for server, _, _ in runs:
        server.wait(30)
    return total


def ratio_of(build, addresses, size, pairs, seconds, how):
    depth = max(2, WRITE_DEPTH_BYTES // size)
    arena = (depth + 1) * size // MIB + 8
    rows = []
    with tempfile.TemporaryDirectory(prefix='ry-perf-') as directory:
        nodes = Nodes(build, 'verbs', addresses, size // MIB + 64, arena, directory, **how)
        try:
            rate = nodes.read(size, depth, 0, 1)['bytes_per_s']
            n = max(32, int(seconds * rate / len(addresses) / WRITE_BYTES))
            for _ in range(pairs):
                peer = write_bw(addresses, n)
                own = nodes.read(size, depth, seconds, rate)['bytes_per_s']
                rows.append({'ib_write_bw_bytes_per_s': peer, 'bytes_per_s': own, 'ratio': own / peer})
            nodes.check()
        finally:
            nodes.stop()
    return {'rails': len(addresses), 'size': size, **how, 'ratio': statistics.median(r['ratio'] for r in rows), 'pairs': rows}


def exchange_of(build, address, pairs):
    rows = []
    device, _ = device_of(address)
    with tempfile.TemporaryDirectory(prefix='ry-perf-') as directory:
        nodes = Nodes(build, 'verbs', [address], 64, 16, directory)
        try:
            for _ in range(pairs):
                bare = json.loads(subprocess.run([f'{build}/perf/railyard-perf', 'exchange', '--device', device, '--address', address, '--size', '64KiB',
                                                  '--count', '300', '--json'], capture_output=True, text=True, check=True).stdout)
                own = nodes.read(64 << 10, 1, 0.3, 1e6)
                own = nodes.read(64 << 10, 1, 1, 20e6)
                rows.append({'exchange_p50_us': bare['p50_us'], 'read_p50_us': own['p50_us'], 'ratio': own['p50_us'] / bare['p50_us']})
            nodes.check()
        finally:
            nodes.stop()
    return {'size': 64 << 10, 'ratio': statistics.median(r['ratio'] for r in rows), 'pairs': rows}


def dead_of(build, address, dead, pairs):
    """Reads beside a reader that dials a dead address without end, and beside one that does not: two readers, in turn."""
    rows = []
    with tempfile.TemporaryDirectory(prefix='ry-perf-') as d1, tempfile.TemporaryDirectory(prefix='ry-perf-') as d2:
        plain = Nodes(build, 'verbs', [address], 64, 16, d1)
        try:
            dialling = Nodes(build, 'verbs', [address], 64, 16, d2, dead=(dead, 7471), first_port=7800)
            try:
                for _ in range(pairs):
                    row = {name: nodes.read_n(1 << 20, 1, 60) for name, nodes in (('a', plain), ('b', dialling), ('a2', plain))}
                    rows.append({f'{p}_{name}_us': row[name][f'{p}_us'] for p in ('p50', 'p99') for name in row})
                attempts = max(r['failures'] for rail in dialling.ask('rails')['rails'] for r in rail['pairs'] if r.get('store') == 'dead')
                if not attempts:
                    raise Failure(f'{dead} was not dialled in vain even once')
            finally:
                dialling.stop()
        finally:
            plain.stop()

    def median(f):
        return statistics.median(f(r) for r in rows)
    return {'dead': dead, 'failed_attempts': attempts, 'p50_ratio': median(lambda r: r['p50_b_us'] / r['p50_a_us']),
            'p99_ratio': median(lambda r: r['p99_b_us'] / r['p99_a_us']), 'p50_ratio_a_a': median(lambda r: r['p50_a2_us'] / r['p50_a_us']),
            'p99_ratio_a_a': median(lambda r: r['p99_a2_us'] / r['p99_a_us']), 'pairs': rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('addresses', nargs='+')
    parser.add_argument('--sizes', default='16MiB,64MiB')
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--seconds', type=int, default=4)
    parser.add_argument('--qps', type=int, default=0, help='qps_per_pair of every rail (default the daemon\'s)')
    parser.add_argument('--reader', default=SHARED_CPUS, help='keys of the reader, with commas between them (default: %(default)s)')
    parser.add_argument('--exchange', action='store_true')
    parser.add_argument('--dead', metavar='ADDRESS')
    a = parser.parse_args()
    how = {}
    if a.qps:
        how['rail_keys'] = f', qps_per_pair: {a.qps}'
    if a.reader:
        how['reader_keys'] = ''.join(f'  {key.strip()}\n' for key in a.reader.split(','))
    result = {'write_bw': []}
    try:
        for size in map(parse_size, filter(None, a.sizes.split(','))):
            for addresses in [a.addresses[:1]] + ([a.addresses] if len(a.addresses) > 1 else []):
                result['write_bw'].append(ratio_of(a.build, addresses, size, a.pairs, a.seconds, how))
        if a.exchange:
            result['exchange'] = exchange_of(a.build, a.addresses[0], a.pairs)
        if a.dead:
            result['dead'] = dead_of(a.build, a.addresses[0], a.dead, a.pairs)
    except Failure as e:
        print(f'verbs.py: {e}', file=sys.stderr)
        return 1
    result['missed'] = missed(result)
    json.dump(result, sys.stdout, indent=1)
    print()
    return 1 if result['missed'] else 0


def missed(result):
    """The bounds that do not hold."""
    bad = [f'{row["rails"]} rails, {row["size"] // MIB} MiB: {row["ratio"]:.3f} is below {LEAST_WRITE_BW}' for row in result['write_bw']
           if row['ratio'] < LEAST_WRITE_BW]
    exchange, dead = result.get('exchange'), result.get('dead')
    if exchange and exchange['ratio'] > MOST_EXCHANGE:
        bad.append(f'exchange: {exchange["ratio"]:.3f} is above {MOST_EXCHANGE}')
    if dead and dead['p50_ratio'] > MOST_DEAD_P50:
        bad.append(f'dead, p50: {dead["p50_ratio"]:.3f} is above {MOST_DEAD_P50}')
    if dead and dead['p99_ratio'] > max(MOST_DEAD_P99, dead['p99_ratio_a_a']):
        bad.append(f'dead, p99: {dead["p99_ratio"]:.3f} is above {MOST_DEAD_P99} and above the A/A run')
    return bad


if __name__ == '__main__':
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a second rail adds between two hosts: two guests with Soft-RoCE, each link capped where the store sends.

perf/two_guests.py BUILD [--cap 5MB/s] [--sizes 16MiB,32MiB,64MiB,128MiB] [--pairs 5]

First two ib_write_bw at the same time must reach twice the cap within 3 %. Then each size is read whole, verified, by a reader with one rail and by one
with two, in turn; gain is the ratio of their times, printed with every single time, as JSON. Exit status 1 where it is below 1.85 at some size, or not flat
within 10 %. The guests' CPUs are emulated: only ratios of one run mean anything.
"""
import argparse
import json
import os
import re
import statistics
import sys

from nodes import MIB, Failure, parse_size

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'vm'))
import guest  # noqa: E402

DIR = '/run/perf'
KEY = 'gain'
LEAST_GAIN, FLAT = 1.85, 0.10
PREMISE = 0.03


def daemon(g, build, name, text, n_rails):
    g.check(f"mkdir -p {DIR} && cat >{DIR}/{name}.yaml <<'X'\n{text}X")
    g.start(f'exec {build}/control/daemon/railyardd --lcores "(0-{n_rails})@(0-1)" -- --config {DIR}/{name}.yaml >{DIR}/{name}.log 2>&1')


def start(store, reader, build, largest):
    rails = ''.join(f'  - {{name: rail{i}, transport: verbs, address: 10.77.{i}.1, port: {7700 + i}}}\n' for i in range(2))
    daemon(store, build, 'st', f'node: st\nsocket: {DIR}/st.sock\nroles: [store]\nrails:\n{rails}store:\n  memory: {largest // MIB + 64}MiB\n', 2)
    for n in (1, 2):
        rails = ''.join(f'  - {{name: rail{i}, transport: verbs, address: 10.77.{i}.2}}\n' for i in range(n))
        ends = ''.join(f'      - {{address: 10.77.{i}.1, port: {7700 + i}, rail: rail{i}}}\n' for i in range(n))
        daemon(reader, build, f'rd{n}', f'node: rd{n}\nsocket: {DIR}/rd{n}.sock\nroles: [reader]\nrails:\n{rails}stores:\n  - name: st\n    endpoints:\n'
               f'{ends}reader:\n  read_arena: {2 * largest // MIB + 8}MiB\n  inflight: {2 * largest // MIB + 256}MiB\n  client_inflight: {2 * largest // MIB + 256}MiB\n'
               f'  put_arena: 32MiB\n', n)
        reader.check(f'for i in $(seq 300); do [ "$({build}/control/cli/railyard --socket {DIR}/rd{n}.sock health --json | jq .n_eligible)" = {n} ] && exit 0; sleep 0.2; '
                     f'done; tail -5 {DIR}/*.log; exit 1', 120)


def cap(store, rate):
    """In bytes per second, on what the store sends; 0 = no cap."""
    for i in range(2):
        store.run(f'tc qdisc del dev eth{i} root')
        if rate:
            store.check(f'tc qdisc add dev eth{i} root tbf rate {rate * 8} burst 64kb latency 200ms')


def write_bw(store, reader, n):
    """The store's guest writes over both rails at the same time: bytes per second of each."""
    servers = [reader.start(f'ib_write_bw -d rxe{i} -x 1 -s 1048576 -n {n} -F -p {18600 + i}') for i in range(2)]
    reader.check('for i in $(seq 300); do [ $(ss -ltn | grep -c ":1860[01] ") = 2 ] && exit 0; sleep 0.1; done; exit 1')
    clients = [store.start(f'ib_write_bw -d rxe{i} -x 1 -s 1048576 -n {n} -F -p {18600 + i} 10.77.{i}.2') for i in range(2)]
    rates = []
    for client in clients:
        out = client.wait(180).output
        found = re.search(r'^ 1048576\s+\d+\s+[\d.]+\s+([\d.]+)', out, re.M)
        if not found:
            raise Failure('ib_write_bw printed no result:\n' + out[-600:])
        rates.append(float(found.group(1)) * MIB)
    for server in servers:
        server.wait(60)
    return rates


def read(reader, build, n_rails, size, count):
    done = reader.run(f'{build}/perf/railyard-perf read --socket {DIR}/rd{n_rails}.sock --size {size} --depth 1 --warm-ups 0 --count {count} --json', 400)
    if done.status != 0:
        raise Failure(f'railyard-perf: {done.output[-600:]}')
    result = done.json()
    if not result['verified'] or result['transport'] != 'verbs' or result['n_rails'] != n_rails:
        raise Failure('something else was measured')
    return result


def check(reader, build, n_rails):
    for rail in reader.check(f'{build}/control/cli/railyard --socket {DIR}/rd{n_rails}.sock rails --json').json()['rails']:
        c = rail['counters']
        if rail['quarantine'] or c['fences'] or not c['windows_bound'] or c['windows_bound'] != c['windows_invalidated']:
            raise Failure(f'rail {rail["name"]} was not measured with windows: {json.dumps(rail)[:400]}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('--cap', default='5MB/s')
    parser.add_argument('--sizes', default='16MiB,32MiB,64MiB,128MiB')
    parser.add_argument('--pairs', type=int, default=5)
    a = parser.parse_args()
    sizes = [parse_size(s) for s in a.sizes.split(',')]
    rate = int(re.fullmatch(r'(\d+)MB/s', a.cap).group(1)) * 1000000
    result = {'cap_bytes_per_s': rate, 'gains': []}
    try:
        with guest.two(memory_mib=3072) as (store, reader):
            build = os.path.abspath(a.build)
            cap(store, rate)
            result['ib_write_bw_bytes_per_s'] = bare = write_bw(store, reader, 24)
            if abs(sum(bare) / (2 * rate) - 1) > PREMISE:
                raise Failure(f'two ib_write_bw reached {sum(bare) / 1e6:.2f} MB/s, which is not twice the cap within 3 %: choose another cap')
            start(store, reader, build, max(sizes))
            for size in sizes:
                rows = []
                for i in range(a.pairs):
                    times = {n: read(reader, build, n, size, 1) for n in ((1, 2) if i % 2 == 0 else (2, 1))}
                    rows.append([size / times[n]['bytes_per_s'] for n in (1, 2)])
                result['gains'].append({'size': size, 'gain': statistics.median(one / two for one, two in rows), 'seconds': rows})
            for n in (1, 2):
                check(reader, build, n)
    except (Failure, guest.GuestError) as e:
        print(f'two_guests.py: {e}', file=sys.stderr)
        return 1
    gains = [row['gain'] for row in result['gains']]
    result['flat'] = 1 - min(gains) / max(gains)
    json.dump(result, sys.stdout, indent=1)
    print()
    return 0 if min(gains) >= LEAST_GAIN and result['flat'] <= FLAT else 1


if __name__ == '__main__':
    sys.exit(main())

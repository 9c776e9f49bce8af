#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A table of whole-object reads: sizes x rails x reads at a time, with what they cost.

perf/sweep.py BUILD TRANSPORT ADDRESS [ADDRESS...] [--sizes 32MiB,64MiB,128MiB,256MiB,512MiB] [--concurrent 1,2] [--count 6] [--json]

TRANSPORT is tcp or verbs; a store and a reader of its own run on the addresses, with the first one alone and with all. Aggregate is bytes that reached
the client, verified, per second; p50 from submit to completion; RSS is the reader's with its arenas; registered and in flight are the most that `railyard
status` showed during the reads. It fails where railyard-perf does: a byte that the rails' counters and the client do not agree on, or a read unverified.
"""
import argparse
import json
import sys
import tempfile

from nodes import MIB, Failure, Nodes, parse_size

COLUMNS = ('size MiB', 'rails', 'concurrent', 'aggregate MB/s', 'p50 ms', 'RSS MiB', 'registered MiB', 'in flight MiB', 'verified')


def measure(a, addresses, size):
    """One row for each number of reads at a time."""
    arena = (max(a.concurrent) + 1) * size // MIB + 8
    with tempfile.TemporaryDirectory(prefix='ry-perf-') as directory:
        nodes = Nodes(a.build, a.transport, addresses, size // MIB + 64, arena, directory)
        try:
            for depth in a.concurrent:
                with nodes.watched() as most:
                    result = nodes.read_n(size, depth, max(a.count, 2 * depth))
                yield {'size MiB': size // MIB, 'rails': len(addresses), 'concurrent': depth, 'aggregate MB/s': result['bytes_per_s'] / 1e6,
                       'p50 ms': result['p50_us'] / 1e3, 'RSS MiB': most['rss_bytes'] / MIB, 'registered MiB': most['registered_bytes'] / MIB,
                       'in flight MiB': most['inflight_bytes'] / MIB, 'verified': result['verified']}
            nodes.check()
        finally:
            nodes.stop()


def show(row):
    cells = [f'{v:.1f}' if isinstance(v, float) else str(v).lower() for v in (row[c] for c in COLUMNS)]
    print('| ' + ' | '.join(cells) + ' |', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('transport', choices=('tcp', 'verbs'))
    parser.add_argument('addresses', nargs='+')
    parser.add_argument('--sizes', default='32MiB,64MiB,128MiB,256MiB,512MiB')
    parser.add_argument('--concurrent', default='1,2')
    parser.add_argument('--count', type=int, default=6)
    parser.add_argument('--json', action='store_true')
    a = parser.parse_args()
    a.concurrent = [int(n) for n in a.concurrent.split(',')]
    rows = []
    if not a.json:
        print('| ' + ' | '.join(COLUMNS) + ' |\n|' + '---|' * len(COLUMNS))
    try:
        for size in map(parse_size, a.sizes.split(',')):
            for addresses in [a.addresses[:1]] + ([a.addresses] if len(a.addresses) > 1 else []):
                for row in measure(a, addresses, size):
                    rows.append(row)
                    if not a.json:
                        show(row)
    except Failure as e:
        print(f'sweep.py: {e}', file=sys.stderr)
        return 1
    if a.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    return 0


if __name__ == '__main__':
    sys.exit(main())

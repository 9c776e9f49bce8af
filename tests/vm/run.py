#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs one command of the project in a guest with Soft-RoCE, and ends as it ended.

    tests/vm/run.py [--memory MIB] [--cpus N] [--hugepages N] [--seconds N] -- COMMAND...

The guest has both ends of two rails, rxe0 on 10.77.0.1 and rxe1 on 10.77.1.1, and sees the host's files, read-only, at their own paths; it runs in the
directory that this was called from. What the command prints is printed.
"""
import argparse
import os
import shlex
import sys
import time

import guest


def follow(job, seconds):
    """Prints what the command prints while it runs; its exit status, or None when the time is over."""
    end = time.monotonic() + seconds
    with open(job.path, encoding='utf-8', errors='replace') as out:
        while True:
            is_done = job.is_done()
            sys.stdout.write(out.read())
            sys.stdout.flush()
            if is_done:
                return job.wait(1).status
            if time.monotonic() > end:
                return None
            time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--memory', type=int, default=3072, metavar='MIB')
    parser.add_argument('--cpus', type=int, default=2)
    parser.add_argument('--hugepages', type=int, default=256)
    parser.add_argument('--seconds', type=int, default=1800)
    parser.add_argument('command', nargs='+')
    a = parser.parse_args()
    try:
        with guest.one(memory_mib=a.memory, cpus=a.cpus, hugepages=a.hugepages) as g:
            job = g.start(f'cd {shlex.quote(os.getcwd())} && {shlex.join(a.command)}')
            while not os.path.exists(job.path):
                time.sleep(0.05)
            status = follow(job, a.seconds)
    except guest.GuestError as e:
        print(f'run.py: {e}', file=sys.stderr)
        return 1
    if status is None:
        print(f'run.py: no end within {a.seconds} s', file=sys.stderr)
        return 1
    return status


if __name__ == '__main__':
    sys.exit(main())

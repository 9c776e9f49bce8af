# SPDX-License-Identifier: BSD-3-Clause
"""Late writes: a store that answers when its reader has given up and uses the memory for something else.

One store is on the other host and late; a second one, beside the reader, has the pattern that takes the memory over at once (late_reader.c).
"""
import json
import os

import nodes
from vm_pair import MIB, Pair

DIR = f'{nodes.DIR}/late'
SIZE = MIB


def run(t, guests, build):
    p = pair(t, guests, build)
    with t.scenario('start', p.logs):
        p.start()
        place(p)
    for scenario in (stopped_store, slow_uplink):
        with t.scenario(scenario.__name__, p.logs):
            scenario(t, p)
            p.sound()
    with t.scenario('end', p.logs):
        p.stop()
    # The reader waits for DONE for as long as it takes, so that it is DONE that frees the memory, and the QP lives on.
    p = pair(t, guests, build, reader_keys={'timeouts': {'fence': '60s'}})
    with t.scenario('store_that_ignores_cancel', p.logs):
        p.g1.check(f'rm -rf {DIR} && mkdir -p {DIR}')
        p.start(f'env LD_PRELOAD={build}/tests/vm/liblate_store.so SHIM_DIR={DIR}')
        place(p)
        store_that_ignores_cancel(t, p)
        p.sound()
        p.stop()


def pair(t, guests, build, **more):
    return Pair(t, guests, build, more_stores=[nodes.store(guests[1], build, name='st2', port=7481, memory='64MiB')], **more)


def place(p):
    """Puts the object that will be late in one store, the pattern in the other; keys decide where they go."""
    p.g2.check(f"head -c {SIZE} /dev/zero | tr '\\0' '\\245' >{nodes.DIR}/pattern")
    where = {}
    for i in range(32):
        name = f'o{i}'
        p.reader.cli('put', name, f'{nodes.DIR}/pattern', '--quiet').check()
        p.reader.cli('get', name, '/dev/null', '--quiet').check()
        where[p.last_read()['store']] = name
        if len(where) == 2:
            break
    p.late_key, p.pattern_key = where['st'], where['st2']
    # Other bytes than the pattern, in one part over one rail.
    p.reader.cli('rm', p.late_key).check()
    p.g2.check(f'head -c {SIZE} {nodes.DIR}/data >{nodes.DIR}/late.in')
    p.reader.cli('put', p.late_key, f'{nodes.DIR}/late.in', '--quiet').check()


class LateReader:
    """late_reader.c in guest 2."""

    def __init__(self, p, deadline_ms):
        self.p = p
        p.g2.check(f'rm -rf {DIR} && mkdir -p {DIR}')
        self.job = p.g2.start(f'{p.build}/tests/vm/late_reader {p.reader.config["socket"]} {p.late_key} {p.pattern_key} {deadline_ms} {DIR}')
        self.await_line('warm')

    def await_line(self, start):
        def line():
            found = [text for text in self.output().splitlines() if text.startswith(start)]
            if not found and self.job.is_done():
                raise nodes.NodeError(f'late_reader ended without "{start}":\n{self.job.output()}')
            return found[0] if found else None
        return nodes.await_true(f'late_reader says {start}', line)

    def output(self):
        return self.job.output() if os.path.exists(self.job.path) else ''

    def go(self):
        self.p.g2.check(f'touch {DIR}/go')

    def finish(self):
        self.p.g2.check(f'touch {DIR}/stop')
        result = self.job.wait(60)
        counts = json.loads(result.output.splitlines()[-1])
        self.p.t.check('the pattern is intact', result.status == 0 and counts['wrong'] == 0, result.output)
        self.p.t.check('and was looked at', counts['looks'] > 0, counts)


def late_bytes(p):
    """Bytes that came in over both links of the reader."""
    return sum(int(p.g2.check(f'cat /sys/class/net/eth{rail}/statistics/rx_bytes').output) for rail in (0, 1))


def ended(p):
    """How requests ended at the store other than well."""
    c = p.store.counters().values()
    return sum(rail['cancels_served'] + rail['requests_refused'] + rail['qp_failures'] for rail in c) + p.store.log().count(' is down: ')


def stopped_store(t, p):
    before = ended(p)
    reader = LateReader(p, 400)
    pid = p.store.pid()
    p.g1.check(f'kill -STOP {pid}')
    t.equal('the store stands still', p.g1.check(f'cut -d" " -f3 /proc/{pid}/stat').output.strip(), 'T')
    reader.go()
    t.check('the read fails at its deadline', 'TIMEOUT' in reader.await_line('late:'), reader.output())
    reader.await_line('held')
    p.g1.check(f'kill -CONT {pid}')
    nodes.await_true('the request ended at the store', lambda: ended(p) > before)
    for rail in (0, 1):
        p.await_eligible(rail)
    reader.finish()


def slow_uplink(t, p):
    """The answer is on its way when the reader gives up."""
    before = ended(p)
    reader = LateReader(p, 400)
    with p.netem(0, 'delay 4s', ends=(1,)), p.netem(1, 'delay 4s', ends=(1,)):
        reader.go()
        t.check('the read fails at its deadline', 'TIMEOUT' in reader.await_line('late:'), reader.output())
        reader.await_line('held')
        held = late_bytes(p)
        nodes.await_true('the late bytes arrive', lambda: late_bytes(p) > held + SIZE // 2)
        nodes.await_true('the request ended at the store', lambda: ended(p) > before)
        reader.finish()
    for rail in (0, 1):
        p.await_eligible(rail)


def store_that_ignores_cancel(t, p):
    reader = LateReader(p, 400)
    p.g1.check(f'touch {DIR}/hold')
    reader.go()
    t.check('the read fails at its deadline', 'TIMEOUT' in reader.await_line('late:'), reader.output())
    await_file(p, 'held')
    p.g1.check(f'rm {DIR}/hold; touch {DIR}/cancelled')
    await_file(p, 'told')
    reader.await_line('held')
    p.g1.check(f'touch {DIR}/write')
    await_file(p, 'written')
    # Told by its device: the store's log may name the reader's BYE instead, which comes at the same time.
    await_file(p, 'refused')
    reader.finish()
    for rail in (0, 1):
        p.await_eligible(rail)
    p.reader.cli('get', p.late_key, f'{DIR}/again', '--quiet').check()
    t.check('the next read of it is right', p.g2.run(f'cmp {DIR}/again {nodes.DIR}/late.in').status == 0)


def await_file(p, name):
    nodes.await_true(f'the store is at {name}', lambda: p.g1.run(f'[ -e {DIR}/{name} ]').status == 0)

# SPDX-License-Identifier: BSD-3-Clause
"""Ends that nobody announced: kill -9 of either daemon, between reads and in the middle of them."""
import json

import guest
import nodes
from vm_data import FILE, MIB, device_counters, get_same, moved, put, resources

SIZE = 32 * MIB
N_READS = 3
# What a read may end with whose store vanished.
LOSSES = {'RAIL', 'NO_RAIL', 'PEER_RESTARTED', 'NOT_FOUND'}


def run(t, g, build):
    g.check(f'mkdir -p {nodes.DIR} && head -c {SIZE} /dev/urandom >{FILE}')
    store = nodes.store(g, build)
    store.config['store']['linger'] = '0'
    # An emulated CPU is late by more than the default's 100 ms; that is not the silence that a fence is for, and a fence costs all reads of its QP.
    reader = nodes.reader(g, build, [store], timeouts={'fence': '20s'})

    def logs():
        return f'{store.log()[-3000:]}\n{reader.log()[-3000:]}'

    with t.scenario('start', logs):
        empty = resources(g)
        store.start()
        alone = resources(g)
        reader.start().await_pairs()
        t.equal('a put', put(g, reader, 'a', SIZE).status, 0)
    for scenario in (store_between_reads, store_in_mid_read):
        with t.scenario(scenario.__name__, logs):
            scenario(t, g, store, reader)
    with t.scenario('reader_in_mid_read', logs):
        reader_in_mid_read(t, g, store, reader, alone)
    with t.scenario('end', logs):
        t.equal('the reader ends in order', reader.stop(), 0)
        t.equal('the store ends in order', store.stop(), 0)
        t.equal('nothing of theirs is left in the devices', resources(g), empty)


def all_given_back(t, store, reader):
    def is_quiet():
        status = reader.show('status')
        flying = status['inflight']
        return not flying['quarantined_bytes'] and not flying['bytes'] and not flying['reads'] and not status['clients']['leases']
    t.check('every byte that was charged is given back', nodes.await_true('no byte is charged', is_quiet, 20))
    for name, c in reader.counters().items():
        t.equal(f'{name}: every bound window was closed once', c['windows_invalidated'] + c['windows_fenced'], c['windows_bound'])
        t.equal(f'{name}: nothing in flight', c['inflight_bytes'], 0)
    for name, c in store.counters().items():
        t.equal(f'store {name}: nothing in flight', c['inflight_bytes'], 0)


def still_works(t, g, reader, key):
    before = device_counters(g)
    get_same(t, g, reader, key)
    packets = moved(before, device_counters(g), 'sent_pkts')
    t.check('over both devices', all(n > 100 for n in packets.values()), packets)


def failed_typed(t, what, got, statuses):
    """A job or a Cli of `get --json` that must have failed with one of the statuses and say why."""
    t.check(f'{what}: failed', got.status not in (0, 124), f'exit code {got.status}: {got.output}')
    try:
        error = json.loads(got.output)['error']
    except (ValueError, KeyError, TypeError):
        error = {'status': None, 'cause': ''}
    t.check(f'{what}: with one of {sorted(statuses)}', error['status'] in statuses, error)
    t.check(f'{what}: says why', len(error['cause']) > 10, error)
    return error


def store_between_reads(t, g, store, reader):
    qps = resources(g)['qp']
    t.equal('the store dies', store.kill(), 137)
    nodes.await_true('the reader sees it', lambda: not any(r['pairs_up'] for r in reader.rails().values()), 20)
    got = reader.cli('get', 'a', f'{nodes.DIR}/out.a', '--json', '--deadline', '10s')
    failed_typed(t, 'a read without the store', got, LOSSES)
    t.equal('no partial file', g.run(f'ls {nodes.DIR}/out.a*').status != 0, True)
    nodes.await_true('the kernel closed what the store had', lambda: resources(g)['qp'] < qps, 20)
    store.start()
    reader.await_pairs()
    error = failed_typed(t, 'a read of what it has lost', reader.cli('get', 'a', f'{nodes.DIR}/out.a', '--json'), {'NOT_FOUND'})
    t.note(error['cause'])
    t.equal('a new put', put(g, reader, 'a', SIZE).status, 0)
    still_works(t, g, reader, 'a')


# Kills `node` as soon as reads have moved a tenth of their bytes, from within the guest: a question from outside takes longer than a read does.
KILL = '''
count() {{ cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }}
from=$(count) end=$((SECONDS + 60))
for i in {reads}; do {get} >{base}.$i 2>&1 & pids="$pids $!"; done
until [ $(count) -gt $((from + {packets})) ]; do [ $SECONDS -lt $end ] || exit 1; done
kill -KILL $(cat {pid})
for pid in $pids; do wait $pid; echo $?; done
'''


def kill_in_mid_read(t, g, node, reader, *options):
    """Returns (exit code, output) of each read."""
    get = reader.cli_text('get', 'a', 'OUT', '--json', '--quiet', '--deadline', '20s', *options).replace('OUT', f'{nodes.DIR}/out.$i')
    base = f'{nodes.DIR}/read'
    script = KILL.format(reads=' '.join(map(str, range(N_READS))), get=f'timeout 60 {get}', base=base, pid=f'{node.base}.pid',
                         packets=N_READS * SIZE // 2 // 4096 // 10)
    statuses = g.check(script, 150).output.split()
    t.equal(f'{node.name} died', node.kill(), 137)
    ended = [nodes.Cli(f'get {i}', guest.Result(int(s), g.check(f'cat {base}.{i}').output)) for i, s in enumerate(statuses)]
    t.check('it was in the middle of reads', any(e.status for e in ended), [e.output for e in ended])
    return [e for e in ended if e.status]


def store_in_mid_read(t, g, store, reader):
    for policy in ('--no-failover', '--failover'):
        for ended in kill_in_mid_read(t, g, store, reader, policy):
            failed_typed(t, f'{ended.command} {policy}', ended, LOSSES | {'TIMEOUT'})
        t.check('no partial files', g.run(f'ls {nodes.DIR}/out.*.part* 2>/dev/null').status != 0)
        g.run(f'rm -f {nodes.DIR}/out.?')
        store.start()
        reader.await_pairs()
        t.equal(f'{policy}: a new put', put(g, reader, 'a', SIZE).status, 0)
        still_works(t, g, reader, 'a')
        all_given_back(t, store, reader)


def reader_in_mid_read(t, g, store, reader, alone):
    for ended in kill_in_mid_read(t, g, reader, reader):
        failed_typed(t, ended.command, ended, {'DETACHED'})

    def is_freed():
        rails = store.rails()
        return all(not r['pairs_up'] and not r['counters']['qps'] and not r['counters']['inflight_bytes'] for r in rails.values())
    nodes.await_true('the store lets go of its QPs', is_freed, 30)
    nodes.await_true(f'the devices hold what a store alone has, {alone}', lambda: resources(g) == alone, 30)
    t.equal('the devices hold what the store alone had', resources(g), alone)
    reader.start().await_pairs()
    still_works(t, g, reader, 'a')
    # A pin that was left would keep the memory.
    for entry in reader.show('ls'):
        t.equal(f'rm {entry["key"]}', reader.cli('rm', entry['key']).status, 0)
    try:
        nodes.await_true('', lambda: store.show('status')['store']['used_bytes'] == 0, 20)
    except nodes.NodeError:
        pass
    memory = store.show('status')['store']
    t.check('no object and no pinned memory is left', memory['used_bytes'] == memory['objects'] == 0, f'{memory} {store.rails()}')
    t.equal('a put into all of it', put(g, reader, 'b', SIZE).status, 0)

# SPDX-License-Identifier: BSD-3-Clause
"""What devices go through: a thousand connections, and their removal while they are used."""
import os

import nodes
from vm_data import FILE, MIB, device_counters, get_same, moved, put, rail_bytes, resources

SIZE = 32 * MIB
CYCLES = 1000
HERE = os.path.dirname(os.path.abspath(__file__))


def run(t, g, build):
    g.check(f'mkdir -p {nodes.DIR} && head -c {SIZE} /dev/urandom >{FILE}')
    store = nodes.store(g, build)
    # Three clients register at a time, which takes emulated CPUs long.
    reader = nodes.reader(g, build, [store], reader_keys={'read_arena': '48MiB', 'put_arena': '24MiB'})

    def logs():
        return f'{store.log()[-3000:]}\n{reader.log()[-3000:]}'

    with t.scenario('cycles', logs):
        store.start()
        cycles(t, g, store)
    with t.scenario('removal', logs):
        reader.start().await_pairs()
        t.equal('a put', put(g, reader, 'a', SIZE).status, 0)
        removal(t, g, store, reader)
    with t.scenario('after_removal', logs):
        after_removal(t, g, store, reader)
    with t.scenario('end', logs):
        t.equal('the reader ends in order', reader.stop(), 0)
        t.equal('the store ends in order', store.stop(), 0)
        t.equal('nothing of theirs is left in the devices', resources(g), {'cm_id': 0, 'cq': 0, 'mr': 0, 'pd': 0, 'qp': 0})


def open_files(g, node):
    return int(g.check(f'ls /proc/{node.pid()}/fd | wc -l').output)


# Not the resident part: tables that exist from the start are touched bit by bit.
def data_kib(g, node):
    return int(g.check(f"awk '/^VmData/ {{ print $2 }}' /proc/{node.pid()}/status").output)


# A QP with its receives and their registration is made, brought to RTS, adopted, released and destroyed each time.
def cycles(t, g, store):
    def dial(n):
        rail = store.config['rails'][0]
        return g.run(f'python3 {HERE}/dial_cycles.py {rail["address"]} {rail["port"]} {n}', 240)

    first = dial(20)  # what grows once, such as a heap, has grown
    t.check('pairs come up', first.status == 0, first.output)
    nodes.await_true('their QPs are gone', lambda: not store.counters()['rail0']['qps'], 30)
    before, files = resources(g), open_files(g, store)
    for half in ('first', 'second'):
        memory = data_kib(g, store)
        done = dial(CYCLES // 2)
        t.check(f'{half} half of {CYCLES}: pairs were up one after the other', done.status == 0, done.output)
        nodes.await_true('their QPs are gone', lambda: not store.counters()['rail0']['qps'], 30)
    t.equal('the device holds what it held before', resources(g), before)
    t.equal('as many files are open', open_files(g, store), files)
    # A heap finds its size in the first half. What a QP has in memory is more than 64 KiB.
    grown = data_kib(g, store) - memory
    t.note(f'the second half took {grown} KiB')
    t.check('memory did not grow with them', grown < 2 * CYCLES, f'{grown} KiB more')
    t.equal('no pair is left', [p for r in store.rails().values() for p in r['pairs']], [])


# rxe makes no event of it, and the removal waits for everybody who has the device open.
def removal(t, g, store, reader):
    before = device_counters(g)
    jobs = [reader.start_cli('get', 'a', f'{nodes.DIR}/out.{i}', '--json', '--quiet', '--failover') for i in range(3)]
    nodes.await_true('bytes move on rxe1', lambda: moved(before, device_counters(g), 'sent_pkts')['rxe1'] > 500, 60, 0)
    # Where it does not return, no signal ends it.
    gone = g.start('rdma link delete rxe1')
    t.equal('the removal returns', g.status_of(gone.number, 30), 0)
    t.check('the device is gone', 'rxe1' not in g.check('rdma link').output)
    for i, job in enumerate(jobs):
        ended = job.wait(60)
        t.equal(f'read {i} ends well over the other rail', ended.status, 0)
        if ended.status:
            t.note(ended.output)
        t.equal(f'read {i} is byte-exact', g.run(f'cmp {nodes.DIR}/in.a {nodes.DIR}/out.{i}').status, 0)
    for node in (store, reader):
        rails = nodes.await_true(f'{node.name} has let go', lambda n=node: (r := n.rails())['rail1']['removed'] and r, 20)
        t.equal(f'{node.name}: rail1 has no pair', rails['rail1']['pairs_up'], 0)
        t.equal(f'{node.name}: rail0 is not removed', rails['rail0']['removed'], False)
        t.equal(f'{node.name}: rail0 lost no QP', rails['rail0']['counters']['qp_failures'], 0)
        t.equal(f'{node.name}: rail0 has its pair', rails['rail0']['pairs_up'], 1)
        t.equal(f'{node.name} had it said once', node.log().count('it is out of use until the daemon is restarted'), 1)
        t.check(f'{node.name} has it closed', 'its RDMA device is closed' in node.log(), node.log()[-1500:])


# New clients register their memory on what is left; a device of the same name is no substitute until the daemon starts anew.
def after_removal(t, g, store, reader):
    report = get_same(t, g, reader, 'a')
    t.check('a new client reads over rail0', report and rail_bytes(report) == {'rail0': SIZE}, report)
    t.equal('a put over rail0', put(g, reader, 'b', SIZE).status, 0)
    get_same(t, g, reader, 'b')
    g.check('rdma link add rxe1 type rxe netdev v1')
    get_same(t, g, reader, 'b')
    t.equal('rail1 stays removed', reader.rails()['rail1']['removed'], True)
    for node in (reader, store):
        t.equal(f'{node.name} ends in order', node.stop(), 0)
    store.start()
    reader.start().await_pairs()
    t.equal('a put', put(g, reader, 'a', SIZE).status, 0)
    report = get_same(t, g, reader, 'a')
    t.check('started anew, both rails carry', report and len(rail_bytes(report)) == 2, report)

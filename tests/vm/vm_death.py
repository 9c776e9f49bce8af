# SPDX-License-Identifier: BSD-3-Clause
"""Daemons that die without a word, between reads and in the middle of them."""
import nodes
from vm_pair import MIB, Pair, scenarios

SIZE = 64 * MIB


def run(t, guests, build):
    scenarios(t, Pair(t, guests, build), SIZE, (store_between_reads, store_during_a_read, reader_during_a_read, reader_during_a_put))


def restart_store(t, p):
    p.store.kill()
    t.equal('nothing of the dead store is left in its devices', p.resources(p.g1), {})
    p.store.start()
    for rail in (0, 1):
        p.await_eligible(rail)


def store_between_reads(t, p):
    restart_store(t, p)
    got = p.reader.cli('get', 'big', f'{nodes.DIR}/out.big')
    t.equal('its memory is gone with it: no such object', got.status, 4)
    p.put('big', SIZE)
    p.get_same('big')


def store_during_a_read(t, p):
    job = p.start_get('big', '--failover')
    p.await_traffic(1)
    p.store.kill()
    got = job.wait(60)
    t.equal('the read fails', got.status, 1)
    t.check('with a typed error that says where', '"status"' in got.output and ('node st' in got.output or 'rail' in got.output), got.output)
    p.check_no_file('its file does not appear', 'big')
    t.equal('nothing of the dead store is left in its devices', p.resources(p.g1), {})
    p.store.start()
    for rail in (0, 1):
        p.await_eligible(rail)
    p.put('big', SIZE)
    p.get_same('big')


def store_is_free(t, p, what):
    """The store forgets a dead reader: QPs, windows, regions of messages, requests."""
    nodes.await_true('the store let go of its QPs', lambda: not p.qps(p.g1, 0) | p.qps(p.g1, 1))
    t.equal(f'{what}: the store holds what it held without a reader', p.resources(p.g1), p.idle)
    for rail in (0, 1):
        c = p.counters(rail, p.store)
        t.equal(f'{what}: rail{rail} of the store has no QP and serves nothing', (c['qps'], c['inflight_bytes']), (0, 0))


def kill_reader(t, p, what):
    """The kernel lets go of QPs and windows that a dead process leaves behind in an order that costs Soft-RoCE a minute; the store does not wait for it."""
    p.g2.check(f'kill -KILL {p.reader.pid()}')
    store_is_free(t, p, what)
    p.reader.kill(seconds=150)
    t.equal(f'{what}: nothing of the dead reader is left in its devices', p.resources(p.g2), {})


def reader_during_a_read(t, p):
    p.reader.stop()
    nodes.await_true('the store let go of its QPs', lambda: not p.qps(p.g1, 0) | p.qps(p.g1, 1))
    p.idle = p.resources(p.g1)
    p.reader.start()
    p.reader.await_pairs()
    p.start_get('big')
    p.await_traffic(1)
    kill_reader(t, p, 'reading')
    p.g2.check(f'rm -f {nodes.DIR}/out.big*')
    p.reader.start()
    p.reader.await_pairs()
    p.get_same('big')


def reader_during_a_put(t, p):
    """The store READs from a writer that dies."""
    p.g2.check(f'cp {nodes.DIR}/in.big {nodes.DIR}/in.new')
    p.reader.start_cli('put', 'new', f'{nodes.DIR}/in.new', '--quiet')
    path = '/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts'
    sent = int(p.g2.check(f'cat {path}').output)
    nodes.await_true('the put is under way', lambda: int(p.g2.check(f'cat {path}').output) > sent + 100, pause=0.01)
    kill_reader(t, p, 'putting')
    p.reader.start()
    p.reader.await_pairs()
    t.check('a put that was cut off left no object, or a whole one', p.reader.cli('stat', 'new').status == 4 or p.get_same('new'))
    p.put('new', SIZE)
    p.get_same('new')

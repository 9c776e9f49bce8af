# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts that are short of something: locked memory, hugepages, addresses of IPv4; and a thousand connections from the one to the other."""
import os

import nodes
from vm_pair import MIB, Pair

HERE = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = 4  # exit code of railyardd: this host lacks something
SIZE = 8 * MIB + 11
CYCLES = 1000
BUILD = f'{nodes.DIR}/build'
# An ordinary user, without the capability to lock memory.
NOBODY = 'setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all'


def run(t, guests, build):
    for scenario in (cycles, ipv6_only, no_hugepages, memlock_of_a_store, memlock_of_a_client):
        with t.scenario(scenario.__name__):
            scenario(t, guests, build)


def works(t, p):
    """A put and a get over both rails; afterwards both end in order. Returns what they said."""
    with t.scenario(f'{t.scenario_name}: works', p.logs):
        p.start()
        p.put('k', SIZE)
        p.get_same('k')
        for rail in (0, 1):
            t.check(f'rail{rail} carried bytes', p.counters(rail)['rx_bytes'] > 0)
        p.sound()
        said = p.store.log() + p.reader.log()
        p.stop()
        return said


def ipv6_only(t, guests, build):
    for g in guests:
        g.check('for i in 0 1; do ip -4 addr flush dev eth$i; done')
    try:
        works(t, Pair(t, guests, build, store_keys={'is_ipv6': True}, reader_keys={'is_ipv6': True}))
        for g in guests:
            t.equal(f'{g.name} had no address of IPv4', g.check('ip -4 -o addr show scope global | wc -l').output.strip(), '0')
    finally:
        for g in guests:
            for i in range(2):
                g.check(f'ip addr add {nodes.address(i, g.number)}/24 dev eth{i}')


def no_hugepages(t, guests, build):
    for g in guests:
        g.check('echo 0 >/proc/sys/vm/nr_hugepages')
    # Small pages take an emulated CPU long to register.
    said = works(t, Pair(t, guests, build, store_keys={'memory': '64MiB'}, reader_keys={'reader_keys': {'read_arena': '24MiB', 'put_arena': '16MiB'}}))
    t.check('they say so, and what to do', said and 'hugepages' in said and 'nr_hugepages' in said, said)
    for g in guests:
        g.check('echo 256 >/proc/sys/vm/nr_hugepages')


# ---- locked memory ----

def copy_for_nobody(g, build):
    """The build may lie where only its owner may look."""
    g.check(f'mkdir -p {BUILD}/control/daemon {BUILD}/control/cli && chmod 1777 {nodes.DIR} && '
            f'cp {build}/control/daemon/railyardd {BUILD}/control/daemon/ && cp {build}/control/cli/railyard {BUILD}/control/cli/')


def memlock_of_a_store(t, guests, build):
    copy_for_nobody(guests[0], build)
    store = nodes.store(guests[0], BUILD, memory='64MiB')
    # Each of two rails locks the store's 64 MiB.
    ended = store.spawn(prefix=NOBODY, limits='ulimit -l 64').wait(60)
    t.equal('the store ends with its own exit code', ended.status, ENVIRONMENT)
    for text in ('RLIMIT_MEMLOCK', 'allows 64 KiB', 'LimitMEMLOCK=infinity'):
        t.check(f'it says "{text}"', text in ended.output, ended.output[-1500:])
    need = [int(w) for w in store.log().replace(',', ' ').split() if w.isdigit() and 2 * 65536 <= int(w) < 2 * 65536 * 1.5]
    t.check('it names what is needed: two rails times 64 MiB, in KiB', need, store.log()[-800:])


# The daemon starts; what its clients register is asked for when they attach.
def memlock_of_a_client(t, guests, build):
    copy_for_nobody(guests[1], build)
    guests[1].check(f'head -c {MIB} /dev/urandom >{nodes.DIR}/in.k && chmod 644 {nodes.DIR}/in.k')
    store = nodes.store(guests[0], build, memory='64MiB').start()
    reader = nodes.reader(guests[1], BUILD, [store], reader_keys={'read_arena': '64MiB', 'put_arena': '32MiB'})
    started = reader.spawn(prefix=NOBODY, limits='ulimit -l 65536')
    nodes.await_true('it answers, or has ended', lambda: started.is_done() or reader.cli('status').status == 0)
    if started.is_done():
        t.equal('it is refused at the start', started.wait(1).status, ENVIRONMENT)
        said = reader.log()
    else:
        got = reader.cli('put', 'k', f'{nodes.DIR}/in.k', '--json')
        t.check('the client is refused', got.status != 0, got.output)
        said = got.output
        t.equal('the reader goes on, and ends in order', reader.stop(), 0)
    t.check('RLIMIT_MEMLOCK is named', 'RLIMIT_MEMLOCK' in said, said[-1500:])
    t.check('what it allows is named', '65536 KiB' in said, said[-1500:])
    t.equal('the store ends in order', store.stop(), 0)


# ---- connections ----

def open_files(g, node):
    return int(g.check(f'ls /proc/{node.pid()}/fd | wc -l').output)


# Not the resident part: tables that exist from the start are touched bit by bit.
def data_kib(g, node):
    return int(g.check(f"awk '/^VmData/ {{ print $2 }}' /proc/{node.pid()}/status").output)


# A QP with its receives and their registration is made, brought to RTS, adopted, released and destroyed each time.
def cycles(t, guests, build):
    g1, g2 = guests
    store = nodes.store(g1, build)
    rail = store.config['rails'][0]

    def dial(n, what):
        done = g2.run(f'python3 {HERE}/dial_cycles.py {rail["address"]} {rail["port"]} {n}', 280)
        t.check(f'{what}: pairs were up one after the other', done.status == 0, done.output)
        nodes.await_true('their QPs are gone', lambda: not store.counters()['rail0']['qps'], 30)

    with t.scenario('cycles', lambda: store.log()[-3000:]):
        store.start()
        dial(20, 'a few')  # what grows once, such as a heap, has grown
        before, files = Pair.resources(g1), open_files(g1, store)
        for half in ('first', 'second'):
            memory = data_kib(g1, store)
            dial(CYCLES // 2, f'{half} half of {CYCLES}')
        t.equal('the device holds what it held before', Pair.resources(g1), before)
        t.equal('as many files are open', open_files(g1, store), files)
        # A heap finds its size in the first half. What a QP has in memory is more than 64 KiB.
        grown = data_kib(g1, store) - memory
        t.note(f'the second half took {grown} KiB')
        t.check('memory did not grow with them', grown < 2 * CYCLES, f'{grown} KiB more')
        t.equal('no pair is left', [p for r in store.rails().values() for p in r['pairs']], [])
        t.equal('the store ends in order', store.stop(), 0)
        t.equal('nothing of it is left in the devices', Pair.resources(g1), {})

# SPDX-License-Identifier: BSD-3-Clause
"""Hosts that are not as they should be: each is told what is missing, where, and what to do; and those that work all the same."""
import nodes
from vm_data import FILE, MIB, get_same, put, resources

ENVIRONMENT = 4  # exit code of railyardd: this host lacks something
CONFIG = 3
SIZE = 8 * MIB + 11
BUILD = f'{nodes.DIR}/build'
# An ordinary user, without the capability to lock memory.
NOBODY = 'setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all'


def run(t, g, build):
    g.check(f'mkdir -p {nodes.DIR} {BUILD}/control/daemon {BUILD}/control/cli && chmod 1777 {nodes.DIR} && head -c {SIZE} /dev/urandom >{FILE}')
    # The build may lie where only its owner may look.
    g.check(f'cp {build}/control/daemon/railyardd {BUILD}/control/daemon/ && cp {build}/control/cli/railyard {BUILD}/control/cli/')
    for scenario in (memlock, memlock_of_a_client, ordinary_user, uverbs_denied, no_such_device, wrong_gid_index, ipv6_only, no_hugepages):
        with t.scenario(scenario.__name__):
            scenario(t, g)
        with t.scenario(f'{scenario.__name__}: afterwards'):
            t.equal('nothing is left in the devices', resources(g), {'cm_id': 0, 'cq': 0, 'mr': 0, 'pd': 0, 'qp': 0})


def refused(t, node, status, *texts, **how):
    """It must end at once, with that exit code, and say all of the texts."""
    ended = node.spawn(**how).wait(60)
    t.equal(f'{node.name} ends with its own exit code', ended.status, status)
    for text in texts:
        t.check(f'it says "{text}"', text in ended.output, ended.output[-1500:])
    t.note(next((line for line in ended.output.splitlines() if ' error ' in line), ended.output)[:500])


def works(t, g, store, reader, **how):
    """A put and a get over both rails; afterwards both end in order."""
    def logs():
        return f'{store.log()[-2000:]}\n{reader.log()[-2000:]}'
    with t.scenario(f'{t.scenario_name}: works', logs):
        store.start(**how)
        reader.start(**how)
        reader.await_pairs()
        done = put(g, reader, 'k', SIZE)
        t.check('put', done.status == 0, done.output)
        get_same(t, g, reader, 'k')
        for name, rail in reader.rails().items():
            t.check(f'{name} carried bytes through windows', rail['counters']['rx_bytes'] and rail['counters']['windows_bound'] and not rail['quarantine'], rail)
    for node in (reader, store):
        if node.is_running():
            t.equal(f'{node.name} ends in order', node.stop(), 0)
    return logs()


def memlock(t, g):
    store = nodes.store(g, BUILD, memory='64MiB')
    # Each of two rails locks the store's 64 MiB.
    refused(t, store, ENVIRONMENT, 'RLIMIT_MEMLOCK', 'allows 64 KiB', 'LimitMEMLOCK=infinity', prefix=NOBODY, limits='ulimit -l 64')
    need = [int(w) for w in store.log().replace(',', ' ').split() if w.isdigit() and 2 * 65536 <= int(w) < 2 * 65536 * 1.5]
    t.check('it names what is needed: two rails times 64 MiB, in KiB', need, store.log()[-800:])


# The daemon starts; what its clients register is asked for when they attach.
def memlock_of_a_client(t, g):
    store = nodes.store(g, BUILD, memory='64MiB')
    reader = nodes.reader(g, BUILD, [store], reader_keys={'read_arena': '64MiB', 'put_arena': '32MiB'})
    store.start()
    started = reader.spawn(prefix=NOBODY, limits='ulimit -l 65536')
    nodes.await_true('it answers, or has ended', lambda: started.is_done() or reader.cli('status').status == 0)
    if started.is_done():
        t.equal('it is refused at the start', started.wait(1).status, ENVIRONMENT)
        said = reader.log()
    else:
        got = reader.cli('put', 'k', FILE, '--json')
        t.check('the client is refused', got.status != 0, got.output)
        said = got.output
        t.equal('the reader goes on, and ends in order', reader.stop(), 0)
    t.check('RLIMIT_MEMLOCK is named', 'RLIMIT_MEMLOCK' in said, said[-1500:])
    t.check('what it allows is named', '65536 KiB' in said, said[-1500:])
    t.note(said[-600:])
    t.equal('the store ends in order', store.stop(), 0)


def ordinary_user(t, g):
    store = nodes.store(g, BUILD, memory='64MiB')
    works(t, g, store, nodes.reader(g, BUILD, [store]), prefix=NOBODY, limits='ulimit -l unlimited')


def uverbs_denied(t, g):
    node = g.check('readlink -f /sys/class/infiniband/rxe1/device >/dev/null 2>&1; ls -d /sys/class/infiniband_verbs/uverbs*; '
                   'grep -l rxe1 /sys/class/infiniband_verbs/uverbs*/ibdev').output.split()[-1].split('/')[-2]
    g.check(f'chmod 600 /dev/infiniband/{node}')
    store = nodes.store(g, BUILD, memory='16MiB')
    refused(t, store, ENVIRONMENT, 'rail rail1', 'rxe1', 'Permission denied', '/dev/infiniband', prefix=NOBODY, limits='ulimit -l unlimited')
    g.check(f'chmod 666 /dev/infiniband/{node}')


def no_such_device(t, g):
    store = nodes.store(g, BUILD, memory='16MiB')
    store.config['rails'][1]['device'] = 'rxe9'
    refused(t, store, ENVIRONMENT, 'rail rail1', 'rxe9', 'no device of that name', 'rdma link')


# The table is what its author needs to choose another.
def wrong_gid_index(t, g):
    store = nodes.store(g, BUILD, memory='16MiB')
    store.config['rails'][1]['gid_index'] = 99
    refused(t, store, ENVIRONMENT, 'rail rail1', 'rxe1', 'gid_index 99', '[1] ::ffff:10.77.1.1', 'fd77:1::1')


def ipv6_only(t, g):
    for i in range(2):
        g.check(f'ip -4 addr flush dev v{i}')
    try:
        store = nodes.store(g, BUILD, memory='64MiB', is_ipv6=True)
        works(t, g, store, nodes.reader(g, BUILD, [store], is_ipv6=True))
    finally:
        for i in range(2):
            g.check(f'ip addr add {nodes.address(i, 1)}/24 dev v{i}')


def no_hugepages(t, g):
    g.check('echo 0 >/proc/sys/vm/nr_hugepages')
    store = nodes.store(g, BUILD, memory='64MiB')
    # Small pages take an emulated CPU long to register.
    said = works(t, g, store, nodes.reader(g, BUILD, [store], reader_keys={'read_arena': '24MiB', 'put_arena': '16MiB'}))
    t.check('it says so, and what to do', 'hugepages' in said and 'nr_hugepages' in said, said)
    g.check('echo 256 >/proc/sys/vm/nr_hugepages')

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
    for scenario in (ordinary_user, uverbs_denied, no_such_device, wrong_gid_index):
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

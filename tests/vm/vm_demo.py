# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration over RDMA, in one command; and rails of Soft-RoCE made and removed where the kernel has it."""
import json
import os

import nodes
from vm_data import MTU, device_counters, moved, resources

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOFTROCE = f'{TREE}/deploy/softroce/softroce.sh'
OBJECT = 64 << 20
NOTHING = {'cm_id': 0, 'cq': 0, 'mr': 0, 'pd': 0, 'qp': 0}


def run(t, g, build):
    g.check(f'mkdir -p {nodes.DIR}')
    for scenario in (demo, a_device_is_missing, softroce):
        with t.scenario(scenario.__name__):
            scenario(t, g, build)


def railyard(g, build, *words, seconds=200):
    """Runs `railyard demo`; what it leaves behind would be in its TMPDIR."""
    tmp = f'{nodes.DIR}/demo'
    return g.run(f'rm -rf {tmp}; mkdir {tmp}; TMPDIR={tmp} timeout {seconds} {build}/control/cli/railyard demo {" ".join(words)}; s=$?; ls -A {tmp} >&2; exit $s',
                 seconds + 10)


def demo_is_good(t, g, build, devices):
    before = device_counters(g)
    done = railyard(g, build, '--transport', 'verbs', '--repeat', '1', '--json')
    if not t.check('railyard demo --transport verbs', done.status == 0, done.output):
        return
    report = json.loads(done.output)  # it ends with the report, so nothing was left behind
    packets = moved(before, device_counters(g), 'sent_pkts')
    t.equal('it is over verbs', report['transport'], 'verbs')
    t.equal('everything was verified', report['verified'], True)
    t.equal('the rails carried the whole object', sum(r['bytes'] for r in report['multi']['rails']), OBJECT)
    t.equal('over two rails', len(report['multi']['rails']), 2)
    for key in ('object_bytes', 'stripe_bytes', 'rails', 'rail_rate_bytes_per_s', 'single', 'multi', 'speedup', 'bottleneck', 'repeat', 'put'):
        t.check(f'the report has {key}, as over tcp', key in report, report)
    # Put, one rail, two rails: each device carried at least a part of the put and of the last.
    t.check('these devices carried it', all(packets[d] > 100 for d in devices), packets)
    t.check('all of it', sum(packets.values()) >= 3 * OBJECT // MTU, packets)
    t.check('no other device did', sum(n for d, n in packets.items() if d not in devices) < 100, packets)
    t.equal('nothing is left in the devices', resources(g), NOTHING)
    t.equal('no daemon is left', g.run('pgrep railyardd').output, '')


def demo(t, g, build):
    demo_is_good(t, g, build, ('rxe0', 'rxe1'))
    done = railyard(g, build, '--transport', 'verbs', '--rails', '1', '--repeat', '1')
    t.check('as text, over one rail', done.status == 0 and 'verified: every stripe' in done.output and 'over verbs rails' in done.output, done.output)
    done = railyard(g, build, '--transport', 'verbs', '--rail-rate', '10MB/s')
    t.equal('a cap is refused: the command line is wrong', done.status, 2)


def a_device_is_missing(t, g, build):
    g.check('rdma link delete rxe1; ip link set v0 down')
    done = railyard(g, build, '--transport', 'verbs')
    t.equal('it fails', done.status, 1)
    for text in ('2 rails need', 'rxe0 port 1 is not active', 'softroce.sh up'):
        t.check(f'it says "{text}"', text in done.output, done.output)
    g.check('rdma link delete rxe0')
    done = railyard(g, build, '--transport', 'verbs')
    t.check('it says that there is none', 'no RDMA device at all' in done.output, done.output)


def softroce(t, g, build):
    t.equal('status without rails', g.run(f'{SOFTROCE} status').status, 1)
    up = g.run(f'{SOFTROCE} up', 60)
    t.equal('up', up.status, 0)
    t.check('it says which rails there are', 'ryrxe0: active, 10.78.0.1' in up.output and 'ryrxe1: active, 10.78.1.1' in up.output, up.output)
    t.equal('status', g.run(f'{SOFTROCE} status').status, 0)
    links = g.check('rdma link; ip -o link').output
    t.equal('up again', g.run(f'{SOFTROCE} up', 60).status, 0)
    t.equal('changes nothing', g.check('rdma link; ip -o link').output, links)
    g.check('rdma link delete ryrxe1; ip addr flush dev ryroce0')
    broken = g.run(f'{SOFTROCE} status')
    t.check('status sees what is not whole', broken.status == 1 and broken.output.count('not whole') == 2, broken.output)
    t.equal('up mends it', g.run(f'{SOFTROCE} up', 60).status, 0)
    demo_is_good(t, g, build, ('ryrxe0', 'ryrxe1'))
    g.check('ip addr add 10.78.2.1/24 dev lo')
    taken = g.run(f'{SOFTROCE} up 3', 60)
    t.check('an address in use is refused', taken.status == 1 and '10.78.2.1 is an address of lo' in taken.output, taken.output)
    as_user = g.run(f'setpriv --reuid=65534 --regid=65534 --clear-groups bash -s up <{SOFTROCE}', 60)
    t.check('an ordinary user is told to be root', as_user.status == 1 and 'only root' in as_user.output, as_user.output)
    t.equal('wrong words', g.run(f'{SOFTROCE} up 99').status, 2)
    for again in ('', ' again'):
        t.equal(f'down{again}', g.run(f'{SOFTROCE} down', 60).status, 0)
    t.check('nothing is left', 'ry' not in g.check('rdma link; ip -o link').output, g.run('rdma link; ip -o link').output)
    t.equal('status after down', g.run(f'{SOFTROCE} status').status, 1)

# SPDX-License-Identifier: BSD-3-Clause
"""Links that lose, delay, or carry only small packets; ends that differ in MTU; devices that say what happens to them."""
import nodes
from vm_pair import MIB, Pair, scenarios

SIZE = 16 * MIB
SMALL_PATH = 2000  # bytes of an IP packet that the small path still carries


def run(t, guests, build):
    scenarios(t, Pair(t, guests, build), SIZE, (loss, delay, small_path, port_events, gid_events))


def loss(t, p):
    before, failures = p.hw(p.g1, 1), p.counters(1)['qp_failures']
    with p.netem(1, 'loss 2%', ends=(1,)) as dropped:
        for i in range(4):
            p.put(f'loss{i}', SIZE)
            p.get_same(f'loss{i}')
            p.get_same('big')
    after = p.hw(p.g1, 1)
    t.check('packets were lost', dropped[0] > 0, dropped)
    t.check('the device sent again', after['completer_retry_err'] > before['completer_retry_err'], after)
    t.equal('no QP was lost', p.counters(1)['qp_failures'], failures)
    t.check('rail1 is in plans', p.health(1)['eligible'])


def delay(t, p):
    before, trips = p.counters(1), p.health(1)['trips']
    with p.netem(1, 'delay 50ms') as dropped:
        t.check('a handshake over rail1 takes two of them', handshake_us(p) >= 100000, handshake_us(p))
        start = p.hw(p.g2, 1)['rcvd_pkts']
        for _ in range(4):
            p.get_same('big')
        p.put('delayed', SIZE)
        p.get_same('delayed')
        t.check('rail1 carried a part', p.hw(p.g2, 1)['rcvd_pkts'] > start)
    t.equal('nothing was lost', dropped, [0, 0])
    t.equal('no false trip', (p.health(1)['trips'], p.counters(1)['qp_failures']), (trips, before['qp_failures']))


def handshake_us(p):
    return int(p.g2.check(f's=${{EPOCHREALTIME/./}}; exec 3<>/dev/tcp/{nodes.address(1, 1)}/7472; echo $((${{EPOCHREALTIME/./}} - s))').output)


def small_path(t, p):
    """Handshakes, SENDs and sockets pass, data does not: a small probe would bring the rail back again and again."""
    answered = p.counters(1)['probes_answered']
    with p.black_hole(1, which=f'meta length > {SMALL_PATH}') as dropped:
        for i in range(3):
            p.get_same('big', '--failover')
            nodes.await_true('rail1 is out of plans', lambda: not p.health(1)['eligible'])
        sent = p.counters(1)['probes_sent']
        nodes.await_true('rail1 is probed', lambda: p.counters(1)['probes_sent'] >= sent + 2)
        t.equal('no probe of full size came back', p.counters(1)['probes_answered'], answered)
        t.check('rail1 stays out', not p.health(1)['eligible'])
    t.check('large packets were dropped', sum(dropped) > 0, dropped)
    p.await_eligible(1)
    p.get_same('big')


def back_on_new_qps(t, p, old, up):
    p.await_eligible(1)
    for g in (p.g1, p.g2):
        nodes.await_true('one QP on rail1', lambda g=g: len(p.qps(g, 1)) == 1)
    t.check('rail1 is back on a new QP', not p.qps(p.g2, 1) & old[1], old)
    t.equal('rail0 kept its QP', p.qps(p.g2, 0), old[0])
    t.equal('and its connection', p.rail_connects(0), up)
    carried = p.counters(1)['rx_bytes']
    p.get_same('big')
    t.check('rail1 carries data again', p.counters(1)['rx_bytes'] > carried)


def port_events(t, p):
    old, up, log = {rail: p.qps(p.g2, rail) for rail in (0, 1)}, p.rail_connects(0), len(p.reader.log())
    p.g2.check('ip link set eth1 down')
    nodes.await_true('rail1 is out of plans', lambda: not p.health(1)['eligible'])
    p.get_same('big')
    # The kernel takes addresses of IPv6 along; the rail's own is back with the link.
    p.g2.check('ip link set eth1 up')
    back_on_new_qps(t, p, old, up)
    for event in ('port error', 'port active'):
        t.check(f'the device said: {event}', f'rail rail1: rxe1: {event}' in p.reader.log()[log:], lambda: p.reader.log()[log:])


def gid_events(t, p):
    old, up, log = {rail: p.qps(p.g2, rail) for rail in (0, 1)}, p.rail_connects(0), len(p.reader.log())
    # An address that is nobody's concern.
    p.g2.check('ip addr add 10.88.0.1/24 dev eth1 && ip addr del 10.88.0.1/24 dev eth1')
    p.get_same('big')
    t.equal('another address comes and goes: nothing happens', p.qps(p.g2, 1), old[1])
    p.g2.check(f'ip addr del {nodes.address(1, 2)}/24 dev eth1')
    nodes.await_true('rail1 is out of plans', lambda: not p.health(1)['eligible'])
    p.get_same('big')
    p.g2.check(f'ip addr add {nodes.address(1, 2)}/24 dev eth1')
    back_on_new_qps(t, p, old, up)
    t.check('the device said: GID table change', 'rail rail1: rxe1: GID table change' in p.reader.log()[log:], lambda: p.reader.log()[log:])


def run_mtu(t, guests, build):
    """One end takes packets of 4096, the other of 1024; later the other end's do become smaller, too."""
    p = Pair(t, guests, build)
    with t.scenario('mtu', p.logs):
        p.start()
        active = [p.g1.check('ibv_devinfo -d rxe1 | grep active_mtu').output, p.g2.check('ibv_devinfo -d rxe1 | grep active_mtu').output]
        t.check('the ends differ', active[0] != active[1], active)
        p.put('big', SIZE)
        in_packets_of(t, p, 1024)
        p.sound()
    with t.scenario('mtu_changes', p.logs):
        # rxe makes no event of it; the QPs of the next connection go by what the port says then.
        p.g1.check('ip link set eth1 mtu 800')
        nodes.await_true('its port takes 512', lambda: '512' in p.g1.check('ibv_devinfo -d rxe1 | grep active_mtu').output)
        old = p.rail_connects(1)
        p.g1.check('ip link set eth1 down; ip link set eth1 up')
        nodes.await_true('rail1 connects anew', lambda: p.rail_connects(1) > old)
        p.await_eligible(1)
        in_packets_of(t, p, 512)
        p.sound()
        p.stop()


def in_packets_of(t, p, size):
    before = p.hw(p.g2, 1)['rcvd_pkts'], p.counters(1)['rx_bytes']
    p.get_same('big')
    packets, carried = p.hw(p.g2, 1)['rcvd_pkts'] - before[0], p.counters(1)['rx_bytes'] - before[1]
    t.check('rail1 carried a part', carried > 0)
    t.check(f'in packets of {size} bytes', packets >= carried // size, f'{packets} packets, {carried} bytes')

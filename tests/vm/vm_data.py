# SPDX-License-Identifier: BSD-3-Clause
"""Bytes over two rails: exact at every size, spread as planned, carried by the RDMA devices and by nothing else."""
import json

import nodes

KIB, MIB = 1 << 10, 1 << 20
STRIPE = 4 * MIB
MTU = 4096  # active_mtu of the guests' devices
SIZES = [1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, STRIPE - 1, STRIPE, STRIPE + 1, 2 * STRIPE + 7, 64 * MIB]
FILE = f'{nodes.DIR}/data'


def run(t, g, build):
    g.check(f'mkdir -p {nodes.DIR} && head -c {64 * MIB + 4096} /dev/urandom >{FILE}')
    store = nodes.store(g, build).start()
    reader = nodes.reader(g, build, [store], reader_keys={'policy': 'round_robin'}).start()
    reader.await_pairs()

    def logs():
        return f'{store.log()[-3000:]}\n{reader.log()[-3000:]}'

    for scenario in (sizes, healthy, shares, no_staging, one_rail_drained, ranges):
        with t.scenario(scenario.__name__, logs):
            scenario(t, g, store, reader)
    with t.scenario('reader_without_rail1', logs):
        reader_without_rail1(t, g, build, store)
    with t.scenario('adaptive', logs):
        adaptive(t, g, build, store)
    with t.scenario('end', logs):
        t.equal('the reader ends in order', reader.stop(), 0)
        t.equal('the store ends in order', store.stop(), 0)
        t.equal('nothing of theirs is left in the devices', resources(g), {'cm_id': 0, 'cq': 0, 'mr': 0, 'pd': 0, 'qp': 0})


# ---- what the scenarios ask ----

def put(g, node, key, size, source=FILE, seconds=120):
    """Puts the first `size` bytes of a file."""
    text = node.cli_text('put', key, f'{nodes.DIR}/in.{key}', '--quiet')
    return g.run(f'head -c {size} {source} >{nodes.DIR}/in.{key} && timeout {seconds} {text}', seconds + 10)


def get_same(t, g, node, key, *options, offset=0, size=None, seconds=120):
    """Reads it back and compares with what was put; returns the CLI's report, or None."""
    out = f'{nodes.DIR}/out.{key}'
    got = node.cli('get', key, out, '--json', *options, seconds=seconds)
    what = f'{key} {" ".join(str(o) for o in options)}'.strip()
    if not t.check(f'get {what}', got.status == 0, got.output):
        return None
    limit = f' -i {offset}:0 -n {size}' if size is not None else ''
    length = f'[ $(stat -c %s {out}) = {size} ]' if size is not None else 'true'
    same = g.run(f'cmp{limit} {nodes.DIR}/in.{key} {out} && {length}; s=$?; rm -f {out}; exit $s')
    t.check(f'{what} is byte-exact', same.status == 0, same.output)
    report = got.json()
    t.check(f'{what} was verified', report['verified'])
    return report


def rail_bytes(report):
    """rail -> bytes, those without bytes left out."""
    return {r['name']: r['bytes'] for r in report['rails'] if r['bytes']}


def resources(g):
    """Objects in the RDMA devices, summed; the kernel's own (GSI queue pairs) do not count."""
    total = {'cm_id': 0, 'cq': 0, 'mr': 0, 'pd': 0, 'qp': 0}
    text = g.check('for what in cm_id cq mr pd qp; do rdma resource show $what | sed "s/^/$what /"; done').output
    for line in text.splitlines():
        if ' comm [' not in line:
            total[line.split()[0]] += 1
    return total


def device_counters(g):
    """device -> {counter: value} of the devices' own counters."""
    text = g.check('cd /sys/class/infiniband; for f in */ports/1/hw_counters/*; do echo "$f $(cat $f)"; done').output
    got = {}
    for line in text.splitlines():
        path, value = line.split()
        if value.isdigit():
            device, *_, counter = path.split('/')
            got.setdefault(device, {})[counter] = int(value)
    return got


def network_bytes(g):
    """netdev -> bytes received."""
    lines = g.check('cat /proc/net/dev').output.splitlines()[2:]
    return {line.split(':')[0].strip(): int(line.split(':')[1].split()[0]) for line in lines}


def moved(before, after, counter):
    return {name: after[name][counter] - before[name][counter] for name in before}


# ---- scenarios ----

def sizes(t, g, _store, reader):
    for size in SIZES:
        done = put(g, reader, f'k{size}', size)
        t.check(f'put {size} bytes', done.status == 0, done.output)
        report = get_same(t, g, reader, f'k{size}')
        if report:
            t.equal(f'k{size}: bytes of the rails add up', sum(rail_bytes(report).values()), size)
            t.check(f'k{size}: rails are used as its size wants', len(rail_bytes(report)) == (2 if size > STRIPE else 1), report)


# The reader binds a window for each READ, and the same rail one for each PULL of its puts; the store exposes nothing.
def healthy(t, _g, store, reader):
    for node in (store, reader):
        for name, rail in node.rails().items():
            what, c = f'{node.name} {name}', rail['counters']
            t.equal(f'{what}: transport', rail['transport'], 'verbs')
            t.equal(f'{what}: no quarantine', rail['quarantine'], False)
            t.check(f'{what}: {"windows were" if node is reader else "no window was"} bound', (c['windows_bound'] > 0) == (node is reader), c)
            t.equal(f'{what}: every bound window was invalidated once', c['windows_invalidated'], c['windows_bound'])
            for counter in ('fences', 'qp_failures', 'protocol_errors', 'checksum_errors', 'late_dropped_bytes', 'late_messages', 'segments_failed'):
                t.equal(f'{what}: {counter}', c[counter], 0)


# Round robin deals stripes in turn, so the plan is exact. A WRITE of n bytes is n / MTU packets; beside them there are READ, DONE and acknowledgements,
# far fewer, and what an emulated CPU made late and was sent twice.
def shares(t, g, _store, reader):
    plan = {r['name']: r['bytes'] for r in reader.show('plan', f'k{STRIPE + 1}')['rails']}
    t.equal('the plan of a stripe and a byte', plan, {'rail0': STRIPE, 'rail1': 1})
    plan = {r['name']: r['bytes'] for r in reader.show('plan', f'k{64 * MIB}')['rails']}
    t.equal('the plan of 64 MiB: halves', plan, {'rail0': 32 * MIB, 'rail1': 32 * MIB})
    rails_before, before, net = reader.counters(), device_counters(g), network_bytes(g)
    report = get_same(t, g, reader, f'k{64 * MIB}')
    t.check('the rails carried what was planned', report and rail_bytes(report) == plan, report)
    after, rails_after, net_after = device_counters(g), reader.counters(), network_bytes(g)
    t.equal('their counters say so', moved(rails_before, rails_after, 'rx_bytes'), plan)
    reads = moved(rails_before, rails_after, 'segments_posted')
    t.equal('a window was bound for each READ', moved(rails_before, rails_after, 'windows_bound'), reads)
    t.equal('and invalidated after it', moved(rails_before, rails_after, 'windows_invalidated'), reads)
    t.equal('no fence', moved(rails_before, rails_after, 'fences'), {name: 0 for name in reads})
    least, again = 32 * MIB // MTU, moved(before, after, 'duplicate_request')
    for counter in ('sent_pkts', 'rcvd_pkts'):
        for name, n in moved(before, after, counter).items():
            t.check(f'{name}: {counter} grew by the packets of its half', least <= n <= least * 1.1 + 2 * again[name],
                    f'{n} packets, {again[name]} of them twice; {least} carry the bytes')
    for counter in ('retry_exceeded_err', 'rcvd_rnr_err', 'send_err'):
        t.equal(f'no {counter}', moved(before, after, counter), {'rxe0': 0, 'rxe1': 0})
    # Only metadata and keepalives go over sockets; they are local and pass lo.
    on_sockets = sum(net_after[name] - net[name] for name in net)
    t.check('nothing of it went over TCP', on_sockets < 256 * KIB, f'{on_sockets} bytes on the network devices')
    sockets = g.check('ss -Htn state established').output
    t.equal('a bootstrap socket for each pair, and no data sockets', len(sockets.splitlines()), 4)


# A device writes to registered memory alone. Without clients the reader has probes (32 of 64 KiB) and messages registered, and nothing that a segment would
# fit in: what came for its clients came into their own arenas.
def no_staging(t, g, _store, reader):
    nodes.await_true('the clients have gone', lambda: reader.show('status')['clients']['attached'] == 0, 30)
    rows = [r for r in json.loads(g.check('rdma -d -j resource show mr').output) if r.get('pid') == reader.pid()]
    for device in ('rxe0', 'rxe1'):
        sizes = sorted(r['mrlen'] for r in rows if r['ifname'] == device)
        t.equal(f'{device}: of what is registered only the probes are large', [n for n in sizes if n > 256 * KIB], [2 * MIB])


def one_rail_drained(t, g, _store, reader):
    size = 2 * STRIPE + 7
    reader.cli('rails', 'drain', 'rail1').check()
    before = device_counters(g)
    report = get_same(t, g, reader, f'k{size}')
    packets = moved(before, device_counters(g), 'sent_pkts')
    t.check('all bytes came over rail0', report and rail_bytes(report) == {'rail0': size}, report)
    t.check('rxe0 carried all of them', packets['rxe0'] >= size // MTU, packets)
    t.check('rxe1 carried none', packets['rxe1'] < 100, packets)
    reader.cli('rails', 'resume', 'rail1').check()
    report = get_same(t, g, reader, f'k{size}')
    t.check('resumed, rail1 carries its stripe again', report and rail_bytes(report).get('rail1') == STRIPE, report)


def ranges(t, g, _store, reader):
    key = f'k{64 * MIB}'
    for offset, length in ((0, 1), (STRIPE - 1, 2), (3 * MIB + 5, 17 * MIB + 3), (64 * MIB - 1, 1)):
        get_same(t, g, reader, key, '--offset', f'{offset}B', '--length', f'{length}B', offset=offset, size=length)


def reader_without_rail1(t, g, build, store):
    size = 2 * STRIPE + 7
    reader = nodes.reader(g, build, [store], name='rd1', n_rails=1).start()
    reader.await_pairs()
    before = device_counters(g)
    report = get_same(t, g, reader, f'k{size}')
    packets = moved(before, device_counters(g), 'sent_pkts')
    t.check('all bytes came over rail0', report and rail_bytes(report) == {'rail0': size}, report)
    t.check('rxe1 carried none', packets['rxe1'] < 100, packets)
    t.equal('it ends in order', reader.stop(), 0)


# How much each takes depends on which lcore the emulated CPUs favour; that both do does not.
def adaptive(t, g, build, store):
    reader = nodes.reader(g, build, [store], name='rda').start()
    reader.await_pairs()
    report = get_same(t, g, reader, f'k{64 * MIB}')
    got = rail_bytes(report) if report else {}
    t.check('both rails carry a part', len(got) == 2 and min(got.values()) >= MIB, got)
    t.equal('it ends in order', reader.stop(), 0)

# SPDX-License-Identifier: BSD-3-Clause
"""A store in guest 1 and a reader in guest 2 over two rails whose links can be cut: what scenarios do to them and ask of them.

    p = Pair(t, guests, build).start()
    p.put('key', 4 * MIB); p.get_same('key', '--failover')
    with p.black_hole(1): ...
    p.sound()

`rail_keys`: node name -> keys of its rails.
"""
import contextlib
import json

import nodes

KIB, MIB = 1 << 10, 1 << 20
DATA = f'{nodes.DIR}/data'
DATA_BYTES = 64 * MIB
RAILS = (0, 1)
TRAFFIC = 200  # packets that show that a read is under way

# Soft-RoCE takes a packet that its own host drops on the way out for one that the queue had no room for, and sends it again at once, for ever; so
# packets are dropped where they arrive.
HOLE = '''
table inet hole{rail} {{
	chain in {{
		type filter hook input priority 0
		iifname "eth{rail}" udp dport 4791 {which} counter drop
	}}
}}
'''


class Pair:
    def __init__(self, t, guests, build, store_keys=None, reader_keys=None, rail_keys=None, more_stores=()):
        self.t, self.build = t, build
        self.g1, self.g2 = guests
        self.store = nodes.store(self.g1, build, **(store_keys or {}))
        self.more_stores = list(more_stores)
        self.reader = nodes.reader(self.g2, build, [self.store, *more_stores], **(reader_keys or {}))
        for node in (self.store, self.reader):
            for rail in node.config['rails']:
                rail.update((rail_keys or {}).get(node.name, {}))
        self.before = {}
        for g in guests:
            g.check(f'mkdir -p {nodes.DIR}')
        self.g2.check(f'[ -e {DATA} ] || head -c {DATA_BYTES} /dev/urandom >{DATA}')

    def start(self, prefix=''):
        """`prefix`: words before the store's command."""
        self.before = {(g.number, rail): self.hw(g, rail) for g in (self.g1, self.g2) for rail in RAILS}
        for store in self.more_stores:
            store.start()
        self.store.start(prefix)
        self.reader.start()
        self.reader.await_pairs(1 + len(self.more_stores))
        return self

    def logs(self):
        return f'{self.store.log()[-4000:]}\n{self.reader.log()[-4000:]}\n{self.reader.cli("health").output}'

    def stop(self):
        self.t.equal('the reader ends in order', self.reader.stop(), 0)
        for store in (self.store, *self.more_stores):
            self.t.equal(f'{store.name} ends in order', store.stop(), 0)
        for g in (self.g1, self.g2):
            self.t.equal(f'{g.name}: nothing of the daemon is left in the devices', self.resources(g), {})

    # ---- data ----

    def put(self, key, size, node=None):
        """Puts the first `size` bytes of the data, of which there are twice DATA_BYTES."""
        node = node or self.reader
        self.g2.check(f'cat {DATA} {DATA} | head -c {size} >{nodes.DIR}/in.{key}')
        return self.t.check(f'put {key}', *self._ended(node.cli('put', key, f'{nodes.DIR}/in.{key}', '--quiet', seconds=120)))

    @staticmethod
    def _ended(got):
        return got.status == 0, got.output

    def get_same(self, key, *options, seconds=120):
        """Reads it and compares; returns the report, or None."""
        return self.check_same(key, self.start_get(key, *options, seconds=seconds), *options, seconds=seconds)

    def start_get(self, key, *options, seconds=120, to=None):
        return self.reader.start_cli('get', key, to or f'{nodes.DIR}/out.{key}', '--json', '--quiet', *options, seconds=seconds)

    def check_same(self, key, job, *options, seconds=120):
        """As get_same, of a read that start_get began."""
        got = job.wait(seconds + 30)
        what = f'{key} {" ".join(options)}'.strip()
        if not self.t.check(f'get {what}', got.status == 0, got.output):
            return None
        same = self.g2.run(f'cd {nodes.DIR} && cmp in.{key} out.{key}; s=$?; rm -f out.{key}; exit $s')
        self.t.check(f'get {what}: every byte is right', same.status == 0, same.output)
        report = json.loads(got.output)
        self.t.check(f'get {what}: verified', report['verified'])
        return report

    def check_no_file(self, what, key):
        self.t.check(what, self.g2.run(f'[ ! -e {nodes.DIR}/out.{key} ] && [ -z "$(ls {nodes.DIR} | grep "out.{key}")" ]').status == 0,
                     lambda: self.g2.run(f'ls -l {nodes.DIR}').output)

    def await_traffic(self, rail, packets=TRAFFIC):
        """Until the reader's device of that rail received so many packets more."""
        path = f'/sys/class/infiniband/rxe{rail}/ports/1/hw_counters/rcvd_pkts'
        self.g2.check(f'read -r from <{path}; end=$((SECONDS + 60)); while read -r now <{path}; [ $((now - from)) -lt {packets} ]; do '
                      '[ $SECONDS -lt $end ] || exit 1; sleep 0.02; done', 90)

    # ---- devices ----

    @staticmethod
    def hw(g, rail):
        """Counters of a guest's device."""
        text = g.check(f'cd /sys/class/infiniband/rxe{rail}/ports/1/hw_counters && grep . *').output
        return {name: int(value) for name, value in (line.split(':') for line in text.splitlines()) if value.isdigit()}

    @staticmethod
    def qps(g, rail):
        """Numbers of the daemons' QPs on a guest's device."""
        rows = json.loads(g.check(f'rdma -j resource show qp link rxe{rail}').output or '[]')
        return {row['lqpn'] for row in rows if row['type'] == 'RC'}

    @staticmethod
    def resources(g):
        """What user programs hold in the devices; the kernel's own (GSI queue pairs) do not count."""
        total = {}
        text = g.check('for what in cm_id cq mr pd qp; do rdma resource show $what | sed "s/^/$what /"; done').output
        for line in text.splitlines():
            if ' comm [' not in line:
                total[line.split()[0]] = total.get(line.split()[0], 0) + 1
        return total

    # ---- faults ----

    @contextlib.contextmanager
    def black_hole(self, rail, which='', ends=(1, 2)):
        """Packets of RoCEv2 are dropped where they arrive, sockets go on. `which`: a further match of nft, such as a length."""
        guests = [g for g in (self.g1, self.g2) if g.number in ends]
        rules = HOLE.format(rail=rail, which=which)
        # At both ends at once: the read under way does not wait.
        for job in [g.start(f"nft -f - <<'X'\n{rules}\nX") for g in guests]:
            if job.wait().status != 0:
                raise nodes.NodeError(f'nft: {job.output()}')
        dropped = []
        try:
            yield dropped
        finally:
            for g in guests:
                text = g.check(f'nft -j list table inet hole{rail} && nft delete table inet hole{rail}').output
                dropped.append(sum(e['counter']['packets'] for item in json.loads(text)['nftables'] for e in item.get('rule', {}).get('expr', [])
                                   if 'counter' in e))

    @contextlib.contextmanager
    def netem(self, rail, how, ends=(1, 2)):
        """What leaves is delayed, lost and so on; sockets too. Fills the list with the packets that each end dropped."""
        guests = [g for g in (self.g1, self.g2) if g.number in ends]
        for g in guests:
            g.check(f'tc qdisc replace dev eth{rail} root netem limit 100000 {how}')
        dropped = []
        try:
            yield dropped
        finally:
            for g in guests:
                row = json.loads(g.check(f'tc -s -j qdisc show dev eth{rail} && tc qdisc del dev eth{rail} root').output)[0]
                dropped.append(row['drops'])

    # ---- health ----

    def health(self, rail, node=None):
        rows = [r for r in (node or self.reader).show('health')['pairs'] if r['rail'] == f'rail{rail}' and r['peer'] == self.store.name]
        return rows[0] if rows else None

    def await_eligible(self, rail, seconds=60):
        return nodes.await_true(f'rail{rail} is eligible again', lambda: (self.health(rail) or {}).get('eligible'), seconds)

    def counters(self, rail, node=None):
        return (node or self.reader).counters()[f'rail{rail}']

    def rail_connects(self, rail):
        """How often the pair of that rail came up."""
        return sum(row['connects'] for row in self.reader.rails()[f'rail{rail}']['pairs'] if row['peer'] == self.store.name)

    def last_read(self):
        return self.reader.show('reads')['reads'][0]

    # ---- the end of every scenario ----

    def sound(self, seconds=60):
        """Really verbs; nothing is left in flight; every window that was opened was closed."""
        for node, g in ((self.store, self.g1), (self.reader, self.g2)):
            try:
                nodes.await_true('idle', lambda n=node: all(self._is_idle(c) for c in n.counters().values()), seconds)
            except nodes.NodeError:
                pass  # the checks below say what is not idle
            for name, rail in node.rails().items():
                what, c = f'{node.name} {name}', rail['counters']
                now, start = self.hw(g, int(name[-1])), self.before[(g.number, int(name[-1]))]
                self.t.equal(f'{what}: verbs, with windows', (rail['transport'], rail['quarantine']), ('verbs', False))
                self.t.check(f'{what}: its device carried packets', now['rcvd_pkts'] > start['rcvd_pkts'] and now['sent_pkts'] > start['sent_pkts'], now)
                self.t.check(f'{what}: every window that was bound was invalidated or fenced, nothing is in flight', self._is_idle(c), c)
                self.t.equal(f'{what}: nothing that the protocol forbids', c['protocol_errors'], 0)
        inflight = self.reader.show('status')['inflight']
        self.t.equal('budgets are back to zero', (inflight['bytes'], inflight['reads']), (0, 0))

    @staticmethod
    def _is_idle(c):
        return c['inflight_bytes'] == 0 and c['windows_invalidated'] + c['windows_fenced'] == c['windows_bound']


def scenarios(t, p, size, functions):
    """Starts the pair with an object 'big' of so many bytes, runs function(t, p) of each scenario, which must leave it sound, and stops it."""
    with t.scenario('start', p.logs):
        p.start()
        p.put('big', size)
    for scenario in functions:
        with t.scenario(scenario.__name__, p.logs):
            scenario(t, p)
            p.sound()
    with t.scenario('end', p.logs):
        p.stop()

# SPDX-License-Identifier: BSD-3-Clause
"""Rails without windows: bytes are the same, whoever has none; and memory of a failed read stays out of use until its QP is gone."""
import nodes
from vm_data import FILE, MIB, get_same, put, resources

SIZE = 20 * MIB + 7
FENCE_SECONDS = 5


def run(t, g, build):
    g.check(f'mkdir -p {nodes.DIR} && head -c {SIZE} /dev/urandom >{FILE}')
    empty = resources(g)
    for store_words, reader_words in (('off', 'off'), ('auto', 'off'), ('off', 'auto')):
        nodes_of = make(g, build, store_words, reader_words)
        with t.scenario(f'store_{store_words}_reader_{reader_words}', logs_of(nodes_of)):
            mixed(t, g, *nodes_of)
    nodes_of = make(g, build, 'off', 'off')
    with t.scenario('stopped_store', logs_of(nodes_of)):
        stopped_store(t, g, *nodes_of)
    t.equal('nothing of theirs is left in the devices', resources(g), empty)


def make(g, build, store_words, reader_words):
    store = nodes.store(g, build, memory='64MiB')
    reader = nodes.reader(g, build, [store], reader_keys={'read_arena': '32MiB', 'put_arena': '32MiB', 'policy': 'round_robin'},
                          timeouts={'fence': f'{FENCE_SECONDS}s'})
    for node, words in ((store, store_words), (reader, reader_words)):
        for rail in node.config['rails']:
            rail['windows'] = words
    return store, reader


def logs_of(nodes_of):
    return lambda: '\n'.join(n.log()[-3000:] for n in nodes_of)


def mixed(t, g, store, reader):
    store.start()
    reader.start().await_pairs()
    t.equal('a put', put(g, reader, 'k', SIZE).status, 0)
    get_same(t, g, reader, 'k')
    for node in (store, reader):
        is_off = node.config['rails'][0]['windows'] == 'off'
        t.check(f'{node.name} warns of quarantine where there is one', ('quarantine: windows are off' in node.log()) == is_off, node.log())
        for name, rail in node.rails().items():
            c, what = rail['counters'], f'{node.name} {name}'
            t.equal(f'{what}: quarantine is shown', rail['quarantine'], is_off)
            t.equal(f'{what}: windows', rail['windows'], 'none (quarantine)' if is_off else 'device')
            if is_off:
                t.equal(f'{what}: no window was bound', c['windows_bound'], 0)
            for counter in ('fences', 'qp_failures', 'protocol_errors', 'checksum_errors', 'segments_failed'):
                t.equal(f'{what}: {counter}', c[counter], 0)
            t.check(f'{what}: it carried bytes', c['rx_bytes'] + c['tx_bytes'] > 0, c)
    t.equal('the reader ends in order', reader.stop(), 0)
    t.equal('the store ends in order', store.stop(), 0)


def stopped_store(t, g, store, reader):
    store.start()
    reader.start().await_pairs()
    t.equal('a put', put(g, reader, 'k', SIZE).status, 0)
    get_same(t, g, reader, 'k')
    t.equal('nothing is out of use', quarantined(reader), 0)
    held = stop_in_mid_read(g, store, reader)
    t.check('the fault bites: memory of the read is out of use', held > 0, held)
    t.equal('no fence yet', fences(reader), 0)
    nodes.await_true('its memory is back after the fence', lambda: quarantined(reader) == 0, FENCE_SECONDS + 20)
    t.check('by the end of its QPs', fences(reader) > 0 and sum(c['qp_failures'] for c in reader.counters().values()) > 0, reader.counters())
    g.check(f'kill -CONT {store.pid()}')
    reader.await_pairs(seconds=90)
    get_same(t, g, reader, 'k')
    t.equal('the reader ends in order', reader.stop(), 0)
    t.equal('the store ends in order', store.stop(), 0)


# A read may be over before the stop reaches the store, and then it proves nothing: another one.
def stop_in_mid_read(g, store, reader):
    status = f"{reader.cli_text('status', '--json')} | tr -d ' \\n'"
    for _ in range(10):
        reads = g.start(f"while timeout 60 {reader.cli_text('get', 'k', f'{nodes.DIR}/out', '--quiet', '--deadline', '2s')}; do :; done")
        g.check(f'''timeout 60 sh -c "until {status} | grep -q 'inflight.:{{[^}}]*.bytes.:[1-9]'; do :; done"; kill -STOP {store.pid()}''', 90)
        reads.wait(90)
        held = quarantined(reader)
        if held:
            return held
        g.check(f'kill -CONT {store.pid()}')
        reader.await_pairs(seconds=90)
    return 0


def quarantined(reader):
    return reader.show('status')['inflight']['quarantined_bytes']


def fences(reader):
    return sum(c['fences'] for c in reader.counters().values())

# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts: reads that their client takes back, a store that writes where it must not, a device that is taken away at either
end and comes back."""
import json
import os
import time

import nodes
from vm_pair import DATA, MIB, Pair, scenarios

SIZE = 32 * MIB
CANCELS = 100
# Emulated CPUs are late by more than the defaults allow for (a fence after 100 ms, a QP given up after half a second); either costs all reads of its QP,
# and what is looked for here is something else.
PATIENT = {name: {'ack_timeout': 18} for name in ('st', 'rd')}
SHIM = f'{nodes.DIR}/shim'
GO = f'{nodes.DIR}/go'


def run(t, guests, build):
    scenarios(t, Pair(t, guests, build, reader_keys={'timeouts': {'fence': '20s'}}, rail_keys=PATIENT), SIZE, (cancel,))
    p = Pair(t, guests, build)
    with t.scenario('store_that_writes_by_a_region_s_key', p.logs):
        p.g1.check(f'rm -rf {SHIM} && mkdir -p {SHIM}')
        p.start(f'env LD_PRELOAD={build}/tests/vm/libwrong_key_store.so SHIM_DIR={SHIM}')
        p.put('big', SIZE)
        writes_by_a_regions_key(t, p)
        p.sound()
        p.stop()
    for end in (2, 1):
        removal(t, Pair(t, guests, build, rail_keys=PATIENT), end)


# ---- cancel ----

def cancel(t, p):
    p.g2.check(f'head -c {16 * MIB} {DATA} >{nodes.DIR}/in.c')
    p.reader.cli('put', 'c', f'{nodes.DIR}/in.c', '--stripe', '64KiB', '--quiet').check()
    before = p.reader.counters()
    seed = int(p.g2.check('head -c 4 /dev/urandom | od -An -tu4').output)
    t.note(f'seed {seed}')
    done = p.g2.run(f'{p.build}/tests/vm/reads_cancelled {p.reader.config["socket"]} c {nodes.DIR}/in.c {CANCELS} {seed}', 280)
    t.check('all the others came to a good end', done.status == 0, done.output)
    got = json.loads(next(line for line in done.output.splitlines() if line.startswith('{')))
    t.note(got)
    t.equal(f'{CANCELS} reads ended as cancelled or were faster', got['cancelled'] + got['finished'], CANCELS)
    t.check('many were cancelled', got['cancelled'] >= CANCELS // 4, got)
    t.check('99 others were always there', got['short'] >= 500, got)
    after = p.reader.counters()
    t.check('CANCELs went over the wire', sum(after[r]['cancels_sent'] - before[r]['cancels_sent'] for r in after) > 0, after)
    for counter in ('fences', 'qp_failures', 'checksum_errors'):
        t.equal(f'no {counter}', sum(after[r][counter] - before[r][counter] for r in after), 0)
    p.get_same('big')


# ---- a key that is not a window's ----

def largest_region(p):
    """What the reader registered with its device of rail 1: the row of the largest region."""
    rows = json.loads(p.g2.check('rdma -d -j resource show mr').output)
    return max((r for r in rows if r.get('pid') == p.reader.pid() and r['ifname'] == 'rxe1'), key=lambda r: r['mrlen'])


def writes_by_a_regions_key(t, p):
    """A region has no remote rights, so the only key there is to guess is the one that its own host uses."""
    failures = p.counters(1)['qp_failures'], p.counters(0)['qp_failures']
    region = largest_region(p)
    t.note(region)
    key = region['lkey']
    p.g1.check(f'echo {key} >{SHIM}/key; echo 0 >{SHIM}/address; touch {SHIM}/aim')
    p.get_same('big', '--failover')
    nodes.await_true('a WRITE was aimed at it', lambda: p.g1.run(f'[ -e {SHIM}/aimed ]').status == 0)
    nodes.await_true('the device refused it', lambda: p.g1.run(f'[ -e {SHIM}/refused ]').status == 0)
    t.check('and did not take it', p.g1.run(f'[ ! -e {SHIM}/written ]').status == 0)
    p.g1.check(f'rm {SHIM}/aim')
    now = p.counters(1)['qp_failures'], p.counters(0)['qp_failures']
    t.check('a QP was lost by it', sum(now) > sum(failures), now)
    for rail in (0, 1):
        p.await_eligible(rail)
    p.get_same('big')


# ---- a device goes ----

# rxe makes no event of it, and the removal waits for everybody who has the device open.
def removal(t, p, end):
    g, node = (p.g1, p.store) if end == 1 else (p.g2, p.reader)
    other = p.store if end == 2 else p.reader
    with t.scenario(f'removal_at_the_{"store" if end == 1 else "reader"}', p.logs):
        p.start()
        p.put('big', SIZE)
        p.g2.check(f'rm -f {GO}')
        kept = [keep_client(p, 'old')]
        remove_in_mid_read(t, p, g)
        rails = nodes.await_true(f'{node.name} has let go', lambda: (r := node.rails())['rail1']['removed'] and r, 20)
        t.equal('rail1 has no pair', rails['rail1']['pairs_up'], 0)
        t.equal('it was said once', node.log().count('it is out of use until its device is back'), 1)
        t.check('the device was closed', 'its RDMA device is closed' in node.log(), node.log)
        t.equal('the other end did not lose its device', other.rails()['rail1']['removed'], False)
        for n in (node, other):
            rail0 = n.rails()['rail0']
            t.equal(f'{n.name}: rail0 has its pair and lost no QP', (rail0['removed'], rail0['pairs_up'], rail0['counters']['qp_failures']), (False, 1, 0))
        goes_on_over_rail0(t, p)
        kept.append(keep_client(p, 'meanwhile'))
        comes_back(t, p, g, node)
        p.g2.check(f'touch {GO}')
        for client in kept:
            is_used_by(t, *client)
        removed_again(t, p, g, node)
        p.stop()


def remove_in_mid_read(t, p, g):
    jobs = start_reads(p, 3)
    p.await_traffic(1)
    remove(t, g)
    end_well(t, p, jobs)


def start_reads(p, n):
    return [p.start_get('big', '--failover', to=f'{nodes.DIR}/out.{i}') for i in range(n)]


def end_well(t, p, jobs):
    for i, job in enumerate(jobs):
        ended = job.wait(90)
        t.check(f'read {i} ends well over what rails there are', ended.status == 0, ended.output)
        t.equal(f'read {i} is byte-exact', p.g2.run(f'cmp {nodes.DIR}/in.big {nodes.DIR}/out.{i}').status, 0)


def remove(t, g):
    # Where it does not return, no signal ends it.
    t.equal('the removal returns', g.status_of(g.start('rdma link delete rxe1').number, 60), 0)
    t.check('the device is gone', 'rxe1' not in g.check('rdma link').output)


# New clients register their memory on what is left.
def goes_on_over_rail0(t, p):
    report = p.get_same('big')
    t.check('a new client reads over rail0', report and [r['name'] for r in report['rails'] if r['bytes']] == ['rail0'], report)
    p.put('more', SIZE)
    p.get_same('more')


def keep_client(p, name):
    """A client of the reader that stays attached until GO is there."""
    job = p.g2.start(f'{p.build}/tests/vm/kept_client {p.reader.config["socket"]} {name} {GO}')
    nodes.await_true(f'client {name} is attached', lambda: job.is_done() or (os.path.exists(job.path) and 'attached' in job.output()), 60)
    return name, job


def is_used_by(t, name, job):
    ended = job.wait(120)
    t.check(f'client {name}: what it puts is what it reads', ended.status == 0, ended.output)
    t.check(f'client {name}: over both rails', '"rails": ["rail0", "rail1"]' in ended.output, ended.output)


def comes_back(t, p, g, node, n_times=1):
    connects = p.rail_connects(1)
    jobs = start_reads(p, 2)
    g.check('rdma link add rxe1 type rxe netdev eth1')
    began = time.monotonic()
    nodes.await_true(f'{node.name} uses it', lambda: not node.rails()['rail1']['removed'], 60)
    t.note(f'taken up after {time.monotonic() - began:.1f} s')
    p.reader.await_pairs(1)
    p.await_eligible(1)
    t.note(f'eligible after {time.monotonic() - began:.1f} s')
    t.equal('it was said', node.log().count('rail1: its RDMA device is back: rxe1'), n_times)
    t.check('its pair came up anew', p.rail_connects(1) > connects)
    end_well(t, p, jobs)
    over_both(t, p)


def over_both(t, p):
    report = p.get_same('big')
    t.check('a new client reads over both rails', report and len([r for r in report['rails'] if r['bytes']]) == 2, report)
    p.put('more', SIZE)
    p.get_same('more')


# And twice in a row, while nothing is under way: the second time right after it was taken up.
def removed_again(t, p, g, node):
    remove(t, g)
    nodes.await_true(f'{node.name} has let go', lambda: node.rails()['rail1']['removed'], 20)
    g.check('rdma link add rxe1 type rxe netdev eth1')
    nodes.await_true(f'{node.name} uses it', lambda: not node.rails()['rail1']['removed'], 60)
    remove(t, g)
    nodes.await_true(f'{node.name} has let go', lambda: node.rails()['rail1']['removed'], 20)
    p.get_same('big', '--failover')
    comes_back(t, p, g, node, 3)

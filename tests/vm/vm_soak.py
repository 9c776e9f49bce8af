# SPDX-License-Identifier: BSD-3-Clause
"""Half a minute, or as long as the suite wants, of reads and puts by several clients while links are cut, lose and swallow at random; every byte is checked."""
import random
import time

import nodes
from vm_pair import MIB, Pair

SECONDS = 30
CLIENTS = 4
KEYS = 4
# A client: reads and compares, over and over; a put of a key of its own now and then. A failure must be a typed one (exit code 1), wrong bytes never happen.
CLIENT = r'''
i={i} n=0 bad=0 failed=0 end=$((SECONDS + {seconds}))
RANDOM={seed}
while [ $SECONDS -lt $end ]; do
	k=s$((RANDOM % {keys})) out={dir}/soak.$i
	policy=$([ $((RANDOM % 2)) = 0 ] && echo --failover || echo --no-failover)
	rm -f $out
	timeout 90 {get} $k $out --quiet $policy >{dir}/soak.$i.log 2>&1
	case $? in
	0) cmp -s {dir}/in.$k $out || {{ bad=$((bad + 1)); echo "wrong bytes of $k"; }} ;;
	1) [ ! -e $out ] || {{ bad=$((bad + 1)); echo "a file of a read that failed"; }}; failed=$((failed + 1)) ;;
	*) bad=$((bad + 1)); echo "exit code $?: $(cat {dir}/soak.$i.log)" ;;
	esac
	n=$((n + 1))
	if [ $((RANDOM % 4)) = 0 ]; then
		timeout 90 {put} own$i {dir}/in.s0 --quiet >{dir}/soak.$i.log 2>&1
		case $? in 0 | 1) ;; *) bad=$((bad + 1)); echo "put: $(cat {dir}/soak.$i.log)" ;; esac
	fi
done
echo "client $i: $n reads, $failed failed"
[ $bad = 0 ] && [ $((n - failed)) -gt 0 ]
'''


def run(t, guests, build):
    seed = random.SystemRandom().randrange(1 << 31)
    t.note(f'seed {seed}')
    draw = random.Random(seed)
    # Arenas of clients that went may wait for a fence: small ones, so that many fit a guest.
    p = Pair(t, guests, build, reader_keys={'reader_keys': {'read_arena': '32MiB', 'put_arena': '32MiB'}})
    with t.scenario('soak', p.logs):
        p.start()
        for i in range(KEYS):
            p.put(f's{i}', draw.randrange(1, 16 * MIB))
        open_before = files(p)
        jobs = [p.g2.start(CLIENT.format(i=i, seed=draw.randrange(32768), seconds=SECONDS, keys=KEYS, dir=nodes.DIR,
                                         get=p.reader.cli_text('get'), put=p.reader.cli_text('put'))) for i in range(CLIENTS)]
        n_faults = trouble(t, p, draw, jobs)
        t.check('links were in trouble, and it was felt', n_faults > 3 and sum(p.counters(r)['qp_failures'] for r in (0, 1)) + p.reader.log().count('is down: ') > 0)
        for i, job in enumerate(jobs):
            result = job.wait(300)
            t.check(f'client {i}: every byte was right, every failure typed', result.status == 0, result.output)
            t.note(result.output)
        for rail in (0, 1):
            p.await_eligible(rail)
        for i in range(KEYS):
            p.get_same(f's{i}')
        p.sound()
        nodes.await_true('one QP on each rail', lambda: all(len(p.qps(g, r)) == 1 for g in guests for r in (0, 1)))
        t.equal('no descriptor is left open', files(p), open_before)
        t.equal('no arena is left', arenas(p), 0)
        p.stop()


def files(p):
    """Descriptors of both daemons, a short while after the last client went."""
    return [int(g.check(f'sleep 1; ls /proc/{node.pid()}/fd | wc -l').output) for g, node in ((p.g1, p.store), (p.g2, p.reader))]


def arenas(p):
    return p.reader.show('status')['clients']['registered_bytes']


def trouble(t, p, draw, jobs):
    """One fault at a time, on one rail, until the clients are done; a pause after each."""
    n, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end and not all(job.is_done() for job in jobs):
        rail, kind, seconds = draw.randrange(2), draw.choice(('cut', 'loss', 'delay', 'hole')), draw.uniform(0.5, 3)
        t.note(f'{kind} of rail{rail} for {seconds:.1f} s')
        if kind == 'cut':
            g = draw.choice((p.g1, p.g2))
            g.set_link(rail, False)
            time.sleep(seconds)
            g.set_link(rail, True)
        elif kind == 'hole':
            with p.black_hole(rail):
                time.sleep(seconds)
        else:
            with p.netem(rail, 'loss 5%' if kind == 'loss' else 'delay 30ms 10ms'):
                time.sleep(seconds)
        n += 1
        time.sleep(draw.uniform(0.5, 2))
    return n

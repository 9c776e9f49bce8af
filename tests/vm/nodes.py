# SPDX-License-Identifier: BSD-3-Clause
"""Daemons in guests: writes configurations, starts and stops railyardd, waits with a bound, runs the CLI.

    store = nodes.store(guest, build)
    reader = nodes.reader(guest, build, [store])
    store.start(); reader.start(); reader.await_pairs(1)
    reader.cli('put', 'key', '/tmp/file').check()
    reader.rails()['rail0']['counters']['windows_bound']
    reader.stop(); store.stop()
"""
import json
import shlex
import time

DIR = '/tmp/railyard'
PORT = 7471
LCORES = '(0-{n})@(0-1)'


class NodeError(Exception):
    """A daemon did not do what a scenario cannot go on without."""


class Cli:
    """How a command of the CLI ended."""

    def __init__(self, command, result):
        self.command = command
        self.status = result.status
        self.output = result.output

    def check(self):
        if self.status != 0:
            raise NodeError(f'{self.command}: exit code {self.status}: {self.output[-1500:]}')
        return self

    def json(self):
        self.check()
        try:
            return json.loads(self.output)
        except ValueError as e:
            raise NodeError(f'{self.command}: no JSON ({e}): {self.output[-1500:]}') from None


def address(rail, number, is_ipv6=False):
    """Address of rail `rail` of guest `number`; the init of the guests gave it."""
    return f'fd77:{rail}::{number}' if is_ipv6 else f'10.77.{rail}.{number}'


def write(guest, path, text):
    guest.check(f'mkdir -p $(dirname {shlex.quote(path)}) && printf %s {shlex.quote(text)} >{shlex.quote(path)}')


def await_true(what, probe, seconds=60, pause=0.1):
    """Asks probe() until it is true and returns what it gave; NodeError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        got = probe()
        if got:
            return got
        if time.monotonic() > end:
            raise NodeError(f'not within {seconds} s: {what}')
        time.sleep(pause)


class Node:
    """A daemon of one guest. `config` may be changed until start(); it is written as JSON, which is YAML too."""

    def __init__(self, guest, build, config, lcores=None):
        self.guest, self.build, self.config = guest, build, config
        self.name = config['node']
        self.base = f'{DIR}/{self.name}'
        self.config.setdefault('socket', f'{self.base}.sock')
        self.lcores = lcores or LCORES.format(n=len(config['rails']))
        self.job = None

    # `prefix`: words before the command, such as setpriv or env; `limits`: a shell command before it, such as ulimit.
    def start(self, prefix='', limits='', seconds=60):
        """Starts it and waits until its control socket answers."""
        self.spawn(prefix, limits)
        try:
            await_true(f'{self.name} answers', self._answers_or_ended, seconds)
        except NodeError as e:
            raise NodeError(f'{e}\n{self.log()}') from None
        if self.job.is_done():
            raise NodeError(f'{self.name} ended at once with {self.job.wait(1).status}:\n{self.log()}')
        return self

    def spawn(self, prefix='', limits=''):
        """As start, without waiting: .job.wait() tells how it ended."""
        write(self.guest, f'{self.base}.yaml', json.dumps(self.config, indent=1))
        daemon = f'{self.build}/control/daemon/railyardd'
        self.job = self.guest.start(f'{limits or ":"}; echo $$ >{self.base}.pid; '
                                    f"exec {prefix} {daemon} --lcores '{self.lcores}' -- --config {self.base}.yaml")
        return self.job

    def _answers_or_ended(self):
        return self.job.is_done() or self.cli('status').status == 0

    def log(self):
        return self.job.output() if self.job else ''

    def pid(self):
        return int(self.guest.check(f'cat {self.base}.pid').output)

    def is_running(self):
        return bool(self.job) and not self.job.is_done()

    def stop(self, seconds=60):
        """SIGTERM; returns the exit status."""
        return self.signal('TERM', seconds)

    # rxe waits up to a minute for each QP that had a window open when its process was killed.
    def kill(self, seconds=180):
        return self.signal('KILL', seconds)

    def signal(self, name, seconds):
        self.guest.run(f'kill -{name} $(cat {self.base}.pid)')
        status = self.job.wait(seconds).status
        if name == 'KILL':
            self.guest.run(f'rm -f {self.config["socket"]}')
        return status

    def cli_text(self, *words):
        """The shell command that runs the CLI against this daemon."""
        return f'{self.build}/control/cli/railyard ' + ' '.join(
            shlex.quote(str(w)) for w in (*words[:1], '--socket', self.config['socket'], *words[1:]))

    def cli(self, *words, seconds=60):
        text = self.cli_text(*words)
        return Cli(text, self.guest.run(f'timeout {seconds} {text}', seconds + 30))

    def start_cli(self, *words, seconds=60):
        """Beside what runs already; returns a job."""
        return self.guest.start(f'timeout {seconds} {self.cli_text(*words)}')

    def show(self, *words):
        """The JSON that a command prints."""
        return self.cli(*words, '--json').json()

    def rails(self):
        """name -> what `railyard rails` says about it."""
        return {r['name']: r for r in self.show('rails')['rails']}

    def counters(self):
        """rail -> counters."""
        return {name: r['counters'] for name, r in self.rails().items()}

    def await_pairs(self, n_each=1, seconds=60, rails=None):
        """Waits until each rail (or each of `rails`) has `n_each` pairs up; returns rails()."""
        def are_up():
            got = self.rails()
            return got if all(got[name]['pairs_up'] >= n_each for name in rails or got) else None
        try:
            return await_true(f'{n_each} pairs up on each rail of {self.name}', are_up, seconds)
        except NodeError as e:
            raise NodeError(f'{e}\n{self.cli("health").output}\n{self.log()[-3000:]}') from None


def store(guest, build, name='st', n_rails=2, transport='verbs', memory='256MiB', is_ipv6=False, port=PORT, **more):
    """A store on rails 0 to n_rails - 1 of its guest. `more`: further sections or keys of the configuration."""
    return Node(guest, build, {
        'node': name, 'roles': ['store'],
        'rails': [{'name': f'rail{i}', 'transport': transport, 'address': address(i, guest.number, is_ipv6), 'port': port + i}
                  for i in range(n_rails)],
        'store': {'memory': memory}, **more})


def reader(guest, build, stores, name='rd', n_rails=2, transport='verbs', is_ipv6=False, reader_keys=None, **more):
    """A reader; rail i dials rail i of each store."""
    return Node(guest, build, {
        'node': name, 'roles': ['reader'],
        'rails': [{'name': f'rail{i}', 'transport': transport, 'address': address(i, guest.number, is_ipv6)} for i in range(n_rails)],
        'stores': [{'name': s.name,
                    'endpoints': [{'address': r['address'], 'port': r['port'], 'rail': f'rail{i}'}
                                  for i, r in enumerate(s.config['rails'][:n_rails])]} for s in stores],
        'reader': {'read_arena': '192MiB', 'put_arena': '96MiB', **(reader_keys or {})}, **more})

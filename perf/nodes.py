# SPDX-License-Identifier: BSD-3-Clause
"""A store and a reader that a measurement starts on addresses of this host. Used by verbs.py and sweep.py."""
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time

MIB = 1 << 20


class Failure(Exception):
    """The measurement could not be made, or something else was measured."""


def parse_size(text):
    number, unit = re.fullmatch(r'(\d+)(KiB|MiB|GiB)', text).groups()
    return int(number) << {'KiB': 10, 'MiB': 20, 'GiB': 30}[unit]


class Nodes:
    """A store and a reader on the given addresses."""

    def __init__(self, build, transport, addresses, store_mib, arena_mib, directory, dead=None, first_port=7700, rail_keys='', reader_keys=''):
        """dead: address and port of a store that never answers; the reader has it in its configuration, too. rail_keys, reader_keys: more keys of every rail, of
        the reader."""
        self.build, self.transport, self.addresses, self.dir = build, transport, addresses, directory
        self.processes = []
        self.socket = f'{directory}/rd.sock'
        ports = [first_port + i for i in range(len(addresses))]
        rails = ''.join(f'  - {{name: rail{i}, transport: {transport}, address: "{a}", port: {ports[i]}{rail_keys}}}\n' for i, a in enumerate(addresses))
        self.start('st', f'node: st\nsocket: {directory}/st.sock\nroles: [store]\nrails:\n{rails}store:\n  memory: {store_mib}MiB\n')
        rails = ''.join(f'  - {{name: rail{i}, transport: {transport}, address: "{a}"{rail_keys}}}\n' for i, a in enumerate(addresses))
        ends = ''.join(f'      - {{address: "{a}", port: {ports[i]}, rail: rail{i}}}\n' for i, a in enumerate(addresses))
        more = f'  - name: dead\n    endpoints:\n      - {{address: "{dead[0]}", port: {dead[1]}, rail: rail0}}\n' if dead else ''
        self.start('rd', f'node: rd\nsocket: {self.socket}\nroles: [reader]\nrails:\n{rails}stores:\n  - name: st\n    endpoints:\n{ends}{more}'
                   f'reader:\n  read_arena: {arena_mib}MiB\n  put_arena: 32MiB\n  inflight: {max(arena_mib, 256)}MiB\n  client_inflight: {max(arena_mib, 256)}MiB\n{reader_keys}')
        self.await_pairs()

    def start(self, name, text):
        with open(f'{self.dir}/{name}.yaml', 'w', encoding='ascii') as f:
            f.write(text)
        log = open(f'{self.dir}/{name}.log', 'wb')
        cpus = os.cpu_count()
        self.processes.append(subprocess.Popen(
            [f'{self.build}/control/daemon/railyardd', '--lcores', f'(0-{len(self.addresses)})@(0-{cpus - 1})', '--', '--config', f'{self.dir}/{name}.yaml'],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def ask(self, *command):
        done = subprocess.run([f'{self.build}/control/cli/railyard', '--socket', self.socket, *command, '--json'], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def await_pairs(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            health = self.ask('health')
            if health and health['n_eligible'] >= len(self.addresses):
                return
            if any(p.poll() is not None for p in self.processes):
                break
            time.sleep(0.1)
        logs = ''.join(open(f'{self.dir}/{n}.log', encoding='utf-8', errors='replace').read()[-800:] for n in ('st', 'rd'))
        raise Failure('the pairs did not come up:\n' + logs)

    def check(self):
        """The run was what it says: this transport, windows, none left open."""
        for rail in self.ask('rails')['rails']:
            c = rail['counters']
            if rail['transport'] != self.transport or rail['quarantine'] or c['fences'] or not c['windows_bound']:
                raise Failure(f'rail {rail["name"]} was not measured as {self.transport} with windows: {json.dumps(rail)[:400]}')
            if c['windows_bound'] != c['windows_invalidated']:
                raise Failure(f'rail {rail["name"]}: {c["windows_bound"]} windows bound, {c["windows_invalidated"]} invalidated')

    def read(self, size, depth, seconds, rate):
        return self.read_n(size, depth, max(4, int(seconds * rate / size)))

    def read_n(self, size, depth, count):
        done = subprocess.run([f'{self.build}/perf/railyard-perf', 'read', '--socket', self.socket, '--size', str(size), '--depth', str(depth),
                               '--count', str(count), '--json'], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure('railyard-perf: ' + done.stderr.strip())
        result = json.loads(done.stdout)
        if not result['verified'] or result['transport'] != self.transport:
            raise Failure(f'reads were not verified, or not over {self.transport}')
        return result

    def rss_bytes(self):
        """Of the reader."""
        with open(f'/proc/{self.processes[1].pid}/status', encoding='ascii') as f:
            return int(re.search(r'VmRSS:\s+(\d+) kB', f.read()).group(1)) << 10

    @contextlib.contextmanager
    def watched(self):
        """Collects the most of what `railyard status` shows meanwhile: bytes in flight, bytes registered."""
        most = {'inflight_bytes': 0, 'registered_bytes': 0, 'rss_bytes': 0}
        is_over = threading.Event()

        def watch():
            while not is_over.wait(0.1):
                status = self.ask('status')
                if status:
                    most['inflight_bytes'] = max(most['inflight_bytes'], status['inflight']['bytes'])
                    most['registered_bytes'] = max(most['registered_bytes'], status['clients']['registered_bytes'])
                    most['rss_bytes'] = max(most['rss_bytes'], self.rss_bytes())
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield most
        finally:
            is_over.set()
            thread.join()

    def stop(self):
        for p in reversed(self.processes):
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()

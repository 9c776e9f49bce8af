# SPDX-License-Identifier: BSD-3-Clause
"""Guests with Soft-RoCE for tests: start one or two, run commands in them, cut the links between them.

A guest sees the host's files at their own paths, read-only; what it writes is gone with it, except for what commands print.
"""
import base64
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
N_RAILS = 2
MTU = 4200  # rxe's active_mtu becomes 4096
BOOT_SECONDS = 180


class GuestError(Exception):
    """A guest did not start, or a command could not be run in it."""


class Result:
    """How a command in a guest ended: status, and everything it printed."""

    def __init__(self, status, output):
        self.status = status
        self.output = output

    def json(self):
        return json.loads(self.output)


class Job:
    """A command that runs in a guest. wait() returns its Result; output so far is in .path on the host."""

    def __init__(self, guest, number, path):
        self.guest, self.number, self.path = guest, number, path

    def wait(self, seconds=120):
        status = self.guest.status_of(self.number, seconds)
        if status is None:
            raise GuestError(f'{self.guest.name}: no end of a command within {seconds} s:\n' + self.output()[-2000:])
        return Result(status, self.output())

    def is_done(self):
        return self.guest.status_of(self.number, 0) is not None

    def output(self):
        with open(self.path, encoding='utf-8', errors='replace') as f:
            return f.read()


class Guest:
    """One virtual machine. `peer_ports` makes its rails virtio devices that listen (first) or connect (second)."""

    def __init__(self, kernel_dir, number=1, memory_mib=3072, cpus=2, hugepages=256, mtus=(MTU, MTU), links=None):
        self.name = f'guest{number}'
        self.number = number
        self.dir = tempfile.mkdtemp(prefix='ry-vm-')
        os.chmod(self.dir, 0o755)
        self.out = os.path.join(self.dir, 'out')
        os.mkdir(self.out, 0o777)
        self.done = {}
        self.changed = threading.Condition()
        self.next_number = 0
        self.monitor = None
        self.serial = socket.socket(socket.AF_UNIX)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(self.dir, 'serial'))
        listener.listen(1)
        self.console = open(os.path.join(self.dir, 'console'), 'wb')
        self.process = subprocess.Popen(
            self._command(kernel_dir, memory_mib, cpus, hugepages, mtus, links), stdin=subprocess.DEVNULL, stdout=self.console, stderr=subprocess.STDOUT)
        listener.settimeout(30)
        try:
            self.serial, _ = listener.accept()
        except socket.timeout:
            raise GuestError(f'{self.name}: qemu did not start:\n' + self.console_text()) from None
        finally:
            listener.close()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _command(self, kernel_dir, memory_mib, cpus, hugepages, mtus, links):
        words = {
            'agent': os.path.join(HERE, 'agent.sh'),
            'modules': os.path.join(kernel_dir, 'lib', 'modules'),
            'rails': 'eth' if links else 'veth',
            'address': self.number,
            'mtu': mtus[0],
            'hugepages': hugepages,
        }
        command = [
            'qemu-system-x86_64', '-accel', 'tcg,thread=multi,tb-size=512', '-cpu', 'max', '-smp', str(cpus), '-m', str(memory_mib), '-nodefaults',
            '-no-reboot', '-display', 'none', '-kernel', os.path.join(kernel_dir, 'vmlinuz'), '-initrd', os.path.join(kernel_dir, 'initrd'),
            '-append', 'console=ttyS0 quiet mitigations=off panic=1 net.ifnames=0 ' + ' '.join(f'railyard.{k}={v}' for k, v in words.items()),
            '-virtfs', 'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap',
            '-virtfs', f'local,path={self.out},mount_tag=out,security_model=none',
            '-serial', 'stdio', '-chardev', f'socket,id=agent,path={self.dir}/serial', '-serial', 'chardev:agent',
            '-qmp', f'unix:{self.dir}/monitor,server=on,wait=off',
        ]
        for i, port in enumerate(links or ()):
            role = 'listen' if self.number == 1 else 'connect'
            command += ['-netdev', f'socket,id=n{i},{role}=127.0.0.1:{port}',
                        '-device', f'virtio-net-pci,netdev=n{i},mac=52:54:00:77:0{i}:0{self.number},host_mtu={mtus[i]}']
        return command

    def _read(self):
        rest = b''
        while True:
            try:
                got = self.serial.recv(4096)
            except OSError:
                got = b''
            with self.changed:
                if not got:
                    self.done['end'] = 1
                    self.changed.notify_all()
                    return
                *lines, rest = (rest + got).split(b'\n')
                for line in lines:
                    words = line.split()
                    if len(words) == 2 and words[1].isdigit():
                        self.done[words[0].decode()] = int(words[1])
                self.changed.notify_all()

    def status_of(self, number, seconds):
        """None: it has not ended within that time."""
        with self.changed:
            self.changed.wait_for(lambda: number in self.done or 'end' in self.done, seconds)
            if number in self.done:
                return self.done[number]
            if 'end' in self.done:
                raise GuestError(f'{self.name} died:\n' + self.console_text())
            return None

    def await_ready(self):
        if self.status_of('ready', BOOT_SECONDS) is None:
            raise GuestError(f'{self.name} is not ready after {BOOT_SECONDS} s:\n' + self.console_text())

    def start(self, command):
        """Runs a bash command line beside what runs already."""
        self.next_number += 1
        number = str(self.next_number)
        path = os.path.join(self.out, number)
        self.serial.sendall(number.encode() + b' ' + base64.b64encode(command.encode()) + b'\n')
        return Job(self, number, path)

    def run(self, command, seconds=120):
        return self.start(command).wait(seconds)

    def check(self, command, seconds=120):
        """As run, but a failure is an exception."""
        result = self.run(command, seconds)
        if result.status != 0:
            raise GuestError(f'{self.name}: {command!r} ended with {result.status}:\n{result.output[-2000:]}')
        return result

    def set_link(self, rail, is_up):
        """Pulls or plugs the cable of a rail between two guests, from outside."""
        if not self.monitor:
            self.monitor = socket.socket(socket.AF_UNIX)
            self.monitor.settimeout(10)
            self.monitor.connect(os.path.join(self.dir, 'monitor'))
            self.monitor_lines = self.monitor.makefile('rw')
            self.monitor_lines.readline()
            self._monitor('qmp_capabilities', {})
        self._monitor('set_link', {'name': f'n{rail}', 'up': is_up})

    def _monitor(self, what, arguments):
        self.monitor_lines.write(json.dumps({'execute': what, 'arguments': arguments}) + '\n')
        self.monitor_lines.flush()
        while True:
            answer = json.loads(self.monitor_lines.readline())
            if 'return' in answer:
                return
            if 'error' in answer:
                raise GuestError(f'{self.name}: {what}: {answer["error"]["desc"]}')

    def console_text(self):
        with open(os.path.join(self.dir, 'console'), encoding='utf-8', errors='replace') as f:
            return f.read()[-4000:]

    def end(self):
        with contextlib.suppress(OSError):
            self.serial.sendall(b'off off\n')
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.serial.close()
        self.reader.join(5)
        if self.monitor:
            self.monitor.close()
        self.console.close()
        if not os.environ.get('RAILYARD_VM_KEEP'):
            shutil.rmtree(self.dir, ignore_errors=True)


def prepare():
    """The directory with kernel and initramfs; made when it is not there."""
    made = subprocess.run([os.path.join(HERE, 'prepare.sh')], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        raise GuestError('no kernel for the guests: see above')
    return made.stdout.strip()


def _free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(('127.0.0.1', 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


@contextlib.contextmanager
def one(**options):
    """One guest with both ends of two rails: rxe0, rxe1 on v0 10.77.0.1 and v1 10.77.1.1. Faults of links have no effect here."""
    guest = Guest(prepare(), **options)
    try:
        guest.await_ready()
        yield guest
    finally:
        guest.end()


@contextlib.contextmanager
def two(mtus=((MTU, MTU), (MTU, MTU)), **options):
    """Two guests, joined by two links: rxe0 and rxe1 on eth0 10.77.0.N and eth1 10.77.1.N of guest N."""
    kernel = prepare()
    ports = _free_ports(N_RAILS)
    guests = []
    try:
        for number in (1, 2):
            guests.append(Guest(kernel, number=number, links=ports, mtus=mtus[number - 1], **options))
        for guest in guests:
            guest.await_ready()
        yield guests
    finally:
        for guest in guests:
            guest.end()

# SPDX-License-Identifier: BSD-3-Clause
"""Dials a verbs store as a peer would, until the pair is up at both ends, and closes; again and again.

usage: dial_cycles.py ADDRESS PORT CYCLES

Every second time it says goodbye first. Prints how many pairs were up; exit code 0: all.
"""
import socket
import struct
import sys

HELLO = struct.Struct('<I6H3QI2HI2H2I32s32s64x')  # struct wire_hello
META = struct.Struct('<I2H2IQ')                  # struct wire_meta
MAGIC, MAJOR, BOOTSTRAP, VERBS = 0x64726179, 1, 1, 2
QPS, READY, BYE, SHUTDOWN = 15, 11, 12, 1
TIMEOUT_S = 10


def read(sock, n):
    got = b''
    while len(got) < n:
        more = sock.recv(n - len(got))
        if not more:
            raise ConnectionError('the store closed the connection')
        got += more
    return got


# Messages that are not waited for, such as a KEEPALIVE, are passed over.
def read_meta(sock, wanted):
    while True:
        head = read(sock, META.size)
        length, kind, *_ = META.unpack(head)
        body = read(sock, length + 4 - META.size)
        if kind == wanted:
            return head + body


def cycle(address, port, number):
    with socket.create_connection((address, port), TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(HELLO.pack(MAGIC, MAJOR, 0, BOOTSTRAP, VERBS, 0, 0, 4242, 1, 0, 0, 1, 8, 1024, 8, 0, 262144, 0, b'dialler', b'x0'))
        answer = HELLO.unpack(read(sock, HELLO.size))
        status = answer[17]
        if status:
            raise ConnectionError(f'refused with status {status}')
        # Any QP will do as the far end: nothing is sent to it. The store's own is at hand.
        sock.sendall(read_meta(sock, QPS))
        sock.sendall(META.pack(META.size - 4, READY, 0, 0, 0, 0))
        read_meta(sock, READY)
        if number % 2:
            sock.sendall(META.pack(META.size + 4, BYE, 0, 0, 0, 0) + struct.pack('<2I', SHUTDOWN, 0))


def main():
    address, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    done = 0
    try:
        for i in range(n):
            cycle(address, port, i)
            done += 1
    except (OSError, ConnectionError) as e:
        print(f'cycle {done}: {e}')
    print(f'{done} pairs were up')
    sys.exit(done != n)


if __name__ == '__main__':
    main()
